//! The embedded server neither panics nor keeps anything, whatever is sent.
//!
//! `ZK_TESTKIT_FUZZ_SECONDS` sets for how long (default 3 for each test),
//! `ZK_TESTKIT_SEED` replays a run.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::wire::{Client, NO_PASSWORD, OK, OPEN, body_of, create, hello, set, word};
use bytes::BytesMut;
use tokio::runtime::Handle;
use zk_proto::{Create, OpCode, Request};
use zk_testkit::TestServer;

const SOON: Duration = Duration::from_secs(15);

/// All that the server knows.
const CODES: &[i32] = &[
    1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 21, 22, 100, 101, 103, 104, 105, 106, 107,
    -11,
];

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// A panic in a task of the server would go unseen otherwise.
fn count_panics() {
    let say = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        say(info);
    }));
}

fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !so() {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What this process holds.
#[derive(Clone, Copy)]
struct Held {
    files: usize,
    tasks: usize,
}

impl Held {
    fn now() -> Self {
        let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
        Self { files, tasks: Handle::current().metrics().num_alive_tasks() }
    }
}

/// It serves, and nothing is left of what was done to it.
fn is_well(server: &TestServer, before: Held) {
    until("all connections are gone", || server.connections() == 0);
    until("all sockets are closed", || Held::now().files <= before.files);
    until("all tasks have ended", || Held::now().tasks <= before.tasks);
    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "something panicked");
    assert_eq!(word(server.addresses()[0], "ruok").unwrap(), "imok");
    let mut client = Client::new(server.addresses()[0]).unwrap();
    assert_eq!(client.create("/well-", 2).unwrap(), OK);
}

fn random() -> fastrand::Rng {
    let seed = match std::env::var("ZK_TESTKIT_SEED") {
        Ok(seed) => seed.parse().expect("ZK_TESTKIT_SEED is a number"),
        Err(_) => fastrand::u64(..),
    };
    println!("ZK_TESTKIT_SEED={seed} replays this");
    fastrand::Rng::with_seed(seed)
}

