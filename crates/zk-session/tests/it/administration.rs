//! Operations beside those on znodes and their data: access lists, counts, identities, groups of reads, other kinds of
//! znodes, the ensemble's own configuration, and how long a request may be.

use std::time::Duration;

use crate::common::{Bed, PATIENCE, TICK, TIMEOUT, eventually, soon};
use futures_util::future::join_all;
use zk_session::{
    AclEntry, CreateMode, DriverKind, Id, MultiOp, MultiResult, OpError, ReadOp, ReadResult, Reconfiguration,
    Recovery, Session, SessionState, permission,
};
use zk_testkit::{Ensemble, Op, Proxy, ServerKind, Servers, TestServer, Which};

on_each_server!(
    whether_a_znode_exists,
    an_access_list_is_read_and_replaced,
    an_access_list_whose_answer_was_lost_is_recognised,
    a_server_catches_up,
    the_ephemerals_of_a_session_are_named,
    the_ephemerals_below_a_root_are_named_by_it,
    znodes_below_are_counted,
    identities_are_told,
    several_reads_are_one_request,
    a_reconfiguration_that_is_not_allowed_says_so,
    containers_and_znodes_with_a_time_to_live,
    a_request_that_is_too_long_harms_nobody,
    the_longest_request_is_accepted;
    a_server_leaves_the_ensemble_and_joins_again
);

async fn persistent(session: &Session, path: &str) {
    session.create(path, "", CreateMode::Persistent).await.unwrap();
}

async fn whether_a_znode_exists(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.builder().auth("digest", "me:secret").connect().await.unwrap();
    assert_eq!(session.exists("/a").await.unwrap(), None);
    let created = session.create("/a", "one", CreateMode::Persistent).await.unwrap();
    assert_eq!(session.exists("/a").await.unwrap(), Some(created.stat));
    let written = session.set("/a", "three", None).await.unwrap();
    assert_eq!(session.exists("/a").await.unwrap(), Some(written));
    assert_eq!(written.data_length, 5);
    session.set_acl("/a", &[mine()], None).await.unwrap();
    let observer = bed.observer().await;
    assert!(matches!(observer.get("/a").await, Err(OpError::NoAuth { .. })));
    match observer.exists("/a").await {
        // Servers before 3.9 tell anybody.
        Ok(found) => assert!(found.is_some()),
        Err(error) => assert!(matches!(error, OpError::NoAuth { .. }), "{error}"),
    }
    assert!(matches!(session.exists("a").await, Err(OpError::Invalid { .. })));
}

fn entry(permissions: i32, scheme: &str, id: &str) -> AclEntry {
    AclEntry { permissions, id: Id { scheme: scheme.to_owned(), id: id.to_owned() } }
}

/// All for whoever has the session's credentials.
fn mine() -> AclEntry {
    entry(permission::ALL, "auth", "")
}

fn everybody(permissions: i32) -> AclEntry {
    entry(permissions, "world", "anyone")
}

