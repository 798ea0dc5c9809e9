//! The address that the users of a job know.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

/// The pause between two looks at the job.
const LOOK: Duration = Duration::from_millis(20);
/// The limit for a connection on this machine.
const CONNECTED_WITHIN: Duration = Duration::from_secs(1);

/// An address that leads to the job, wherever it runs. It refuses connections while no job accepts them, as a virtual
/// address or a load balancer with health checks does.
#[derive(Debug)]
pub struct Frontend {
    _task: JoinSet<()>,
}

impl Frontend {
    /// Listens at `address` while the job accepts connections at one of `places`.
    pub fn start(address: SocketAddr, places: Vec<SocketAddr>) -> Self {
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                for place in &places {
                    if accepts(*place).await {
                        carry_to(*place, address).await;
                    }
                }
                sleep(LOOK).await;
            }
        });
        Self { _task: task }
    }
}

async fn accepts(place: SocketAddr) -> bool {
    matches!(timeout(CONNECTED_WITHIN, TcpStream::connect(place)).await, Ok(Ok(_)))
}

/// Until the job at this place does not accept connections.
async fn carry_to(place: SocketAddr, address: SocketAddr) {
    let listener = TcpListener::bind(address).await.unwrap_or_else(|error| panic!("{address}: {error}"));
    let mut connections = JoinSet::new();
    let mut look = interval(LOOK);
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((mut client, _)) = accepted else { continue };
                connections.spawn(async move {
                    let Ok(mut job) = TcpStream::connect(place).await else { return };
                    // The end of either side ends it.
                    let _ = copy_bidirectional(&mut client, &mut job).await;
                });
            }
            _ = look.tick() => if !accepts(place).await { return },
            Some(_) = connections.join_next() => {}
        }
    }
}
