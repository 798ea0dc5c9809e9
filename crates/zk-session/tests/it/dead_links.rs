//! Links that die without a word: nothing is closed or reset, bytes just don't arrive any more, in both directions or in
//! one of them.
//!
//! The design: after 0.3 of the granted timeout in silence a driver gives its connection up, and it looks every
//! twentieth; so a session is paused at 0.35 of its timeout at the latest. An idle session was heard of a quarter of
//! its timeout ago at most, so by its own clock it lives for three quarters from then on, and 0.4 of it are left to move
//! to another server.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Lateness, soon, wait_state};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use tokio::sync::OnceCell;
use zk_session::{BootTime, CreateMode, DriverKind, InactiveReason, Session, SessionState, sleep_until};
use zk_testkit::{Proxy, ServerKind, Servers};

on_each_server!(
    a_dead_link_is_noticed_early_and_the_session_moves_to_another_server,
    with_no_other_server_the_session_is_over_by_the_local_clock,
    a_session_of_one_second_keeps_its_connection,
);

const TICK: Duration = Duration::from_millis(200);
/// Seconds.
const TIMEOUTS: RangeInclusive<u64> = 1..=60;
/// Those that die in each of the ways; the others do so by turns.
const IN_EVERY_WAY: [u64; 6] = [1, 2, 4, 10, 30, 60];
/// What the machine may add to everything, beside what it is seen to be late by.
const SLACK: Duration = Duration::from_millis(300);

/// Whether the machine was too busy for a session of this timeout: it may have sent no heartbeat in time.
fn is_too_busy(late: Duration, timeout: Duration) -> bool {
    late > timeout / 10
}

/// Of so many sessions most were judged.
fn most_are_judged(judged: &[bool]) {
    let count = judged.iter().filter(|judged| **judged).count();
    assert!(count > judged.len() / 2, "{count} of {}: the machine is too busy", judged.len());
}

#[derive(Clone, Copy, Debug)]
enum Dead {
    Both,
    Requests,
    Answers,
}

impl Dead {
    const ALL: [Self; 3] = [Self::Both, Self::Requests, Self::Answers];

    fn strike(self, proxy: &Proxy) {
        match self {
            Self::Both => proxy.black_hole(true),
            Self::Requests => proxy.hold_requests(true),
            Self::Answers => proxy.hold_replies(true),
        }
    }
}

/// Two servers of each kind, for all tests of this process.
async fn servers() -> &'static Servers {
    static APACHE: OnceCell<Servers> = OnceCell::const_new();
    static IN_PROCESS: OnceCell<Servers> = OnceCell::const_new();
    let servers = match crate::common::server_kind() {
        ServerKind::Apache => &APACHE,
        ServerKind::Embedded => &IN_PROCESS,
    };
    servers.get_or_init(|| crate::common::servers(2, TICK, (TICK * 2, Duration::from_secs(60)))).await
}

/// A session and the ways to its servers.
struct Bed {
    session: Session,
    /// To the server that it is connected to, and to another one.
    here: Proxy,
    there: Proxy,
    timeout: Duration,
}

async fn bed(driver: DriverKind, timeout: Duration) -> Bed {
    let addresses = servers().await.addresses();
    let (one, two) = (Proxy::start(addresses[0]).await.unwrap(), Proxy::start(addresses[1]).await.unwrap());
    let session = Session::builder(format!("{},{}", one.addr(), two.addr()))
        .driver(driver)
        .session_timeout(timeout)
        .connect_timeout(Duration::from_secs(15))
        .tick_time(TICK)
        .connect()
        .await
        .unwrap();
    assert_eq!(session.active().await.unwrap().granted_timeout(), timeout);
    // What looked for servers is gone by then; one connection is the session's.
    crate::common::eventually("one connection", || async { one.connections() + two.connections() == 1 })
        .await;
    let (here, there) = if one.connections() == 1 { (one, two) } else { (two, one) };
    Bed { session, here, there, timeout }
}

/// One for each case, all of them there before the first link dies: making them must not be what kills a short session.
async fn beds(driver: DriverKind) -> Vec<(Bed, Dead)> {
    // The longest first, so that the short ones are the freshest.
    let cases = TIMEOUTS.rev().flat_map(|seconds| {
        let by_turns = Dead::ALL[seconds as usize % Dead::ALL.len()];
        let ways = if IN_EVERY_WAY.contains(&seconds) { Dead::ALL.to_vec() } else { vec![by_turns] };
        ways.into_iter().map(move |dead| (Duration::from_secs(seconds), dead))
    });
    let beds = stream::iter(cases).map(async |(timeout, dead)| (bed(driver, timeout).await, dead));
    beds.buffered(8).collect().await
}

