//! The session timeout that the server grants, less or more than was asked for, is logged with both figures, and
//! everything goes by it: the lease, the pings, the local deadline. A server that grants less at a reconnect ends the
//! session.

use std::time::Duration;

use crate::common::{Captured, TICK, eventually, wait_for, wait_state};
use zk_session::{
    BootTime, CreateMode, DriverKind, InactiveReason, Session, SessionBuilder, SessionState, lease_margin,
};
use zk_testkit::{Ensemble, Proxy};

on_each_server!(
    less_than_asked_for_is_logged_and_gone_by,
    more_than_asked_for_is_logged_and_gone_by;
    // For these, one server's configuration is changed.
    less_at_a_reconnect_ends_the_session_with_both_figures,
    more_at_a_reconnect_changes_nothing,
);

/// Long enough for a busy machine: a third of it without an answer is silence.
const SHORT: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(9);

fn builder(driver: DriverKind, connect: String, timeout: Duration) -> SessionBuilder {
    Session::builder(connect).driver(driver).session_timeout(timeout).tick_time(TICK)
}

async fn less_than_asked_for_is_logged_and_gone_by(driver: DriverKind) {
    granted_is_gone_by(driver, (TICK, SHORT), LONG + TICK, SHORT).await;
}

async fn more_than_asked_for_is_logged_and_gone_by(driver: DriverKind) {
    // A client that pings by what it asked for would give such a connection up again and again, or ping ten times as
    // often as it needs to.
    granted_is_gone_by(driver, (LONG, LONG * 2), Duration::from_millis(900), LONG).await;
}

async fn granted_is_gone_by(
    driver: DriverKind,
    bounds: (Duration, Duration),
    asked: Duration,
    granted: Duration,
) {
    let log = Captured::of_process();
    let servers = crate::common::servers(1, TICK, bounds).await;
    let proxy = Proxy::start(servers.addresses()[0]).await.unwrap();
    let observer =
        crate::common::builder(DriverKind::default(), servers.addresses()[0]).connect().await.unwrap();
    let before = BootTime::now();
    let session = builder(driver, proxy.addr().to_string(), asked).connect().await.unwrap();
    let living = session.active().await.unwrap();
    assert_eq!(living.granted_timeout(), granted);
    let said = format!("granted={granted:?}");
    assert!(
        log.text().lines().any(|line| line.contains(&said) && line.contains(&format!("requested={asked:?}"))),
        "asked for {asked:?}, granted {granted:?}"
    );

    // The lease, from the request that made the session on.
    let keeper = session.keep_lease();
    let lease = wait_for(&mut keeper.subscribe(), "a lease", Option::is_some).await.unwrap();
    let proved = granted - lease_margin(granted);
    assert!(lease.valid_until >= before + proved && lease.valid_until <= BootTime::now() + proved);
    drop(keeper);

    // The pings: an idle session lives on one connection for longer than was asked for or granted, whichever is less.
    session.create("/idle", "", CreateMode::Ephemeral).await.unwrap();
    eventually("one connection", || async { proxy.connections() == 1 }).await;
    let mut states = session.subscribe();
    states.mark_unchanged();
    let quiet = tokio::time::timeout(asked.min(granted) * 2, states.changed()).await;
    assert!(quiet.is_err(), "it became {:?}", *states.borrow());

    // The local deadline, and the notice of a dead link.
    proxy.black_hole(true);
    let died = BootTime::now();
    let slack = Duration::from_millis(500);
    wait_for(&mut states, "paused", |state| !state.is_active()).await;
    let paused = BootTime::now().duration_since(died);
    let over = wait_for(&mut states, "over", |state| matches!(state, SessionState::Inactive { .. })).await;
    let after = BootTime::now().duration_since(died);
    println!("{driver}: asked {asked:?}, granted {granted:?}: paused after {paused:?}, over after {after:?}");
    assert!(paused >= granted / 10 && paused <= granted.mul_f64(0.4) + slack, "paused after {paused:?}");
    assert!(after >= granted.mul_f64(0.7) && after <= granted + slack, "over after {after:?}");
    assert_eq!(over, SessionState::Inactive { reason: InactiveReason::DeadlinePassed });
    eventually("the server's expiry", || async { observer.get("/idle").await == Ok(None) }).await;
    session.close(Duration::from_millis(100)).await;
}

