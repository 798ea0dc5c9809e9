//! Leases over real servers: given by beats, taken by silence, and always before the server acts.

#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

mod common;

use std::time::Duration;

use common::{Bed, PATIENCE, TIMEOUT, soon, wait_for, wait_state};
use zk_session::{BootTime, DriverKind, Epoch, Lease, SessionState, lease_margin, sleep_until};
use zk_testkit::Op;

on_each_server!(
    a_lease_is_given_by_beats_and_grows,
    nobody_beats_unless_a_lease_is_kept,
    a_lease_ends_in_a_black_hole_before_the_server_expires_the_session,
    a_lease_is_not_kept_alive_by_a_server_that_only_listens,
    a_lease_of_an_ended_session_is_none_and_the_next_one_gets_its_own,
);

async fn first_lease(leases: &mut tokio::sync::watch::Receiver<Option<Lease>>) -> Lease {
    wait_for(leases, "a lease", Option::is_some).await.unwrap()
}

async fn a_lease_is_given_by_beats_and_grows(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let asked = BootTime::now();
    let keeper = session.keep_lease();
    assert_eq!(keeper.lease(), None, "nothing is proved yet");
    let mut leases = keeper.subscribe();
    let lease = first_lease(&mut leases).await;
    assert_eq!(lease.epoch, Epoch(1));
    assert!(lease.is_valid_at(BootTime::now()));
    // From a beat sent after it was asked for, and no longer than the timeout less the margin.
    assert!(lease.valid_until >= asked + TIMEOUT - lease_margin(TIMEOUT));
    assert!(lease.valid_until <= BootTime::now() + TIMEOUT - lease_margin(TIMEOUT));
    let grown = wait_for(&mut leases, "a longer lease", |now| {
        now.is_some_and(|now| now.valid_until > lease.valid_until)
    });
    assert_eq!(grown.await, keeper.lease());
    // Valid without a gap for longer than a session lasts.
    let until = BootTime::now() + TIMEOUT;
    while BootTime::now() < until {
        assert!(keeper.lease().unwrap().is_valid_at(BootTime::now()));
        sleep_until(BootTime::now() + Duration::from_millis(20)).await;
    }
}

async fn nobody_beats_unless_a_lease_is_kept(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let keeper = session.keep_lease();
    let mut leases = keeper.subscribe();
    first_lease(&mut leases).await;
    let second = keeper.clone();
    drop(keeper);
    assert!(second.lease().is_some());
    drop(second);
    wait_for(&mut leases, "no lease", Option::is_none).await;
    // What was under way is done by now.
    session.barrier().await.unwrap();
    let beats = bed.proxy.seen(Op::Delete);
    sleep_until(BootTime::now() + TIMEOUT / 2).await;
    assert_eq!(bed.proxy.seen(Op::Delete), beats);
    assert!(session.state().is_active(), "idle, and alive all the same");
}

async fn a_lease_ends_in_a_black_hole_before_the_server_expires_the_session(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    session.create("/leader", "", zk_session::CreateMode::Ephemeral).await.unwrap();
    let mut gone = observer.watch_data("/leader");
    assert!(gone.next().await.unwrap().value.is_some());
    let keeper = session.keep_lease();
    first_lease(&mut keeper.subscribe()).await;
    bed.proxy.black_hole(true);
    let watching = tokio::spawn(async move {
        while gone.next().await.unwrap().value.is_some() {}
        BootTime::now()
    });
    // The lease as the user of it would see it, by the clock.
    let mut valid_until = BootTime::now();
    let end = soon("the end of the lease", async {
        loop {
            let now = BootTime::now();
            match keeper.lease() {
                Some(lease) if lease.is_valid_at(now) => {
                    assert!(lease.valid_until >= valid_until, "it shrank");
                    valid_until = lease.valid_until;
                }
                _ => break now,
            }
            sleep_until(now + Duration::from_millis(5)).await;
        }
    })
    .await;
    let expired = soon("the server's expiry", watching).await.unwrap();
    assert!(end < expired, "the lease ended {:?} after the successor could act", end.duration_since(expired));
}

async fn a_lease_is_not_kept_alive_by_a_server_that_only_listens(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let keeper = session.keep_lease();
    first_lease(&mut keeper.subscribe()).await;
    // Beats arrive and touch the session, and nobody hears of it.
    bed.proxy.hold_replies(true);
    wait_state(&session, "inactive", |state| matches!(state, SessionState::Inactive { .. })).await;
    assert_eq!(keeper.lease(), None);
}

async fn a_lease_of_an_ended_session_is_none_and_the_next_one_gets_its_own(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    let keeper = session.keep_lease();
    let mut leases = keeper.subscribe();
    first_lease(&mut leases).await;
    bed.proxy.refuse(true).await.unwrap();
    bed.proxy.cut().await;
    wait_state(&session, "inactive", |state| matches!(state, SessionState::Inactive { .. })).await;
    assert_eq!(keeper.lease(), None);
    assert_eq!(*leases.borrow(), None);
    bed.proxy.refuse(false).await.unwrap();
    let next = wait_for(&mut leases, "a lease in the new session", Option::is_some).await.unwrap();
    assert_eq!(next.epoch, Epoch(2));
    session.close(PATIENCE).await;
    assert_eq!(keeper.lease(), None);
}