fn time_is_up(began: Instant) -> bool {
    let seconds = std::env::var("ZK_TESTKIT_FUZZ_SECONDS").map_or(3, |text| text.parse().expect("a number"));
    began.elapsed() > Duration::from_secs(seconds)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn bytes_without_sense() {
    count_panics();
    let server = TestServer::start().await.unwrap();
    let before = Held::now();
    let (mut random, began, mut sent) = (random(), Instant::now(), 0);
    while !time_is_up(began) {
        let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
        let mut bytes: Vec<u8> = (0..random.usize(..200)).map(|_| random.u8(..)).collect();
        // Most lengths would be far too large; now and then one that fits.
        if random.bool() && bytes.len() > 4 {
            let length = u32::try_from(random.usize(..bytes.len())).unwrap();
            bytes[..4].copy_from_slice(&length.to_be_bytes());
        }
        let _ = stream.write_all(&bytes);
        sent += 1;
    }
    println!("{sent} connections");
    is_well(&server, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn requests_without_sense() {
    count_panics();
    let server = TestServer::builder().servers(3).start().await.unwrap();
    let before = Held::now();
    let (mut random, began, mut sent) = (random(), Instant::now(), 0);
    while !time_is_up(began) {
        let at = random.usize(..3);
        let Ok(client) = Client::new(server.addresses()[at]) else { continue };
        let mut stream = client.into_stream();
        for _ in 0..random.usize(..20) {
            let code = random.choice(CODES).copied().unwrap_or_default();
            let mut body = body_of(&sensible(&mut random));
            for _ in 0..random.usize(..4) {
                if !body.is_empty() {
                    let at = random.usize(..body.len());
                    let any = random.u8(..);
                    body[at] = random.choice([0, 1, 0xff, 0x7f, b'/', any]).unwrap_or(any);
                }
            }
            body.truncate(body.len().saturating_sub(random.usize(..4)));
            let mut frame = BytesMut::new();
            Request::Other { op: OpCode(code), body: body.into() }.encode(random.i32(..), &mut frame);
            let _ = stream.write_all(&frame);
            sent += 1;
        }
        // What it says must not block it.
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let _ = stream.read(&mut [0; 4096]);
    }
    println!("{sent} requests");
    for session in server.sessions() {
        let _ = server.faults().expire(session.id);
    }
    is_well(&server, before);
    assert!((0..3).all(|at| server.zxid(at) == server.zxid(0)));
}

/// Something that some request could be.
fn sensible(random: &mut fastrand::Rng) -> Request<'static> {
    let path = random.choice(["/a", "/a/b", "/", "", "a", "/zookeeper", "/a\0"]).unwrap();
    match random.usize(..6) {
        0 => create(path, random.i32(-1..8)),
        1 => Request::Delete { path: path.into(), version: random.i32(-1..3) },
        2 => set(path, b"data"),
        3 => Request::SetWatches {
            relative_zxid: random.i64(..5),
            data: vec![path.into()],
            exist: Vec::new(),
            child: Vec::new(),
            persistent: Vec::new(),
            recursive: vec![path.into()],
        },
        4 => {
            // The parts of other kinds are not what they say.
            let op = OpCode(random.choice([1, 2, 5, 13, 15]).unwrap());
            let (path, acl) = (path.into(), vec![OPEN]);
            Request::Multi(vec![Request::Create(Create { op, path, data: None, acl, flags: 0, ttl_ms: -1 })])
        }
        _ => Request::Auth {
            kind: random.i32(..),
            scheme: Some("digest".into()),
            credentials: Some(b"ann:1".into()),
        },
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_thousand_connections_opened_and_dropped() {
    const AT_ONCE: usize = 200;
    count_panics();
    let server = TestServer::start().await.unwrap();
    let before = Held::now();
    for round in 0..5 {
        let streams: Vec<TcpStream> =
            (0..AT_ONCE).map(|_| TcpStream::connect(server.addresses()[0]).unwrap()).collect();
        if round % 2 == 0 {
            until("all are accepted", || server.connections() == AT_ONCE);
        }
        drop(streams);
    }
    is_well(&server, before);
    assert!(server.sessions().len() <= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn half_a_handshake_and_half_a_frame() {
    count_panics();
    let server = TestServer::start().await.unwrap();
    let address = server.addresses()[0];
    let before = Held::now();
    let begin = |address: SocketAddr, bytes: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let whole = hello(4000, 0, NO_PASSWORD, 0, Some(false));
    let mut halves: Vec<TcpStream> = (1..whole.len()).map(|end| begin(address, &whole[..end])).collect();
    let mut client = Client::new(address).unwrap();
    client.ping().unwrap();
    // The other halves, later.
    for (stream, end) in halves.iter_mut().zip(1..) {
        stream.write_all(&whole[end..]).unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        assert_eq!(u32::from_be_bytes(length), 37, "an answer to a handshake in two parts, cut at {end}");
    }
    // A length that promises what never comes.
    let mut promise = client.into_stream();
    promise.write_all(&0xf_ffff_u32.to_be_bytes()).unwrap();
    drop((halves, promise));
    is_well(&server, before);
}

#[tokio::test]
async fn only_loopback_is_listened_on() {
    for ip in [[0, 0, 0, 0], [10, 0, 0, 1], [128, 0, 0, 1]] {
        let refused =
            TestServer::builder().with(|settings| settings.ip = ip.into()).start().await.unwrap_err();
        assert!(refused.to_string().contains("loopback only"), "{refused}");
    }
    let refused = TestServer::builder()
        .with(|settings| settings.ip = std::net::Ipv6Addr::UNSPECIFIED.into())
        .start()
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("loopback only"), "{refused}");
    let server =
        TestServer::builder().with(|settings| settings.ip = [127, 0, 0, 2].into()).start().await.unwrap();
    assert!(server.connect_string().starts_with("127.0.0.2:"));
    let taken = TestServer::builder().with(|settings| {
        settings.ip = [127, 0, 0, 2].into();
        settings.base_port = Some(server.addresses()[0].port());
    });
    let refused = taken.start().await.unwrap_err();
    assert!(refused.to_string().contains("in use"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn dropping_it_ends_everything() {
    let server = TestServer::start().await.unwrap();
    let address = server.addresses()[0];
    let mut client = Client::new(address).unwrap();
    drop(server);
    until("its connections are gone", || client.ping().is_err());
    until("nobody listens", || TcpStream::connect(address).is_err());
}

/// How much memory this process has.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn replies_that_nobody_reads_do_not_fill_the_memory() {
    const REPLIES: usize = 500;
    const LENGTH: usize = 1_000_000;
    let server = TestServer::start().await.unwrap();
    let mut other = Client::new(server.addresses()[0]).unwrap();
    let mut deaf = Client::new(server.addresses()[0]).unwrap();
    assert_eq!(deaf.create("/large", 0).unwrap(), OK);
    assert_eq!(deaf.do_it(&set("/large", &vec![7; LENGTH])).unwrap(), OK);
    let before = resident();
    let get = Request::GetData { path: "/large".into(), watch: false };
    let asked: Vec<i32> = (0..REPLIES).map(|_| deaf.ask(&get).unwrap()).collect();
    // All are with the server by now, or it has stopped to listen: it stays so.
    let mut sent = usize::MAX;
    until("it sends nothing more", || {
        let so_far = std::mem::replace(&mut sent, sent_to(&server, deaf.session));
        std::thread::sleep(Duration::from_millis(50));
        so_far == sent
    });
    let taken = resident().saturating_sub(before);
    assert!(taken < 64 << 20, "{sent} replies sent, {taken} bytes for them");
    assert_eq!(other.create("/served", 0).unwrap(), OK, "the others are served");
    for xid in asked {
        let frame = deaf.frame().unwrap();
        assert_eq!((frame.header.xid, frame.header.error), (xid, OK));
        assert!(frame.body().len() > LENGTH);
    }
    deaf.ping().unwrap();
}

/// How many frames.
fn sent_to(server: &TestServer, session: i64) -> usize {
    let cons = word(server.addresses()[0], "cons").unwrap();
    let line = cons.lines().find(|line| line.contains(&format!("sid=0x{session:x}"))).unwrap().to_owned();
    let (_, rest) = line.split_once("sent=").unwrap();
    rest.split([',', ')']).next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_connection_without_a_handshake_is_closed_in_time() {
    const LIMIT: Duration = Duration::from_millis(500);
    let server =
        TestServer::builder().with(|settings| settings.handshake_timeout = LIMIT).start().await.unwrap();
    let address = server.addresses()[0];
    let mut client = Client::new(address).unwrap();
    let began = Instant::now();
    let whole = hello(4000, 0, NO_PASSWORD, 0, Some(false));
    for said in [0, whole.len() / 2] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(&whole[..said]).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "closed, and nothing said");
    }
    assert!(began.elapsed() >= 2 * LIMIT, "{:?}", began.elapsed());
    client.ping().expect("who has a session stays");
    let refused = TestServer::builder()
        .with(|settings| settings.handshake_timeout = Duration::ZERO)
        .start()
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("handshake_timeout"), "{refused}");
}
