//! Exit codes of a job that say whether it is started again, with real workers.

use std::fs;

use crate::support::{
    Outcome, Running,
    stage::{Stage, leads, successors},
    until,
};
use serde_json::{Value, json};

fn job(script: &str) -> String {
    format!("job.orders.command={}", json!(["/bin/sh", "-c", script]))
}

fn process(worker: &Running) -> Value {
    job_of(worker)["process"].clone()
}

fn job_of(worker: &Running) -> Value {
    let status: Value = serde_json::from_str(&worker.http("GET", "/status").1).expect("JSON");
    status["jobs"]["orders"].clone()
}

#[test]
fn a_job_that_says_so_stays_down_and_its_member_leads_on() {
    let stage = Stage::new("/stay-down");
    let ran = stage.dir.path().join("ran");
    let (script, codes) =
        (format!("echo x >> {}; exit 3", ran.display()), "job.orders.exit_codes.stay_down=[0, 3]");
    let worker = stage.worker("east-1", "east", &[&job(&script), codes]);
    let _west = stage.worker("west-1", "west", &[]);
    until("it has ended", || process(&worker)["state"] == "exited");
    // The takeover is complete, but no client finds a job there.
    let role =
        || serde_json::from_str::<Value>(&worker.http("GET", "/leader").1).expect("JSON")["role"].clone();
    until("it is READY", || role() == "leader");
    assert!(!leads(&worker), "a job that has failed and stays down serves nobody");
    assert_eq!(job_of(&worker)["serves"], false);
    let ended = process(&worker);
    assert_eq!(
        (&ended["restarts"], &ended["problem"], &ended["pid"]),
        (&0.into(), &"exit code 3".into(), &Value::Null)
    );
    let metrics = worker.http("GET", "/metrics").1;
    let is_shown = |line: &str| line.starts_with("dr_process_state") && line.contains("state=\"exited\"");
    assert!(metrics.lines().any(|line| is_shown(line) && line.ends_with(" 1")), "{metrics}");
    // Another leader starts it.
    until("it is in line", || successors(&stage.json(&["list"])) == json!(["west-1"]));
    stage.operator(&["switchover", "--to", "west-1", "--wait"]).assert(0, &[]);
    assert_eq!(process(&worker)["state"], "stopped");
    assert_eq!(fs::read_to_string(ran).expect("it ran"), "x\n", "once");
}

#[test]
fn a_job_that_has_done_its_work_is_there_for_its_clients() {
    let stage = Stage::new("/done");
    let codes = "job.orders.exit_codes.stay_down=[0, 3]";
    let worker = stage.worker("east-1", "east", &[&job("exit 0"), codes]);
    until("it has ended", || process(&worker)["state"] == "exited");
    until("it leads", || leads(&worker));
    assert_eq!(job_of(&worker)["serves"], true);
}

#[test]
fn a_job_that_waits_for_its_restart_serves_nobody() {
    let stage = Stage::new("/backoff");
    let end = stage.dir.path().join("end");
    let script = format!("while ! [ -e {} ]; do sleep 0.05; done; exit 1", end.display());
    let worker = stage.worker(
        "east-1",
        "east",
        &[&job(&script), "job.orders.restart={ backoff = \"50s\", backoff_max = \"50s\" }"],
    );
    until("it leads", || leads(&worker));
    fs::write(end, "").expect("a file");
    until("it has ended", || process(&worker)["state"] == "backoff");
    assert_eq!(worker.code("/leader"), 503);
}

#[test]
fn a_job_that_can_not_run_here_runs_elsewhere_at_once() {
    let stage = Stage::new("/not-here");
    let script = "echo \"$DR_MEMBER\" >> ran; [ $DR_MEMBER = west-1 ] || exit 69; exec sleep 600";
    let dir = format!("job.orders.working_dir={}", stage.dir.path().display());
    let codes = "job.orders.exit_codes.not_here=[69]";
    // The preferred site goes first, although its worker is started last.
    let settings = [&job(script), dir.as_str(), codes, "policy.exclusion=1h", "policy.startup_wait=1m"];
    let west = stage.worker("west-1", "west", &settings);
    let east = stage.worker("east-1", "east", &settings);
    until("it has failed", || process(&east)["state"] == "fatal");
    until("the other one leads", || leads(&west));
    assert_eq!(process(&east)["problem"], "exit code 69");
    let ran = fs::read_to_string(stage.dir.path().join("ran")).expect("it ran");
    let in_east = ran.lines().filter(|line| *line == "east-1").count();
    assert_eq!(in_east, 1, "it was not restarted where it can't run: {ran}");
    let explained = stage.operator(&["explain"]);
    explained.assert(0, &[]);
    assert!(explained.stdout.contains("can't run on this node: exit code 69"), "{}", explained.stdout);
}

#[test]
fn codes_that_mean_nothing_are_refused() {
    let stage = Stage::new("/exit-codes");
    for (codes, part) in [
        (
            "{ stay_down = [256] }",
            "job.orders.exit_codes.stay_down: 256 is not an exit code; 0 to 255 is valid",
        ),
        ("{ stay_down = [3], not_here = [2, 3] }", "3 is in stay_down too"),
        ("{ stay_down = \"3\" }", "an array"),
        ("{ down = [3] }", "unknown key"),
    ] {
        let codes = format!("job.orders.exit_codes={codes}");
        let mut command = stage.worker_command("east-1", "east", &[&codes]);
        Outcome::of(command.args(["config", "check"])).assert(78, &[part]);
    }
}
