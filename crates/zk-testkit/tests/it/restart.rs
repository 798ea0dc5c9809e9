//! Servers that end, and those that come after them.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::wire::{Client, NO_PASSWORD, OK, create, hello};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use zk_session::Session;
use zk_testkit::{Error, PortReservation, TestServer};

const SOON: Duration = Duration::from_secs(15);
const EPHEMERAL: i32 = 1;

/// On the port of an earlier one, which may still be ending.
async fn start_on(port: u16) -> TestServer {
    // The same seed each time, which is to make no difference.
    let builder = TestServer::builder().with(|settings| {
        settings.seed = Some(7);
        settings.base_port = Some(port);
    });
    builder.start().await.unwrap()
}

/// The tasks of the earlier one run on the thread that starts the next.
#[tokio::test(flavor = "current_thread")]
async fn one_starts_on_the_port_of_one_that_was_just_dropped() {
    let ports = PortReservation::take(1).unwrap();
    for _ in 0..3 {
        drop(start_on(ports.ports()[0]).await);
    }
}

#[tokio::test]
async fn connections_in_memory_end_with_their_server() {
    for servers in [1, 3] {
        let server = TestServer::builder().servers(servers).start_in_memory().unwrap();
        server.faults().delay_replies(SOON * 2);
        let mut clients =
            server.addresses().into_iter().map(|at| server.open(at).unwrap()).collect::<Vec<_>>();
        for client in &mut clients {
            client.write_all(&hello(4000, 0, NO_PASSWORD, 0, Some(false))).await.unwrap();
        }
        let served = async {
            while server.sessions().len() < servers {
                tokio::task::yield_now().await;
            }
        };
        timeout(SOON, served).await.expect("all are served");
        drop(server);
        for mut client in clients {
            assert_eq!(timeout(SOON, client.read(&mut [0])).await.expect("its end").unwrap(), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_outlives_its_server_gets_no_session_of_the_next() {
    let ports = PortReservation::take(1).unwrap();
    let first = start_on(ports.ports()[0]).await;
    let address = first.addresses()[0];
    let session = Session::builder(first.connect_string()).connect().await.unwrap();
    let outlived = session.active().await.unwrap();
    let silent = Client::new(address).unwrap();
    drop(first);

    let next = start_on(ports.ports()[0]).await;
    let mut others = [Client::new(address).unwrap(), Client::new(address).unwrap()];
    // Past all that those of before have seen: a server that is behind would send them away.
    for number in 0..20 {
        assert_eq!(others[0].create(&format!("/{number}"), 0).unwrap(), OK);
    }
    assert_eq!(silent.back_at(address, 0).unwrap().session, 0, "its session is over");
    timeout(SOON, outlived.over()).await.expect("it is told that its session is over");
    for other in &mut others {
        assert!(other.session != silent.session && other.session != outlived.session_id().0);
        assert_ne!(other.password, silent.password);
        other.ping().expect("nobody has taken its session");
    }
    drop(next);
}

/// Asks until it is so.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !so() {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stopped_server_has_its_data_when_it_starts_again() {
    let server = TestServer::start().await.unwrap();
    let address = server.addresses()[0];
    let mut client = Client::new(address).unwrap();
    assert_eq!(client.create("/kept", 0).unwrap(), OK);
    assert_eq!(client.create("/mine", EPHEMERAL).unwrap(), OK);
    let zxid = server.zxid(0);

    server.stop(0).await.unwrap();
    assert!(client.is_closed());
    assert_eq!(server.leader(), None);
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(matches!(server.stop(0).await, Err(Error::NotRunning { server: 0 })));
    // No session ends meanwhile, and each is given its timeout anew.
    server.faults().advance_clock(Duration::from_secs(3600));

    server.start_server(0).await.unwrap();
    assert!(matches!(server.start_server(0).await, Err(Error::AlreadyRunning { server: 0, .. })));
    assert_eq!((server.leader(), server.zxid(0)), (Some(0), zxid));
    let mut back = client.back_at(address, zxid).unwrap();
    assert_eq!(back.session, client.session);
    assert!(back.exists("/kept").unwrap() && back.exists("/mine").unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stopped_leader_is_replaced_by_one_that_has_all_that_was_committed() {
    let server = TestServer::builder().servers(3).start().await.unwrap();
    let client = |at: usize| Client::new(server.addresses()[at]).unwrap();
    let (mut writer, mut other) = (client(0), client(1));
    assert_eq!(server.leader(), Some(0));
    server.faults().hold_commits(2, true);
    assert_eq!(writer.create("/committed", 0).unwrap(), OK);
    let seen = server.zxid(0);
    assert_eq!(server.data(2, "/committed"), None, "it has not carried it out");

    server.stop(0).await.unwrap();
    assert_eq!(server.leader(), Some(2));
    assert!(writer.is_closed() && other.is_closed(), "who loses its leader drops its clients");
    let mut back = writer.back_at(server.addresses()[1], seen).unwrap();
    assert_eq!(back.session, writer.session);
    assert!(back.exists("/committed").unwrap());
    assert_eq!(back.create("/after", 0).unwrap(), OK);
    assert_eq!(server.zxid(2) >> 32, 1, "a new epoch");

    server.stop(1).await.unwrap();
    assert_eq!(server.leader(), None, "one of three");
    assert!(Client::new(server.addresses()[2]).is_err());
    // This one has missed the last write; the one that led has it.
    server.start_server(0).await.unwrap();
    assert_eq!(server.leader(), Some(2));
    assert!(client(0).exists("/after").unwrap());
    server.start_server(1).await.unwrap();
    assert!(client(1).exists("/after").unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_isolated_leader_is_replaced_after_the_sync_limit() {
    let server = TestServer::builder().servers(3).sync_limit(2).start().await.unwrap();
    let client = |at: usize| Client::new(server.addresses()[at]).unwrap();
    let (mut inside, mut outside) = (client(0), client(1));
    assert_eq!(inside.create("/before", 0).unwrap(), OK);
    server.faults().isolate(0);
    assert_eq!(server.leader(), None);
    assert!(inside.exists("/before").unwrap(), "reads are answered");
    inside.ask(&create("/by-the-isolated", 0)).unwrap();
    outside.ask(&create("/by-the-others", 0)).unwrap();
    assert!(inside.is_silent() && outside.is_silent(), "no write is");
    until("both sides give up", || inside.is_closed() && outside.is_closed());
    assert_eq!(server.leader(), Some(2));
    assert!(Client::new(server.addresses()[0]).is_err());
    let mut back = inside.back_at(server.addresses()[1], 0).unwrap();
    assert_eq!(back.session, inside.session, "every session is given time to come back");
    assert_eq!(back.create("/after", 0).unwrap(), OK);

    server.faults().rejoin(0);
    assert_eq!(server.leader(), Some(2));
    let mut follower = client(0);
    assert!(follower.exists("/before").unwrap() && follower.exists("/after").unwrap());
    for lost in ["/by-the-isolated", "/by-the-others"] {
        assert!(!follower.exists(lost).unwrap(), "{lost} went under with the connection");
    }
    // A short cut costs nothing, not even the leader's.
    server.faults().isolate(2);
    let xid = follower.ask(&create("/waits", 0)).unwrap();
    assert!(follower.is_silent());
    server.faults().rejoin(2);
    assert_eq!(follower.frames_to(xid).unwrap()[0].header.error, OK);
    assert_eq!(server.leader(), Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_that_comes_back_makes_no_majority_of_two_in_five() {
    let server = TestServer::builder().servers(5).sync_limit(2).start().await.unwrap();
    let mut client = Client::new(server.addresses()[0]).unwrap();
    (1..5).for_each(|index| server.faults().isolate(index));
    server.faults().rejoin(1);
    until("the leader gives up", || client.is_closed());
    server.faults().rejoin(2);
    assert_eq!(server.leader(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_that_comes_back_and_still_follows_a_lost_leader_elects_with_the_others() {
    const SECOND: Duration = Duration::from_secs(1);
    for stops in [true, false] {
        let server = TestServer::builder().servers(3).start().await.unwrap();
        let faults = server.faults();
        faults.freeze_clock(true);
        let mut client = Client::new(server.addresses()[2]).unwrap();
        if stops {
            faults.isolate(2);
            server.stop(0).await.unwrap();
        } else {
            // The sync limit is 5 s: server 1 has given up, and server 2 has not.
            faults.isolate(0);
            faults.advance_clock(3 * SECOND);
            faults.isolate(2);
            faults.advance_clock(3 * SECOND);
        }
        assert!(client.exists("/").unwrap(), "it does not know");
        faults.rejoin(2);
        if !stops {
            assert_eq!(server.leader(), None, "server 2 waits for its leader");
            faults.advance_clock(5 * SECOND);
        }
        assert_eq!(server.leader(), Some(2));
        assert!(client.is_closed());
        let mut back = client.back_at(server.addresses()[1], 0).unwrap();
        assert_eq!(back.session, client.session);
        assert_eq!(back.create("/after", 0).unwrap(), OK);
    }
}
