//! Leadership that moves before the session of a lost worker has ended, and where it must not.
#![allow(clippy::unwrap_used, reason = "a test says what failed by panicking")]

use std::time::Duration;

use e2e::{Cluster, Driver, SOON, Setup, wait_for};
use zk_session::BootTime;

e2e::with_both_drivers!(
    a_lost_worker_is_replaced_before_its_session_ends,
    where_the_job_is_not_fenced_the_session_ends_first,
);

/// As long as these servers grant, so that who waits for it is told from who does not.
const SESSION: &str = "10s";
/// For a busy machine; what is claimed is told by the znodes, not by the time.
const MOVED_WITHIN: Duration = Duration::from_secs(40);

fn setup(driver: Driver) -> Setup {
    Setup::new(driver)
        .workers(&[("east-1", "east"), ("east-2", "east"), ("west-1", "west")])
        .set("zookeeper.session_timeout", SESSION)
        .set("policy.fast_failover", true)
        .set("policy.suspect_after", "400ms")
}

/// Waits until the elector has all three in its records, so that each can be a witness.
async fn all_stand(cluster: &Cluster) {
    wait_for("three members", SOON, async || {
        let names = cluster.znodes().await.children("orders/nodes").await.unwrap_or_default();
        if names.len() == 3 { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
}

async fn a_lost_worker_is_replaced_before_its_session_ends(driver: Driver) {
    let mut cluster = Cluster::of(setup(driver)).await;
    let first = cluster.settled().await;
    all_stand(&cluster).await;
    let lost = BootTime::now();
    cluster.worker(&first.member).kill();
    let second = cluster.successor_of(&first, MOVED_WITHIN).await;
    println!("{driver}: {} leads {:?} after SIGKILL", second.member, BootTime::now().duration_since(lost));
    let node = format!("orders/nodes/{}", first.member);
    assert!(
        cluster.znodes().await.get(&node).await.is_some(),
        "the session of {} had ended, so this was no fast failover",
        first.member
    );
    let elected = cluster.znodes().await.json("orders/leader/elected").await;
    assert_eq!(elected["cause"], "suspected", "{elected:#}");
    assert!(second.token > first.token);
    assert_eq!(second.site, "west");
    cluster.acts(second.token).await;
    // What was suspected comes back as somebody else, who is fit again.
    cluster.worker(&first.member).start();
    cluster.standing_by(2).await;
    assert_eq!(cluster.leader().await.expect("a leader").token, second.token);
    cluster.end().await;
}

async fn where_the_job_is_not_fenced_the_session_ends_first(driver: Driver) {
    let mut cluster = Cluster::of(setup(driver).set("job.orders.fenced", false)).await;
    let first = cluster.settled().await;
    all_stand(&cluster).await;
    cluster.worker(&first.member).kill();
    let second = cluster.successor_of(&first, MOVED_WITHIN).await;
    let elected = cluster.znodes().await.json("orders/leader/elected").await;
    assert_eq!(elected["cause"], "leader-lost", "{elected:#}");
    assert!(second.token > first.token);
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}
