//! Operations: what they do, and what they find out after the answer was lost.

use crate::common::{Bed, PATIENCE, eventually, soon};
use zk_session::{CreateMode, DriverKind, OpError, Recovery};
use zk_testkit::{Loss, Op, Which};

on_each_server!(
    znodes_are_created_read_changed_and_deleted,
    refusals_say_what_and_where,
    an_ephemeral_whose_reply_was_lost_is_adopted,
    an_ephemeral_whose_request_was_lost_is_created_once,
    what_others_changed_or_replaced_meanwhile_is_unknown,
    what_was_there_before_is_not_adopted,
    a_sequential_znode_is_found_again_by_its_name,
    a_sequential_znode_is_found_again_by_its_data,
    a_sequential_znode_that_never_came_about_is_created_once,
    a_write_whose_reply_was_lost_is_recognised,
    a_write_that_somebody_overtook_is_not_claimed,
    a_deletion_whose_reply_was_lost_is_recognised,
    a_repeated_deletion_spares_the_successor,
    what_was_decided_beyond_doubt_is_never_called_unknown,
);

async fn znodes_are_created_read_changed_and_deleted(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    session.create_parents("/a/b/c").await.unwrap();
    session.create_parents("/a/b/c").await.unwrap();
    assert_eq!(session.get("/a/b/c").await, Ok(None));
    let created = session.create("/a/b/c", "one", CreateMode::Ephemeral).await.unwrap();
    assert_eq!(created.path, "/a/b/c");
    let id = session.active().await.unwrap().session_id();
    assert!(created.stat.is_owned_by(id));
    let node = session.get("/a/b/c").await.unwrap().unwrap();
    assert_eq!(node.data, b"one");
    assert_eq!(node.stat.czxid, created.stat.czxid, "the fencing token");
    assert_eq!(node.stat.version, 0);
    let stat = session.set("/a/b/c", "two", Some(0)).await.unwrap();
    assert_eq!((stat.version, stat.czxid), (1, created.stat.czxid));
    assert!(stat.mzxid > created.stat.czxid);
    let unconditional = session.set("/a/b/c", "three", None).await.unwrap();
    assert_eq!(unconditional.version, 2);
    session.create("/a/b/d", "", CreateMode::Persistent).await.unwrap();
    let children = session.children("/a/b").await.unwrap().unwrap();
    assert_eq!(children.names, ["c", "d"]);
    assert_eq!(children.stat.num_children, 2);
    assert_eq!(session.children("/nothing").await, Ok(None));
    session.delete("/a/b/c", Some(2)).await.unwrap();
    session.delete("/a/b/d", None).await.unwrap();
    assert_eq!(session.children("/a/b").await.unwrap().unwrap().names, Vec::<String>::new());
    let again = session.create("/a/b/c", "", CreateMode::Ephemeral).await.unwrap();
    assert!(again.stat.czxid > created.stat.czxid, "tokens grow");
    let first = session.create_sequential("/a/s-", "", CreateMode::Persistent, Recovery::Data).await.unwrap();
    let second = session.create_sequential("/a/s-", "", CreateMode::Ephemeral, Recovery::Data).await.unwrap();
    assert!(first.path.starts_with("/a/s-") && first.path < second.path, "{first:?} {second:?}");
    assert_eq!(session.get(&second.path).await.unwrap().unwrap().stat.czxid, second.stat.czxid);
}

async fn refusals_say_what_and_where(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let observer = bed.observer().await;
    let path = |path: &str| path.to_owned();
    let refused = session.create("/x/y", "", CreateMode::Persistent).await;
    assert_eq!(refused.unwrap_err(), OpError::NoNode { path: path("/x/y") });
    observer.create("/theirs", "", CreateMode::Ephemeral).await.unwrap();
    let owner = observer.active().await.unwrap().session_id().0;
    let refused = session.create("/theirs", "", CreateMode::Ephemeral).await;
    assert_eq!(refused.unwrap_err(), OpError::NodeExists { path: path("/theirs"), owner: Some(owner) });
    session.create("/p", "", CreateMode::Persistent).await.unwrap();
    let refused = session.create("/p", "", CreateMode::Persistent).await;
    assert_eq!(refused.unwrap_err(), OpError::NodeExists { path: path("/p"), owner: None });
    let refused = session.set("/p", "", Some(7)).await;
    assert_eq!(refused.unwrap_err(), OpError::BadVersion { path: path("/p") });
    assert_eq!(session.set("/q", "", None).await.unwrap_err(), OpError::NoNode { path: path("/q") });
    assert_eq!(session.delete("/p", Some(7)).await.unwrap_err(), OpError::BadVersion { path: path("/p") });
    assert_eq!(session.delete("/q", None).await.unwrap_err(), OpError::NoNode { path: path("/q") });
    session.create("/p/c", "", CreateMode::Persistent).await.unwrap();
    assert_eq!(session.delete("/p", None).await.unwrap_err(), OpError::NotEmpty { path: path("/p") });
    let refused = session.create("/theirs/child", "", CreateMode::Persistent).await.unwrap_err();
    assert!(matches!(&refused, OpError::Invalid { .. }) && refused.has_no_effect(), "{refused}");
    for invalid in ["", "p", "/p/", "/p//q", "/p/../q"] {
        let refused = session.get(invalid).await.unwrap_err();
        assert!(matches!(refused, OpError::Invalid { .. }), "{invalid:?}: {refused}");
    }
}

