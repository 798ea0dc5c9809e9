//! `before_stop` that fails calls off a planned move, and a restart of the job. Nothing else waits for it.

use std::fs;

use serde_json::{Value, json};

use crate::support::{
    Running,
    stage::{Stage, leads, successors},
    until,
};

/// What stays the same while a member leads on.
fn leadership(worker: &Running) -> Value {
    let body = worker.http("GET", "/status").1;
    let job = serde_json::from_str::<Value>(&body).expect("JSON")["jobs"]["orders"].clone();
    json!([job["role"], job["term"], job["fencing_token"], job["process"]["pid"]])
}

#[test]
fn before_stop_that_fails_calls_a_planned_move_off() {
    let stage = Stage::new("/called-off");
    let (busy, record) = (stage.dir.path().join("busy"), stage.dir.path().join("record"));
    let script = format!("echo $DR_REASON >> {}; test ! -e {} || exit 3", record.display(), busy.display());
    let hook = format!("job.orders.hooks.before_stop={{command={}}}", json!(["/bin/sh", "-c", script]));
    let runs = |of: &str| {
        let record = fs::read_to_string(&record).unwrap_or_default();
        record.lines().filter(|reason| reason.contains(of)).count()
    };
    let settings = [hook.as_str(), "policy.min_tenure=0s", "policy.exclusion=2s"];
    let east = stage.worker("east-1", "east", &settings);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &settings);
    let in_line = |member: &str| successors(&stage.json(&["list"])) == json!([member]);
    until("west-1 is in line", || in_line("west-1"));
    let before = leadership(&east);

    fs::write(&busy, "").expect("a file");
    let called_off = ["called off: before_stop failed (exit code 3)"];
    for before_it in 0..2 {
        assert_eq!(runs("switchover"), before_it);
        stage.operator(&["switchover", "--to-site", "west", "--wait"]).assert(1, &called_off);
        assert!(leads(&east));
        assert_eq!(leadership(&east), before);
    }
    stage.operator(&["restart", "--wait"]).assert(1, &called_off);
    assert_eq!((leadership(&east), runs("start again")), (before.clone(), 1));
    until("west-1 is in line", || in_line("west-1"));

    // A drain tries it again, after a pause.
    stage.operator(&["drain", "east"]).assert(0, &[]);
    until("the drain is called off twice", || runs("drained") >= 2);
    until("it waits", || east.http("GET", "/status").1.contains("it is tried again after"));
    assert_eq!(leadership(&east), before);
    stage.operator(&["drain", "east", "--off"]).assert(0, &[]);
    // After this one the elector has noticed.
    stage.operator(&["switchover", "--to-site", "west", "--wait"]).assert(1, &called_off);

    // The hook runs once for a move that it does not call off.
    fs::remove_file(&busy).expect("it exists");
    until("west-1 is in line", || in_line("west-1"));
    stage.operator(&["switchover", "--to-site", "west", "--wait"]).assert(0, &[]);
    until("west-1 leads", || leads(&west));
    assert_eq!(runs("switchover"), 4);
    until("east-1 is in line", || in_line("east-1"));

    // A failover is not called off.
    fs::write(&busy, "").expect("a file");
    stage.operator(&["failover", "--to-site", "east", "--wait"]).assert(0, &[]);
    until("east-1 leads", || leads(&east));
}
