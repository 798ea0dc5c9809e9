//! What a job and its hooks live through, from the first start to the end of the worker.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use crate::support::{Outcome, Running, dr_worker, own_server::OwnServer as Stage, set, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A worker whose job and hooks write what happens, each its own line.
impl Stage {
    fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    /// A command that writes a line, with what it is told about the leadership.
    fn writes(&self, word: &str, then: &str) -> String {
        let line = "$DR_JOB $DR_MEMBER $DR_SITE $DR_TERM $DR_CAUSE $DR_LEADER";
        let script = format!(
            "echo {word} {line} >> {}; test -n \"$DR_FENCING_TOKEN\" || echo no token; {then}",
            self.journal().display()
        );
        serde_json::json!(["/bin/sh", "-c", script]).to_string()
    }

    fn lone_worker(&self, settings: &[String]) -> Running {
        Running::start(&mut self.lone_command(settings))
    }

    fn lone_command(&self, settings: &[String]) -> Command {
        let mut command = dr_worker();
        let connect = self.server().connect_string();
        set(
            &mut command,
            &[
                &format!("zookeeper.connect={connect}"),
                "zookeeper.tick_time=500ms",
                "zookeeper.session_timeout=6s",
                "node.id=east-1",
                "node.site=east",
                &format!("node.state_dir={}", self.dir.path().join("state").display()),
                "job.orders.stop_timeout=1s",
            ],
        );
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        set(&mut command, &settings);
        command
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(self.journal()).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// The first word of each line, but for those of the hook that runs beside all others.
    fn words(&self) -> Vec<String> {
        let lines = self.lines();
        let words = lines.iter().filter_map(|line| line.split(' ').next().map(str::to_owned));
        words.filter(|word| word != "on_leader_changed").collect()
    }
}

const HOOKS: [&str; 6] =
    ["prepare", "before_takeover", "after_ready", "before_stop", "after_stop", "on_leader_changed"];

#[test]
fn hooks_run_in_their_order_and_are_told_of_the_leadership() {
    let stage = Stage::new();
    let mut settings = vec![format!(
        "job.orders.command={}",
        stage.writes("job", "trap 'echo stopped >> journal; exit' TERM; while :; do sleep 0.05; done")
    )];
    settings.push(format!("job.orders.working_dir={}", stage.dir.path().display()));
    // Else `after_ready` may run before the job's first line is written.
    settings.push("job.orders.ready.kind=exec".to_owned());
    settings.push(r#"job.orders.ready.command=["grep", "-q", "^job ", "journal"]"#.to_owned());
    settings.push("job.orders.ready.interval=20ms".to_owned());
    for hook in HOOKS {
        settings.push(format!("job.orders.hooks.{hook}.command={}", stage.writes(hook, "true")));
    }
    let mut worker = stage.lone_worker(&settings);
    until("the job is ready", || stage.words().iter().any(|word| word == "after_ready"));
    until("the hook of every member has run", || {
        stage.lines().iter().any(|line| line == "on_leader_changed orders east-1 east 1 east-1")
    });
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ended().code(), Some(0));
    let expected =
        ["prepare", "before_takeover", "job", "after_ready", "before_stop", "stopped", "after_stop"];
    assert_eq!(stage.words(), expected);
    for line in stage.lines().iter().filter(|line| line.contains(' ') && !line.starts_with("on_leader")) {
        assert!(line.ends_with(" orders east-1 east 1 startup"), "{line}");
    }
}

#[test]
fn a_second_signal_leaves_hooks_and_patience_out() {
    let stage = Stage::new();
    let settings = [
        // Deaf to SIGTERM, and a hook that takes its time.
        format!("job.orders.command={}", stage.writes("job", "trap '' TERM; while :; do sleep 0.05; done")),
        format!("job.orders.hooks.before_stop.command={}", stage.writes("before_stop", "sleep 600")),
        "job.orders.hooks.before_stop.timeout=20m".to_owned(),
        format!("job.orders.hooks.after_stop.command={}", stage.writes("after_stop", "true")),
    ];
    let mut worker = stage.lone_worker(&settings);
    until("the worker leads", || worker.code("/leader") == 200);
    until("the job has begun", || stage.words() == ["job"]);
    worker.signal(Signal::SIGTERM);
    until("the hook runs", || stage.words().iter().any(|word| word == "before_stop"));
    assert_eq!(worker.code("/leader"), 503);
    let asked = Instant::now();
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ended().code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
    assert_eq!(stage.words(), ["job", "before_stop"]);
}

/// A hook that mounts data must not do so beside the next leader.
#[test]
fn a_hook_of_a_frozen_worker_is_gone_before_another_one_leads() {
    let stage = Stage::new();
    let file = stage.dir.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 600", file.display());
    let hook = serde_json::json!(["/bin/sh", "-c", script]);
    let job = format!("job.orders.command={}", stage.writes("job", "sleep 600"));
    let pid = || fs::read_to_string(&file).unwrap_or_default().trim().to_owned();
    let frozen = stage.lone_worker(&[
        job.clone(),
        format!("job.orders.hooks.before_takeover.command={hook}"),
        "job.orders.hooks.before_takeover.timeout=20m".to_owned(),
        "job.orders.policy.takeover_timeout=30m".to_owned(),
    ]);
    until("the hook runs", || !pid().is_empty());
    frozen.signal(Signal::SIGSTOP);
    let next = stage.lone_worker(&[
        job,
        "node.id=west-1".to_owned(),
        "node.site=west".to_owned(),
        format!("node.state_dir={}", stage.dir.path().join("west").display()),
    ]);
    until("another one leads", || next.code("/leader") == 200);
    assert!(!Path::new("/proc").join(pid()).exists(), "the hook lives beside the next leader");
    frozen.signal(Signal::SIGCONT);
    until("the frozen one knows it", || frozen.code("/standby") == 200);
}

#[test]
fn what_worker_and_guard_have_left_is_gone_before_the_next_worker_leads() {
    let stage = Stage::new();
    let acts = stage.dir.path().join("acts");
    let script = format!(
        "echo $$ >> {0}; (setsid sh -c 'while :; do echo $$ >> {0}; sleep 0.02; done' &); exec sleep 600",
        acts.display()
    );
    let command = format!("job.orders.command={}", serde_json::json!(["/bin/sh", "-c", script]));
    let acting = || -> Vec<String> {
        fs::read_to_string(&acts).unwrap_or_default().lines().map(str::to_owned).collect()
    };
    let mut worker = stage.lone_worker(&[command]);
    until("all of the job runs", || acting().len() > 2);
    worker.kill_with_guards();
    let mut left = acting();
    left.dedup();
    // Whoever adopts the dead may take its time to reap them.
    let lives = |pid: &&String| {
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    };
    assert!(left.iter().any(|pid| lives(&pid)), "nothing is left to end");

    let next = stage.lone_worker(&[format!("job.orders.command={}", stage.writes("job", "sleep 600"))]);
    until("the next job runs", || stage.words().iter().any(|word| word == "job"));
    let living: Vec<&String> = left.iter().filter(lives).collect();
    assert!(living.is_empty(), "these live beside the next job: {living:?}");
    until("it leads", || next.code("/leader") == 200);
}

#[test]
fn what_is_not_proved_to_be_gone_is_waited_for() {
    let stage = Stage::new();
    let file = stage.dir.path().join("pid");
    let hidden =
        format!("(setsid env -i sh -c 'echo $$ > {}; exec sleep 600' &); exec sleep 600", file.display());
    let pid = || fs::read_to_string(&file).unwrap_or_default().trim().parse::<i32>().ok();
    let command = format!("job.orders.command={}", serde_json::json!(["/bin/sh", "-c", hidden]));
    let mut worker = stage.lone_worker(&[command]);
    until("it leads", || worker.code("/leader") == 200 && pid().is_some());
    let killed = Instant::now();
    worker.kill_with_guards();
    let next = stage.lone_worker(&[format!("job.orders.command={}", stage.writes("job", "sleep 600"))]);
    until("the next job runs", || stage.words().iter().any(|word| word == "job"));
    // The session of the former worker lasts for six seconds from its last heartbeat, of which there are four in that time.
    assert!(killed.elapsed() > Duration::from_secs(3), "{:?}", killed.elapsed());
    kill(Pid::from_raw(pid().expect("its pid")), Signal::SIGKILL)
        .expect("a stranger's life is not ours to end");
    drop(next);
}

#[test]
fn a_long_hook_does_not_hold_up_the_end() {
    let stage = Stage::new();
    let mut worker = stage.lone_worker(&[
        format!("job.orders.command={}", stage.writes("job", "sleep 600")),
        format!("job.orders.hooks.after_ready.command={}", stage.writes("after_ready", "sleep 600")),
        "job.orders.hooks.after_ready.timeout=20m".to_owned(),
    ]);
    until("the hook runs", || stage.words().iter().any(|word| word == "after_ready"));
    let asked = Instant::now();
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ended().code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(60), "{:?}", asked.elapsed());
}

