//! The configuration in ZooKeeper: pushed, applied by all members, refused, and reverted.

use std::path::PathBuf;

use e2e::{Cluster, Driver, JOB, SOON, Setup, wait_for};
use serde_json::{Value, json};

e2e::with_both_drivers!(
    a_pushed_policy_is_applied_without_a_restart_and_an_environment_with_one,
    an_overlay_that_members_can_not_apply_changes_nothing,
);

fn file(cluster: &Cluster, name: &str, text: &str) -> (PathBuf, String) {
    let path = cluster.dir().join(name);
    std::fs::write(&path, text).unwrap();
    let shown = path.display().to_string();
    (path, shown)
}

/// Waits until each member reports that it applies this version, and refuses that one.
async fn applied(cluster: &Cluster, version: u64, refused: Option<u64>) -> Value {
    wait_for(&format!("version {version} on all members"), SOON, async || {
        let history = cluster.operator().json(&["config", "history", "--job", JOB]).await;
        let members = history["members"].as_array().unwrap();
        let is_it =
            |member: &Value| member["version"] == version && member["refused"]["version"].as_u64() == refused;
        if members.len() == 2 && members.iter().all(is_it) {
            Ok(history)
        } else {
            Err(format!("{history:#}"))
        }
    })
    .await
}

fn setup(driver: Driver) -> Setup {
    Setup::new(driver)
        .workers(&[("east-1", "east"), ("west-1", "west")])
        .set("policy.auto_moves", "all")
        .set("policy.failback_after", "0s")
        .set("policy.min_tenure", "0s")
        .set("zookeeper.overlay", "all")
}

async fn a_pushed_policy_is_applied_without_a_restart_and_an_environment_with_one(driver: Driver) {
    let mut cluster = Cluster::of(setup(driver)).await;
    let first = cluster.settled().await;
    assert_eq!(first.member, "east-1");

    // A policy: the job runs on.
    let (_, policy) = file(&cluster, "policy.toml", "[policy]\nmin_tenure = \"7s\"\n");
    cluster.operator().json(&["config", "push", &policy, "--job", JOB, "--reason", "slower"]).await;
    let history = applied(&cluster, 1, None).await;
    assert_eq!(
        (&history["versions"][0]["reason"], &history["versions"][0]["version"]),
        (&json!("slower"), &json!(1))
    );
    assert_eq!(cluster.leader().await.unwrap(), first, "the job runs on");

    // The environment: it is restarted, and leadership stays.
    let text = "env = { FROM = \"zookeeper\" }\n[policy]\nmin_tenure = \"7s\"\n";
    let (_, env) = file(&cluster, "env.toml", text);
    let diff = cluster.operator().json(&["config", "diff", &env, "--job", JOB]).await;
    assert_eq!(
        diff["changes"],
        json!([{ "key": "env.FROM", "from": null, "to": "\"zookeeper\"", "effect": "job-restart" }])
    );
    assert_eq!(diff["restarts"], json!(["east-1"]));
    cluster.operator().json(&["config", "push", &env, "--job", JOB]).await;
    applied(&cluster, 2, None).await;
    let second = cluster
        .leader_is("with another process", SOON, |leader| leader.pid.is_some() && leader.pid != first.pid)
        .await;
    assert_eq!((second.token, second.restarts), (first.token, 0));
    let environment = std::fs::read(format!("/proc/{}/environ", second.pid.unwrap())).unwrap();
    assert!(String::from_utf8_lossy(&environment).contains("\0FROM=zookeeper\0"));
    let pulled = cluster.operator().done(&["config", "pull", "--job", JOB]).await;
    assert_eq!(pulled.stdout, text);

    // A policy again, by revert: without `env` the job is restarted once more.
    cluster.operator().json(&["config", "revert", "--job", JOB]).await;
    let history = applied(&cluster, 3, None).await;
    assert_eq!(history["versions"][2]["text"], history["versions"][0]["text"]);
    cluster
        .leader_is("with another process", SOON, |leader| leader.pid.is_some() && leader.pid != second.pid)
        .await;

    // Another order of sites moves leadership.
    let (_, sites) = file(&cluster, "sites.toml", "[policy]\nsites = [\"west\", \"east\"]\n");
    cluster.operator().json(&["config", "push", &sites, "--job", JOB]).await;
    applied(&cluster, 4, None).await;
    cluster.leader_is("in the west", SOON, |leader| leader.member == "west-1").await;

    // A worker that starts later has it from the beginning.
    cluster.worker("east-1").ask_to_end();
    wait_for("the end of east-1", SOON, async || {
        cluster.worker("east-1").ended().map(drop).ok_or_else(|| "it runs".to_owned())
    })
    .await;
    cluster.worker("east-1").start();
    cluster.standing_by(1).await;
    applied(&cluster, 4, None).await;
    cluster.end().await;
}

