//! What operators ask of a standby: to restart, to stop and to start it.

use std::fs;

use nix::sys::signal::Signal;

use crate::{
    standbys::{is_alive, standby_of},
    support::{
        Outcome,
        stage::{Stage, leads},
        until,
    },
};

#[test]
fn an_operator_restarts_a_standby_and_leadership_stays() {
    let stage = Stage::new("/standbys-restarted");
    let broken = stage.dir.path().join("broken");
    let ready = format!(
        "job.orders.standby.ready={{ kind = \"exec\", command = [\"test\", \"!\", \"-e\", \"{}\"], interval = \"50ms\" }}",
        broken.display()
    );
    let east = stage.standby_worker("east-1", "east", &[&ready]);
    until("the first leads", || leads(&east));
    let mut west = stage.standby_worker("west-1", "west", &[&ready]);
    until("the standby is ready", || standby_of(&west)["state"] == "running");
    let (leader, before) = (stage.last_pid("east-1", "leader"), stage.standby_pid("west-1"));
    let restart = |member: &str| stage.operator(&["restart", "--standby", member, "--wait"]);

    let restarted = restart("west-1");
    restarted.assert(0, &["restart-standby of orders on west-1"]);
    assert_eq!(restarted.stdout, "the standby of orders was restarted on west-1\n");
    until("another has begun", || stage.standby_pid("west-1") != before);
    let after = stage.standby_pid("west-1");
    assert!(after != before && !is_alive(before) && is_alive(after));
    assert_eq!(standby_of(&west)["pid"], after.as_raw());
    assert!(leads(&east) && stage.last_pid("east-1", "leader") == leader);
    stage.operator(&["list"]).assert(0, &[]);

    restart("east-1").assert(1, &["east-1 leads, and has no standby; `dr-worker restart"]);
    restart("west-9").assert(64, &["unknown member west-9"]);

    // The leader answers for a worker that dies meanwhile.
    fs::write(&broken, "").expect("a file");
    stage.operator(&["restart", "--standby", "west-1"]).assert(0, &[]);
    let outcome = || stage.json(&["list"])["requests"][1]["outcome"].clone();
    until("it has begun", || outcome()["state"] == "accepted");
    west.signal(Signal::SIGKILL);
    west.ended();
    until("it is answered", || outcome()["state"] == "failed");
    assert!(
        outcome()["reason"].as_str().is_some_and(|why| why.starts_with("it was interrupted: west-1 is gone"))
    );
}

#[test]
fn an_operator_stops_a_standby_and_it_stays_stopped_until_a_start() {
    let stage = Stage::new("/standbys-stop");
    let required = ["job.orders.standby.required=true"];
    let east = stage.standby_worker("east-1", "east", &required);
    until("one leads", || leads(&east));
    let mut west = stage.standby_worker("west-1", "west", &required);
    until("the standby is ready", || standby_of(&west)["state"] == "running");
    let first = stage.standby_pid("west-1");
    let of = |verb: &str, member: &str| stage.operator(&[verb, "--standby", member, "--wait"]);
    let state = || standby_of(&west)["state"].clone();

    let said = |verb: &str| {
        let outcome = of(verb, "west-1");
        outcome.assert(0, &[]);
        outcome.stdout
    };
    assert_eq!(said("start"), "the standby of west-1 is not stopped\n");
    of("stop", "east-1").assert(1, &["east-1 leads, and has no standby; `dr-worker stop"]);
    of("stop", "west-9").assert(64, &["unknown member west-9"]);
    let stopped = of("stop", "west-1");
    stopped.assert(0, &["stop-standby of orders on west-1"]);
    assert_eq!(stopped.stdout, "the standby of orders is stopped on west-1\n");
    assert!(!is_alive(first) && state() == "stopped" && leads(&east));
    let again = said("stop");
    assert!(
        again.starts_with("the standby of west-1 is stopped by ") && again.ends_with(" already\n"),
        "{again}"
    );
    of("restart", "west-1")
        .assert(1, &["the standby of west-1 is stopped by ", "`dr-worker start --standby west-1"]);
    let listed = stage.operator(&["list"]);
    assert!(listed.stdout.contains("the standby of west-1 is stopped by "), "{}", listed.stdout);
    let explained = stage.operator(&["explain"]).stdout;
    assert!(explained.contains("the standby is stopped by "), "{explained}");

    // The order is for each program and each process of the member.
    Outcome::of(stage.standby_command("west-1", "west", &required).arg("upgrade")).assert(0, &[]);
    until("it goes on", || state() == "stopped");
    stage.operator(&["switchover", "--to", "west-1", "--wait"]).assert(1, &["the standby is stopped by "]);
    assert_eq!(stage.standby_pid("west-1"), first, "none was started");
    west.signal(Signal::SIGTERM);
    west.ended();
    let mut west = stage.standby_worker("west-1", "west", &required);
    until("it takes part", || standby_of(&west)["state"] == "stopped");
    stage.operator(&["switchover", "--to", "west-1", "--wait"]).assert(1, &["the standby is stopped by "]);
    assert_eq!(stage.standby_pid("west-1"), first, "none was started");

    let started = of("start", "west-1");
    assert_eq!(started.stdout, "the standby of orders is started on west-1\n");
    until("the standby is ready", || standby_of(&west)["state"] == "running");
    assert!(is_alive(stage.standby_pid("west-1")) && leads(&east));

    // No worker withdraws the order of a member that is gone for good: the command does.
    of("stop", "west-1").assert(0, &[]);
    west.signal(Signal::SIGTERM);
    west.ended();
    until("it takes no part", || {
        stage.json(&["list"])["members"].as_array().is_some_and(|all| all.len() == 1)
    });
    assert_eq!(said("start"), "west-1 takes no part in orders; its standby starts with its worker\n");
    assert_eq!(stage.json(&["list"])["stopped_standbys"], serde_json::json!([]));
}

#[test]
fn a_leader_whose_standby_is_stopped_by_an_order_starts_none_when_it_has_led() {
    let stage = Stage::new("/standbys-stop-leader");
    let east = stage.standby_worker("east-1", "east", &[]);
    until("one leads", || leads(&east));
    let west = stage.standby_worker("west-1", "west", &[]);
    until("the standby is ready", || standby_of(&west)["state"] == "running");
    stage.operator(&["stop", "--standby", "west-1", "--wait"]).assert(0, &[]);
    let first = stage.standby_pid("west-1");
    stage.operator(&["switchover", "--to", "west-1", "--wait"]).assert(0, &[]);
    until("the other one leads", || leads(&west));
    stage.operator(&["switchover", "--to", "east-1", "--wait"]).assert(0, &[]);
    until("it leads again", || leads(&east));
    until("it is no leader", || standby_of(&west)["state"] == "stopped");
    assert_eq!(stage.standby_pid("west-1"), first, "none was started");
    stage.operator(&["start", "--standby", "west-1", "--wait"]).assert(0, &[]);
    assert!(is_alive(stage.standby_pid("west-1")));
}
