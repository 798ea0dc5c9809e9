//! What random programs don't reach: the edges of the protocol, sizes, and sessions
//! that end.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::both;
use crate::wire::{Body, Client, Fields, word};

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
    Client::connect(address, 60_000, 0, &[0; 16], 0).unwrap()
}

/// Up to the answer to a ping, without the zxids.
fn seen_before_pong(client: &mut Client) -> Vec<String> {
    match client.ask(11, &Body::default()).and_then(|xid| client.frames_to(xid)) {
        Ok(frames) => {
            let frames = frames.iter().map(|frame| format!("{} {} {:?}", frame.xid, frame.error, frame.body));
            frames.collect()
        }
        Err(_) => vec![format!("closed: {}", client.is_closed())],
    }
}

fn a_check_alone(address: SocketAddr) -> Vec<String> {
    let mut client = client(address);
    let check = |path: &str, version: i32| Body::default().string(path).int(version);
    client.ask(13, &check("/zookeeper", 5)).unwrap();
    let mut seen = seen_before_pong(&mut client);
    client.ask(13, &check("/zookeeper", -1)).unwrap();
    seen.extend(seen_before_pong(&mut client));
    client.ask(13, &check("/zookeeper", -1)).unwrap();
    client.ask(2, &Body::default().string("/nothing").int(-1)).unwrap();
    seen.extend(seen_before_pong(&mut client));
    seen
}

fn unknown_requests(address: SocketAddr) -> Vec<String> {
    let asks = [0, 10, 23, 99, 108, -12, i32::MAX].map(|code| {
        let mut client = client(address);
        client.ask(code, &Body::default()).unwrap();
        let mut seen = vec![format!("code {code}")];
        while let Ok(frame) = client.frame() {
            seen.push(format!("{} {} {} {:?}", frame.xid, frame.zxid, frame.error, frame.body));
        }
        seen
    });
    asks.concat()
}

fn refused_identities(address: SocketAddr) -> Vec<String> {
    let asks = ["world", "nonesuch", ""].map(|scheme| {
        let mut client = client(address);
        client.ask(100, &Body::default().int(0).string(scheme).string("x")).unwrap();
        let frame = client.frame().unwrap();
        format!("{scheme}: {} {} {} {}", frame.xid, frame.zxid, frame.error, client.is_closed())
    });
    asks.to_vec()
}

fn missing_ids(address: SocketAddr) -> Vec<String> {
    let asks = ["world", "digest", "ip", "auth", "sasl", "nonesuch"].map(|scheme| {
        let mut client = client(address);
        let ask = Body::default().string("/missing-id").buffer(None);
        client.ask(1, &ask.int(1).int(31).string(scheme).int(-1).int(1)).unwrap();
        [vec![scheme.to_owned()], seen_before_pong(&mut client)].concat()
    });
    asks.concat()
}

fn granted_timeouts(address: SocketAddr) -> Vec<String> {
    let granted = [i32::MIN, -1, 0, 1, 399, 400, 401, 3999, 4000, 4001, i32::MAX].map(|asked| {
        let client = Client::connect(address, asked, 0, &[0; 16], 0).unwrap();
        let again = Client::connect(address, 1234, client.session, &client.password, 0).unwrap();
        format!("{asked}: {}, then {}", client.timeout_ms, again.timeout_ms)
    });
    granted.to_vec()
}

fn ahead(address: SocketAddr) -> Vec<String> {
    let seen = [0, -1, 1 << 40].map(|zxid| {
        let connected = Client::connect(address, 4000, 0, &[0; 16], zxid);
        format!("{zxid}: {}", connected.is_ok())
    });
    let unknown = Client::connect(address, 4000, 0x1234, &[0; 16], 0).map(|client| client.session);
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

fn hello() -> Body {
    Body::default().int(0).long(0).int(4000).long(0).buffer(Some(&[0; 16]))
}

fn old_handshake(address: SocketAddr) -> Vec<String> {
    let whole = hello().bool(false).0;
    let mut said = vec![answer(address, &framed(&hello().0)), answer(address, &framed(&whole))];
    // Too short, at every length.
    said.extend((0..hello().0.len()).map(|length| answer(address, &framed(&whole[..length]))));
    // And half of it, without an end.
    said.push(answer(address, &framed(&whole)[..20]));
    said
}

fn sizes(address: SocketAddr) -> Vec<String> {
    let of_size = |size: usize| {
        let mut client = client(address);
        let path = format!("/size-{size}");
        assert_eq!(client.create(&path, 0).unwrap(), 0);
        let around = 8 + Body::default().string(&path).buffer(Some(&[])).int(-1).0.len();
        let body = Body::default().string(&path).buffer(Some(&vec![7; size - around])).int(-1);
        let set = client.do_it(5, &body);
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
        assert_eq!(watcher.create(&format!("/dir{number}"), 0).unwrap(), 0);
    }
    let timeout_ms = i32::try_from(TIMEOUT.as_millis()).unwrap();
    let mut silent = Client::connect(address, timeout_ms, 0, &[0; 16], 0).unwrap();
    for number in 0..30 {
        assert_eq!(silent.create(&format!("/dir{number}/e{}", number * 7 % 30), 1).unwrap(), 0);
    }
    assert_eq!(watcher.do_it(106, &Body::default().string("/").int(1)).unwrap(), 0);
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
    let mut seen: Vec<String> = seen
        .iter()
        .map(|frame| {
            let mut fields = Fields(&frame.body);
            format!("{} {} {}", fields.int(), fields.int(), fields.string())
        })
        .collect();
    seen.push(format!("closed {}", silent.is_closed()));
    seen
}

fn many_names(address: SocketAddr) -> Vec<String> {
    let mut client = client(address);
    assert_eq!(client.create("/many", 0).unwrap(), 0);
    for number in 0..500 {
        assert_eq!(client.create(&format!("/many/{}-", "n".repeat(number % 5)), 2).unwrap(), 0);
    }
    let reply = client.reply(8, &Body::default().string("/many").bool(false)).unwrap();
    let mut fields = Fields(&reply.body);
    (0..fields.int()).map(|_| fields.string()).collect()
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
