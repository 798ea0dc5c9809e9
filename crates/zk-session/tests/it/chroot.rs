//! Sessions with a chroot: each operation, event and error has the paths of the caller, and acts below the chroot.

use crate::common::{Bed, PATIENCE, builder_for, soon, wait_for};
use zk_session::{
    AclEntry, ChangeKind, CreateMode, DriverKind, HeldStatus, Id, Lock, MultiOp, OpError, ReadOp, ReadResult,
    Recovery, Session, UnknownCause, permission,
};
use zk_testkit::{Op, Which};

on_each_server!(
    operations_act_below_the_chroot_and_return_paths_without_it,
    a_path_that_was_found_again_is_without_the_chroot,
    groups_and_trees_act_below_the_chroot,
    errors_name_paths_without_the_chroot,
    watches_and_held_znodes_are_below_the_chroot,
    a_chroot_that_does_not_exist_is_created_with_the_parents,
    a_chroot_of_a_handle_is_as_one_of_the_connect_string,
);

const CHROOT: &str = "/the/chroot";

/// A session with a chroot that exists, and an observer without one.
async fn chrooted(bed: &Bed) -> (Session, Session) {
    let observer = bed.observer().await;
    observer.create_parents(&format!("{CHROOT}/x")).await.unwrap();
    (rooted(bed).await, observer)
}

async fn rooted(bed: &Bed) -> Session {
    let connect = format!("{}{CHROOT}", bed.proxy.addr());
    builder_for(bed.driver, connect).connect().await.unwrap()
}

fn anyone(permissions: i32) -> AclEntry {
    AclEntry { permissions, id: Id { scheme: "world".to_owned(), id: "anyone".to_owned() } }
}

fn below(path: &str) -> String {
    format!("{CHROOT}{path}")
}

async fn operations_act_below_the_chroot_and_return_paths_without_it(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = chrooted(&bed).await;
    let created = session.create("/a", "one", CreateMode::Persistent).await.unwrap();
    assert_eq!(created.path, "/a");
    let sequential =
        session.create_sequential("/a/n-", "", CreateMode::Ephemeral, Recovery::Data).await.unwrap();
    assert_eq!(sequential.path, "/a/n-0000000000");
    session.create_parents("/p/q/r").await.unwrap();
    let stat = session.set("/a", "two", Some(0)).await.unwrap();
    assert_eq!(session.exists("/a").await.unwrap().map(|stat| stat.version), Some(stat.version));
    assert_eq!(session.children("/").await.unwrap().unwrap().names, ["a", "p"]);
    assert_eq!(session.children("/a").await.unwrap().unwrap().names, ["n-0000000000"]);
    assert_eq!(session.ephemerals("/").await.unwrap(), ["/a/n-0000000000"]);
    assert_eq!(session.count_below("/").await.unwrap(), 4);
    let entries = [anyone(permission::ALL)];
    session.set_acl("/p", &entries, Some(0)).await.unwrap();
    assert_eq!(session.acl("/p").await.unwrap().stat.aversion, 1);
    let read =
        session.multi_read([ReadOp::get("/a"), ReadOp::children("/"), ReadOp::get("/none")]).await.unwrap();
    assert_eq!(
        read[1..],
        [ReadResult::Children(Some(vec!["a".to_owned(), "p".to_owned()])), ReadResult::Node(None)]
    );
    session.sync("/a").await.unwrap();
    session.delete("/p/q", None).await.unwrap();

    // The root of the session is the chroot.
    session.set("/", "root", None).await.unwrap();
    observer.barrier().await.unwrap();
    assert_eq!(observer.get(CHROOT).await.unwrap().unwrap().data, b"root");
    assert_eq!(observer.children(CHROOT).await.unwrap().unwrap().names, ["a", "p"]);
    assert_eq!(observer.get(&below("/a")).await.unwrap().unwrap().data, b"two");
    assert!(observer.exists(&below("/a/n-0000000000")).await.unwrap().unwrap().ephemeral_owner != 0);
    assert_eq!(observer.acl(&below("/p")).await.unwrap().stat.aversion, 1);
    assert_eq!(
        observer.children("/").await.unwrap().unwrap().names,
        ["the", "zookeeper"],
        "nothing beside it"
    );
}

async fn a_path_that_was_found_again_is_without_the_chroot(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = chrooted(&bed).await;
    for recovery in [Recovery::Name, Recovery::Data] {
        let loss = bed.proxy.lose_reply(Which::op(Op::Create));
        let prefix = format!("/{recovery:?}-");
        let data = format!("{recovery:?}");
        let created =
            session.create_sequential(&prefix, data, CreateMode::Persistent, recovery).await.unwrap();
        assert!(loss.happened(PATIENCE).await.unwrap().path.unwrap().starts_with(CHROOT));
        assert!(created.path.starts_with(&prefix), "{}", created.path);
        observer.barrier().await.unwrap();
        assert_eq!(observer.exists(&below(&created.path)).await.unwrap(), Some(created.stat));
    }
    let loss = bed.proxy.lose_reply(Which::op(Op::Create));
    let created = session.create("/leader", "me", CreateMode::Ephemeral).await.unwrap();
    loss.happened(PATIENCE).await.unwrap();
    assert_eq!(created.path, "/leader");
}

