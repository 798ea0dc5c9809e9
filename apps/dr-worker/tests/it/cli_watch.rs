//! `assert` and `watch`: what scripts and other programs get from the real program.

use std::{
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use crate::support::{
    LONG, Outcome, dr_worker, set,
    stage::{Stage, leads, successors},
    until,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use zk_testkit::TestServer;

/// A running `watch`.
struct Watch {
    child: Child,
    /// Until this test reads no more.
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Watch {
    fn start(command: &mut Command) -> Self {
        let mut child =
            command.arg("watch").stdout(Stdio::piped()).spawn().expect("dr-worker can be started");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { child, lines: Some(lines) }
    }

    /// The lines up to the first for which `is` says yes, which is the last of them.
    #[track_caller]
    fn up_to(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut seen = Vec::new();
        for line in self.lines.iter_mut().flatten() {
            let line = line.expect("a line");
            seen.push(serde_json::from_str::<Value>(&line).unwrap_or_else(|e| panic!("{e}: {line}")));
            if seen.last().is_some_and(&is) {
                return seen;
            }
        }
        panic!("watch ended before {what}: {seen:#?}")
    }

    #[track_caller]
    fn assert_ends(mut self) {
        let deadline = Instant::now() + LONG;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("its own child") {
                break status;
            }
            assert!(Instant::now() < deadline, "watch has not ended");
            // Between two looks.
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(0));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_ready(member: &'static str) -> impl Fn(&Value) -> bool {
    move |line| line["event"] == "leader" && line["leader"] == member && line["status"] == "READY"
}

fn names(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["event"].as_str()).collect()
}

#[test]
fn each_change_is_one_line() {
    let stage = Stage::new("/watched");
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let mut watch = Watch::start(&mut stage.command(&[]));
    let first = watch.up_to("the present leader", is_ready("east-1"));
    assert!(first.iter().all(|line| line["initial"] == true && line["at_ms"].is_u64()), "{first:#?}");
    assert_eq!(first.iter().filter(|line| line["event"] == "session").count(), 1, "{first:#?}");

    let west = stage.worker("west-1", "west", &[]);
    let joined = watch.up_to("the new member", |line| line["event"] == "member-joined");
    let last = joined.last().expect("a line");
    assert_eq!(
        (&last["member"], &last["site"], &last["job"]),
        (&"west-1".into(), &"west".into(), &"orders".into())
    );
    assert!(last["initial"].is_null(), "{last}");
    until("west-1 is next in line", || successors(&stage.json(&["list"]))[0] == "west-1");

    stage.operator(&["switchover", "--to", "west-1", "--reason", "a test", "--wait"]).assert(0, &[]);
    let is_done = |line: &Value| line["event"] == "history" && line["leadership"]["member"] == "west-1";
    let mut moved = watch.up_to("the history", is_done);
    let answered = |line: &Value| line["event"] == "request" && line["request"]["outcome"]["state"] == "done";
    if !moved.iter().any(answered) {
        moved.extend(watch.up_to("the answer", answered));
    }
    assert!(moved.iter().any(is_ready("west-1")), "{moved:#?}");
    let decided = moved.iter().find(|line| line["event"] == "decision").expect("a decision");
    assert_eq!((&decided["named"], &decided["cause"]), (&"west-1".into(), &"switchover".into()));
    assert!(moved.iter().any(|line| line["request"]["reason"] == "a test"), "{moved:#?}");

    drop(east);
    watch.up_to("the lost member", |line| line["event"] == "member-left" && line["member"] == "east-1");
    drop(west);
}

#[test]
fn it_ends_by_a_signal_and_when_no_program_reads_it() {
    let stage = Stage::new("/unwatched");
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut watch = Watch::start(&mut stage.command(&[]));
        watch.up_to("the present leader", is_ready("east-1"));
        kill(Pid::from_raw(watch.child.id().cast_signed()), signal).expect("it lives");
        watch.assert_ends();
    }
    // As `watch | head -1` does; nothing changes meanwhile.
    let mut watch = Watch::start(&mut stage.command(&[]));
    watch.up_to("the present leader", is_ready("east-1"));
    watch.lines = None;
    watch.assert_ends();
}

#[test]
fn a_lost_connection_is_a_line_and_nothing_is_missed() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server =
        TestServer::builder().tick_time(Duration::from_millis(500)).start_on_thread().expect("a server");
    let command = |id: &str| {
        let mut command = dr_worker();
        set(
            &mut command,
            &[
                &format!("zookeeper.connect={}", server.connect_string()),
                "zookeeper.tick_time=500ms",
                "zookeeper.session_timeout=6s",
                "zookeeper.connect_timeout=30s",
                &format!("node.id={id}"),
            ],
        );
        command
    };
    let dir = tempfile::tempdir().expect("a directory");
    let mut worker = command("east-1");
    let state = format!("node.state_dir={}", dir.path().display());
    set(
        &mut worker,
        &[
            "node.site=east",
            &state,
            "job.orders.command=[\"/bin/sleep\", \"1000\"]",
            "job.orders.stop_timeout=1s",
        ],
    );
    // Before there is an election.
    let mut watch = Watch::start(&mut command("operator"));
    watch.up_to("the session", |line| line["event"] == "session" && line["state"] == "active");
    let worker = crate::support::Running::start(&mut worker);
    watch.up_to("a leader", is_ready("east-1"));

    runtime.block_on(server.stop(0)).expect("it stops");
    let lost = watch.up_to("the loss", |line| line["event"] == "session");
    assert_ne!(lost.last().expect("a line")["state"], "active");
    drop(worker);
    runtime.block_on(server.start_server(0)).expect("it starts");
    let back =
        watch.up_to("the end of the loss", |line| line["event"] == "session" && line["state"] == "active");
    assert!(!names(&back).contains(&"member-left"), "{back:#?}");
    watch.up_to("what has happened meanwhile", |line| line["event"] == "member-left");
}

#[test]
fn a_token_is_asserted() {
    let stage = Stage::new("/asserted");
    // READY only once the file is there.
    let ready = stage.dir.path().join("ready");
    let probe = format!(
        "job.orders.ready={{kind=\"exec\", command=[\"/usr/bin/test\", \"-e\", \"{}\"]}}",
        ready.display()
    );
    let worker = stage.worker("east-1", "east", &[&probe]);
    // At first there is no election.
    let token = || {
        let list = stage.operator(&["--output", "json", "list"]).stdout;
        serde_json::from_str::<Value>(&list).ok()?["slots"][0]["leader"]["fencing_token"].as_u64()
    };
    until("east-1 takes over", || token().is_some());
    let own = token().expect("a token");
    let assert = |token: u64, rest: &[&str]| {
        stage.operator(&[&["assert", "--token", &token.to_string()], rest].concat())
    };
    assert(own, &[]).assert(75, &["east-1 is taking over with this token"]);
    assert(own - 1, &[]).assert(1, &["is not the token of the leader", &format!("east-1 has {own}")]);
    std::fs::write(&ready, "").expect("a file");
    until("east-1 leads", || leads(&worker));

    let quiet = assert(own, &["--job", "orders"]);
    quiet.assert(0, &[]);
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""), "an exit code, for scripts");
    println!("assert took {:?}", quiet.took);
    let holds = stage.json(&["assert", "--token", &own.to_string()]);
    assert_eq!((&holds["token"], &holds["leader"]), (&own.into(), &"east-1".into()), "{holds}");
    for other in [own - 1, own + 1] {
        assert(other, &[]).assert(1, &["is not the token of the leader"]);
    }
    let refused = stage.operator(&["--output", "json", "assert", "--token", "1"]);
    refused.assert(1, &[]);
    assert!(refused.stdout.contains("\"code\":1"), "{}", refused.stdout);

    worker.signal(Signal::SIGTERM);
    until("no member leads", || token().is_none());
    assert(own, &[]).assert(75, &["no member is READY"]);
    Outcome::of(dr_worker().args(["assert"])).assert(64, &["--token"]);
}