#[test]
fn a_takeover_that_fails_leaves_nothing_running_and_is_cleaned_up_after() {
    let stage = Stage::new();
    let settings = [
        format!("job.orders.command={}", stage.writes("job", "sleep 600")),
        format!("job.orders.hooks.before_takeover.command={}", stage.writes("before_takeover", "exit 3")),
        format!("job.orders.hooks.after_stop.command={}", stage.writes("after_stop", "true")),
    ];
    let worker = stage.lone_worker(&settings);
    until("it is cleaned up", || stage.words().iter().any(|word| word == "after_stop"));
    assert_eq!(stage.words()[..2], ["before_takeover", "after_stop"]);
    assert!(!stage.words().iter().any(|word| word == "job"), "{:?}", stage.lines());
    until("it is counted", || {
        let metrics = worker.http("GET", "/metrics").1;
        metrics.lines().any(|line| line.starts_with("dr_takeover_failures_total") && !line.ends_with(" 0"))
    });
    assert_eq!(worker.code("/leader"), 503);
}

/// A refusal is no failure: another member leads at once, and nothing is counted.
#[test]
fn a_member_whose_hook_declines_leaves_leadership_to_another() {
    let stage = Stage::new();
    let prepare = "if [ $DR_MEMBER = east-1 ]; then echo 'in the wrong rack' >&2; exit 75; fi";
    let settings = [
        format!("job.orders.command={}", stage.writes("job", "sleep 600")),
        format!("job.orders.hooks.prepare.command={}", stage.writes("prepare", prepare)),
    ];
    let east = stage.lone_worker(&settings);
    until("it has declined", || !stage.words().is_empty());
    let of_west = [
        "node.id=west-1".to_owned(),
        "node.site=west".to_owned(),
        format!("node.state_dir={}", stage.dir.path().join("west").display()),
    ];
    let west = stage.lone_worker(&[&settings[..], &of_west].concat());
    until("the other one leads", || west.code("/leader") == 200);
    let metrics = east.http("GET", "/metrics").1;
    for counter in ["dr_takeover_failures_total", "dr_hook_failures_total"] {
        let line = metrics.lines().find(|line| line.starts_with(&format!("{counter}{{")));
        assert!(line.is_some_and(|line| line.ends_with(" 0")), "{counter}: {line:?}");
    }
    let explained = west.http("GET", "/explain").1;
    assert!(explained.contains("hook prepare of job orders declined leadership"), "{explained}");
}

