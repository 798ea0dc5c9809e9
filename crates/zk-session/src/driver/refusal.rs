//! Why a server did not become the session's server.

use std::io;
use std::time::Duration;

#[cfg(feature = "tls")]
use rustls::CertificateError;

use crate::error::NoLease;

/// Why a server did not become the session's server.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// Another server may, or this one later.
    #[error("{0}")]
    Unavailable(String),
    /// The session is over, as far as this server knows.
    #[error("it does not have this session")]
    Expired,
    /// The server refused the credentials.
    #[error("{0}")]
    AuthFailed(String),
    /// This side and the server do not accept each other's certificates.
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "needed with TLS"))]
    #[error("{0}")]
    Tls(String),
    /// The server granted a timeout that leaves no time for a lease.
    #[error("it granted a session timeout of {0:?}, which is too short")]
    TooShort(Duration),
    /// The server granted a new session a shorter timeout than was asked for.
    #[error("it granted a session timeout of {0:?}, less than requested")]
    Less(Duration),
    /// The server granted the session a shorter timeout than it had, which ends it.
    #[error("{0}")]
    Shorter(String),
    /// The server ends a session with its connection.
    #[error("{NoLease}")]
    Keeper,
}

impl Refusal {
    /// Whether it is about the session or its configuration: another attempt at this server would end in the same way.
    pub(super) fn is_verdict(&self) -> bool {
        !matches!(self, Self::Unavailable(_))
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        #[cfg(feature = "tls")]
        if let Some(wrong) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
            // A certificate that is out of date is renewed on its server; the configuration here is in order.
            let is_stale = matches!(
                wrong,
                rustls::Error::InvalidCertificate(
                    CertificateError::Expired
                        | CertificateError::ExpiredContext { .. }
                        | CertificateError::NotValidYet
                        | CertificateError::NotValidYetContext { .. }
                )
            );
            if !is_stale {
                return Self::Tls(error.to_string());
            }
        }
        Self::Unavailable(error.to_string())
    }
}

impl From<zk_proto::Refusal> for Refusal {
    fn from(refusal: zk_proto::Refusal) -> Self {
        match refusal {
            // A server that grants another session does not have the requested one.
            zk_proto::Refusal::Expired | zk_proto::Refusal::AnotherSession => Self::Expired,
            zk_proto::Refusal::AuthFailed(reason) => Self::AuthFailed(reason),
            other => Self::Unavailable(other.to_string()),
        }
    }
}
