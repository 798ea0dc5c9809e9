//! Operations without a connection, or over a dead one: each ends in time, and says truly what became of it.

use std::time::{Duration, Instant};

use crate::common::{Bed, PATIENCE, TIMEOUT, soon, wait_state};
use zk_session::{BootTime, CloseOutcome, CreateMode, DriverKind, Epoch, OpError, SessionState};

on_each_server!(
    much_that_is_written_to_a_dead_link_ends_in_time_and_stalls_nothing,
    without_a_connection_an_operation_ends_in_time_and_is_never_done,
    once_closing_is_acknowledged_the_ephemerals_are_gone,
    a_session_that_cuts_itself_off_returns_by_the_clock_alone,
);

async fn much_that_is_written_to_a_dead_link_ends_in_time_and_stalls_nothing(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let patience = Duration::from_secs(2);
    let session = bed.builder().operation_timeout(patience).connect().await.unwrap();
    let observer = bed.observer().await;
    // More than any socket buffers on the way take.
    bed.proxy.black_hole(true);
    let started = Instant::now();
    let writes = (0..64).map(|n| {
        let session = session.clone();
        tokio::spawn(async move {
            session.create(&format!("/{n}"), vec![1; 500_000], CreateMode::Persistent).await
        })
    });
    let mut undone = Vec::new();
    for (n, write) in writes.collect::<Vec<_>>().into_iter().enumerate() {
        let error = soon("the end of a write", write).await.unwrap().unwrap_err();
        if error.has_no_effect() {
            undone.push(n);
        }
    }
    assert!(started.elapsed() < patience + TIMEOUT + TIMEOUT, "they took {:?}", started.elapsed());
    wait_state(&session, "inactive", |state| matches!(state, SessionState::Inactive { .. })).await;
    assert!(started.elapsed() < 3 * TIMEOUT, "by the local clock, and not after {:?}", started.elapsed());
    // The link comes back, with all that was under way.
    bed.proxy.black_hole(false);
    wait_state(&session, "a new session", |state| *state == SessionState::Active { epoch: Epoch(2) }).await;
    session.barrier().await.unwrap();
    observer.barrier().await.unwrap();
    for n in undone {
        assert_eq!(observer.get(&format!("/{n}")).await, Ok(None), "said to have no effect");
    }
    assert_eq!(session.close(PATIENCE).await, CloseOutcome::Acknowledged);
    bed.proxy.wait_connections(0, PATIENCE).await.unwrap();
}

async fn without_a_connection_an_operation_ends_in_time_and_is_never_done(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.builder().operation_timeout(Duration::from_millis(500)).connect().await.unwrap();
    let observer = bed.observer().await;
    bed.proxy.refuse(true).await.unwrap();
    bed.proxy.cut().await;
    wait_state(&session, "paused", |state| !state.is_active()).await;
    let started = Instant::now();
    let error = session.create("/a", "", CreateMode::Persistent).await.unwrap_err();
    assert!(matches!(error, OpError::Unavailable { .. }) && error.has_no_effect(), "{error}");
    let error = session.get("/a").await.unwrap_err();
    assert!(matches!(error, OpError::Unavailable { .. }), "{error}");
    assert!(started.elapsed() < TIMEOUT / 2 + Duration::from_secs(1), "they took {:?}", started.elapsed());
    bed.proxy.refuse(false).await.unwrap();
    wait_state(&session, "active", SessionState::is_active).await;
    session.barrier().await.unwrap();
    observer.barrier().await.unwrap();
    assert_eq!(observer.get("/a").await, Ok(None), "nothing of it was kept to be sent later");
}

async fn once_closing_is_acknowledged_the_ephemerals_are_gone(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let observer = bed.observer().await;
    for n in 0..50 {
        let path = format!("/{n}");
        let session = bed.session().await;
        session.create(&path, "", CreateMode::Ephemeral).await.unwrap();
        assert_eq!(session.close(PATIENCE).await, CloseOutcome::Acknowledged);
        assert_eq!(observer.get(&path).await, Ok(None), "of session {n}");
    }
}

async fn a_session_that_cuts_itself_off_returns_by_the_clock_alone(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let observer = bed.observer().await;
    session.create("/here", "", CreateMode::Ephemeral).await.unwrap();

    // For less than its timeout: the same session, which was not closed.
    let began = BootTime::now();
    session.isolate_until(began + TIMEOUT / 4);
    bed.proxy.wait_connections(0, PATIENCE).await.unwrap();
    wait_state(&session, "paused", |state| !state.is_active()).await;
    assert!(observer.get("/here").await.unwrap().is_some());
    wait_state(&session, "active again", |state| *state == SessionState::Active { epoch: Epoch(1) }).await;
    assert!(BootTime::now() >= began + TIMEOUT / 4, "not before the time has passed");

    // For longer: it is over, and no other one is made before the end.
    let began = BootTime::now();
    session.isolate_until(began + TIMEOUT * 2);
    wait_state(&session, "inactive", |state| matches!(state, SessionState::Inactive { .. })).await;
    wait_state(&session, "a new one", |state| *state == SessionState::Active { epoch: Epoch(2) }).await;
    assert!(BootTime::now() >= began + TIMEOUT * 2, "not before the time has passed");
    assert_eq!(observer.get("/here").await, Ok(None));
    assert_eq!(session.close(PATIENCE).await, CloseOutcome::Acknowledged);
}
