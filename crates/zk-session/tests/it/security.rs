//! Access lists and credentials, on real servers: who must not get in does not, and is told so at once.

use std::time::Instant;

use crate::common::{Bed, PATIENCE, TICK, forbid_deletions_below_the_root, soon, wait_for};
use zk_session::{
    Acl, AclEntry, ConnectError, CreateMode, DriverKind, HeldStatus, Id, Lease, Lock, MultiOp, OpError,
    Recovery, Secret, Session, WatchError, permission,
};
use zk_testkit::Op;

on_each_server!(
    nobody_else_gets_at_what_the_creator_keeps_to_itself,
    everybody_may_read_what_is_shown_to_the_world,
    by_default_what_is_created_is_open,
    a_single_create_has_an_access_list_of_its_own,
    credentials_come_from_a_file_and_survive_a_reconnect,
    credentials_that_a_server_refuses_are_an_error_at_once,
    an_access_list_without_credentials_is_refused_before_anything_is_sent,
    a_root_that_forbids_deletions_keeps_no_lease_from_coming,
    a_znode_in_the_way_of_the_heartbeats_is_named_and_no_heartbeat_prolongs_a_lease,
    a_watch_on_what_may_not_be_read_does_not_storm,
);

const USER: &str = "operator:hunter2";

async fn insider(bed: &Bed, acl: Acl) -> Session {
    bed.builder().auth("digest", USER).acl(acl).connect().await.unwrap()
}

/// Neither put off nor tried again: the server was asked once.
async fn assert_refused<T: std::fmt::Debug>(
    bed: &Bed,
    op: Op,
    operation: impl Future<Output = Result<T, OpError>>,
) {
    let before = bed.proxy.seen(op);
    let error = operation.await.unwrap_err();
    assert!(matches!(error, OpError::NoAuth { .. }) && error.has_no_effect(), "{op:?}: {error}");
    assert_eq!(bed.proxy.seen(op) - before, 1, "{op:?} was sent once");
}

async fn nobody_else_gets_at_what_the_creator_keeps_to_itself(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let insider = insider(&bed, Acl::CreatorAll).await;
    insider.create_parents("/parent/inner/x").await.unwrap();
    insider.create("/parent/inner/plain", "", CreateMode::Persistent).await.unwrap();
    insider.create("/parent/ephemeral", "", CreateMode::Ephemeral).await.unwrap();
    let numbered =
        insider.create_sequential("/parent/s-", "", CreateMode::Persistent, Recovery::Data).await.unwrap();
    let held = insider.hold_ephemeral("/parent/held/me", "").unwrap();
    wait_for(&mut held.subscribe(), "held", |status| matches!(status, HeldStatus::Held { .. })).await;
    let all = [
        "/parent",
        "/parent/inner",
        "/parent/inner/plain",
        "/parent/ephemeral",
        &numbered.path,
        "/parent/held",
        "/parent/held/me",
    ];

    let stranger = bed.session().await;
    let other = bed.builder().auth("digest", "operator:wrong").connect().await.unwrap();
    for outsider in [&stranger, &other] {
        outsider.barrier().await.unwrap();
        for path in all {
            assert_refused(&bed, Op::GetData, outsider.get(path)).await;
            assert_refused(&bed, Op::GetChildren, outsider.children(path)).await;
            assert_refused(&bed, Op::SetData, outsider.set(path, "", None)).await;
        }
        for path in &all[1..] {
            assert_refused(&bed, Op::Delete, outsider.delete(path, None)).await;
        }
        for parent in ["/parent", "/parent/inner", "/parent/held"] {
            let child = format!("{parent}/intruder");
            assert_refused(&bed, Op::Create, outsider.create(&child, "", CreateMode::Persistent)).await;
        }
    }
    for path in all {
        assert!(insider.get(path).await.unwrap().is_some(), "{path}");
    }
}

async fn everybody_may_read_what_is_shown_to_the_world(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let insider = insider(&bed, Acl::CreatorAllWorldRead).await;
    insider.create("/shown", "one", CreateMode::Persistent).await.unwrap();
    insider.create("/shown/child", "", CreateMode::Ephemeral).await.unwrap();
    let stranger = bed.session().await;
    stranger.barrier().await.unwrap();
    assert_eq!(stranger.get("/shown").await.unwrap().unwrap().data, b"one");
    assert_eq!(stranger.children("/shown").await.unwrap().unwrap().names, ["child"]);
    assert_refused(&bed, Op::SetData, stranger.set("/shown", "two", None)).await;
    assert_refused(&bed, Op::Delete, stranger.delete("/shown/child", None)).await;
    assert_refused(&bed, Op::Create, stranger.create("/shown/x", "", CreateMode::Persistent)).await;
    insider.set("/shown", "two", None).await.unwrap();
}

