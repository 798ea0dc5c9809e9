//! Sockets and timers around the state machine.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::cluster::{Cluster, Ending, Output};

/// How much is read at once.
const READ: usize = 16 << 10;
/// How much is written at once, if so much is there.
const WRITE: usize = 64 << 10;
/// After an error that only time can mend, such as too many open files.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The state machine, and how its outputs reach the connections.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    started: Instant,
    /// The next deadline has changed.
    wake: Notify,
}

#[derive(Debug)]
struct State {
    cluster: Cluster,
    to: HashMap<u64, mpsc::UnboundedSender<Output>>,
    deadline: Option<Duration>,
}

impl Shared {
    pub(super) fn new(cluster: Cluster) -> Self {
        let state = State { cluster, to: HashMap::new(), deadline: None };
        Self { state: Mutex::new(state), started: Instant::now(), wake: Notify::new() }
    }

    /// Does something to the state machine, now, and hands out what comes of it, in
    /// order: while one does, nobody else can.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Cluster, Duration) -> T) -> T {
        self.change(|state, now| act(&mut state.cluster, now))
    }

    fn change<T>(&self, act: impl FnOnce(&mut State, Duration) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.started.elapsed();
        let result = act(&mut state, now);
        for (connection, output) in state.cluster.take_outputs() {
            let ends = matches!(output, Output::Close(_));
            if let Some(to) = state.to.get(&connection) {
                // It may be ending at this moment.
                let _ = to.send(output);
            }
            if ends {
                state.to.remove(&connection);
            }
        }
        let deadline = state.cluster.next_deadline();
        if state.deadline != deadline {
            state.deadline = deadline;
            self.wake.notify_one();
        }
        result
    }

    fn open(&self, server: usize, peer: SocketAddr) -> (u64, mpsc::UnboundedReceiver<Output>) {
        let (to, outputs) = mpsc::unbounded_channel();
        let connection = self.change(|state, now| {
            let connection = state.cluster.open(now, server, peer.ip());
            state.to.insert(connection, to);
            connection
        });
        (connection, outputs)
    }

    fn hung_up(&self, connection: u64) {
        self.change(|state, now| {
            state.cluster.hung_up(now, connection);
            state.to.remove(&connection);
        });
    }
}

/// Wakes the state machine when something is to happen by itself.
pub(super) async fn keep_time(shared: Arc<Shared>) {
    loop {
        let deadline = shared.with(|cluster, now| {
            cluster.tick(now);
            cluster.next_deadline()
        });
        let until = deadline.and_then(|deadline| shared.started.checked_add(deadline));
        let woken = shared.wake.notified();
        match until {
            Some(until) => {
                tokio::select! {
                    () = tokio::time::sleep_until(until) => {}
                    () = woken => {}
                }
            }
            None => woken.await,
        }
    }
}

/// Takes the connections to one server; dropping the future ends them.
pub(super) async fn accept(shared: Arc<Shared>, server: usize, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    connections.spawn(serve(Arc::clone(&shared), server, stream, peer));
                }
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(shared: Arc<Shared>, server: usize, mut stream: TcpStream, peer: SocketAddr) {
    // Without it small replies would wait for acknowledgements of earlier ones.
    let _ = stream.set_nodelay(true);
    let (connection, mut outputs) = shared.open(server, peer);
    let (mut reading, mut writing) = stream.split();
    let ending = tokio::select! {
        () = read(&shared, connection, &mut reading) => None,
        ending = write(&mut writing, &mut outputs) => ending,
    };
    shared.hung_up(connection);
    // A client that has said its last word may still be listening.
    let ending = match ending {
        Some(ending) => ending,
        None => write(&mut writing, &mut outputs).await.unwrap_or(Ending::Orderly),
    };
    match ending {
        Ending::Orderly => {
            let _ = stream.shutdown().await;
        }
        Ending::Reset => reset(&stream),
    }
}

/// To the end of what the client says.
async fn read(shared: &Shared, connection: u64, stream: &mut ReadHalf<'_>) {
    let mut buffer = vec![0; READ];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => {
                shared.with(|cluster, now| cluster.receive(now, connection, &buffer[..count]));
            }
        }
    }
}

/// To the end of what is to be said; `None` if the client no longer listens.
async fn write(stream: &mut WriteHalf<'_>, outputs: &mut mpsc::UnboundedReceiver<Output>) -> Option<Ending> {
    let mut pending = Vec::new();
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
        if stream.write_all(&pending).await.is_err() {
            return None;
        }
        pending.clear();
        if ending.is_some() {
            return ending;
        }
    }
    None
}

fn reset(stream: &TcpStream) {
    // With no time to linger, closing sends a reset.
    let _ = stream.set_zero_linger();
}
