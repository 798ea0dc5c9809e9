//! A bound on connections. Idle ones are closed after a while, and a new one replaces the one that has been idle
//! longest. So `/leader` answers even if clients hold connections open, and descriptors are left for the guards of
//! jobs. A client that takes too long for the handshake of TLS counts as idle sooner.
//!
//! While the worker is cut off for a drill, all connections are closed without an answer.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    time::{Instant, Sleep, sleep_until},
};

use super::transport::{Presented, Transport};
use crate::worker::state::Worker;

/// How long a connection may be idle.
const IDLE: Duration = Duration::from_secs(60);

/// How long the handshake of TLS may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// The pause after an error of the listener, which may repeat at once.
const PAUSE: Duration = Duration::from_millis(50);

/// A listener with a maximum of connections.
pub(super) struct BoundedListener {
    listener: TcpListener,
    /// Those that replace it.
    next: mpsc::Receiver<TcpListener>,
    /// What is done for each of them.
    begins: fn(&Worker, &TcpListener),
    worker: Arc<Worker>,
    open: Arc<OpenConnections>,
    most: usize,
}

#[derive(Default)]
struct OpenConnections {
    /// Counts events on all connections.
    clock: AtomicU64,
    connections: Mutex<BTreeMap<u64, Entry>>,
}

struct Entry {
    /// The clock at its last event.
    active: Arc<AtomicU64>,
    /// How many answers are still in progress on purpose.
    held: Arc<AtomicUsize>,
    /// Dropped, it ends the connection.
    _keep: oneshot::Sender<()>,
}

impl OpenConnections {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// Ends the connection that has been idle longest. One with an answer in progress is not idle.
    fn make_room(&self) {
        let mut connections = self.connections.lock();
        let idlest = connections.iter().min_by_key(|(_, entry)| {
            (entry.held.load(Ordering::Relaxed) > 0, entry.active.load(Ordering::Relaxed))
        });
        if let Some(id) = idlest.map(|(id, _)| *id) {
            connections.remove(&id);
        }
    }
}

impl BoundedListener {
    pub(super) fn new(
        listener: TcpListener,
        next: mpsc::Receiver<TcpListener>,
        begins: fn(&Worker, &TcpListener),
        most: usize,
        worker: Arc<Worker>,
    ) -> Self {
        Self { listener, next, begins, worker, open: Arc::default(), most }
    }

    /// Closes the open connections each time when the worker is cut off.
    pub(super) fn cut_with_worker(&self) -> impl Future<Output = ()> + use<> {
        let (worker, open) = (Arc::clone(&self.worker), Arc::clone(&self.open));
        async move {
            loop {
                worker.next_cut().await;
                open.connections.lock().clear();
            }
        }
    }

    fn connection(&self, stream: TcpStream) -> Connection {
        let presented = Presented::default();
        // The certificate of this moment: a renewed one is used from the next connection on.
        let transport = Transport::new(stream, &self.worker.certificates().borrow(), &presented);
        Connection::new(transport, presented, &self.open)
    }
}

impl Listener for BoundedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let accepted = tokio::select! {
                biased;
                // The open connections stay.
                Some(next) = self.next.recv() => {
                    self.listener = next;
                    (self.begins)(&self.worker, &self.listener);
                    continue;
                }
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    if self.open.connections.lock().len() >= self.most {
                        self.open.make_room();
                    }
                    let connection = self.connection(stream);
                    // After it was noted as open: a cut that begins now closes it.
                    if !self.worker.is_cut_off() {
                        return (connection, peer);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    // No descriptors may be left.
                    self.open.make_room();
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The client of a connection.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    presented: Presented,
    held: Arc<AtomicUsize>,
}

impl Peer {
    /// The name in its certificate, which was verified; `None` without one.
    pub(super) fn certificate(&self) -> Option<&str> {
        self.presented.get().map(String::as_str)
    }

    /// While this lives, an answer is in progress on the connection, even if it is silent.
    pub(super) fn hold(&self) -> Hold {
        self.held.fetch_add(1, Ordering::Relaxed);
        Hold(Arc::clone(&self.held))
    }
}

/// See [`Peer::hold`].
pub(super) struct Hold(Arc<AtomicUsize>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connected<IncomingStream<'_, BoundedListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, BoundedListener>) -> Self {
        let Connection { presented, held, .. } = stream.io();
        Self { address: *stream.remote_addr(), presented: Arc::clone(presented), held: Arc::clone(held) }
    }
}

/// A connection that is closed when it is idle for too long, or when a new one replaces it.
pub(super) struct Connection {
    stream: Transport,
    presented: Presented,
    id: u64,
    open: Arc<OpenConnections>,
    active: Arc<AtomicU64>,
    held: Arc<AtomicUsize>,
    ended: oneshot::Receiver<()>,
    idle: Pin<Box<Sleep>>,
}

impl Connection {
    fn new(stream: Transport, presented: Presented, open: &Arc<OpenConnections>) -> Self {
        let id = open.tick();
        let (active, held) = (Arc::new(AtomicU64::new(id)), Arc::default());
        let (keep, ended) = oneshot::channel();
        let entry = Entry { active: Arc::clone(&active), held: Arc::clone(&held), _keep: keep };
        open.connections.lock().insert(id, entry);
        let patience = if stream.is_shaking() { HANDSHAKE } else { IDLE };
        let idle = Box::pin(sleep_until(Instant::now() + patience));
        Self { stream, presented, id, open: Arc::clone(open), active, held, ended, idle }
    }

    fn mark_active(&mut self) {
        self.active.store(self.open.tick(), Ordering::Relaxed);
        self.idle.as_mut().reset(Instant::now() + IDLE);
    }

    /// Ready with an error once it has to be closed.
    fn poll_end<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let is_over =
            Pin::new(&mut self.ended).poll(context).is_ready() || self.idle.as_mut().poll(context).is_ready();
        if is_over { Poll::Ready(Err(io::ErrorKind::TimedOut.into())) } else { Poll::Pending }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.connections.lock().remove(&self.id);
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, was_shaking) = (buffer.filled().len(), self.stream.is_shaking());
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before || was_shaking && !self.stream.is_shaking() {
            self.mark_active();
        }
        if read.is_ready() { read } else { self.poll_end(context) }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(context, bytes) {
            self.mark_active();
            return Poll::Ready(written);
        }
        // A client that does not read its answer counts as idle.
        self.poll_end(context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
