//! Recorded frames decode to what the recording programs asked for, and encode to the same bytes.

use std::borrow::Cow;
use std::time::Duration;

use bytes::BytesMut;
use zk_proto::{
    Acl, AclEntry, ConnectRequest, Create, CreateMode, ErrorCode, EventKind, Id, OpCode, Reply, Request,
    Stat, WatchEvent, WatchMode, WatcherType, permission, xid,
};

use super::recording::{Exchange, Message, Recording, recordings};

const OPEN: AclEntry<'static> = AclEntry::new(permission::ALL, "world", "anyone");
const HOUR: Duration = Duration::from_secs(3600);

/// The requests that do not encode to the same bytes, by step and kind, and why a server does not see the difference.
const NORMALIZED: [(&str, OpCode); 3] = [
    // The server refuses a null list as it refuses an empty one.
    ("create without an access list", OpCode::CREATE),
    // SetWatches2 without persistent and recursive watches does the same as SetWatches.
    ("setWatches of nothing", OpCode::SET_WATCHES2),
    // ZooKeeper's own client writes two surrogates. The server replaces them when it decodes; so does the codec.
    ("access list beyond the first plane", OpCode::CREATE),
];

#[test]
fn recorded_frames_encode_to_the_same_bytes() {
    let mut normalized = Vec::new();
    for recording in recordings() {
        for step in &recording.steps {
            for frame in &step.frames {
                let message = frame.message();
                let mut written = BytesMut::new();
                match &message {
                    Message::Connect(request) => request.encode(&mut written),
                    Message::Connected(response) => response.encode(&mut written),
                    Message::Request(xid, request) => request.encode(*xid, &mut written),
                    Message::Reply(header, reply) => {
                        reply.as_ref().unwrap_or(&Reply::Empty).encode(*header, &mut written);
                    }
                    Message::Event(event) => event.encode(&mut written),
                }
                if written == frame.bytes {
                    continue;
                }
                let known = NORMALIZED.iter().find(|(name, op)| *name == step.name && Some(*op) == frame.op);
                let Some(known) = known.filter(|_| matches!(message, Message::Request(..))) else {
                    let (version, program, step) = (&recording.version, &recording.program, &step.name);
                    panic!("{version} {program}, {step}: {message:?}\n{:x}\n{written:x}", frame.bytes);
                };
                normalized.push(known);
            }
        }
    }
    assert!(NORMALIZED.iter().all(|known| normalized.contains(&known)), "an exception is no longer needed");
}

/// The recordings of each version hold every kind of request, answered with success and, where it can be, with an error.
#[test]
fn recordings_are_complete() {
    for version in ["3.8", "3.9"] {
        let mut known: Vec<(i32, bool)> = Vec::new();
        for recording in recordings().iter().filter(|recording| recording.version.starts_with(version)) {
            for step in &recording.steps {
                let exchanges = recording.exchanges(&step.name);
                known
                    .extend(exchanges.iter().map(|at| (at.request.op().0, at.header.error == ErrorCode::OK)));
            }
        }
        // 10 is unused; 20, deleteContainer, is sent by the server to itself.
        for op in (1..=22).chain(100..=107).chain([-11]).filter(|op| ![10, 20].contains(op)) {
            // Apache ZooKeeper never answers a check outside of a group with success.
            assert!(known.contains(&(op, op != OpCode::CHECK.0)), "{version}: {op}");
        }
        for op in [1, 2, 4, 5, 6, 8, 12, 14, 15, 16, 17, 18, 19, 100, 102, 106] {
            // A group that is refused says so in its parts.
            assert!(op == OpCode::MULTI.0 || known.contains(&(op, false)), "{version}: {op} refused");
        }
    }
}

/// The recordings of a program, one for each version.
fn of(program: &str) -> Vec<Recording> {
    let found: Vec<_> = recordings().into_iter().filter(|recording| recording.program == program).collect();
    assert!(found.len() >= 2, "{program} was recorded with {} servers", found.len());
    found
}

