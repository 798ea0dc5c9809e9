//! What the driver over `zookeeper-async` leaves behind: nothing. Its sessions have a thread and sockets of their own,
//! counted here for the whole process, so these tests have a binary to themselves and run one after the other.
#![cfg(feature = "zookeeper-async")]

use std::time::Duration;

use crate::common::{Bed, PATIENCE, wait_state};
use zk_session::{CloseOutcome, CreateMode, DriverKind, SessionState};

/// Threads of clients, and file descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    threads: usize,
    files: usize,
}

impl Held {
    fn now() -> Self {
        let names = std::fs::read_dir("/proc/self/task").unwrap().filter_map(|task| {
            // A thread may end between the listing and the reading.
            std::fs::read_to_string(task.unwrap().path().join("comm")).ok()
        });
        let threads = names.filter(|name| name.trim_end() == "zookeeper-async").count();
        Self { threads, files: std::fs::read_dir("/proc/self/fd").unwrap().count() }
    }
}

/// Waits until no more is held than that.
async fn released(baseline: Held) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let now = Held::now();
        if now.threads <= baseline.threads && now.files <= baseline.files {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{now:?} held, {baseline:?} before");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn twenty_sessions_leave_no_thread_and_no_socket() {
    let _alone = crate::ALONE.lock().await;
    let bed = Bed::start(DriverKind::ZookeeperAsync).await;
    assert_eq!(bed.session().await.close(PATIENCE).await, CloseOutcome::Acknowledged);
    bed.proxy.wait_connections(0, PATIENCE).await.unwrap();
    released(Held { threads: 0, files: usize::MAX }).await;
    let baseline = Held::now();
    for round in 0..20 {
        let session = bed.session().await;
        session.get("/").await.unwrap();
        assert_eq!(Held::now().threads, 1, "each session has its thread, and the last one's is gone");
        match round % 4 {
            // In good order; by dropping it; and by force, idle or with requests that nobody answers.
            0 => assert_eq!(session.close(PATIENCE).await, CloseOutcome::Acknowledged),
            1 => drop(session),
            2 => {
                bed.proxy.cut().await;
                drop(session);
            }
            _ => {
                bed.proxy.black_hole(true);
                let reader = session.clone();
                let requests = (0..100).map(move |_| {
                    let reader = reader.clone();
                    tokio::spawn(async move { reader.get("/").await })
                });
                let requests: Vec<_> = requests.collect();
                let outcome = session.close(Duration::from_millis(50)).await;
                assert_ne!(outcome, CloseOutcome::Acknowledged);
                for request in requests {
                    request.await.unwrap().unwrap_err();
                }
                bed.proxy.black_hole(false);
            }
        }
        bed.proxy.wait_connections(0, PATIENCE).await.unwrap();
        released(baseline).await;
    }
}

#[tokio::test]
async fn an_expired_session_takes_its_client_with_it() {
    let _alone = crate::ALONE.lock().await;
    let bed = Bed::start(DriverKind::ZookeeperAsync).await;
    let timeout = Duration::from_millis(1500);
    let session = bed.builder().session_timeout(timeout).connect().await.unwrap();
    let before = session.active().await.unwrap();
    before.create("/first", b"", CreateMode::Ephemeral).await.unwrap();
    let held = Held::now();

    bed.proxy.refuse(true).await.unwrap();
    bed.proxy.cut().await;
    wait_state(&session, "inactive", |state| matches!(state, SessionState::Inactive { .. })).await;
    bed.proxy.refuse(false).await.unwrap();
    wait_state(&session, "active again", SessionState::is_active).await;
    let after = session.active().await.unwrap();
    assert_ne!(after.session_id(), before.session_id());

    // The old client neither lives on nor has made itself a session: one connection, one thread, as before.
    released(held).await;
    bed.proxy.wait_connections(1, PATIENCE).await.unwrap();
    assert!(before.create("/second", b"", CreateMode::Ephemeral).await.unwrap_err().is_session_over());
    assert!(after.get("/second").await.unwrap().is_none());
    assert_eq!(session.close(PATIENCE).await, CloseOutcome::Acknowledged);
}
