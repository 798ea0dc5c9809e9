//! SASL DIGEST-MD5 with real servers.

#![cfg(feature = "sasl")]

use std::time::Instant;

use crate::common::{Captured, PATIENCE, TICK, builder, wait_state};
use tempfile::TempDir;
use zk_session::{
    Acl, CloseOutcome, ConnectError, CreateMode, DriverKind, OpError, Secret, SessionBuilder, SessionState,
};
use zk_testkit::{Ensemble, Proxy};

struct SaslBed {
    proxy: Proxy,
    _ensemble: Ensemble,
    _dir: TempDir,
}

impl SaslBed {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let jaas = dir.path().join("jaas.conf");
        let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
        std::fs::write(
            &jaas,
            format!("Server {{ {module} required user_operator=\"hunter2\" user_other=\"tenretni\"; }};\n"),
        )
        .unwrap();
        let ensemble = Ensemble::builder()
            .servers(1)
            .tick_time(TICK)
            .jvm_flag(format!("-Djava.security.auth.login.config={}", jaas.display()))
            .jvm_flag(
                "-Dzookeeper.authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            )
            .jvm_flag("-Dzookeeper.sessionRequireClientSASLAuth=true")
            .start()
            .await
            .unwrap();
        let proxy = Proxy::start(ensemble.addresses()[0]).await.unwrap();
        Self { proxy, _ensemble: ensemble, _dir: dir }
    }

    fn builder(&self) -> SessionBuilder {
        builder(DriverKind::Native, self.proxy.addr()).connect_timeout(PATIENCE)
    }
}

#[tokio::test]
async fn a_user_gets_in_and_owns_what_it_creates() {
    let bed = SaslBed::start().await;
    let operator = bed.builder().sasl_digest("operator", Secret::from("hunter2")).acl(Acl::CreatorAll);
    let operator = operator.connect().await.unwrap();
    operator.create("/mine", "one", CreateMode::Persistent).await.unwrap();
    // And over another connection.
    assert!(bed.proxy.cut().await > 0);
    assert_eq!(operator.get("/mine").await.unwrap().unwrap().data, b"one");
    let other = bed.builder().sasl_digest("other", Secret::from("tenretni")).connect().await.unwrap();
    other.barrier().await.unwrap();
    assert!(matches!(other.get("/mine").await, Err(OpError::NoAuth { .. })));
}

#[tokio::test]
async fn a_wrong_password_no_user_and_no_sasl_at_all_are_an_error_at_once() {
    let log = Captured::of_process();
    let bed = SaslBed::start().await;
    bed.builder().sasl_digest("operator", "hunter2").connect().await.unwrap();
    for (what, builder) in [
        ("a wrong password", bed.builder().sasl_digest("operator", "wrong-secret")),
        ("an unknown user", bed.builder().sasl_digest("nobody", "wrong-secret")),
        ("none", bed.builder()),
    ] {
        let started = Instant::now();
        let error = builder.connect().await.unwrap_err();
        assert!(matches!(error, ConnectError::AuthFailed { .. }), "{what}: {error}");
        assert!(!error.to_string().contains("wrong-secret"), "{error}");
        assert!(started.elapsed() < PATIENCE / 3, "{what}: after {:?}", started.elapsed());
    }
    assert!(log.text().contains("session is active"), "nothing was captured, so this proves nothing");
    log.assert_without("hunter2");
    log.assert_without("wrong-secret");
}

/// Each connection uses the file as it is; while it is no use, what was read last.
#[tokio::test]
async fn a_changed_password_is_used_from_the_next_connection_on() {
    let bed = SaslBed::start().await;
    let file = bed._dir.path().join("credentials");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    let is_active = |state: &SessionState| state.is_active();
    let is_not = |state: &SessionState| !state.is_active();
    let connect = || bed.builder().sasl_digest_file(&file).connect();
    for useless in ["", "operator", ":hunter2", "operator:"] {
        write(useless);
        let error = connect().await.unwrap_err();
        assert!(matches!(error, ConnectError::AuthFailed { .. }), "{useless}: {error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    write("operator:hunter2\n");
    let session = connect().await.unwrap();
    write("no user");
    bed.proxy.cut().await;
    wait_state(&session, "paused", is_not).await;
    wait_state(&session, "active with the last password", is_active).await;
    // The server does not accept this one, which is read nevertheless.
    write("operator:wrong-secret");
    bed.proxy.cut().await;
    wait_state(&session, "over", |state| matches!(state, SessionState::Inactive { .. })).await;
    write("operator:hunter2");
    wait_state(&session, "active with the new password", is_active).await;
    session.close(PATIENCE).await;
}

#[tokio::test]
async fn a_session_that_was_left_behind_is_closed_by_its_user_alone() {
    let bed = SaslBed::start().await;
    let user = || bed.builder().sasl_digest("operator", Secret::from("hunter2"));
    let (left, observer) = (user().connect().await.unwrap(), user().connect().await.unwrap());
    left.create("/mine", "", CreateMode::Ephemeral).await.unwrap();
    let ticket = left.hand_over().await.unwrap();
    let closed = bed.builder().close_left_behind(ticket.clone(), PATIENCE).await;
    assert_ne!(closed, Ok(CloseOutcome::Acknowledged), "without credentials");
    observer.barrier().await.unwrap();
    assert!(observer.get("/mine").await.unwrap().is_some());
    let closed = user().close_left_behind(ticket, PATIENCE).await;
    assert_eq!(closed, Ok(CloseOutcome::Acknowledged));
    observer.barrier().await.unwrap();
    assert_eq!(observer.get("/mine").await.unwrap(), None);
}