fn text(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

fn blob(bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
    Some(Cow::Borrowed(bytes))
}

/// As `Create::new`, but without a stat in the reply.
fn create<'a>(path: &'a str, data: Option<&'a [u8]>, mode: CreateMode) -> Create<'a> {
    let create = Create::new(path, data.unwrap_or_default(), &[OPEN], mode);
    let op = if create.op == OpCode::CREATE2 { OpCode::CREATE } else { create.op };
    Create { op, data: data.map(Cow::Borrowed), ..create }
}

impl Exchange<'_> {
    #[track_caller]
    fn was_refused(&self, error: ErrorCode) {
        assert_eq!((self.header.error, &self.reply), (error, &None), "{:?}", self.request);
    }

    #[track_caller]
    fn succeeded(&self) -> &Reply {
        assert_eq!(self.header.error, ErrorCode::OK, "{:?}", self.request);
        self.reply.as_ref().unwrap()
    }

    /// The stat in the reply.
    #[track_caller]
    fn stat(&self) -> Stat {
        match self.succeeded() {
            Reply::Stat(stat)
            | Reply::PathAndStat(_, stat)
            | Reply::Data(_, stat)
            | Reply::NamesAndStat(_, stat)
            | Reply::Acl(_, stat) => *stat,
            other => panic!("no stat: {other:?}"),
        }
    }
}

#[test]
fn znodes_are_created_in_every_mode() {
    let one = Some(&b"one"[..]);
    for java in of("java") {
        let (_, connected) = java.handshake("connect");

        let [a] = java.exchanged("create");
        assert_eq!(a.request, Request::Create(create("/a", one, CreateMode::Persistent)));
        assert_eq!(a.succeeded(), &Reply::Path("/a".into()));

        let [b] = java.exchanged("create2");
        assert_eq!(
            b.request,
            Request::Create(Create::new("/b", &b"one"[..], &[OPEN], CreateMode::Persistent))
        );
        let created = Stat { czxid: b.header.zxid, mzxid: b.header.zxid, pzxid: b.header.zxid, ..b.stat() };
        assert_eq!(b.succeeded(), &Reply::PathAndStat("/b".into(), created));
        assert_eq!((created.data_length, created.ephemeral_owner, created.version), (3, 0, 0));
        assert!(created.ctime_ms > 1_600_000_000_000 && created.mtime_ms == created.ctime_ms);

        let [null, empty] = java.exchanged("create without data");
        assert_eq!(null.request, Request::Create(create("/null", None, CreateMode::Persistent)));
        let read_only = [AclEntry::new(permission::READ, "world", "anyone")];
        let wanted = create("/empty", Some(b""), CreateMode::Persistent);
        assert_eq!(empty.request, Request::Create(Create { acl: read_only.to_vec(), ..wanted }));

        let [sequential] = java.exchanged("create persistent sequential");
        assert_eq!(
            sequential.request,
            Request::Create(create("/a/s-", one, CreateMode::Persistent).sequential().unwrap())
        );
        assert_eq!(sequential.succeeded(), &Reply::Path("/a/s-0000000000".into()));

        let [ephemeral] = java.exchanged("create ephemeral");
        assert_eq!(
            ephemeral.request,
            Request::Create(Create::new("/a/e", &b"one"[..], &[OPEN], CreateMode::Ephemeral))
        );
        assert_eq!(ephemeral.stat().ephemeral_owner, connected.session_id);

        let [sequential] = java.exchanged("create ephemeral sequential");
        assert_eq!(
            sequential.request,
            Request::Create(create("/a/es-", one, CreateMode::Ephemeral).sequential().unwrap())
        );
        assert_eq!(sequential.succeeded(), &Reply::Path("/a/es-0000000002".into()));

        let [container] = java.exchanged("create container");
        assert_eq!(container.request, Request::Create(create("/container", one, CreateMode::Container)));
        assert_eq!(container.stat().czxid, container.header.zxid);

        let [ttl] = java.exchanged("create ttl");
        assert_eq!(ttl.request, Request::Create(create("/ttl", one, CreateMode::Ttl(HOUR))));
        assert!(matches!(ttl.succeeded(), Reply::PathAndStat(path, _) if path == "/ttl"));
        let [ttl] = java.exchanged("create ttl sequential");
        let mode = CreateMode::Ttl(HOUR + Duration::from_millis(1));
        assert_eq!(ttl.request, Request::Create(create("/ttl-", one, mode).sequential().unwrap()));
        assert!(matches!(ttl.succeeded(), Reply::PathAndStat(path, _) if path.starts_with("/ttl-00000000")));

        let [beyond] = java.exchanged("create with a path beyond ASCII");
        assert_eq!(beyond.request.path(), Some("/pläne-€"));
        assert_eq!(beyond.succeeded(), &Reply::Path("/pläne-€".into()));

        let [exists, no_parent, ephemeral, nobody] = java.exchanged("create refused");
        exists.was_refused(ErrorCode::NODE_EXISTS);
        no_parent.was_refused(ErrorCode::NO_NODE);
        ephemeral.was_refused(ErrorCode::NO_CHILDREN_FOR_EPHEMERALS);
        nobody.was_refused(ErrorCode::INVALID_ACL);
    }
    for kazoo in of("kazoo") {
        for exchange in kazoo.exchanged::<2>("create without an access list") {
            let wanted = create("/n", Some(b""), CreateMode::Persistent);
            assert_eq!(exchange.request, Request::Create(Create { acl: Vec::new(), ..wanted }));
            exchange.was_refused(ErrorCode::INVALID_ACL);
        }
    }
}

