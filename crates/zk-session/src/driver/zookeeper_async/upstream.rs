//! One connection to one server: made, bound to a session, authenticated.

use std::io;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::wire::{
    ConnectRequest, FrameReader, Grant, MAX_HANDSHAKE, MAX_REPLY, Malformed, ReplyHeader, auth_frame,
    bare_frame, code, op, xid,
};
use crate::driver::seek::{Patience, Refusal};
use crate::driver::{Auth, Host};

/// A connection on which the session's next frame can be sent.
pub(super) struct Upstream {
    pub(super) reader: FrameReader<OwnedReadHalf>,
    pub(super) writer: OwnedWriteHalf,
    /// What the server granted, now.
    pub(super) grant: Grant,
}

/// Which session a connection is for.
#[derive(Clone)]
pub(super) enum Purpose {
    /// A new one, with the timeout to ask for.
    New(Duration),
    /// This one; no server will do that is behind that transaction.
    Resume(Grant, i64),
}

impl From<Malformed> for Refusal {
    fn from(error: Malformed) -> Refusal {
        Refusal::Unavailable(error.to_string())
    }
}

impl Upstream {
    /// Connects to `host` for the session.
    ///
    /// # Cancel safety
    /// Cancelled, or failing, it closes the connection. A new session that the server has made by then is left to
    /// expire.
    pub(super) async fn attach(
        host: &Host,
        purpose: &Purpose,
        auth: &[Auth],
        patience: Patience,
    ) -> Result<Upstream, Refusal> {
        let connecting = timeout(patience.connect, TcpStream::connect(host.address));
        let stream = match connecting.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(Refusal::Unavailable(error.to_string())),
            Err(_) => {
                return Err(Refusal::Unavailable(format!("no connection within {:?}", patience.connect)));
            }
        };
        let greeting = timeout(patience.handshake, Self::greet(stream, purpose, auth));
        greeting.await.unwrap_or_else(|_| {
            Err(Refusal::Unavailable(format!("no answer within {:?}", patience.handshake)))
        })
    }

    async fn greet(stream: TcpStream, purpose: &Purpose, auth: &[Auth]) -> Result<Upstream, Refusal> {
        let lost = |error: io::Error| Refusal::Unavailable(error.to_string());
        stream.set_nodelay(true).map_err(lost)?;
        let (reader, mut writer) = stream.into_split();
        let mut reader = FrameReader::new(reader, MAX_HANDSHAKE);

        writer.write_all(connect_request(purpose).to_frame().as_bytes()).await.map_err(lost)?;
        let frame = reader.next().await.map_err(lost)?.ok_or_else(closed)?;
        let Some(grant) = Grant::parse(frame.payload())? else {
            return Err(match purpose {
                Purpose::Resume(..) => Refusal::Expired,
                Purpose::New(_) => Refusal::Unavailable("the server granted no session".to_owned()),
            });
        };
        if let Purpose::Resume(asked, _) = purpose
            && asked.session_id != grant.session_id
        {
            // A session that was not asked for must never be used.
            return Err(Refusal::Unavailable("the server answered with another session".to_owned()));
        }

        for auth in auth {
            let frame = auth_frame(&auth.scheme, auth.secret.expose());
            writer.write_all(frame.as_bytes()).await.map_err(lost)?;
            let frame = reader.next().await.map_err(lost)?.ok_or_else(closed)?;
            let (header, _) = ReplyHeader::parse(frame.payload())?;
            match (header.xid, header.err) {
                (xid::AUTH, 0) => {}
                (xid::AUTH, code::AUTH_FAILED) => {
                    let reason = format!(
                        "the server does not accept the credentials for the scheme {:?}",
                        auth.scheme
                    );
                    return Err(Refusal::AuthFailed(reason));
                }
                _ => return Err(Malformed("another reply than to the credentials").into()),
            }
        }
        reader.set_limit(MAX_REPLY);
        Ok(Upstream { reader, writer, grant })
    }

    /// Ends a session that turned out to be of no use, as well as it can be done at once.
    pub(super) async fn discard(mut self) {
        let farewell = async {
            self.writer.write_all(bare_frame(1, op::CLOSE).as_bytes()).await?;
            self.reader.next().await
        };
        // Unanswered, the session expires by itself.
        let _ = timeout(Duration::from_millis(500), farewell).await;
    }
}

fn closed() -> Refusal {
    Refusal::Unavailable(
        "the server closed the connection during the handshake: it serves no clients now".to_owned(),
    )
}

fn connect_request(purpose: &Purpose) -> ConnectRequest {
    match purpose {
        Purpose::New(timeout) => ConnectRequest {
            last_zxid: 0,
            timeout_ms: millis(*timeout),
            session_id: 0,
            password: vec![0; 16],
        },
        Purpose::Resume(grant, last_zxid) => ConnectRequest {
            last_zxid: *last_zxid,
            timeout_ms: millis(grant.timeout),
            session_id: grant.session_id,
            password: grant.password.clone(),
        },
    }
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}
