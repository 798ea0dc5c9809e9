//! One client's connection through the proxy.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::frame::{Asked, Op, Piece, Pieces, reply_xid};
use super::record::{Record, Sender};
use super::rule::{FaultKind, MatchedFault, Rules};
use crate::times::FAR;

/// What a server may send ahead of what is passed on; beyond that its connection fills up.
const DELAYED: usize = 64;

/// What is let through now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gate {
    pub(crate) black_hole: bool,
    pub(crate) hold_requests: bool,
    pub(crate) hold_replies: bool,
    /// Of what the server sends.
    pub(crate) delay: Duration,
}

impl Gate {
    fn holds_requests(&self) -> bool {
        self.black_hole || self.hold_requests
    }

    fn holds_replies(&self) -> bool {
        self.black_hole || self.hold_replies
    }
}

/// What all connections of one proxy share.
#[derive(Debug)]
pub(crate) struct ProxyState {
    pub(crate) gate: watch::Sender<Gate>,
    pub(crate) rules: Rules,
    pub(crate) seen: Mutex<HashMap<Op, u64>>,
    pub(crate) accepted: Mutex<Vec<std::time::Instant>>,
    pub(crate) record: Record,
    /// The task of each connection has another reference to it.
    pub(crate) connected: Arc<()>,
    pub(crate) targets: Vec<SocketAddr>,
    /// Whether clients speak ZooKeeper's client protocol.
    pub(crate) framed: bool,
}

impl ProxyState {
    pub(crate) fn connections(&self) -> usize {
        Arc::strong_count(&self.connected) - 1
    }

    async fn open(&self, closed: impl Fn(&Gate) -> bool) {
        // The sender lives in `self`, so this ends by the gate's opening only.
        let _ = self.gate.subscribe().wait_for(|gate| !closed(gate)).await;
    }

    /// The end of one side reaches the other as its bytes do: not before the gate is open.
    async fn passes<T>(
        &self,
        result: std::io::Result<T>,
        closed: impl Fn(&Gate) -> bool,
    ) -> Result<T, Reset> {
        if result.is_err() {
            self.open(closed).await;
        }
        Ok(result?)
    }
}

/// Why a connection is reset rather than closed: a fault has struck, or it is gone anyway.
struct Reset(Option<MatchedFault>);

impl From<std::io::Error> for Reset {
    fn from(_: std::io::Error) -> Self {
        Self(None)
    }
}

/// Passes everything on until both sides have ended, or a fault strikes.
///
/// Dropping the future at any point resets both connections.
pub(crate) async fn run(client: TcpStream, number: usize, shared: &ProxyState) {
    let mut client = Wire::new(client);
    shared.open(|gate| gate.black_hole).await;
    let Some(mut server) = connect(&shared.targets).await else { return };
    let link = ProxiedConnection { number, ..ProxiedConnection::default() };
    let ended = {
        let (from_client, to_client) = client.stream.split();
        let (from_server, to_server) = server.stream.split();
        tokio::try_join!(
            link.pass_requests(from_client, to_server, shared),
            link.pass_replies(from_server, to_client, shared),
        )
    };
    (client.ended_well, server.ended_well) = (ended.is_ok(), ended.is_ok());
    // The reset, and only then the news of it.
    drop((client, server));
    if let Err(Reset(Some(fault))) = ended {
        fault.report();
    }
}

/// A connection that is reset when it is dropped, unless it ended well.
struct Wire {
    stream: TcpStream,
    ended_well: bool,
}

impl Wire {
    fn new(stream: TcpStream) -> Self {
        // ZooKeeper's clients and servers don't wait to fill a packet either.
        let _ = stream.set_nodelay(true);
        Self { stream, ended_well: false }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if !self.ended_well {
            // It fails only on a connection that is gone.
            let _ = self.stream.set_zero_linger();
        }
    }
}