#[test]
fn znodes_are_read_and_changed() {
    for java in of("java") {
        let [exists] = java.exchanged("exists");
        assert_eq!(exists.request, Request::Exists { path: text("/a/e"), watch: false });
        assert_eq!(exists.stat(), java.exchanged::<1>("create ephemeral")[0].stat());

        let [data] = java.exchanged("getData");
        assert_eq!(data.request, Request::GetData { path: text("/b"), watch: false });
        assert!(matches!(data.succeeded(), Reply::Data(Some(data), _) if data == "one"));
        let [null, empty] = java.exchanged("getData null and empty");
        assert!(matches!(null.succeeded(), Reply::Data(None, _)));
        assert!(matches!(empty.succeeded(), Reply::Data(Some(data), _) if data.is_empty()));

        let [bytes, null] = java.exchanged("setData");
        let data = blob(&[0, 0xff, 0x7f]);
        assert_eq!(bytes.request, Request::SetData { path: text("/b"), data, version: 0 });
        assert_eq!((bytes.stat().version, bytes.stat().mzxid), (1, bytes.header.zxid));
        assert!(bytes.stat().mtime_ms > bytes.stat().ctime_ms);
        assert_eq!(null.request, Request::SetData { path: text("/b"), data: None, version: -1 });
        assert_eq!((null.stat().version, null.stat().data_length), (2, 0));

        let [acl] = java.exchanged("getACL");
        assert_eq!(acl.request, Request::GetAcl { path: text("/empty") });
        let anyone = |permissions| Acl { permissions, id: Id::new("world", "anyone") };
        assert_eq!(acl.succeeded(), &Reply::Acl(vec![anyone(permission::READ)], acl.stat()));
        let [set, got] = java.exchanged("setACL");
        let entries = vec![OPEN, AclEntry::new(permission::READ, "ip", "10.0.0.0/8")];
        assert_eq!(set.request, Request::SetAcl { path: text("/b"), acl: entries, version: 0 });
        assert_eq!(set.stat().aversion, 1);
        let local = Acl { permissions: permission::READ, id: Id::new("ip", "10.0.0.0/8") };
        assert_eq!(got.succeeded(), &Reply::Acl(vec![anyone(permission::ALL), local], set.stat()));

        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let children = names(&["es-0000000002", "s-0000000000", "e"]);
        let [some, none] = java.exchanged("getChildren");
        let path = text("/a");
        assert_eq!(some.request, Request::GetChildren { path, watch: false, with_stat: false });
        assert_eq!(some.succeeded(), &Reply::Names(children.clone()));
        assert_eq!(none.succeeded(), &Reply::Names(Vec::new()));
        let [with_stat] = java.exchanged("getChildren2");
        let path = text("/a");
        assert_eq!(with_stat.request, Request::GetChildren { path, watch: false, with_stat: true });
        assert_eq!(with_stat.succeeded(), &Reply::NamesAndStat(children, with_stat.stat()));
        assert_eq!((with_stat.stat().num_children, with_stat.stat().cversion), (3, 3));
        let created_by = |step| java.exchanged::<1>(step)[0].header.zxid;
        assert_eq!(with_stat.stat().czxid, created_by("create"));
        assert_eq!(with_stat.stat().pzxid, created_by("create ephemeral sequential"));

        let [sync] = java.exchanged("sync");
        assert_eq!(sync.request, Request::Sync { path: text("/a") });
        assert_eq!(sync.succeeded(), &Reply::Path("/a".into()));

        let [all, some, none] = java.exchanged("getEphemerals");
        assert_eq!(all.request, Request::GetEphemerals { prefix: Some(text("/")) });
        assert!(matches!(all.succeeded(), Reply::Names(paths) if paths.len() == 2));
        assert_eq!(some.request, Request::GetEphemerals { prefix: Some(text("/a/es")) });
        assert_eq!(some.succeeded(), &Reply::Names(names(&["/a/es-0000000002"])));
        assert_eq!(none.succeeded(), &Reply::Names(Vec::new()));

        let [number] = java.exchanged("getAllChildrenNumber");
        assert_eq!(number.request, Request::GetAllChildrenNumber { path: text("/a") });
        assert_eq!(number.succeeded(), &Reply::Int(3));

        let [first, any] = java.exchanged("delete");
        assert_eq!(first.request, Request::Delete { path: text("/null"), version: 0 });
        assert_eq!(any.request, Request::Delete { path: text("/empty"), version: -1 });
        assert_eq!(any.succeeded(), &Reply::Empty);

        let [none, parent, version] = java.exchanged("delete refused");
        none.was_refused(ErrorCode::NO_NODE);
        parent.was_refused(ErrorCode::NOT_EMPTY);
        version.was_refused(ErrorCode::BAD_VERSION);
        for read in java.exchanged::<5>("reads refused") {
            read.was_refused(ErrorCode::NO_NODE);
        }
        let [set] = java.exchanged("setData refused");
        set.was_refused(ErrorCode::BAD_VERSION);
    }
}

