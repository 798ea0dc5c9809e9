//! Operations on many znodes: deleting a tree, and groups that are done all or none.

use crate::common::{Bed, PATIENCE, soon};
use zk_session::{Acl, CreateMode, DriverKind, MultiOp, MultiResult, OpError, Session, UnknownCause};
use zk_testkit::{Op, Which};

on_each_server!(
    a_tree_is_deleted_to_its_root,
    a_tree_is_deleted_whatever_reply_is_lost,
    a_tree_that_took_the_place_of_the_one_meant_is_spared,
    a_tree_that_can_only_be_deleted_in_part_is_reported_as_such,
    a_group_is_done_by_either_driver,
);

async fn plant(session: &Session) {
    session.create_parents("/tree/a/b/x").await.unwrap();
    for path in ["/tree/a/b/1", "/tree/a/b/2", "/tree/c", "/tree/d", "/trees"] {
        session.create(path, "", CreateMode::Persistent).await.unwrap();
    }
    session.create("/tree/d/me", "", CreateMode::Ephemeral).await.unwrap();
}

async fn a_tree_is_deleted_to_its_root(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    plant(&session).await;
    session.delete_recursive("/tree").await.unwrap();
    assert_eq!(session.get("/tree").await, Ok(None));
    assert!(session.get("/trees").await.unwrap().is_some(), "a neighbour of a similar name");
    let path = "/tree".to_owned();
    assert_eq!(session.delete_recursive("/tree").await.unwrap_err(), OpError::NoNode { path });
    for root in ["/", "", "tree"] {
        let refused = session.delete_recursive(root).await.unwrap_err();
        assert!(matches!(refused, OpError::Invalid { .. }), "{refused}");
    }
    // More than an operation's own number of attempts.
    session.create("/wide", "", CreateMode::Persistent).await.unwrap();
    for n in 0..100 {
        session.create(&format!("/wide/{n}"), "", CreateMode::Persistent).await.unwrap();
    }
    session.delete_recursive("/wide").await.unwrap();
    assert_eq!(session.get("/wide").await, Ok(None));
}

async fn a_tree_is_deleted_whatever_reply_is_lost(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    // Nine znodes, three of them found to have children at first.
    for n in 0.. {
        plant(&session).await;
        let before = bed.proxy.seen(Op::Delete);
        let loss = bed.proxy.lose_reply(Which::op(Op::Delete).on_path_with("/tree").skipping(n));
        session.delete_recursive("/tree").await.unwrap();
        assert_eq!(session.get("/tree").await, Ok(None));
        // That one's answer is lost at last.
        session.delete_recursive("/trees").await.unwrap();
        let asked = bed.proxy.seen(Op::Delete) - before;
        if n >= usize::try_from(asked).unwrap() {
            break;
        }
        drop(loss);
    }
}

async fn a_tree_that_took_the_place_of_the_one_meant_is_spared(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    session.create_parents("/tree/a/x").await.unwrap();
    // A deletion is lost on its way; before it can be repeated there is another tree.
    bed.proxy.refuse(true).await.unwrap();
    let loss = bed.proxy.lose_request(Which::op(Op::Delete).on_path_with("/tree/a"));
    let deleting = tokio::spawn({
        let session = session.clone();
        async move { session.delete_recursive("/tree").await }
    });
    loss.happened(PATIENCE).await.unwrap();
    observer.delete_recursive("/tree").await.unwrap();
    observer.create_parents("/tree/a/x").await.unwrap();
    bed.proxy.refuse(false).await.unwrap();
    soon("the deletion", deleting).await.unwrap().unwrap();
    observer.barrier().await.unwrap();
    assert!(observer.get("/tree/a").await.unwrap().is_some(), "the new tree");
}

