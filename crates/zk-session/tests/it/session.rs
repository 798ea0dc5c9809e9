//! Making a session, its states, its end.

use std::time::{Duration, Instant};

use crate::common::{Bed, PATIENCE, TIMEOUT, builder, eventually, soon, wait_state};
use zk_session::{
    CloseOutcome, ConnectError, CreateMode, DriverKind, Epoch, InactiveReason, OpError, Session, SessionState,
};

on_each_server!(
    a_session_is_made_and_closed,
    the_servers_bound_is_granted_not_what_was_asked,
    a_cut_pauses_and_the_same_session_resumes,
    the_server_away_for_longer_than_the_timeout_ends_the_session,
    a_black_hole_ends_the_session_by_the_local_clock,
    a_tether_holds_the_next_session_back,
    nothing_is_sent_on_a_session_that_is_over,
    closing_ends_the_sockets_and_the_ephemerals,
    closing_in_a_black_hole_is_bounded,
    dropping_the_last_handle_closes_the_session,
    an_unreachable_server_is_named_in_time,
    a_silent_server_is_named_in_time;
    a_session_survives_the_loss_of_its_server,
);

async fn a_session_is_made_and_closed(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    assert_eq!(session.state(), SessionState::Active { epoch: Epoch(1) });
    let incarnation = session.active().await.unwrap();
    assert_eq!(incarnation.granted_timeout(), TIMEOUT);
    assert_ne!(incarnation.session_id().0, 0);
    assert!(incarnation.barrier().await.unwrap() < PATIENCE);
    assert_eq!(session.close(PATIENCE).await, CloseOutcome::Acknowledged);
    assert_eq!(session.state(), SessionState::Closed);
    assert!(session.active().await.is_err());
    assert_eq!(incarnation.get("/").await, Err(OpError::SessionOver));
    assert_eq!(session.get("/").await, Err(OpError::SessionOver));
    assert_eq!(session.close(PATIENCE).await, CloseOutcome::Acknowledged, "a second time");
}

async fn the_servers_bound_is_granted_not_what_was_asked(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    // ZooKeeper grants no more than 20 ticks.
    let session = bed.builder().session_timeout(Duration::from_secs(600)).connect().await.unwrap();
    let granted = session.active().await.unwrap().granted_timeout();
    assert_eq!(granted, crate::common::TICK * 20);
}

async fn a_cut_pauses_and_the_same_session_resumes(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let before = session.active().await.unwrap();
    let pauses = before.pauses();
    bed.proxy.refuse(true).await.unwrap();
    bed.proxy.cut().await;
    wait_state(&session, "paused", |state| matches!(state, SessionState::Paused { .. })).await;
    assert!(before.pauses() > pauses);
    bed.proxy.refuse(false).await.unwrap();
    wait_state(&session, "active again", SessionState::is_active).await;
    let after = session.active().await.unwrap();
    assert_eq!(after, before);
    assert!(after.get("/").await.unwrap().is_some());
}

async fn the_server_away_for_longer_than_the_timeout_ends_the_session(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let before = session.active().await.unwrap();
    bed.proxy.refuse(true).await.unwrap();
    bed.proxy.cut().await;
    wait_state(&session, "inactive", |state| matches!(state, SessionState::Inactive { .. })).await;
    soon("the end of the incarnation", before.over()).await;
    assert_eq!(session.incarnation(), None);
    bed.proxy.refuse(false).await.unwrap();
    let state = wait_state(&session, "a new session", SessionState::is_active).await;
    assert_eq!(state.epoch(), Some(Epoch(2)));
    let after = session.active().await.unwrap();
    assert_ne!(after.session_id(), before.session_id());
    assert_eq!(before.get("/").await, Err(OpError::SessionOver));
    assert!(after.get("/").await.unwrap().is_some());
}

async fn a_black_hole_ends_the_session_by_the_local_clock(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let incarnation = session.active().await.unwrap();
    incarnation.barrier().await.unwrap();
    let started = Instant::now();
    bed.proxy.black_hole(true);
    wait_state(&session, "paused", |state| matches!(state, SessionState::Paused { .. })).await;
    let state =
        wait_state(&session, "inactive", |state| matches!(state, SessionState::Inactive { .. })).await;
    assert!(started.elapsed() < TIMEOUT + Duration::from_secs(1), "after {:?}", started.elapsed());
    assert!(matches!(state, SessionState::Inactive { reason: InactiveReason::DeadlinePassed }), "{state:?}");
}

async fn a_tether_holds_the_next_session_back(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let pin = session.pin().unwrap();
    let second = pin.clone();
    assert_eq!(pin.epoch(), Epoch(1));
    bed.proxy.refuse(true).await.unwrap();
    bed.proxy.cut().await;
    wait_state(&session, "inactive", |state| matches!(state, SessionState::Inactive { .. })).await;
    assert!(session.pin().is_none());
    bed.proxy.refuse(false).await.unwrap();
    drop(pin);
    // It must not become active; a new session takes a few milliseconds here, once it is allowed.
    let early = tokio::time::timeout(Duration::from_secs(2), session.active()).await;
    assert!(early.is_err(), "a new session in spite of the pin: {early:?}");
    drop(second);
    let state = wait_state(&session, "a new session", SessionState::is_active).await;
    assert_eq!(state.epoch(), Some(Epoch(2)));
}