async fn an_access_list_is_read_and_replaced(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.builder().auth("digest", "me:secret").connect().await.unwrap();
    let path = || "/a".to_owned();
    assert_eq!(session.acl("/a").await, Err(OpError::NoNode { path: path() }));
    assert_eq!(session.set_acl("/a", &[mine()], None).await, Err(OpError::NoNode { path: path() }));
    persistent(&session, "/a").await;
    let list = session.acl("/a").await.unwrap();
    assert_eq!((&list.entries[..], list.stat.aversion), (&[everybody(permission::ALL)][..], 0));
    let stat = session.set_acl("/a", &[mine(), everybody(permission::READ)], Some(0)).await.unwrap();
    assert_eq!(stat.aversion, 1);
    // The wrong version, and the same again.
    let entries = [everybody(permission::ALL)];
    assert_eq!(session.set_acl("/a", &entries, Some(0)).await, Err(OpError::BadVersion { path: path() }));
    let list = session.acl("/a").await.unwrap();
    assert_eq!((list.entries.len(), list.stat.aversion), (2, 1));
    assert_eq!(list.entries[0].id.scheme, "digest");
    assert!(list.entries[0].id.id.starts_with("me:"), "{list:?}");
    // Others may read, and do no more.
    let observer = bed.observer().await;
    assert!(observer.get("/a").await.unwrap().is_some());
    assert_eq!(observer.set("/a", "", None).await, Err(OpError::NoAuth { path: path() }));
    assert_eq!(observer.set_acl("/a", &entries, None).await, Err(OpError::NoAuth { path: path() }));
    assert_eq!(session.set_acl("/a", &entries, None).await.unwrap().aversion, 2);
    observer.set("/a", "", None).await.unwrap();
    // What no server knows.
    for nonsense in [&[][..], &[entry(permission::ALL, "no-such-scheme", "x")]] {
        let refused = session.set_acl("/a", nonsense, None).await;
        assert!(matches!(refused, Err(OpError::Invalid { .. })), "{refused:?}");
    }
    session.barrier().await.unwrap();
}

async fn an_access_list_whose_answer_was_lost_is_recognised(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    persistent(&observer, "/a").await;
    let read = [everybody(permission::READ | permission::ADMIN)];
    let all = [everybody(permission::ALL)];
    // Of a znode that the session has never seen it would not be known which one that was.
    session.barrier().await.unwrap();
    // With a version it was done once, and that is known.
    let loss = bed.proxy.lose_reply(Which::op(Op::SetAcl));
    assert_eq!(session.set_acl("/a", &read, Some(0)).await.unwrap().aversion, 1);
    loss.happened(PATIENCE).await.unwrap();
    let list = observer.acl("/a").await.unwrap();
    assert_eq!((&list.entries[..], list.stat.aversion), (&read[..], 1));
    // It never arrived.
    let loss = bed.proxy.lose_request(Which::op(Op::SetAcl));
    assert_eq!(session.set_acl("/a", &all, Some(1)).await.unwrap().aversion, 2);
    loss.happened(PATIENCE).await.unwrap();
    // It never arrived, and somebody else has been faster.
    observer.set_acl("/a", &read, Some(2)).await.unwrap();
    let loss = bed.proxy.lose_request(Which::op(Op::SetAcl));
    let refused = session.set_acl("/a", &all, Some(2)).await;
    assert_eq!(refused, Err(OpError::BadVersion { path: "/a".to_owned() }));
    loss.happened(PATIENCE).await.unwrap();
    // The version has gone on by more than one.
    observer.set_acl("/a", &all, Some(3)).await.unwrap();
    let loss = bed.proxy.lose_request(Which::op(Op::SetAcl));
    let unknown = session.set_acl("/a", &all, Some(2)).await.unwrap_err();
    assert!(unknown.is_unknown(), "{unknown:?}");
    loss.happened(PATIENCE).await.unwrap();
    // Without one it is done again.
    let loss = bed.proxy.lose_reply(Which::op(Op::SetAcl));
    assert_eq!(session.set_acl("/a", &all, None).await.unwrap().aversion, 6);
    loss.happened(PATIENCE).await.unwrap();
}

async fn a_server_catches_up(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    for n in 0..20 {
        let path = format!("/{n}");
        persistent(&observer, &path).await;
        session.sync(&path).await.unwrap();
        assert!(session.get(&path).await.unwrap().is_some());
    }
    // What stands there does not matter.
    session.sync("/nothing").await.unwrap();
    let loss = bed.proxy.lose_reply(Which::op(Op::Sync));
    session.sync("/").await.unwrap();
    loss.happened(PATIENCE).await.unwrap();
}

