//! The timeout of a single operation: it ends in time, and says truly what became of it.

use std::time::{Duration, Instant};

use crate::common::{Bed, PATIENCE, soon, wait_state};
use zk_session::{CreateMode, DriverKind, OpError, Recovery, Session, SessionState, UnknownCause};
use zk_testkit::{Op, Servers, TestServer, TestServerFaults, Which};

on_each_server!(
    an_operation_on_a_dead_link_ends_within_its_timeout,
    a_timeout_covers_the_wait_for_a_session,
    a_timeout_that_has_passed_sends_nothing,
);
tests_on!(
    native_on_faulty_servers,
    Native,
    Embedded,
    a_write_that_is_never_answered_is_unknown_and_a_read_unavailable,
    a_timeout_covers_the_search_for_the_outcome_of_a_write,
    a_timeout_bounds_the_deletion_of_a_whole_tree,
    a_longer_timeout_outlasts_the_operation_timeout,
);

const SHORT: Duration = Duration::from_millis(300);
/// What a busy machine may add. Far from the operation timeout of the beds, which is 15 s.
const SLACK: Duration = Duration::from_secs(5);

fn embedded(bed: &Bed) -> &TestServer {
    match &bed.ensemble {
        Servers::Embedded(server) => server,
        Servers::Apache(_) => panic!("this test needs the faults of the embedded server"),
    }
}

fn faults(bed: &Bed) -> TestServerFaults<'_> {
    embedded(bed).faults()
}

async fn in_time<T>(operation: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let result = soon("the end of the operation", operation).await;
    assert!(started.elapsed() < SHORT + SLACK, "it took {:?}", started.elapsed());
    result
}

fn is_unanswered(error: &OpError) -> bool {
    matches!(error, OpError::Unknown { cause: UnknownCause::NoAnswer { .. }, .. })
}

async fn an_operation_on_a_dead_link_ends_within_its_timeout(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let (session, observer) = (bed.session().await, bed.observer().await);
    let incarnation = session.active().await.unwrap();
    bed.proxy.black_hole(true);
    let error =
        in_time(session.with_timeout(SHORT).create("/a", "", CreateMode::Persistent)).await.unwrap_err();
    assert!(is_unanswered(&error) && error.is_unknown(), "{error}");
    let error = in_time(incarnation.with_timeout(SHORT).get("/a")).await.unwrap_err();
    assert!(matches!(error, OpError::Unavailable { .. }) && error.has_no_effect(), "{error}");
    // It was on its way, as the error said it might be.
    bed.proxy.black_hole(false);
    wait_state(&session, "active", SessionState::is_active).await;
    session.barrier().await.unwrap();
    observer.barrier().await.unwrap();
    assert!(observer.exists("/a").await.unwrap().is_some());
}

async fn a_timeout_covers_the_wait_for_a_session(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    bed.proxy.refuse(true).await.unwrap();
    bed.proxy.cut().await;
    wait_state(&session, "paused", |state| !state.is_active()).await;
    let error =
        in_time(session.with_timeout(SHORT).create("/a", "", CreateMode::Ephemeral)).await.unwrap_err();
    assert!(matches!(error, OpError::Unavailable { within, .. } if within >= SHORT), "{error}");
    bed.proxy.refuse(false).await.unwrap();
    assert_eq!(soon("the answer", session.with_timeout(PATIENCE).get("/a")).await, Ok(None));
}

async fn a_timeout_that_has_passed_sends_nothing(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await.with_timeout(Duration::ZERO);
    let creations = bed.proxy.seen(Op::Create);
    let error = session.create("/a", "", CreateMode::Persistent).await.unwrap_err();
    assert!(matches!(error, OpError::Unavailable { .. }), "{error}");
    let error = session.barrier().await.unwrap_err();
    assert!(matches!(error, OpError::Unavailable { .. }), "{error}");
    let session = session.with_timeout(Duration::MAX);
    session.barrier().await.unwrap();
    assert_eq!(session.get("/a").await, Ok(None));
    assert_eq!(bed.proxy.seen(Op::Create), creations);
}

async fn a_write_that_is_never_answered_is_unknown_and_a_read_unavailable(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    session.create("/a", "one", CreateMode::Persistent).await.unwrap();
    let loss = faults(&bed).never_answer(Which::op(Op::SetData));
    let error = in_time(session.with_timeout(SHORT).set("/a", "two", None)).await.unwrap_err();
    assert!(is_unanswered(&error), "{error}");
    loss.happened(PATIENCE).await.unwrap();
    assert_eq!(embedded(&bed).data(0, "/a"), Some(b"two".to_vec()), "it was done");
    // Nothing is answered on that connection any more.
    let error = in_time(session.with_timeout(SHORT).get("/a")).await.unwrap_err();
    assert!(matches!(error, OpError::Unavailable { .. }), "{error}");
    // The session finds another connection by itself, and its other operations have their own timeout.
    assert_eq!(soon("the data", session.get("/a")).await.unwrap().unwrap().data, b"two");
}

async fn a_timeout_covers_the_search_for_the_outcome_of_a_write(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    // The answer is lost with the connection; the reads that would tell the outcome are not answered.
    let lost = faults(&bed).lose_reply(Which::op(Op::Create));
    let silent = faults(&bed).never_answer(Which::any());
    let session = session.with_timeout(Duration::from_secs(1));
    let create = session.create_sequential("/n-", "", CreateMode::Persistent, Recovery::Data);
    let error = in_time(create).await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    lost.happened(PATIENCE).await.unwrap();
    silent.happened(PATIENCE).await.unwrap();
}

async fn a_timeout_bounds_the_deletion_of_a_whole_tree(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session = bed.session().await;
    session.create("/tree", "", CreateMode::Persistent).await.unwrap();
    for n in 0..20 {
        session.create(&format!("/tree/{n}"), "", CreateMode::Persistent).await.unwrap();
    }
    // Each step is much shorter than the timeout, the whole is much longer.
    faults(&bed).delay_replies(Duration::from_millis(100));
    let error = in_time(session.with_timeout(SHORT * 2).delete_recursive("/tree")).await.unwrap_err();
    assert!(matches!(error, OpError::Unknown { .. } | OpError::Unavailable { .. }), "{error}");
    faults(&bed).delay_replies(Duration::ZERO);
    soon("the rest", session.delete_recursive("/tree")).await.unwrap();
}

async fn a_longer_timeout_outlasts_the_operation_timeout(driver: DriverKind) {
    let bed = Bed::start(driver).await;
    let session: Session = bed.builder().operation_timeout(SHORT).connect().await.unwrap();
    faults(&bed).delay_replies(SHORT * 2);
    let error = session.get("/").await.unwrap_err();
    assert!(matches!(error, OpError::Unavailable { .. }), "{error}");
    assert!(session.with_timeout(PATIENCE).get("/").await.unwrap().is_some());
}