/// Somewhere in a heartbeat, so that the links do not all die right after one.
async fn some_time(timeout: Duration) {
    sleep_until(BootTime::now() + timeout.mul_f64(fastrand::f64() / 3.0)).await;
}

fn paused(state: &SessionState) -> bool {
    matches!(state, SessionState::Paused { .. })
}

async fn a_dead_link_is_noticed_early_and_the_session_moves_to_another_server(driver: DriverKind) {
    let lateness = Arc::new(Lateness::watch());
    let runs = beds(driver).await.into_iter().map(|(bed, dead)| {
        let lateness = Arc::clone(&lateness);
        tokio::spawn(async move {
            let timeout = bed.timeout;
            let before = bed.session.active().await.unwrap();
            let path = format!("/moves-{driver}-{dead:?}-{}", timeout.as_secs());
            before.create(&path, "", CreateMode::Ephemeral).await.unwrap();
            some_time(timeout).await;

            let mut states = bed.session.subscribe();
            states.mark_unchanged();
            dead.strike(&bed.here);
            let died = BootTime::now();
            // It may be paused for too short a time to be seen.
            let noticed = |state: &SessionState| paused(state) || bed.there.connections() > 0;
            crate::common::wait_for(&mut states, "paused", noticed).await;
            let told = BootTime::now().duration_since(died);
            let next = crate::common::wait_for(&mut states, "no longer paused", |state| !paused(state)).await;
            let back = BootTime::now().duration_since(died);
            println!(
                "{driver}, {timeout:?}, {dead:?}: paused after {:.3} of it, {next} after {:.3}",
                told.as_secs_f64() / timeout.as_secs_f64(),
                back.as_secs_f64() / timeout.as_secs_f64()
            );
            let late = lateness.most();
            if is_too_busy(late, timeout) {
                return false;
            }
            let longest = timeout.mul_f64(0.4) + SLACK + late;
            assert!(told <= longest, "{timeout:?}, {dead:?}: paused after {told:?}, late by {late:?}");
            assert!(next.is_active(), "{timeout:?}, {dead:?}: {next:?} after {back:?}");
            assert!(back < timeout, "{timeout:?}, {dead:?}: back after {back:?}");
            assert_eq!(bed.session.active().await.unwrap(), before, "the same session");
            let node = before.get(&path).await.unwrap().unwrap();
            assert!(node.stat.is_owned_by(before.session_id()));
            assert_eq!(bed.there.connections(), 1);
            bed.session.close(Duration::from_secs(5)).await;
            true
        })
    });
    most_are_judged(&join_all(runs).await.into_iter().map(Result::unwrap).collect::<Vec<_>>());
}

async fn with_no_other_server_the_session_is_over_by_the_local_clock(driver: DriverKind) {
    let lateness = Arc::new(Lateness::watch());
    let runs = beds(driver).await.into_iter().map(|(bed, dead)| {
        let lateness = Arc::clone(&lateness);
        tokio::spawn(async move {
            let timeout = bed.timeout;
            some_time(timeout).await;
            let mut states = bed.session.subscribe();
            dead.strike(&bed.here);
            dead.strike(&bed.there);
            let died = BootTime::now();
            let waiting = states.wait_for(|state| matches!(state, SessionState::Inactive { .. }));
            let state = tokio::time::timeout(timeout * 2, waiting).await.unwrap().unwrap().clone();
            let after = BootTime::now().duration_since(died);
            println!(
                "{driver}, {timeout:?}, {dead:?}: inactive after {:.3} of it",
                after.as_secs_f64() / timeout.as_secs_f64()
            );
            let late = lateness.most();
            let longest = timeout + SLACK + late;
            assert!(after <= longest, "{timeout:?}, {dead:?}: inactive after {after:?}, late by {late:?}");
            let reason = InactiveReason::DeadlinePassed;
            assert_eq!(state, SessionState::Inactive { reason }, "{timeout:?}, {dead:?}");
            bed.session.close(Duration::from_millis(100)).await;
        })
    });
    join_all(runs).await.into_iter().for_each(|run| run.unwrap());
}

/// Both clients count in units that come to nothing for short timeouts; nothing here may go by those.
async fn a_session_of_one_second_keeps_its_connection(driver: DriverKind) {
    let bed = bed(driver, Duration::from_secs(1)).await;
    let before = bed.session.active().await.unwrap();
    let mut states = bed.session.subscribe();
    states.mark_unchanged();
    let quiet = tokio::time::timeout(Duration::from_secs(5), states.changed()).await;
    assert!(quiet.is_err(), "it became {:?}", *states.borrow());
    assert_eq!(bed.here.connections() + bed.there.connections(), 1);
    soon("an answer", before.barrier()).await.unwrap();
    wait_state(&bed.session, "active", SessionState::is_active).await;
    bed.session.close(Duration::from_secs(5)).await;
}
