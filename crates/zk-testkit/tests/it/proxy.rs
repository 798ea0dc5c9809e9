//! The proxy, between a bare client and a real server.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::support::RawClient;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use zk_testkit::{Ensemble, Op, Proxy, Sender, TestServer, Which};

const SOON: Duration = Duration::from_secs(20);
/// For what must not come. Longer than a reply over loopback ever takes.
const A_WHILE: Duration = Duration::from_millis(300);

/// One server for all tests here; each uses paths of its own.
async fn server() -> SocketAddr {
    static ENSEMBLE: OnceCell<Ensemble> = OnceCell::const_new();
    let start = || async { Ensemble::start(1).await.unwrap() };
    ENSEMBLE.get_or_init(start).await.addresses()[0]
}

async fn proxy() -> Proxy {
    Proxy::start(server().await).await.unwrap()
}

/// Past the proxy.
async fn direct() -> RawClient {
    RawClient::connect(server().await).await.unwrap()
}

#[tokio::test]
async fn requests_and_replies_pass() {
    let proxy = proxy().await;
    let mut client = RawClient::connect(proxy.addr()).await.unwrap();
    assert_eq!(client.create("/passes").await.unwrap().error, 0);
    assert!(client.exists("/passes").await.unwrap());
    client.ping().await.unwrap();
    assert_eq!((proxy.seen(Op::Create), proxy.seen(Op::Exists)), (1, 1));
    assert_eq!(proxy.connections(), 1);
    drop(client);
    proxy.wait_connections(0, SOON).await.unwrap();
}

#[tokio::test]
async fn each_proxy_can_have_an_address_of_its_own() {
    for last in [2, 3] {
        let proxy = Proxy::start_at([127, 0, 0, last].into(), server().await).await.unwrap();
        assert_eq!(proxy.addr().ip().to_string(), format!("127.0.0.{last}"));
        RawClient::connect(proxy.addr()).await.unwrap().ping().await.unwrap();
        assert_eq!(proxy.accepted().len(), 1);
    }
}

#[tokio::test]
async fn frames_are_recorded_in_their_order_with_their_connection() {
    let proxy = proxy().await;
    let unrecorded = RawClient::connect(proxy.addr()).await.unwrap();
    assert_eq!(proxy.take_record(), []);
    proxy.record();
    let begun = Instant::now();
    let mut client = RawClient::connect(proxy.addr()).await.unwrap();
    assert!(!client.exists("/recorded").await.unwrap());
    let frames = proxy.take_record();
    let senders: Vec<_> = frames.iter().map(|frame| (frame.connection, frame.sender)).collect();
    assert_eq!(
        senders,
        [Sender::Client, Sender::Server].repeat(2).iter().map(|s| (1, *s)).collect::<Vec<_>>()
    );
    assert!(frames.is_sorted_by_key(|frame| frame.at) && frames[0].at >= begun);
    let header = zk_proto::RequestHeader::decode(&frames[2].bytes).unwrap();
    assert_eq!(header.op, zk_proto::OpCode::EXISTS);
    let reply = zk_proto::ReplyHeader::decode(&frames[3].bytes).unwrap();
    assert_eq!((reply.xid, reply.error), (header.xid, zk_proto::ErrorCode::NO_NODE));
    // They are taken once.
    assert_eq!(proxy.take_record(), []);
    drop(unrecorded);
}

#[tokio::test]
async fn four_letter_words_pass() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let proxy = proxy().await;
    for (word, expected) in [("ruok", "imok"), ("srvr", "Mode: standalone")] {
        let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
        stream.write_all(word.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains(expected), "to {word}: {answer}");
    }
}

#[tokio::test]
async fn a_lost_reply_leaves_the_request_done() {
    let proxy = proxy().await;
    let mut client = RawClient::connect(proxy.addr()).await.unwrap();
    let loss = proxy.lose_reply(Which::any());
    client.ping().await.unwrap(); // No request of an application.
    let error = client.create("/reply-lost").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let lost = loss.happened(SOON).await.unwrap();
    assert_eq!(lost.op, Op::Create);
    assert_eq!(lost.path.as_deref(), Some("/reply-lost"));
    assert!(direct().await.exists("/reply-lost").await.unwrap());

    // Once only.
    let mut client = RawClient::connect(proxy.addr()).await.unwrap();
    assert!(client.exists("/reply-lost").await.unwrap());
}

