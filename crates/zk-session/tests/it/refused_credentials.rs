//! Credentials that were good when the session was made, and are refused later.
//!
//! Two real servers stand behind one address, the first with the scheme `digest`, the second without: the second takes
//! the place of the first as after a change of its configuration.

use std::time::{Duration, Instant};

use crate::common::{PATIENCE, TICK, TIMEOUT, builder, soon, wait_state};
use zk_session::{ConnectError, CreateMode, DriverKind, Epoch, InactiveReason, OpError, SessionState};
use zk_testkit::{Ensemble, Proxy};

for_each_driver!(
    operations_fail_at_once_and_the_session_comes_back_once_that_is_put_right,
    a_session_that_is_refused_can_be_closed,
);

struct Servers {
    good: Ensemble,
    proxy: Proxy,
    other: Ensemble,
}

impl Servers {
    async fn start() -> Self {
        let server = || Ensemble::builder().servers(1).tick_time(TICK);
        let without_digest = "-Dzookeeper.DigestAuthenticationProvider.enabled=false";
        let good = server().start().await.unwrap();
        let other = server().jvm_flag(without_digest).start().await.unwrap();
        let proxy = Proxy::start_many(vec![good.addresses()[0], other.addresses()[0]]).await.unwrap();
        Self { good, proxy, other }
    }

    /// How often the second one has refused credentials, by its log.
    fn refusals(&self) -> usize {
        let log = std::fs::read_to_string(self.other.server(0).log()).unwrap();
        log.lines().filter(|line| line.contains("No authentication provider for scheme: digest")).count()
    }
}

fn is_refused(state: &SessionState) -> bool {
    matches!(state, SessionState::Inactive { reason: InactiveReason::AuthFailed { .. } })
}

async fn operations_fail_at_once_and_the_session_comes_back_once_that_is_put_right(driver: DriverKind) {
    let servers = Servers::start().await;
    let session =
        builder(driver, servers.proxy.addr()).auth("digest", "operator:hunter2").connect().await.unwrap();
    // Waits for a session since before.
    let mut watch = session.watch_data("/a");
    soon("the first value", watch.next()).await.unwrap();
    servers.good.kill(0).await.unwrap();
    servers.proxy.cut().await;
    wait_state(&session, "refused", is_refused).await;

    let started = Instant::now();
    for _ in 0..10 {
        let error = session.create("/a", "", CreateMode::Ephemeral).await.unwrap_err();
        assert!(matches!(error, OpError::AuthFailed { .. }) && error.has_no_effect(), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    assert!(started.elapsed() < TIMEOUT, "they waited: {:?}", started.elapsed());
    // Whoever comes now is told likewise.
    let newcomer = builder(driver, servers.proxy.addr()).auth("digest", "operator:hunter2").connect();
    assert!(matches!(newcomer.await.unwrap_err(), ConnectError::AuthFailed { .. }));
    // No retry loop: within a session timeout one more attempt, or none.
    let before = servers.refusals();
    let waited = tokio::time::timeout(TIMEOUT, session.active()).await;
    assert!(waited.is_err(), "{waited:?}");
    let attempts = servers.refusals() - before;
    assert!(
        before >= 2,
        "{before} refusals in the log, which must have one for the session and one for the newcomer"
    );
    assert!(attempts <= 1, "{attempts} attempts in {TIMEOUT:?}");

    servers.good.start_server(0).await.unwrap();
    servers.good.wait_serving(PATIENCE).await.unwrap();
    wait_state(&session, "active again", |state| *state == SessionState::Active { epoch: Epoch(2) }).await;
    session.create("/a", "", CreateMode::Ephemeral).await.unwrap();
    let told = soon("the value in the new session", watch.next()).await.unwrap();
    assert_eq!(told.epoch, Epoch(2));
}

async fn a_session_that_is_refused_can_be_closed(driver: DriverKind) {
    let servers = Servers::start().await;
    let session =
        builder(driver, servers.proxy.addr()).auth("digest", "operator:hunter2").connect().await.unwrap();
    let waiting = tokio::spawn({
        let session = session.clone();
        async move {
            // It may be closed before this task has had its turn.
            let seen = |state: &SessionState| is_refused(state) || *state == SessionState::Closed;
            session.subscribe().wait_for(seen).await.unwrap();
            session.active().await
        }
    });
    servers.good.kill(0).await.unwrap();
    servers.proxy.cut().await;
    wait_state(&session, "refused", is_refused).await;
    let started = Instant::now();
    session.close(Duration::from_secs(1)).await;
    assert!(started.elapsed() < PATIENCE / 3, "{:?}", started.elapsed());
    assert!(soon("the end of the wait", waiting).await.unwrap().is_err());
    servers.proxy.wait_connections(0, PATIENCE).await.unwrap();
}
