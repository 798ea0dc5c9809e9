//! Sockets and timers around the state machine.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::cluster::{Cluster, Ending, Output};
use crate::listener::Listener;

/// How much is read at once.
const READ: usize = 16 << 10;
/// How much is written at once, if so much is there.
const WRITE: usize = 64 << 10;

/// The state machine, and how its outputs reach the connections.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<ShellState>,
    started: Instant,
    /// The next deadline has changed.
    wake: Notify,
}

type Connections = HashMap<u64, mpsc::UnboundedSender<Output>>;
/// A connection, and what is to be done to it.
type Opened = (u64, mpsc::UnboundedReceiver<Output>);

#[derive(Debug)]
struct ShellState {
    cluster: Cluster,
    to: Connections,
    deadline: Option<Duration>,
}

impl Shared {
    pub(super) fn new(cluster: Cluster) -> Self {
        let state = ShellState { cluster, to: HashMap::new(), deadline: None };
        Self { state: Mutex::new(state), started: Instant::now(), wake: Notify::new() }
    }

    /// Does something to the state machine, now, and hands out what comes of it, in
    /// order: while one does, no other can.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Cluster) -> T) -> T {
        self.change(|cluster, _| act(cluster))
    }

    fn change<T>(&self, act: impl FnOnce(&mut Cluster, &mut Connections) -> T) -> T {
        let ShellState { cluster, to, deadline } = &mut *self.state();
        let result = cluster.act(self.started.elapsed(), |cluster| act(cluster, to));
        for (connection, output) in cluster.take_outputs() {
            let ends = matches!(output, Output::Close(_));
            if let Some(to) = to.get(&connection) {
                // It may be ending at this moment.
                let _ = to.send(output);
            }
            if ends {
                to.remove(&connection);
            }
        }
        let next = cluster.next_deadline();
        if *deadline != next {
            *deadline = next;
            self.wake.notify_one();
        }
        result
    }

    fn state(&self) -> MutexGuard<'_, ShellState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is spoken below ZooKeeper's protocol, where that is TLS.
    #[cfg(feature = "tls")]
    fn tls(&self) -> Option<Arc<rustls::ServerConfig>> {
        self.state().cluster.settings.tls.clone()
    }

    fn open(&self, server: usize, peer: SocketAddr) -> Opened {
        let (to, outputs) = mpsc::unbounded_channel();
        let connection = self.change(|cluster, connections| {
            let connection = cluster.open(server, peer);
            connections.insert(connection, to);
            connection
        });
        (connection, outputs)
    }

    fn disconnected(&self, connection: u64) {
        self.change(|cluster, connections| {
            cluster.disconnected(connection);
            connections.remove(&connection);
        });
    }
}

/// Wakes the state machine when something is to happen by itself.
pub(super) async fn run_timers(shared: Arc<Shared>) {
    loop {
        // Whatever is due happens.
        shared.with(|_| ());
        let until = shared.state().deadline.and_then(|deadline| shared.started.checked_add(deadline));
        let woken = shared.wake.notified();
        match until {
            Some(until) => {
                let _ = tokio::time::timeout_at(until, woken).await;
            }
            None => woken.await,
        }
    }
}

/// Whether a server's port is to be shut, and where its end is awaited.
#[derive(Debug)]
pub(super) struct PortChange {
    pub(super) refuse: bool,
    pub(super) done: oneshot::Sender<std::io::Result<()>>,
}