async fn a_tree_that_can_only_be_deleted_in_part_is_reported_as_such(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let insider = bed.builder().auth("digest", "operator:hunter2").acl(Acl::CreatorAll);
    let insider = insider.connect().await.unwrap();
    let session = bed.session().await;
    session.create("/tree", "", CreateMode::Persistent).await.unwrap();
    session.create("/tree/open", "", CreateMode::Persistent).await.unwrap();
    insider.create("/tree/a", "", CreateMode::Persistent).await.unwrap();
    insider.create("/tree/a/kept", "", CreateMode::Persistent).await.unwrap();
    session.barrier().await.unwrap();
    let error = session.delete_recursive("/tree").await.unwrap_err();
    // Whichever of the children came first.
    match &error {
        OpError::NoAuth { path } => assert_eq!(path, "/tree/a"),
        OpError::Unknown { path, cause: UnknownCause::Partly { deleted: 1, error: inner } } => {
            assert_eq!(path, "/tree");
            assert!(matches!(&**inner, OpError::NoAuth { path } if path == "/tree/a"), "{error}");
            assert!(!error.has_no_effect() && !error.is_session_over());
        }
        _ => panic!("{error}"),
    }
    assert!(session.get("/tree").await.unwrap().is_some());
}

async fn a_group_is_done_by_either_driver(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let refused = session.multi([MultiOp::check("/x/", None)]).await.unwrap_err();
    assert!(matches!(refused, OpError::Invalid { .. }), "{refused}");
    assert_eq!(session.multi([]).await, Ok(Vec::new()));
    let done = session.multi([MultiOp::create("/a", "", CreateMode::Persistent)]).await;
    assert_eq!(done.unwrap().len(), 1);
}

const GROUPS: DriverKind = DriverKind::Native;

#[tokio::test]
async fn a_group_is_done_as_one_change() {
    let bed = Bed::start(GROUPS).await;
    let session = bed.session().await;
    session.create("/guard", "", CreateMode::Persistent).await.unwrap();
    session.create("/data", "one", CreateMode::Persistent).await.unwrap();
    session.create("/gone", "", CreateMode::Persistent).await.unwrap();
    let done = session.multi([
        MultiOp::check("/guard", 0),
        MultiOp::create("/parent", "", CreateMode::Persistent),
        MultiOp::create("/parent/me", "here", CreateMode::Ephemeral),
        MultiOp::set("/data", "two", 0),
        MultiOp::delete("/gone", None),
    ]);
    let done = done.await.unwrap();
    assert_eq!((&done[0], &done[4]), (&MultiResult::Checked, &MultiResult::Deleted));
    let data = session.get("/data").await.unwrap().unwrap();
    assert_eq!(data.data, b"two");
    assert_eq!(done[3], MultiResult::Set { stat: Some(data.stat) });
    let me = session.get("/parent/me").await.unwrap().unwrap();
    assert!(me.stat.is_owned_by(session.active().await.unwrap().session_id()));
    assert_eq!(me.stat.czxid, data.stat.mzxid, "one change");
    assert!(matches!(done[2], MultiResult::Created { stat } if stat.is_none_or(|stat| stat == me.stat)));
    assert_eq!(session.get("/gone").await, Ok(None));
}

#[tokio::test]
async fn a_refused_group_names_the_operation_and_does_nothing() {
    let bed = Bed::start(GROUPS).await;
    let session = bed.session().await;
    session.create("/a", "", CreateMode::Persistent).await.unwrap();
    let path = |path: &str| path.to_owned();
    let create = MultiOp::create("/new", "", CreateMode::Persistent);
    for (refused, error) in [
        (MultiOp::check("/a", 7), OpError::BadVersion { path: path("/a") }),
        (MultiOp::check("/none", None), OpError::NoNode { path: path("/none") }),
        (MultiOp::set("/a", "", 7), OpError::BadVersion { path: path("/a") }),
        (MultiOp::delete("/none", None), OpError::NoNode { path: path("/none") }),
        (
            MultiOp::create("/a", "", CreateMode::Persistent),
            OpError::NodeExists { path: path("/a"), owner: None },
        ),
        (MultiOp::create("/none/x", "", CreateMode::Persistent), OpError::NoNode { path: path("/none/x") }),
    ] {
        for group in [[create.clone(), refused.clone()], [refused.clone(), create.clone()]] {
            assert_eq!(session.multi(group).await.unwrap_err(), error, "{refused:?}");
            assert_eq!(session.get("/new").await, Ok(None));
        }
    }
    let huge = MultiOp::set("/a", vec![0; 600 << 10], None);
    let refused = session.multi([huge.clone(), huge]).await.unwrap_err();
    assert!(matches!(refused, OpError::Invalid { .. }), "{refused}");
}

