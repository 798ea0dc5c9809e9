//! The newest token that a node keeps: for a worker that starts again, and for `emergency-lead`, a job without ZooKeeper, from
//! the refusals before it to the return of its node.

use std::{fs, process::Command, time::Duration};

use crate::support::{
    Background, Outcome, Running, dr_worker, own_server::OwnServer, set, stage::leads, until,
};
use nix::sys::signal::Signal;
use serde_json::Value;

const FENCED: &str = "I have fenced: site west";

/// Writes what it is given, and runs on.
const JOB: &str = "job.orders.command=[\"/bin/sh\", \"-c\", \"echo $DR_TERM $DR_FENCING_TOKEN $DR_CAUSE $$ >> led; \
                   exec sleep 600\"]";

struct Node {
    own: OwnServer,
    connect: String,
}

impl Node {
    fn new() -> Self {
        let own = OwnServer::new();
        let connect = own.server().connect_string();
        Self { own, connect }
    }

    fn command(&self) -> Command {
        let dir = self.own.dir.path().display();
        let mut command = dr_worker();
        set(
            &mut command,
            &[
                &format!("zookeeper.connect={}", self.connect),
                "zookeeper.tick_time=500ms",
                "zookeeper.session_timeout=6s",
                "zookeeper.connect_timeout=3s",
                "policy.sites=[\"east\", \"west\"]",
                "node.id=east-1",
                "node.site=east",
                &format!("node.state_dir={dir}/state"),
                &format!("job.orders.working_dir={dir}"),
                JOB,
                "job.orders.stop_timeout=1s",
                &format!("job.orders.hooks.after_stop.command=[\"/bin/touch\", \"{dir}/cleaned\"]"),
            ],
        );
        command
    }

    fn says(&self, verb: &[&str]) -> Outcome {
        Outcome::of(self.command().args(verb))
    }

    fn json(&self, verb: &[&str]) -> Value {
        let outcome = self.says(&[&["--output", "json"], verb].concat());
        outcome.assert(0, &[]);
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {}", outcome.stdout))
    }

    /// The runs of the job: term, token, cause and process.
    fn led(&self) -> Vec<(u64, u64, String, u32)> {
        let text = fs::read_to_string(self.own.dir.path().join("led")).unwrap_or_default();
        let parsed = text.lines().map(|line| {
            let [term, token, cause, pid] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let number = |text: &str| text.parse().expect("a number");
            (number(term), number(token), cause.to_owned(), pid.parse().expect("a pid"))
        });
        parsed.collect()
    }

    fn kept(&self) -> Value {
        let path = self.own.dir.path().join("state/east-1.tokens/orders.json");
        fs::read(path).ok().and_then(|data| serde_json::from_slice(&data).ok()).unwrap_or_default()
    }
}

