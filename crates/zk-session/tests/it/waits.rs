//! Every wait ends: on a path that is invalid or refused, on a closed session, and when the session's runtime has ended.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use zk_session::{
    Acl, CloseOutcome, Closed, CreateMode, HeldStatus, Incarnation, MultiOp, OpError, ReadOp,
    Reconfiguration, Recovery, Session, SessionState, WatchError,
};
use zk_testkit::TestServer;

/// Far longer than anything here takes, and shorter than the session timeout.
const SOON: Duration = Duration::from_secs(8);
const TIMEOUT: Duration = Duration::from_secs(20);

/// How a wait ended; the reason of a refusal, if it was one.
#[derive(Debug, PartialEq)]
enum End {
    Value,
    Refused,
    Over,
    Other(String),
}

fn of_op<T>(result: Result<T, OpError>) -> End {
    match result {
        Ok(_) => End::Value,
        Err(error) if error.is_refused() => End::Refused,
        Err(error) if error.is_session_over() => End::Over,
        Err(error) => End::Other(error.to_string()),
    }
}

fn of_watch<T>(result: Result<T, WatchError>) -> End {
    match result {
        Ok(_) => End::Value,
        Err(WatchError::Refused(error)) => of_op::<T>(Err(error)),
        Err(_) => End::Over,
    }
}

fn of_closed<T>(result: Result<T, Closed>) -> End {
    result.map_or(End::Over, |_| End::Value)
}

type Call = fn(Session, String) -> Pin<Box<dyn Future<Output = End>>>;

macro_rules! calls {
    ($($name:literal: |$session:ident, $path:ident| $call:expr),* $(,)?) => {
        vec![$(($name, (|$session, $path| {
            let $path: String = $path;
            Box::pin(async move {
                let $path = $path.as_str();
                $call
            })
        }) as Call)),*]
    };
}

/// What waits on a path.
fn on_a_path() -> Vec<(&'static str, Call)> {
    calls! {
        "watch_data": |session, path| of_watch(session.watch_data(path).next().await),
        "watch_children": |session, path| of_watch(session.watch_children(path).next().await),
        "watch_each": |session, path| of_watch(session.watch_each(path).next().await),
        "watch_tree": |session, path| of_watch(session.watch_tree(path).next().await),
        "stream of data": |session, path| {
            StreamExt::next(&mut session.watch_data(path)).await.map_or(End::Over, of_op)
        },
        "stream of children": |session, path| {
            StreamExt::next(&mut session.watch_children(path)).await.map_or(End::Over, of_op)
        },
        "stream of changes": |session, path| {
            StreamExt::next(&mut session.watch_tree(path)).await.map_or(End::Over, of_op)
        },
        "hold_ephemeral": |session, path| match session.hold_ephemeral(path, "") {
            Err(error) => of_op::<()>(Err(error)),
            Ok(held) => {
                let mut status = held.subscribe();
                let known = status.wait_for(|status| *status != HeldStatus::Pending).await.unwrap().clone();
                match known {
                    HeldStatus::Refused { error } => of_op::<()>(Err(error)),
                    HeldStatus::Released => End::Over,
                    _ => End::Value,
                }
            }
        },
        "get": |session, path| of_op(session.get(path).await),
        "exists": |session, path| of_op(session.exists(path).await),
        "children": |session, path| of_op(session.children(path).await),
        "create": |session, path| of_op(session.create(path, "", CreateMode::Persistent).await),
        "create_sequential": |session, path| {
            of_op(session.create_sequential(path, "", CreateMode::Persistent, Recovery::Name).await)
        },
        "create_parents": |session, path| of_op(session.create_parents(path).await),
        "set": |session, path| of_op(session.set(path, "", None).await),
        "delete": |session, path| of_op(session.delete(path, None).await),
        "delete_recursive": |session, path| of_op(session.delete_recursive(path).await),
        "multi": |session, path| of_op(session.multi([MultiOp::set(path, "", None)]).await),
        "multi_read": |session, path| of_op(session.multi_read([ReadOp::get(path)]).await),
        "acl": |session, path| of_op(session.acl(path).await),
        "set_acl": |session, path| of_op(session.set_acl(path, &[], None).await),
        "ephemerals": |session, path| of_op(session.ephemerals(path).await),
        "count_below": |session, path| of_op(session.count_below(path).await),
        "sync": |session, path| of_op(session.sync(path).await),
    }
}

