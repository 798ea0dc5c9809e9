//! TLS: the configuration from files, and the handshake.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::servers::hosts::Host;
use crate::settings::dial::Duplex;
use crate::settings::renewed::renewed;
use crate::settings::{ReadFile, Settings, TlsOptions};

/// For one connection: reads the files, and uses what was read last if they can't be used now. `None` without TLS.
pub(super) async fn connector(settings: &Settings) -> Result<Option<TlsConnector>, String> {
    let Some(options) = settings.tls.clone() else { return Ok(None) };
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

pub(crate) fn config(options: &TlsOptions, read: &ReadFile) -> Result<Arc<ClientConfig>, String> {
    let read = |path: &Path| read.0(path).map_err(|error| format!("cannot read {}: {error}", path.display()));
    let named = |path: &Path, what: &str| format!("{}: {what}", path.display());
    let certificates = |path: &Path| {
        let pem = read(path)?;
        let all: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let all = all.map_err(|error| named(path, &error.to_string()))?;
        if all.is_empty() { Err(named(path, "no certificate in this file")) } else { Ok(all) }
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&options.ca_file)? {
        roots.add(certificate).map_err(|error| named(&options.ca_file, &error.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let (Some(cert_file), Some(key_file)) = (&options.cert_file, &options.key_file) else {
        return Ok(Arc::new(builder.with_no_client_auth()));
    };
    let chain = certificates(cert_file)?;
    // Without the error's text: no part of a key may get into an error.
    let key = PrivateKeyDer::from_pem_slice(&read(key_file)?)
        .map_err(|_| named(key_file, "no unencrypted private key in this file"))?;
    let config = builder.with_client_auth_cert(chain, key);
    Ok(Arc::new(config.map_err(|error| named(cert_file, &format!("certificate or key: {error}")))?))
}
