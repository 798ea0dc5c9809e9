//! A TCP proxy on loopback that breaks connections as networks do, when the test asks for it.

mod frame;
mod link;
mod record;
mod rule;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

pub(crate) use frame::Asked;
pub use frame::Op;
pub use record::{PassedFrame, Sender};
pub use rule::{Loss, Lost, Which};

use crate::error::Context as _;
use crate::listener::Listener;
use crate::times::FAR;
use crate::{Error, PortReservation};
use link::{Gate, ProxyState};
use record::Record;
pub(crate) use rule::{FaultKind, MatchedFault, Rules};

/// How often the count of connections is looked at while one is awaited.
const LOOK: Duration = Duration::from_millis(2);

/// A TCP proxy between clients and a server, with fault injection.
/// Nothing happens at random or by time: each fault happens when its method is called. Faults of requests wait
/// for the request and report it ([`Loss`]). The proxy reads ZooKeeper's framing to distinguish requests;
/// unframed bytes (four-letter words, TLS) pass unread.
///
/// It works on the tokio runtime that it was started on, and ends when it is
/// dropped, resetting its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<ProxyState>,
    orders: mpsc::UnboundedSender<Order>,
    acceptor: JoinHandle<()>,
}

/// An order to the acceptor, which answers when it is done.
#[derive(Debug)]
enum Order {
    Cut(oneshot::Sender<usize>),
    Refuse(bool, oneshot::Sender<std::io::Result<()>>),
}

impl Proxy {
    /// A proxy for one server, on a free port.
    ///
    /// # Errors
    /// [`Error::Ports`] or [`Error::Io`] if it can't listen.
    pub async fn start(target: SocketAddr) -> Result<Self, Error> {
        Self::start_many(vec![target]).await
    }

    /// The same at another loopback address, such as 127.0.0.2: to a client the server is on a host of its own.
    ///
    /// # Errors
    /// [`Error::Ports`] or [`Error::Io`] if it can't listen.
    pub async fn start_at(ip: Ipv4Addr, target: SocketAddr) -> Result<Self, Error> {
        Self::start_with(ip, vec![target], true).await
    }

    /// A proxy for several servers: each connection goes to the first of them,
    /// in this order, that accepts it.
    ///
    /// # Errors
    /// [`Error::Ports`] or [`Error::Io`] if it can't listen.
    pub async fn start_many(targets: Vec<SocketAddr>) -> Result<Self, Error> {
        Self::start_with(Ipv4Addr::LOCALHOST, targets, true).await
    }

    /// For another protocol than that of clients: requests are not distinguished.
    pub(crate) async fn start_unframed(target: SocketAddr) -> Result<Self, Error> {
        Self::start_with(Ipv4Addr::LOCALHOST, vec![target], false).await
    }

    async fn start_with(ip: Ipv4Addr, targets: Vec<SocketAddr>, framed: bool) -> Result<Self, Error> {
        let ports = PortReservation::take(1)?;
        let address = SocketAddr::from((ip, ports.ports()[0]));
        let listener = Listener::open(address).context(|| format!("the proxy cannot listen on {address}"))?;
        let shared = Arc::new(ProxyState {
            gate: watch::Sender::new(Gate::default()),
            rules: Rules::default(),
            seen: Mutex::default(),
            accepted: Mutex::default(),
            record: Record::default(),
            connected: Arc::default(),
            targets,
            framed,
        });
        let (orders, receiver) = mpsc::unbounded_channel();
        let acceptor =
            Acceptor { listener, _ports: ports, shared: Arc::clone(&shared), links: JoinSet::new() };
        let acceptor = tokio::spawn(acceptor.run(receiver));
        Ok(Self { address, shared, orders, acceptor })
    }

