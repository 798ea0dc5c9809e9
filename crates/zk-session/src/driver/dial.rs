//! One attempt at one server: a connection and the session on it, or the reason of the failure.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
#[cfg(feature = "tls")]
use rustls::CertificateError;
use tokio::net::TcpStream;
use zk_proto::{Credentials, Handshake, Purpose, Ticket};

use super::ConnectSpec;
use super::transport::{self, ReadEnd, WriteEnd};
use crate::config::Settings;
use crate::error::{ConnectError, NoLease};
use crate::hosts::Host;
use crate::time::{BootTime, Moment, within};

/// How long the steps of one attempt may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) connect: Duration,
    /// Once there is a connection.
    pub(super) handshake: Duration,
}

/// Why a server did not become the session's server.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// Another server may, or this one later.
    Unavailable(String),
    /// The session is over, as far as this server knows.
    Expired,
    /// The server refused the credentials.
    AuthFailed(String),
    /// This side and the server do not accept each other's certificates.
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "needed with TLS"))]
    Tls(String),
    /// The server granted a timeout that leaves no time for a lease.
    TooShort(Duration),
    /// The server granted a new session a shorter timeout than was asked for.
    Less(Duration),
    /// The server granted the session a shorter timeout than it had, which ends it.
    Shorter(String),
    /// The server ends a session with its connection.
    Keeper,
}

impl Refusal {
    /// Whether it is about the session or its configuration: another attempt at this server would end in the same way.
    pub(super) fn is_verdict(&self) -> bool {
        !matches!(self, Self::Unavailable(_))
    }

    pub(super) fn reason(&self) -> String {
        match self {
            Self::Unavailable(reason)
            | Self::AuthFailed(reason)
            | Self::Tls(reason)
            | Self::Shorter(reason) => reason.clone(),
            Self::Expired => "it does not have this session".to_owned(),
            Self::TooShort(granted) => {
                format!("it granted a session timeout of {granted:?}, which is too short")
            }
            Self::Less(granted) => {
                format!("it granted a session timeout of {granted:?}, less than was asked for")
            }
            Self::Keeper => NoLease.to_string(),
        }
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
            return if is_stale {
                Self::Unavailable(error.to_string())
            } else {
                Self::Tls(error.to_string())
            };
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

/// A connection.
pub(super) struct Link {
    pub(super) address: SocketAddr,
    pub(super) reader: ReadEnd,
    pub(super) writer: WriteEnd,
    /// The beginning of a frame.
    pub(super) input: BytesMut,
}

/// A connection on which the session is served.
pub(super) struct Attached {
    pub(super) link: Link,
    /// As granted by this server.
    pub(super) ticket: Ticket,
    /// When the connect request was sent.
    pub(super) sent: Moment,
}

/// What every attempt needs.
#[derive(Clone)]
pub(super) struct Dialer {
    settings: Arc<Settings>,
}

impl Dialer {
    /// Fails if there are files of TLS or SASL that have never been of use.
    pub(super) async fn new(spec: &ConnectSpec) -> Result<Self, ConnectError> {
        #[cfg(feature = "tls")]
        super::tls::connector(&spec.settings).await.map_err(|reason| ConnectError::Tls { reason })?;
        #[cfg(feature = "sasl")]
        super::sasl::user(&spec.settings).await.map_err(|reason| ConnectError::AuthFailed { reason })?;
        Ok(Self { settings: Arc::clone(&spec.settings) })
    }

    /// Moves the session to that server, or makes one there. The purpose is read right before it is sent.
    ///
    /// # Cancel safety
    /// Cancel safe: the connection is closed. A new session that the server makes nevertheless ends by its timeout.
    pub(super) async fn attach(
        &self,
        host: &Host,
        purpose: impl FnOnce() -> Purpose,
        patience: Patience,
    ) -> Result<Attached, Refusal> {
        let Patience { connect, handshake } = patience;
        let stream = within(BootTime::now() + connect, TcpStream::connect(host.address)).await;
        let silent = || format!("it accepted no connection within {connect:.1?}");
        let stream = stream.ok_or_else(|| Refusal::Unavailable(silent()))??;
        // A request must not wait for the answer to the last one.
        stream.set_nodelay(true)?;
        let greeting = within(BootTime::now() + handshake, self.greet(stream, host, purpose)).await;
        let silent = || format!("it accepted the connection, but made no session within {handshake:.1?}");
        greeting.ok_or_else(|| Refusal::Unavailable(silent()))?
    }

    async fn greet(
        &self,
        stream: TcpStream,
        host: &Host,
        purpose: impl FnOnce() -> Purpose,
    ) -> Result<Attached, Refusal> {
        #[cfg(feature = "tls")]
        let (mut reader, mut writer) =
            match super::tls::connector(&self.settings).await.map_err(Refusal::Tls)? {
                Some(tls) => transport::over_tls(super::tls::shake_hands(&tls, host, stream).await?),
                None => transport::over_tcp(stream),
            };
        #[cfg(not(feature = "tls"))]
        let (mut reader, mut writer) = transport::over_tcp(stream);
        let auth = self.settings.auth.iter().map(|auth| (auth.scheme.as_str(), auth.secret.expose()));
        let auth: Vec<(&str, &[u8])> = auth.collect();
        let credentials = Credentials::new(&auth);
        #[cfg(feature = "sasl")]
        let sasl = super::sasl::user(&self.settings).await.map_err(Refusal::AuthFailed)?;
        #[cfg(feature = "sasl")]
        let credentials = match &sasl {
            Some(sasl) => {
                let password = String::from_utf8_lossy(sasl.password.expose());
                let cnonce = u128::from(super::unguessable()) << 64 | u128::from(super::unguessable());
                credentials.with_sasl(zk_proto::DigestMd5::new(sasl.user.clone(), password, cnonce))
            }
            None => credentials,
        };
        let mut handshake = Handshake::new(&purpose(), credentials);
        let mut input = BytesMut::new();
        let sent = Moment::now();
        loop {
            writer.write_all(&handshake.outgoing()).await?;
            if reader.read(&mut input).await? == 0 {
                return Err(Refusal::Unavailable(
                    "it closed the connection during the handshake: it serves no clients now".to_owned(),
                ));
            }
            if let Some(ticket) = handshake.receive(&mut input)? {
                let link = Link { address: host.address, reader, writer, input };
                return Ok(Attached { link, ticket, sent });
            }
        }
    }
}
