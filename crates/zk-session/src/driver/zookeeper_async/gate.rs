//! Where the client connects to: a loopback socket that takes one connection, from this driver's own client.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::wire::{ConnectRequest, FrameReader, MAX_HANDSHAKE, MAX_REQUEST};

/// How long a connection may take to say who it is.
const SILENCE: Duration = Duration::from_secs(1);

/// Strangers that are listened to at one time.
const STRANGERS: usize = 16;

/// The driver's end of its client's connection.
pub(super) struct Local {
    pub(super) reader: FrameReader<OwnedReadHalf>,
    pub(super) writer: OwnedWriteHalf,
}

/// A socket that waits for the client.
pub(super) struct Gate {
    listener: TcpListener,
    address: SocketAddr,
    /// The client can be made to say one thing of our choice as it connects: the session timeout that it asks for. By
    /// this number it is told from any other process that finds the port.
    watchword: i32,
}

impl Gate {
    pub(super) async fn open() -> io::Result<Gate> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        // Half an hour at the least: the client also uses it as a timeout until it has heard from us.
        let watchword = 1_800_000 + i32::try_from(random() % 2_000_000_000).unwrap_or(0);
        Ok(Gate { listener, address, watchword })
    }

    /// What the client is to connect to.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The session timeout that the client is to ask for.
    pub(super) fn watchword(&self) -> Duration {
        Duration::from_millis(u64::from(self.watchword.unsigned_abs()))
    }

    /// The client's connection, its request to connect taken. After this the port is closed: the client connects once
    /// in its life.
    pub(super) async fn admit(self) -> io::Result<Local> {
        let mut arrivals = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if arrivals.len() < STRANGERS => {
                    let (stream, _) = accepted?;
                    arrivals.spawn(timeout(SILENCE, examine(stream, self.watchword)));
                }
                Some(outcome) = arrivals.join_next() => {
                    if let Ok(Ok(Some(local))) = outcome {
                        return Ok(local);
                    }
                }
            }
        }
    }
}

async fn examine(stream: TcpStream, watchword: i32) -> Option<Local> {
    stream.set_nodelay(true).ok()?;
    let (reader, writer) = stream.into_split();
    let mut reader = FrameReader::new(reader, MAX_HANDSHAKE);
    let frame = reader.next().await.ok()??;
    let request = ConnectRequest::parse(frame.payload()).ok()?;
    if request.timeout_ms != watchword || request.session_id != 0 {
        return None;
    }
    reader.set_limit(MAX_REQUEST);
    Some(Local { reader, writer })
}

/// A number that another process can't guess: a hash whose key comes from the operating system.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn knock(gate: &Gate, timeout_ms: i32) -> TcpStream {
        let mut stream = TcpStream::connect(gate.address()).await.unwrap();
        let request = ConnectRequest { last_zxid: 0, timeout_ms, session_id: 0, password: vec![0; 16] };
        stream.write_all(request.to_frame().as_bytes()).await.unwrap();
        stream
    }

    #[tokio::test]
    async fn only_who_knows_the_watchword_is_let_in() {
        let gate = Gate::open().await.unwrap();
        let address = gate.address();
        let silent = TcpStream::connect(address).await.unwrap();
        let mut stranger = knock(&gate, gate.watchword ^ 1).await;
        let mut client = knock(&gate, gate.watchword).await;
        let mut local = gate.admit().await.unwrap();

        client.write_all(&[0, 0, 0, 1, 7]).await.unwrap();
        let frame = local.reader.next().await.unwrap().unwrap();
        assert_eq!(frame.payload(), [7]);
        assert_eq!(stranger.read(&mut [0]).await.unwrap(), 0, "turned away");
        drop(silent);
        assert!(TcpStream::connect(address).await.is_err(), "the port is closed");
    }
}