async fn nothing_is_sent_on_a_session_that_is_over(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let observer = bed.observer().await;
    let session = bed.session().await;
    let incarnation = session.active().await.unwrap();
    bed.proxy.refuse(true).await.unwrap();
    bed.proxy.cut().await;
    // Begun while the session was alive, waiting for the connection.
    let waiting = tokio::spawn({
        let incarnation = incarnation.clone();
        async move { incarnation.create("/late", "x", CreateMode::Persistent).await }
    });
    soon("the end of the session", incarnation.over()).await;
    let outcome = soon("the operation", waiting).await.unwrap();
    // What was handed to the connection before its loss was noticed may be unknown; nothing may be applied.
    assert!(matches!(&outcome, Err(error) if error.is_session_over()), "{outcome:?}");
    bed.proxy.refuse(false).await.unwrap();
    wait_state(&session, "a new session", |state| state.epoch() == Some(Epoch(2))).await;
    assert_eq!(incarnation.create("/later", "x", CreateMode::Persistent).await, Err(OpError::SessionOver));
    observer.barrier().await.unwrap();
    assert_eq!(observer.get("/late").await, Ok(None));
    assert_eq!(observer.get("/later").await, Ok(None));
}

async fn closing_ends_the_sockets_and_the_ephemerals(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let observer = bed.observer().await;
    let session = bed.session().await;
    session.create("/mine", "", CreateMode::Ephemeral).await.unwrap();
    let mut watch = session.watch_data("/mine");
    watch.next().await.unwrap();
    assert_eq!(session.close(PATIENCE).await, CloseOutcome::Acknowledged);
    observer.barrier().await.unwrap();
    assert_eq!(observer.get("/mine").await, Ok(None));
    assert!(soon("the watch's end", watch.next()).await.is_err());
    bed.proxy.wait_connections(0, PATIENCE).await.unwrap();
}

async fn closing_in_a_black_hole_is_bounded(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    bed.proxy.black_hole(true);
    let started = Instant::now();
    let outcome = session.close(Duration::from_secs(1)).await;
    assert!(started.elapsed() < Duration::from_secs(3), "after {:?}", started.elapsed());
    assert_ne!(outcome, CloseOutcome::Acknowledged);
    wait_state(&session, "closed", |state| *state == SessionState::Closed).await;
    bed.proxy.black_hole(false);
    bed.proxy.wait_connections(0, PATIENCE).await.unwrap();
}

async fn dropping_the_last_handle_closes_the_session(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let observer = bed.observer().await;
    let session = bed.session().await;
    session.create("/mine", "", CreateMode::Ephemeral).await.unwrap();
    let clone = session.clone();
    drop(session);
    assert!(clone.get("/mine").await.unwrap().is_some());
    drop(clone);
    eventually("the ephemeral's end", || async { observer.get("/mine").await == Ok(None) }).await;
    bed.proxy.wait_connections(0, PATIENCE).await.unwrap();
}

async fn an_unreachable_server_is_named_in_time(driver: DriverKind) {
    let reserved = zk_testkit::PortReservation::take(1).unwrap();
    let address = format!("127.0.0.1:{}", reserved.ports()[0]);
    let within = Duration::from_secs(2);
    let started = Instant::now();
    let error = Session::builder(format!("{address},no-such-host.invalid:2181"))
        .driver(driver)
        .connect_timeout(within)
        .connect()
        .await
        .unwrap_err();
    assert!(started.elapsed() < within * 3, "after {:?}", started.elapsed());
    let ConnectError::Unreachable { hosts, .. } = &error else { panic!("{error}") };
    assert_eq!(hosts[0].host, address);
    assert!(hosts[0].reason.contains("refused"), "{error}");
    assert_eq!(hosts[1].host, "no-such-host.invalid:2181");
    assert!(hosts[1].reason.contains("name"), "{error}");
}

async fn a_silent_server_is_named_in_time(driver: DriverKind) {
    // It takes connections and says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let within = Duration::from_secs(2);
    let started = Instant::now();
    let error = builder(driver, address).connect_timeout(within).connect().await.unwrap_err();
    assert!(started.elapsed() < within * 2, "after {:?}", started.elapsed());
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    assert!(error.to_string().contains("no session"), "{error}");
}

async fn a_session_survives_the_loss_of_its_server(driver: DriverKind) {
    // An ensemble that loses its leader elects another one first, which has been seen to take ten seconds.
    let timeout = Duration::from_secs(40);
    let ensemble = zk_testkit::Ensemble::builder()
        .servers(3)
        .tick_time(crate::common::TICK)
        .session_timeouts(Duration::from_secs(1), timeout)
        .start()
        .await
        .unwrap();
    let session = Session::builder(ensemble.connect_string())
        .driver(driver)
        .session_timeout(timeout)
        .tick_time(crate::common::TICK)
        .connect()
        .await
        .unwrap();
    let before = session.active().await.unwrap();
    for server in 0..3 {
        ensemble.kill(server).await.unwrap();
        before.barrier().await.unwrap_or_else(|error| panic!("without server {server}: {error}"));
        ensemble.start_server(server).await.unwrap();
        ensemble.wait_serving(Duration::from_secs(60)).await.unwrap();
    }
    assert_eq!(session.active().await.unwrap(), before);
}
