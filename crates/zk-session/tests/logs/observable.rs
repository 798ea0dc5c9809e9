//! Each change of state is one event in the log, with its reason.

use crate::common::{Captured, PATIENCE, TICK, builder, wait_state};
use zk_session::{CloseOutcome, DriverKind, Epoch, InactiveReason, SessionState};
use zk_testkit::{Ensemble, Proxy};

/// The events of state changes since the last look: what they say, from the state on.
struct Events {
    log: Captured,
    read: usize,
}

impl Events {
    fn next(&mut self) -> Vec<String> {
        let text = self.log.text();
        let news = &text[self.read..];
        let lines = news.lines().filter(|line| line.contains("zk_session::session::live"));
        let lines = lines.filter(|line| line.contains("zookeeper_session{session=observed}"));
        let changes =
            lines.filter_map(|line| line.find(" state=").map(|at| line[at + 1..].to_owned())).collect();
        self.read = text.len();
        changes
    }

    /// These and no others, by how they begin and, behind an asterisk, what else they say.
    fn expect(&mut self, what: &str, expected: &[&str]) {
        let events = self.next();
        let fit = events.len() == expected.len()
            && events.iter().zip(expected).all(|(event, expected)| {
                let (begin, said) = expected.split_once('*').unwrap_or((expected, ""));
                event.starts_with(begin) && event.contains(said)
            });
        assert!(fit, "{what}: {events:#?}, expected {expected:#?}");
    }
}

#[tokio::test]
async fn each_change_of_state_is_told_with_its_reason() {
    let mut events = Events { log: Captured::of_process(), read: 0 };
    for driver in DriverKind::ALL {
        if cfg!(not(feature = "zookeeper-async")) && driver == DriverKind::ZookeeperAsync {
            continue;
        }
        changes_of(driver, &mut events).await;
    }
}

async fn changes_of(driver: DriverKind, events: &mut Events) {
    let server = || Ensemble::builder().servers(1).tick_time(TICK);
    let first = server().start().await.unwrap();
    // Knows neither the sessions of the first one nor the credentials.
    let stranger =
        server().jvm_flag("-Dzookeeper.DigestAuthenticationProvider.enabled=false").start().await.unwrap();
    let proxy = Proxy::start_many(vec![first.addresses()[0], stranger.addresses()[0]]).await.unwrap();
    let session = builder(driver, proxy.addr())
        .name("observed")
        .name("observed")
        .auth("digest", "operator:hunter2")
        .connect()
        .await
        .unwrap();
    let epoch = |n| move |state: &SessionState| *state == SessionState::Active { epoch: Epoch(n) };
    wait_state(&session, "active", epoch(1)).await;
    events.expect("made", &["state=active epoch=1 reason=a new session was made"]);

    proxy.refuse(true).await.unwrap();
    proxy.cut().await;
    wait_state(&session, "paused", |state| matches!(state, SessionState::Paused { .. })).await;
    events.expect("a lost connection", &["state=paused epoch=1 reason=the connection was lost: "]);
    proxy.refuse(false).await.unwrap();
    wait_state(&session, "active again", epoch(1)).await;
    events.expect("the connection is back", &["state=active epoch=1 reason=ZooKeeper answers again"]);

    // Nothing comes through, and nothing says so.
    proxy.black_hole(true);
    let over = |state: &SessionState| matches!(state, SessionState::Inactive { .. });
    let state = wait_state(&session, "over", over).await;
    assert_eq!(state, SessionState::Inactive { reason: InactiveReason::DeadlinePassed });
    events.expect(
        "a dead link",
        &[
            // Each driver notices by itself, before a heartbeat has failed.
            "state=paused epoch=1 reason=the connection was lost: *silent for",
            "state=inactive reason=no answer for a whole session timeout",
        ],
    );
    proxy.cut().await;
    proxy.black_hole(false);
    wait_state(&session, "a new session", epoch(2)).await;
    events.expect("made anew", &["state=active epoch=2 reason=a new session was made"]);

    // A server that is behind what a session has seen would only send it away.
    let ahead = builder(driver, stranger.addresses()[0]).name("observed").connect().await.unwrap();
    for _ in 0..200 {
        ahead.barrier().await.unwrap();
    }
    ahead.close(PATIENCE).await;
    events.next();
    first.kill(0).await.unwrap();
    proxy.cut().await;
    let refused = |state: &SessionState| {
        matches!(state, SessionState::Inactive { reason: InactiveReason::AuthFailed { .. } })
    };
    wait_state(&session, "refused", refused).await;
    events.expect(
        "a server that has expired it, and refuses the credentials",
        &[
            "state=paused epoch=2 reason=the connection was lost: ",
            "state=inactive reason=the servers have expired the session",
            "state=inactive reason=",
        ],
    );
    assert_eq!(session.close(PATIENCE).await, CloseOutcome::Unknown);
    events.expect("closed", &["state=closed reason=closed by this process"]);
    events.log.assert_without("hunter2");
}
