//! A worker and the operator's commands on a real ZooKeeper server.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

use crate::support::{
    Background, Log, Outcome, Running, code_of,
    stage::{Stage, leads, successors},
    until,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use zk_session::CreateMode;

#[test]
fn a_worker_leads_and_says_so_everywhere() {
    let stage = Stage::new("/everywhere");
    let mut east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[]);
    until("west-1 is standby", || west.code("/standby") == 200);

    // Each path, by each method that is understood.
    for method in ["GET", "HEAD", "OPTIONS"] {
        for (path, on_leader, on_standby) in [
            ("/leader", 200, 503),
            ("/standby", 503, 200),
            ("/liveness", 200, 200),
            ("/readiness", 200, 200),
            ("/status", 200, 200),
            ("/cluster", 200, 200),
            ("/history", 200, 200),
            ("/metrics", 200, 200),
            ("/leader?job=orders", 200, 503),
            ("/leader?job=bills", 404, 404),
            ("/nowhere", 404, 404),
        ] {
            assert_eq!(code_of(&east.http(method, path).0), on_leader, "{method} {path} on the leader");
            assert_eq!(code_of(&west.http(method, path).0), on_standby, "{method} {path} on the other");
        }
    }
    let (head, _) = east.http("POST", "/leader");
    assert_eq!(code_of(&head), 405);
    assert!(head.to_lowercase().contains("allow: get,head,options"), "{head}");

    let status: Value = serde_json::from_str(&east.http("GET", "/status").1).expect("JSON");
    let job = &status["jobs"]["orders"];
    assert_eq!(
        (&status["member"], &status["site"], &status["session"]),
        (&"east-1".into(), &"east".into(), &"active".into())
    );
    assert_eq!((&job["role"], &job["process"]["state"]), (&"leader".into(), &"running".into()));
    assert!(job["process"]["pid"].as_u64().is_some(), "{status}");
    assert!((1..=6_000).contains(&status["lease_remaining_ms"].as_u64().expect("a lease")), "{status}");

    // The command and the endpoint are the same function.
    let list = stage.json(&["list"]);
    let cluster: Value = serde_json::from_str(&east.http("GET", "/cluster").1).expect("JSON");
    assert_eq!(list, cluster);
    assert_eq!(list["slots"][0]["leader"]["member"], "east-1");
    assert_eq!(list["slots"][0]["leader"]["status"], "READY");
    assert_eq!(list["slots"][0]["leader"]["fencing_token"], job["fencing_token"]);
    assert_eq!(successors(&list), serde_json::json!(["west-1"]));
    let roles: Vec<_> = list["members"].as_array().expect("members").iter().map(|m| &m["role"]).collect();
    assert_eq!(roles, ["leader", "standby"]);
    assert_eq!(list["members"][1]["next"], 1);

    let metrics = east.http("GET", "/metrics").1;
    for line in [
        "dr_leader{member=\"east-1\",site=\"east\",job=\"orders\"} 1",
        "dr_term{member=\"east-1\",site=\"east\",job=\"orders\"} 1",
        "dr_session_state{member=\"east-1\",site=\"east\",state=\"active\"} 1",
        "dr_process_state{member=\"east-1\",site=\"east\",job=\"orders\",state=\"running\"} 1",
        "dr_transitions_total{member=\"east-1\",site=\"east\",job=\"orders\",cause=\"startup\"} 1",
        "dr_takeover_failures_total{member=\"east-1\",site=\"east\",job=\"orders\"} 0",
        "dr_process_restarts_total{member=\"east-1\",site=\"east\",job=\"orders\"} 0",
        "dr_held{member=\"east-1\",site=\"east\",job=\"orders\"} 0",
        "dr_seconds_since_ready_leader{member=\"east-1\",site=\"east\",job=\"orders\"} 0",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line} is not in:\n{metrics}");
    }
    for name in [
        "dr_fencing_token",
        "dr_lease_remaining_seconds",
        "dr_transition_phase_seconds_bucket",
        "dr_skipped_total",
        "zk_session_requests_total",
        "zk_session_request_seconds_bucket",
        "zk_session_reconnects_total",
        "zk_session_expirations_total",
    ] {
        let is_it = |line: &str| line.split(['{', ' ']).next() == Some(name);
        assert!(metrics.lines().any(is_it), "{name} is not in:\n{metrics}");
    }

    // A planned end: leadership is released, not lost.
    east.signal(Signal::SIGTERM);
    assert_eq!(east.ended().code(), Some(0));
    until("west-1 leads", || leads(&west));
}

