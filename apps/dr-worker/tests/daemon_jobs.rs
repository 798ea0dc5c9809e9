//! What a job and its hooks live through, from the first start to the end of the worker.

mod support;

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use support::{Running, dr_worker, set, until};
use zk_testkit::Ensemble;

/// A worker whose job and hooks write what happens, each its own line.
struct Stage {
    runtime: tokio::runtime::Runtime,
    ensemble: Option<Ensemble>,
    dir: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let tick = Duration::from_millis(500);
        let ensemble = runtime
            .block_on(Ensemble::builder().servers(1).tick_time(tick).start())
            .expect("a ZooKeeper server");
        Self { runtime, ensemble: Some(ensemble), dir: tempfile::tempdir().expect("a directory") }
    }

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

    fn worker(&self, settings: &[String]) -> Running {
        let mut command = dr_worker();
        let connect = self.ensemble.as_ref().expect("it runs").connect_string();
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
        Running::start(&mut command)
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

impl Drop for Stage {
    fn drop(&mut self) {
        let _inside = self.runtime.enter();
        drop(self.ensemble.take());
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
    for hook in HOOKS {
        settings.push(format!("job.orders.hooks.{hook}.command={}", stage.writes(hook, "true")));
    }
    let mut worker = stage.worker(&settings);
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
    let mut worker = stage.worker(&settings);
    until("the worker leads", || worker.code("/leader") == 200);
    worker.signal(Signal::SIGTERM);
    until("the hook runs", || stage.words().iter().any(|word| word == "before_stop"));
    assert_eq!(worker.code("/leader"), 503);
    let asked = Instant::now();
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ended().code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
    assert_eq!(stage.words(), ["job", "before_stop"]);
}

#[test]
fn a_takeover_that_fails_leaves_nothing_running_and_is_cleaned_up_after() {
    let stage = Stage::new();
    let settings = [
        format!("job.orders.command={}", stage.writes("job", "sleep 600")),
        format!("job.orders.hooks.before_takeover.command={}", stage.writes("before_takeover", "exit 3")),
        format!("job.orders.hooks.after_stop.command={}", stage.writes("after_stop", "true")),
    ];
    let worker = stage.worker(&settings);
    until("it is cleaned up", || stage.words().iter().any(|word| word == "after_stop"));
    assert_eq!(stage.words()[..2], ["before_takeover", "after_stop"]);
    assert!(!stage.words().iter().any(|word| word == "job"), "{:?}", stage.lines());
    until("it is counted", || {
        let metrics = worker.http("GET", "/metrics").1;
        metrics.lines().any(|line| line.starts_with("dr_takeover_failures_total") && !line.ends_with(" 0"))
    });
    assert_eq!(worker.code("/leader"), 503);
}