async fn the_ephemerals_of_a_session_are_named(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    assert!(session.ephemerals("/").await.unwrap().is_empty());
    persistent(&session, "/a").await;
    for path in ["/a/2", "/a/1", "/ab", "/b"] {
        session.create(path, "", CreateMode::Ephemeral).await.unwrap();
    }
    observer.create("/a/others", "", CreateMode::Ephemeral).await.unwrap();
    assert_eq!(session.ephemerals("/").await.unwrap(), ["/a/1", "/a/2", "/ab", "/b"]);
    // A prefix, and not a parent.
    assert_eq!(session.ephemerals("/a").await.unwrap(), ["/a/1", "/a/2", "/ab"]);
    assert_eq!(observer.ephemerals("/").await.unwrap(), ["/a/others"]);
}

async fn the_ephemerals_below_a_root_are_named_by_it(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let observer = bed.observer().await;
    persistent(&observer, "/root").await;
    let connect = format!("{}/root", bed.proxy.addr());
    let session = crate::common::builder_for(driver, connect).connect().await.unwrap();
    persistent(&session, "/a").await;
    for path in ["/a/1", "/b"] {
        session.create(path, "", CreateMode::Ephemeral).await.unwrap();
    }
    // The same session by another way, outside of that root.
    let ticket = session.incarnation().unwrap().ticket();
    session.hand_over().await.unwrap();
    let whole = bed.builder().resume(ticket).connect().await.unwrap();
    for path in ["/rooted", "/c"] {
        whole.create(path, "", CreateMode::Ephemeral).await.unwrap();
    }
    assert_eq!(whole.ephemerals("/").await.unwrap(), ["/c", "/root/a/1", "/root/b", "/rooted"]);
    let ticket = whole.hand_over().await.unwrap();
    let connect = format!("{}/root", bed.proxy.addr());
    let session = crate::common::builder_for(driver, connect).resume(ticket).connect().await.unwrap();
    assert_eq!(session.ephemerals("/").await.unwrap(), ["/a/1", "/b"]);
    assert_eq!(session.ephemerals("/a").await.unwrap(), ["/a/1"]);
}

async fn znodes_below_are_counted(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    assert_eq!(session.count_below("/a").await, Err(OpError::NoNode { path: "/a".to_owned() }));
    let before = session.count_below("/").await.unwrap();
    for (path, count) in [("/a", 0), ("/a/b", 1), ("/a/b/c", 2), ("/a/d", 3), ("/ab", 3)] {
        persistent(&session, path).await;
        assert_eq!(session.count_below("/a").await.unwrap(), count);
    }
    assert_eq!(session.count_below("/").await.unwrap(), before + 5);
}

async fn identities_are_told(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let schemes = async |session: &Session| {
        let mut ids = session.whoami().await.unwrap();
        ids.sort_by(|one, other| one.scheme.cmp(&other.scheme));
        ids.into_iter().map(|id| (id.scheme.to_string(), id.id.to_string())).collect::<Vec<_>>()
    };
    let address = || ("ip".to_owned(), "127.0.0.1".to_owned());
    assert_eq!(schemes(&session).await, [address()]);
    let known = bed.builder().auth("digest", "me:secret").connect().await.unwrap();
    assert_eq!(schemes(&known).await, [("digest".to_owned(), "me".to_owned()), address()]);
}