    /// Where clients connect to reach the server through the proxy.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The present number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections()
    }

    /// When each connection was accepted, those that have ended included.
    #[must_use]
    pub fn accepted(&self) -> Vec<Instant> {
        self.shared.accepted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until it has exactly that many connections.
    ///
    /// # Errors
    /// [`Error::Timeout`] with the number there was.
    pub async fn wait_connections(&self, count: usize, within: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + within.min(FAR);
        loop {
            let there = self.connections();
            if there == count {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Error::Timeout {
                    what: format!("{count} connections through the proxy"),
                    within,
                    detail: format!(": there are {there}"),
                });
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// How many requests of a kind clients have sent, those that were lost on
    /// their way to the server included.
    #[must_use]
    pub fn seen(&self, op: Op) -> u64 {
        let seen = self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(&op).copied().unwrap_or(0)
    }

    /// Keeps every frame that passes from now on, until it is [taken](Self::take_record). Begin before the first client
    /// connects: the frame that names the session of a connection is its first.
    ///
    /// It costs the memory of the frames.
    pub fn record(&self) {
        self.shared.record.begin();
    }

    /// The frames that have passed since the last call, in the order in which the proxy has read them. Empty unless it
    /// [records](Self::record).
    #[must_use]
    pub fn take_record(&self) -> Vec<PassedFrame> {
        self.shared.record.take()
    }

    /// Resets all connections, and returns their number. When it returns they are gone, and no byte of theirs
    /// passes any more. New ones are accepted.
    pub async fn cut(&self) -> usize {
        let (done, answer) = oneshot::channel();
        let _ = self.orders.send(Order::Cut(done));
        answer.await.unwrap_or(0)
    }

    /// Refuses new connections, as a host without a listener does, or accepts them again. Existing connections
    /// stay; see [`cut`](Self::cut).
    ///
    /// # Errors
    /// [`Error::Io`] if it can't listen again.
    pub async fn refuse(&self, refuse: bool) -> Result<(), Error> {
        let (done, answer) = oneshot::channel();
        let _ = self.orders.send(Order::Refuse(refuse, done));
        answer
            .await
            .unwrap_or(Ok(()))
            .context(|| format!("the proxy cannot listen on {} again", self.address))
    }

    /// Holds back all bytes in both directions and closes nothing, as if a cable were pulled; connections can
    /// be made and get no answer. When it ends, the bytes arrive, as TCP would have sent them again. To lose it
    /// for good, [`cut`](Self::cut) first.
    pub fn black_hole(&self, on: bool) {
        self.shared.gate.send_modify(|gate| gate.black_hole = on);
    }

    /// Holds back what clients send, and lets through what the server sends.
    pub fn hold_requests(&self, on: bool) {
        self.shared.gate.send_modify(|gate| gate.hold_requests = on);
    }

    /// Holds back what the server sends, and lets through what clients send:
    /// requests are carried out and not answered.
    pub fn hold_replies(&self, on: bool) {
        self.shared.gate.send_modify(|gate| gate.hold_replies = on);
    }

    /// Delays all bytes of the server from now on, in their order.
    pub fn delay_replies(&self, by: Duration) {
        self.shared.gate.send_modify(|gate| gate.delay = by);
    }

    /// Loses the reply to the next request that matches: the request passes; when its reply comes (which proves
    /// that the server has carried it out), the reply is dropped and the connection reset. Earlier replies
    /// pass. If the connection ends otherwise before the reply, the fault is used up.
    pub fn lose_reply(&self, which: Which) -> Loss {
        self.shared.rules.add(which, FaultKind::ToClient)
    }

    /// Loses the next request that matches: it does not reach the server, and the connection is reset. To the
    /// client that is the same as a lost reply, but nothing was done.
    pub fn lose_request(&self, which: Which) -> Loss {
        self.shared.rules.add(which, FaultKind::ToServer)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

struct Acceptor {
    listener: Listener,
    _ports: PortReservation,
    shared: Arc<ProxyState>,
    links: JoinSet<()>,
}

impl Acceptor {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Cut(done)) => {
                        let cut = self.shared.connections();
                        self.links.shutdown().await;
                        let _ = done.send(cut);
                    }
                    Some(Order::Refuse(refuse, done)) => {
                        let _ = done.send(self.listener.refuse(refuse));
                    }
                    None => return,
                },
                (client, _) = self.listener.accept() => self.link(client),
                Some(_) = self.links.join_next() => {}
            }
        }
    }

    fn link(&mut self, client: tokio::net::TcpStream) {
        let shared = Arc::clone(&self.shared);
        let connected = Arc::clone(&shared.connected);
        let number = {
            let mut accepted = shared.accepted.lock().unwrap_or_else(PoisonError::into_inner);
            accepted.push(Instant::now());
            accepted.len() - 1
        };
        self.links.spawn(async move {
            let _connected = connected;
            link::run(client, number, &shared).await;
        });
    }
}
