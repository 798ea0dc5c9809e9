//! HTTP clients of this program. None of them uses a proxy or follows a redirect: the named host has to answer.

#[cfg(feature = "tls")]
use std::sync::Once;

/// A client for plain HTTP.
pub(crate) fn plain() -> reqwest::ClientBuilder {
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
pub(crate) fn secure(certificates: Option<&[u8]>) -> Result<reqwest::ClientBuilder, reqwest::Error> {
    let builder = direct();
    #[cfg(feature = "tls")]
    if let Some(pem) = certificates {
        return Ok(builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(pem)?));
    }
    #[cfg(not(feature = "tls"))]
    let _ = certificates;
    Ok(builder)
}

fn direct() -> reqwest::ClientBuilder {
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
