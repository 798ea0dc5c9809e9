//! Znodes with invalid data: they are reported with their paths and ignored, and no process stops for them.

use e2e::{Cluster, Driver, JOB, SOON, Said, wait_for};
use serde_json::Value;

e2e::with_both_drivers!(
    a_spoiled_decision_is_named_and_obeyed_again_once_it_is_mended,
    spoiled_standing_orders_are_named_and_obeyed_again_once_they_are_mended,
    a_spoiled_record_takes_its_member_out_and_nobody_else,
);

const GARBAGE: &[u8] = b"\x00not json{";

async fn list(cluster: &Cluster) -> Value {
    cluster.operator().json(&["list", "--job", JOB]).await
}

/// The unreadable znodes, by path.
fn unreadable(list: &Value) -> Vec<&str> {
    list["unreadable"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap()).collect()
}

async fn named_by_list(cluster: &Cluster, path: &str) {
    let path = cluster.znodes().await.path(path);
    let shown = list(cluster).await;
    assert_eq!(unreadable(&shown), [path.as_str()], "{shown:#}");
    // The text output reports it too, and still has everything else.
    let said = cluster.operator().done(&["list"]).await;
    said.complains_of(&["warning", &path]);
    assert!(said.stdout.contains("east-1"), "{said:?}");
}

/// Waits until the elector reports why it decides nothing.
async fn elector_says(cluster: &mut Cluster, path: &str) {
    let path = cluster.znodes().await.path(path);
    wait_for(&format!("an elector that names {path}"), SOON, async || {
        let statuses = cluster.statuses().await;
        let notes: Vec<_> = statuses.iter().map(|(_, status)| status["jobs"][JOB]["note"].clone()).collect();
        let says = notes.iter().any(|note| note.as_str().is_some_and(|note| note.contains(&path)));
        if says { Ok(()) } else { Err(format!("{notes:?}")) }
    })
    .await;
}

/// Moves leadership, which proves that all members still take part.
async fn still_moves(cluster: &mut Cluster) {
    let before = cluster.leader().await.unwrap();
    let target = if before.site == "east" { "west" } else { "east" };
    let _: Said = cluster.operator().done(&["switchover", "--to-site", target, "--wait"]).await;
    let after = cluster.successor_of(&before, SOON).await;
    assert_eq!(after.site, target);
    cluster.acts(after.token).await;
    cluster.standing_by(3).await;
}

async fn a_spoiled_decision_is_named_and_obeyed_again_once_it_is_mended(driver: Driver) {
    let mut cluster = Cluster::start(driver).await;
    let leader = cluster.settled().await;
    let znodes = cluster.znodes().await.clone();
    let path = format!("{JOB}/leader/elected");
    let sound = znodes.get(&path).await.unwrap();

    znodes.put(&path, GARBAGE).await;
    named_by_list(&cluster, &path).await;
    elector_says(&mut cluster, &path).await;
    assert_eq!(cluster.leader().await.unwrap(), leader, "the leader leads on");

    znodes.put(&path, &sound).await;
    assert_eq!(unreadable(&list(&cluster).await), Vec::<&str>::new());
    still_moves(&mut cluster).await;
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

async fn spoiled_standing_orders_are_named_and_obeyed_again_once_they_are_mended(driver: Driver) {
    let mut cluster = Cluster::start(driver).await;
    let leader = cluster.settled().await;
    let znodes = cluster.znodes().await.clone();
    let path = format!("{JOB}/control");

    znodes.put(&path, GARBAGE).await;
    named_by_list(&cluster, &path).await;
    elector_says(&mut cluster, &path).await;
    assert_eq!(cluster.leader().await.unwrap(), leader, "the leader leads on");

    // The standing orders might have forbidden it, so nothing is decided, and a request is no error. A command that
    // ends cancels its request, and one that does not wait leaves it for a minute.
    let verb = ["switchover", "--to-site", "west", "--wait", "--timeout", "2s"];
    cluster.operator().run(&verb).await.with_code(75).complains_of(&["was withdrawn"]);
    cluster.operator().done(&verb[..3]).await;
    assert_eq!(cluster.leader().await.unwrap(), leader, "the leader leads on");

    // After the repair, the pending request is carried out.
    znodes.put(&path, br#"{"v":1,"mode":"auto"}"#).await;
    let second = cluster.successor_of(&leader, SOON).await;
    assert_eq!(second.site, "west");
    assert_eq!(unreadable(&list(&cluster).await), Vec::<&str>::new());
    cluster.standing_by(3).await;
    still_moves(&mut cluster).await;
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

async fn a_spoiled_record_takes_its_member_out_and_nobody_else(driver: Driver) {
    let mut cluster = Cluster::start(driver).await;
    cluster.settled().await;
    let znodes = cluster.znodes().await.clone();

    // A record without an owner: of an older version, or an operator's mistake.
    let ghost = format!("{JOB}/nodes/ghost");
    znodes.put(&ghost, GARBAGE).await;
    named_by_list(&cluster, &ghost).await;
    let members = list(&cluster).await["members"].as_array().unwrap().len();
    assert_eq!(members, 4, "the ghost is none");
    still_moves(&mut cluster).await;
    znodes.delete(&ghost).await;
    assert_eq!(unreadable(&list(&cluster).await), Vec::<&str>::new());

    // A living member rewrites its own record.
    let spoiled = format!("{JOB}/nodes/west-2");
    znodes.put(&spoiled, GARBAGE).await;
    wait_for("a record that its member has mended", SOON, async || {
        let shown = list(&cluster).await;
        let mended = unreadable(&shown).is_empty() && shown["members"].as_array().unwrap().len() == 4;
        if mended { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    assert_eq!(znodes.json(&spoiled).await["member"], "west-2");

    // So does the leader, which keeps leading.
    let leader = cluster.leader().await.unwrap();
    let place = format!("{JOB}/leader/current");
    znodes.put(&place, GARBAGE).await;
    wait_for("a place that its leader has mended", SOON, async || {
        let shown = list(&cluster).await;
        let mended = unreadable(&shown).is_empty() && shown["slots"][0]["leader"]["status"] == "READY";
        if mended { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    assert_eq!(cluster.leader().await.unwrap(), leader, "the leader leads on");
    still_moves(&mut cluster).await;
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}
