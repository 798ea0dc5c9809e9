//! What random programs don't reach: the edges of the protocol, sizes, and sessions
//! that end.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use zk_proto::{AclEntry, Create, OpCode, Reply, Request, RequestHeader, WatchMode};

use crate::both;
use crate::wire::{Client, NO_PASSWORD, OK, PREFIX, body_of, hello, set, word};

const TICK: Duration = Duration::from_millis(200);
/// `jute.maxbuffer`.
const LONGEST: usize = 0xf_ffff;

/// What is seen of one server.
type Look = fn(SocketAddr) -> Vec<String>;

#[test]
fn the_edges_are_the_same() {
    let both = both(TICK);
    let looks: [(&str, Look); 12] = [
        ("a check alone", a_check_alone),
        ("unknown requests", unknown_requests),
        ("identities that are refused", refused_identities),
        ("access lists without ids", missing_ids),
        ("the timeouts that are granted", granted_timeouts),
        ("clients that have seen more", ahead),
        ("handshakes of old clients", old_handshake),
        ("sizes", sizes),
        ("what is no frame", no_frames),
        ("a session that expires", expiry),
        ("a long list of names", many_names),
        ("four-letter words", words),
    ];
    for (what, look) in looks {
        assert_eq!(
            look(both.ours),
            look(both.apache),
            "{what}: the test server left, Apache ZooKeeper right"
        );
    }
}

fn client(address: SocketAddr) -> Client {
    // The longest timeout that is granted.
    Client::connect(address, 60_000, 0, NO_PASSWORD, 0).unwrap()
}

/// Up to the answer to a ping, without the zxids.
fn seen_before_pong(client: &mut Client) -> Vec<String> {
    match client.ask(&Request::Ping).and_then(|xid| client.frames_to(xid)) {
        Ok(frames) => {
            let frames = frames
                .iter()
                .map(|frame| format!("{} {} {:?}", frame.header.xid, frame.header.error.0, frame.body()));
            frames.collect()
        }
        Err(_) => vec![format!("closed: {}", client.is_closed())],
    }
}

fn a_check_alone(address: SocketAddr) -> Vec<String> {
    let mut client = client(address);
    let check = |version: i32| Request::Check { path: "/zookeeper".into(), version };
    client.ask(&check(5)).unwrap();
    let mut seen = seen_before_pong(&mut client);
    client.ask(&check(-1)).unwrap();
    seen.extend(seen_before_pong(&mut client));
    client.ask(&check(-1)).unwrap();
    client.ask(&Request::Delete { path: "/nothing".into(), version: -1 }).unwrap();
    seen.extend(seen_before_pong(&mut client));
    seen
}

fn unknown_requests(address: SocketAddr) -> Vec<String> {
    let asks = [0, 10, 23, 99, 108, -12, i32::MAX].map(|code| {
        let mut client = client(address);
        client.ask(&Request::Other { op: OpCode(code), body: [][..].into() }).unwrap();
        let mut seen = vec![format!("code {code}")];
        while let Ok(frame) = client.frame() {
            seen.push(format!("{:?} {:?}", frame.header, frame.body()));
        }
        seen
    });
    asks.concat()
}

fn refused_identities(address: SocketAddr) -> Vec<String> {
    let asks = ["world", "nonesuch", ""].map(|scheme| {
        let mut client = client(address);
        let credentials = Some(b"x".into());
        client.ask(&Request::Auth { kind: 0, scheme: Some(scheme.into()), credentials }).unwrap();
        format!("{scheme}: {:?} {}", client.frame().unwrap(), client.is_closed())
    });
    asks.to_vec()
}

fn missing_ids(address: SocketAddr) -> Vec<String> {
    let asks = ["world", "digest", "ip", "auth", "sasl", "nonesuch"].map(|scheme| {
        let mut client = client(address);
        let acl = vec![AclEntry { id: None, ..AclEntry::new(31, scheme, "") }];
        let path = "/missing-id".into();
        let create = Create { op: OpCode::CREATE, path, data: None, acl, flags: 1, ttl_ms: -1 };
        client.ask(&Request::Create(create)).unwrap();
        [vec![scheme.to_owned()], seen_before_pong(&mut client)].concat()
    });
    asks.concat()
}

fn granted_timeouts(address: SocketAddr) -> Vec<String> {
    let granted = [i32::MIN, -1, 0, 1, 399, 400, 401, 3999, 4000, 4001, i32::MAX].map(|asked| {
        let client = Client::connect(address, asked, 0, NO_PASSWORD, 0).unwrap();
        let again = Client::connect(address, 1234, client.session, &client.password, 0).unwrap();
        format!("{asked}: {}, then {}", client.timeout_ms, again.timeout_ms)
    });
    granted.to_vec()
}

fn ahead(address: SocketAddr) -> Vec<String> {
    let seen = [0, -1, 1 << 40].map(|zxid| {
        let connected = Client::connect(address, 4000, 0, NO_PASSWORD, zxid);
        format!("{zxid}: {}", connected.is_ok())
    });
    let unknown = Client::connect(address, 4000, 0x1234, NO_PASSWORD, 0).map(|client| client.session);
    let short = Client::connect(address, 4000, 0x1234, &[], 0).map(|client| client.session);
    [seen.to_vec(), vec![format!("{:?} {:?}", unknown.ok(), short.ok())]].concat()
}

/// How a server answers bytes: what it says, as far as it is no secret, until it
/// closes the connection or falls silent.
fn answer(address: SocketAddr, bytes: &[u8]) -> String {
    answer_on(TcpStream::connect(address).unwrap(), bytes)
}