#[tokio::test]
async fn a_lost_request_leaves_it_undone() {
    let proxy = proxy().await;
    let mut client = RawClient::connect(proxy.addr()).await.unwrap();
    let loss = proxy.lose_request(Which::write().on_path_with("request-lost").skipping(1));
    assert_eq!(client.create("/request-lost-1").await.unwrap().error, 0);
    assert!(!client.exists("/request-lost-2").await.unwrap());
    let error = client.create("/request-lost-2").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let lost = loss.happened(SOON).await.unwrap();
    assert_eq!(lost.path.as_deref(), Some("/request-lost-2"));
    assert!(!direct().await.exists("/request-lost-2").await.unwrap());
}

#[tokio::test]
async fn a_loss_that_cannot_happen_says_so() {
    let proxy = proxy().await;
    let said = proxy.lose_reply(Which::any()).happened(A_WHILE).await.unwrap_err();
    assert!(said.to_string().contains("no request matched"), "{said}");
    let loss = proxy.lose_reply(Which::any());
    drop(proxy);
    let said = loss.happened(SOON).await.unwrap_err();
    assert!(said.to_string().contains("ended first"), "{said}");
}

#[tokio::test]
async fn cutting_resets_what_there_is_and_no_more() {
    let proxy = proxy().await;
    let mut first = RawClient::connect(proxy.addr()).await.unwrap();
    let mut second = RawClient::connect(proxy.addr()).await.unwrap();
    assert_eq!(proxy.cut().await, 2);
    assert_eq!(proxy.connections(), 0);
    for client in [&mut first, &mut second] {
        let error = client.ping().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error:?}");
    }
    RawClient::connect(proxy.addr()).await.unwrap();
}