#[test]
fn an_asynchronous_hook_that_hangs_delays_neither_stop_nor_handover() {
    let stage = Stage::new();
    let mut settings = vec![format!("job.orders.command={}", stage.writes("job", "exec sleep 600"))];
    for hook in ["before_stop", "after_stop"] {
        settings.push(format!("job.orders.hooks.{hook}.command={}", stage.writes(hook, "sleep 600")));
        settings.push(format!("job.orders.hooks.{hook}.timeout=20m"));
        settings.push(format!("job.orders.hooks.{hook}.mode=async"));
    }
    let mut east = stage.lone_worker(&settings);
    until("it leads", || east.code("/leader") == 200);
    let of_west = [
        "node.id=west-1".to_owned(),
        "node.site=west".to_owned(),
        format!("node.state_dir={}", stage.dir.path().join("west").display()),
    ];
    let west = stage.lone_worker(&[&settings[..], &of_west].concat());
    until("the other one takes part", || west.code("/standby") == 200);
    let asked = Instant::now();
    let mut command = dr_worker();
    let connect = stage.server().connect_string();
    set(&mut command, &[&format!("zookeeper.connect={connect}")]);
    Outcome::of(command.args(["switchover", "--to", "west-1", "--wait"])).assert(0, &[]);
    assert!(west.code("/leader") == 200);
    assert!(asked.elapsed() < Duration::from_secs(60), "{:?}", asked.elapsed());
    until("both hooks run", || {
        ["before_stop", "after_stop"].iter().all(|hook| stage.words().iter().any(|word| word == hook))
    });
    // They end with their worker.
    east.signal(Signal::SIGTERM);
    assert_eq!(east.ended().code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(120), "{:?}", asked.elapsed());
}