async fn an_ephemeral_whose_reply_was_lost_is_adopted(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let loss = bed.proxy.lose_reply(Which::op(Op::Create));
    let created = session.create("/leader", "me", CreateMode::Ephemeral).await.unwrap();
    assert_eq!(loss.happened(PATIENCE).await.unwrap().path.as_deref(), Some("/leader"));
    let node = session.get("/leader").await.unwrap().unwrap();
    assert_eq!(node.stat, created.stat);
    assert_eq!(node.stat.version, 0);
}

async fn an_ephemeral_whose_request_was_lost_is_created_once(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let loss = bed.proxy.lose_request(Which::op(Op::Create));
    let created = session.create("/leader", "me", CreateMode::Ephemeral).await.unwrap();
    loss.happened(PATIENCE).await.unwrap();
    assert_eq!(session.get("/leader").await.unwrap().unwrap().stat, created.stat);
}

/// What an operation comes to that loses a request or an answer, when something happens before it can look what is there.
async fn overtaken<T: Send + 'static>(
    bed: &Bed,
    loss: Loss,
    operation: impl Future<Output = Result<T, OpError>> + Send + 'static,
    meanwhile: impl AsyncFnOnce(),
) -> Result<T, OpError> {
    // New connections; the one that there is goes on until the loss.
    bed.proxy.refuse(true).await.unwrap();
    let doing = tokio::spawn(operation);
    loss.happened(PATIENCE).await.unwrap();
    meanwhile().await;
    bed.proxy.refuse(false).await.unwrap();
    soon("the operation", doing).await.unwrap()
}

/// The same of operations of a session, each on a path of its own, with an observer who does what happens meanwhile.
macro_rules! overtaken {
    ($bed:ident, $lose:ident($op:ident), $session:ident.$name:ident($($argument:expr),*), $meanwhile:expr) => {{
        let (session, loss) = ($session.clone(), $bed.proxy.$lose(Which::op(Op::$op).on_path_with("/")));
        let operation = async move { session.$name($($argument),*).await };
        overtaken(&$bed, loss, operation, async || { $meanwhile.await.unwrap(); }).await
    }};
}

/// What somebody else does meanwhile may come before, after or instead of what was asked for: nothing that is there then
/// tells, and nothing says that it was not done.
async fn what_others_changed_or_replaced_meanwhile_is_unknown(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let owner = observer.active().await.unwrap().session_id().0;
    let (lasting, ephemeral) = (CreateMode::Persistent, CreateMode::Ephemeral);
    for path in ["/set", "/deleted", "/gone"] {
        session.create(path, "old", lasting).await.unwrap();
    }
    let put = async |path: &str, data: &str| {
        observer.create(path, "new", CreateMode::Persistent).await?;
        observer.set(path, data, Some(0)).await
    };
    let renew = async |path: &str, data: &str| {
        observer.delete(path, None).await?;
        put(path, data).await
    };
    let anothers = overtaken!(
        bed,
        lose_request(Create),
        session.create("/leader", "me", ephemeral),
        observer.create("/leader", "me", ephemeral)
    );
    let unknown = [
        overtaken!(
            bed,
            lose_reply(Create),
            session.create("/changed", "mine", lasting),
            observer.set("/changed", "theirs", Some(0))
        )
        .map(drop),
        overtaken!(
            bed,
            lose_request(Create),
            session.create("/theirs", "mine", lasting),
            observer.create("/theirs", "theirs", lasting)
        )
        .map(drop),
        // Of the next version as well.
        overtaken!(bed, lose_reply(SetData), session.set("/set", "mine", Some(0)), renew("/set", "theirs"))
            .map(drop),
        overtaken!(bed, lose_request(SetData), session.set("/set", "mine", Some(0)), renew("/set", "mine"))
            .map(drop),
        overtaken!(
            bed,
            lose_request(Delete),
            session.delete("/deleted", None),
            observer.delete("/deleted", None)
        ),
        overtaken!(bed, lose_reply(Delete), session.delete("/gone", Some(0)), put("/gone", "")),
    ];
    let told = anothers.unwrap_err();
    assert!(told.is_unknown() && told.to_string().contains(&format!("{owner:#x}")), "{told}");
    for (n, result) in unknown.into_iter().enumerate() {
        assert!(matches!(&result, Err(error) if error.is_unknown()), "{n}: {result:?}");
    }
    assert_eq!(observer.get("/gone").await.unwrap().unwrap().stat.version, 1, "not deleted a second time");
}

