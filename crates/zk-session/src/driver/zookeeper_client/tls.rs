//! TLS: files to options of the client, and a handshake of our own that tells what is wrong.
//!
//! The client tries again whatever goes wrong with a connection, and says of it only that there is none. So before it is
//! asked for a session, one connection is made and given up here: a certificate that this side or the server does not
//! accept is told at once, and by its own name.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;

use crate::driver::{ConnectFailure, ConnectSpec, Host};
use crate::secure::TlsOptions;
use crate::time::{BootTime, within};

/// No server is waited for longer than this before another one is asked.
const PATIENCE: Duration = Duration::from_secs(3);

/// The contents of the files.
struct Pem {
    ca: String,
    identity: Option<(String, String)>,
}

/// Reads the files, makes sure that some server and this side accept each other, and answers the client's options.
pub(super) async fn prepare(
    spec: &ConnectSpec,
    options: &TlsOptions,
) -> Result<zookeeper_client::TlsOptions, ConnectFailure> {
    let options = options.clone();
    let (config, client) = spawn_blocking(move || {
        // The client takes the provider of the process; whoever chose one has chosen for it, too.
        if CryptoProvider::get_default().is_none() {
            // An error means that somebody was faster: then there is one.
            let _ = aws_lc_rs::default_provider().install_default();
        }
        let pem = read(&options)?;
        Ok((config(&options, &pem)?, client_options(&pem)?))
    })
    .await
    .map_err(|_| ConnectFailure::Tls("the files could not be read".to_owned()))?
    .map_err(ConnectFailure::Tls)?;
    shake_hands(spec, config).await?;
    Ok(client)
}

fn read(options: &TlsOptions) -> Result<Pem, String> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|error| format!("can't read {}: {error}", path.display()))
    };
    let identity = match (&options.cert_file, &options.key_file) {
        (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
        _ => None,
    };
    Ok(Pem { ca: read(&options.ca_file)?, identity })
}

fn config(options: &TlsOptions, pem: &Pem) -> Result<Arc<ClientConfig>, String> {
    let named = |path: &Path, what: &str| format!("{}: {what}", path.display());
    let mut roots = RootCertStore::empty();
    for cert in CertificateDer::pem_slice_iter(pem.ca.as_bytes()) {
        let added = cert.map_err(|error| error.to_string());
        let added = added.and_then(|cert| roots.add(cert).map_err(|error| error.to_string()));
        added.map_err(|error| named(&options.ca_file, &error))?;
    }
    if roots.is_empty() {
        return Err(named(&options.ca_file, "there is no certificate in it"));
    }
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let (Some((cert, key)), Some(cert_file), Some(key_file)) =
        (&pem.identity, &options.cert_file, &options.key_file)
    else {
        return Ok(Arc::new(builder.with_no_client_auth()));
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert.as_bytes()).collect();
    let chain = chain.map_err(|error| named(cert_file, &error.to_string()))?;
    if chain.is_empty() {
        return Err(named(cert_file, "there is no certificate in it"));
    }
    // Without the error's own words: nothing of a key is to get into an error.
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|_| named(key_file, "there is no private key in it that is not encrypted"))?;
    let config = builder.with_client_auth_cert(chain, key);
    Ok(Arc::new(config.map_err(|error| named(cert_file, &format!("certificate or key: {error}")))?))
}

fn client_options(pem: &Pem) -> Result<zookeeper_client::TlsOptions, String> {
    let mut options =
        zookeeper_client::TlsOptions::new().with_pem_ca(&pem.ca).map_err(|error| error.to_string())?;
    if let Some((cert, key)) = &pem.identity {
        options = options.with_pem_identity(cert, key).map_err(|_| "certificate or key".to_owned())?;
    }
    Ok(options)
}

/// Until one server and this side have accepted each other.
async fn shake_hands(spec: &ConnectSpec, config: Arc<ClientConfig>) -> Result<(), ConnectFailure> {
    let connector = TlsConnector::from(config);
    let mut refusals = Vec::new();
    let mut silent = Vec::new();
    for host in &spec.hosts {
        let deadline = spec.deadline.min(BootTime::now() + PATIENCE);
        match within(deadline, greet(&connector, host)).await {
            Some(Ok(())) => return Ok(()),
            Some(Err(error)) if is_verdict(&error) => refusals.push(format!("{}: {error}", in_words(host))),
            Some(Err(error)) => silent.push(format!("{}: {error}", in_words(host))),
            None => silent.push(format!("{}: no TLS handshake in time", in_words(host))),
        }
    }
    if refusals.is_empty() {
        return Err(ConnectFailure::Unavailable(silent.join("; ")));
    }
    Err(ConnectFailure::Tls(refusals.join("; ")))
}

async fn greet(connector: &TlsConnector, host: &Host) -> io::Result<()> {
    let name = ServerName::try_from(host.name.clone()).map_err(|_| {
        io::Error::other(rustls::Error::General("no certificate can carry this name".to_owned()))
    })?;
    let stream = TcpStream::connect(host.address).await?;
    let mut stream = connector.connect(name, stream).await?;
    // In TLS 1.3 the handshake is over on this side before the server has looked at the client's certificate: its first
    // answer, whatever it says, tells that it is content.
    stream.write_all(b"srvr").await?;
    let mut byte = [0];
    stream.read(&mut byte).await.map(drop)
}

/// Whether it was TLS that failed, not the connection: another attempt fails alike.
fn is_verdict(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

fn in_words(host: &Host) -> String {
    format!("{} ({})", host.name, host.address)
}