fn answer_on(mut stream: TcpStream, bytes: &[u8]) -> String {
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    // The server may close before all is written.
    let _ = stream.write_all(bytes);
    let mut said: Vec<u8> = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return format!("{} bytes, then closed", said.len()),
            Ok(count) => said.extend(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                return format!("{} bytes, then closed", said.len());
            }
            Err(_) => return format!("{} bytes, then nothing", said.len()),
        }
    }
}

fn framed(body: &[u8]) -> Vec<u8> {
    [&u32::try_from(body.len()).unwrap().to_be_bytes(), body].concat()
}

fn old_handshake(address: SocketAddr) -> Vec<String> {
    let (old, new) = (hello(4000, 0, NO_PASSWORD, 0, None), hello(4000, 0, NO_PASSWORD, 0, Some(false)));
    let mut said = vec![answer(address, &old), answer(address, &new)];
    // Too short, at every length.
    said.extend((PREFIX..old.len()).map(|end| answer(address, &framed(&old[PREFIX..end]))));
    // And half of it, without an end.
    said.push(answer(address, &new[..20]));
    said
}

fn sizes(address: SocketAddr) -> Vec<String> {
    let of_size = |size: usize| {
        let mut client = client(address);
        let path = format!("/size-{size}");
        assert_eq!(client.create(&path, 0).unwrap(), OK);
        let around = RequestHeader::LEN + body_of(&set(&path, &[])).len();
        let set = client.do_it(&set(&path, &vec![7; size - around]));
        let length = client.get(&path).map(|data| data.unwrap_or_default().len());
        format!("{size}: {:?} {:?} {}", set.ok(), length.ok(), client.ping().is_ok())
    };
    [1000, LONGEST - 1, LONGEST, LONGEST + 1, LONGEST + 1000].map(of_size).to_vec()
}

fn no_frames(address: SocketAddr) -> Vec<String> {
    let mut said = Vec::new();
    for start in
        [b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\x7f\xff\xff\xff", b"GET ", b"\0\0\0\0", b"\0\0\0\x04"]
    {
        said.push(answer(address, &[&start[..], &[0; 40]].concat()));
        // The same in a session.
        said.push(answer_on(client(address).into_stream(), &[&start[..], &[0; 40]].concat()));
    }
    said
}

fn expiry(address: SocketAddr) -> Vec<String> {
    const TIMEOUT: Duration = Duration::from_millis(1000);
    let mut watcher = client(address);
    for number in 0..30 {
        assert_eq!(watcher.create(&format!("/dir{number}"), 0).unwrap(), OK);
    }
    let timeout_ms = i32::try_from(TIMEOUT.as_millis()).unwrap();
    let mut silent = Client::connect(address, timeout_ms, 0, NO_PASSWORD, 0).unwrap();
    for number in 0..30 {
        assert_eq!(silent.create(&format!("/dir{number}/e{}", number * 7 % 30), 1).unwrap(), OK);
    }
    let recursive = WatchMode::Recursive.number();
    assert_eq!(watcher.do_it(&Request::AddWatch { path: "/".into(), mode: recursive }).unwrap(), OK);
    silent.ping().unwrap();
    let silent_since = Instant::now();
    // The connection stays: silence is what ends a session.
    let mut seen = Vec::new();
    while seen.len() < 30 {
        watcher.ping_for_events(&mut seen).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    let after = silent_since.elapsed();
    assert!(after >= TIMEOUT - Duration::from_millis(20), "{address} expired it after {after:?}");
    assert!(after < Duration::from_secs(10), "{address} expired it after {after:?}");
    let mut seen: Vec<String> = seen.iter().map(|frame| format!("{:?}", frame.event())).collect();
    seen.push(format!("closed {}", silent.is_closed()));
    seen
}

fn many_names(address: SocketAddr) -> Vec<String> {
    let mut client = client(address);
    assert_eq!(client.create("/many", 0).unwrap(), OK);
    for number in 0..500 {
        assert_eq!(client.create(&format!("/many/{}-", "n".repeat(number % 5)), 2).unwrap(), OK);
    }
    let list = Request::GetChildren { path: "/many".into(), watch: false, with_stat: false };
    match client.reply(&list).unwrap().reply(list.op()) {
        Reply::Names(names) => names,
        other => panic!("{other:?}"),
    }
}

/// The names of what is told, not the figures.
fn words(address: SocketAddr) -> Vec<String> {
    let labels = |said: &str| -> Vec<String> {
        let labels =
            said.lines().map(|line| line.split([':', '=', '\t']).next().unwrap_or_default().to_owned());
        labels.collect()
    };
    let mut said = vec![word(address, "ruok").unwrap(), word(address, "isro").unwrap()];
    said.extend(labels(&word(address, "srvr").unwrap()));
    let mode = word(address, "srvr").unwrap();
    said.extend(mode.lines().find(|line| line.starts_with("Mode")).map(str::to_owned));
    let mntr = labels(&word(address, "mntr").unwrap());
    for key in
        ["version", "server_state", "znode_count", "watch_count", "ephemerals_count", "packets_received"]
    {
        said.push(format!("{key}: {}", mntr.contains(&format!("zk_{key}"))));
    }
    let conf = word(address, "conf").unwrap();
    let told = ["tickTime", "minSessionTimeout", "maxSessionTimeout", "maxClientCnxns"];
    said.extend(conf.lines().filter(|line| told.iter().any(|key| line.starts_with(key))).map(str::to_owned));
    said
}