async fn what_was_there_before_is_not_adopted(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let owner = observer.active().await.unwrap().session_id().0;
    observer.create("/leader", "me", CreateMode::Ephemeral).await.unwrap();
    observer.create("/elected", "by me", CreateMode::Persistent).await.unwrap();
    session.create("/mine", "me", CreateMode::Ephemeral).await.unwrap();
    let mine = session.active().await.unwrap().session_id().0;
    for (path, data, mode, owner) in [
        ("/leader", "me", CreateMode::Ephemeral, Some(owner)),
        ("/elected", "by me", CreateMode::Persistent, None),
        // By another task of this session.
        ("/mine", "me", CreateMode::Ephemeral, Some(mine)),
    ] {
        let loss = bed.proxy.lose_request(Which::op(Op::Create));
        let refused = session.create(path, data, mode).await.unwrap_err();
        loss.happened(PATIENCE).await.unwrap();
        assert_eq!(refused, OpError::NodeExists { path: path.to_owned(), owner });
    }
    // A deletion that has come to nothing is somebody else's.
    for lost in 0..2 {
        let path = format!("/gone-{lost}");
        session.create(&path, "", CreateMode::Persistent).await.unwrap();
        let loss = bed.proxy.lose_request(Which::op(Op::Delete).on_path_with(&path));
        let (session, gone) = (session.clone(), path.clone());
        let deleting = async move { session.delete(&gone, Some(lost)).await };
        let deleted = overtaken(&bed, loss, deleting, async || ()).await;
        let refused = OpError::BadVersion { path };
        assert_eq!(deleted, if lost == 0 { Ok(()) } else { Err(refused) });
    }
    // And one's own is.
    let loss = bed.proxy.lose_reply(Which::op(Op::Create));
    session.create("/other", "term 1 by me", CreateMode::Persistent).await.unwrap();
    loss.happened(PATIENCE).await.unwrap();
}

async fn a_sequential_znode_is_found_again_by_its_name(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    session.create("/e", "", CreateMode::Persistent).await.unwrap();
    session.create("/e/other-0000000007", "", CreateMode::Persistent).await.unwrap();
    let loss = bed.proxy.lose_reply(Which::op(Op::Create));
    let prefix = "/e/6f9619ff-";
    let created =
        session.create_sequential(prefix, "same", CreateMode::Ephemeral, Recovery::Name).await.unwrap();
    loss.happened(PATIENCE).await.unwrap();
    assert!(created.path.starts_with(prefix), "{created:?}");
    let names = session.children("/e").await.unwrap().unwrap().names;
    assert_eq!(names.len(), 2, "no orphan: {names:?}");
    assert_eq!(session.get(&created.path).await.unwrap().unwrap().stat, created.stat);
}

async fn a_sequential_znode_is_found_again_by_its_data(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    session.create("/requests", "", CreateMode::Persistent).await.unwrap();
    for other in ["request 1", "request 2"] {
        session
            .create_sequential("/requests/r-", other, CreateMode::Persistent, Recovery::Data)
            .await
            .unwrap();
    }
    let loss = bed.proxy.lose_reply(Which::op(Op::Create));
    let created = session
        .create_sequential("/requests/r-", "request 3", CreateMode::Persistent, Recovery::Data)
        .await
        .unwrap();
    loss.happened(PATIENCE).await.unwrap();
    assert_eq!(created.path, "/requests/r-0000000002");
    assert_eq!(session.children("/requests").await.unwrap().unwrap().names.len(), 3);
}

async fn a_sequential_znode_that_never_came_about_is_created_once(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    session.create("/e", "", CreateMode::Persistent).await.unwrap();
    for (recovery, expected) in [(Recovery::Name, "/e/g-0000000000"), (Recovery::Data, "/e/g-0000000001")] {
        // The second time there is one of the same name and data already, which is not taken for this one.
        let loss = bed.proxy.lose_request(Which::op(Op::Create));
        let created = session.create_sequential("/e/g-", "", CreateMode::Ephemeral, recovery).await.unwrap();
        loss.happened(PATIENCE).await.unwrap();
        assert_eq!(created.path, expected);
    }
    assert_eq!(session.children("/e").await.unwrap().unwrap().names.len(), 2);
    // Any sibling would begin with that.
    let nameless = session.create_sequential("/e/", "", CreateMode::Ephemeral, Recovery::Name).await;
    assert!(matches!(nameless, Err(OpError::Invalid { .. })), "{nameless:?}");
    session.create_sequential("/e/", "", CreateMode::Ephemeral, Recovery::Data).await.unwrap();
}