async fn by_default_what_is_created_is_open(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let insider = bed.builder().auth("digest", USER).connect().await.unwrap();
    insider.create("/open", "", CreateMode::Persistent).await.unwrap();
    let stranger = bed.session().await;
    stranger.barrier().await.unwrap();
    stranger.set("/open", "", None).await.unwrap();
    stranger.delete("/open", None).await.unwrap();
}

async fn a_single_create_has_an_access_list_of_its_own(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = insider(&bed, Acl::Open).await;
    let list = async |path: &str| session.acl(path).await.unwrap().entries;
    let entry = |permissions, scheme: &str, id: &str| AclEntry { permissions, id: Id::new(scheme, id) };
    let open = [entry(permission::ALL, "world", "anyone")];
    let mine = session.with_acl(&Acl::CreatorAll);
    let incarnation = session.incarnation().unwrap().with_acl(&Acl::CreatorAll);
    mine.create_parents("/mine/x").await.unwrap();
    mine.create("/mine/a", "", CreateMode::Persistent).await.unwrap();
    incarnation.create("/mine/b", "", CreateMode::Ephemeral).await.unwrap();
    let sequential = mine.create_sequential("/mine/s-", "", CreateMode::Persistent, Recovery::Data).await;
    mine.multi([MultiOp::create("/mine/c", "", CreateMode::Persistent)]).await.unwrap();
    let held = mine.hold_ephemeral("/mine/held", "").unwrap();
    wait_for(&mut held.subscribe(), "held", |status| matches!(status, HeldStatus::Held { .. })).await;
    let guard = Lock::new(&mine, "/mine/lock").acquire().await.unwrap();
    let creator = list("/mine").await;
    assert!(matches!(&creator[..], [one] if one.id.scheme == "digest" && one.permissions == permission::ALL));
    let sequential = sequential.unwrap().path;
    for path in ["/mine/a", "/mine/b", &sequential, "/mine/c", "/mine/held", "/mine/lock", guard.path()] {
        assert_eq!(list(path).await, creator, "{path}");
    }
    // The session has its own, as before.
    session.create("/open", "", CreateMode::Persistent).await.unwrap();
    assert_eq!(list("/open").await, open);

    let entries = [creator[0].clone(), entry(permission::READ, "ip", "127.0.0.1")];
    let shown = session.with_acl(&Acl::Entries(entries.clone().into()));
    // Another root keeps the access list, and the other way round.
    for handle in [
        shown.chroot("/mine").unwrap(),
        session.chroot("/mine").unwrap().with_acl(&Acl::Entries(entries.clone().into())),
    ] {
        let path =
            handle.create_sequential("/e-", "", CreateMode::Persistent, Recovery::Data).await.unwrap().path;
        assert_eq!(handle.acl(&path).await.unwrap().entries, entries);
    }
    for wrong in [vec![], vec![entry(permission::ALL, "none", "such")]] {
        let refused = session.with_acl(&Acl::Entries(wrong.into()));
        let error = refused.create("/wrong", "", CreateMode::Persistent).await.unwrap_err();
        assert!(matches!(error, OpError::Invalid { .. }), "{error}");
    }
    let stranger = bed.session().await.with_acl(&Acl::CreatorAll);
    let error = stranger.create("/wrong", "", CreateMode::Persistent).await.unwrap_err();
    assert!(matches!(error, OpError::Invalid { .. }), "{error}");
}

async fn credentials_come_from_a_file_and_survive_a_reconnect(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credentials");
    std::fs::write(&file, format!("{USER}\n")).unwrap();
    let secret = Secret::from_file(&file).unwrap();
    let session = bed.builder().auth("digest", secret).acl(Acl::CreatorAll).connect().await.unwrap();
    session.create("/mine", "one", CreateMode::Persistent).await.unwrap();
    // The same as those given otherwise.
    let same = insider(&bed, Acl::Open).await;
    same.barrier().await.unwrap();
    assert!(same.get("/mine").await.unwrap().is_some());
    for _ in 0..3 {
        assert!(bed.proxy.cut().await > 0);
        session.set("/mine", "two", None).await.unwrap();
    }
}