/// Its port may be free only once another program has ended, or its address up only after the network.
#[test]
fn a_worker_whose_port_is_taken_runs_its_job_and_listens_later() {
    let stage = Stage::new("/port-taken");
    let reserved = zk_testkit::PortReservation::take(1).expect("a port");
    let port = reserved.ports()[0];
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port");
    let listen = format!("http.listen=127.0.0.1:{port}");
    let worker = Background::of(stage.worker_command("east-1", "east", &[&listen]).arg("run"));
    until("it leads without its endpoints", || {
        stage.operator(&["list"]).code == Some(0) && stage.json(&["list"])["members"][0]["role"] == "leader"
    });
    drop(listener);
    until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    worker.signal(Signal::SIGTERM);
    worker.outcome().assert(0, &["without HTTP endpoints", "another program listens there"]);
}

#[test]
fn operators_move_leadership_and_see_the_outcome() {
    let stage = Stage::new("/moves");
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[]);
    until("west-1 is standby", || west.code("/standby") == 200);

    let moved = stage.operator(&["switchover", "--to-site", "west", "--wait"]);
    moved.assert(0, &["request r-0000000000: switchover of orders to site west"]);
    let recorded = stage.json(&["history"])["leaderships"][1]["phases"].clone();
    assert!(
        moved.stderr.contains(", release ") && moved.stderr.contains(", takeover "),
        "{recorded}: {}",
        moved.stderr
    );
    assert_eq!(moved.stdout, "west-1 leads orders in term 2\n");
    until("west-1 leads alone", || leads(&west) && !leads(&east));
    let logs = Outcome::of(stage.worker_command("east-1", "east", &[]).arg("logs"));
    logs.assert(0, &["west-1 leads orders: its output is on that node"]);

    let refused = stage.operator(&["switchover", "--to", "nobody", "--wait"]);
    refused.assert(64, &["unknown member nobody", "members: east-1, west-1"]);

    // Without --wait: the request's id, and how to follow it.
    let asked = stage.operator(&["failover", "--to", "east-1", "--reason", "a test"]);
    asked.assert(0, &["request r-0000000001", "dr-worker list --job orders --watch"]);
    assert_eq!(asked.stdout, "r-0000000001\n");
    until("east-1 leads", || leads(&east));

    let history = stage.json(&["history"]);
    let leaderships = history["leaderships"].as_array().expect("leaderships");
    let causes: Vec<_> = leaderships.iter().map(|l| &l["cause"]).collect();
    assert_eq!(causes, ["startup", "switchover", "failover"]);
    let last = stage.json(&["history", "-n", "1"])["leaderships"].clone();
    assert_eq!(
        last.as_array().map(|all| &all[..]),
        history["leaderships"].as_array().and_then(|all| all.rchunks(1).next())
    );
    let pretty = stage.operator(&["history"]);
    pretty.assert(0, &[]);
    assert_eq!(pretty.stdout.lines().count(), 4, "{}", pretty.stdout);
}

/// East leads and is the elector; west stands by. For the time of a test their sessions outlive
/// that they stand still.
fn frozen_east(stage: &Stage) -> (Running, Running) {
    let patient = ["zookeeper.session_timeout=10s"];
    let east = stage.worker("east-1", "east", &patient);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &patient);
    // Not before the elector knows of it: what stands still has read nothing since.
    until("west-1 is next in line", || successors(&stage.json(&["list"]))[0] == "west-1");
    east.signal(Signal::SIGSTOP);
    (east, west)
}

#[test]
fn a_failover_needs_no_elector() {
    let stage = Stage::new("/no-elector");
    let (east, west) = frozen_east(&stage);
    let forced = stage.operator(&["failover", "--to-site", "west", "--force", "--yes", "--wait"]);
    forced.assert(0, &["this command takes the decision"]);
    assert_eq!(forced.stdout, "west-1 leads orders in term 3\n");
    until("west-1 leads", || leads(&west));
    east.signal(Signal::SIGCONT);
    until("east-1 has noticed", || east.code("/standby") == 200);
}