async fn a_write_whose_reply_was_lost_is_recognised(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    session.create("/elected", "term 1", CreateMode::Persistent).await.unwrap();
    let loss = bed.proxy.lose_reply(Which::op(Op::SetData));
    let stat = session.set("/elected", "term 2", Some(0)).await.unwrap();
    loss.happened(PATIENCE).await.unwrap();
    assert_eq!(stat.version, 1, "applied once");
    assert_eq!(session.get("/elected").await.unwrap().unwrap().data, b"term 2");
    let loss = bed.proxy.lose_request(Which::op(Op::SetData));
    let stat = session.set("/elected", "term 3", Some(1)).await.unwrap();
    loss.happened(PATIENCE).await.unwrap();
    assert_eq!(stat.version, 2, "applied once");
}

async fn a_write_that_somebody_overtook_is_not_claimed(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let observer = bed.observer().await;
    let session = bed.session().await;
    session.create("/elected", "term 1", CreateMode::Persistent).await.unwrap();
    bed.proxy.hold_requests(true);
    let loss = bed.proxy.lose_request(Which::op(Op::SetData));
    let setting = tokio::spawn({
        let session = session.clone();
        async move { session.set("/elected", "term 2 by me", Some(0)).await }
    });
    observer.barrier().await.unwrap();
    observer.set("/elected", "term 2 by them", Some(0)).await.unwrap();
    bed.proxy.hold_requests(false);
    loss.happened(PATIENCE).await.unwrap();
    let refused = soon("the write", setting).await.unwrap().unwrap_err();
    assert_eq!(refused, OpError::BadVersion { path: "/elected".to_owned() });
}

async fn a_deletion_whose_reply_was_lost_is_recognised(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    session.create("/leader", "", CreateMode::Ephemeral).await.unwrap();
    let which = || Which::op(Op::Delete).on_path_with("/leader");
    let loss = bed.proxy.lose_reply(which());
    session.delete("/leader", Some(0)).await.unwrap();
    loss.happened(PATIENCE).await.unwrap();
    session.create("/leader", "", CreateMode::Ephemeral).await.unwrap();
    let loss = bed.proxy.lose_request(which());
    session.delete("/leader", Some(0)).await.unwrap();
    loss.happened(PATIENCE).await.unwrap();
    assert_eq!(session.get("/leader").await, Ok(None));
}

async fn a_repeated_deletion_spares_the_successor(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let observer = bed.observer().await;
    let session = bed.session().await;
    session.create("/leader", "me", CreateMode::Ephemeral).await.unwrap();
    bed.proxy.refuse(true).await.unwrap();
    let loss = bed.proxy.lose_reply(Which::op(Op::Delete).on_path_with("/leader"));
    let deleting = tokio::spawn({
        let session = session.clone();
        async move { session.delete("/leader", Some(0)).await }
    });
    loss.happened(PATIENCE).await.unwrap();
    // The successor's znode has version 0 as well.
    eventually("the successor's turn", || async {
        observer.create("/leader", "successor", CreateMode::Ephemeral).await.is_ok()
    })
    .await;
    bed.proxy.refuse(false).await.unwrap();
    soon("the deletion", deleting).await.unwrap().unwrap();
    assert_eq!(observer.get("/leader").await.unwrap().unwrap().data, b"successor");
}

async fn what_was_decided_beyond_doubt_is_never_called_unknown(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.builder().operation_timeout(std::time::Duration::from_secs(1)).connect().await.unwrap();
    bed.proxy.refuse(true).await.unwrap();
    bed.proxy.cut().await;
    crate::common::wait_state(&session, "paused", |state| !state.is_active()).await;
    let refused = session.create("/x", "", CreateMode::Persistent).await.unwrap_err();
    assert!(matches!(refused, OpError::Unavailable { .. }) && refused.has_no_effect(), "{refused}");
    bed.proxy.refuse(false).await.unwrap();
    crate::common::wait_state(&session, "active", zk_session::SessionState::is_active).await;
    // Held back: whether it was applied can't be known in time.
    bed.proxy.hold_replies(true);
    let unknown = session.create("/x", "", CreateMode::Persistent).await.unwrap_err();
    assert!(unknown.is_unknown() && !unknown.has_no_effect(), "{unknown}");
    assert_eq!(unknown.path(), "/x");
}
