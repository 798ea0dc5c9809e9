//! A job of several processes under one leadership.

use std::{fs, process::Command};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::support::{
    Outcome, Running,
    stage::{Stage, leads},
    until,
};

const NAMES: [&str; 3] = ["db", "app", "proxy"];

/// Three that write what happens, and are ready a moment after their start.
fn processes(stage: &Stage, rule: &str) -> String {
    let of = |name: &&str| {
        let script = format!(
            "echo start $DR_PROCESS $DR_MEMBER $DR_TERM >> log; echo out of $DR_PROCESS; \
             trap 'echo stop $DR_PROCESS $DR_MEMBER >> log; exit' TERM; sleep 0.1; \
             echo ready $DR_PROCESS >> log; echo $$ > {name}.$DR_MEMBER.ready; while :; do sleep 0.05; done"
        );
        let command = serde_json::json!(["/bin/sh", "-c", script]);
        let ready = serde_json::json!(["/bin/sh", "-c", format!("test -s {name}.$DR_MEMBER.ready")]);
        format!(
            "{{ name = \"{name}\", command = {command}, on_exit = \"{rule}\", \
             ready = {{ kind = \"exec\", command = {ready}, interval = \"20ms\" }} }}"
        )
    };
    let dir = stage.dir.path().display();
    NAMES.iter().for_each(|name| {
        for member in ["east-1", "west-1"] {
            let _ = fs::remove_file(format!("{dir}/{name}.{member}.ready"));
        }
    });
    format!("job.shop.process=[{}]", NAMES.iter().map(of).collect::<Vec<_>>().join(", "))
}

impl Stage {
    fn shop_command(&self, id: &str, site: &str, more: &[&str]) -> Command {
        let (state, dir) = (self.dir.path().join("state"), self.dir.path().display());
        let settings = [
            &*format!("node.id={id}"),
            &format!("node.site={site}"),
            &format!("node.state_dir={}", state.display()),
            &format!("job.shop.working_dir={dir}"),
            "job.shop.stop_timeout=2s",
            "job.shop.restart.backoff=10ms",
            "policy.min_tenure=0s",
        ];
        self.command(&[&settings[..], more].concat())
    }

    fn shop(&self, id: &str, site: &str, more: &[&str]) -> Running {
        Running::start(&mut self.shop_command(id, site, more))
    }

    fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }
}

/// Asserts that a command has succeeded, and has printed these parts.
#[track_caller]
fn has(outcome: &Outcome, parts: &[&str]) {
    outcome.assert(0, &[]);
    for part in parts {
        assert!(outcome.stdout.contains(part), "{part:?} is not in:\n{}", outcome.stdout);
    }
}

/// The job's process on that member, as `/status` has it.
fn process_of(worker: &Running) -> Value {
    let (_, body) = worker.http("GET", "/status");
    let status: Value = serde_json::from_str(&body).unwrap_or_default();
    status["jobs"]["shop"]["process"].clone()
}

/// The main process of each.
fn pids(worker: &Running) -> Vec<Pid> {
    let process = process_of(worker);
    let all = process["processes"].as_array().cloned().unwrap_or_default();
    let pid = |process: &Value| i32::try_from(process["pid"].as_i64()?).ok().map(Pid::from_raw);
    all.iter().filter_map(pid).collect()
}

fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[test]
fn they_run_in_order_under_one_leadership_and_each_is_shown() {
    let stage = Stage::new("/processes-order");
    let given = processes(&stage, "restart-rest");
    let east = stage.shop("east-1", "east", &[&given]);
    until("the first leads", || leads(&east));
    let started: Vec<_> =
        NAMES.iter().flat_map(|name| [format!("start {name} east-1 1"), format!("ready {name}")]).collect();
    assert_eq!(stage.log(), started);
    assert_eq!(pids(&east).len(), 3);
    let west = stage.shop("west-1", "west", &[&given]);
    until("the second is a standby", || west.code("/standby") == 200);

    let list = stage.operator(&["list"]);
    has(&list, &["process db on east-1: running, pid ", "process proxy on east-1: running, pid "]);
    let rows = stage.json(&["list"])["processes"].as_array().cloned().unwrap_or_default();
    let names: Vec<_> = rows.iter().map(|row| row["process"].clone()).collect();
    assert_eq!(names, NAMES);
    let (_, metrics) = east.http("GET", "/metrics");
    let running = "job=\"shop\",process=\"app\",state=\"running\"} 1";
    assert!(metrics.lines().any(|line| line.starts_with("dr_job_process_state") && line.ends_with(running)));

    let logs =
        |more: &[&str]| Outcome::of(stage.shop_command("east-1", "east", &[&given]).arg("logs").args(more));
    until("all output is kept", || {
        NAMES.iter().all(|name| logs(&[]).stdout.contains(&format!("out of {name}")))
    });
    has(&logs(&[]), &["db  out of db", "proxy  out of proxy"]);
    let of_one = logs(&["--process", "app"]);
    has(&of_one, &["app  out of app"]);
    assert!(!of_one.stdout.contains("out of db"), "{}", of_one.stdout);

    stage.operator(&["switchover", "--to-site", "west", "--wait"]).assert(0, &[]);
    until("the second leads", || leads(&west));
    let stopped: Vec<_> = NAMES.iter().rev().map(|name| format!("stop {name} east-1")).collect();
    let again: Vec<_> =
        NAMES.iter().flat_map(|name| [format!("start {name} west-1 2"), format!("ready {name}")]).collect();
    assert_eq!(stage.log()[6..], [stopped, again].concat());
}

