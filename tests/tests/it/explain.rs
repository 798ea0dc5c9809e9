//! The predictions of `simulate` come true: a lost site, another policy.

use std::time::Duration;

use e2e::{Cluster, Driver, SOON, Setup, wait_for};
use serde_json::Value;

e2e::with_both_drivers!(a_site_that_is_lost_is_followed_as_simulated, a_quiet_time_is_explained_and_kept,);

/// Session timeout + 2 s, twice, for a busy machine.
const MOVED_WITHIN: Duration = Duration::from_secs(16);

async fn a_site_that_is_lost_is_followed_as_simulated(driver: Driver) {
    let mut cluster = Cluster::of(Setup::new(driver)).await;
    let first = cluster.settled().await;
    assert_eq!(first.site, "east");
    cluster.acts(first.token).await;

    let told = cluster.operator().json(&["simulate", "--without-site", "east"]).await;
    let slot = &told["slots"][0];
    assert_eq!(slot["leads"]["member"], first.member.as_str(), "{told:#}");
    let explained = cluster.operator().json(&["explain"]).await;
    let ranked: Vec<_> =
        explained["slots"][0]["candidates"].as_array().unwrap().iter().map(|c| &c["rank"]).collect();
    assert_eq!(ranked, (1..=cluster.workers().len()).collect::<Vec<_>>(), "{explained:#}");

    cluster.site("east").for_each(|worker| worker.kill());
    let second = cluster.successor_of(&first, MOVED_WITHIN).await;
    assert_eq!(slot["would_lead"]["member"], second.member.as_str(), "{told:#}");
    let elected = cluster.znodes().await.decision("orders").await;
    assert_eq!(slot["decisions"][0]["cause"], elected["cause"], "{elected:#}");
    wait_for("the sentence in the history", SOON, async || {
        let history = cluster.operator().json(&["history"]).await;
        let last = history["leaderships"].as_array().and_then(|all| all.last()).unwrap();
        if last["sentence"] == elected["sentence"] { Ok(()) } else { Err(format!("{history:#}")) }
    })
    .await;

    // The predicted elector is the present one.
    wait_for("the elector that was foretold", SOON, async || {
        let list = cluster.operator().json(&["list"]).await;
        if list["elector"] == told["elector_then"] { Ok(()) } else { Err(format!("{list:#}")) }
    })
    .await;
    cluster.acts(second.token).await;
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

async fn a_quiet_time_is_explained_and_kept(driver: Driver) {
    let setup = Setup::new(driver)
        .set("policy.auto_moves", "all")
        .set("policy.failback_after", "3s")
        .set("policy.min_tenure", "1s");
    let mut cluster = Cluster::of(setup.workers(&[("east-1", "east"), ("west-1", "west")])).await;
    let first = cluster.settled().await;
    assert_eq!(first.member, "east-1");
    cluster.worker("east-1").kill();
    let second = cluster.successor_of(&first, MOVED_WITHIN).await;
    assert_eq!(second.member, "west-1");
    let quiet = cluster.operator().json(&["explain"]).await;
    assert_eq!(quiet["slots"][0]["proposal"], Value::Null, "{quiet:#}");

    cluster.worker("east-1").start();
    // The next decision and its latest time are shown.
    let mut promised = Value::Null;
    wait_for("a better candidate", SOON, async || {
        let explained = cluster.operator().json(&["explain"]).await;
        promised = explained["slots"][0].clone();
        if promised["proposal"]["named"]["member"] == "east-1" {
            Ok(())
        } else {
            Err(format!("{explained:#}"))
        }
    })
    .await;
    let obstacles = promised["obstacles"].as_array().unwrap();
    assert!(obstacles.iter().all(|o| o["until_ms"].is_u64()), "it goes by itself: {promised:#}");
    let third = cluster.leader_is("east-1 again", MOVED_WITHIN, |leader| leader.token > second.token).await;
    assert_eq!(third.member, "east-1");
    let elected = cluster.znodes().await.decision("orders").await;
    assert_eq!(elected["cause"], promised["proposal"]["cause"], "{elected:#}");
    assert_eq!(elected["sentence"], promised["proposal"]["sentence"], "the very sentence");
    // Not before the waiting time in the records has passed.
    let decided = elected["decided_at_ms"].as_u64().unwrap();
    for obstacle in obstacles.iter().filter(|o| o["bound"] != "latest") {
        assert!(obstacle["until_ms"].as_u64().unwrap() <= decided, "{obstacle} {elected:#}");
    }
    cluster.acts(third.token).await;
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}
