//! The network between members and servers: streams in memory, which take time, and can be cut.

use std::collections::BTreeSet;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::sync::watch;
use zk_testkit::TestServer;

use crate::trace::Trace;

/// How many bytes pass at once.
const CHUNK: usize = 16 << 10;

/// What is broken at present.
#[derive(Clone, Debug, Default)]
pub(crate) struct Broken {
    /// Members by their incarnations, whom nothing reaches.
    pub(crate) deaf: BTreeSet<String>,
    /// Those whom nobody hears.
    pub(crate) mute: BTreeSet<String>,
    /// Servers that do nothing.
    pub(crate) frozen: BTreeSet<usize>,
    /// How often the connections of all members were closed so far: that of the last one.
    pub(crate) resets: u64,
    /// Whose connections the last one closed.
    pub(crate) reset: String,
}

/// One network for all.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) servers: TestServer,
    pub(crate) broken: watch::Sender<Broken>,
    latency_ms: u64,
    trace: Arc<Trace>,
}

impl Network {
    pub(crate) fn new(servers: TestServer, latency_ms: u64, trace: Arc<Trace>) -> Arc<Self> {
        Arc::new(Self { servers, broken: watch::Sender::default(), latency_ms, trace })
    }

    /// Connects a member.
    pub(crate) async fn connect(
        self: Arc<Self>,
        member: String,
        address: SocketAddr,
    ) -> io::Result<DuplexStream> {
        let server = self.servers.addresses().iter().position(|known| *known == address);
        let server = server.ok_or(io::ErrorKind::ConnectionRefused)?;
        self.passes(Direction::ToServer, &member, server).await;
        self.passes(Direction::ToMember, &member, server).await;
        let served = self.servers.open(address)?;
        let (client, ours) = tokio::io::duplex(CHUNK);
        tokio::spawn(self.carry(member, server, ours, served));
        Ok(client)
    }

    /// Carries bytes in both directions until either side ends, or the connection is reset.
    async fn carry(self: Arc<Self>, member: String, server: usize, ours: DuplexStream, served: DuplexStream) {
        let before = self.broken.borrow().resets;
        let (from_member, to_member) = tokio::io::split(ours);
        let (from_server, to_server) = tokio::io::split(served);
        let mut broken = self.broken.subscribe();
        let is_reset = |broken: &Broken| broken.resets > before && broken.reset == member;
        tokio::select! {
            biased;
            _ = broken.wait_for(is_reset) => {}
            _ = self.pump(Direction::ToServer, &member, server, from_member, to_server) => {}
            _ = self.pump(Direction::ToMember, &member, server, from_server, to_member) => {}
        }
    }

    async fn pump(
        &self,
        direction: Direction,
        member: &str,
        server: usize,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let link = match direction {
            Direction::ToServer => format!("{member} -> {server}"),
            Direction::ToMember => format!("{member} <- {server}"),
        };
        let mut chunk = vec![0; CHUNK];
        loop {
            let count = from.read(&mut chunk).await?;
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..=self.latency_ms))).await;
            self.passes(direction, member, server).await;
            if count == 0 {
                return to.shutdown().await;
            }
            self.trace.passed(&link, &chunk[..count]);
            to.write_all(&chunk[..count]).await?;
        }
    }

    /// Waits until bytes can pass.
    async fn passes(&self, direction: Direction, member: &str, server: usize) {
        let passes = |broken: &Broken| {
            let stopped = match direction {
                Direction::ToServer => &broken.mute,
                Direction::ToMember => &broken.deaf,
            };
            !stopped.contains(member) && !broken.frozen.contains(&server)
        };
        if self.broken.subscribe().wait_for(passes).await.is_err() {
            pending::<()>().await;
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    ToServer,
    ToMember,
}
