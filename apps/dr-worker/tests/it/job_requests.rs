//! `restart`, `stop` and `start`: the leader carries them out and stays the leader. Real workers, on a real server.

use std::{fs, path::PathBuf};

use crate::support::{
    Background, Running,
    stage::{Stage, leads, successors},
    until,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

/// A job that records each of its starts, and hooks that record theirs.
struct Recorded {
    stage: Stage,
    record: PathBuf,
    settings: Vec<String>,
}

impl Recorded {
    /// Each line of the record is a member and what has happened there.
    fn new(root: &'static str, more: &[&str]) -> Self {
        let stage = Stage::new(root);
        let record = stage.dir.path().join("record");
        let file = record.display();
        let job = format!("echo $DR_MEMBER start >> {file}; while :; do sleep 0.1; done");
        let mut settings = vec![format!("job.orders.command={}", json!(["/bin/sh", "-c", job]))];
        for hook in ["before_takeover", "after_ready", "before_stop", "after_stop"] {
            let command = json!(["/bin/sh", "-c", format!("echo $DR_MEMBER {hook} >> {file}")]);
            settings.push(format!("job.orders.hooks.{hook}={{command={command}}}"));
        }
        settings.extend(more.iter().map(|setting| (*setting).to_owned()));
        Self { stage, record, settings }
    }

    fn worker(&self, id: &str, site: &str) -> Running {
        let settings: Vec<_> = self.settings.iter().map(String::as_str).collect();
        self.stage.worker(id, site, &settings)
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.record).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn starts(&self) -> usize {
        self.lines().iter().filter(|line| line.ends_with(" start")).count()
    }
}

fn status(worker: &Running) -> Value {
    let body = worker.http("GET", "/status").1;
    serde_json::from_str::<Value>(&body).expect("JSON")["jobs"]["orders"].clone()
}

fn last_request(stage: &Stage) -> Value {
    let list = stage.json(&["list"]);
    list["requests"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default()
}

/// Whether `/metrics` has this sample of the job.
fn metric(worker: &Running, name: &str, value: &str) -> bool {
    let text = worker.http("GET", "/metrics").1;
    let is_it = |line: &str| line.starts_with(&format!("{name}{{")) && line.contains("job=\"orders\"");
    text.lines().any(|line| is_it(line) && line.ends_with(&format!("}} {value}")))
}

#[test]
fn a_restart_keeps_leadership_its_term_and_its_token() {
    let job = Recorded::new("/restart", &[]);
    let east = job.worker("east-1", "east");
    until("east-1 leads, and its hook has run", || leads(&east) && job.lines().len() == 3);
    let before = status(&east);

    let restarted = job.stage.operator(&["restart", "--reason", "new data", "--wait"]);
    restarted.assert(0, &["request r-0000000000: restart of orders", "waiting for the job to be ready"]);
    assert_eq!(restarted.stdout, "orders was restarted on east-1\n");
    let after = status(&east);
    for same in ["role", "term", "fencing_token", "stopped"] {
        assert_eq!(before[same], after[same], "{same}");
    }
    assert_ne!(before["process"]["pid"], after["process"]["pid"]);
    until("east-1 leads", || leads(&east));
    until("the last hook has run", || job.lines().len() == 8);
    let round = ["before_takeover", "start", "after_ready"];
    let whole: Vec<_> = round.iter().chain(&["before_stop", "after_stop"]).chain(&round).collect();
    assert_eq!(job.lines(), whole.iter().map(|what| format!("east-1 {what}")).collect::<Vec<_>>());
    let request = last_request(&job.stage);
    assert_eq!((&request["kind"], &request["reason"]), (&json!("restart"), &json!("new data")));
    assert_eq!(request["outcome"]["state"], "done");
    assert!(
        job.stage
            .operator(&["list"])
            .stdout
            .contains("restart: done in term 1: east-1 has restarted the job")
    );
    let json = job.stage.json(&["restart", "--wait"]);
    assert_eq!((&json["request"], &json["outcome"]["leader"]), (&json!("r-0000000001"), &json!("east-1")));
    assert_eq!(job.starts(), 3);

    // Without --wait its id is printed.
    assert_eq!(
        job.stage.operator(&["restart"]).assert(0, &["unless the leader begins it"]).stdout,
        "r-0000000002\n"
    );
    until("it is done", || last_request(&job.stage)["outcome"]["state"] == "done");
    job.stage.operator(&["restart", "--from", "west-9"]).assert(64, &["unknown member west-9"]);
    job.stage
        .operator(&["cancel", "r-0000000002"])
        .assert(1, &["can't be withdrawn any more: done in term 1"]);
}

#[test]
fn a_stopped_job_stays_stopped_wherever_leadership_goes() {
    let job = Recorded::new("/stop", &[]);
    let mut east = job.worker("east-1", "east");
    until("east-1 leads", || leads(&east));
    let west = job.worker("west-1", "west");
    until("west-1 is in line", || successors(&job.stage.json(&["list"])) == json!(["west-1"]));
    assert!(metric(&east, "dr_stopped", "0"));

    let stopped = job.stage.operator(&["stop", "--reason", "repair", "--wait"]);
    assert_eq!(
        stopped.assert(0, &["waiting for the job to stop"]).stdout,
        "orders is stopped; east-1 leads\n"
    );
    let ends = job.lines().split_off(3);
    assert_eq!(ends, ["east-1 before_stop", "east-1 after_stop"]);
    let shown = status(&east);
    assert_eq!((&shown["role"], &shown["process"]["state"]), (&json!("leader"), &json!("stopped")));
    assert_eq!(shown["stopped"]["reason"], "repair");
    // It leads, and serves nothing.
    assert_eq!((east.code("/leader"), east.code("/standby")), (503, 503));
    assert!(metric(&east, "dr_stopped", "1") && metric(&east, "dr_leader", "1"));
    let list = job.stage.json(&["list"]);
    assert_eq!(list["stopped"]["reason"], "repair");
    let cluster: Value = serde_json::from_str(&west.http("GET", "/cluster").1).expect("JSON");
    assert_eq!(cluster["stopped"], list["stopped"]);
    let text = job.stage.operator(&["list"]).stdout;
    assert!(text.contains("the job is stopped by") && text.contains("(repair)"), "{text}");

    // Once more changes nothing, and there is nothing to restart.
    let again = job.stage.operator(&["stop"]);
    assert!(again.assert(0, &[]).stdout.contains("(repair) already"), "{}", again.stdout);
    job.stage.operator(&["restart"]).assert(1, &["(repair)", "dr-worker start --job orders"]);

    // A planned move, and the loss of a worker with all of its guards.
    job.stage.operator(&["switchover", "--wait"]).assert(0, &[]);
    assert_eq!(status(&west)["stopped"]["reason"], "repair");
    job.stage.operator(&["switchover", "--wait"]).assert(0, &[]);
    assert_eq!(status(&east)["role"], "leader");
    east.kill_with_guards();
    until("west-1 leads", || status(&west)["role"] == "leader");
    assert_eq!((&status(&west)["process"]["state"], west.code("/leader")), (&json!("stopped"), 503));
    assert_eq!((job.starts(), job.lines().len()), (1, 5), "{:?}", job.lines());

    let started = job.stage.operator(&["start", "--wait"]);
    assert_eq!(started.assert(0, &[]).stdout, "orders runs on west-1\n");
    assert!(leads(&west) && metric(&west, "dr_stopped", "0"));
    until("its hooks have run", || job.lines().len() == 8);
    assert_eq!(job.lines()[5..], ["west-1 before_takeover", "west-1 start", "west-1 after_ready"]);
    assert_eq!(job.stage.json(&["list"])["stopped"], Value::Null);
    assert_eq!(job.stage.operator(&["start"]).assert(0, &[]).stdout, "orders is not stopped\n");
    let nothing = json!({ "election": "orders", "request": null, "outcome": { "state": "done" } });
    assert_eq!(job.stage.json(&["start"]), nothing);
}

/// A worker that is shut down leads no more, so its hook must not run twice.
#[test]
fn a_stopped_job_is_stopped_once() {
    let job = Recorded::new("/stopped-once", &[]);
    let mut east = job.worker("east-1", "east");
    until("east-1 leads", || leads(&east));
    until("its hooks have run", || job.lines().len() == 3);
    job.stage.operator(&["stop", "--wait"]).assert(0, &[]);
    east.signal(Signal::SIGTERM);
    assert!(east.ended().success());
    assert_eq!(job.lines().split_off(3), ["east-1 before_stop", "east-1 after_stop"]);

    // All workers were down in between.
    let west = job.worker("west-1", "west");
    until("west-1 leads", || status(&west)["role"] == "leader");
    assert_eq!(job.starts(), 1);
    job.stage.operator(&["start", "--wait"]).assert(0, &[]);
    until("west-1 leads", || leads(&west));
}

/// The operator learns why, and another member leads: nothing has to be done twice.
#[test]
fn a_restart_that_fails_is_answered_with_the_reason() {
    let broken = tempfile::tempdir().expect("a directory");
    let mark = broken.path().join("broken");
    let ready = format!(
        "job.orders.ready={{kind=\"exec\",command=[\"/bin/sh\",\"-c\",\"test $DR_MEMBER = west-1 || ! test -e {}\"]}}",
        mark.display()
    );
    let job = Recorded::new("/restart-fails", &["policy.takeover_timeout=10s", &ready]);
    let east = job.worker("east-1", "east");
    until("east-1 leads", || leads(&east));
    let west = job.worker("west-1", "west");
    until("west-1 is in line", || successors(&job.stage.json(&["list"])) == json!(["west-1"]));
    let before = job.starts();
    let of_standby = job.stage.operator(&["restart", "--standby", "west-1", "--wait"]);
    of_standby.assert(1, &["request r-0000000000: job orders has no standby"]);
    fs::write(&mark, "").expect("a file");
    job.stage
        .operator(&["restart", "--wait"])
        .assert(1, &["request r-0000000001: the job was not ready within takeover_timeout (10s)"]);
    until("west-1 leads", || leads(&west));
    assert_eq!(job.stage.json(&["list"])["slots"][0]["decision"]["given"]["cause"], "work-failed");
    assert_eq!(job.starts(), before + 2, "{:?}", job.lines());
}

/// A start of a job that is not stopped waits for what it asks for as well.
#[test]
fn a_start_of_a_job_that_keeps_failing_is_not_done() {
    let broken = tempfile::tempdir().expect("a directory");
    let mark = broken.path().join("broken");
    let ready = format!(
        "job.orders.ready={{kind=\"exec\",command=[\"/bin/sh\",\"-c\",\"! test -e {}\"]}}",
        mark.display()
    );
    let job = Recorded::new("/start-fails", &["policy.takeover_timeout=2s", &ready]);
    let east = job.worker("east-1", "east");
    until("east-1 leads", || leads(&east));
    let start = ["start", "--wait", "--timeout", "3s"];
    job.stage.operator(&start).assert(0, &[]);
    job.stage.operator(&["stop", "--wait"]).assert(0, &[]);
    fs::write(&mark, "").expect("a file");
    job.stage.operator(&["start", "--wait"]).assert(1, &["was not ready within takeover_timeout (2s)"]);
    job.stage.operator(&start).assert(75, &["orders: "]);
    fs::remove_file(&mark).expect("no file");
    let started = job.stage.operator(&["start", "--wait", "--timeout", "50s"]);
    assert_eq!(started.assert(0, &[]).stdout, "orders is not stopped\n");
    assert!(leads(&east));
}

/// Its leader znode remains for a session timeout.
#[test]
fn a_member_that_leads_by_its_znode_alone_does_not_lead() {
    let job = Recorded::new("/znode-alone", &[]);
    let mut east = job.worker("east-1", "east");
    until("east-1 leads", || leads(&east));
    let failover = ["failover", "--force", "--to", "east-1", "--wait", "--yes"];
    job.stage.operator(&failover).assert(0, &[]);
    east.kill_with_guards();
    job.stage.operator(&failover).assert(75, &["east-1 held the leader znode, and has lost it"]);
}

/// The leader dies in the middle of it: the next leader answers, and does not restart its job.
#[test]
fn a_restart_is_not_carried_out_twice() {
    let gate = tempfile::tempdir().expect("a directory");
    let closed = gate.path().join("closed");
    let ready = format!(
        "job.orders.ready={{kind=\"exec\",command=[\"/bin/sh\",\"-c\",\"test $DR_MEMBER = west-1 || ! test -e {}\"]}}",
        closed.display()
    );
    let job = Recorded::new("/restart-once", &[&ready]);
    let mut east = job.worker("east-1", "east");
    until("east-1 leads", || leads(&east));
    let west = job.worker("west-1", "west");
    until("west-1 is in line", || successors(&job.stage.json(&["list"])) == json!(["west-1"]));
    fs::write(&closed, "").expect("a file");
    let waiting = Background::of(job.stage.command(&[]).args(["restart", "--wait", "--timeout", "50s"]));
    until("the job is started again", || job.starts() == 2);
    // It does not serve meanwhile, and a second one is not accepted.
    assert_eq!((status(&east)["role"].as_str(), east.code("/leader")), (Some("leader"), 503));
    job.stage.operator(&["restart"]).assert(75, &["request r-0000000000, a restart, is still open"]);
    job.stage.operator(&["switchover"]).assert(75, &["the restart of request r-0000000000 is under way"]);
    east.kill_with_guards();
    until("west-1 leads", || leads(&west));
    waiting.outcome().assert(1, &["it was interrupted in term 1", "west-1 leads in term 2"]);
    assert_eq!(job.starts(), 3, "{:?}", job.lines());
}

/// A leader that starts the job again obeys a stop meanwhile.
#[test]
fn a_job_that_is_being_restarted_can_be_stopped() {
    let gate = tempfile::tempdir().expect("a directory");
    let closed = gate.path().join("closed");
    let is_open = json!(["/bin/sh", "-c", format!("! test -e {}", closed.display())]);
    let job = Recorded::new(
        "/restart-stopped",
        &[&format!("job.orders.ready={{kind=\"exec\",command={is_open}}}")],
    );
    let east = job.worker("east-1", "east");
    until("east-1 leads", || leads(&east));
    fs::write(&closed, "").expect("a file");
    let waiting = Background::of(job.stage.command(&[]).args(["restart", "--wait", "--timeout", "50s"]));
    until("the job is started again", || job.starts() == 2);
    job.stage.operator(&["stop", "--wait"]).assert(0, &[]);
    waiting.outcome().assert(1, &["request r-0000000000: the job is stopped by"]);
    assert_eq!((status(&east)["role"].as_str(), job.starts()), (Some("leader"), 2));
}

/// A job that never gets ready has no READY leader, but can be stopped.
#[test]
fn a_job_that_is_never_ready_can_be_stopped() {
    let never = "job.orders.ready={kind=\"exec\",command=[\"/bin/false\"]}";
    let job = Recorded::new("/never-ready", &[never]);
    let east = job.worker("east-1", "east");
    until("the job runs", || job.starts() == 1);
    job.stage.operator(&["restart"]).assert(75, &["no READY leader"]);
    job.stage.operator(&["stop", "--wait"]).assert(0, &[]);
    assert_eq!((status(&east)["role"].as_str(), job.starts()), (Some("leader"), 1));
}

/// As for the other requests: a command that waits leaves none behind, and one that does not wait files one that expires.
#[test]
fn a_request_that_no_leader_begins_is_never_carried_out() {
    let job = Recorded::new("/no-leader", &["policy.forbidden_sites=[\"north\"]"]);
    let north = job.worker("north-1", "north");
    until("it has joined", || north.code("/readiness") == 200);
    job.stage
        .operator(&["stop", "--wait", "--timeout", "1s"])
        .assert(75, &["request r-0000000000 was withdrawn: no leader began it within 1s; nothing was done"]);
    job.stage.operator(&["stop"]).assert(0, &["it expires unless the leader begins it within"]);
    job.stage.operator(&["start"]).assert(75, &["request r-0000000001, a stop, is still open"]);
    assert_eq!(job.stage.operator(&["cancel", "r-0000000001"]).stdout, "request r-0000000001 is withdrawn\n");
    let east = job.worker("east-1", "east");
    until("east-1 leads", || leads(&east));
    let states: Vec<_> = job.stage.json(&["list"])["requests"]
        .as_array()
        .map(|all| all.iter().map(|request| request["outcome"]["state"].clone()).collect())
        .unwrap_or_default();
    assert_eq!(states, ["cancelled", "cancelled"]);
}

/// A push restarts the job where it leads, by a request that names the member. Whoever leads next answers it.
#[test]
fn a_restart_by_a_push_ends_though_its_member_was_killed() {
    let slow = "job.orders.hooks.before_stop={command=[\"/bin/sleep\", \"600\"],timeout=\"10m\"}";
    let job = Recorded::new("/push-killed", &["zookeeper.overlay=all", slow]);
    let mut east = job.worker("east-1", "east");
    until("east-1 leads", || leads(&east));
    let west = job.worker("west-1", "west");
    until("west-1 is in line", || successors(&job.stage.json(&["list"])) == json!(["west-1"]));
    let pushed = job.stage.dir.path().join("pushed.toml");
    fs::write(&pushed, "env = { PUSHED = \"1\" }\n").expect("a file");
    let mut push = job.stage.command(&["zookeeper.overlay=all"]);
    push.args(["config", "push", &pushed.display().to_string(), "--job", "orders"]);
    crate::support::Outcome::of(&mut push).assert(0, &[]);
    // A reload before the push is applied does not swallow it.
    east.signal(Signal::SIGHUP);
    until("the restart has begun", || last_request(&job.stage)["outcome"]["state"] == "accepted");
    assert_eq!(last_request(&job.stage)["from"], json!({ "member": "east-1" }));
    east.kill_with_guards();
    until("west-1 leads", || leads(&west));
    until("the request has ended", || last_request(&job.stage)["outcome"]["state"] == "failed");
    // And is no obstacle for another.
    job.stage.operator(&["stop"]).assert(0, &[]);
}

/// Each leader obeys the order, so the next one carries it out.
#[test]
fn a_stop_and_a_start_end_though_their_leader_was_killed() {
    let gate = tempfile::tempdir().expect("a directory");
    let closed = gate.path().join("closed");
    let of_east = "job.orders.hooks.before_stop={command=[\"/bin/sh\",\"-c\",\"test $DR_MEMBER = west-1 || \
                   sleep 600\"],timeout=\"10m\"}";
    let of_west = format!(
        "job.orders.ready={{kind=\"exec\",command=[\"/bin/sh\",\"-c\",\"test $DR_MEMBER = east-1 || ! test -e {}\"]}}",
        closed.display()
    );
    let job = Recorded::new("/order-killed", &[of_east, &of_west]);
    let mut east = job.worker("east-1", "east");
    until("east-1 leads", || leads(&east));
    let mut west = job.worker("west-1", "west");
    let in_line = |member: &str| successors(&job.stage.json(&["list"])) == json!([member]);
    let last = || last_request(&job.stage)["outcome"].clone();
    until("west-1 is in line", || in_line("west-1"));

    job.stage.operator(&["stop"]).assert(0, &[]);
    until("the stop has begun", || last()["state"] == "accepted");
    east.kill_with_guards();
    until("west-1 has carried it out", || last()["state"] == "done");
    assert_eq!((last()["leader"].as_str(), job.starts()), (Some("west-1"), 1), "{:?}", job.lines());

    let east = job.worker("east-1", "east");
    until("east-1 is in line", || in_line("east-1"));
    fs::write(&closed, "").expect("a file");
    job.stage.operator(&["start"]).assert(0, &[]);
    until("the start has begun", || last()["state"] == "accepted" && job.starts() == 2);
    west.kill_with_guards();
    until("east-1 has carried it out", || last()["state"] == "done");
    assert_eq!((last()["leader"].as_str(), job.starts()), (Some("east-1"), 3), "{:?}", job.lines());
    assert_eq!(status(&east)["role"], "leader");
}

#[test]
fn a_queue_takes_no_such_requests() {
    let stage = Stage::new("/queue-requests");
    let worker = stage.worker("east-1", "east", &["job.orders.recipe=queue"]);
    until("it leads", || leads(&worker));
    stage.operator(&["restart"]).assert(1, &["recipe \"queue\"", "needs the recipe \"elector\""]);
}

/// With several leaders each of them stops its job, and one of them restarts it.
#[test]
fn all_leaders_of_a_job_stop_it() {
    let job = Recorded::new("/stop-slots", &["policy.slots=2"]);
    let (east, west) = (job.worker("east-1", "east"), job.worker("west-1", "west"));
    until("both lead", || leads(&east) && leads(&west));
    job.stage.operator(&["restart"]).assert(1, &["there are 2 slots"]);
    job.stage.operator(&["restart", "--from", "west-1", "--wait"]).assert(0, &[]);
    assert_eq!(last_request(&job.stage)["from"], json!({ "member": "west-1" }), "wherever it leads by then");
    assert_eq!(job.starts(), 3);
    assert_eq!(job.lines().iter().filter(|line| *line == "west-1 start").count(), 2);
    job.stage.operator(&["stop", "--wait"]).assert(0, &[]);
    until("both have stopped", || [&east, &west].iter().all(|w| status(w)["process"]["state"] == "stopped"));
    job.stage.operator(&["start", "--wait"]).assert(0, &[]);
    until("both lead", || leads(&east) && leads(&west));
    assert_eq!(job.starts(), 5);
}

/// The job has ended by itself, without a request for a restart.
#[test]
fn a_job_that_is_not_ready_again_costs_its_leader_the_leadership() {
    let stage = Stage::new("/not-ready-again");
    let broken = stage.dir.path().join("broken");
    let ready = format!(
        "job.orders.ready={{ kind = \"exec\", command = [\"test\", \"!\", \"-e\", \"{}\"], interval = \"50ms\" }}",
        broken.display()
    );
    let settings = ["job.orders.command=[\"sleep\", \"600\"]", "job.orders.restart.backoff=10ms"];
    let east = [&settings[..], &[&ready, "policy.takeover_timeout=3s"]].concat();
    let east = stage.worker("east-1", "east", &east);
    until("the first leads", || leads(&east));
    let west = stage.worker("west-1", "west", &settings);
    let status: serde_json::Value = serde_json::from_str(&east.http("GET", "/status").1).expect("JSON");
    let pid = status["jobs"]["orders"]["process"]["pid"].as_i64().expect("it runs");
    fs::write(&broken, "").expect("a file");
    kill(Pid::from_raw(i32::try_from(pid).expect("a process id")), Signal::SIGKILL).expect("it lives");
    until("the other leads", || leads(&west));
}
