//! Switchovers that are planned for later: they begin at their time, and the elector of that time begins them.

use std::time::{SystemTime, UNIX_EPOCH};

use e2e::{Cluster, Driver, SOON, wait_for};
use serde_json::{Value, json};

/// A request, as `list` shows it.
async fn request(cluster: &Cluster, id: &str) -> Value {
    let list = cluster.operator().json(&["list"]).await;
    let all = list["requests"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|request| request["id"] == id).unwrap_or_default()
}

async fn ended(cluster: &Cluster, id: &str) -> Value {
    wait_for(&format!("the end of request {id}"), SOON, async || {
        let outcome = request(cluster, id).await["outcome"].clone();
        let is_open = ["planned", "pending", "accepted"].map(Value::from).contains(&outcome["state"]);
        if is_open || outcome.is_null() { Err(outcome.to_string()) } else { Ok(outcome) }
    })
    .await
}

/// Plans a switchover; returns the request's id.
async fn plan(cluster: &Cluster, options: &[&str]) -> String {
    let said = cluster.operator().done(&[&["switchover"], options].concat()).await;
    said.complains_of(&["planned for 20", "Z (UTC), in", "dr-worker cancel r-"]);
    said.stdout.trim().to_owned()
}

fn unix_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

#[tokio::test]
async fn a_planned_switchover_begins_at_its_time() {
    let mut cluster = Cluster::start(Driver::Native).await;
    let first = cluster.settled().await;

    // One at most, which `list` shows, and which is in no other's way.
    let far = plan(&cluster, &["--to-site", "west", "--at", "+2h", "--reason", "power work"]).await;
    let shown = request(&cluster, &far).await;
    assert_eq!((&shown["outcome"]["state"], &shown["reason"]), (&json!("planned"), &json!("power work")));
    let listed = cluster.operator().done(&["list"]).await.stdout;
    assert!(listed.contains(&format!("request {far}, switchover to site west: planned for 20")), "{listed}");
    let second = cluster.operator().run(&["switchover", "--at", "+3h"]).await.with_code(75);
    second.complains_of(&[&format!("request {far} is planned already"), &format!("dr-worker cancel {far}")]);
    let other = if first.member == "east-1" { "east-2" } else { "east-1" };
    cluster.operator().done(&["switchover", "--to", other, "--wait"]).await;
    let second = cluster.successor_of(&first, SOON).await;
    assert_eq!(request(&cluster, &far).await["outcome"]["state"], "planned");

    // Withdrawn.
    cluster.operator().done(&["cancel", &far]).await;
    assert_eq!(ended(&cluster, &far).await["state"], "cancelled");

    // Due in two seconds.
    let before = unix_ms();
    let soon = plan(&cluster, &["--to-site", "west", "--at", "+2s"]).await;
    let outcome = ended(&cluster, &soon).await;
    assert_eq!(outcome["state"], "done", "{outcome}");
    let third = cluster.successor_of(&second, SOON).await;
    assert_eq!(third.site, "west");
    let history = cluster.operator().json(&["history"]).await;
    let last = history["leaderships"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
    assert!(last["ready_ms"].as_u64().unwrap() >= before + 2000, "{last:#}");
    assert!(last["sentence"].as_str().unwrap().contains(", planned for 20"), "{last:#}");

    // The checks are made at its time.
    let refused = plan(&cluster, &["--to", &third.member, "--at", "+1s"]).await;
    let outcome = ended(&cluster, &refused).await;
    assert_eq!(outcome["state"], "failed");
    assert!(outcome["reason"].as_str().unwrap().contains("leads already"), "{outcome}");
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

#[tokio::test]
async fn a_planned_switchover_survives_the_elector_and_expires_without_one() {
    let mut cluster = Cluster::start(Driver::Native).await;
    let first = cluster.settled().await;
    let elector = cluster.operator().json(&["list"]).await["elector"].as_str().unwrap().to_owned();
    // If the elector leads, a member of the other site follows it.
    let mut members = ["east-1", "east-2", "west-2"].into_iter();
    let target = members.find(|id| *id != elector && *id != first.member).unwrap();
    let id = plan(&cluster, &["--to", target, "--at", "+3s"]).await;
    // At its time its session still lives, and nothing is decided.
    cluster.worker(&elector).kill_with_guards();
    let outcome = ended(&cluster, &id).await;
    assert_eq!((&outcome["state"], &outcome["leader"]), (&json!("done"), &json!(target)), "{outcome}");
    cluster.leader_is("the target", SOON, |leader| leader.member == target).await;

    // No worker runs at its time: too late, it is not carried out.
    for worker in cluster.workers().iter_mut().filter(|worker| worker.is_started()) {
        worker.kill_with_guards();
    }
    let due = unix_ms() + 1000;
    let id = plan(&cluster, &["--to-site", "east", "--at", "+1s", "--within", "1s"]).await;
    wait_for("its time is over", SOON, async || {
        if unix_ms() > due + 3000 { Ok(()) } else { Err(unix_ms().to_string()) }
    })
    .await;
    cluster.worker("west-1").start();
    let outcome = ended(&cluster, &id).await;
    assert_eq!(outcome["state"], "expired");
    let why = outcome["reason"].as_str().unwrap();
    assert!(why.contains("planned for 20") && why.contains("not begun within 1s of it"), "{outcome}");
    cluster.first_leader().await;
    cluster.end().await;
}
