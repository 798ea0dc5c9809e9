//! The socket to which the client connects: on loopback, for one connection, from this driver's own client.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use zk_proto::{ConnectRequest, ConnectResponse, PASSWORD_LEN, cut_frame};

use crate::driver::unguessable;

/// How long a connection may take to identify itself.
const SILENCE: Duration = Duration::from_secs(1);

/// The most unidentified connections at one time.
const STRANGERS: usize = 16;

/// The largest request to connect: 45 bytes by the protocol.
const MAX_HANDSHAKE: usize = 1024;

/// The driver's end of its client's connection, and what has arrived on it.
pub(super) struct Local {
    pub(super) stream: TcpStream,
    pub(super) input: BytesMut,
}

/// A socket that waits for the client.
pub(super) struct Gate {
    listener: TcpListener,
    /// The client sends one value of our choice as it connects: the session timeout that it asks for. This number
    /// distinguishes it from any other process that finds the port.
    watchword: i32,
}

impl Gate {
    pub(super) async fn open() -> io::Result<Gate> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        // Half an hour at the least: the client also uses it as a timeout until it gets an answer.
        let watchword = 1_800_000 + i32::try_from(unguessable() % 2_000_000_000).unwrap_or(0);
        Ok(Gate { listener, watchword })
    }

    /// The connect string for the client.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The session timeout that the client is to ask for.
    pub(super) fn watchword(&self) -> Duration {
        Duration::from_millis(u64::from(self.watchword.unsigned_abs()))
    }

    /// The client's connection, with a session of its own granted: its id and password are made up and never used. After
    /// this the port is closed: the client connects only once.
    pub(super) async fn admit(self, session_timeout: Duration) -> io::Result<Local> {
        let mut arrivals = JoinSet::new();
        let mut local = loop {
            tokio::select! {
                accepted = self.listener.accept(), if arrivals.len() < STRANGERS => {
                    let (stream, _) = accepted?;
                    arrivals.spawn(timeout(SILENCE, examine(stream, self.watchword)));
                }
                Some(outcome) = arrivals.join_next() => {
                    if let Ok(Ok(Some(local))) = outcome {
                        break local;
                    }
                }
            }
        };
        let mut granted = BytesMut::new();
        let timeout_ms = i32::try_from(session_timeout.as_millis()).unwrap_or(i32::MAX);
        let password = vec![0; PASSWORD_LEN];
        ConnectResponse { timeout_ms, session_id: 1, password, read_only: Some(false) }.encode(&mut granted);
        local.stream.write_all(&granted).await?;
        Ok(local)
    }
}

async fn examine(mut stream: TcpStream, watchword: i32) -> Option<Local> {
    stream.set_nodelay(true).ok()?;
    let mut input = BytesMut::new();
    let frame = loop {
        if let Some(frame) = cut_frame(&mut input, MAX_HANDSHAKE).ok()? {
            break frame;
        }
        if stream.read_buf(&mut input).await.ok()? == 0 {
            return None;
        }
    };
    let request = ConnectRequest::decode(&frame).ok()?;
    (request.timeout_ms == watchword && request.session_id == 0).then_some(Local { stream, input })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn knock(gate: &Gate, timeout_ms: i32) -> TcpStream {
        let mut stream = TcpStream::connect(gate.address().unwrap()).await.unwrap();
        let mut request = BytesMut::new();
        let password = vec![0; PASSWORD_LEN];
        ConnectRequest { last_zxid: 0, timeout_ms, session_id: 0, password, read_only: None }
            .encode(&mut request);
        stream.write_all(&request).await.unwrap();
        stream
    }

    #[tokio::test]
    async fn only_who_knows_the_watchword_is_let_in() {
        let gate = Gate::open().await.unwrap();
        let address = gate.address().unwrap();
        let silent = TcpStream::connect(address).await.unwrap();
        let mut stranger = knock(&gate, gate.watchword ^ 1).await;
        let mut client = knock(&gate, gate.watchword).await;
        let mut local = gate.admit(Duration::from_secs(30)).await.unwrap();

        client.write_all(&[7]).await.unwrap();
        assert_eq!(local.stream.read_u8().await.unwrap(), 7);
        assert_eq!(stranger.read(&mut [0]).await.unwrap(), 0, "turned away");
        drop(silent);
        assert!(TcpStream::connect(address).await.is_err(), "the port is closed");
    }
}
