//! The operations over a driver that answers by a script.

use super::*;
use crate::driver::tests::fake::{Fake, SEEN, SESSION};
use crate::driver::{DriverError, DriverResult};
use crate::error::UnknownCause;

const GRANTED: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_millis(200);

fn stat(owner: i64) -> Stat {
    Stat { czxid: 5, mzxid: 5, ephemeral_owner: owner, ..Stat::default() }
}

fn node(data: &'static [u8], stat: Stat) -> DriverResult<Reply> {
    Ok(Reply::Data(Some(data.into()), stat))
}

fn lost() -> DriverResult<Reply> {
    Err(DriverError::Ambiguous("lost".to_owned()))
}

fn refused(code: ErrorCode) -> DriverResult<Reply> {
    Err(DriverError::Refused(code))
}

fn session(script: impl IntoIterator<Item = DriverResult<Reply>>) -> (std::sync::Arc<Fake>, Incarnation) {
    let fake = Fake::new(GRANTED, script);
    let incarnation = fake.incarnation(TIMEOUT, BootTime::now());
    (fake, incarnation)
}

#[test]
fn numbers_as_zookeeper_appends_them() {
    assert!(is_numbered("m-0000000007", "m-"));
    assert!(is_numbered("m--2147483648", "m-"));
    assert!(!is_numbered("m-", "m-"));
    assert!(!is_numbered("m-other-0000000007", "m-"));
    assert!(!is_numbered("x-0000000007", "m-"));
}

#[tokio::test]
async fn past_the_local_deadline_nothing_is_sent() {
    let fake = Fake::new(GRANTED, [refused(ErrorCode::NO_NODE)]);
    // As after a freeze: no event has come yet, only the clock shows it.
    let frozen = fake.incarnation(TIMEOUT, BootTime::now() - GRANTED);
    assert_eq!(frozen.create("/a", "", CreateMode::Ephemeral).await, Err(OpError::SessionOver));
    assert_eq!(frozen.delete("/a", None).await, Err(OpError::SessionOver));
    assert_eq!(frozen.barrier().await, Err(OpError::SessionOver));
    assert!(frozen.is_over());
    frozen.over().await;
    assert_eq!(fake.asked(), 0);
    assert!(fake.is_aborted(), "and what was queued goes with it");
}

#[tokio::test]
async fn a_driver_that_never_answers_is_not_waited_for() {
    let (fake, session) = session([]);
    let started = BootTime::now();
    let error = session.create("/a", "", CreateMode::Ephemeral).await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    let error = session.get("/a").await.unwrap_err();
    assert!(matches!(error, OpError::Unavailable { .. }), "{error}");
    assert!(BootTime::now().duration_since(started) < 4 * TIMEOUT);
    assert_eq!(fake.asked(), 2);
}

#[tokio::test]
async fn a_barrier_that_is_refused_is_an_error_at_once_and_says_why() {
    let (fake, session) = session([Err(DriverError::Invalid("somebody has created it".to_owned()))]);
    let error = session.barrier().await.unwrap_err();
    assert_eq!(
        error,
        OpError::Invalid { path: "/".to_owned(), reason: "somebody has created it".to_owned() }
    );
    assert_eq!(fake.asked(), 1);
    // Nor does it show the outcome of a write whose answer was lost.
    let script = [Ok(Reply::Stat(stat(0))), lost(), Err(DriverError::Invalid("no quorum".to_owned()))];
    let (_, session) = self::session(script);
    let error = session.delete("/a", None).await.unwrap_err();
    assert!(error.is_unknown() && error.to_string().contains("no quorum"), "{error}");
}

#[tokio::test]
async fn a_request_that_never_left_is_repeated_without_doubt() {
    let not_sent = || Err(DriverError::NotSent("not connected".to_owned()));
    let script = [not_sent(), not_sent(), refused(ErrorCode::NODE_EXISTS), node(b"", stat(SESSION.0))];
    let (fake, session) = session(script);
    // No part of it was ever sent, so the present data is from before.
    let error = session.create("/a", "", CreateMode::Ephemeral).await.unwrap_err();
    assert_eq!(error, OpError::NodeExists { path: "/a".to_owned(), owner: Some(SESSION.0) });
    assert_eq!(fake.asked(), 4);
}

