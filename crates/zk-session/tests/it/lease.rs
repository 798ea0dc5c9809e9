//! Leases over real servers: given by the session's creation, kept by heartbeats, taken by silence, and always before
//! the server acts. One test has a server of a script, for answers to heartbeats that a real one gives only after
//! faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use crate::common::server::{Answer, NO_NODE, handshake, reply, serve, xid};
use crate::common::{Bed, PATIENCE, TICK, TIMEOUT, builder, soon, wait_for, wait_state};
use tokio::net::TcpListener;
use zk_session::{
    BootTime, DriverKind, Epoch, InactiveReason, Lease, SessionState, lease_margin, sleep_until,
};
use zk_testkit::Op;

on_each_server!(
    a_lease_is_given_by_the_creation_and_kept_by_heartbeats,
    a_session_that_has_long_been_idle_has_a_lease_after_one_heartbeat,
    no_heartbeat_is_sent_unless_a_lease_is_kept,
    a_lease_ends_in_a_black_hole_before_the_server_expires_the_session,
    a_lease_is_not_kept_alive_by_a_server_that_only_listens,
    a_lease_of_an_ended_session_is_none_and_the_next_one_gets_its_own;
    a_heartbeat_with_any_other_answer_gives_no_lease_and_proves_no_session,
);

async fn first_lease(leases: &mut tokio::sync::watch::Receiver<Option<Lease>>) -> Lease {
    wait_for(leases, "a lease", Option::is_some).await.unwrap()
}

async fn a_lease_is_given_by_the_creation_and_kept_by_heartbeats(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let before = BootTime::now();
    let session = bed.session().await;
    let asked = BootTime::now();
    let keeper = session.keep_lease();
    let mut leases = keeper.subscribe();
    let lease = first_lease(&mut leases).await;
    assert_eq!(lease.epoch, Epoch(1));
    assert!(lease.is_valid_at(BootTime::now()));
    // From the sending of the connect request, unless a heartbeat came before this look.
    let latest = if bed.proxy.seen(Op::Delete) == 0 { asked } else { BootTime::now() };
    let span = TIMEOUT - lease_margin(TIMEOUT);
    assert!(lease.valid_until >= before + span && lease.valid_until <= latest + span, "{lease:?}");
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

async fn a_session_that_has_long_been_idle_has_a_lease_after_one_heartbeat(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    sleep_until(BootTime::now() + TIMEOUT).await;
    let asked = BootTime::now();
    let keeper = session.keep_lease();
    let lease = first_lease(&mut keeper.subscribe()).await;
    let heartbeats = bed.proxy.seen(Op::Delete);
    let span = TIMEOUT - lease_margin(TIMEOUT);
    // By a probe that was sent before; a heartbeat may have prolonged it by the time that this task looks.
    let seen = BootTime::now();
    assert!(lease.valid_until <= seen + span, "{lease:?}, seen at {seen:?}");
    // The second heartbeat is sent a tick after the first one at the earliest, whatever has held this task up.
    let timing = session.incarnation().unwrap().lease_timing();
    let took = seen.duration_since(asked);
    let intervals = took.as_millis() / timing.heartbeat_interval().min(TICK).as_millis();
    assert!(
        heartbeats >= 1 && u128::from(heartbeats) <= 1 + intervals,
        "{heartbeats} heartbeats in {took:?}"
    );
}

async fn no_heartbeat_is_sent_unless_a_lease_is_kept(driver: DriverKind) {
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
    let heartbeats = bed.proxy.seen(Op::Delete);
    sleep_until(BootTime::now() + TIMEOUT / 2).await;
    assert_eq!(bed.proxy.seen(Op::Delete), heartbeats);
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
    let cut = BootTime::now();
    assert!(keeper.lease().is_some_and(|lease| lease.is_valid_at(cut)), "{:?}", keeper.lease());
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
    // Heartbeats arrive and touch the session, and nobody hears of it.
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

/// A server that goes on answering pings and reads, and answers heartbeats otherwise than by 'no such znode'.
async fn a_heartbeat_with_any_other_answer_gives_no_lease_and_proves_no_session(driver: DriverKind) {
    const GRANTED: Duration = Duration::from_secs(2);
    /// Of requests.
    const DELETE: [u8; 4] = 2i32.to_be_bytes();
    const CLOSE: [u8; 4] = (-11i32).to_be_bytes();
    for (code, said) in [(0, "was deleted"), (-102, "not authorized"), (-111, "has children")] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let to_heartbeats = Arc::new(AtomicI32::new(NO_NODE));
        let server = tokio::spawn(serve(listener, {
            let to_heartbeats = Arc::clone(&to_heartbeats);
            move |_, turn, request| {
                if turn == 0 {
                    return Answer::Say(handshake(i32::try_from(GRANTED.as_millis()).unwrap()));
                }
                let reply = |code, body: &[u8]| reply(xid(request), 1, code, body);
                match request.get(4..8) {
                    Some(op) if op == DELETE => Answer::Say(reply(to_heartbeats.load(Ordering::SeqCst), &[])),
                    Some(op) if op == CLOSE => Answer::SayAndClose(reply(0, &[])),
                    // A probe, with its stat, or a ping.
                    _ if xid(request) >= 0 => Answer::Say(reply(0, &[0; 68])),
                    _ => Answer::Say(reply(0, &[])),
                }
            }
        }));
        let session = builder(driver, address).connect().await.unwrap();
        let keeper = session.keep_lease();
        let (mut leases, mut states) = (keeper.subscribe(), session.subscribe());
        first_lease(&mut leases).await;
        to_heartbeats.store(code, Ordering::SeqCst);
        // What was acknowledged was sent before this.
        let longest = BootTime::now() + GRANTED - lease_margin(GRANTED);
        let end = soon("the end of the session", async {
            loop {
                if let Some(lease) = *leases.borrow_and_update() {
                    assert!(lease.valid_until <= longest, "{said}: {lease:?}");
                }
                if let SessionState::Inactive { reason } = &*states.borrow_and_update() {
                    break reason.clone();
                }
                tokio::select! {
                    _ = leases.changed() => {}
                    _ = states.changed() => {}
                }
            }
        })
        .await;
        assert_eq!(end, InactiveReason::DeadlinePassed, "{said}");
        assert_eq!(keeper.lease(), None, "{said}");
        // A session that is new is proved by its creation alone.
        let next = builder(driver, address).connect().await.unwrap();
        let error = next.barrier().await.unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
        next.close(PATIENCE).await;
        session.close(PATIENCE).await;
        server.abort();
    }
}
