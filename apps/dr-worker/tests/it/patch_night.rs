//! examples/patch-night: Ansible accepts the play, and its commands do on two workers what it waits for.

use std::{fs, process::Command};

use crate::support::{Running, at, is_there, stage::Stage, stage::leads, until};
use nix::sys::signal::Signal;
use serde_json::Value;

const PLAY: &str = "examples/patch-night/patch-night.yml";

/// Whether the worker leads one of its jobs, as the play asks it.
fn leads_a_job(worker: &Running) -> bool {
    let status: Value = serde_json::from_str(&worker.http("GET", "/status").1).expect("JSON");
    status["jobs"].as_object().expect("its jobs").values().any(|job| job["role"] == "leader")
}

#[test]
fn the_syntax_of_the_play_is_right() {
    if !is_there("ansible-playbook", "ansible-core") {
        return;
    }
    let checked = Command::new("ansible-playbook")
        .args(["--syntax-check", "--inventory", "localhost,"])
        .arg(at(PLAY))
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
    assert!(checked.status.success(), "{said}");
}

#[test]
fn one_host_after_the_other_is_restarted_and_the_job_is_never_without_a_candidate() {
    let play = fs::read_to_string(at(PLAY)).expect("the play");
    for used in [
        "serial: 1",
        "worker }}/status",
        "if 'leader' in status.json.jobs.values() | map(attribute='role')",
        "command: dr-worker can-restart",
        "worker }}/readiness",
    ] {
        assert!(play.contains(used), "{used}");
    }
    let stage = Stage::new("/patch-night");
    let bills = [
        "job.bills.command=[\"/bin/sh\", \"-c\", \"while :; do sleep 1; done\"]",
        "job.bills.stop_timeout=1s",
    ];
    let east = stage.worker("east-1", "east", &bills);
    for job in ["orders", "bills"] {
        until("east-1 leads", || east.code(&format!("/leader?job={job}")) == 200);
    }
    let mut standby = stage.worker("east-2", "east", &bills);
    let may = |id: &str| {
        let node = [format!("node.id={id}"), "node.site=east".to_owned()];
        let mut command = stage.command(&node.each_ref().map(String::as_str));
        crate::support::Outcome::of(command.arg("can-restart")).code == Some(0)
    };
    until("the standby takes part", || standby.code("/readiness") == 200);
    assert!(leads_a_job(&east) && !leads_a_job(&standby), "the leader's host is the last one");
    until("the standby may be restarted", || may("east-2"));
    standby.signal(Signal::SIGTERM);
    assert!(standby.ended().success());
    assert!(!may("east-1"), "nobody would take over");
    let standby = stage.worker("east-2", "east", &bills);
    until("the standby takes part again", || standby.code("/readiness") == 200);
    until("the leader may be restarted", || may("east-1"));
}

#[test]
fn the_only_node_of_a_site_is_restarted_in_maintenance() {
    let play = fs::read_to_string(at(PLAY)).expect("the play");
    let stage = Stage::new("/patch-night-of-pairs");
    let mut east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let mut west = stage.worker("west-1", "west", &[]);
    until("west-1 is standby", || west.code("/standby") == 200);
    for (id, site, worker, other) in [("west-1", "west", 1, 0), ("east-1", "east", 0, 1)] {
        let workers = [&mut east, &mut west];
        let may = || {
            let node = [format!("node.id={id}"), format!("node.site={site}")];
            let mut command = stage.command(&node.each_ref().map(String::as_str));
            crate::support::Outcome::of(command.arg("can-restart")).code == Some(0)
        };
        assert!(!may(), "its site would have no candidate");
        stage.operator(&["maintenance", id]).assert(0, &[]);
        until("it may be restarted", may);
        assert!(leads(workers[other]), "{id} does not lead any more");
        workers[worker].signal(Signal::SIGTERM);
        assert!(workers[worker].ended().success());
        *workers[worker] = stage.worker(id, site, &[]);
        until("it takes part again", || workers[worker].code("/readiness") == 200);
        stage.operator(&["maintenance", id, "--off"]).assert(0, &[]);
    }
    for command in ["maintenance {{ member }}\n", "maintenance {{ member }} --off\n"] {
        assert!(play.contains(command), "{command}");
    }
}