#[test]
fn groups_are_done_or_refused_as_a_whole() {
    let one = Some(&b"one"[..]);
    for java in of("java") {
        let [group] = java.exchanged("multi");
        let version = -1;
        let parts = vec![
            Request::Create(create("/m", one, CreateMode::Persistent)),
            Request::Create(create("/m/container", one, CreateMode::Container)),
            Request::Create(create("/m/ttl", one, CreateMode::Ttl(HOUR))),
            Request::Create(create("/m/e-", one, CreateMode::Ephemeral).sequential().unwrap()),
            Request::Check { path: text("/m"), version: 0 },
            Request::SetData { path: text("/m"), data: None, version: 0 },
            Request::Delete { path: text("/m/ttl"), version },
        ];
        assert_eq!(group.request, Request::Multi(parts));
        let Reply::Multi(parts) = group.succeeded() else { panic!("{:?}", group.reply) };
        let [
            m,
            container,
            ttl,
            sequential,
            (OpCode::CHECK, Ok(Reply::Empty)),
            (_, Ok(Reply::Stat(set))),
            (OpCode::DELETE, _),
        ] = &parts[..]
        else {
            panic!("{parts:?}")
        };
        assert_eq!(m, &(OpCode::CREATE, Ok(Reply::Path("/m".into()))));
        assert_eq!(sequential, &(OpCode::CREATE, Ok(Reply::Path("/m/e-0000000002".into()))));
        assert_eq!((set.mzxid, set.version), (group.header.zxid, 1));
        for (part, wanted) in [(container, "/m/container"), (ttl, "/m/ttl")] {
            let (_, Ok(Reply::PathAndStat(path, stat))) = part else { panic!("{part:?}") };
            assert_eq!((&path[..], stat.czxid, stat.data_length), (wanted, group.header.zxid, 3));
        }

        let [group] = java.exchanged("multi refused");
        let failed = |error| (OpCode::ERROR, Err(error));
        let why =
            [failed(ErrorCode::OK), failed(ErrorCode::NODE_EXISTS), failed(ErrorCode::RUNTIME_INCONSISTENCY)];
        assert_eq!(group.succeeded(), &Reply::Multi(why.to_vec()));
        let [group] = java.exchanged("check in a multi refused");
        let why = [failed(ErrorCode::BAD_VERSION), failed(ErrorCode::RUNTIME_INCONSISTENCY)];
        assert_eq!(group.succeeded(), &Reply::Multi(why.to_vec()));

        let [group] = java.exchanged("multiRead");
        let (data, children) = (
            |path| Request::GetData { path, watch: false },
            |path| Request::GetChildren { path, watch: false, with_stat: false },
        );
        let parts = vec![data(text("/m")), children(text("/m")), data(text("/b")), children(text("/b"))];
        assert_eq!(group.request, Request::MultiRead(parts));
        let Reply::Multi(parts) = group.succeeded() else { panic!("{:?}", group.reply) };
        let [
            (_, Ok(Reply::Data(None, read))),
            (_, Ok(Reply::Names(names))),
            (_, Ok(Reply::Data(None, _))),
            none,
        ] = &parts[..]
        else {
            panic!("{parts:?}")
        };
        assert_eq!((read.version, read.num_children), (1, 2));
        assert_eq!((names.len(), none), (2, &(OpCode::GET_CHILDREN, Ok(Reply::Names(Vec::new())))));

        let [group] = java.exchanged("multiRead with refusals");
        let Reply::Multi(parts) = group.succeeded() else { panic!("{:?}", group.reply) };
        let [none, (_, Ok(Reply::Data(None, _))), forbidden] = &parts[..] else { panic!("{parts:?}") };
        assert_eq!((none, forbidden), (&failed(ErrorCode::NO_NODE), &failed(ErrorCode::NO_AUTH)));
    }
    for kazoo in of("kazoo") {
        let [group] = kazoo.exchanged("multi");
        let Request::Multi(parts) = &group.request else { panic!("{:?}", group.request) };
        let create2 = Create::new("/k/m2", &b"m2"[..], &[OPEN], CreateMode::Persistent);
        assert_eq!(parts[1], Request::Create(create2));
        let Reply::Multi(parts) = group.succeeded() else { panic!("{:?}", group.reply) };
        if kazoo.is_from([3, 9]) {
            let (_, Ok(Reply::PathAndStat(path, stat))) = &parts[1] else { panic!("{parts:?}") };
            assert_eq!((&path[..], stat.czxid), ("/k/m2", group.header.zxid));
        } else {
            // The server treats it as a create.
            assert_eq!(parts[1], (OpCode::CREATE, Ok(Reply::Path("/k/m2".into()))));
        }
    }
}

