//! One attempt at one server: a connection and the session on it, or the reason of the failure.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use zk_proto::{Credentials, Handshake, Purpose, Ticket};

use super::refusal::Refusal;
use super::transport::{ReadEnd, Stream, WriteEnd, open};
use crate::servers::hosts::Host;
use crate::settings::Settings;
use crate::time::{BootTime, Moment, within};

/// How long the steps of one attempt may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) connect: Duration,
    /// Once there is a connection.
    pub(super) handshake: Duration,
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

/// Moves the session to that server, or makes one there. The purpose is read right before it is sent.
///
/// # Cancel safety
/// Cancel safe: the connection is closed. A new session that the server makes nevertheless ends by its timeout.
pub(super) async fn attach(
    settings: &Arc<Settings>,
    host: &Host,
    purpose: impl FnOnce() -> Purpose,
    patience: Patience,
) -> Result<Attached, Refusal> {
    let Patience { connect, handshake } = patience;
    let stream = within(BootTime::now() + connect, open(&settings.dial, host.address)).await;
    let silent = || format!("it accepted no connection within {connect:.1?}");
    let stream = stream.ok_or_else(|| Refusal::Unavailable(silent()))??;
    let greeting = within(BootTime::now() + handshake, greet(settings, stream, host, purpose)).await;
    let silent = || format!("it accepted the connection, but made no session within {handshake:.1?}");
    greeting.ok_or_else(|| Refusal::Unavailable(silent()))?
}

async fn greet(
    settings: &Arc<Settings>,
    stream: Stream,
    host: &Host,
    purpose: impl FnOnce() -> Purpose,
) -> Result<Attached, Refusal> {
    #[cfg(feature = "tls")]
    let stream = match super::tls::connector(settings).await.map_err(Refusal::Tls)? {
        Some(tls) => Stream::Other(super::tls::shake_hands(&tls, host, stream.boxed()).await?),
        None => stream,
    };
    let (mut reader, mut writer) = stream.into_ends();
    let auth = settings.auth.iter().map(|auth| (auth.scheme.as_str(), auth.secret.expose()));
    let auth: Vec<(&str, &[u8])> = auth.collect();
    let credentials = Credentials::new(&auth);
    #[cfg(feature = "sasl")]
    let credentials = match super::sasl::user(settings).await.map_err(Refusal::AuthFailed)? {
        Some(sasl) => {
            let password = String::from_utf8_lossy(sasl.password.expose());
            let cnonce = u128::from(super::unguessable()) << 64 | u128::from(super::unguessable());
            credentials.with_sasl(zk_proto::DigestMd5::new(sasl.user, password, cnonce))
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
                "it closed the connection during the handshake: it does not serve clients now".to_owned(),
            ));
        }
        if let Some(ticket) = handshake.receive(&mut input)? {
            let link = Link { address: host.address, reader, writer, input };
            return Ok(Attached { link, ticket, sent });
        }
    }
}