#[test]
fn a_failover_without_an_elector_needs_the_policy_of_a_member() {
    let stage = Stage::new("/other-policy");
    let (_east, west) = frozen_east(&stage);
    let failover = ["failover", "--to-site", "west", "--force", "--yes", "--wait"];
    let other = Outcome::of(stage.command(&["policy.min_tenure=7m"]).args(failover));
    other.assert(
        75,
        &["r-0000000000 was withdrawn", "`dr-worker failover --job orders`", "members: east-1, west-1"],
    );
    assert!(!leads(&west));
}

#[test]
fn a_failover_takes_nothing_from_a_leader_unless_told_to() {
    let stage = Stage::new("/kept");
    let (east, west) = frozen_east(&stage);
    let kept = stage.operator(&["failover", "--to-site", "west"]);
    // Never 'failed': the elector may still wake up.
    kept.assert(75, &["r-0000000000 is still open", "east-1 still leads", "--force"]);
    assert!(!leads(&west));
    // And so it does.
    east.signal(Signal::SIGCONT);
    until("west-1 leads", || leads(&west));
}

fn state_of_request(stage: &Stage, number: usize) -> String {
    stage.json(&["list"])["requests"][number]["outcome"]["state"].as_str().unwrap_or_default().to_owned()
}

/// A command that has ended by its timeout or by a signal leaves nothing behind that is carried out later.
#[test]
fn a_command_that_no_longer_waits_withdraws_its_request() {
    let stage = Stage::new("/patience");
    let (east, west) = frozen_east(&stage);
    let waited = stage.operator(&["switchover", "--wait", "--timeout", "1s"]);
    waited.assert(
        75,
        &["request r-0000000000 was withdrawn: no elector began it within 1s", "nothing was moved"],
    );
    assert!(!waited.stderr.contains("failed"), "{}", waited.stderr);
    assert_eq!(state_of_request(&stage, 0), "cancelled");
    east.signal(Signal::SIGCONT);
    until("it leads on", || leads(&east) && !leads(&west));
}

#[test]
fn a_command_that_is_ended_withdraws_its_request() {
    let stage = Stage::new("/ended");
    let (east, west) = frozen_east(&stage);
    for (number, signal) in [(0, Signal::SIGINT), (1, Signal::SIGTERM)] {
        // For one command at a time: what is frozen must not outlast its session, on a slow machine either.
        east.signal(Signal::SIGSTOP);
        let command = Background::of(stage.command(&[]).args(["switchover", "--wait"]));
        until("the request is made", || state_of_request(&stage, number) == "pending");
        command.signal(signal);
        let ended = command.outcome();
        ended.assert(75, &[&format!("request r-000000000{number} was withdrawn: {signal}")]);
        east.signal(Signal::SIGCONT);
        assert_eq!(state_of_request(&stage, number), "cancelled");
        until("east-1 leads on", || leads(&east));
    }

    // Awake again, the elector carries out what is asked now, and nothing of all that.
    let moved = stage.operator(&["switchover", "--wait"]);
    moved.assert(0, &[]);
    assert_eq!(moved.stdout, "west-1 leads orders in term 2\n");
    // Between two renewals its lease may be over for a moment.
    until("west-1 leads", || leads(&west));
}