#[test]
fn a_start_that_zookeeper_does_not_learn_of_is_recorded_afterwards() {
    let stage = Stage::with(|builder| builder.tick_time(Duration::from_secs(2)));
    let ready = stage.dir.path().join("ready");
    let settings: [&str; 7] = [
        // Longer than ZooKeeper is silent.
        "zookeeper.tick_time=2s",
        "zookeeper.session_timeout=40s",
        "job.orders.command=[\"sleep\", \"1000\"]",
        &format!("job.orders.ready={{ kind = \"exec\", command = [\"test\", \"-f\", {ready:?}] }}"),
        "job.web.command=[\"sleep\", \"1000\"]",
        "job.web.stop_timeout=1s",
        "job.web.after=[\"orders\"]",
    ];
    fs::write(&ready, "").expect("a file");
    let (log, stderr) = std::io::pipe().expect("a pipe");
    let mut log = BufReader::new(log);
    let mut command = stage.lone_command(&settings.map(str::to_owned));
    let worker = Running::start_logging_to(command.stderr(stderr), &mut log);
    let state = |job: &str| {
        let status: serde_json::Value = serde_json::from_str(&worker.http("GET", "/status").1).expect("JSON");
        status["jobs"][job]["process"]["state"].as_str().unwrap_or_default().to_owned()
    };
    until("both run", || ["orders", "web"].iter().all(|job| state(job) == "running"));
    let order = |verb: &[&str]| {
        let mut command = dr_worker();
        set(&mut command, &[&format!("zookeeper.connect={}", stage.server().connect_string())]);
        Outcome::of(command.args(verb)).assert(0, &[]);
    };
    order(&["stop", "--job", "orders", "--wait"]);
    until("the one after it has stopped", || state("web") != "running");
    fs::remove_file(&ready).expect("it exists");
    order(&["start", "--job", "orders"]);
    until("it is being started", || state("orders") == "starting");
    stage.server().faults().black_hole(true);
    fs::write(&ready, "").expect("a file");
    let is_given_up = |line: io::Result<String>| line.expect("a line").contains("its program runs");
    assert!(log.by_ref().lines().any(is_given_up));
    stage.server().faults().black_hole(false);
    until("the one after it runs", || state("web") == "running");
}