async fn groups_and_trees_act_below_the_chroot(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = chrooted(&bed).await;
    let group = [
        MultiOp::create("/tree", "1", CreateMode::Persistent),
        MultiOp::create("/tree/a", "", CreateMode::Persistent),
        MultiOp::create("/tree/b", "", CreateMode::Ephemeral),
        MultiOp::set("/tree", "2", 0),
        MultiOp::check("/tree", 1),
        MultiOp::delete("/tree/a", None),
    ];
    session.multi(group).await.unwrap();
    observer.barrier().await.unwrap();
    assert_eq!(observer.get(&below("/tree")).await.unwrap().unwrap().data, b"2");
    assert_eq!(observer.children(&below("/tree")).await.unwrap().unwrap().names, ["b"]);

    let refused = session.multi([MultiOp::check("/tree", None), MultiOp::delete("/tree/none", None)]).await;
    assert_eq!(refused, Err(OpError::NoNode { path: "/tree/none".to_owned() }));

    session.delete_recursive("/tree").await.unwrap();
    observer.barrier().await.unwrap();
    assert_eq!(observer.children(CHROOT).await.unwrap().unwrap().names, [""; 0]);
    // A session does not delete its chroot.
    let refused = session.delete_recursive("/").await.unwrap_err();
    assert!(matches!(&refused, OpError::Invalid { path, .. } if path == "/"), "{refused}");
}

async fn errors_name_paths_without_the_chroot(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = chrooted(&bed).await;
    let path = || "/a".to_owned();
    assert_eq!(session.delete("/a", None).await, Err(OpError::NoNode { path: path() }));
    assert_eq!(
        session.create("/a/b", "", CreateMode::Persistent).await.unwrap_err(),
        OpError::NoNode { path: "/a/b".to_owned() }
    );
    session.create("/a", "", CreateMode::Persistent).await.unwrap();
    assert_eq!(
        session.create("/a", "", CreateMode::Persistent).await.unwrap_err(),
        OpError::NodeExists { path: path(), owner: None }
    );
    assert_eq!(session.set("/a", "", Some(7)).await.unwrap_err(), OpError::BadVersion { path: path() });
    session.create("/a/b", "", CreateMode::Persistent).await.unwrap();
    assert_eq!(session.delete("/a", None).await, Err(OpError::NotEmpty { path: path() }));
    let refused = session.get("/a/").await.unwrap_err();
    assert!(!refused.to_string().contains(CHROOT), "{refused}");

    let nothing_allowed = [anyone(permission::ADMIN)];
    session.set_acl("/a/b", &nothing_allowed, None).await.unwrap();
    assert_eq!(session.get("/a/b").await, Err(OpError::NoAuth { path: "/a/b".to_owned() }));

    // A tree of which one half can't be deleted.
    session.create_parents("/half/kept/x").await.unwrap();
    session.create("/half/kept/x", "", CreateMode::Persistent).await.unwrap();
    session.create("/half/z", "", CreateMode::Persistent).await.unwrap();
    let no_deletion = [anyone(permission::ALL & !permission::DELETE)];
    session.set_acl("/half/kept", &no_deletion, None).await.unwrap();
    let refused = session.delete_recursive("/half").await.unwrap_err();
    match &refused {
        OpError::Unknown { path, cause: UnknownCause::Partly { error, .. } } => {
            assert_eq!((path.as_str(), error.path()), ("/half", "/half/kept/x"));
        }
        other => panic!("{other}"),
    }

    // Changed by another after a lost answer.
    let loss = bed.proxy.lose_request(Which::op(Op::SetData));
    let set = session.set("/a", "mine", Some(0));
    let change = async {
        loss.happened(PATIENCE).await.unwrap();
        observer.set(&below("/a"), "theirs", None).await.unwrap();
        observer.set(&below("/a"), "theirs", None).await.unwrap();
    };
    let (refused, ()) = futures_util::future::join(set, change).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.path(), "/a", "{refused}");
    assert!(!refused.to_string().contains(CHROOT), "{refused}");
}