#[tokio::test]
async fn a_group_whose_answer_was_lost_is_recognised_by_what_it_left() {
    let bed = Bed::start(GROUPS).await;
    let session = bed.session().await;
    session.create("/data", "", CreateMode::Persistent).await.unwrap();
    session.create("/gone", "", CreateMode::Persistent).await.unwrap();
    let loss = bed.proxy.lose_reply(Which::op(Op::Multi));
    let by_set = session.multi([MultiOp::set("/data", "one", 0), MultiOp::delete("/gone", 0)]);
    let MultiResult::Set { stat: Some(stat) } = by_set.await.unwrap()[0] else { panic!("no stat") };
    loss.happened(PATIENCE).await.unwrap();
    assert_eq!(stat.version, 1);
    let loss = bed.proxy.lose_reply(Which::op(Op::Multi));
    let by_create = session
        .multi([MultiOp::create("/me", "unique", CreateMode::Ephemeral), MultiOp::set("/data", "two", None)]);
    let created = by_create.await.unwrap();
    loss.happened(PATIENCE).await.unwrap();
    let me = session.get("/me").await.unwrap().unwrap();
    assert_eq!(created[0], MultiResult::Created { stat: Some(me.stat) });
    let data = session.get("/data").await.unwrap().unwrap();
    assert_eq!((data.data.as_slice(), data.stat.version), (&b"two"[..], 2), "once");
    assert_eq!(created[1], MultiResult::Set { stat: Some(data.stat) });
    // What has changed since is not of that moment.
    let observer = bed.observer().await;
    let ops = [MultiOp::create("/again", "", CreateMode::Ephemeral), MultiOp::set("/data", "three", 2)];
    let loss = bed.proxy.lose_reply(Which::op(Op::Multi));
    bed.proxy.refuse(true).await.unwrap();
    let doing = tokio::spawn(async move { session.multi(ops).await });
    loss.happened(PATIENCE).await.unwrap();
    observer.set("/data", "four", Some(3)).await.unwrap();
    bed.proxy.refuse(false).await.unwrap();
    let done = soon("the group", doing).await.unwrap().unwrap();
    assert!(matches!(done[0], MultiResult::Created { stat: Some(_) }), "{done:?}");
    assert_eq!(done[1], MultiResult::Set { stat: None });
}

#[tokio::test]
async fn a_group_that_left_no_sign_is_unknown() {
    let bed = Bed::start(GROUPS).await;
    let session = bed.session().await;
    session.create("/gone", "", CreateMode::Persistent).await.unwrap();
    let loss = bed.proxy.lose_reply(Which::op(Op::Multi));
    let error = session.multi([MultiOp::delete("/gone", None)]).await.unwrap_err();
    loss.happened(PATIENCE).await.unwrap();
    assert!(error.is_unknown(), "{error}");
    // Neither was this one done, nor is it claimed that it was not.
    let loss = bed.proxy.lose_request(Which::op(Op::Multi));
    let error = session.multi([MultiOp::create("/a", "", CreateMode::Ephemeral)]).await.unwrap_err();
    loss.happened(PATIENCE).await.unwrap();
    assert!(error.is_unknown(), "{error}");
    assert_eq!(session.get("/a").await, Ok(None), "not repeated either");
}