async fn several_reads_are_one_request(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    assert!(session.multi_read([]).await.unwrap().is_empty());
    persistent(&session, "/a").await;
    for child in ["/a/2", "/a/1"] {
        persistent(&session, child).await;
    }
    let written = session.set("/a", "one", None).await.unwrap();
    let found = session
        .multi_read([
            ReadOp::get("/a"),
            ReadOp::get("/nothing"),
            ReadOp::children("/a"),
            ReadOp::children("/nothing"),
            ReadOp::children("/a/1"),
        ])
        .await
        .unwrap();
    let ReadResult::Node(Some(node)) = &found[0] else { panic!("{found:?}") };
    assert_eq!((&node.data[..], node.stat.mzxid), (&b"one"[..], written.mzxid));
    let names =
        |names: &[&str]| ReadResult::Children(Some(names.iter().map(|&name| name.to_owned()).collect()));
    assert_eq!(
        found[1..],
        [ReadResult::Node(None), names(&["1", "2"]), ReadResult::Children(None), names(&[])]
    );
    // Who may not read one of them hears which.
    let known = bed.builder().auth("digest", "me:secret").connect().await.unwrap();
    known.set_acl("/a/1", &[mine()], None).await.unwrap();
    let refused = session.multi_read([ReadOp::get("/a"), ReadOp::children("/a"), ReadOp::get("/a/1")]).await;
    assert_eq!(refused, Err(OpError::NoAuth { path: "/a/1".to_owned() }));
    assert_eq!(known.multi_read([ReadOp::get("/a/1")]).await.unwrap().len(), 1);
    let refused = session.multi_read([ReadOp::get("/a"), ReadOp::get("a")]).await;
    assert!(matches!(&refused, Err(OpError::Invalid { path, .. }) if path == "a"), "{refused:?}");
}

async fn a_reconfiguration_that_is_not_allowed_says_so(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let change = Reconfiguration { leaving: Some("1".to_owned()), ..Reconfiguration::default() };
    let refused = session.reconfig(&change).await.unwrap_err();
    let OpError::Invalid { path, reason } = &refused else { panic!("{refused:?}") };
    assert_eq!(path, "/zookeeper/config");
    assert!(reason.contains("reconfig"), "{reason}");
    session.barrier().await.unwrap();
}