#[tokio::test]
async fn an_ephemeral_of_another_session_discredits_the_driver() {
    let (fake, session) = session([Ok(Reply::PathAndStat("/a".to_owned(), stat(0x66)))]);
    let error = session.create("/a", "", CreateMode::Ephemeral).await.unwrap_err();
    assert!(error.is_unknown() && error.is_session_over(), "{error}");
    assert!(session.is_over() && fake.is_aborted());
}

#[tokio::test]
async fn an_ephemeral_of_this_session_with_other_data_is_another_tasks() {
    let script = |stat| [lost(), refused(ErrorCode::NODE_EXISTS), node(b"theirs", stat)];
    let (_, session) = session(script(Stat { czxid: SEEN, ..stat(SESSION.0) }));
    let error = session.create("/a", "mine", CreateMode::Ephemeral).await.unwrap_err();
    assert_eq!(error, OpError::NodeExists { path: "/a".to_owned(), owner: Some(SESSION.0) });
    // One that is newer than the request may have come after the one that was created here.
    let (_, session) = self::session(script(stat(SESSION.0)));
    let error = session.create("/a", "mine", CreateMode::Ephemeral).await.unwrap_err();
    assert!(error.is_unknown() && error.to_string().contains("session 0x77"), "{error}");
}

#[tokio::test]
async fn a_refusal_after_a_lost_answer_does_not_prove_that_nothing_was_done() {
    for code in [ErrorCode::NO_NODE, ErrorCode::NO_AUTH] {
        let (_, session) = session([lost(), refused(code)]);
        let error = session.set("/a", "", Some(3)).await.unwrap_err();
        assert!(matches!(&error, OpError::Unknown { cause: UnknownCause::Changed { .. }, .. }), "{error}");
    }
    // Another version by now, and the next one of another znode, with that data and with other data.
    for (data, version, czxid) in [("", 9, SEEN), ("", 4, SEEN + 1), ("other", 4, SEEN + 1)] {
        let stat = Stat { version, czxid, ..stat(0) };
        let (_, session) = session([lost(), refused(ErrorCode::BAD_VERSION), node(data.as_bytes(), stat)]);
        let error = session.set("/a", "", Some(3)).await.unwrap_err();
        assert!(error.is_unknown(), "{error}");
    }
    // It may be the new access list that forbids to read it.
    let (_, session) = session([lost(), refused(ErrorCode::BAD_VERSION), refused(ErrorCode::NO_AUTH)]);
    let error = session.set_acl("/a", &[], Some(3)).await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
}

#[tokio::test]
async fn the_end_of_the_session_after_a_lost_answer_leaves_the_outcome_unknown() {
    let fake = Fake::new(GRANTED, [lost()]);
    // It ends while the second attempt waits for its answer.
    let session = fake.incarnation(GRANTED, BootTime::now() - GRANTED + TIMEOUT);
    let waiting = tokio::spawn({
        let session = session.clone();
        async move { session.create("/a", "", CreateMode::Persistent).await }
    });
    session.over().await;
    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.is_unknown() && error.is_session_over(), "{error}");
}

#[tokio::test]
async fn a_creation_without_a_parent_casts_doubt_on_the_parent_and_on_no_prefix() {
    let (_, session) = session(std::iter::repeat_with(|| refused(ErrorCode::NO_NODE)).take(4));
    for prefix in ["/queue/", "/queue/n-"] {
        let error = session.create_sequential(prefix, "", CreateMode::Ephemeral, Recovery::Data).await;
        assert_eq!(error, Err(OpError::NoNode { path: prefix.to_owned() }));
    }
    assert_eq!(session.inner.reliance.take().refused, ["/queue"]);
    for path in ["/queue/a", "/queue/b"] {
        session.create(path, "", CreateMode::Ephemeral).await.unwrap_err();
    }
    assert_eq!(session.inner.reliance.take().refused, ["/queue"]);
}

#[tokio::test]
async fn a_parent_that_exists_needs_no_permission_to_create_it() {
    let (fake, session) = session([refused(ErrorCode::NO_AUTH), Ok(Reply::Stat(stat(0)))]);
    assert_eq!(session.create_parents("/a/b/c").await, Ok(()));
    assert_eq!(fake.asked(), 2);
    let (_, session) = self::session([refused(ErrorCode::NO_AUTH), refused(ErrorCode::NO_NODE)]);
    let error = session.create_parents("/a/b/c").await;
    assert_eq!(error, Err(OpError::NoAuth { path: "/a/b/c".to_owned() }));
}