#[test]
fn watches_fire() {
    for java in of("java") {
        let event = |kind, path: &str, zxid| WatchEvent {
            kind,
            state: WatchEvent::CONNECTED,
            path: path.to_owned(),
            zxid: if java.is_from([3, 9]) { zxid } else { -1 },
        };
        let [watch, change] = java.exchanged("event created");
        assert_eq!(watch.request, Request::Exists { path: text("/w"), watch: true });
        watch.was_refused(ErrorCode::NO_NODE);
        assert_eq!(java.events("event created"), [event(EventKind::CREATED, "/w", change.header.zxid)]);
        let [watch, change] = java.exchanged("event data changed");
        assert_eq!(watch.request, Request::GetData { path: text("/w"), watch: true });
        assert_eq!(
            java.events("event data changed"),
            [event(EventKind::DATA_CHANGED, "/w", change.header.zxid)]
        );
        let [watch, change] = java.exchanged("event children changed");
        assert_eq!(watch.request, Request::GetChildren { path: text("/w"), watch: true, with_stat: true });
        let expected = event(EventKind::CHILDREN_CHANGED, "/w", change.header.zxid);
        assert_eq!(java.events("event children changed"), [expected]);
        let [_, change] = java.exchanged("event deleted");
        assert_eq!(java.events("event deleted"), [event(EventKind::DELETED, "/w/c", change.header.zxid)]);

        let [watch, set, child] = java.exchanged("addWatch persistent");
        let mode = WatchMode::Persistent.number();
        assert_eq!(watch.request, Request::AddWatch { path: text("/w"), mode });
        assert_eq!(watch.succeeded(), &Reply::Int(0));
        let expected = [
            event(EventKind::DATA_CHANGED, "/w", set.header.zxid),
            event(EventKind::CHILDREN_CHANGED, "/w", child.header.zxid),
        ];
        assert_eq!(java.events("addWatch persistent"), expected);

        let [watch, changes @ ..] = java.exchanged::<6>("addWatch recursive");
        let mode = WatchMode::Recursive.number();
        assert_eq!(watch.request, Request::AddWatch { path: text("/a"), mode });
        let told = [
            (EventKind::CREATED, "/a/ä"),
            (EventKind::CREATED, "/a/ä/d"),
            (EventKind::DATA_CHANGED, "/a/ä/d"),
            (EventKind::DELETED, "/a/ä/d"),
            (EventKind::DELETED, "/a/ä"),
        ];
        let expected: Vec<_> = told
            .iter()
            .zip(&changes)
            .map(|((kind, path), change)| event(*kind, path, change.header.zxid))
            .collect();
        assert_eq!(java.events("addWatch recursive"), expected);

        let [group] = java.exchanged("event of a multi");
        let zxid = group.header.zxid;
        let expected =
            [event(EventKind::DATA_CHANGED, "/w", zxid), event(EventKind::CHILDREN_CHANGED, "/w", zxid)];
        assert_eq!(java.events("event of a multi"), expected);
    }
}

