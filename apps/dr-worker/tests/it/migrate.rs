//! `migrate`: two workers and a job from one ensemble to another, with the job running until the last step.

use std::{fs, process::Command};

use serde_json::Value;

use crate::support::{
    Background, Outcome, Running, dr_worker, own_server::OwnServer, set, stage::leads, until,
};
use nix::sys::signal::Signal;

/// Notes each begin and end, with the token.
const JOB: &str = "job.orders.command=[\"/bin/sh\", \"-c\", \"trap 'echo end $DR_FENCING_TOKEN >> led; exit' TERM; \
                   echo begin $DR_FENCING_TOKEN >> led; while :; do sleep 0.1; done\"]";

struct Move {
    old: OwnServer,
    new: OwnServer,
}

impl Move {
    fn command(&self, ensemble: &OwnServer, settings: &[&str]) -> Command {
        let dir = self.old.dir.path().display();
        let mut command = dr_worker();
        set(
            &mut command,
            &[
                &format!("zookeeper.connect={}", ensemble.server().connect_string()),
                "zookeeper.tick_time=500ms",
                "zookeeper.session_timeout=6s",
                "zookeeper.connect_timeout=30s",
                "policy.sites=[\"east\", \"west\"]",
                &format!("node.state_dir={dir}/state"),
                &format!("job.orders.working_dir={dir}"),
                JOB,
                "job.orders.stop_timeout=1s",
            ],
        );
        set(&mut command, settings);
        command
    }

    fn worker(&self, ensemble: &OwnServer, id: &str, site: &str) -> Running {
        let settings = [format!("node.id={id}"), format!("node.site={site}")];
        Running::start(&mut self.command(ensemble, &settings.each_ref().map(String::as_str)))
    }

    fn says(&self, ensemble: &OwnServer, verb: &[&str]) -> Outcome {
        Outcome::of(self.command(ensemble, &["node.site=east"]).args(verb))
    }

    fn list(&self, ensemble: &OwnServer) -> Value {
        let outcome = self.says(ensemble, &["--output", "json", "list"]);
        outcome.assert(0, &[]);
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {}", outcome.stdout))
    }

    fn migrate(&self) -> Outcome {
        Outcome::of(&mut self.migration())
    }

    fn migration(&self) -> Command {
        let mut command = self.command(&self.old, &["node.site=east"]);
        let to = self.new.server().connect_string();
        command.args(["--output", "json", "migrate", "--to", &to, "--yes"]);
        command
    }

    /// What the job has noted: whether it is a begin, and the token.
    fn led(&self) -> Vec<(bool, u64)> {
        let text = fs::read_to_string(self.old.dir.path().join("led")).unwrap_or_default();
        let line = |line: &str| {
            let (what, token) = line.split_once(' ').expect("two words");
            (what == "begin", token.parse().expect("a number"))
        };
        text.lines().map(line).collect()
    }
}

