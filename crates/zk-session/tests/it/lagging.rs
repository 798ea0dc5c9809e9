//! A session whose server lags behind the others: reads may be old there, and say so nowhere. What must not be decided by
//! them, what may never go back, and what is told in the end.

use std::time::Duration;

use crate::common::three::Three;
use crate::common::{PATIENCE, builder_for, eventually, soon, wait_state};
use zk_session::{CreateMode, DriverKind, Incarnation, OpError, Session};
use zk_testkit::{Op, Which};

on_each_server!(
    a_tree_that_the_server_at_hand_does_not_know_yet_is_deleted,
    a_tree_is_deleted_in_the_life_that_it_has_by_now,
    a_deletion_that_never_arrived_is_not_claimed_for_what_stood_there_before,
    an_ephemeral_of_ones_own_is_known_by_its_life,
    what_was_written_or_seen_is_read_after_a_move,
    a_watch_that_is_opened_on_old_news_tells_the_last_state,
    a_barrier_is_not_passed_on_old_news,
);

/// The longest that the servers grant: they hear nothing of the session while its server is cut off.
const LONG: Duration = Duration::from_secs(10);

struct Lag {
    three: Three,
    follower: usize,
    /// On the follower, and nowhere else.
    session: Session,
    here: Incarnation,
    /// On the leader.
    observer: Session,
}

impl Lag {
    async fn start(driver: DriverKind) -> Self {
        let three = Three::start().await;
        let follower = (three.leader + 1) % 3;
        three.refuse(|n| n != follower).await;
        let session =
            builder_for(driver, three.connect_string()).session_timeout(LONG).connect().await.unwrap();
        let here = session.active().await.unwrap();
        let observer = three.observer().await;
        Self { three, follower, session, here, observer }
    }

    /// From now on the follower goes on answering from what it knows.
    fn begin(&self) {
        self.three.servers.isolate(self.follower).unwrap();
    }

    fn end(&self) {
        self.three.servers.rejoin(self.follower).unwrap();
    }

    async fn done(self) {
        assert_eq!(self.session.active().await.unwrap(), self.here, "all on one session");
    }
}

/// Until that many requests of the kind have come to the follower.
async fn asked(lag: &Lag, op: Op, more_than: u64) {
    eventually("the request", || async { lag.three.proxies[lag.follower].seen(op) > more_than }).await;
}

async fn a_tree_that_the_server_at_hand_does_not_know_yet_is_deleted(driver: DriverKind) {
    let lag = Lag::start(driver).await;
    lag.session.barrier().await.unwrap();
    lag.begin();
    lag.observer.create_parents("/tree/a/x").await.unwrap();
    assert_eq!(lag.session.get("/tree").await, Ok(None), "it lags behind");
    let before = lag.three.proxies[lag.follower].seen(Op::Delete);
    let deleting = tokio::spawn({
        let session = lag.session.clone();
        async move { session.delete_recursive("/tree").await }
    });
    asked(&lag, Op::Delete, before).await;
    lag.end();
    soon("the deletion", deleting).await.unwrap().unwrap();
    lag.observer.barrier().await.unwrap();
    assert_eq!(lag.observer.get("/tree").await, Ok(None));
    lag.done().await;
}

async fn a_tree_is_deleted_in_the_life_that_it_has_by_now(driver: DriverKind) {
    let lag = Lag::start(driver).await;
    lag.observer.create_parents("/tree/a/x").await.unwrap();
    lag.session.barrier().await.unwrap();
    lag.begin();
    lag.observer.delete_recursive("/tree").await.unwrap();
    lag.observer.create_parents("/tree/b/x").await.unwrap();
    assert_eq!(lag.session.children("/tree").await.unwrap().unwrap().names, ["a"], "it lags behind");
    let before = lag.three.proxies[lag.follower].seen(Op::Delete);
    // The first deletion would be lost, if it came before the other life was known.
    let _loss = lag.three.proxies[lag.follower].lose_request(Which::op(Op::Delete).on_path_with("/tree"));
    let deleting = tokio::spawn({
        let session = lag.session.clone();
        async move { session.delete_recursive("/tree").await }
    });
    asked(&lag, Op::Delete, before).await;
    lag.end();
    soon("the deletion", deleting).await.unwrap().unwrap();
    lag.observer.barrier().await.unwrap();
    assert_eq!(lag.observer.get("/tree").await, Ok(None), "the tree that stood there when it began");
    lag.done().await;
}