fn is_there(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

const LEAD: [&str; 5] = ["emergency-lead", "--i-accept-split-brain", "--reason", "west burns", "--fenced"];

#[test]
fn a_node_leads_without_zookeeper_and_returns_once_the_tokens_are_raised() {
    let node = Node::new();
    let lead = [&LEAD[..], &[FENCED]].concat();
    let mut worker = Running::start(&mut node.command());
    until("it leads", || leads(&worker));
    let token = node.led()[0].1;
    until("its token is kept", || {
        node.kept()["token"] == token && node.kept()["leader"]["member"] == "east-1"
    });

    node.says(&lead).assert(75, &["the worker of east-1 runs on this node", "stop it first"]);
    worker.signal(Signal::SIGTERM);
    assert!(worker.ended().success());
    node.says(&lead).assert(1, &["ZooKeeper answers with a quorum", "failover --job orders --force"]);
    assert_eq!(node.led().len(), 1);
    let server = node.own.server();
    node.own.runtime.block_on(server.stop(0)).expect("it runs");

    // What is wrong on the command line is reported before ZooKeeper is asked.
    node.says(&["emergency-lead"]).assert(64, &["--i-accept-split-brain"]);
    node.says(&LEAD[..2]).assert(64, &[&format!("--fenced '{FENCED}'")]);
    node.says(&[&LEAD[..], &["yes"]].concat()).assert(64, &[FENCED]);
    node.says(&[&lead[..], &["--job", "bills"]].concat()).assert(64, &["unknown job \"bills\""]);
    // As without the environment of the service, which has the id.
    for verb in [&lead[..], &["emergency-lead", "--clear"]] {
        let mut command = node.command();
        set(&mut command, &["node.id=host-7"]);
        Outcome::of(command.args(verb))
            .assert(1, &["no worker with the id host-7", "of east-1", "set node.id"]);
    }
    assert!(!node.own.dir.path().join("state/host-7.lock").exists());
    assert_eq!(node.led().len(), 1);

    fs::remove_file(node.own.dir.path().join("cleaned")).expect("the worker's stop made it");
    let alone = Background::of(node.command().args(&lead));
    until("the job runs", || node.led().len() == 2);
    let (term, raised, cause, pid) = node.led().remove(1);
    assert_eq!((term, cause.as_str()), (2, "emergency"));
    assert!(raised > token + (1 << 52), "{raised}");
    node.says(&["run"]).assert(75, &["led orders without ZooKeeper", "emergency-lead --job orders --clear"]);
    node.says(&["list"]).assert(69, &["warning: east-1 led orders", "west burns", FENCED]);
    node.says(&lead).assert(75, &["stop it first"]);
    node.says(&["emergency-lead", "--clear"]).assert(75, &["end `emergency-lead` by SIGTERM"]);
    alone.signal(Signal::SIGTERM);
    let ended = alone.outcome();
    ended.assert(0, &["What can go wrong", "runs twice", &format!("gets token {raised}, above {token}")]);
    assert!(!is_there(pid) && node.own.dir.path().join("cleaned").exists());

    // Again, with another token.
    let alone = Background::of(node.command().args(&lead));
    until("the job runs again", || node.led().len() == 3);
    alone.signal(Signal::SIGINT);
    alone.outcome().assert(0, &[]);
    let again = node.led()[2].1;
    assert!(again > raised, "{again}");
    node.says(&["run"]).assert(75, &["until the record is cleared"]);
    node.says(&["emergency-lead", "--clear"]).assert(69, &[]);

    node.own.runtime.block_on(server.start_server(0)).expect("it is stopped");
    let raise = format!("dr-worker raise-token --job orders --above {again}");
    node.says(&["emergency-lead", "--clear"]).assert(1, &["not cleared", &raise]);
    let problems = node.json(&["list"])["problems"].clone();
    let emergency = problems.as_array().and_then(|all| all.iter().find(|row| row["kind"] == "emergency"));
    let emergency = emergency.unwrap_or_else(|| panic!("{problems:#}"));
    assert!(
        emergency["command"].as_str().is_some_and(|command| command.starts_with(&raise)),
        "{emergency:#}"
    );
    // Raised to the first one only.
    node.says(&["raise-token", "--above", &raised.to_string(), "--yes"]).assert(0, &[]);
    node.says(&["emergency-lead", "--clear"]).assert(1, &["not cleared"]);
    node.says(&["raise-token", "--above", &again.to_string(), "--yes"]).assert(0, &[]);
    assert_eq!(node.json(&["emergency-lead", "--clear"])["cleared"]["token"], again);
    node.says(&["emergency-lead", "--clear"]).assert(0, &["nothing to clear"]);
    assert_eq!(node.json(&["list"])["problems"], Value::Array(Vec::new()));

    let worker = Running::start(&mut node.command());
    until("it leads again", || leads(&worker));
    assert!(node.led()[3].1 > again, "{:?}", node.led());
}

/// All workers are started again, on servers that came back empty.
#[test]
fn a_worker_goes_on_above_what_its_state_directory_has_seen() {
    let mut node = Node::new();
    node.says(&["raise-token", "--job", "orders", "--above", "1000000000000", "--yes"]).assert(0, &[]);
    let mut worker = Running::start(&mut node.command());
    until("it leads", || leads(&worker));
    let (term, token, ..) = node.led()[0];
    assert!(token > 1_000_000_000_000, "{token}");
    until("its token is kept", || node.kept()["token"] == token);
    worker.signal(Signal::SIGTERM);
    assert!(worker.ended().success());

    let empty = OwnServer::new();
    node.connect = empty.server().connect_string();
    let worker = Running::start(&mut node.command());
    until("it leads again", || leads(&worker));
    let (next_term, next, ..) = node.led()[1];
    assert!(next > token && next_term > term, "{:?}", node.led());
}

#[test]
fn a_job_that_fails_ends_the_emergency_leadership() {
    let node = Node::new();
    let server = node.own.server();
    node.own.runtime.block_on(server.stop(0)).expect("it runs");
    let lead = [&LEAD[..], &[FENCED]].concat();
    node.says(&lead).assert(64, &["has kept no fencing token of job orders", "--token-above N"]);
    let mut command = node.command();
    set(&mut command, &["job.orders.command=[\"/bin/false\"]", "job.orders.restart.max=1"]);
    let begun = std::time::Instant::now();
    let failed = Outcome::of(command.args(&lead).args(["--token-above", "70"]));
    failed.assert(1, &["job orders has failed", "above 70"]);
    assert!(begun.elapsed() < Duration::from_secs(60));
    // It has led, if only for a moment.
    node.says(&["run"]).assert(75, &["led orders without ZooKeeper"]);
}
