//! What protects a connection: TLS and SASL, as asked for.

use std::path::PathBuf;

use crate::error::ConnectError;
use crate::secret::Secret;

/// How to speak TLS with the servers. The server's certificate must always be valid, for the name by which the connect
/// string calls it: there is no way to turn that off.
///
/// All files are PEM. They are read anew for each new session, so that a renewed certificate is taken up then; within a
/// session, reconnects use what was read at its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Certificates of the authorities that may have signed the servers' certificates. The system's own authorities do
    /// not count.
    pub ca_file: PathBuf,
    /// This client's certificate, and those that lead from it to an authority that the servers accept.
    pub cert_file: Option<PathBuf>,
    /// The private key of that certificate, not encrypted.
    pub key_file: Option<PathBuf>,
}

/// A user of SASL DIGEST-MD5.
#[derive(Clone, Debug)]
pub(crate) struct SaslDigest {
    pub(crate) user: String,
    pub(crate) password: Secret,
}

/// What was asked for, checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secure {
    pub(crate) tls: Option<TlsOptions>,
    pub(crate) sasl: Option<SaslDigest>,
}

impl Secure {
    /// Whether the servers may learn from it who the client is.
    pub(crate) fn has_identity(&self) -> bool {
        self.sasl.is_some() || self.tls.as_ref().is_some_and(|tls| tls.cert_file.is_some())
    }

    pub(crate) fn check(&self) -> Result<(), ConnectError> {
        for (wanted, what, built, feature) in [
            (self.tls.is_some(), "TLS", cfg!(feature = "tls"), "tls"),
            (self.sasl.is_some(), "SASL", cfg!(feature = "sasl"), "sasl"),
        ] {
            if wanted && !built {
                return Err(ConnectError::Unsupported { what, feature });
            }
        }
        let invalid = |reason: &str| Err(ConnectError::InvalidSetting { reason: reason.to_owned() });
        match &self.tls {
            Some(tls) if tls.cert_file.is_some() != tls.key_file.is_some() => {
                return invalid("tls: cert_file and key_file belong together, and only one of them is given");
            }
            Some(tls) if tls.ca_file.as_os_str().is_empty() => {
                return invalid("tls: ca_file is missing; nothing else can tell a server from a stranger");
            }
            _ => {}
        }
        if let Some(sasl) = &self.sasl {
            if sasl.user.is_empty() {
                return invalid("sasl_digest: the user is empty");
            }
            if std::str::from_utf8(sasl.password.expose()).is_err() {
                return invalid("sasl_digest: the password is not UTF-8");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls() -> TlsOptions {
        TlsOptions { ca_file: "/ca.pem".into(), ..TlsOptions::default() }
    }

    #[test]
    fn what_is_not_compiled_in_is_refused_by_name() {
        let sasl = SaslDigest { user: "u".to_owned(), password: Secret::from("hunter2") };
        for (feature, built, secure) in [
            ("tls", cfg!(feature = "tls"), Secure { tls: Some(tls()), ..Secure::default() }),
            ("sasl", cfg!(feature = "sasl"), Secure { sasl: Some(sasl), ..Secure::default() }),
        ] {
            match secure.check() {
                Ok(()) => assert!(built),
                Err(error) => {
                    let said = error.to_string();
                    assert!(!built && said.contains(feature) && !said.contains("hunter2"), "{said}");
                }
            }
        }
        assert_eq!(Secure::default().check(), Ok(()));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn halves_are_refused() {
        let half = TlsOptions { key_file: Some("/key.pem".into()), ..tls() };
        for tls in [half, TlsOptions::default()] {
            let secure = Secure { tls: Some(tls), ..Secure::default() };
            let error = secure.check().unwrap_err();
            assert!(matches!(error, ConnectError::InvalidSetting { .. }), "{error}");
        }
    }
}
