//! Names of servers are looked up at each attempt to connect, as the system does now.

use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use tokio::net::{TcpListener, TcpStream};
use zk_session::DriverKind;

use crate::common::{TICK, TIMEOUT, builder_for, servers, soon};

/// A `/etc/hosts` of this thread, and of those that it starts.
fn own_hosts(file: &Path) -> nix::Result<()> {
    const NONE: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
    mount(Some(file), "/etc/hosts", NONE, MsFlags::MS_BIND, NONE)
}

/// Passes each connection on, until it is dropped.
async fn relay(listener: TcpListener, to: std::net::SocketAddr) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (mut from, _) = listener.accept().await.unwrap();
        connections.spawn(async move {
            let mut to = TcpStream::connect(to).await.unwrap();
            tokio::io::copy_bidirectional(&mut from, &mut to).await
        });
    }
}

/// A server gets another address, and an operator writes it into `/etc/hosts`.
#[test]
fn a_session_follows_a_name_whose_address_has_changed() {
    let dir = tempfile::tempdir().unwrap();
    let hosts = dir.path().join("hosts");
    let point = |address: &str| std::fs::write(&hosts, format!("{address} zookeeper.test\n")).unwrap();
    point("127.0.0.2");
    if let Err(error) = own_hosts(&hosts) {
        return zk_testkit::skip(format!("a file system of its own for a test needs root: {error}"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let servers = servers(1, TICK, (TIMEOUT, TIMEOUT)).await;
        let here = servers.addresses()[0];
        let listener = TcpListener::bind(("127.0.0.2", here.port())).await.unwrap();
        let there = tokio::spawn(relay(listener, here));
        let connect = format!("zookeeper.test:{}", here.port());
        let session = builder_for(DriverKind::default(), connect).connect().await.unwrap();
        let before = session.incarnation().unwrap();
        point("127.0.0.1");
        there.abort();
        assert!(there.await.unwrap_err().is_cancelled());
        // Only the new address leads to the server.
        assert!(soon("a read", session.get("/")).await.unwrap().is_some());
        assert_eq!(session.incarnation().unwrap().session_id(), before.session_id());
    });
}
