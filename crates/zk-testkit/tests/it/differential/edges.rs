//! What random programs don't reach: the edges of the protocol, sizes, and sessions
//! that end.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use zk_proto::{AclEntry, Create, OpCode, Reply, Request, RequestHeader, Stat, WatchEvent, WatchMode};
use zk_testkit::{Ensemble, TestServer};

use super::{MOST_CONNECTIONS, SUPER_USER, both, is_3_9};
use crate::wire::{Client, Frame, NO_PASSWORD, OK, PREFIX, body_of, hello, set, word};

const TICK: Duration = Duration::from_millis(200);
/// `jute.maxbuffer`.
const LONGEST: usize = 0xf_ffff;

/// After which a server is said to have fallen silent: long, as a busy machine is slow.
const SILENCE: Duration = Duration::from_secs(1);

/// What is seen of one server.
type Look = fn(SocketAddr) -> Vec<String>;

#[test]
fn the_edges_are_the_same() {
    let both = both(TICK);
    let looks: [(&str, Look); 16] = [
        ("a check alone", a_check_alone),
        ("a watch of the empty path", a_watch_of_the_empty_path),
        ("unknown requests", unknown_requests),
        ("identities that are refused", refused_identities),
        ("access lists without ids", missing_ids),
        ("a super user", super_user),
        ("the timeouts that are granted", granted_timeouts),
        ("clients that have seen more", ahead),
        ("handshakes of old clients", old_handshake),
        ("sizes", sizes),
        ("what is no frame", no_frames),
        ("a session that expires", expiry),
        ("a long list of names", many_names),
        ("four-letter words", words),
        ("watches in four-letter words", watches_in_words),
        ("one connection too many", too_many_connections),
    ];
    for (what, look) in looks {
        assert_eq!(
            look(both.ours),
            look(both.apache),
            "{what}: the embedded server left, Apache ZooKeeper right"
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
    if is_3_9(address) {
        return frames_to_the_end(client, &check(-1));
    }
    client.ask(&check(5)).unwrap();
    let mut seen = seen_before_pong(&mut client);
    client.ask(&check(-1)).unwrap();
    seen.extend(seen_before_pong(&mut client));
    client.ask(&check(-1)).unwrap();
    client.ask(&Request::Delete { path: "/nothing".into(), version: -1 }).unwrap();
    seen.extend(seen_before_pong(&mut client));
    seen
}

fn a_watch_of_the_empty_path(address: SocketAddr) -> Vec<String> {
    let mut client = client(address);
    let persistent = vec!["".into()];
    let (data, exist, child, recursive) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    client.ask(&Request::SetWatches { relative_zxid: 0, data, exist, child, persistent, recursive }).unwrap();
    for kind in [1, 2, 3] {
        client.ask(&Request::CheckWatches { path: "".into(), kind }).unwrap();
    }
    seen_before_pong(&mut client)
}

/// What answers a request that ends its connection.
fn frames_to_the_end(mut client: Client, request: &Request<'_>) -> Vec<String> {
    client.ask(request).unwrap();
    let frames = std::iter::from_fn(|| client.frame().ok());
    frames.map(|frame| format!("{:?} {:?}", frame.header, frame.body())).collect()
}

fn unknown_requests(address: SocketAddr) -> Vec<String> {
    let asks = [0, 10, 23, 99, 108, -12, i32::MAX].map(|code| {
        let request = Request::Other { op: OpCode(code), body: [][..].into() };
        [vec![format!("code {code}")], frames_to_the_end(client(address), &request)].concat()
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

fn super_user(address: SocketAddr) -> Vec<String> {
    let mut client = client(address);
    let acl = vec![AclEntry::new(31, "digest", "ann:none")];
    let path = "/closed";
    let create = Create { op: OpCode::CREATE, path: path.into(), data: None, acl, flags: 0, ttl_ms: -1 };
    assert_eq!(client.do_it(&Request::Create(create)).unwrap(), OK);
    let mut said = Vec::new();
    for proof in ["super:wrong", SUPER_USER] {
        let credentials = Some(proof.as_bytes().into());
        client.ask(&Request::Auth { kind: 0, scheme: Some("digest".into()), credentials }).unwrap();
        said.push(format!("{:?}", client.frame().unwrap().header));
        let read = client.do_it(&Request::GetData { path: path.into(), watch: false }).unwrap();
        let list = client.reply(&Request::GetAcl { path: path.into() }).unwrap().header.error;
        said.push(format!("{read:?} {list:?} {:?}", client.set(path, "x").unwrap()));
        said.push(format!("{:?}", client.reply(&Request::WhoAmI).unwrap().reply(OpCode::WHO_AM_I)));
    }
    said.push(format!("{:?}", client.do_it(&Request::Delete { path: path.into(), version: -1 }).unwrap()));
    said
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
    stream.set_read_timeout(Some(SILENCE)).unwrap();
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
    let events: Vec<_> = seen.iter().map(Frame::event).collect();
    // All are told the same transaction, whichever that is, or none.
    let zxid = events[0].zxid;
    let mut seen: Vec<String> = events
        .into_iter()
        .map(|event| format!("{} {:?}", zxid > 0, WatchEvent { zxid: event.zxid - zxid, ..event }))
        .collect();
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
    // None of them is met with silence, or with another form.
    const SHORT: [&str; 12] =
        ["ruok", "isro", "crst", "srst", "gtmk", "stmk", "wchs", "wchc", "wchp", "lsnp", "obsr", "none"];
    let mut said: Vec<String> = SHORT.map(|name| word(address, name).unwrap()).to_vec();
    let set_trace_mask = [&b"stmk"[..], &0x7f_i64.to_be_bytes()].concat();
    said.push(answer(address, &set_trace_mask));
    said.push(word(address, "gtmk").unwrap());
    for name in ["dirs", "cons", "envi", "stat"] {
        said.extend(labels(&word(address, name).unwrap()).into_iter().take(2));
    }
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

fn watches_in_words(address: SocketAddr) -> Vec<String> {
    let mut client = client(address);
    for path in ["/zookeeper", "/zookeeper/quota"] {
        assert_eq!(client.do_it(&Request::Exists { path: path.into(), watch: true }).unwrap(), OK);
    }
    let list = Request::GetChildren { path: "/zookeeper".into(), watch: true, with_stat: false };
    assert_eq!(client.do_it(&list).unwrap(), OK);
    let session = format!("{:x}", client.session);
    let said = ["wchs", "wchc", "wchp"].map(|name| {
        let mut lines: Vec<String> =
            word(address, name).unwrap().lines().map(|line| line.replace(&session, "session")).collect();
        // In the order of some table.
        lines.sort_unstable();
        lines.join("\n")
    });
    said.to_vec()
}

/// `both` allows so many.
fn too_many_connections(address: SocketAddr) -> Vec<String> {
    let mut clients: Vec<Client> = (0..MOST_CONNECTIONS).map(|_| client(address)).collect();
    let mut said = vec![answer(address, b"ruok")];
    // A client that leaves makes room, for the one connection that is asked here: a server may count the last one for a
    // moment after its end.
    drop(clients.pop());
    let refused = said[0].clone();
    let deadline = Instant::now() + Duration::from_secs(15);
    let mut last = answer(address, b"ruok");
    while last == refused && Instant::now() < deadline {
        last = answer(address, b"ruok");
    }
    said.push(last);
    said
}

/// What is in `/zookeeper/config`. Ports differ, and Apache ZooKeeper tells its clients' where they are
/// part of the ensemble's configuration, which they are not here.
fn config(address: SocketAddr) -> String {
    let mut client = client(address);
    let get = Request::GetData { path: "/zookeeper/config".into(), watch: false };
    let Reply::Data(data, stat) = client.reply(&get).unwrap().reply(get.op()) else { panic!("no data") };
    let data = String::from_utf8(data.unwrap().to_vec()).unwrap();
    let lines = data.split('\n').map(|line| line.split(';').next().unwrap_or_default());
    let without_port = |part: &str| part.parse().map_or(part.to_owned(), |_: u16| "port".to_owned());
    let lines = lines.map(|line| line.split(':').map(without_port).collect::<Vec<_>>().join(":"));
    let stat = Stat { mtime_ms: 0, data_length: 0, ..stat };
    format!("{} {stat:?}", lines.collect::<Vec<_>>().join("\n"))
}

#[test]
fn three_servers_tell_who_they_are() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let apache = runtime.block_on(Ensemble::start(3)).unwrap();
    let ours = runtime.block_on(TestServer::builder().servers(3).start()).unwrap();
    for (ours, apache) in ours.addresses().into_iter().zip(apache.addresses()) {
        let ours = config(ours);
        assert_eq!(ours, config(apache), "the embedded server left, Apache ZooKeeper right");
        assert!(ours.contains("server.3=127.0.0.1:port:port:participant"), "{ours}");
    }
}