async fn a_server_leaves_the_ensemble_and_joins_again(driver: DriverKind) {
    let ensemble = Ensemble::builder()
        .servers(3)
        .tick_time(TICK)
        .setting("reconfigEnabled", "true")
        .jvm_flag("-Dzookeeper.skipACL=yes")
        .start()
        .await
        .unwrap();
    let leader = ensemble.leader().await.unwrap();
    let session = crate::common::builder(driver, ensemble.addresses()[leader]).connect().await.unwrap();
    let config = async || {
        let node = session.get("/zookeeper/config").await.unwrap().unwrap();
        String::from_utf8(node.data).unwrap()
    };
    let before = config().await;
    let number = (leader + 1) % 3 + 1;
    let line = before.lines().find(|line| line.starts_with(&format!("server.{number}="))).unwrap().to_owned();
    let version = |text: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("version=")).unwrap();
        i64::from_str_radix(line, 16).unwrap()
    };
    let leaving = Reconfiguration {
        leaving: Some(number.to_string()),
        version: Some(version(&before)),
        ..Reconfiguration::default()
    };
    let node = session.reconfig(&leaving).await.unwrap();
    let after = String::from_utf8(node.data).unwrap();
    assert!(!after.contains(&line) && after.lines().filter(|line| line.starts_with("server.")).count() == 2);
    assert!(version(&after) > version(&before), "{after}");
    // The configuration has another version by now.
    let refused = session.reconfig(&leaving).await;
    assert!(matches!(refused, Err(OpError::BadVersion { .. })), "{refused:?}");
    // The client's port is a part of what a server is.
    let address = ensemble.addresses()[number - 1];
    let whole =
        if line.contains(';') { line.clone() } else { format!("{line};{}:{}", address.ip(), address.port()) };
    let joining = Reconfiguration { joining: Some(whole), ..Reconfiguration::default() };
    soon("the server joins", async {
        // It has to follow the leader before it may.
        while let Err(refused) = session.reconfig(&joining).await {
            println!("{refused}");
            assert!(matches!(refused, OpError::Invalid { .. }), "{refused:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert!(config().await.contains(&format!("server.{number}=")));
    for nonsense in ["nonsense", "server.x=1"] {
        let joining = Reconfiguration { joining: Some(nonsense.to_owned()), ..Reconfiguration::default() };
        let refused = session.reconfig(&joining).await;
        assert!(matches!(refused, Err(OpError::Invalid { .. })), "{refused:?}");
    }
}

/// A server on which znodes may have a time to live.
async fn extended() -> Servers {
    const CHECK: Duration = Duration::from_millis(200);
    match crate::common::server_kind() {
        ServerKind::Apache => {
            let builder =
                Ensemble::builder().servers(1).tick_time(TICK).with(|settings| settings.ttl_nodes = true);
            Servers::Apache(Box::new(
                builder.with(|settings| settings.container_check = Some(CHECK)).start().await.unwrap(),
            ))
        }
        ServerKind::Embedded => {
            let builder = TestServer::builder().tick_time(TICK).with(|settings| settings.ttl_nodes = true);
            Servers::Embedded(
                builder.with(|settings| settings.container_check = CHECK).start().await.unwrap(),
            )
        }
    }
}

async fn containers_and_znodes_with_a_time_to_live(driver: DriverKind) {
    let servers = extended().await;
    let proxy = Proxy::start(servers.addresses()[0]).await.unwrap();
    let session = crate::common::builder(driver, proxy.addr()).connect().await.unwrap();
    let (short, long) =
        (CreateMode::Ttl(Duration::from_millis(300)), CreateMode::Ttl(Duration::from_secs(3600)));
    let gone = async |path: &str| {
        eventually(&format!("{path} is gone"), async || session.exists(path).await.unwrap().is_none()).await;
    };

    // A container goes with its last child, and not before.
    let made = session.create("/container", "data", CreateMode::Container).await.unwrap();
    assert_eq!((made.path.as_str(), made.stat.ephemeral_owner), ("/container", 0));
    session.create("/container/a", "", CreateMode::Ephemeral).await.unwrap();
    let kept = session.create("/kept", "", long).await.unwrap();
    assert_eq!(kept.stat.ephemeral_owner, 0);
    let made = session.create("/short", "", short).await.unwrap();
    assert_eq!(made.path, "/short");
    gone("/short").await;
    assert!(session.exists("/container").await.unwrap().is_some());
    session.delete("/container/a", None).await.unwrap();
    gone("/container").await;

    // Found again after a lost answer, as any other.
    let loss = proxy.lose_reply(Which::op(Op::Create));
    session.create("/lost", "unique", CreateMode::Container).await.unwrap();
    loss.happened(PATIENCE).await.unwrap();
    let loss = proxy.lose_reply(Which::op(Op::Create));
    session.create("/lost-too", "unique", long).await.unwrap();
    loss.happened(PATIENCE).await.unwrap();

    // In a group.
    let group = [
        MultiOp::create("/group", "", CreateMode::Container),
        MultiOp::create("/group/kept", "", long),
        MultiOp::create("/group/short", "", short),
    ];
    let results = session.multi(group).await.unwrap();
    assert!(results.iter().all(|result| matches!(result, MultiResult::Created { .. })), "{results:?}");
    gone("/group/short").await;
    assert_eq!(session.children("/group").await.unwrap().unwrap().names, ["kept"]);

    // With a number.
    let one = session.create_sequential("/group/n-", "1", long, Recovery::Data).await.unwrap();
    let loss = proxy.lose_reply(Which::op(Op::Create));
    let two = session.create_sequential("/group/n-", "2", long, Recovery::Data).await.unwrap();
    loss.happened(PATIENCE).await.unwrap();
    assert!(one.path < two.path, "{one:?} {two:?}");
    assert_eq!(session.count_below("/group").await.unwrap(), 3, "each was made once");
    let brief = session.create_sequential("/group/n-", "3", short, Recovery::Data).await.unwrap();
    gone(&brief.path).await;
    let refused = session.create_sequential("/group/c-", "", CreateMode::Container, Recovery::Data).await;
    assert!(matches!(refused, Err(OpError::Invalid { .. })), "{refused:?}");
    for beyond in [Duration::ZERO, Duration::from_secs(40 * 366 * 24 * 60 * 60)] {
        let refused = session.create("/beyond", "", CreateMode::Ttl(beyond)).await;
        assert!(matches!(refused, Err(OpError::Invalid { .. })), "{beyond:?}: {refused:?}");
    }
    assert!(session.exists("/kept").await.unwrap().is_some());
}

/// What a server takes if nothing else is said.
const LONGEST: usize = 0xf_ffff;

async fn a_request_that_is_too_long_harms_nobody(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let mut states = session.subscribe();
    states.mark_unchanged();
    persistent(&session, "/a").await;
    // Under way while it is refused, and after.
    bed.proxy.hold_replies(true);
    let others: Vec<_> = (0..20)
        .map(|n| {
            let session = session.clone();
            tokio::spawn(async move { session.set("/a", n.to_string(), None).await })
        })
        .collect();
    eventually("they are under way", async || bed.proxy.seen(Op::SetData) == 20).await;
    if driver == DriverKind::ZookeeperAsync {
        // That client tells nobody of an answer, nor of a refusal, before those of earlier requests.
        bed.proxy.hold_replies(false);
    }
    let long = vec![b'x'; LONGEST];
    let beyond = |refused: Result<(), OpError>| match refused {
        Err(OpError::Invalid { reason, .. }) => assert!(reason.contains("jute.maxbuffer"), "{reason}"),
        other => panic!("{other:?}"),
    };
    beyond(session.create("/b", &long, CreateMode::Persistent).await.map(drop));
    beyond(session.set("/a", &long, None).await.map(drop));
    let group = [
        MultiOp::create("/b", &long[..LONGEST / 2], CreateMode::Persistent),
        MultiOp::set("/a", &long[..LONGEST / 2], None),
    ];
    beyond(session.multi(group).await.map(drop));
    bed.proxy.hold_replies(false);
    for done in join_all(others).await {
        done.unwrap().unwrap();
    }
    assert_eq!(session.get("/a").await.unwrap().unwrap().stat.version, 20);
    assert_eq!(session.get("/b").await.unwrap(), None);
    assert!(!states.has_changed().unwrap(), "{:?}", states.borrow());
    assert!(matches!(session.state(), SessionState::Active { .. }));
    assert_eq!(bed.proxy.accepted().len(), 1);
    // As low as it is set.
    let careful = bed.builder().max_request(100 << 10).connect().await.unwrap();
    beyond(careful.set("/a", &long[..100 << 10], None).await.map(drop));
    careful.set("/a", &long[..99 << 10], None).await.unwrap();
}

async fn the_longest_request_is_accepted(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    persistent(&session, "/a").await;
    let mut states = session.subscribe();
    states.mark_unchanged();
    // The longest that is not refused here, by halves.
    let (mut taken, mut refused) = (LONGEST - 200, LONGEST);
    let data = vec![b'x'; LONGEST];
    while taken + 1 < refused {
        let middle = usize::midpoint(taken, refused);
        match soon("an answer", session.set("/a", &data[..middle], None)).await {
            Ok(stat) => {
                assert_eq!(usize::try_from(stat.data_length).unwrap(), middle);
                taken = middle;
            }
            Err(OpError::Invalid { .. }) => refused = middle,
            Err(other) => panic!("{middle}: {other:?}"),
        }
    }
    // Its number, its kind, the path with its length, the length of the data and the version.
    assert_eq!(taken, LONGEST - (4 + 4 + (4 + 2) + 4 + 4));
    assert_eq!(session.get("/a").await.unwrap().unwrap().data.len(), taken);
    assert!(!states.has_changed().unwrap(), "{:?}", states.borrow());
    assert_eq!(bed.proxy.accepted().len(), 1);
    assert_eq!(session.active().await.unwrap().granted_timeout(), TIMEOUT);
}