#[test]
fn one_that_ends_is_restarted_by_its_rule_and_too_many_ends_move_the_leadership() {
    let stage = Stage::new("/processes-ends");
    let given = processes(&stage, "restart-one");
    let settings = [given.as_str(), "job.shop.restart.max=1"];
    let east = stage.shop("east-1", "east", &settings);
    until("the first leads", || leads(&east));
    let west = stage.shop("west-1", "west", &settings);
    until("the second is a standby", || west.code("/standby") == 200);

    let before = pids(&east);
    kill(before[1], Signal::SIGKILL).expect("alive");
    until("it is restarted", || {
        let now = pids(&east);
        now.len() == 3 && now[1] != before[1] && leads(&east)
    });
    let now = pids(&east);
    assert_eq!((now[0], now[2]), (before[0], before[2]), "the others run on");
    assert_eq!(process_of(&east)["restarts"], 1);
    assert_eq!(process_of(&east)["processes"][1]["restarts"], 1);

    kill(now[1], Signal::SIGKILL).expect("alive");
    until("the second leads", || leads(&west));
    assert!(!now.into_iter().any(is_alive));
    let problem = process_of(&east)["problem"].clone();
    assert_eq!(problem, "app: killed by SIGKILL");
}

#[test]
fn a_start_that_fails_midway_leaves_nothing_and_another_member_takes_over() {
    let stage = Stage::new("/processes-midway");
    let given = processes(&stage, "restart-all");
    // Only the first member fails.
    let fails = given.replace("sleep 0.1;", "test $DR_PROCESS$DR_MEMBER = appeast-1 && exit 3; sleep 0.1;");
    let settings = [fails.as_str(), "job.shop.restart.max=0", "policy.sites=[\"east\", \"west\"]"];
    let east = stage.shop("east-1", "east", &settings);
    until("it has failed", || stage.log().iter().any(|line| line == "stop db east-1"));
    assert!(!stage.log().iter().any(|line| line.starts_with("start proxy")), "{:?}", stage.log());
    let west = stage.shop("west-1", "west", &settings);
    until("the second leads", || leads(&west));
    assert!(pids(&east).into_iter().all(|pid| !is_alive(pid)));
    assert_eq!(pids(&west).len(), 3);
}

#[test]
fn nothing_outlives_a_killed_or_frozen_worker_or_a_killed_guard() {
    for fault in ["worker killed", "worker frozen", "guard killed"] {
        let root: &'static str = match fault {
            "worker killed" => "/processes-killed",
            "worker frozen" => "/processes-frozen",
            _ => "/processes-guard",
        };
        let stage = Stage::new(root);
        let given = processes(&stage, "restart-all");
        let settings = [given.as_str(), "job.shop.restart.max=0"];
        let mut east = stage.shop("east-1", "east", &settings);
        until("the first leads", || leads(&east));
        let west = stage.shop("west-1", "west", &settings);
        until("the second is a standby", || west.code("/standby") == 200);
        let (all, guards) = (pids(&east), east.children());
        assert_eq!((all.len(), guards.len()), (3, 3), "{fault}");
        match fault {
            "worker killed" => east.signal(Signal::SIGKILL),
            "worker frozen" => east.signal(Signal::SIGSTOP),
            _ => kill(guards[1], Signal::SIGKILL).expect("alive"),
        }
        // No second leader may start anything while one of them is left.
        until("another member starts the first one", || {
            let starts = stage.log().iter().any(|line| line.starts_with("start db west-1"));
            assert!(!starts || !all.iter().copied().any(is_alive), "{fault}: {:?}", stage.log());
            starts
        });
        until("the second leads", || leads(&west));
        if fault == "worker killed" {
            east.ended();
        }
        if fault == "worker frozen" {
            east.signal(Signal::SIGCONT);
        }
    }
}

#[test]
fn an_upgrade_in_place_keeps_them_all_and_the_new_program_restarts_and_stops_them() {
    let stage = Stage::new("/processes-upgrade");
    let given = processes(&stage, "restart-rest");
    let east = stage.shop("east-1", "east", &[&given]);
    until("it leads", || leads(&east));
    let before = pids(&east);
    let upgraded = Outcome::of(stage.shop_command("east-1", "east", &[&given]).arg("upgrade"));
    has(&upgraded, &["shop: leads on, term 1 and fencing token "]);
    until("it leads again", || leads(&east));
    assert_eq!(pids(&east), before);
    kill(before[1], Signal::SIGKILL).expect("alive");
    until("it is restarted with the one after it", || {
        let now = pids(&east);
        now.len() == 3 && now[0] == before[0] && now[1] != before[1] && now[2] != before[2] && leads(&east)
    });
    let all = pids(&east);
    east.signal(Signal::SIGTERM);
    until("the end of all", || !all.iter().copied().any(is_alive));
    let log = stage.log();
    let stops: Vec<_> = NAMES.iter().rev().map(|name| format!("stop {name} east-1")).collect();
    assert_eq!(log[log.len() - 3..], stops);
}
