//! Locks, locks for readers and writers, and semaphores, on an embedded server.

use std::time::Duration;

use crate::common::{PATIENCE, soon, wait_state};
use zk_session::{
    Acl, AclEntry, CreateMode, Id, Lock, MultiOp, OpError, ReadWriteLock, Semaphore, Session, permission,
};
use zk_testkit::{Op, Proxy, TestServer, Which};

const SOON: Duration = Duration::from_millis(300);

async fn session(server: &TestServer) -> Session {
    session_at(server.connect_string()).await
}

async fn session_at(connect: String) -> Session {
    let builder = Session::builder(connect).session_timeout(Duration::from_secs(4));
    builder.tick_time(Duration::from_millis(200)).connect().await.unwrap()
}

async fn server() -> TestServer {
    TestServer::builder().tick_time(Duration::from_millis(200)).start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_follow_in_the_order_of_asking_and_tokens_grow() {
    let server = server().await;
    let sessions = [session(&server).await, session(&server).await, session(&server).await];
    let locks = sessions.each_ref().map(|session| Lock::new(session, "/locks/report/"));
    let first = locks[0].acquire().await.unwrap();
    assert!(locks[1].try_acquire().await.unwrap().is_none());
    let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
    let mut waiting = Vec::new();
    for (at, lock) in locks.iter().enumerate().skip(1) {
        let (lock, sender) = (lock.clone(), sender.clone());
        waiting.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            sender.send((at, guard.fencing_token())).unwrap();
            guard.release().await.unwrap();
        }));
        // The next one asks after this one has.
        let asked = async {
            while sessions[0].children("/locks/report").await.unwrap().unwrap().names.len() <= at {}
        };
        tokio::time::timeout(Duration::from_secs(20), asked).await.unwrap();
    }
    // One that gives up leaves the queue.
    assert!(tokio::time::timeout(SOON, locks[0].acquire()).await.is_err());
    assert!(order.try_recv().is_err());
    let mut last = first.fencing_token();
    first.release().await.unwrap();
    for expected in [1, 2] {
        let (at, token) = order.recv().await.unwrap();
        assert!(at == expected && token > last);
        last = token;
    }
    for waiting in waiting {
        waiting.await.unwrap();
    }
    // Dropped, a guard releases.
    drop(locks[0].acquire().await.unwrap());
    locks[1].acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lock_writes_nothing_and_the_next_one_has_it() {
    let server = server().await;
    let (one, other) = (session(&server).await, session(&server).await);
    one.create("/data", "0", CreateMode::Persistent).await.unwrap();
    let guard = Lock::new(&one, "/lock").acquire().await.unwrap();
    guard.set("/data", "1").await.unwrap();
    assert!(!guard.is_lost());
    server.faults().expire(guard.incarnation().session_id().0).unwrap();
    let next = Lock::new(&other, "/lock").acquire().await.unwrap();
    let refused = guard.multi([MultiOp::set("/data", "2", None)]).await.unwrap_err();
    assert!(refused.is_session_over(), "{refused}");
    tokio::time::timeout(Duration::from_secs(20), guard.lost()).await.unwrap();
    assert!(guard.is_lost());
    guard.release().await.unwrap();
    assert_eq!(one.get("/data").await.unwrap().unwrap().data, b"1");

    // The same if another client deletes the znode of the holder.
    one.delete(next.path(), None).await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), next.lost()).await.unwrap();
    let refused = next.set("/data", "3").await.unwrap_err();
    assert!(matches!(&refused, OpError::NoNode { path } if path == next.path()), "{refused}");
    // The session that was lost asks again, in its next one.
    Lock::new(&one, "/lock").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_share_and_writers_do_not() {
    let server = server().await;
    let session = session(&server).await;
    let lock = ReadWriteLock::new(&session, "/rw");
    let (first, second) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    assert!(lock.try_write().await.unwrap().is_none());
    let writer = tokio::spawn({
        let lock = lock.clone();
        async move { lock.write().await.unwrap() }
    });
    let asked = async { while lock.try_read().await.unwrap().is_some() {} };
    tokio::time::timeout(Duration::from_secs(20), asked).await.unwrap();
    first.release().await.unwrap();
    second.release().await.unwrap();
    let writer = writer.await.unwrap();
    assert!(lock.try_read().await.unwrap().is_none());
    writer.release().await.unwrap();
    lock.try_read().await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_admits_some_and_a_release_the_next() {
    let server = server().await;
    let session = session(&server).await;
    let semaphore = Semaphore::new(&session, "/semaphore", 2);
    let (first, _second) = (semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap());
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    let third = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.unwrap() }
    });
    first.release().await.unwrap();
    third.await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_read_the_one_ahead_is_told_and_leaves_the_queue() {
    let server = server().await;
    let (one, other) = (session(&server).await, session(&server).await);
    one.create("/lock", "", CreateMode::Persistent).await.unwrap();
    let unreadable = AclEntry { permissions: permission::DELETE, id: Id::new("world", "anyone") };
    let guarded = one.with_acl(&Acl::Entries([unreadable].into()));
    let _holder = Lock::new(&guarded, "/lock").acquire().await.unwrap();
    let refused = soon("a refusal", Lock::new(&other, "/lock").acquire()).await.unwrap_err();
    assert!(matches!(refused, OpError::NoAuth { .. }), "{refused}");
    soon("it leaves", async { while one.children("/lock").await.unwrap().unwrap().names.len() > 1 {} }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_ends_by_its_timeout_and_what_it_has_got_does_not() {
    const LONGER: Duration = Duration::from_secs(2);
    let server = server().await;
    let proxy = Proxy::start(server.addresses()[0]).await.unwrap();
    let session = session_at(proxy.addr().to_string()).await;
    session.create("/data", "0", CreateMode::Persistent).await.unwrap();
    let guard = Lock::new(&session.with_timeout(LONGER), "/lock").try_acquire().await.unwrap().unwrap();
    // Past the timeout of its handle.
    tokio::time::sleep(LONGER).await;
    guard.set("/data", "1").await.unwrap();
    guard.release().await.unwrap();

    proxy.refuse(true).await.unwrap();
    proxy.cut().await;
    wait_state(&session, "paused", |state| !state.is_active()).await;
    let handle = session.with_timeout(SOON);
    let (lock, both) = (Lock::new(&handle, "/lock"), ReadWriteLock::new(&handle, "/both"));
    let attempts = async { [lock.try_acquire().await, both.try_read().await, both.try_write().await] };
    for attempt in soon("the ends", attempts).await {
        let error = attempt.unwrap_err();
        assert!(matches!(error, OpError::Unavailable { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_while_its_session_ends_asks_again_in_the_next() {
    let server = server().await;
    let proxy = Proxy::start(server.addresses()[0]).await.unwrap();
    let session = session_at(proxy.addr().to_string()).await;
    session.create("/lock", "", CreateMode::Persistent).await.unwrap();
    let first = session.active().await.unwrap();
    // The answer to the request that joins the queue is lost, and the session ends before it has another connection.
    proxy.refuse(true).await.unwrap();
    let lost = proxy.lose_reply(Which::op(Op::Create));
    let asking = tokio::spawn({
        let lock = Lock::new(&session, "/lock");
        async move { lock.acquire().await }
    });
    lost.happened(PATIENCE).await.unwrap();
    server.faults().expire(first.session_id().0).unwrap();
    proxy.refuse(false).await.unwrap();
    let guard = soon("the lock", asking).await.unwrap().unwrap();
    assert!(guard.incarnation().epoch() > first.epoch());
}

/// The root of a chroot is a path like others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_at_the_root_of_a_chroot_excludes_others() {
    let server = server().await;
    let session = session(&server).await;
    let rooted = session.chroot("/locks/report").unwrap();
    let guard = Lock::new(&rooted, "/").acquire().await.unwrap();
    assert!(guard.path().starts_with("/lock-"), "{}", guard.path());
    assert!(Lock::new(&session, "/locks/report").try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn({
        let lock = Lock::new(&rooted, "/");
        async move { lock.acquire().await }
    });
    let asked = async { while rooted.children("/").await.unwrap().unwrap().names.len() < 2 {} };
    soon("it asks", asked).await;
    guard.release().await.unwrap();
    soon("the lock", waiting).await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(rooted.children("/").await.unwrap().unwrap().names.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_delete_is_told_and_holds_the_lock() {
    let server = server().await;
    let session = session(&server).await;
    let undeletable =
        AclEntry { permissions: permission::READ | permission::CREATE, id: Id::new("world", "anyone") };
    session
        .with_acl(&Acl::Entries([undeletable].into()))
        .create("/lock", "", CreateMode::Persistent)
        .await
        .unwrap();
    let guard = Lock::new(&session, "/lock").acquire().await.unwrap();
    let refused = guard.release().await.unwrap_err();
    assert!(matches!(refused, OpError::NoAuth { .. }), "{refused}");
    let refused = Lock::new(&session, "/lock").try_acquire().await.unwrap_err();
    assert!(matches!(refused, OpError::NoAuth { .. }), "it is held, and the attempt can't leave: {refused}");
}

/// Each step of it is answered in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_has_one_operation_timeout_for_all_its_steps() {
    let server = server().await;
    let proxy = Proxy::start(server.addresses()[0]).await.unwrap();
    let builder = Session::builder(proxy.addr().to_string()).session_timeout(Duration::from_secs(4));
    let builder = builder.tick_time(Duration::from_millis(200)).operation_timeout(Duration::from_millis(800));
    let session = builder.connect().await.unwrap();
    proxy.delay_replies(Duration::from_millis(300));
    // It creates its znode, the parents, its znode again, and lists the children.
    let attempt = soon("its end", Lock::new(&session, "/some/lock").try_acquire()).await;
    assert!(attempt.is_err(), "{attempt:?}");
}