async fn a_deletion_that_never_arrived_is_not_claimed_for_what_stood_there_before(driver: DriverKind) {
    let lag = Lag::start(driver).await;
    lag.observer.create("/node", "first life", CreateMode::Persistent).await.unwrap();
    lag.session.barrier().await.unwrap();
    lag.begin();
    lag.observer.delete("/node", None).await.unwrap();
    lag.observer.create("/node", "second life", CreateMode::Persistent).await.unwrap();
    assert_eq!(lag.session.get("/node").await.unwrap().unwrap().data, b"first life", "it lags behind");
    let loss = lag.three.proxies[lag.follower].lose_request(Which::op(Op::Delete).on_path_with("/node"));
    let deleting = tokio::spawn({
        let session = lag.session.clone();
        async move { session.delete("/node", None).await }
    });
    loss.happened(PATIENCE).await.unwrap();
    lag.end();
    let answer = soon("the deletion", deleting).await.unwrap();
    lag.observer.barrier().await.unwrap();
    let there = lag.observer.get("/node").await.unwrap();
    // It stood there before the operation, during it and after it.
    assert_eq!(there.unwrap().data, b"second life");
    assert!(matches!(&answer, Err(OpError::Unknown { .. })), "nothing was deleted: {answer:?}");
    // Which is said only in doubt: what is seen now is deleted.
    let loss = lag.three.proxies[lag.follower].lose_request(Which::op(Op::Delete).on_path_with("/node"));
    soon("the deletion", lag.session.delete("/node", None)).await.unwrap();
    loss.happened(PATIENCE).await.unwrap();
    lag.observer.barrier().await.unwrap();
    assert_eq!(lag.observer.get("/node").await, Ok(None));
    lag.done().await;
}

async fn an_ephemeral_of_ones_own_is_known_by_its_life(driver: DriverKind) {
    let lag = Lag::start(driver).await;
    lag.session.create("/leader", "mine", CreateMode::Ephemeral).await.unwrap();
    lag.observer.barrier().await.unwrap();
    lag.begin();
    lag.observer.delete("/leader", None).await.unwrap();
    lag.observer.create("/leader", "theirs", CreateMode::Ephemeral).await.unwrap();
    let loss = lag.three.proxies[lag.follower].lose_request(Which::op(Op::Delete).on_path_with("/leader"));
    let deleting = tokio::spawn({
        let session = lag.session.clone();
        async move { session.delete("/leader", Some(0)).await }
    });
    loss.happened(PATIENCE).await.unwrap();
    lag.end();
    // Mine is gone, and theirs has the same version.
    soon("the deletion", deleting).await.unwrap().unwrap();
    lag.observer.barrier().await.unwrap();
    assert_eq!(lag.observer.get("/leader").await.unwrap().unwrap().data, b"theirs");
    lag.done().await;
}

async fn what_was_written_or_seen_is_read_after_a_move(driver: DriverKind) {
    let lag = Lag::start(driver).await;
    let (there, lagging) = (lag.three.leader, lag.follower);
    // To the leader, which does not lag.
    lag.three.refuse(|n| n != there).await;
    lag.three.cut().await;
    wait_state(&lag.session, "paused", |state| !state.is_active()).await;
    wait_state(&lag.session, "active", |state| state.is_active()).await;
    lag.session.create("/mine", "1", CreateMode::Persistent).await.unwrap();
    lag.observer.create("/theirs", "1", CreateMode::Persistent).await.unwrap();
    let mut watch = lag.session.watch_data("/theirs");
    soon("the first", watch.next()).await.unwrap();
    lag.begin();
    lag.session.set("/mine", "2", None).await.unwrap();
    lag.observer.set("/theirs", "2", None).await.unwrap();
    assert_eq!(lag.session.get("/theirs").await.unwrap().unwrap().data, b"2");
    assert_eq!(soon("the second", watch.next()).await.unwrap().value.unwrap().data, b"2");
    // To the one that knows of neither, and takes the session or does not.
    lag.three.refuse(|n| n != lagging).await;
    lag.three.cut().await;
    let reading = tokio::spawn({
        let session = lag.session.clone();
        async move { (session.get("/mine").await, session.get("/theirs").await) }
    });
    wait_state(&lag.session, "paused", |state| !state.is_active()).await;
    lag.end();
    let (mine, theirs) = soon("the reads", reading).await.unwrap();
    assert_eq!(mine.unwrap().unwrap().data, b"2", "what was written");
    assert_eq!(theirs.unwrap().unwrap().data, b"2", "what was seen");
    // Neither the version before nor the same again, but the next.
    wait_state(&lag.session, "active", |state| state.is_active()).await;
    lag.observer.set("/theirs", "3", None).await.unwrap();
    assert_eq!(soon("the third", watch.next()).await.unwrap().value.unwrap().data, b"3");
    lag.done().await;
}

