//! One attempt at one server: a connection, and the session served on it, or why not.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::TcpStream;
use zk_proto::{Credentials, Grant, Handshake, Purpose};

use super::transport::Stream;
use super::{Auth, ConnectFailure, ConnectSpec, Host};
use crate::time::{BootTime, within};

/// How long the steps of one attempt may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) connect: Duration,
    /// Once there is a connection.
    pub(super) handshake: Duration,
}

/// Why a server did not become the session's server.
#[derive(Clone, Debug)]
pub(super) enum Refusal {
    /// Another one may, or this one at another time.
    Unavailable(String),
    /// The session is over.
    Expired,
    /// The credentials are not accepted.
    AuthFailed(String),
    /// This side and the server do not accept each other's certificates.
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "needed with TLS"))]
    Tls(String),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        #[cfg(feature = "tls")]
        if error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
            return Self::Tls(error.to_string());
        }
        Self::Unavailable(error.to_string())
    }
}

impl From<zk_proto::Refusal> for Refusal {
    fn from(refusal: zk_proto::Refusal) -> Self {
        match refusal {
            zk_proto::Refusal::Expired => Self::Expired,
            zk_proto::Refusal::AuthFailed(reason) => Self::AuthFailed(reason),
            other => Self::Unavailable(other.to_string()),
        }
    }
}

/// A connection on which the session is served.
pub(super) struct Attached {
    pub(super) address: SocketAddr,
    pub(super) stream: Stream,
    pub(super) grant: Grant,
    /// What came after the handshake.
    pub(super) rest: BytesMut,
    /// When the connect request was sent.
    pub(super) sent: BootTime,
}

/// What every attempt needs.
#[derive(Clone)]
pub(super) struct Dialer {
    auth: Arc<[Auth]>,
    #[cfg(feature = "sasl")]
    sasl: Option<crate::secure::SaslDigest>,
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsConnector>,
}

impl Dialer {
    pub(super) async fn new(spec: &ConnectSpec) -> Result<Self, ConnectFailure> {
        Ok(Self {
            auth: Arc::clone(&spec.auth),
            #[cfg(feature = "tls")]
            tls: match &spec.secure.tls {
                Some(options) => Some(super::tls::connector(options).await.map_err(ConnectFailure::Tls)?),
                None => None,
            },
            #[cfg(feature = "sasl")]
            sasl: spec.secure.sasl.clone(),
        })
    }

    /// Takes the session to that server, or makes one there. What for is asked right before it is sent.
    ///
    /// # Cancel safety
    /// Cancel safe: the connection is closed. A new session that the server makes nevertheless ends by its timeout.
    pub(super) async fn attach(
        &self,
        host: &Host,
        purpose: impl FnOnce() -> Purpose,
        patience: Patience,
    ) -> Result<Attached, Refusal> {
        let stream = within(BootTime::now() + patience.connect, TcpStream::connect(host.address)).await;
        let stream = stream.ok_or_else(|| {
            Refusal::Unavailable(format!("it takes no connection within {:.1?}", patience.connect))
        })??;
        // A request must not wait for the answer to the one before.
        stream.set_nodelay(true)?;
        let greeting = within(BootTime::now() + patience.handshake, self.greet(stream, host, purpose));
        greeting.await.ok_or_else(|| {
            let waited = patience.handshake;
            Refusal::Unavailable(format!(
                "it takes connections, but no session came about within {waited:.1?}"
            ))
        })?
    }

    async fn greet(
        &self,
        stream: TcpStream,
        host: &Host,
        purpose: impl FnOnce() -> Purpose,
    ) -> Result<Attached, Refusal> {
        #[cfg(feature = "tls")]
        let mut stream = match &self.tls {
            Some(tls) => Stream::Tls(Box::new(super::tls::shake_hands(tls, host, stream).await?)),
            None => Stream::Tcp(stream),
        };
        #[cfg(not(feature = "tls"))]
        let mut stream = Stream::Tcp(stream);
        let auth: Vec<(&str, &[u8])> =
            self.auth.iter().map(|auth| (auth.scheme.as_str(), auth.secret.expose())).collect();
        let mut handshake = Handshake::new(
            &purpose(),
            Credentials {
                auth: &auth,
                #[cfg(feature = "sasl")]
                sasl: self.sasl.as_ref().map(|sasl| {
                    let password = String::from_utf8_lossy(sasl.password.expose());
                    zk_proto::DigestMd5::new(sasl.user.clone(), password, cnonce())
                }),
            },
        );
        let mut rest = BytesMut::new();
        let sent = BootTime::now();
        loop {
            let outgoing = handshake.outgoing();
            if !outgoing.is_empty() {
                stream.write_all(&outgoing).await?;
            }
            if stream.read_buf(&mut rest).await? == 0 {
                return Err(Refusal::Unavailable(
                    "it closed the connection during the handshake: it serves no clients now".to_owned(),
                ));
            }
            if let Some(grant) = handshake.receive(&mut rest)? {
                return Ok(Attached { address: host.address, stream, grant, rest, sent });
            }
        }
    }
}

/// From the randomness that the system gives to every process.
#[cfg(feature = "sasl")]
fn cnonce() -> u128 {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};

    let half = || u128::from(RandomState::new().build_hasher().finish());
    half() << 64 | half()
}
