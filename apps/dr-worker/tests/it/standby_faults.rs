//! Faults in the middle of a change of role: a command that hangs or fails, and who is killed meanwhile.

use std::fs;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    standbys::{is_alive, standby_of},
    support::{
        stage::{Stage, leads},
        until,
    },
};

impl Stage {
    /// The last command that [hangs], if it was told this leader: a standby that began before it knew of any has followed the
    /// first one.
    fn hanging(&self, id: &str, change: &str, leader: &str) -> Option<Pid> {
        let lines = self.written(id);
        let line = lines.iter().rfind(|line| line.starts_with(change))?;
        line.ends_with(&format!(" {leader}")).then(|| self.last_pid(id, change)).flatten()
    }
}

#[test]
fn a_promote_that_fails_or_hangs_costs_the_process_and_the_takeover() {
    let stage = Stage::new("/standbys-fail");
    let mut east = stage.standby_worker("east-1", "east", &[]);
    until("the first leads", || leads(&east));
    let fails = r#"job.orders.standby.promote={ kind = "exec", command = ["false"] }"#;
    let west = stage.standby_worker("west-1", "west", &[fails, "policy.exclusion=1s"]);
    for _ in 0..2 {
        until("the standby is ready", || standby_of(&west)["state"] == "running");
        let standby = stage.standby_pid("west-1");
        stage.operator(&["switchover", "--to-site", "west"]).assert(0, &[]);
        until("a new standby after the failure", || {
            stage.last_pid("west-1", "standby").is_some_and(|pid| pid != standby)
        });
        assert!(!is_alive(standby), "two at once");
        until("the first leads again", || leads(&east));
    }
    let written = stage.written("west-1");
    assert!(!written.iter().any(|line| line.starts_with("leader")), "{written:?}");

    // A promote that hangs, and a worker that is frozen meanwhile: the guard has the deadline already.
    drop(west);
    let west = stage.standby_worker("west-2", "west", &[&hangs("promote")]);
    until("the standby is ready", || standby_of(&west)["state"] == "running");
    let standby = stage.standby_pid("west-2");
    east.signal(Signal::SIGKILL);
    east.ended();
    until("it is being promoted", || stage.last_pid("west-2", "promote").is_some());
    west.signal(Signal::SIGSTOP);
    until("the end of the process by the lease", || !is_alive(standby));
    west.signal(Signal::SIGCONT);
}

fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?;
    parent.parse().ok().map(Pid::from_raw)
}

/// A command of the standby that says that it has begun, and does not end.
fn hangs(change: &str) -> String {
    let script = format!("echo {change} $$ $DR_LEADER >> $JOURNALS/$DR_MEMBER; exec sleep 600");
    let command = serde_json::json!(["/bin/sh", "-c", script]);
    format!("job.orders.standby.{change}={{ kind = \"exec\", command = {command}, timeout = \"10m\" }}")
}

#[test]
fn a_follow_that_hangs_is_ended_by_a_restart_of_the_standby() {
    let stage = Stage::new("/standbys-hung-follow");
    let east = [stage.standby_worker("east-1", "east", &[]), stage.standby_worker("east-2", "east", &[])];
    until("one leads", || east.iter().any(leads));
    let west = stage.standby_worker("west-1", "west", &[&hangs("follow")]);
    until("the standby is ready", || standby_of(&west)["state"] == "running");
    let to = if leads(&east[0]) { "east-2" } else { "east-1" };
    stage.operator(&["switchover", "--to", to, "--wait"]).assert(0, &[]);
    until("the command hangs", || stage.hanging("west-1", "follow", to).is_some());
    let (standby, command) = (stage.standby_pid("west-1"), stage.last_pid("west-1", "follow"));

    stage.operator(&["restart", "--standby", "west-1", "--wait"]).assert(0, &[]);
    assert!(!is_alive(standby) && !command.is_some_and(is_alive));
    until("another has begun", || stage.standby_pid("west-1") != standby);
    assert!(is_alive(stage.standby_pid("west-1")));
    assert_eq!(stage.last_pid("west-1", "follow"), command, "it was started with the new leader");
}

/// Promote, follow or demote hangs on west-1; then its worker is killed, or the guard of the program.
fn killed_during(root: &'static str, change: &str, is_worker: bool) {
    let stage = Stage::new(root);
    let hangs = hangs(change);
    // The end of the takeover is not what is waited for.
    let settings = [hangs.as_str(), "policy.exclusion=1s", "policy.takeover_timeout=5m"];
    let east = [stage.standby_worker("east-1", "east", &[]), stage.standby_worker("east-2", "east", &[])];
    until("one leads", || east.iter().any(leads));
    let mut west = stage.standby_worker("west-1", "west", &settings);
    until("the standby is ready", || standby_of(&west)["state"] == "running");
    if change == "demote" {
        stage.operator(&["switchover", "--to", "west-1", "--wait"]).assert(0, &[]);
    }
    let to = match change {
        "promote" => "west-1",
        "demote" => "east-1",
        _ if leads(&east[0]) => "east-2",
        _ => "east-1",
    };
    stage.operator(&["switchover", "--to", to]).assert(0, &[]);
    let leader = if change == "demote" { "west-1" } else { to };
    until("the command hangs", || stage.hanging("west-1", change, leader).is_some());
    let command = stage.last_pid("west-1", change);
    let leader = stage.last_pid("west-1", "leader");
    let standby = leader.unwrap_or_else(|| stage.standby_pid("west-1"));
    let before = stage.last_pid("west-1", "standby");

    if is_worker {
        west.signal(Signal::SIGKILL);
        west.ended();
        until("the end of both", || !is_alive(standby) && !command.is_some_and(is_alive));
        west = stage.standby_worker("west-1", "west", &settings);
    } else {
        let guard = parent(standby).filter(|guard| west.children().contains(guard));
        kill(guard.expect("it is a guard of this worker"), Signal::SIGKILL).expect("alive");
    }
    until("another standby", || {
        let has_begun = stage.last_pid("west-1", "standby") != before;
        assert!(!has_begun || !is_alive(standby), "two at once");
        has_begun
    });
    until("one of the others leads", || east.iter().any(leads));
    assert!(!leads(&west) && stage.last_pid("west-1", "leader") == leader);
}

#[test]
fn a_worker_that_is_killed_during_demote_leaves_nothing() {
    killed_during("/standbys-killed-demote", "demote", true);
}

#[test]
fn a_guard_that_is_killed_during_demote_takes_the_program_with_it() {
    killed_during("/standbys-guard-demote", "demote", false);
}

#[test]
fn a_worker_that_is_killed_during_promote_leaves_nothing() {
    killed_during("/standbys-promote-worker", "promote", true);
}

#[test]
fn a_guard_that_is_killed_during_promote_takes_the_standby_with_it() {
    killed_during("/standbys-promote-guard", "promote", false);
}

#[test]
fn a_worker_that_is_killed_during_follow_leaves_nothing() {
    killed_during("/standbys-follow-worker", "follow", true);
}

#[test]
fn a_guard_that_is_killed_during_follow_takes_the_standby_with_it() {
    killed_during("/standbys-follow-guard", "follow", false);
}
