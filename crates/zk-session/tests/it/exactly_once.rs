//! Whatever answer is lost, and whatever request, each operation happens once: a program of all operations is run again
//! and again, each time with another one of its requests lost, and leaves the same znodes behind each time.

use std::time::Duration;

use crate::common::Bed;
use zk_session::{CreateMode, DriverKind, MultiOp, OpError, Recovery, Session, SessionId};
use zk_testkit::{Loss, Lost, Proxy, Which};

on_each_server!(
    every_operation_happens_once_whichever_answer_is_lost,
    every_operation_happens_once_whichever_request_is_lost,
);

/// Every operation there is, each of which must succeed.
async fn program(session: &Session, root: &str) {
    let at = |path: &str| format!("{root}{path}");
    session.create_parents(&at("/a/b/x")).await.unwrap();
    let plain = session.create(&at("/a/plain"), "one", CreateMode::Persistent).await.unwrap();
    let ephemeral = session.create(&at("/a/ephemeral"), "two", CreateMode::Ephemeral).await.unwrap();
    let by_data = session
        .create_sequential(&at("/a/d-"), "unique", CreateMode::Persistent, Recovery::Data)
        .await
        .unwrap();
    let by_name = session
        .create_sequential(&at("/a/6f96-"), "same", CreateMode::Ephemeral, Recovery::Name)
        .await
        .unwrap();
    for created in [&by_data, &by_name] {
        let found = session.get(&created.path).await.unwrap().unwrap();
        assert_eq!(found.stat, created.stat, "{created:?}");
    }
    let written = session.set(&plain.path, "three", Some(0)).await.unwrap();
    assert_eq!((written.version, written.czxid), (1, plain.stat.czxid));
    session.create(&at("/a/free"), "", CreateMode::Persistent).await.unwrap();
    session.set(&at("/a/free"), "any version", None).await.unwrap();
    session.barrier().await.unwrap();
    assert_eq!(session.get(&at("/a/nothing")).await.unwrap(), None);
    assert_eq!(session.children(&at("/a")).await.unwrap().unwrap().names.len(), 6);
    session.delete(&ephemeral.path, Some(0)).await.unwrap();
    // Where others might have done it, a deletion is not claimed.
    let deleted = session.delete(&by_data.path, None).await;
    assert!(deleted.as_ref().map_or_else(OpError::is_unknown, |()| true), "{deleted:?}");
    session.create_parents(&at("/tree/x/y/z")).await.unwrap();
    session.create(&at("/tree/w"), "", CreateMode::Ephemeral).await.unwrap();
    session.delete_recursive(&at("/tree")).await.unwrap();
    let group = [
        MultiOp::check(at("/a/free"), None),
        MultiOp::create(at("/a/g"), "grouped", CreateMode::Ephemeral),
        MultiOp::set(&plain.path, "four", 1),
        MultiOp::delete(at("/a/b"), 0),
    ];
    assert_eq!(session.multi(group).await.unwrap().len(), 4);
}

/// What stands there: the changes of a znode's data and of its children are counted, so that what was done twice shows.
async fn left_behind(observer: &Session, root: &str, me: SessionId) -> Vec<String> {
    observer.barrier().await.unwrap();
    let mut lines = Vec::new();
    let mut ahead = vec![root.to_owned()];
    while let Some(path) = ahead.pop() {
        let node = observer.get(&path).await.unwrap().unwrap();
        let stat = node.stat;
        let owner = if stat.is_owned_by(me) { "mine" } else { "nobody's" };
        assert!(stat.ephemeral_owner == 0 || stat.is_owned_by(me), "{path}");
        // A set of any version may be done twice, and says so.
        let version = if path.ends_with("/free") { -1 } else { stat.version };
        let data = String::from_utf8(node.data).unwrap();
        let name = &path[root.len()..];
        lines.push(format!("{name} {data:?} {owner} version {version} cversion {}", stat.cversion));
        let children = observer.children(&path).await.unwrap().unwrap();
        ahead.extend(children.names.iter().map(|name| format!("{path}/{name}")));
    }
    lines.sort();
    lines
}

async fn each_request(driver: DriverKind, what: &str, lose: impl Fn(&Proxy, Which) -> Loss) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let me = session.active().await.unwrap().session_id();
    program(&session, "/whole").await;
    let expected = left_behind(&observer, "/whole", me).await;
    let mut lost: Vec<Lost> = Vec::new();
    for n in 0.. {
        let root = format!("/run-{n}");
        let loss = lose(&bed.proxy, Which::any().skipping(n));
        program(&session, &root).await;
        match loss.happened(Duration::ZERO).await {
            Ok(loss) => lost.push(loss),
            // The program was through before its n-th request: all have been lost.
            Err(_) => break,
        }
        let last = lost.last();
        assert_eq!(left_behind(&observer, &root, me).await, expected, "{what} {n} lost: {last:?}");
    }
    println!("{what}s lost, one in each run: {}", lost.len());
    assert!(lost.len() >= 30, "{lost:?}");
    assert_eq!(session.active().await.unwrap().session_id(), me, "all on one session");
}

async fn every_operation_happens_once_whichever_answer_is_lost(driver: DriverKind) {
    each_request(driver, "answer", |proxy, which| proxy.lose_reply(which)).await;
}

async fn every_operation_happens_once_whichever_request_is_lost(driver: DriverKind) {
    each_request(driver, "request", |proxy, which| proxy.lose_request(which)).await;
}