/// What waits on the session alone.
fn on_a_session() -> Vec<(&'static str, Call)> {
    calls! {
        "active": |session, _path| of_closed(session.active().await),
        "whoami": |session, _path| of_op(session.whoami().await),
        "barrier": |session, _path| of_op(session.barrier().await),
        "reconfig": |session, _path| of_op(session.reconfig(&Reconfiguration::default()).await),
        "hand_over": |session, _path| session.hand_over().await.map_or(End::Over, |_| End::Value),
        "close": |session, _path| match session.close(Duration::MAX).await {
            CloseOutcome::Sent => End::Other("sent".to_owned()),
            _ => End::Over,
        },
        "subscribe": |session, _path| {
            let mut state = session.subscribe();
            match state.wait_for(|state| *state == SessionState::Closed).await {
                Ok(_) => End::Over,
                Err(_) => End::Other("the channel has ended".to_owned()),
            }
        },
        "lease": |session, _path| {
            let keeper = session.keep_lease();
            if keeper.lease().is_some() { End::Value } else { End::Over }
        },
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

async fn connect(server: &TestServer) -> Session {
    Session::builder(server.connect_string()).session_timeout(TIMEOUT).connect().await.unwrap()
}

async fn check(calls: Vec<(&'static str, Call)>, session: &Session, path: &str, ends: &[End]) {
    for (name, call) in calls {
        match timeout(SOON, call(session.clone(), path.to_owned())).await {
            Ok(end) => assert!(ends.contains(&end), "{name} on {path:?} ended with {end:?}"),
            Err(_) => panic!("{name} on {path:?} hangs"),
        }
    }
}

#[tokio::test]
async fn what_waits_on_an_invalid_path_fails_at_once() {
    let server = TestServer::start().await.unwrap();
    let session = connect(&server).await;
    for path in ["", "config/a", "/a/", "//a", "/a/../b", "/\u{0}"] {
        check(on_a_path(), &session, path, &[End::Refused]).await;
    }
}

#[tokio::test]
async fn what_waits_on_a_path_that_is_refused_fails_at_once() {
    let server = TestServer::start().await.unwrap();
    let owner = Session::builder(server.connect_string()).auth("digest", "owner:secret").acl(Acl::CreatorAll);
    let owner = owner.connect().await.unwrap();
    owner.create("/mine", "", CreateMode::Persistent).await.unwrap();
    let session = connect(&server).await;
    // Access lists are no secret, nor is what exists: `exists` and lasting watches are allowed to any client. `/mine` itself
    // is a child of the root, which is open.
    let open = [
        "exists",
        "acl",
        "delete",
        "ephemerals",
        "sync",
        "create_sequential",
        "create",
        "watch_each",
        "watch_tree",
        "stream of changes",
        "delete_recursive",
        "create_parents",
    ];
    let refused = on_a_path().into_iter().filter(|(name, _)| !open.contains(name));
    check(refused.collect(), &session, "/mine", &[End::Refused]).await;
    let mut below = on_a_path();
    below.retain(|(name, _)| ["create", "create_sequential", "hold_ephemeral"].contains(name));
    check(below, &session, "/mine/a", &[End::Refused]).await;
    assert_eq!(of_op(session.create_parents("/mine/a/b").await), End::Refused);
}

#[tokio::test]
async fn what_waits_on_a_closed_session_ends_at_once() {
    let server = TestServer::start().await.unwrap();
    let session = connect(&server).await;
    let incarnation = session.active().await.unwrap();
    session.close(SOON).await;
    is_over(&session, &incarnation).await;
}

#[test]
fn what_waits_on_a_session_whose_runtime_has_ended_ends_at_once() {
    let (of_servers, of_callers, of_session) = (runtime(), runtime(), runtime());
    let server = of_servers.block_on(TestServer::start()).unwrap();
    let (session, incarnation, held, early) = of_session.block_on(async {
        let session = connect(&server).await;
        let incarnation = session.active().await.unwrap();
        let held = session.hold_ephemeral("/held", "").unwrap();
        let mut status = held.subscribe();
        status.wait_for(|status| matches!(status, HeldStatus::Held { .. })).await.unwrap();
        let mut early = session.watch_data("/a");
        early.next().await.unwrap();
        (session, incarnation, held, early)
    });
    // Those that wait already, and those that come later.
    let waiting = of_callers.spawn({
        let (session, mut early) = (session.clone(), early);
        async move {
            let mut state = session.subscribe();
            let closed = state.wait_for(|state| *state == SessionState::Closed);
            timeout(SOON, async { tokio::join!(async { closed.await.is_ok() }, early.next()) }).await
        }
    });
    let session_of_other_runtime = of_servers.block_on(connect(&server));
    drop(of_session);
    of_callers.block_on(async {
        let (closed, watched) = waiting.await.unwrap().unwrap();
        assert!(closed);
        assert_eq!(of_watch(watched), End::Over);
        assert_eq!(held.status(), HeldStatus::Released);
        timeout(SOON, held.release()).await.unwrap();
        is_over(&session, &incarnation).await;
        assert!(session_of_other_runtime.state().is_active());
    });
}

/// Everything that waits on the session ends, also what waits on the session that it last had.
async fn is_over(session: &Session, incarnation: &Incarnation) {
    assert_eq!(session.state(), SessionState::Closed);
    assert!(session.incarnation().is_none() && session.pin().is_none());
    // The server is asked nothing: an invalid path is one all the same.
    check(on_a_path(), session, "/a", &[End::Over]).await;
    check(on_a_session(), session, "", &[End::Over]).await;
    timeout(SOON, incarnation.over()).await.unwrap();
    assert_eq!(incarnation.get("/a").await, Err(OpError::SessionOver));
    assert!(timeout(SOON, session.watch_data("/a").changed()).await.is_ok());
}
