//! The number of round trips until a client is ready, by the time that it needs through a slow relay.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use zk_testkit::TestServer;

use crate::client::Kind;
use crate::process::Process;
use crate::setting::TICK;

/// So long that timers and the work are a small part of a round trip.
const ONE_WAY: Duration = Duration::from_millis(50);

/// The time until a client reports that it is connected, and until a read is answered; medians of so many. TCP's own
/// round trip is not included.
pub(crate) async fn round_trips(kind: Kind, times: usize) -> Result<[f64; 2], String> {
    let server = TestServer::builder().tick_time(TICK).start().await.map_err(|error| error.to_string())?;
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?.to_string();
    let count = async {
        let mut process = Process::start(kind, &address).await?;
        let millis = process.connect(times).await?;
        process.end().await;
        Ok(millis.map(|millis| millis / (ONE_WAY * 2).as_secs_f64() / 1e3))
    };
    tokio::select! {
        counted = count => counted,
        error = relay(listener, server.addresses()[0]) => Err(format!("the relay: {error}")),
    }
}

/// Passes data on in both directions with this delay. Connections are opened and closed at once.
async fn relay(listener: TcpListener, server: SocketAddr) -> io::Error {
    let mut links = JoinSet::new();
    loop {
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(error) => return error,
        };
        links.spawn(async move {
            let server = TcpStream::connect(server).await?;
            client.set_nodelay(true)?;
            server.set_nodelay(true)?;
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::try_join!(pass(from_client, to_server), pass(from_server, to_client))
        });
    }
}

async fn pass(mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin) -> io::Result<()> {
    let (said, mut heard) = mpsc::unbounded_channel();
    let listen = async move {
        loop {
            let mut bytes = Vec::with_capacity(1024);
            // The end of this direction closes the other half.
            if from.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
            let _ = said.send((Instant::now() + ONE_WAY, bytes));
        }
    };
    let speak = async {
        while let Some((due, bytes)) = heard.recv().await {
            sleep_until(due).await;
            to.write_all(&bytes).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(listen, speak).map(drop)
}