#[test]
fn a_request_is_cancelled_until_it_is_begun() {
    let stage = Stage::new("/cancelled");
    let (east, west) = frozen_east(&stage);
    let asked = stage.operator(&["switchover"]);
    asked.assert(0, &["within 1m", "dr-worker cancel r-0000000000 --job orders"]);
    let again = stage.operator(&["switchover"]);
    again.assert(
        75,
        &["request r-0000000000, a switchover, is still open", "dr-worker cancel r-0000000000 --job orders"],
    );

    let cancelled = stage.operator(&["cancel", "r-0000000000"]);
    cancelled.assert(0, &[]);
    assert_eq!(cancelled.stdout, "request r-0000000000 is withdrawn\n");
    let twice = stage.operator(&["cancel", "r-0000000000"]);
    twice.assert(1, &["request r-0000000000 can't be withdrawn any more: cancelled by "]);
    stage.operator(&["cancel", "r-0000000009"]).assert(1, &["there is no request", "r-0000000009"]);
    stage.operator(&["cancel", "../control"]).assert(64, &["a request's id is"]);

    east.signal(Signal::SIGCONT);
    stage.operator(&["switchover", "--wait"]).assert(0, &[]);
    until("west-1 leads", || leads(&west));
    let late = stage.operator(&["--output", "json", "cancel", "r-0000000001"]);
    late.assert(1, &["can't be withdrawn any more: done in term 2: west-1 leads"]);
    let late: Value = serde_json::from_str(&late.stdout).expect("JSON");
    assert_eq!(late["error"]["code"], 1, "{late:#}");
}

#[test]
fn a_mode_that_forbids_a_move_is_named_at_once() {
    let stage = Stage::new("/observed");
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[]);
    until("west-1 is next in line", || successors(&stage.json(&["list"]))[0] == "west-1");
    stage.operator(&["mode", "observe"]).assert(0, &[]);
    for verb in [&["switchover", "--wait"][..], &["failover"], &["failover", "--force", "--yes", "--wait"]] {
        let refused = stage.operator(verb);
        refused.assert(75, &["the mode is observe: nothing is carried out until it is auto or manual"]);
        assert!(refused.took < Duration::from_secs(5), "{:?}", refused.took);
    }
    assert_eq!(stage.json(&["list"])["requests"], json!([]));
    stage.operator(&["mode", "auto"]).assert(0, &[]);
    // An order that was just given counts.
    stage.operator(&["switchover", "--wait"]).assert(0, &[]);
    until("west-1 leads", || leads(&west));
}

#[test]
fn a_worker_that_was_killed_takes_its_place_back_at_once() {
    let stage = Stage::new("/killed");
    let patient = ["zookeeper.session_timeout=10s"];
    let mut east = stage.worker("east-1", "east", &patient);
    until("east-1 leads", || leads(&east));
    let ballot = || stage.json(&["list"])["members"][0]["ballot"].clone();
    let before = ballot();
    let killed = Instant::now();
    east.signal(Signal::SIGKILL);
    east.ended();
    let east = stage.worker("east-1", "east", &patient);
    until("east-1 leads again", || leads(&east));
    assert_ne!(ballot(), before);
    // Without the memory it would have to wait for the old session's end first.
    assert!(killed.elapsed() < Duration::from_secs(9), "{:?}", killed.elapsed());
}

#[test]
fn an_unreadable_znode_is_named_by_its_path() {
    let stage = Stage::new("/unreadable");
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    Stage::with_session(async |session| {
        session
            .create("/unreadable/orders/nodes/west-9", b"no record".to_vec(), CreateMode::Persistent)
            .await
            .expect("created");
    });
    let list = stage.operator(&["list"]);
    list.assert(0, &["/unreadable/orders/nodes/west-9"]);
    assert!(list.stdout.contains("east-1"), "{}", list.stdout);
    let json = stage.json(&["list"]);
    assert_eq!(json["unreadable"][0]["path"], "/unreadable/orders/nodes/west-9");
    assert_eq!(json["members"].as_array().map(Vec::len), Some(1));
    until("east-1 leads", || leads(&east));

    // Where nothing but that is there, nothing could be shown.
    Stage::with_session(async |session| {
        for (path, data) in [
            ("/bad", &b""[..]),
            ("/bad/bills", b""),
            ("/bad/bills/election", b""),
            ("/bad/bills/nodes", b""),
            ("/bad/bills/leader", b""),
            ("/bad/bills/leader/elected", b"garbage"),
        ] {
            session.create(path, data.to_vec(), CreateMode::Persistent).await.expect("created");
        }
    });
    let list = Outcome::of(stage.command(&["zookeeper.root=/bad"]).arg("list"));
    list.assert(1, &["/bad/bills/leader/elected", "nothing could be read"]);
}