#[test]
fn watches_are_removed_and_set_again() {
    for java in of("java") {
        let [check] = java.exchanged("checkWatches");
        let kind = WatcherType::Data.number();
        assert_eq!(check.request, Request::CheckWatches { path: text("/w"), kind });
        assert_eq!(check.succeeded(), &Reply::Empty);
        let removed = java.exchanged::<3>("removeWatches");
        let wanted = [(WatcherType::Data, "/w"), (WatcherType::Children, "/w"), (WatcherType::Any, "/m")];
        for (exchange, (kind, path)) in removed.iter().zip(wanted) {
            let (path, kind) = (text(path), kind.number());
            assert_eq!(exchange.request, Request::RemoveWatches { path, kind });
            assert_eq!(exchange.succeeded(), &Reply::Empty);
        }

        let (before, _) = java.handshake("setWatches prepared");
        assert_eq!(before.session_id, 0);
        let (again, connected) = java.handshake("setWatches");
        assert_eq!((connected.session_id, &connected.password), (again.session_id, &again.password));
        let [set] = java.exchanged("setWatches");
        let expected = Request::SetWatches {
            relative_zxid: again.last_zxid,
            data: vec![text("/b"), text("/w")],
            exist: vec![text("/late")],
            child: vec![text("/m")],
            persistent: Vec::new(),
            recursive: Vec::new(),
        };
        assert_eq!((&set.request, set.request.op()), (&expected, OpCode::SET_WATCHES));
        // ZooKeeper's own client numbers it like any other request, others send xid::SET_WATCHES.
        assert!(set.xid > 0);
        assert_eq!(set.succeeded(), &Reply::Empty);
        // Events that SetWatches causes carry no zxid, in any version.
        let missed: Vec<_> =
            java.events("setWatches").into_iter().map(|at| (at.kind, at.path, at.zxid)).collect();
        let expected = [
            (EventKind::DATA_CHANGED, "/w".to_owned(), -1),
            (EventKind::CREATED, "/late".to_owned(), -1),
            (EventKind::CHILDREN_CHANGED, "/m".to_owned(), -1),
        ];
        assert_eq!(missed, expected);

        let (again, _) = java.handshake("setWatches2");
        let exchanges = java.exchanges("setWatches2");
        let expected = Request::SetWatches {
            relative_zxid: again.last_zxid,
            data: vec![text("/b"), text("/w")],
            exist: Vec::new(),
            child: Vec::new(),
            persistent: vec![text("/m")],
            recursive: vec![text("/a")],
        };
        assert_eq!((&exchanges[0].request, expected.op()), (&expected, OpCode::SET_WATCHES2));
        assert_eq!(java.events("setWatches2").len(), 1);
    }
    for kazoo in of("kazoo") {
        for exchange in kazoo.exchanged::<2>("setWatches of nothing") {
            assert_eq!(exchange.xid, xid::SET_WATCHES);
            assert_eq!(exchange.succeeded(), &Reply::Empty);
        }
        for exchange in kazoo.exchanged::<2>("no such watch") {
            exchange.was_refused(ErrorCode::NO_WATCHER);
        }
        let [unknown] = kazoo.exchanged("addWatch of an unknown mode");
        unknown.was_refused(ErrorCode::MARSHALLING_ERROR);
    }
}

