//! TLS: the configuration from what was given, and the handshake.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::servers::hosts::Host;
use crate::settings::dial::Duplex;
use crate::settings::renewed::renewed;
use crate::settings::tls::{Pem, Roots, Tls, TlsOptions};
use crate::settings::{ReadFile, Settings};

/// For one connection: reads the files, and uses what was read last if they can't be used now. `None` without TLS.
pub(super) async fn connector(settings: &Settings) -> Result<Option<TlsConnector>, String> {
    let options = match &settings.tls {
        None => return Ok(None),
        Some(Tls::Config(config)) => return Ok(Some(Arc::clone(config).into())),
        Some(Tls::Options(options)) => options.clone(),
    };
    let read = settings.read_file.clone();
    let config = renewed("TLS files", &settings.tls_in_use, move || config(&options, &read)).await?;
    Ok(Some(config.into()))
}

pub(super) async fn shake_hands(
    connector: &TlsConnector,
    host: &Host,
    stream: Box<dyn Duplex>,
) -> io::Result<Box<dyn Duplex>> {
    let name = ServerName::try_from(host.server.name.clone()).map_err(|_| {
        io::Error::other(rustls::Error::General("this name can't be in a certificate".to_owned()))
    })?;
    Ok(Box::new(connector.connect(name, stream).await?))
}

pub(crate) fn config(options: &TlsOptions, by: &ReadFile) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots(&options.roots, by)?);
    let Some((cert, key)) = &options.identity else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let chain = certificates(cert, by)?;
    // Without the error's text: no part of a key may get into an error.
    let key = PrivateKeyDer::from_pem_slice(&content(key, by)?)
        .map_err(|_| named(key, "no unencrypted private key in it"))?;
    let config = builder.with_client_auth_cert(chain, key);
    Ok(Arc::new(config.map_err(|error| named(cert, &format!("certificate or key: {error}")))?))
}

fn roots(of: &Roots, by: &ReadFile) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match of {
        Roots::Pem(pem) => {
            for certificate in certificates(pem, by)? {
                roots.add(certificate).map_err(|error| named(pem, &error.to_string()))?;
            }
        }
        Roots::System => {
            let found = rustls_native_certs::load_native_certs();
            // Some that no program can use are usual.
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
                return Err(format!("this system has no CA certificates: {}", errors.join("; ")));
            }
        }
    }
    Ok(roots)
}

fn certificates(pem: &Pem, by: &ReadFile) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content(pem, by)?).collect();
    let all = all.map_err(|error| named(pem, &error.to_string()))?;
    if all.is_empty() { Err(named(pem, "no certificate in it")) } else { Ok(all) }
}

fn content<'a>(pem: &'a Pem, by: &ReadFile) -> Result<Cow<'a, [u8]>, String> {
    match pem {
        Pem::Given(given) => Ok(given.expose().into()),
        Pem::File(path) => {
            by.0(path).map(Cow::Owned).map_err(|error| format!("cannot read {}: {error}", path.display()))
        }
    }
}

fn named(pem: &Pem, what: &str) -> String {
    match pem {
        Pem::File(path) => format!("{}: {what}", path.display()),
        Pem::Given(_) => format!("the given PEM: {what}"),
    }
}