/// State that the two directions of one connection share.
#[derive(Default)]
struct ProxiedConnection {
    /// Which of the proxy's connections, from 0.
    number: usize,
    /// The request whose reply is to be lost.
    fault: Mutex<Option<MatchedFault>>,
    /// The server has closed, and the close was passed to the client.
    over: Notify,
}

impl ProxiedConnection {
    async fn pass_requests(
        &self,
        from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        shared: &ProxyState,
    ) -> Result<(), Reset> {
        let mut pieces = Pieces::new(from, shared.framed);
        let mut handshake = true;
        while let Some(piece) = shared.passes(pieces.next().await, Gate::holds_requests).await? {
            shared.record.add(self.number, Sender::Client, &piece);
            shared.open(Gate::holds_requests).await;
            match &piece {
                // The first frame opens the session and has no number.
                Piece::Frame(_) if handshake => handshake = false,
                Piece::Frame(frame) => {
                    if let Some(asked) = Asked::parse(frame) {
                        self.take_match(&asked, shared)?;
                    }
                }
                Piece::Raw(_) => {}
            }
            tokio::select! {
                written = to.write_all(piece.bytes()) => shared.passes(written, Gate::holds_replies).await?,
                // A server that has closed may read no more for minutes, with its window shut.
                () = self.over.notified() => {
                    while shared.passes(pieces.next().await, Gate::holds_requests).await?.is_some() {}
                    return Err(Reset(None));
                }
            }
        }
        shared.open(Gate::holds_requests).await;
        shared.passes(to.shutdown().await, Gate::holds_replies).await
    }

    async fn pass_replies(
        &self,
        from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        shared: &ProxyState,
    ) -> Result<(), Reset> {
        let mut pieces = Pieces::new(from, shared.framed);
        let (sender, mut delayed) = mpsc::channel(DELAYED);
        let arrive = async move {
            while let Some(piece) = shared.passes(pieces.next().await, Gate::holds_replies).await? {
                shared.record.add(self.number, Sender::Server, &piece);
                let due = Instant::now() + shared.gate.borrow().delay.min(FAR);
                if sender.send((due, piece)).await.is_err() {
                    break;
                }
            }
            Ok::<_, Reset>(())
        };
        let leave = async {
            let mut handshake = true;
            while let Some((due, piece)) = delayed.recv().await {
                sleep_until(due).await;
                shared.open(Gate::holds_replies).await;
                match &piece {
                    Piece::Frame(_) if handshake => handshake = false,
                    Piece::Frame(frame) => self.strike(frame)?,
                    Piece::Raw(_) => {}
                }
                shared.passes(to.write_all(piece.bytes()).await, Gate::holds_requests).await?;
            }
            Ok(())
        };
        tokio::try_join!(arrive, leave)?;
        shared.open(Gate::holds_replies).await;
        shared.passes(to.shutdown().await, Gate::holds_requests).await?;
        self.over.notify_one();
        Ok(())
    }

    fn take_match(&self, asked: &Asked, shared: &ProxyState) -> Result<(), Reset> {
        *lock(&shared.seen).entry(asked.op).or_default() += 1;
        // One fault at a time: the next request of this connection never gets a
        // reply anyway, and other rules wait for other connections.
        if lock(&self.fault).is_some() {
            return Ok(());
        }
        match shared.rules.take_match(asked) {
            Some(fault) if fault.kind == FaultKind::ToServer => Err(Reset(Some(fault))),
            fault => {
                *lock(&self.fault) = fault;
                Ok(())
            }
        }
    }

    fn strike(&self, frame: &[u8]) -> Result<(), Reset> {
        let mut fault = lock(&self.fault);
        let awaited = fault.as_ref().map(|fault| fault.xid);
        if awaited.is_none() || reply_xid(frame) != awaited {
            return Ok(());
        }
        Err(Reset(fault.take()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn connect(targets: &[SocketAddr]) -> Option<Wire> {
    for target in targets {
        if let Ok(stream) = TcpStream::connect(target).await {
            return Some(Wire::new(stream));
        }
    }
    None
}