async fn watches_and_held_znodes_are_below_the_chroot(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = chrooted(&bed).await;
    let (mut data, mut names) = (session.watch_data("/held/here"), session.watch_children("/held"));
    let (mut each, mut tree) = (session.watch_each("/held"), session.watch_tree("/"));
    assert_eq!(data.path(), "/held/here");
    soon("no data", data.next()).await.unwrap();
    soon("no children", names.next()).await.unwrap();
    for watch in [&mut each, &mut tree] {
        assert_eq!(soon("the gap", watch.next()).await.unwrap().kind, ChangeKind::Gap);
    }

    let held = session.hold_ephemeral("/held/here", "me").unwrap();
    assert_eq!(held.path(), "/held/here");
    wait_for(&mut held.subscribe(), "held", |status| matches!(status, HeldStatus::Held { .. })).await;
    observer.barrier().await.unwrap();
    assert_eq!(observer.get(&below("/held/here")).await.unwrap().unwrap().data, b"me");

    assert_eq!(soon("the data", data.next()).await.unwrap().value.unwrap().data, b"me");
    // The parent may be seen before its child.
    while soon("the child", names.next())
        .await
        .unwrap()
        .value
        .is_none_or(|children| children.names != ["here"])
    {}
    for path in ["/held", "/held/here"] {
        let change = soon("a change in the tree", tree.next()).await.unwrap();
        assert_eq!((change.kind, change.path.as_str()), (ChangeKind::Created, path));
    }
    for kind in [ChangeKind::Created, ChangeKind::ChildrenChanged] {
        let change = soon("a change", each.next()).await.unwrap();
        assert_eq!((change.kind, change.path.as_str()), (kind, "/held"));
    }
    held.release().await;
    assert_eq!(soon("the end", data.next()).await.unwrap().value, None);
}

async fn a_chroot_that_does_not_exist_is_created_with_the_parents(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = rooted(&bed).await;
    assert_eq!(session.get("/").await, Ok(None));
    let refused = session.create("/a", "", CreateMode::Persistent).await.unwrap_err();
    assert_eq!(refused, OpError::NoNode { path: "/a".to_owned() });
    session.create_parents("/a").await.unwrap();
    session.create("/a", "", CreateMode::Persistent).await.unwrap();
    let observer = bed.observer().await;
    observer.barrier().await.unwrap();
    assert!(observer.exists(&below("/a")).await.unwrap().is_some());
}

/// Beside the whole session and another part of it, over one connection.
async fn a_chroot_of_a_handle_is_as_one_of_the_connect_string(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (rooted, whole) = (chrooted(&bed).await.0, bed.session().await);
    assert!(matches!(whole.chroot("the"), Err(OpError::Invalid { .. })));
    let session = whole.chroot("/the").unwrap().chroot("/chroot").unwrap();
    assert_eq!(session.chroot("/").unwrap().get("/none").await, Ok(None));
    assert_eq!(session.create("/a", "one", CreateMode::Persistent).await.unwrap().path, "/a");
    rooted.barrier().await.unwrap();
    assert_eq!(rooted.get("/a").await.unwrap().unwrap().data, b"one");
    assert_eq!(whole.get(&below("/a")).await.unwrap().unwrap().data, b"one");
    let refused = session.create("/a/b/c", "", CreateMode::Persistent).await.unwrap_err();
    assert_eq!(refused, OpError::NoNode { path: "/a/b/c".to_owned() });
    let refused = session.multi([MultiOp::set("/a", "", None), MultiOp::delete("/none", None)]).await;
    assert_eq!(refused, Err(OpError::NoNode { path: "/none".to_owned() }));

    // What it returns has the same root.
    let (incarnation, pin) = (session.incarnation().unwrap(), session.pin().unwrap());
    for incarnation in [&incarnation, &session.active().await.unwrap(), &pin.incarnation()] {
        assert_eq!(incarnation, &whole.incarnation().unwrap(), "the same ZooKeeper session");
        assert!(incarnation.get("/a").await.unwrap().is_some());
    }

    // A lock excludes the one at the same znode, whatever its path.
    let guard = Lock::new(&session, "/locks/report").acquire().await.unwrap();
    assert!(guard.path().starts_with("/locks/report/"), "{}", guard.path());
    assert_eq!(guard.set("/a", "two").await.unwrap().unwrap().version, 1);
    assert!(Lock::new(&rooted, "/locks/report").try_acquire().await.unwrap().is_none());
    assert!(Lock::new(&whole, "/locks/report").try_acquire().await.unwrap().is_some());
    guard.release().await.unwrap();

    // Watches and held znodes, in this ZooKeeper session and in the next one.
    session.create_parents("/held/here").await.unwrap();
    let (mut data, mut tree) = (session.watch_data("/held/here"), session.watch_tree("/held"));
    let gap = soon("the gap", tree.next()).await.unwrap();
    assert_eq!((gap.kind, gap.path.as_str()), (ChangeKind::Gap, "/held"));
    let held = session.hold_ephemeral("/held/here", "me").unwrap();
    let change = soon("a change", tree.next()).await.unwrap();
    assert_eq!((change.kind, change.path.as_str()), (ChangeKind::Created, "/held/here"));
    while soon("the data", data.next()).await.unwrap().value.is_none_or(|node| node.data != b"me") {}
    drop(pin);
    let ticket = incarnation.ticket();
    bed.builder().close_left_behind(ticket, PATIENCE).await.unwrap();
    let again = |status: &HeldStatus| matches!(status, HeldStatus::Held { epoch, .. } if *epoch > incarnation.epoch());
    wait_for(&mut held.subscribe(), "held again", again).await;
    while soon("the gap", tree.next()).await.unwrap().kind != ChangeKind::Gap {}
    rooted.barrier().await.unwrap();
    assert_eq!(rooted.get("/held/here").await.unwrap().unwrap().data, b"me");
}