async fn credentials_that_a_server_refuses_are_an_error_at_once(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let started = Instant::now();
    let builder = bed.builder().connect_timeout(PATIENCE).auth("no-such-scheme", "hunter2");
    let error = builder.connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::AuthFailed { .. }), "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
    assert!(started.elapsed() < PATIENCE / 3, "it took {:?}", started.elapsed());
    bed.proxy.wait_connections(0, PATIENCE).await.unwrap();
}

async fn an_access_list_without_credentials_is_refused_before_anything_is_sent(driver: DriverKind) {
    let builder = Session::builder("127.0.0.1:1").driver(driver).acl(Acl::CreatorAll);
    let error = builder.connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::InvalidSetting { .. }), "{error}");
}

/// The heartbeats are deletions below a znode that does not exist, so no access list is asked.
async fn a_root_that_forbids_deletions_keeps_no_lease_from_coming(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    forbid_deletions_below_the_root(&bed.ensemble.connect_string());
    let session = bed.session().await;
    session.create("/kept", "", CreateMode::Persistent).await.unwrap();
    let refused = session.delete("/kept", None).await.unwrap_err();
    assert!(matches!(refused, OpError::NoAuth { .. }), "{refused}");
    let keeper = session.keep_lease();
    wait_for(&mut keeper.subscribe(), "a lease", Option::is_some).await;
    session.barrier().await.unwrap();
}

async fn a_znode_in_the_way_of_the_heartbeats_is_named_and_no_heartbeat_prolongs_a_lease(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (insider, stranger) = (insider(&bed, Acl::CreatorAll).await, bed.session().await);
    insider.create("/zk-session-barrier", "", CreateMode::Persistent).await.unwrap();
    // Refused by an access list: it may be the word of one server alone.
    let error = stranger.barrier().await.unwrap_err();
    assert!(matches!(error, OpError::Invalid { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("/zk-session-barrier/never-created") && said.contains("not authorized"), "{said}");
    // A session that was just made has a lease, and no heartbeat that is refused prolongs it.
    let keeper = stranger.keep_lease();
    let mut leases = keeper.subscribe();
    // The clocks that are compared for a lease move it by microseconds.
    let longer =
        |then: Lease, now: Lease| then.epoch == now.epoch && now.valid_until > then.valid_until + TICK / 2;
    let first = wait_for(&mut leases, "a lease", Option::is_some).await.unwrap();
    let ends = |lease: &Option<Lease>| lease.is_none_or(|now| now.epoch != first.epoch || longer(first, now));
    let next = wait_for(&mut leases, "its end", ends).await;
    assert!(!next.is_some_and(|next| longer(first, next)), "{first:?} {next:?}");
    // Who may delete there is told that there is nothing, by a quorum.
    insider.barrier().await.unwrap();
    insider.delete("/zk-session-barrier", None).await.unwrap();
    let mut last: Option<Lease> = None;
    wait_for(&mut leases, "a longer lease", |now| {
        let both = std::mem::replace(&mut last, *now).zip(*now);
        both.is_some_and(|(then, now)| longer(then, now))
    })
    .await;
    stranger.barrier().await.unwrap();
}

async fn a_watch_on_what_may_not_be_read_does_not_storm(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let insider = insider(&bed, Acl::CreatorAll).await;
    insider.create("/mine", "", CreateMode::Persistent).await.unwrap();
    let stranger = bed.session().await;
    stranger.barrier().await.unwrap();
    let before = bed.proxy.seen(Op::GetData);
    let mut watch = stranger.watch_data("/mine");
    let refused = soon("the refusal", watch.next()).await.unwrap_err();
    assert!(matches!(refused, WatchError::Refused(OpError::NoAuth { .. })), "{refused:?}");
    let waited = tokio::time::timeout(2 * TICK, watch.next_allowed()).await;
    assert!(waited.is_err(), "{waited:?}");
    let reads = bed.proxy.seen(Op::GetData) - before;
    assert!((1..=8).contains(&reads), "{reads} reads in a second");
    // It is no fault of the session.
    assert!(stranger.state().is_active());
    drop(watch);
    soon("the end", stranger.close(PATIENCE)).await;
}