#[test]
fn sessions_begin_and_end() {
    let new = ConnectRequest {
        last_zxid: 0,
        timeout_ms: 10_000,
        session_id: 0,
        password: vec![0; 16],
        read_only: Some(false),
    };
    for java in of("java") {
        let (request, response) = java.handshake("connect");
        assert_eq!(request, new);
        assert_eq!((response.timeout_ms, response.read_only), (10_000, Some(false)));
        assert!(response.session_id != 0 && response.password.len() == zk_proto::PASSWORD_LEN);
        let [close] = java.exchanged("closeSession");
        assert_eq!((&close.request, close.succeeded()), (&Request::CloseSession, &Reply::Empty));

        let pings = java.exchanges("ping");
        assert!(!pings.is_empty());
        for ping in pings {
            assert_eq!(
                (&ping.request, ping.xid, ping.succeeded()),
                (&Request::Ping, xid::PING, &Reply::Empty)
            );
        }

        let (request, response) = java.handshake("connect for read-only, too");
        assert_eq!((request.read_only, response.read_only), (Some(true), Some(false)));
        let (request, refusal) = java.handshake("connect to a session that is over");
        assert_eq!((request.session_id, request.password), (response.session_id, response.password));
        assert_eq!(refusal, zk_proto::ConnectResponse::refusal(true));
    }
    for kazoo in of("kazoo") {
        assert_eq!(kazoo.handshake("connect").0, new);
        let (request, response) = kazoo.handshake("connect without saying whether read-only would do");
        assert_eq!((request, response.read_only), (ConnectRequest { read_only: None, ..new.clone() }, None));
        let [ping] = kazoo.exchanged("ping");
        assert_eq!(ping.xid, xid::PING);

        let [unknown] = kazoo.exchanged("unknown request");
        assert_eq!(unknown.request, Request::Other { op: OpCode(4711), body: Cow::Borrowed(b"whatever") });
        unknown.was_refused(ErrorCode::UNIMPLEMENTED);
        // In such a reply the server gives no zxid.
        assert_eq!(unknown.header.zxid, -1);
        let [check] = kazoo.exchanged("check outside of a group");
        assert_eq!(check.request, Request::Check { path: text("/"), version: 7 });
        let newer = kazoo.is_from([3, 9]);
        check.was_refused(if newer { ErrorCode::UNIMPLEMENTED } else { ErrorCode::BAD_VERSION });
    }
}