#[test]
fn a_job_moves_to_another_ensemble_without_two_leaders_and_above_its_tokens() {
    let mover = Move { old: OwnServer::new(), new: OwnServer::new() };
    let (old, new) = (&mover.old, &mover.new);
    let mut east = mover.worker(old, "east-1", "east");
    until("east-1 leads", || leads(&east));
    let mut west = mover.worker(old, "west-1", "west");
    until("west-1 is standby", || west.code("/standby") == 200);
    // Higher terms and tokens than those of a new ensemble, and orders that move too.
    mover.says(old, &["raise-token", "--above", "5000000000000"]).assert(0, &[]);
    mover.says(old, &["prefer", "east"]).assert(0, &[]);
    until("it leads with a higher token", || {
        mover.led().last().is_some_and(|(_, token)| *token > 5_000_000_000_000)
    });
    until("east-1 leads", || leads(&east));
    let connect = old.server().connect_string();
    mover.says(old, &["migrate", "--to", &connect, "--yes"]).assert(64, &["that is this ensemble"]);

    mover.migrate().assert(75, &["prepared", "orders"]);
    assert!(leads(&east));
    west.signal(Signal::SIGTERM);
    assert!(west.ended().success());
    let west = mover.worker(new, "west-1", "west");
    until("west-1 is in the new ensemble", || mover.list(new)["members"][0]["member"] == "west-1");
    // It is alone there, and does not lead.
    assert!(leads(&east) && !leads(&west), "{}", mover.list(new));
    let term = mover.list(old)["term"].as_u64().expect("a term");
    let moving = Background::of(&mut mover.migration());
    until("the old ensemble is closed", || {
        mover.list(old)["drained"].as_array().is_some_and(|drained| drained.len() == 2)
    });
    assert!(leads(&east) && !leads(&west), "the leader leads until its worker stops");
    east.signal(Signal::SIGTERM);
    assert!(east.ended().success());
    let moved = moving.outcome();
    moved.assert(0, &["restart the worker of east-1 there now"]);
    let shown: Value =
        serde_json::from_str(&moved.stdout).unwrap_or_else(|e| panic!("{e}: {}", moved.stdout));
    assert_eq!((&shown["leader"], &shown["left"]), (&"west-1".into(), &serde_json::json!([])));
    assert!(shown["term"].as_u64() > Some(term), "{shown} {term}");
    until("west-1 leads", || leads(&west));
    let led = mover.led();
    assert!(led.is_sorted_by_key(|(_, token)| *token), "{led:?}");
    let is_alternating = led.iter().enumerate().all(|(at, (begins, _))| *begins == (at % 2 == 0));
    assert!(is_alternating, "each leadership begins after the end of the one before: {led:?}");

    let orders = &mover.list(new);
    assert_eq!(
        (&orders["drained"], &orders["preferred_site"]),
        (&serde_json::json!([]), &"east".into()),
        "{orders}"
    );
    // Again it changes nothing. The rest of the workers follow.
    let again = mover.migrate();
    again.assert(0, &[]);
    let east = mover.worker(new, "east-1", "east");
    until("east-1 takes part in the new ensemble", || east.code("/readiness") == 200);
}

#[test]
fn a_job_moves_to_another_root_of_the_same_ensemble() {
    let mover = Move { old: OwnServer::new(), new: OwnServer::new() };
    let (old, root) = (&mover.old, "zookeeper.root=/elsewhere");
    let mut east = mover.worker(old, "east-1", "east");
    until("east-1 leads", || leads(&east));
    let mut west = mover.worker(old, "west-1", "west");
    until("west-1 is standby", || west.code("/standby") == 200);
    let migrate = || {
        let mut command = mover.command(old, &["node.site=east"]);
        let to = old.server().connect_string();
        command.args(["--output", "json", "migrate", "--to", &to, "--root", "/elsewhere", "--yes"]);
        command
    };
    Outcome::of(&mut migrate()).assert(75, &["prepared", "orders"]);
    west.signal(Signal::SIGTERM);
    assert!(west.ended().success());
    let west = Running::start(&mut mover.command(old, &["node.id=west-1", "node.site=west", root]));
    until("west-1 is there", || west.code("/readiness") == 200);
    let moving = Background::of(&mut migrate());
    until("the old root is closed", || {
        mover.list(old)["drained"].as_array().is_some_and(|drained| drained.len() == 2)
    });
    assert!(leads(&east) && !leads(&west));
    east.signal(Signal::SIGTERM);
    assert!(east.ended().success());
    moving.outcome().assert(0, &[]);
    until("west-1 leads", || leads(&west));
    let led = mover.led();
    assert!(led.is_sorted_by_key(|(_, token)| *token), "{led:?}");
}

#[test]
fn a_target_in_use_and_a_mode_that_would_not_obey_are_refused() {
    let mover = Move { old: OwnServer::new(), new: OwnServer::new() };
    let east = mover.worker(&mover.old, "east-1", "east");
    let other = mover.worker(&mover.new, "other-1", "east");
    until("both lead", || leads(&east) && leads(&other));
    mover.migrate().assert(1, &["there is an election", "nothing was changed"]);
    drop(other);
    let elsewhere = mover.new.server().connect_string();
    mover.says(&mover.old, &["pause"]).assert(0, &[]);
    let mut paused = mover.command(&mover.old, &[]);
    paused.args(["migrate", "--to", &elsewhere, "--root", "/elsewhere", "--yes"]);
    Outcome::of(&mut paused).assert(75, &["dr-worker mode auto --job orders"]);
    assert!(leads(&east));
}
