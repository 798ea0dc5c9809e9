//! A server that is cut off from its ensemble and goes on talking to its clients: connected, and wrong.
//!
//! This is how leaders of other systems came to be two (Curator's CURATOR-444): the cut-off follower answers reads and
//! pings until `syncLimit` ticks have passed, while the ensemble's leader expires the session after its timeout.

use std::time::Duration;

use crate::common::three::three_servers;
use crate::common::{TIMEOUT, builder, soon, wait_for, wait_state};
use zk_session::{BootTime, CreateMode, DriverKind, SessionState, sleep_until};
use zk_testkit::Proxy;

on_each_server!(
    a_lease_ends_before_the_rest_of_the_ensemble_expires_the_session,
    the_first_lease_of_an_idle_session_ends_before_the_rest_of_the_ensemble_expires_it,
);

async fn a_lease_ends_before_the_rest_of_the_ensemble_expires_the_session(driver: DriverKind) {
    cut_off(driver, 1, Duration::ZERO).await;
}

/// Probes alone have touched the sessions before their first heartbeat. Their last ones are of different ages.
async fn the_first_lease_of_an_idle_session_ends_before_the_rest_of_the_ensemble_expires_it(
    driver: DriverKind,
) {
    cut_off(driver, 8, TIMEOUT).await;
}

/// The sessions are idle for a while, and lose the ensemble once each has a lease.
async fn cut_off(driver: DriverKind, count: u32, idle: Duration) {
    // The follower believes in its connection for five times the session timeout.
    let servers = three_servers(40).await;
    let leader = servers.leader().await.expect("a leader");
    let follower = (leader + 1) % 3;
    let addresses = servers.addresses();
    let proxy = Proxy::start(addresses[follower]).await.unwrap();
    let observer = builder(DriverKind::default(), addresses[leader]).connect().await.unwrap();
    let mut sessions = Vec::new();
    for nth in 0..count {
        let session = builder(driver, proxy.addr()).connect().await.unwrap();
        let path = format!("/leader-{nth}");
        session.create(&path, "", CreateMode::Ephemeral).await.unwrap();
        let mut gone = observer.watch_data(path.as_str());
        observer.barrier().await.unwrap();
        assert!(gone.next().await.unwrap().value.is_some());
        sessions.push((session, gone));
        sleep_until(BootTime::now() + idle / count).await;
    }
    sleep_until(BootTime::now() + idle).await;
    let keepers: Vec<_> = sessions.iter().map(|(session, _)| session.keep_lease()).collect();
    for keeper in &keepers {
        wait_for(&mut keeper.subscribe(), "a lease", Option::is_some).await;
    }

    servers.isolate(follower).unwrap();
    let cut = BootTime::now();
    // A lease that had ended before would show nothing.
    for keeper in &keepers {
        assert!(keeper.lease().is_some_and(|lease| lease.is_valid_at(cut)), "{:?}", keeper.lease());
    }
    let mut ends = tokio::task::JoinSet::new();
    for ((session, mut gone), keeper) in sessions.into_iter().zip(keepers) {
        ends.spawn(async move {
            let expiry = tokio::spawn(async move {
                while gone.next().await.unwrap().value.is_some() {}
                BootTime::now()
            });
            let end = soon("the end of the lease", async {
                while keeper.lease().is_some_and(|lease| lease.is_valid_at(BootTime::now())) {
                    sleep_until(BootTime::now() + Duration::from_millis(5)).await;
                }
                BootTime::now()
            })
            .await;
            assert!(
                end.duration_since(cut) < TIMEOUT,
                "it ended {:?} after the cut",
                end.duration_since(cut)
            );
            let expired = soon("the expiry", expiry).await.unwrap();
            let late = end.duration_since(expired);
            assert!(end < expired, "the lease ended {late:?} after the successor could act");
            // By then this side has given the session up, although the follower still talked to it.
            wait_state(&session, "inactive", |state| matches!(state, SessionState::Inactive { .. })).await;
        });
    }
    while let Some(ended) = ends.join_next().await {
        ended.unwrap();
    }
}