#[test]
fn an_unreadable_overlay_can_be_replaced_and_removed() {
    let stage = Stage::new("/unreadable-overlay");
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let file = stage.dir.path().join("empty.toml");
    fs::write(&file, "").expect("a file");
    let file = file.display().to_string();
    let spoil = || {
        Stage::with_session(async |session| {
            let path = "/unreadable-overlay/orders/config";
            session.set(path, b"garbage".to_vec(), None).await.expect("it is there");
        });
    };
    let done = |verb: &[&str], says: &str| {
        let outcome = stage.operator(verb);
        outcome.assert(0, &[]);
        assert!(outcome.stdout.contains(says), "{says}: {}", outcome.stdout);
    };
    done(&["config", "push", &file], "the overlay has this text already");
    fs::write(&file, "load = 2\n").expect("a file");
    done(&["config", "push", &file], "configuration version 1");
    fs::write(&file, "").expect("a file");
    spoil();
    done(&["config", "push", &file], "configuration version 2");
    spoil();
    stage.operator(&["config", "revert"]).assert(64, &["give the version to restore"]);
    done(&["config", "revert", "0"], "configuration version 3");
    stage.operator(&["config", "pull"]).assert(0, &["version 3"]);
}

#[test]
fn several_jobs_must_be_told_apart() {
    let stage = Stage::new("/several");
    let bills = "job.bills.command=[\"/bin/sleep\", \"1000\"]";
    let east = stage.worker("east-1", "east", &[bills]);
    until("east-1 leads both", || {
        east.code("/leader?job=orders") == 200 && east.code("/leader?job=bills") == 200
    });
    assert_eq!(east.code("/leader"), 400);
    stage.operator(&["switchover"]).assert(64, &["--job", "bills, orders"]);
    stage.operator(&["history", "--job", "nope"]).assert(64, &["/several/nope"]);
    stage.operator(&["switchover", "--job", "nope"]).assert(64, &["/several/nope"]);
    let list = stage.operator(&["--output", "json", "list"]);
    list.assert(0, &[]);
    let elections: Vec<String> = list
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["election"].to_string())
        .collect();
    assert_eq!(elections, ["\"bills\"", "\"orders\""]);
}

#[test]
fn nothing_under_the_root_is_said_so() {
    let stage = Stage::new("/nothing");
    stage.operator(&["list"]).assert(1, &["no election under /nothing"]);
    stage.operator(&["switchover"]).assert(1, &["no election under /nothing"]);
}

#[test]
fn the_same_id_elsewhere_is_refused_and_the_first_is_left_in_peace() {
    let stage = Stage::new("/same-id");
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let token = |worker: &Running| {
        let status: Value = serde_json::from_str(&worker.http("GET", "/status").1).expect("JSON");
        status["jobs"]["orders"]["fencing_token"].clone()
    };
    let before = token(&east);
    // Another state directory: as on another host, no lock tells.
    let other = stage.dir.path().join("other");
    let started = stage.dir.path().join("started");
    let mut command = stage.command(&[
        "node.id=east-1",
        "node.site=east",
        &format!("node.state_dir={}", other.display()),
        &format!("job.orders.command=[\"/usr/bin/touch\", \"{}\"]", started.display()),
    ]);
    let (mut second, log) = Log::of(&mut command);
    // While it waits for the other one to end, it does not answer in its place.
    let at = format!("(http://127.0.0.1:{})", east.port);
    until("it waits", || {
        log.has("/same-id/orders/nodes/east-1 is held by another incarnation at ") && log.has(&at)
    });
    for (method, path) in [("GET", "/cluster"), ("GET", "/explain"), ("GET", "/can-restart")] {
        let (head, body) = second.http(method, path);
        assert_eq!(code_of(&head), 503, "{path}");
        assert!(body.contains("not a member of orders yet"), "{path}: {body}");
    }
    assert_eq!(second.ended().code(), Some(75));
    let why = format!(" {at} takes part as east-1");
    until("it says why", || log.has("node.id: ") && log.has(&why));
    assert!(!fs::exists(&started).expect("a look"), "its job was started");
    until("east-1 leads", || leads(&east));
    assert_eq!(token(&east), before);
}

