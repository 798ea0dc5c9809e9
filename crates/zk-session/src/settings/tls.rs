//! TLS settings: where certificates and keys come from.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::settings::secret::Secret;

/// TLS settings. The server's certificate must always be valid for the name in the connect string: this check can't be
/// turned off.
///
/// Files are PEM. They are read again for each connection, as are the system's authorities, so a renewed certificate is used
/// from then on. Files that can't be used, for example in the middle of a renewal, are logged, and the connection uses what was
/// read last. Without an earlier reading they are an error.
///
/// ```
/// use zk_session::TlsOptions;
///
/// let from_files = TlsOptions::new("/etc/app/ca.pem").identity("/etc/app/client.pem", "/etc/app/client.key");
/// let from_the_system = TlsOptions::system_roots();
/// # let [ca, certificate, key] = ["", "", ""];
/// let from_memory = TlsOptions::from_pem(ca).identity_pem(certificate, key);
/// # drop((from_files, from_the_system, from_memory));
/// ```
#[derive(Clone, Debug)]
pub struct TlsOptions {
    pub(crate) roots: Roots,
    /// This client's certificate, with its chain, and its key.
    pub(crate) identity: Option<(Pem, Pem)>,
}

/// The authorities that may have signed the servers' certificates.
#[derive(Clone, Debug)]
pub(crate) enum Roots {
    System,
    Pem(Pem),
}

#[derive(Clone, Debug)]
pub(crate) enum Pem {
    File(PathBuf),
    Given(Secret),
}

impl TlsOptions {
    /// Servers whose certificates one of the authorities in `ca_file` has signed; this client has none. The system's own
    /// authorities are not used.
    pub fn new(ca_file: impl Into<PathBuf>) -> Self {
        Self { roots: Roots::Pem(Pem::File(ca_file.into())), identity: None }
    }

    /// The same with the authorities' certificates themselves, as PEM.
    pub fn from_pem(ca: impl Into<Secret>) -> Self {
        Self { roots: Roots::Pem(Pem::Given(ca.into())), identity: None }
    }

    /// Servers whose certificates one of the authorities has signed that this system trusts: those of `/etc/ssl/certs` as a
    /// rule, or of the environment variables `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    pub fn system_roots() -> Self {
        Self { roots: Roots::System, identity: None }
    }

    /// This client's certificate, with the chain from it to an authority that the servers accept, and the key that belongs to
    /// it, not encrypted.
    #[must_use]
    pub fn identity(self, cert_file: impl Into<PathBuf>, key_file: impl Into<PathBuf>) -> Self {
        Self { identity: Some((Pem::File(cert_file.into()), Pem::File(key_file.into()))), ..self }
    }

    /// The same with certificate and key themselves, as PEM.
    #[must_use]
    pub fn identity_pem(self, cert: impl Into<Secret>, key: impl Into<Secret>) -> Self {
        Self { identity: Some((Pem::Given(cert.into()), Pem::Given(key.into()))), ..self }
    }
}

/// What the connections of a session use.
#[derive(Clone)]
pub(crate) enum Tls {
    Options(TlsOptions),
    /// The caller's, as it is.
    Config(Arc<ClientConfig>),
}

impl Tls {
    /// Whether the servers may know this client by a certificate.
    pub(crate) fn has_certificate(&self) -> bool {
        match self {
            Self::Options(options) => options.identity.is_some(),
            Self::Config(config) => config.client_auth_cert_resolver.has_certs(),
        }
    }

    /// What is missing.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        let Self::Options(TlsOptions { roots: Roots::Pem(Pem::File(ca_file)), .. }) = self else {
            return None;
        };
        let is_missing = ca_file.as_os_str().is_empty();
        is_missing.then_some("tls: ca_file is missing: it is needed to verify the servers")
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(options) => options.fmt(f),
            Self::Config(_) => f.write_str("ClientConfig(..)"),
        }
    }
}
