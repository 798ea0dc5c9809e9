//! A proxy between clients and a server that counts the messages of each connection.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinSet,
    time::sleep,
};

/// The xid of a ping and its answer.
const PING: i32 = -2;
/// The xid of a watch's event.
const EVENT: i32 = -1;
/// Whether a znode exists; of the root, a session that checks whether a server answers.
const EXISTS: i32 = 3;
/// A deletion; of this znode, which never exists, it is the heartbeat of a lease.
const DELETE: i32 = 2;
const HEARTBEAT: &[u8] = b"/zk-session-barrier";

/// The time until members have no more to send.
const PATIENCE: Duration = Duration::from_secs(120);

/// How much of a frame is read.
const LOOKED_AT: usize = 64;

/// The messages of one connection, without pings, probes and heartbeats, which depend on time and not on a change.
#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    events: AtomicU64,
    to_server: AtomicU64,
    to_client: AtomicU64,
    /// Heartbeats and probes that have no answer yet.
    heartbeats: Mutex<HashSet<i32>>,
    ended: AtomicBool,
}

/// The messages of one connection up to a time, or between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) requests: u64,
    pub(crate) events: u64,
    pub(crate) to_server: u64,
    pub(crate) to_client: u64,
    /// The client has left it: a client that seeks a server tries one before its session begins.
    pub(crate) ended: bool,
}

impl Passed {
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            events: self.events - before.events,
            to_server: self.to_server - before.to_server,
            to_client: self.to_client - before.to_client,
            ended: self.ended,
        }
    }
}

/// Ends with its connections when dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    connections: Arc<Mutex<Vec<Arc<Counters>>>>,
    _accepting: JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn start(server: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let connections: Arc<Mutex<Vec<Arc<Counters>>>> = Arc::default();
        let all = Arc::clone(&connections);
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut passing = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(server).await else { continue };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let counters = Arc::new(Counters::default());
                all.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&counters));
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                passing.spawn(pass(from_client, to_server, Arc::clone(&counters), Counters::sent));
                passing.spawn(pass(from_server, to_client, counters, Counters::answered));
                while passing.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, connections, _accepting: accepting })
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// The messages of each connection, in the order of the connections.
    pub(crate) fn passed(&self) -> Vec<Passed> {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections
            .iter()
            .map(|counters| Passed {
                requests: counters.requests.load(Relaxed),
                events: counters.events.load(Relaxed),
                to_server: counters.to_server.load(Relaxed),
                to_client: counters.to_client.load(Relaxed),
                ended: counters.ended.load(Relaxed),
            })
            .collect()
    }

    /// Waits until there was no message for this long. Returns the messages so far.
    pub(crate) async fn quiet(&self, quiet: Duration) -> Result<Vec<Passed>, String> {
        let (mut last, begun) = (self.passed(), Instant::now());
        let mut since = begun;
        while since.elapsed() < quiet {
            if begun.elapsed() > PATIENCE {
                return Err(format!("something has passed all the time for {PATIENCE:?}"));
            }
            sleep(Duration::from_millis(50)).await;
            let now = self.passed();
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(last)
    }
}

impl Counters {
    fn sent(&self, frame: &[u8], bytes: u64) {
        let kind = number(frame, 8);
        let heartbeats = match kind {
            DELETE => frame.windows(HEARTBEAT.len()).any(|part| part == HEARTBEAT),
            EXISTS => number(frame, 12) == 1,
            _ => false,
        };
        match number(frame, 4) {
            PING => {}
            xid if heartbeats => {
                self.heartbeats.lock().unwrap_or_else(PoisonError::into_inner).insert(xid);
            }
            _ => {
                self.requests.fetch_add(1, Relaxed);
                self.to_server.fetch_add(bytes, Relaxed);
            }
        }
    }

    fn answered(&self, frame: &[u8], bytes: u64) {
        let xid = number(frame, 4);
        if xid == PING || self.heartbeats.lock().unwrap_or_else(PoisonError::into_inner).remove(&xid) {
            return;
        }
        self.events.fetch_add(u64::from(xid == EVENT), Relaxed);
        self.to_client.fetch_add(bytes, Relaxed);
    }
}

fn number(frame: &[u8], at: usize) -> i32 {
    frame.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, i32::from_be_bytes)
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    counters: Arc<Counters>,
    count: fn(&Counters, &[u8], u64),
) {
    let mut buffer = vec![0; 64 * 1024];
    let mut frames = Frames::default();
    while let Ok(read) = from.read(&mut buffer).await {
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            break;
        }
        frames.feed(&buffer[..read], |frame, bytes| count(&counters, frame, bytes));
    }
    counters.ended.store(true, Relaxed);
}

/// Finds the frames in a stream: each begins with its length.
#[derive(Default)]
struct Frames {
    beginning: Vec<u8>,
    /// The part of the present frame that is skipped.
    rest: usize,
}

impl Frames {
    fn feed(&mut self, mut bytes: &[u8], mut found: impl FnMut(&[u8], u64)) {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let skipped = self.rest.min(bytes.len());
                self.rest -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let wanted = if self.beginning.len() < 4 { 4 } else { self.whole().min(LOOKED_AT) };
            let taken = (wanted - self.beginning.len()).min(bytes.len());
            self.beginning.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            let whole = self.whole();
            if self.beginning.len() >= 4 && self.beginning.len() == whole.min(LOOKED_AT) {
                found(&self.beginning, whole as u64);
                self.rest = whole - self.beginning.len();
                self.beginning.clear();
            }
        }
    }

    /// The length of the present frame, with the length field.
    fn whole(&self) -> usize {
        4 + usize::try_from(number(&self.beginning, 0)).unwrap_or(0)
    }
}