/// Others may write the same data to one znode; not the whole of a group in one change.
#[tokio::test]
async fn a_group_is_not_claimed_for_one_set_that_looks_like_it() {
    let bed = Bed::start(GROUPS).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    for path in ["/data", "/gone"] {
        session.create(path, "", CreateMode::Persistent).await.unwrap();
    }
    let set = |version| MultiOp::set("/data", "same", version);
    let other = || MultiOp::set("/gone", "same", None);
    let create = || MultiOp::create("/new", "", CreateMode::Persistent);
    // What is asked for, and what others do instead, each as one change.
    for (ops, others) in [
        (vec![MultiOp::check("/gone", 0), set(0)], vec![vec![set(0)]]),
        (vec![set(1), create()], vec![vec![set(1)]]),
        (vec![set(2), other()], vec![vec![set(2)], vec![other()]]),
        (vec![set(3), other(), create()], vec![vec![set(3), other()]]),
    ] {
        bed.proxy.refuse(true).await.unwrap();
        let loss = bed.proxy.lose_request(Which::op(Op::Multi));
        let session = session.clone();
        let doing = tokio::spawn(async move { session.multi(ops).await });
        loss.happened(PATIENCE).await.unwrap();
        for group in others.clone() {
            observer.multi(group).await.unwrap();
        }
        bed.proxy.refuse(false).await.unwrap();
        let done = soon("the group", doing).await.unwrap();
        assert!(matches!(&done, Err(error) if error.is_unknown()), "{others:?}: {done:?}");
    }
    // A deletion that is seen not to be done tells more.
    bed.proxy.refuse(true).await.unwrap();
    let loss = bed.proxy.lose_request(Which::op(Op::Multi));
    let ops = [set(4), MultiOp::delete("/gone", None)];
    let doing = tokio::spawn(async move { session.multi(ops).await });
    loss.happened(PATIENCE).await.unwrap();
    observer.multi([set(4)]).await.unwrap();
    bed.proxy.refuse(false).await.unwrap();
    let refused = soon("the group", doing).await.unwrap().unwrap_err();
    assert_eq!(refused, OpError::BadVersion { path: "/data".to_owned() });
}

#[tokio::test]
async fn a_group_that_never_arrived_is_repeated_where_that_can_be_seen() {
    let bed = Bed::start(GROUPS).await;
    let session = bed.session().await;
    session.create("/data", "", CreateMode::Persistent).await.unwrap();
    let loss = bed.proxy.lose_request(Which::op(Op::Multi));
    let group = [MultiOp::create("/me", "", CreateMode::Ephemeral), MultiOp::set("/data", "one", 0)];
    session.multi(group).await.unwrap();
    loss.happened(PATIENCE).await.unwrap();
    assert_eq!(session.get("/data").await.unwrap().unwrap().stat.version, 1);
    let loss = bed.proxy.lose_reply(Which::op(Op::Check));
    assert_eq!(session.multi([MultiOp::check("/data", 1)]).await, Ok(vec![MultiResult::Checked]));
    loss.happened(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_group_that_somebody_overtook_was_certainly_not_done() {
    let bed = Bed::start(GROUPS).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    session.create("/data", "", CreateMode::Persistent).await.unwrap();
    // New connections; the one that there is goes on until the loss.
    bed.proxy.refuse(true).await.unwrap();
    let loss = bed.proxy.lose_request(Which::op(Op::Multi));
    let doing = tokio::spawn(async move { session.multi([MultiOp::set("/data", "mine", 0)]).await });
    loss.happened(PATIENCE).await.unwrap();
    observer.set("/data", "theirs", Some(0)).await.unwrap();
    bed.proxy.refuse(false).await.unwrap();
    let error = soon("the group", doing).await.unwrap().unwrap_err();
    assert_eq!(error, OpError::BadVersion { path: "/data".to_owned() });
}

#[tokio::test]
async fn a_group_is_not_sent_again_at_another_life_of_its_znode() {
    let bed = Bed::start(GROUPS).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    session.create("/data", "", CreateMode::Persistent).await.unwrap();
    // New connections; the one that there is goes on until the loss.
    bed.proxy.refuse(true).await.unwrap();
    let loss = bed.proxy.lose_reply(Which::op(Op::Multi));
    let doing = tokio::spawn(async move { session.multi([MultiOp::set("/data", "mine", 0)]).await });
    loss.happened(PATIENCE).await.unwrap();
    observer.delete("/data", None).await.unwrap();
    observer.create("/data", "", CreateMode::Persistent).await.unwrap();
    bed.proxy.refuse(false).await.unwrap();
    let error = soon("the group", doing).await.unwrap().unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert_eq!(observer.get("/data").await.unwrap().unwrap().stat.version, 0);
}