#[test]
fn clients_say_who_they_are() {
    let here = Id::new("ip", "127.0.0.1");
    for java in of("java") {
        let [who] = java.exchanged("whoAmI");
        assert_eq!(who.request, Request::WhoAmI);
        assert_eq!(who.succeeded(), &Reply::Identities(vec![here.clone()]));
        let [auth, who] = java.exchanged("auth");
        let (scheme, credentials) = (Some(text("digest")), blob(b"alice:secret"));
        assert_eq!(auth.request, Request::Auth { kind: 0, scheme, credentials });
        assert_eq!((auth.xid, auth.succeeded()), (xid::AUTH, &Reply::Empty));
        let Reply::Identities(ids) = who.succeeded() else { panic!("{:?}", who.reply) };
        assert!(
            ids.len() == 2 && ids.contains(&here) && ids.contains(&Id::new("digest", "alice")),
            "{ids:?}"
        );

        let [create, acl] = java.exchanged("create with the creator's access list");
        let Request::Create(create) = &create.request else { panic!("{:?}", create.request) };
        assert_eq!(create.acl, [AclEntry::new(permission::ALL, "auth", "")]);
        let Reply::Acl(entries, _) = acl.succeeded() else { panic!("{:?}", acl.reply) };
        assert!(entries[0].id.scheme == "digest" && entries[0].id.id.starts_with("alice:"), "{entries:?}");
        let [read] = java.exchanged("not authorized");
        read.was_refused(ErrorCode::NO_AUTH);
        let [auth] = java.exchanged("auth refused");
        auth.was_refused(ErrorCode::AUTH_FAILED);

        for exchange in java.exchanged::<2>("reconfig refused") {
            exchange.was_refused(ErrorCode::RECONFIG_DISABLED);
        }

        // The server replaces each of the two surrogates once, and so does the codec.
        let [create, acl] = java.exchanged("access list beyond the first plane");
        let Request::Create(create) = &create.request else { panic!("{:?}", create.request) };
        let Reply::Acl(entries, _) = acl.succeeded() else { panic!("{:?}", acl.reply) };
        assert_eq!(entries[0].id.id, "\u{fffd}\u{fffd}:x");
        assert_eq!(create.acl[0].id.as_deref(), Some("\u{fffd}\u{fffd}:x"));
    }
    for kazoo in of("kazoo") {
        // kazoo sends UTF-8; the server answers with surrogates.
        let [set, get] = kazoo.exchanged("access list beyond the first plane");
        let Request::SetAcl { acl, .. } = &set.request else { panic!("{:?}", set.request) };
        assert_eq!(acl[1].id.as_deref(), Some("😀:x"));
        let Reply::Acl(entries, _) = get.succeeded() else { panic!("{:?}", get.reply) };
        assert_eq!(entries[1].id, Id::new("digest", "😀:x"));
    }
}

#[test]
fn sasl_has_steps() {
    for sasl in of("sasl") {
        let [first, second] = sasl.exchanged("sasl");
        assert_eq!(first.request, Request::Sasl { token: blob(b"") });
        let Reply::Token(Some(challenge)) = first.succeeded() else { panic!("{:?}", first.reply) };
        assert!(challenge.starts_with(b"realm=\"zk-sasl-md5\",nonce=\""), "{challenge:?}");
        let Request::Sasl { token: Some(response) } = &second.request else { panic!("{:?}", second.request) };
        assert!(response.starts_with(b"charset=utf-8,username=\"bob\""), "{response:?}");
        let Reply::Token(Some(token)) = second.succeeded() else { panic!("{:?}", second.reply) };
        assert!(token.starts_with(b"rspauth="), "{token:?}");
        let [_, refused] = sasl.exchanged("sasl refused");
        // The only error with a body.
        assert_eq!(
            (refused.header.error, &refused.reply),
            (ErrorCode::AUTH_FAILED, &Some(Reply::Token(None)))
        );
    }
}

#[test]
fn ensembles_are_reconfigured_and_read_only() {
    for ensemble in of("ensemble") {
        let [reconfig] = ensemble.exchanged("reconfig");
        let Request::Reconfig { joining: Some(joining), leaving: None, members: None, version: -1 } =
            &reconfig.request
        else {
            panic!("{:?}", reconfig.request)
        };
        let Reply::Data(Some(config), stat) = reconfig.succeeded() else { panic!("{:?}", reconfig.reply) };
        let config = std::str::from_utf8(config).unwrap();
        assert!(config.lines().any(|line| line == joining), "{config}");
        assert_eq!(stat.mzxid, reconfig.header.zxid);
        let [stale] = ensemble.exchanged("reconfig of another version");
        let (leaving, version) = (Some(text("2")), 1);
        assert_eq!(stale.request, Request::Reconfig { joining: None, leaving, members: None, version });
        stale.was_refused(ErrorCode::BAD_VERSION);
        let [ephemeral] = ensemble.exchanged("ephemeral of a local session");
        ephemeral.was_refused(ErrorCode::EPHEMERAL_ON_LOCAL_SESSION);

        let (request, response) = ensemble.handshake("read-only");
        assert_eq!((request.read_only, response.read_only), (Some(true), Some(true)));
        let [_, create] = ensemble.exchanged("read-only");
        create.was_refused(ErrorCode::NOT_READ_ONLY);
    }
}
