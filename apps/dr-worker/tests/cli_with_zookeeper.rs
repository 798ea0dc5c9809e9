//! A worker and the operator's commands on a real ZooKeeper server.

mod support;

use std::{
    fs,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::Value;
use support::{
    Outcome, Running, code_of,
    stage::{Stage, leads},
    until,
};
use zk_session::CreateMode;

#[test]
fn a_worker_leads_and_says_so_everywhere() {
    let stage = Stage::new("/everywhere");
    let mut east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[]);
    until("west-1 stands by", || west.code("/standby") == 200);

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
    assert_eq!(list["leader"]["member"], "east-1");
    assert_eq!(list["leader"]["status"], "READY");
    assert_eq!(list["leader"]["fencing_token"], job["fencing_token"]);
    assert_eq!(list["elected"]["succession"], serde_json::json!(["west-1"]));
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
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line} is not in:\n{metrics}");
    }
    for name in
        ["dr_lease_remaining_seconds", "dr_transition_phase_seconds_bucket", "zk_session_requests_total"]
    {
        assert!(metrics.contains(name), "{name} is not in:\n{metrics}");
    }

    // A planned end: leadership is released, not lost.
    east.signal(Signal::SIGTERM);
    assert_eq!(east.ended().code(), Some(0));
    until("west-1 leads", || leads(&west));
}

#[test]
fn operators_move_leadership_and_see_the_outcome() {
    let stage = Stage::new("/moves");
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[]);
    until("west-1 stands by", || west.code("/standby") == 200);

    let moved = stage.operator(&["switchover", "--to-site", "west", "--wait"]);
    moved.assert(0, &["request r-0000000000: switchover of orders to site west"]);
    assert_eq!(moved.stdout, "west-1 leads orders in term 2\n");
    assert!(leads(&west) && !leads(&east));

    let refused = stage.operator(&["switchover", "--to", "nobody", "--wait"]);
    refused.assert(1, &["request r-0000000001: ", "nobody"]);

    // Without --wait: the request's id, and how to follow it.
    let asked = stage.operator(&["failover", "--to", "east-1", "--reason", "a test"]);
    asked.assert(0, &["request r-0000000002", "dr-worker list --job orders --watch"]);
    assert_eq!(asked.stdout, "r-0000000002\n");
    until("east-1 leads", || leads(&east));

    let history = stage.json(&["history"]);
    let leaderships = history["leaderships"].as_array().expect("leaderships");
    let causes: Vec<_> = leaderships.iter().map(|l| &l["cause"]).collect();
    assert_eq!(causes, ["startup", "switchover", "failover"]);
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
    until("west-1 is next in line", || stage.json(&["list"])["elected"]["succession"][0] == "west-1");
    east.signal(Signal::SIGSTOP);
    (east, west)
}

#[test]
fn a_failover_needs_no_elector() {
    let stage = Stage::new("/no-elector");
    let (east, west) = frozen_east(&stage);
    let forced = stage.operator(&["failover", "--to-site", "west", "--force", "--wait"]);
    forced.assert(0, &["carrying it out from here"]);
    assert_eq!(forced.stdout, "west-1 leads orders in term 3\n");
    assert!(leads(&west));
    east.signal(Signal::SIGCONT);
    until("east-1 has noticed", || east.code("/standby") == 200);
}

#[test]
fn a_failover_takes_nothing_from_a_leader_unless_told_to() {
    let stage = Stage::new("/kept");
    let (east, west) = frozen_east(&stage);
    let kept = stage.operator(&["failover", "--to-site", "west"]);
    // Never 'failed': the elector may still wake up.
    kept.assert(75, &["r-0000000000 is still open", "east-1 still holds leadership", "--force"]);
    assert!(!leads(&west));
    // And so it does.
    east.signal(Signal::SIGCONT);
    until("west-1 leads", || leads(&west));
}

#[test]
fn who_has_waited_long_enough_is_told_how_it_stands_and_not_that_it_failed() {
    let stage = Stage::new("/patience");
    let (east, _west) = frozen_east(&stage);
    let waited = stage.operator(&["switchover", "--wait", "--timeout", "1s"]);
    waited.assert(
        75,
        &[
            "r-0000000000 is still open",
            "no elector has looked at it yet",
            "don't repeat it",
            "list --job orders",
        ],
    );
    assert!(!waited.stderr.contains("failed"), "{}", waited.stderr);
    let list = stage.json(&["list"]);
    assert_eq!(list["requests"][0]["outcome"]["state"], "pending");
    east.signal(Signal::SIGCONT);
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
    assert!(leads(&east));

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
fn several_jobs_must_be_told_apart() {
    let stage = Stage::new("/several");
    let bills = "job.bills.command=[\"/bin/sleep\", \"1000\"]";
    let east = stage.worker("east-1", "east", &[bills]);
    until("east-1 leads both", || {
        east.code("/leader?job=orders") == 200 && east.code("/leader?job=bills") == 200
    });
    assert_eq!(east.code("/leader"), 400);
    stage.operator(&["switchover"]).assert(64, &["--job", "bills, orders"]);
    stage.operator(&["history", "--job", "nope"]).assert(1, &["/several/nope"]);
    stage.operator(&["switchover", "--job", "nope"]).assert(1, &["/several/nope"]);
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
        "http.listen=127.0.0.1:0",
    ]);
    let second = Outcome::of(command.arg("run"));
    second.assert(78, &["node.id: ", "east-1", "/same-id/orders/nodes/east-1"]);
    assert!(!fs::exists(&started).expect("a look"), "its job was started");
    assert!(leads(&east));
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
            "--set job.orders.stop_timeout=15s: job.orders.stop_timeout: ",
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
    let token = |stage: &Stage| stage.json(&["list"])["leader"]["fencing_token"].as_u64().unwrap_or(0);
    let above = token(&stage) + 1_000_000;
    let raised = stage.json(&["raise-token", "--above", &above.to_string()]);
    assert_eq!(raised["term"], 2, "{raised:#}");
    until("east-1 leads with a newer token", || leads(&east) && token(&stage) > above);
    let again = stage.json(&["raise-token", "--above", &above.to_string(), "--job", "orders"]);
    assert!(again["term"].is_null(), "{again:#}");
    stage.operator(&["raise-token", "--above", &u64::MAX.to_string()]).assert(64, &["no token"]);
    stage.operator(&["raise-token"]).assert(64, &["--above"]);
    // Before anybody has ever taken part.
    let job = ["raise-token", "--above", "77", "--job", "bills"];
    assert_eq!(stage.json(&job)["term"], 1);
}
