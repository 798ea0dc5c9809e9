//! What one server says is about that server, whatever it says; what all of them say counts.

use std::time::{Duration, Instant};

use crate::common::{PATIENCE, TICK, eventually, soon, wait_for};
use zk_session::{
    CloseOutcome, ConnectError, DriverKind, Epoch, InactiveReason, Session, SessionBuilder, SessionId,
    SessionState,
};
use zk_testkit::{Refusal, TestServer};

const TIMEOUT: Duration = Duration::from_secs(2);
/// Much longer than it takes to ask three servers.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A code of no release.
const UNKNOWN: i32 = -999;
const SYSTEM_ERROR: i32 = -1;

/// What follows where every server says so.
struct Verdict {
    refusal: Refusal,
    /// To a client that wants a session; `None` where it gets one.
    new: Option<fn(&ConnectError) -> bool>,
    /// Whether it is an answer for good, so that no more attempts are made.
    is_final: bool,
    /// Of a session that has lost its connections.
    end: InactiveReason,
}

fn auth_failed(error: &ConnectError) -> bool {
    matches!(error, ConnectError::AuthFailed { .. })
}

fn unreachable(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Unreachable { .. })
}

fn verdicts() -> Vec<Verdict> {
    let verdict = |refusal, new, is_final, end| Verdict { refusal, new, is_final, end };
    let clock = InactiveReason::DeadlinePassed;
    vec![
        verdict(Refusal::Credentials, Some(auth_failed), true, clock.clone()),
        verdict(Refusal::RequiresSasl, Some(auth_failed), true, clock.clone()),
        verdict(Refusal::Expired, None, true, InactiveReason::Expired),
        verdict(Refusal::AnotherSession, None, true, InactiveReason::Expired),
        verdict(Refusal::Keeper, None, true, InactiveReason::Expired),
        verdict(Refusal::ReadOnly, Some(unreachable), false, clock.clone()),
        verdict(Refusal::Error(UNKNOWN), Some(unreachable), false, clock.clone()),
        verdict(Refusal::Error(SYSTEM_ERROR), Some(unreachable), false, clock),
    ]
}

async fn servers() -> TestServer {
    TestServer::builder().servers(3).tick_time(TICK).start().await.unwrap()
}

fn builder(servers: &TestServer) -> SessionBuilder {
    crate::common::builder_for(DriverKind::Native, servers.connect_string())
        .session_timeout(TIMEOUT)
        .connect_timeout(CONNECT_TIMEOUT)
        .auth("digest", "operator:hunter2")
}

