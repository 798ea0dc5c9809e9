//! HTTP clients of this program. None of them uses a proxy or follows a redirect: the named host has to answer.

use std::error::Error;
#[cfg(feature = "tls")]
use std::sync::Once;

use reqwest::{ClientBuilder, Response};

use crate::tls::ClientTls;

/// A client for plain HTTP.
pub(crate) fn plain() -> ClientBuilder {
    let builder = direct();
    // It needs no certificates, and reading those of the system takes time.
    #[cfg(feature = "tls")]
    let builder = builder.tls_certs_only([]);
    builder
}

/// A client for HTTP and, with the feature `tls`, HTTPS. It trusts these certificates (PEM), by default those of the
/// system.
///
/// # Errors
/// If the certificates can't be used.
pub(crate) fn secure(certificates: Option<&[u8]>) -> Result<ClientBuilder, reqwest::Error> {
    let builder = direct();
    #[cfg(feature = "tls")]
    if let Some(pem) = certificates {
        return Ok(builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(pem)?));
    }
    #[cfg(not(feature = "tls"))]
    let _ = certificates;
    Ok(builder)
}

/// A client for the endpoints of workers, that verifies them and shows its certificate as `tls` says.
pub(crate) fn of_workers(tls: &ClientTls) -> ClientBuilder {
    let builder = direct();
    #[cfg(feature = "tls")]
    let builder = builder.tls_backend_preconfigured((*tls.0).clone());
    #[cfg(not(feature = "tls"))]
    let _ = tls;
    builder
}

fn direct() -> ClientBuilder {
    #[cfg(feature = "tls")]
    {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            // It fails only if there is one.
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
    }
    reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none())
}

/// The body of an answer; `None` if it is longer, or breaks off.
pub(crate) async fn body(mut answer: Response, longest: usize) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await.ok()? {
        if body.len() + part.len() > longest {
            return None;
        }
        body.extend_from_slice(&part);
    }
    Some(body)
}

/// Why a request has failed: the innermost cause, because the outer ones repeat the URL, which may be secret.
pub(crate) fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let Some(mut cause) = error.source() else { return "the request can't be sent".to_owned() };
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