#[test]
fn a_session_timeout_that_the_server_cuts_is_checked_again() {
    let stage = Stage::new("/cut");
    // The server grants at most 20 ticks.
    let mut command = stage.command(&[
        "node.id=east-1",
        "node.site=east",
        &format!("node.state_dir={}", stage.dir.path().join("state").display()),
        "zookeeper.session_timeout=40s",
        "job.orders.command=[\"/bin/true\"]",
        "job.orders.stop_timeout=15s",
        "http.listen=127.0.0.1:0",
    ]);
    let outcome = Outcome::of(command.arg("run"));
    outcome.assert(
        78,
        &[
            "--set job.orders.stop_timeout=...: job.orders.stop_timeout: ",
            "that the servers grant",
            "less than the session timeout of 10s",
        ],
    );
    // Nothing is left in ZooKeeper.
    stage.operator(&["list"]).assert(1, &["no election under /cut"]);
}

#[test]
fn the_sessions_password_is_never_logged() {
    let stage = Stage::new("/quiet");
    for driver in ["native", "zookeeper-async"] {
        let mut command = stage.command(&[&format!("zookeeper.driver={driver}")]);
        let outcome = Outcome::of(command.args(["--log", "trace", "list"]));
        outcome.assert(1, &["no election"]);
        assert!(outcome.stderr.contains("ZooKeeper session"), "nothing is logged: {}", outcome.stderr);
        assert!(!outcome.stderr.contains("passw"), "{driver}: {}", outcome.stderr);
    }
}

#[test]
fn a_raised_base_makes_tokens_newer_and_is_raised_once() {
    let stage = Stage::new("/raised");
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let token =
        |stage: &Stage| stage.json(&["list"])["slots"][0]["leader"]["fencing_token"].as_u64().unwrap_or(0);
    let above = token(&stage) + 1_000_000;
    let raised = stage.json(&["raise-token", "--above", &above.to_string(), "--yes"]);
    assert_eq!(raised["term"], 2, "{raised:#}");
    until("east-1 leads with a newer token", || leads(&east) && token(&stage) > above);
    let again = stage.json(&["raise-token", "--above", &above.to_string(), "--yes", "--job", "orders"]);
    assert!(again["term"].is_null(), "{again:#}");
    stage.operator(&["raise-token", "--above", &u64::MAX.to_string(), "--yes"]).assert(64, &["no token"]);
    stage.operator(&["raise-token"]).assert(64, &["--above"]);
    // Before anybody has ever taken part.
    let job = ["raise-token", "--above", "77", "--yes", "--job", "bills"];
    assert_eq!(stage.json(&job)["term"], 1);
    let higher = ["raise-token", "--above", "78", "--yes", "--job", "bills"];
    assert_eq!(stage.json(&higher)["term"], 2);
}

#[test]
fn the_tokens_of_a_queue_have_a_base_too() {
    let stage = Stage::new("/raised-queue");
    let queue = |id| stage.worker(id, "east", &["job.orders.recipe=queue"]);
    let token = || stage.json(&["list"])["slots"][0]["leader"]["fencing_token"].as_u64().unwrap_or(0);
    let east = queue("east-1");
    until("east-1 leads", || leads(&east));
    let above = token() + 1_000_000_000_000;
    let raise = ["raise-token", "--above", &above.to_string(), "--yes", "--job", "orders"];
    let raised = stage.operator(&raise);
    assert!(
        raised.stdout.contains(&format!("from now on every token is above {above}")),
        "{}",
        raised.stdout
    );
    until("east-1 leads with a newer token", || leads(&east) && token() > above);
    assert!(stage.operator(&raise).stdout.contains("already"));
    // The next one knows it by the record.
    let (mut east, west, before) = (east, queue("east-2"), token());
    until("it is in the queue", || {
        stage.json(&["list"])["members"].as_array().is_some_and(|all| all.len() == 2)
    });
    east.signal(Signal::SIGTERM);
    assert_eq!(east.ended().code(), Some(0));
    until("east-2 leads", || leads(&west) && token() > before);
    assert_eq!(stage.json(&["list"])["problems"], json!([]));
}

