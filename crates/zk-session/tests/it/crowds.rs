//! Many tasks, much data, and watches that nobody reads: nothing hangs, and nobody holds up anybody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Bed, PATIENCE, builder, eventually, soon, wait_for};
use zk_session::{CreateMode, DriverKind, Epoch, OpError, SessionState};
use zk_testkit::Op;

on_each_server!(
    hundreds_of_tasks_on_one_thread_all_get_their_answers,
    much_data_and_many_cuts_leave_nothing_hanging,
    watches_that_nobody_reads_hold_nobody_up,
    a_heartbeat_does_not_wait_for_all_that_want_to_be_sent,
    a_task_that_panics_over_a_watch_harms_nobody_else,
);

async fn hundreds_of_tasks_on_one_thread_all_get_their_answers(driver: DriverKind) {
    const ROUNDS: usize = 5;
    const TASKS: usize = 300;
    let bed = Bed::start(driver).await;
    bed.observer().await.create("/a", vec![7; 1024], CreateMode::Persistent).await.unwrap();
    let address = bed.proxy.addr();
    let one_thread = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for _ in 0..ROUNDS {
                let session = builder(driver, address).connect().await.unwrap();
                let tasks = (0..TASKS).map(|n| {
                    let session = session.clone();
                    tokio::spawn(async move {
                        for turn in 0..10 {
                            match (n + turn) % 4 {
                                0 => drop(session.set("/a", vec![7; 1024], None).await.unwrap()),
                                1 => drop(session.children("/").await.unwrap()),
                                _ => drop(session.get("/a").await.unwrap().unwrap()),
                            }
                        }
                    })
                });
                for task in tasks.collect::<Vec<_>>() {
                    soon("the end of a task", task).await.unwrap();
                }
                assert_eq!(session.state(), SessionState::Active { epoch: Epoch(1) });
                session.close(PATIENCE).await;
            }
        });
    });
    one_thread.await.unwrap();
}

async fn much_data_and_many_cuts_leave_nothing_hanging(driver: DriverKind) {
    const CUTS: usize = 30;
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for n in 0..8 {
        let (path, small) = (format!("/{n}"), format!("/{n}/small"));
        session.create(&path, vec![1; 200_000], CreateMode::Persistent).await.unwrap();
        session.create(&small, "", CreateMode::Persistent).await.unwrap();
        let (session, stop, done) = (session.clone(), Arc::clone(&stop), Arc::clone(&done));
        tasks.push(tokio::spawn(async move {
            while !stop.load(Ordering::Acquire) {
                // Not much of it: a server keeps its last 500 transactions in its memory.
                match session.set(&small, vec![2; 2_000], None).await {
                    Ok(_) | Err(OpError::Unknown { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                assert_eq!(session.get(&path).await.unwrap().unwrap().data.len(), 200_000);
                done.fetch_add(1, Ordering::AcqRel);
            }
        }));
    }
    for cut in 0..CUTS {
        let before = done.load(Ordering::Acquire);
        // Under way again: everybody has got something done since the last cut.
        eventually(&format!("traffic after {cut} cuts"), async || done.load(Ordering::Acquire) >= before + 8)
            .await;
        assert!(bed.proxy.cut().await > 0);
    }
    stop.store(true, Ordering::Release);
    for task in tasks {
        soon("the end of a task", task).await.unwrap();
    }
    assert_eq!(soon("the session", session.active()).await.unwrap().epoch(), Epoch(1));
}

async fn watches_that_nobody_reads_hold_nobody_up(driver: DriverKind) {
    const WATCHES: usize = 200;
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    observer.create("/w", "", CreateMode::Persistent).await.unwrap();
    let mut watches = Vec::new();
    for n in 0..WATCHES {
        observer.create(&format!("/w/{n}"), "", CreateMode::Persistent).await.unwrap();
        let mut data = session.watch_data(format!("/w/{n}"));
        let mut children = session.watch_children("/w");
        soon("the first data", data.next()).await.unwrap();
        soon("the first children", children.next()).await.unwrap();
        watches.push((data, children));
    }
    // Each of them fires, and more than once would.
    for n in 0..WATCHES {
        observer.set(&format!("/w/{n}"), "new", None).await.unwrap();
        observer.create(&format!("/w/{n}/child"), "", CreateMode::Persistent).await.unwrap();
    }
    observer.create("/w/last", "", CreateMode::Persistent).await.unwrap();
    session.barrier().await.unwrap();
    for _ in 0..100 {
        soon("an operation", session.get("/w")).await.unwrap();
    }
    assert_eq!(session.state(), SessionState::Active { epoch: Epoch(1) });
    for (mut data, mut children) in watches {
        assert_eq!(soon("the newest data", data.next()).await.unwrap().value.unwrap().data, b"new");
        let names = soon("the newest children", children.next()).await.unwrap().value.unwrap().names;
        assert_eq!(names.len(), WATCHES + 1);
    }
}

/// A server answers a session's requests in order, so what is sent before a heartbeat holds it up.
async fn a_heartbeat_does_not_wait_for_all_that_want_to_be_sent(driver: DriverKind) {
    const REQUESTS: usize = 3000;
    /// As many as are under way at one time, at the most.
    const PLACES: u64 = 512;
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    session.create("/a", "", CreateMode::Persistent).await.unwrap();
    let heartbeats = bed.proxy.seen(Op::Delete);
    bed.proxy.hold_replies(true);
    let reads: Vec<_> = (0..REQUESTS)
        .map(|_| {
            let session = session.clone();
            tokio::spawn(async move { session.get("/a").await })
        })
        .collect();
    eventually("some of the reads", async || bed.proxy.seen(Op::GetData) >= 40).await;
    let keeper = session.keep_lease();
    eventually("a heartbeat", async || bed.proxy.seen(Op::Delete) > heartbeats).await;
    let before = bed.proxy.seen(Op::GetData);
    assert!(before <= PLACES, "{before} requests went before the heartbeat");
    bed.proxy.hold_replies(false);
    for read in reads {
        soon("the answer to a read", read).await.unwrap().unwrap().unwrap();
    }
    wait_for(&mut keeper.subscribe(), "a lease", Option::is_some).await;
    assert_eq!(session.state(), SessionState::Active { epoch: Epoch(1) });
}

async fn a_task_that_panics_over_a_watch_harms_nobody_else(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let mut other = session.watch_data("/a");
    soon("the first value", other.next()).await.unwrap();
    let mut watch = session.watch_data("/a");
    let (ready, armed) = tokio::sync::oneshot::channel();
    let panicking = tokio::spawn(async move {
        watch.next().await.unwrap();
        ready.send(()).unwrap();
        let told = watch.next().await.unwrap();
        panic!("on purpose, over {:?}", told.value);
    });
    armed.await.unwrap();
    observer.create("/a", "one", CreateMode::Persistent).await.unwrap();
    assert!(soon("its panic", panicking).await.unwrap_err().is_panic());
    assert_eq!(soon("the value", other.next()).await.unwrap().value.unwrap().data, b"one");
    observer.set("/a", "two", None).await.unwrap();
    assert_eq!(soon("the next value", other.next()).await.unwrap().value.unwrap().data, b"two");
    tokio::time::timeout(Duration::from_secs(15), session.barrier()).await.unwrap().unwrap();
    assert_eq!(session.state(), SessionState::Active { epoch: Epoch(1) });
}