#[tokio::test]
async fn refused_connections_come_back_on_the_same_port() {
    let proxy = proxy().await;
    let mut before = RawClient::connect(proxy.addr()).await.unwrap();
    proxy.refuse(true).await.unwrap();
    proxy.refuse(true).await.unwrap();
    let error = TcpStream::connect(proxy.addr()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    before.ping().await.unwrap();
    proxy.refuse(false).await.unwrap();
    RawClient::connect(proxy.addr()).await.unwrap();
    before.ping().await.unwrap();
}

/// A proxy that let go of its port could find it taken, now and then.
#[tokio::test]
async fn nobody_else_gets_its_port_while_it_refuses() {
    let proxy = proxy().await;
    for _ in 0..100 {
        proxy.refuse(true).await.unwrap();
        let error = TcpListener::bind(proxy.addr()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        proxy.refuse(false).await.unwrap();
        let _ = TcpStream::connect(proxy.addr()).await.unwrap();
    }
}

/// As above, by somebody who tries all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_else_gets_its_port_while_it_turns() {
    let proxy = proxy().await;
    let address = proxy.addr();
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let over = std::sync::Arc::clone(&done);
    let thief = std::thread::spawn(move || {
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            assert!(std::net::TcpListener::bind(address).is_err(), "it was free for a moment");
        }
    });
    for _ in 0..500 {
        proxy.refuse(true).await.unwrap();
        proxy.refuse(false).await.unwrap();
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    thief.join().unwrap();
}

#[tokio::test]
async fn a_black_hole_delays_and_loses_nothing() {
    let proxy = proxy().await;
    let mut client = RawClient::connect(proxy.addr()).await.unwrap();
    proxy.black_hole(true);
    let xid = client.send_create("/black-hole").await.unwrap();
    assert!(timeout(A_WHILE, client.reply_to(xid)).await.is_err());
    assert!(!direct().await.exists("/black-hole").await.unwrap());
    // New connections are made, and get no answer.
    let newcomer = tokio::spawn(RawClient::connect(proxy.addr()));
    proxy.wait_connections(2, SOON).await.unwrap();
    assert!(!newcomer.is_finished());

    proxy.black_hole(false);
    let reply = timeout(SOON, client.reply_to(xid)).await.unwrap().unwrap();
    assert_eq!(reply.error, 0);
    timeout(SOON, newcomer).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn held_replies_do_not_hold_the_requests() {
    let proxy = proxy().await;
    let mut client = RawClient::connect(proxy.addr()).await.unwrap();
    proxy.hold_replies(true);
    let xid = client.send_create("/held-reply").await.unwrap();
    let mut direct = direct().await;
    let deadline = Instant::now() + SOON;
    while !direct.exists("/held-reply").await.unwrap() {
        assert!(Instant::now() < deadline, "the request was held as well");
    }
    assert!(timeout(A_WHILE, client.reply_to(xid)).await.is_err());
    proxy.hold_replies(false);
    let reply = timeout(SOON, client.reply_to(xid)).await.unwrap().unwrap();
    assert_eq!(reply.error, 0);
}

#[tokio::test]
async fn a_reset_waits_as_bytes_do() {
    let server = TestServer::start().await.unwrap();
    let proxy = Proxy::start(server.addresses()[0]).await.unwrap();
    for hold in [Proxy::black_hole as fn(&Proxy, bool), Proxy::hold_replies] {
        let mut client = RawClient::connect(proxy.addr()).await.unwrap();
        hold(&proxy, true);
        assert_eq!(server.faults().disconnect_all(), 1);
        // Nor is it told by what it sends.
        let xid = client.send_create("/unsent").await.unwrap();
        assert!(timeout(A_WHILE, client.reply_to(xid)).await.is_err());
        hold(&proxy, false);
        let error = timeout(SOON, client.reply_to(xid)).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        proxy.wait_connections(0, SOON).await.unwrap();
    }
    for hold in [Proxy::black_hole as fn(&Proxy, bool), Proxy::hold_requests] {
        let mut client = RawClient::connect(proxy.addr()).await.unwrap();
        client.send_create("/unread").await.unwrap();
        tokio::time::sleep(A_WHILE).await;
        hold(&proxy, true);
        // It has not read the reply, so it resets the connection.
        drop(client);
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(server.connections(), 1);
        hold(&proxy, false);
        proxy.wait_connections(0, SOON).await.unwrap();
        let deadline = Instant::now() + SOON;
        while server.connections() > 0 {
            assert!(Instant::now() < deadline, "the server is not told");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn the_longest_times_are_longer_than_a_test() {
    let proxy = proxy().await;
    proxy.wait_connections(0, Duration::MAX).await.unwrap();
    let mut client = RawClient::connect(proxy.addr()).await.unwrap();
    proxy.delay_replies(Duration::MAX);
    let xid = client.send_create("/long").await.unwrap();
    assert!(timeout(A_WHILE, client.reply_to(xid)).await.is_err());
    assert_eq!(proxy.connections(), 1);
}

#[tokio::test]
async fn held_requests_reach_nobody() {
    let proxy = proxy().await;
    let mut client = RawClient::connect(proxy.addr()).await.unwrap();
    proxy.hold_requests(true);
    let xid = client.send_create("/held-request").await.unwrap();
    assert!(timeout(A_WHILE, client.reply_to(xid)).await.is_err());
    assert!(!direct().await.exists("/held-request").await.unwrap());
    proxy.hold_requests(false);
    let reply = timeout(SOON, client.reply_to(xid)).await.unwrap().unwrap();
    assert_eq!(reply.error, 0);
}

#[tokio::test]
async fn dropping_it_resets_its_connections() {
    let proxy = proxy().await;
    let mut client = RawClient::connect(proxy.addr()).await.unwrap();
    let address = proxy.addr();
    drop(proxy);
    let error = client.reply_to(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn the_first_target_that_accepts_is_taken() {
    let nobody = Proxy::start(server().await).await.unwrap();
    nobody.refuse(true).await.unwrap();
    let targets = vec![nobody.addr(), server().await];
    let proxy = Proxy::start_many(targets).await.unwrap();
    RawClient::connect(proxy.addr()).await.unwrap();
}

#[tokio::test]
async fn a_server_that_has_closed_and_reads_no_more_holds_no_client() {
    use tokio::io::AsyncWriteExt as _;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).await.unwrap();
    let mut client = TcpStream::connect(proxy.addr()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    server.shutdown().await.unwrap();
    // More than the sockets on the way take.
    let mut frame = 500_000_u32.to_be_bytes().to_vec();
    frame.resize(500_004, 0);
    let write = async {
        for _ in 0..64 {
            client.write_all(&frame).await.unwrap();
        }
    };
    timeout(SOON, write).await.expect("the proxy takes what the client sends");
    drop(client);
    proxy.wait_connections(0, SOON).await.unwrap();
    drop(server);
}