async fn id(session: &Session) -> SessionId {
    soon("a session", session.active()).await.unwrap().session_id()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_that_refuses_ends_neither_an_attempt_nor_a_session() {
    for Verdict { refusal, .. } in verdicts() {
        let servers = servers().await;
        for refusing in 0..3 {
            println!("{refusal:?} by server {refusing}");
            servers.faults().refuse_clients(refusing, Some(refusal));
            // It is the first that is asked, at every attempt.
            let first = servers.addresses()[refusing].to_string();
            let session = builder(&servers).prefer(&first).connect().await.unwrap();
            let made = id(&session).await;
            let incarnation = session.active().await.unwrap();
            assert_eq!(incarnation.leases(), Ok(()));
            for _ in 0..5 {
                session.barrier().await.unwrap();
                assert!(servers.faults().disconnect(made.0));
                soon("an answer", session.barrier()).await.unwrap();
            }
            assert_eq!((id(&session).await, session.active().await.unwrap().epoch()), (made, Epoch(1)));
            session.close(PATIENCE).await;
            servers.faults().refuse_clients(refusing, None);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_all_of_them_say_counts_at_once() {
    for Verdict { refusal, new, is_final, end } in verdicts() {
        println!("{refusal:?}");
        let servers = servers().await;
        let session = builder(&servers).connect().await.unwrap();
        let made = id(&session).await;
        let mut states = session.subscribe();
        let refuse = |refusal| (0..3).for_each(|server| servers.faults().refuse_clients(server, refusal));
        refuse(Some(refusal));
        let began = Instant::now();
        match (builder(&servers).connect().await, new) {
            (Err(error), Some(expected)) => assert!(expected(&error), "{refusal:?}: {error}"),
            (Ok(newcomer), None) => {
                assert_eq!(newcomer.active().await.unwrap().leases().is_ok(), refusal != Refusal::Keeper);
                newcomer.close(PATIENCE).await;
            }
            (made, _) => panic!("{refusal:?}: {made:?}"),
        }
        assert_eq!(began.elapsed() < CONNECT_TIMEOUT / 2, is_final, "{refusal:?}: {:?}", began.elapsed());
        // It may end by its clock before the newcomer has had its answer: from here on by this loss at the latest.
        let lost = Instant::now();
        servers.faults().disconnect(made.0);
        let over = |state: &SessionState| matches!(state, SessionState::Inactive { .. });
        let state = wait_for(&mut states, "its end", over).await;
        assert_eq!(state, SessionState::Inactive { reason: end.clone() }, "{refusal:?}");
        if end == InactiveReason::Expired {
            assert!(lost.elapsed() < TIMEOUT, "{refusal:?}: {:?}", lost.elapsed());
        }
        refuse(None);
        let next = |state: &SessionState| *state == SessionState::Active { epoch: Epoch(2) };
        wait_for(&mut states, "the next session", next).await;
        session.close(PATIENCE).await;
    }
}

/// A quorum may be among the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_that_refuses_is_not_believed_while_the_others_are_silent() {
    for Verdict { refusal, .. } in verdicts() {
        println!("{refusal:?}");
        let servers = servers().await;
        // Held until the end: they accept no connection, and no other program gets their ports.
        let listeners = [1, 2].map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let [silent, other] = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
        servers.faults().refuse_clients(0, Some(refusal));
        let connect = format!("{},{silent},{other}", servers.addresses()[0]);
        let session = builder(&servers).connect().await.unwrap();
        let made = id(&session).await;
        session.set_servers(&format!("{connect},{}", servers.addresses()[1])).unwrap();
        let began = Instant::now();
        let newcomer = crate::common::builder_for(DriverKind::Native, connect.clone())
            .session_timeout(TIMEOUT)
            .connect_timeout(TIMEOUT)
            .auth("digest", "operator:hunter2");
        match newcomer.connect().await {
            Err(error) => {
                assert!(unreachable(&error) && began.elapsed() >= TIMEOUT / 2, "{refusal:?}: {error}");
            }
            // These serve who has no session.
            Ok(_) => assert!(matches!(refusal, Refusal::Expired | Refusal::AnotherSession)),
        }
        // A session that has nothing but those left ends by its clock, unless another server comes back in time.
        session.set_servers(&connect).unwrap();
        servers.faults().disconnect(made.0);
        eventually("the loss", async || !session.state().is_active()).await;
        servers.faults().refuse_clients(0, None);
        soon("an answer", session.barrier()).await.unwrap();
        assert_eq!(id(&session).await, made, "{refusal:?}");
        session.close(PATIENCE).await;
    }
}

const LESS: Refusal = Refusal::GrantsAtMost(Duration::from_millis(1200));

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_that_grants_a_shorter_session_timeout_gets_no_session() {
    let servers = servers().await;
    for shorter in 0..3 {
        servers.faults().refuse_clients(shorter, Some(LESS));
        let first = servers.addresses()[shorter].to_string();
        let session = builder(&servers).prefer(&first).connect().await.unwrap();
        let made = id(&session).await;
        for _ in 0..5 {
            assert_eq!(session.active().await.unwrap().granted_timeout(), TIMEOUT);
            assert!(servers.faults().disconnect(made.0));
            soon("an answer", session.barrier()).await.unwrap();
        }
        assert_eq!((id(&session).await, session.active().await.unwrap().epoch()), (made, Epoch(1)));
        session.close(PATIENCE).await;
        servers.faults().refuse_clients(shorter, None);
    }
}

/// Leases of the process before may have been given by the longer one, and no other server takes back what this one has
/// accepted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_resumed_with_a_shorter_timeout_is_over() {
    let servers = servers().await;
    for shorter in 0..3 {
        let before = builder(&servers).connect().await.unwrap();
        let ticket = before.active().await.unwrap().ticket();
        servers.faults().refuse_clients(shorter, Some(LESS));
        // The server to be asked first is the one that the session is resumed at.
        let first = servers.addresses()[shorter].to_string();
        let connect = servers
            .connect_string()
            .split(',')
            .filter(|other| *other != first)
            .fold(first.clone(), |all, other| format!("{all},{other}"));
        let began = Instant::now();
        let other = crate::common::builder_for(DriverKind::Native, connect)
            .prefer(&first)
            .connect_timeout(PATIENCE)
            .auth("digest", "operator:hunter2");
        let resumed = other.clone().resume(ticket.clone()).connect().await;
        assert_eq!(resumed.err(), Some(ConnectError::Expired));
        assert!(began.elapsed() < CONNECT_TIMEOUT, "at once, after {:?}", began.elapsed());
        // To close it, its timeout does not matter.
        assert_eq!(other.close_left_behind(ticket, PATIENCE).await, Ok(CloseOutcome::Acknowledged));
        servers.faults().refuse_clients(shorter, None);
        before.close(PATIENCE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shorter_session_timeout_is_taken_from_a_majority_and_where_no_other_server_answers() {
    let servers = servers().await;
    (0..2).for_each(|server| servers.faults().refuse_clients(server, Some(LESS)));
    let both = format!("{},{}", servers.addresses()[0], servers.addresses()[1]);
    // Nobody listens there.
    let reserved = zk_testkit::PortReservation::take(1).unwrap();
    let absent = format!("127.0.0.1:{}", reserved.ports()[0]);
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let one = format!("{},{absent},{}", servers.addresses()[0], mute.local_addr().unwrap());
    for connect in [both, one] {
        let builder = crate::common::builder_for(DriverKind::Native, connect).session_timeout(TIMEOUT);
        let session = builder.connect_timeout(PATIENCE).connect().await.unwrap();
        assert_eq!(Refusal::GrantsAtMost(session.active().await.unwrap().granted_timeout()), LESS);
        session.barrier().await.unwrap();
        assert_eq!(session.active().await.unwrap().epoch(), Epoch(1));
        session.close(PATIENCE).await;
    }
}