/// Two servers that grant different timeouts, the session on the first of them, and the ways to both.
async fn moving(driver: DriverKind, first: Duration, second: Duration) -> (Ensemble, [Proxy; 2], Session) {
    let dir = tempfile::tempdir().unwrap();
    // The longest that each grants is what tells them apart.
    let ensemble = Ensemble::builder()
        .servers(3)
        .tick_time(TICK)
        .session_timeouts(TICK, first)
        .with(|settings| settings.dir = Some(dir.keep()))
        .start()
        .await
        .unwrap();
    let leader = ensemble.leader().await.unwrap();
    let moved = (0..3).find(|server| *server != leader).unwrap();
    let stays = (0..3).find(|server| *server != moved).unwrap();
    let config = ensemble.server(moved).dir().join("zoo.cfg");
    let text = std::fs::read_to_string(&config).unwrap();
    ensemble.stop(moved).await.unwrap();
    std::fs::write(&config, format!("{text}\nmaxSessionTimeout={}\n", second.as_millis())).unwrap();
    ensemble.start_server(moved).await.unwrap();
    ensemble.wait_serving(Duration::from_secs(60)).await.unwrap();

    let addresses = ensemble.addresses();
    let here = Proxy::start(addresses[stays]).await.unwrap();
    let there = Proxy::start(addresses[moved]).await.unwrap();
    there.refuse(true).await.unwrap();
    let connect = format!("{},{}", here.addr(), there.addr());
    let session = builder(driver, connect, LONG * 2).connect().await.unwrap();
    assert_eq!(session.active().await.unwrap().granted_timeout(), first);
    there.refuse(false).await.unwrap();
    (ensemble, [here, there], session)
}

async fn less_at_a_reconnect_ends_the_session_with_both_figures(driver: DriverKind) {
    let log = Captured::of_process();
    let (ensemble, [here, there], session) = moving(driver, LONG, SHORT).await;
    let keeper = session.keep_lease();
    wait_for(&mut keeper.subscribe(), "a lease", Option::is_some).await;
    let before = session.active().await.unwrap();
    here.refuse(true).await.unwrap();
    here.cut().await;
    let cut = BootTime::now();
    before.over().await;
    let after = BootTime::now().duration_since(cut);
    assert!(after < SHORT, "its end is found out {after:?} after the cut");
    assert!(keeper.lease().is_none_or(|lease| lease.epoch != before.epoch()), "no lease of it is left");
    let both = |text: &str| text.contains(&format!("{SHORT:?}")) && text.contains(&format!("{LONG:?}"));
    let reason = log.text().lines().any(|line| line.contains("session is over") && both(line));
    assert!(reason, "the log says why, with both figures");
    // The next session goes by what is granted there.
    wait_state(&session, "a new session", SessionState::is_active).await;
    let next = session.active().await.unwrap();
    assert_ne!(next.session_id(), before.session_id());
    assert_eq!(next.granted_timeout(), SHORT);
    assert_eq!(there.connections(), 1);
    session.close(Duration::from_secs(2)).await;
    clear(ensemble);
}

async fn more_at_a_reconnect_changes_nothing(driver: DriverKind) {
    let log = Captured::of_process();
    let (ensemble, [here, there], session) = moving(driver, SHORT, LONG).await;
    let before = session.active().await.unwrap();
    here.refuse(true).await.unwrap();
    here.cut().await;
    eventually("the other server", || async { there.connections() == 1 }).await;
    wait_state(&session, "active again", SessionState::is_active).await;
    session.barrier().await.unwrap();
    assert_eq!(session.active().await.unwrap(), before);
    assert_eq!(before.granted_timeout(), SHORT);
    // It asks for what it has, so the other server, which would grant more, does not.
    assert_eq!(there.connections(), 1);
    let of_there = there.addr().to_string();
    let more = |line: &str| line.contains("granted a longer session timeout") && line.contains(&of_there);
    assert!(!log.text().lines().any(more));
    session.close(Duration::from_secs(2)).await;
    clear(ensemble);
}

/// The directory had to outlive the servers' restart.
fn clear(ensemble: Ensemble) {
    let dir = ensemble.dir().to_owned();
    ensemble.end();
    let _ = std::fs::remove_dir_all(dir);
}