#[test]
fn a_token_that_resources_refuse_is_shown_with_the_command_that_mends_it() {
    let stage = Stage::new("/forgotten");
    let mut east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    stage.operator(&["raise-token", "--above", "1000000000000", "--yes"]).assert(0, &[]);
    let leaderships = || stage.json(&["history"])["leaderships"].as_array().map_or(0, Vec::len);
    until("its new token is in the history", || leads(&east) && leaderships() == 2);
    assert_eq!(stage.json(&["list"])["problems"], json!([]));
    // Whoever remembers is gone, and so is the decision that had the base.
    east.signal(Signal::SIGTERM);
    assert_eq!(east.ended().code(), Some(0));
    Stage::with_session(async |session| {
        session.delete_recursive("/forgotten/orders/leader").await.expect("deleted");
    });
    let east = stage.worker("east-2", "east", &[]);
    until("east-2 leads, which has seen nothing", || leads(&east));
    let problem = &stage.json(&["list"])["problems"][0];
    assert_eq!(problem["kind"], "low-token", "{problem}");
    let command = problem["command"].as_str().expect("a command").to_owned();
    for verb in ["list", "explain"] {
        let shown = stage.operator(&[verb]).stdout;
        assert!(shown.contains(&format!("fix: `{command}`")), "{shown}");
    }
    let verb: Vec<_> = command.split(' ').skip(1).collect();
    stage.operator(&verb).assert(0, &[]);
    until("nothing is wrong any more", || leads(&east) && stage.json(&["list"])["problems"] == json!([]));
}

#[test]
fn ghosts_are_named_shown_and_removed() {
    let stage = Stage::new("/haunted");
    // As a server would keep it that has lost a session's end: no member has it.
    Stage::with_session(async |session| {
        let ballot = "/haunted/orders/election/s00ghost.1-";
        session.create_parents(ballot).await.expect("the parents");
        let recovery = zk_session::Recovery::Name;
        session.create_sequential(ballot, "east-9", CreateMode::Ephemeral, recovery).await.expect("created");
        let east = stage.worker("east-1", "east", &[]);
        let list = || stage.json(&["list"]);
        until("east-1 takes part, and the ghost is named", || {
            let list = list();
            list["members"].as_array().is_some_and(|m| m.len() == 1) && list["problems"][0]["kind"] == "ghost"
        });
        assert!(!leads(&east), "the lowest ballot is a ghost's");
        let path = "/haunted/orders/election/s00ghost.1-0000000000";
        stage.operator(&["list"]).assert(0, &[]);
        let shown = stage.operator(&["list"]).stdout;
        for part in [path, "east-9", "dr-worker remove-ghosts --job orders --yes"] {
            assert!(shown.contains(part), "{shown}");
        }
        stage.operator(&["explain"]).assert(0, &[]);
        let explained = stage.operator(&["explain"]).stdout;
        assert!(explained.contains("fix: `dr-worker remove-ghosts --job orders --yes`"), "{explained}");

        let shown = stage.operator(&["remove-ghosts"]);
        shown.assert(0, &[]);
        assert!(shown.stdout.contains("not removed without --yes"), "{}", shown.stdout);
        let removed = stage.json(&["remove-ghosts", "--yes"]);
        assert_eq!(removed["removed"][0], path, "{removed:#}");
        until("east-1 leads", || leads(&east));
        assert!(stage.operator(&["remove-ghosts", "--yes"]).stdout.contains("no ghosts"));
    });
}