async fn a_watch_that_is_opened_on_old_news_tells_the_last_state(driver: DriverKind) {
    let lag = Lag::start(driver).await;
    for path in ["/changed", "/deleted", "/renewed", "/family", "/family/old"] {
        lag.observer.create(path, "old", CreateMode::Persistent).await.unwrap();
    }
    lag.session.barrier().await.unwrap();
    lag.begin();
    lag.observer.set("/changed", "new", None).await.unwrap();
    lag.observer.delete("/deleted", None).await.unwrap();
    lag.observer.delete("/renewed", None).await.unwrap();
    // Of the same version and data as the one before.
    lag.observer.create("/renewed", "old", CreateMode::Persistent).await.unwrap();
    lag.observer.create("/created", "new", CreateMode::Persistent).await.unwrap();
    lag.observer.delete("/family/old", None).await.unwrap();
    lag.observer.create("/family/new", "", CreateMode::Persistent).await.unwrap();
    let paths = ["/changed", "/deleted", "/renewed", "/created"];
    let mut watches = paths.map(|path| lag.session.watch_data(path));
    let mut family = lag.session.watch_children("/family");
    let mut old = Vec::new();
    for watch in &mut watches {
        old.push(soon("old news", watch.next()).await.unwrap().value);
    }
    assert_eq!(
        old.iter().map(Option::is_some).collect::<Vec<_>>(),
        [true, true, true, false],
        "it lags behind"
    );
    assert_eq!(soon("old news", family.next()).await.unwrap().value.unwrap().names, ["old"]);
    lag.end();
    for (watch, old) in watches.iter_mut().zip(old) {
        let path = watch.path().to_owned();
        let told = soon(&path, watch.next()).await.unwrap().value;
        assert_ne!(told, old, "{path}: the same again");
        let there = lag.observer.get(&path).await.unwrap();
        if path == "/renewed" && told.is_none() {
            // The deletion, before what is there again was read.
            assert_eq!(soon(&path, watch.next()).await.unwrap().value, there, "{path}");
        } else {
            assert_eq!(told, there, "{path}");
        }
    }
    loop {
        let told = soon("the family", family.next()).await.unwrap().value.unwrap();
        match told.names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            // Between the two changes.
            [] => {}
            ["new"] => break,
            _ => panic!("{told:?}"),
        }
    }
    lag.done().await;
}

async fn a_barrier_is_not_passed_on_old_news(driver: DriverKind) {
    let lag = Lag::start(driver).await;
    lag.session.barrier().await.unwrap();
    lag.begin();
    lag.observer.create("/node", "", CreateMode::Persistent).await.unwrap();
    assert_eq!(lag.session.get("/node").await, Ok(None), "it lags behind");
    let before = lag.three.proxies[lag.follower].seen(Op::Delete);
    let passing = tokio::spawn({
        let session = lag.session.clone();
        async move {
            session.barrier().await.unwrap();
            session.get("/node").await.unwrap()
        }
    });
    asked(&lag, Op::Delete, before).await;
    assert!(!passing.is_finished(), "nobody but the follower has heard of it");
    lag.end();
    assert!(soon("the barrier", passing).await.unwrap().is_some());
    lag.done().await;
}
