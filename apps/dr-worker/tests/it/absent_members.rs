//! A member that is lost or has stopped is shown as absent for a day, with the time and the cause.

use crate::support::{
    stage::{Stage, leads, successors},
    until,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// The absent members, as `list` shows them: id, and whether it stopped by itself.
fn absent(stage: &Stage) -> Vec<(Value, Value)> {
    let list = stage.json(&["list"]);
    let all = list["absent"].as_array().cloned().unwrap_or_default();
    assert!(all.iter().all(|one| one["site"].is_string()), "{list:#}");
    // Before an elector has noticed it, the time is not known.
    let noticed = all.iter().filter(|one| one["since_ms"].is_u64());
    noticed.map(|one| (one["member"].clone(), one["stopped"].clone())).collect()
}

fn lost(member: &str) -> (Value, Value) {
    (json!(member), json!(false))
}

fn stopped(member: &str) -> (Value, Value) {
    (json!(member), json!(true))
}

#[test]
fn a_lost_member_is_absent_and_not_unknown() {
    let stage = Stage::new("/absent");
    let quick = ["zookeeper.session_timeout=4s"];
    let mut east = stage.worker("east-1", "east", &quick);
    until("east-1 leads", || leads(&east));
    let mut west = stage.worker("west-1", "west", &quick);
    let other = stage.worker("west-2", "west", &quick);
    until("both are in line", || successors(&stage.json(&["list"])) == json!(["west-1", "west-2"]));
    // The elector's worker has listed them: from now on each is known if it is lost, whoever is the elector.
    until("the roster is complete", || {
        Stage::with_session(async |session| {
            let roster = session.get("/absent/orders/roster").await.expect("an answer");
            let text =
                roster.map(|node| String::from_utf8_lossy(&node.data).into_owned()).unwrap_or_default();
            ["east-1", "west-1", "west-2"].iter().all(|member| text.contains(member))
        })
    });
    assert_eq!(absent(&stage), []);

    west.kill_with_guards();
    until("west-1 is absent", || absent(&stage) == [lost("west-1")]);
    let shown = stage.operator(&["list"]).stdout;
    let row = shown.lines().find(|line| line.starts_with("west-1")).unwrap_or_default();
    assert!(row.contains("west") && row.contains("absent") && row.contains("not connected for "), "{shown}");
    let cluster: Value = serde_json::from_str(&east.http("GET", "/cluster").1).expect("JSON");
    assert_eq!(cluster["absent"], stage.json(&["list"])["absent"]);
    for verb in ["switchover", "failover"] {
        let refused = stage.operator(&[verb, "--to", "west-1"]);
        refused.assert(75, &["orders: west-1 is absent: not connected for ", ", since 2"]);
        stage
            .operator(&[verb, "--to", "west-9"])
            .assert(64, &["unknown member west-9; members: east-1, west-2"]);
    }
    stage.operator(&["can-restart", "west-1"]).assert(75, &["west-1 is absent: not connected for "]);
    // Such a node may be serviced.
    let serviced = stage.json(&["maintenance", "west-1"]);
    assert_eq!(serviced["maintenance"][0]["site"], "west");
    stage.operator(&["maintenance", "west-1", "--off"]).assert(0, &[]);

    // The elector itself is lost: its successor knows it, and what it had noticed.
    east.kill_with_guards();
    until("west-2 leads", || leads(&other));
    until("both are absent", || absent(&stage) == [lost("east-1"), lost("west-1")]);

    // Who returns is not absent, and one that stops by itself says so.
    let mut east = stage.worker("east-1", "east", &quick);
    until("east-1 is back", || absent(&stage) == [lost("west-1")] && east.code("/standby") == 200);
    east.signal(Signal::SIGTERM);
    assert!(east.ended().success());
    until("east-1 has stopped", || absent(&stage) == [stopped("east-1"), lost("west-1")]);
    stage
        .operator(&["switchover", "--to", "east-1"])
        .assert(75, &["east-1 is absent: stopped ", " ago, at 2"]);
}