#[test]
fn an_election_is_forgotten_when_nothing_needs_it() {
    let stage = Stage::new("/forgotten-job");
    stage
        .operator(&["forget", "orders", "--yes"])
        .assert(64, &["there is no election at /forgotten-job/orders"]);
    let mut east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let forget = |part: &str| {
        stage.operator(&["forget", "orders", "--yes"]).assert(75, &["orders can't be forgotten", part]).code
    };
    forget("east-1 is a member");
    stage.operator(&["pause", "--job", "orders"]).assert(0, &[]);
    east.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(east.ended().success());
    until("it has no member", || stage.json(&["list"])["members"] == json!([]));
    forget("standing orders are in force");
    stage.operator(&["resume"]).assert(0, &[]);
    stage.operator(&["stay", "--off"]).assert(0, &[]);
    // It begins again elsewhere; nothing else is there.
    Stage::with_session(async |session| {
        let foreign =
            session.create("/forgotten-job/orders/notes", vec![], zk_session::CreateMode::Persistent);
        foreign.await.expect("a znode of another program");
    });
    stage
        .operator(&["forget", "orders", "--yes"])
        .assert(1, &["/forgotten-job/orders/notes is not part of an election"]);
    Stage::with_session(async |session| {
        session.delete("/forgotten-job/orders/notes", None).await.expect("its own")
    });
    stage.operator(&["forget", "orders"]).assert(75, &["with its history", "--yes", "nothing was changed"]);
    assert_eq!(stage.json(&["history"])["leaderships"].as_array().map(Vec::len), Some(1));
    let forgotten = stage.json(&["forget", "orders", "--yes"]);
    assert!(forgotten["removed"].as_u64() > Some(8), "{forgotten}");
    Stage::with_session(async |session| {
        assert!(session.get("/forgotten-job/orders").await.expect("an answer").is_none());
    });
    stage.operator(&["list"]).assert(1, &["there is no election under /forgotten-job"]);
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads a new election", || leads(&east));
    // Its node remembers the former ones.
    assert_eq!(stage.json(&["list"])["term"], 2);
}

#[test]
fn names_are_checked_before_a_request_is_written() {
    let stage = Stage::new("/names");
    let east = stage.worker("east-1", "east", &[]);
    let _west = stage.worker("west-1", "west", &[]);
    until("east-1 leads, and west-1 is next in line", || {
        leads(&east) && successors(&stage.json(&["list"]))[0] == "west-1"
    });
    for (verb, parts) in [
        (&["switchover", "--to", "north-1"][..], ["unknown member north-1", "east-1, west-1"]),
        (&["failover", "--to", "north-1"], ["unknown member north-1", "east-1, west-1"]),
        (&["switchover", "--from", "north-1"], ["unknown member north-1", "east-1, west-1"]),
        (&["switchover", "--to-site", "north"], ["unknown site north", "east, west"]),
        (&["drain", "north"], ["unknown site north", "--unknown to override"]),
    ] {
        stage.operator(verb).assert(64, &parts);
    }
    assert_eq!(stage.json(&["list"])["requests"], json!([]));
    for wait in [&[][..], &["--wait"]] {
        for to in [&["--to", "east-1"][..], &["--to-site", "east"]] {
            let outcome = stage.operator(&[&["switchover"], to, wait].concat());
            outcome.assert(0, &[]);
            assert!(outcome.stdout.contains("east-1 leads orders in term 1 already"), "{}", outcome.stdout);
        }
    }
    let outcome = stage.json(&["switchover", "--to", "east-1"]);
    assert_eq!(outcome["outcome"], json!({ "state": "done", "term": 1, "leader": "east-1" }), "{outcome}");
    assert_eq!(stage.json(&["list"])["requests"], json!([]));
}

/// No member is left to lead, which is what was asked for.
#[test]
fn the_stop_of_a_lone_worker_is_no_alarm() {
    let stage = Stage::new("/lone-stop");
    let (mut lone, log) = Log::of(&mut stage.worker_command("east-1", "east", &[]));
    until("it leads", || leads(&lone));
    let before = log.text().len();
    lone.signal(Signal::SIGTERM);
    assert!(lone.ended().success());
    until("its last line", || log.has("the worker has stopped"));
    let text = log.text()[before..].to_owned();
    assert!(!text.contains("\"WARN\"") && !text.contains("\"ERROR\""), "{text}");
}

/// A server without an address is not used: whoever has mistyped it learns that from the log of the first start.
#[test]
fn a_server_whose_name_does_not_resolve_is_reported_once() {
    let stage = Stage::new("/nameless");
    let connect = format!("zookeeper.connect={},no-such-host.invalid:2181", Stage::connect_string());
    let (lone, log) = Log::of(&mut stage.worker_command("east-1", "east", &[&connect]));
    until("it leads", || leads(&lone));
    until("it is reported", || log.has("no-such-host.invalid:2181"));
    let text = log.text();
    let lines: Vec<_> = text.lines().filter(|line| line.contains("no-such-host.invalid")).collect();
    assert!(
        matches!(lines[..], [line] if line.contains("does not resolve") && line.contains("WARN")),
        "{lines:#?}"
    );
}