/// Takes the connections to one server; dropping the future ends them.
pub(super) async fn accept(
    shared: Arc<Shared>,
    server: usize,
    mut listener: Listener,
    mut port_changes: mpsc::UnboundedReceiver<PortChange>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(PortChange { refuse, done }) = port_changes.recv() => {
                let _ = done.send(listener.refuse(refuse));
            }
            (stream, peer) = listener.accept() => {
                connections.spawn(serve(Arc::clone(&shared), server, stream, peer));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(shared: Arc<Shared>, server: usize, mut stream: TcpStream, peer: SocketAddr) {
    // Without it small replies would wait for acknowledgements of earlier ones.
    let _ = stream.set_nodelay(true);
    let opened = shared.open(server, peer);
    #[cfg(feature = "tls")]
    if let Some(tls) = shared.tls() {
        return serve_tls(&shared, opened, tls, stream).await;
    }
    let (mut reading, mut writing) = stream.split();
    match exchange(&shared, opened, &mut reading, &mut writing).await {
        Ending::Orderly => {
            let _ = stream.shutdown().await;
        }
        Ending::Reset => {
            // With no time to linger, closing sends a reset.
            let _ = stream.set_zero_linger();
        }
    }
}

/// As [`serve`], over TLS.
#[cfg(feature = "tls")]
async fn serve_tls(
    shared: &Shared,
    (connection, mut outputs): Opened,
    tls: Arc<rustls::ServerConfig>,
    stream: TcpStream,
) {
    let mut accepting = tokio_rustls::TlsAcceptor::from(tls).accept(stream);
    let accepted = tokio::select! {
        biased;
        // Before its first frame a client is sent nothing, but its time may be over.
        output = outputs.recv() => Err(output),
        // An error: the client is refused, or has refused the server.
        accepted = &mut accepting => accepted.map_err(|_| None),
    };
    let stream = match accepted {
        Ok(stream) => stream,
        Err(output) => {
            if let (Some(Output::Close(Ending::Reset)), Some(stream)) = (output, accepting.get_ref()) {
                let _ = stream.set_zero_linger();
            }
            return shared.disconnected(connection);
        }
    };
    let (mut reading, mut writing) = tokio::io::split(stream);
    match exchange(shared, (connection, outputs), &mut reading, &mut writing).await {
        Ending::Orderly => {
            let _ = writing.shutdown().await;
        }
        Ending::Reset => {
            let _ = reading.unsplit(writing).get_ref().0.set_zero_linger();
        }
    }
}

/// As [`serve`], without a socket.
pub(super) async fn serve_in_memory(
    shared: Arc<Shared>,
    server: usize,
    stream: DuplexStream,
    peer: SocketAddr,
) {
    let (mut reading, mut writing) = tokio::io::split(stream);
    let opened = shared.open(server, peer);
    // Nothing is lost that was written before either ending.
    exchange(&shared, opened, &mut reading, &mut writing).await;
}

/// Serves one connection to its end.
async fn exchange(
    shared: &Shared,
    (connection, mut outputs): Opened,
    reading: &mut (impl AsyncRead + Unpin),
    writing: &mut (impl AsyncWrite + Unpin),
) -> Ending {
    let room = Notify::new();
    let written = |count| {
        shared.with(|cluster| cluster.written(connection, count));
        room.notify_one();
    };
    let ending = tokio::select! {
        biased;
        () = read(shared, connection, &room, reading) => None,
        ending = write(writing, &mut outputs, written) => ending,
    };
    shared.disconnected(connection);
    // A client that has closed its sending side may still read.
    match ending {
        Some(ending) => ending,
        None => write(writing, &mut outputs, |_| ()).await.unwrap_or(Ending::Orderly),
    }
}

/// Reads to the end of the client's bytes. While too much is on its way to a client, nothing is read from it,
/// until there is `room`: else one that reads no replies could fill the memory with them.
async fn read(shared: &Shared, connection: u64, room: &Notify, stream: &mut (impl AsyncRead + Unpin)) {
    let mut buffer = vec![0; READ];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => {
                shared.with(|cluster| cluster.receive(connection, &buffer[..count]));
                while !shared.with(|cluster| cluster.has_room(connection)) {
                    room.notified().await;
                }
            }
        }
    }
}

/// Writes to the end of the output; `None` if the client no longer reads.
async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    outputs: &mut mpsc::UnboundedReceiver<Output>,
    written: impl Fn(usize),
) -> Option<Ending> {
    let mut pending = Vec::new();
    let mut unreported = 0;
    while let Some(output) = outputs.recv().await {
        let mut next = Some(output);
        let mut ending = None;
        while let Some(output) = next {
            match output {
                Output::Send(bytes) => pending.extend_from_slice(&bytes),
                Output::Close(how) => ending = Some(how),
            }
            next = if pending.len() < WRITE && ending.is_none() { outputs.try_recv().ok() } else { None };
        }
        if stream.write_all(&pending).await.is_err() || stream.flush().await.is_err() {
            return None;
        }
        unreported += pending.len();
        if unreported >= WRITE {
            written(std::mem::take(&mut unreported));
        }
        pending.clear();
        // The room that a long reply has taken is not kept.
        pending.shrink_to(WRITE);
        if ending.is_some() {
            return ending;
        }
    }
    None
}
