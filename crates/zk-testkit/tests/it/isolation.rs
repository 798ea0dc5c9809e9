//! A server cut off from the others, seen from both sides.

use std::time::{Duration, Instant};

use crate::support::RawClient;
use tokio::time::timeout;
use zk_testkit::{Ensemble, EnsembleBuilder, Error, Network};

const TICK: Duration = Duration::from_millis(200);
/// In ticks: four seconds.
const SYNC_LIMIT: u32 = 20;
const SOON: Duration = Duration::from_secs(30);
/// For what must not come.
const A_WHILE: Duration = Duration::from_millis(500);

#[tokio::test]
async fn an_isolated_follower_answers_reads_and_takes_no_writes() {
    let test = answers_reads_and_takes_no_writes(
        Ensemble::builder().with(|settings| settings.breakable_links = true),
    );
    timeout(4 * SOON, test).await.expect("nothing hangs");
}

#[tokio::test]
async fn so_does_one_in_a_namespace() {
    if Network::available_or_skip() {
        let test = answers_reads_and_takes_no_writes(Ensemble::builder().in_namespaces(true));
        timeout(4 * SOON, test).await.expect("nothing hangs");
    }
}

async fn answers_reads_and_takes_no_writes(builder: EnsembleBuilder) {
    let ensemble = builder.servers(3).tick_time(TICK).sync_limit(SYNC_LIMIT).start().await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    let follower = (0..3).find(|index| *index != leader).unwrap();
    let address = |index: usize| ensemble.server(index).address();
    let mut inside = RawClient::connect(address(leader)).await.unwrap();
    let mut outside = RawClient::connect(address(follower)).await.unwrap();
    assert_eq!(outside.create("/before").await.unwrap().error, 0);

    let isolated = Instant::now();
    ensemble.faults().isolate(follower).unwrap();
    assert_eq!(inside.create("/after").await.unwrap().error, 0);
    outside.ping().await.unwrap();
    assert!(outside.exists("/before").await.unwrap());
    assert!(!outside.exists("/after").await.unwrap(), "it heard of a write by the others");
    let xid = outside.send_create("/by-the-isolated").await.unwrap();
    assert!(timeout(A_WHILE, outside.reply_to(xid)).await.is_err());
    assert!(!inside.exists("/by-the-isolated").await.unwrap());

    // It serves until syncLimit has passed, not longer.
    while ensemble.mode(follower).await.is_some() {
        assert!(isolated.elapsed() < SOON, "it serves for ever");
    }
    let served = isolated.elapsed();
    assert!(served > TICK * SYNC_LIMIT / 2, "it stopped serving after {served:?} already");
    assert_eq!(ensemble.leader().await, Some(leader));

    ensemble.faults().rejoin(follower).unwrap();
    ensemble.wait_serving(SOON).await.unwrap();
    let mut again = RawClient::connect(address(follower)).await.unwrap();
    assert!(again.exists("/after").await.unwrap());
}

#[tokio::test]
async fn without_either_nothing_can_be_cut() {
    let ensemble = Ensemble::start(1).await.unwrap();
    for refused in [ensemble.faults().isolate(0), ensemble.faults().unplug(0), ensemble.faults().rejoin(0)] {
        assert!(matches!(refused, Err(Error::Settings(what)) if what.contains("in_namespaces")));
    }
}