async fn an_overlay_that_members_can_not_apply_changes_nothing(driver: Driver) {
    // The members accept less than the operator's configuration says.
    let setup = setup(driver).set_for("east-1", "zookeeper.overlay", "safe").set_for(
        "west-1",
        "zookeeper.overlay",
        "safe",
    );
    let mut cluster = Cluster::of(setup).await;
    let first = cluster.settled().await;

    // Refused here, with file, key and reason.
    for (text, words) in [
        ("restart = { often = 3 }\n", &["bad.toml:1:13", "job.orders.restart.often", "unknown key"][..]),
        ("user = \"root\"\n", &["bad.toml:1:1", "job.orders.user", "each node decides"]),
        ("recipe = \"queue\"\n", &["bad.toml:1:1", "job.orders.recipe", "restart of the worker"]),
        ("stop_timeout = \"1h\"\n", &["bad.toml:1:16", "job.orders.stop_timeout"]),
        ("[policy\n", &["bad.toml:1:8", "not valid TOML"]),
    ] {
        let (_, bad) = file(&cluster, "bad.toml", text);
        cluster
            .operator()
            .run(&["config", "push", &bad, "--job", JOB])
            .await
            .with_code(78)
            .complains_of(words);
    }
    let history = cluster.operator().json(&["config", "history", "--job", JOB]).await;
    assert_eq!(history["versions"], json!([]));

    let (_, good) = file(&cluster, "good.toml", "restart = { max = 7 }\n");
    cluster.operator().json(&["config", "push", &good, "--job", JOB]).await;
    applied(&cluster, 1, None).await;
    let (_, bad) = file(&cluster, "bad.toml", "restart = { max = 8 }\nenv = { FROM = \"zookeeper\" }\n");
    cluster.operator().json(&["config", "push", &bad, "--job", JOB]).await;
    let history = applied(&cluster, 1, Some(2)).await;
    let reason = history["members"][0]["refused"]["reason"].as_str().unwrap();
    assert!(reason.contains("zookeeper.overlay") && reason.contains("job.orders.env"), "{reason}");
    assert_eq!(cluster.leader().await.unwrap(), first);
    let list = cluster.operator().json(&["list", "--job", JOB]).await;
    let problems = list["problems"].as_array().unwrap();
    assert!(problems.iter().any(|problem| problem["kind"] == "refused-config"), "{list:#}");
    let refused = cluster.worker("east-1").counted("dr_config_refused", "job=\"orders\"").await;
    assert_eq!(refused, 1);

    // What follows is judged by what is in force, and not by what was refused.
    let back = cluster.operator().run(&["config", "diff", &good, "--job", JOB]).await;
    back.with_code(0).complains_of(&["east-1 has version 1 in force, not", "orders is not restarted"]);

    // Somebody else's version in between is not overwritten.
    let stale = ["config", "push", &good, "--job", JOB, "--replaces", "1"];
    cluster.operator().run(&stale).await.with_code(75).complains_of(&["version 2"]);
    cluster.operator().json(&["config", "revert", "1", "--job", JOB]).await;
    applied(&cluster, 3, None).await;
    // None.
    cluster.operator().json(&["config", "revert", "0", "--job", JOB]).await;
    applied(&cluster, 4, None).await;
    assert_eq!(cluster.leader().await.unwrap(), first);
    cluster.end().await;
}
