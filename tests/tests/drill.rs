//! Practised failovers, with their reports.
#![allow(clippy::unwrap_used, reason = "a test says what failed by panicking")]

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use e2e::{Cluster, Driver, JOB, Leader, SOON, Setup, program, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use zk_testkit::PortReservation;

const MODES: [&str; 5] = ["rehearse", "switchover", "kill-job", "kill-worker", "cut-site"];

/// Four workers whose job serves at an address, which one of each site probes during a drill.
fn setup(ports: &PortReservation) -> Setup {
    let address = format!("127.0.0.1:{}", ports.ports()[0]);
    // Options live as long as the program.
    let listen: &'static str = Box::leak(address.clone().into_boxed_str());
    Setup::new(Driver::Native)
        .job_options(&["--listen", listen])
        .set("policy.min_tenure", "0s")
        .unset("job.orders.ready")
        .set("job.orders.ready.kind", "tcp")
        .set("job.orders.ready.address", address.clone())
        .set("job.orders.drill.probe.kind", "tcp")
        .set("job.orders.drill.probe.address", address)
        // A busy machine is no outage; and each outage is longer than two probes.
        .set("job.orders.drill.probe.timeout", "5s")
        .set("job.orders.restart.backoff", "1s")
        .set("job.orders.hooks.before_takeover.command", vec!["sleep", "0.7"])
        // The job needs a token; what is rehearsed does not.
        .set("job.orders.rehearsal.command", vec!["sleep", "1000"])
        .set("drill.allow", MODES.to_vec())
        .set("drill.restarted", true)
        .set("drill.quarterly.job", JOB)
        .set("drill.quarterly.mode", "switchover")
        .set("drill.quarterly.to_site", "west")
        .set("drill.quarterly.back", true)
        .set("drill.quarterly.stay", "1s")
        .set("drill.quarterly.objectives.rto", "30s")
        .set("drill.quarterly.check_every", "1s")
        .set("drill.slow.job", JOB)
        .set("drill.slow.mode", "switchover")
        .set("drill.slow.to_site", "west")
        .set("drill.slow.back", true)
        .set("drill.slow.stay", "10m")
        .set("drill.slow.limit", "20m")
        .set("drill.cut.job", JOB)
        .set("drill.cut.mode", "cut-site")
        .set("drill.cut.to_site", "west")
        .set("drill.cut.stay", "1s")
        .set("drill.cut.cut_for", "15s")
}

async fn begun(setup: Setup) -> (Cluster, Leader) {
    let mut cluster = Cluster::of(setup).await;
    let leader = cluster.settled().await;
    assert_eq!(leader.site, "east");
    (cluster, leader)
}

/// Runs a drill that must pass. Returns its report.
async fn passed(cluster: &Cluster, options: &[&str]) -> Value {
    let report = cluster.operator().json(&[&["drill", "--yes"], options].concat()).await;
    assert_eq!(report["outcome"], "passed", "{report:#}");
    report
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

async fn listed(cluster: &Cluster) -> Vec<Value> {
    let list = cluster.operator().json(&["drill", "list"]).await;
    list["drills"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_switchover_a_rehearsal_and_a_killed_job_are_measured_and_reported() {
    let ports = PortReservation::take(1).unwrap();
    let (mut cluster, first) = begun(setup(&ports)).await;
    let operator = cluster.operator().clone();

    // There and back, by a plan.
    operator.done(&["drill", "check", "--plan", "quarterly"]).await;
    let report = passed(&cluster, &["--plan", "quarterly", "--reason", "a <test>"]).await;
    assert_eq!(
        (&report["mode"], &report["plan"], &report["reason"]),
        (&json!("switchover"), &json!("quarterly"), &json!("a <test>"))
    );
    assert_eq!((&report["from"]["member"], &report["to"]["site"]), (&json!(first.member), &json!("west")));
    for phase in ["detect_ms", "decide_ms", "release_ms", "acquire_ms", "takeover_ms", "ready_ms"] {
        assert!(number(&report["phases"][phase]) < 30_000, "{phase}: {report:#}");
    }
    let moves = report["moves"].as_array().unwrap();
    let backs: Vec<_> = moves.iter().map(|change| (&change["back"], &change["cause"])).collect();
    assert_eq!(backs, [(&json!(false), &json!("switchover")), (&json!(true), &json!("switchover"))]);
    let probes = report["probes"].as_array().unwrap();
    let sites: Vec<_> = probes.iter().map(|probed| (&probed["site"], &probed["serves"])).collect();
    assert_eq!(sites, [(&json!("east"), &json!(true)), (&json!("west"), &json!(true))], "{report:#}");
    // The service was away twice, and each site has seen it.
    for probed in probes {
        assert!(number(&probed["failed"]) > 0 && number(&probed["outage_ms"]) > 0, "{probed:#}");
    }
    assert_eq!(
        (&report["objectives"][0]["name"], &report["objectives"][0]["passed"]),
        (&json!("rto"), &json!(true))
    );
    assert_eq!(report["members"].as_array().unwrap().len(), 4);
    let back = cluster.leader().await.unwrap();
    assert_eq!((&back.member, back.term), (&first.member, first.term + 2));

    // The reports are kept.
    let run = report["run"].as_str().unwrap();
    assert_eq!(listed(&cluster).await[0]["run"], run);
    let markdown = operator.done(&["drill", "show", run]).await.stdout;
    assert!(
        markdown.contains(&format!("# Drill {run}: passed")) && markdown.contains("a &lt;test&gt;"),
        "{markdown}"
    );
    let html = operator.done(&["drill", "show", "last", "--format", "html"]).await.stdout;
    assert!(html.contains("<svg ") && html.contains("a &lt;test&gt;") && !html.contains("<test>"), "{html}");
    let shown = operator.done(&["drill", "show", run, "--format", "json"]).await.json();
    assert_eq!(shown, report);

    // The leader proves it, and evaluates the plan.
    wait_for("the metrics", SOON, async || {
        let worker = cluster.worker(&first.member);
        let (_, text) = worker.get("/metrics").await.ok_or("no answer")?;
        let value = |name: &str| -> Option<f64> {
            text.lines().find(|line| line.starts_with(name))?.rsplit(' ').next()?.parse().ok()
        };
        let ended = number(&report["ended_ms"]) / 1000;
        let proved = value("dr_drill_last_success_timestamp_seconds{").is_some_and(|at| at as u64 == ended);
        let checked = value("dr_drill_check_timestamp_seconds{").is_some_and(|at| at as u64 >= ended);
        if proved && checked && text.contains("plan=\"quarterly\"") { Ok(()) } else { Err(text) }
    })
    .await;

    // Nothing moves in a rehearsal.
    let report = passed(&cluster, &["--to-site", "west"]).await;
    assert_eq!((&report["mode"], &report["to"]["site"]), (&json!("rehearse"), &json!("west")));
    assert!(report["phases"]["takeover_ms"].is_u64() && report["moves"] == json!([]), "{report:#}");
    assert_eq!(report["outage_ms"], 0, "{report:#}");
    assert_eq!(cluster.leader().await.unwrap(), back);

    // A killed job is restarted by its leader.
    let report = passed(&cluster, &["--mode", "kill-job"]).await;
    assert_eq!(report["moves"], json!([]), "{report:#}");
    assert!(number(&report["phases"]["takeover_ms"]) > 0 && number(&report["outage_ms"]) > 0, "{report:#}");
    let again = cluster.leader().await.unwrap();
    assert_eq!((&again.member, again.token, again.restarts), (&back.member, back.token, back.restarts + 1));

    // A check that fails: nothing happens.
    let before = listed(&cluster).await;
    assert_eq!(before.len(), 3);
    operator.done(&["pause"]).await;
    let refused = operator.run(&["drill", "--plan", "quarterly", "--yes"]).await.with_code(75);
    refused.complains_of(&["nothing was done", "mode: the mode is manual: the election is paused"]);
    let checked = operator
        .run(&["--output", "json", "drill", "check", "--plan", "quarterly"])
        .await
        .with_code(75)
        .json();
    let failed: Vec<_> =
        checked["checks"].as_array().unwrap().iter().filter(|check| check["passed"] == false).collect();
    assert_eq!(failed.len(), 1, "{checked:#}");
    operator.done(&["resume"]).await;
    assert_eq!(listed(&cluster).await, before);
    assert_eq!(cluster.leader().await.unwrap(), again);
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

/// A drill in the background.
struct Background(Child);

impl Background {
    fn start(cluster: &Cluster, options: &[&str]) -> Self {
        let mut command = Command::new(program("dr-worker"));
        let (name, value) = cluster.tree().mark();
        command.arg("--config").arg(cluster.dir().join("cluster.toml")).arg("drill").args(options);
        let command =
            command.env(name, value).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }

    async fn ended(&mut self) -> Option<i32> {
        wait_for("the end of the drill", SOON, async || match self.0.try_wait().unwrap() {
            Some(status) => Ok(status.code()),
            None => Err("it runs".to_owned()),
        })
        .await
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_drill_that_is_stopped_moves_back_and_one_that_is_killed_is_found_and_ended() {
    let ports = PortReservation::take(1).unwrap();
    let (mut cluster, first) = begun(setup(&ports)).await;
    let operator = cluster.operator().clone();

    let mut drill = Background::start(&cluster, &["--plan", "slow", "--yes"]);
    let west = cluster.successor_of(&first, SOON).await;
    assert_eq!(west.site, "west");
    // Another one has to wait.
    let second = operator.run(&["drill", "--to-site", "east"]).await.with_code(75);
    second.complains_of(&["drill: drill d-", "is under way"]);
    drill.signal(Signal::SIGINT);
    assert_eq!(drill.ended().await, Some(1));
    let back = cluster.leader().await.unwrap();
    assert_eq!(back.member, first.member);
    let aborted = listed(&cluster).await.pop().unwrap();
    let sentence = format!("the command received SIGINT; {} leads again", first.member);
    assert_eq!((&aborted["outcome"], &aborted["sentence"]), (&json!("aborted"), &json!(sentence)));
    let znodes = cluster.znodes().await.clone();
    assert_eq!(znodes.get(&format!("{JOB}/drill/order")).await, None);

    // Killed, it leaves its order and its report behind.
    let mut drill = Background::start(&cluster, &["--plan", "slow", "--yes"]);
    let west = cluster.successor_of(&back, SOON).await;
    drill.signal(Signal::SIGKILL);
    assert_eq!(drill.ended().await, None);
    let run = wait_for("the end of its session", SOON, async || {
        let list = operator.json(&["drill", "list"]).await;
        let run = list["interrupted"][0].as_str().map(str::to_owned);
        run.filter(|_| list["under_way"].is_null()).ok_or_else(|| list.to_string())
    })
    .await;
    let said = operator.done(&["drill", "--to-site", "east", "--output", "json"]).await;
    said.complains_of(&[&format!("drill {run}"), "was interrupted", "It is ended now"]);
    let all = listed(&cluster).await;
    let outcomes: Vec<_> = all.iter().map(|report| &report["outcome"]).collect();
    assert_eq!(outcomes, [&json!("aborted"), &json!("interrupted"), &json!("passed")]);
    assert!(
        all[1]["sentence"].as_str().unwrap().contains(&format!("{} of site west leads", west.member)),
        "{all:#?}"
    );
    assert_eq!(cluster.leader().await.unwrap(), west, "it is left to the operator");
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}

#[tokio::test]
async fn a_killed_worker_and_a_site_that_is_cut_off_are_survived_and_come_back() {
    let ports = PortReservation::take(1).unwrap();
    let (mut cluster, first) = begun(setup(&ports)).await;
    let operator = cluster.operator().clone();

    // A service manager restarts the worker.
    let options =
        ["--output", "json", "drill", "--yes", "--mode", "kill-worker", "--to-site", "west", "--back"];
    let restarts = async {
        wait_for("the worker's end", SOON, async || {
            cluster.worker(&first.member).ended().ok_or_else(|| "it lives".to_owned())
        })
        .await;
        cluster.worker(&first.member).start();
    };
    let (said, ()) = tokio::join!(operator.run(&options), restarts);
    let report = said.with_code(0).json();
    assert_eq!((&report["outcome"], &report["to"]["site"]), (&json!("passed"), &json!("west")), "{report:#}");
    assert!(number(&report["outage_ms"]) > 0 && report["phases"]["detect_ms"].is_u64(), "{report:#}");
    assert_eq!(report["moves"][1]["back"], true);
    let back = cluster.leader_is("the first one", SOON, |leader| leader.member == first.member).await;

    let report = passed(&cluster, &["--plan", "cut"]).await;
    assert_eq!(report["to"]["site"], "west", "{report:#}");
    // They are cut off for longer than the session timeout.
    assert!(number(&report["phases"]["detect_ms"]) > 1_000, "{report:#}");
    assert!(number(&report["ended_ms"]) - number(&report["started_ms"]) >= 15_000, "{report:#}");
    let west = cluster.successor_of(&back, Duration::from_secs(5)).await;
    assert_eq!(west.site, "west");
    cluster.standing_by(3).await;
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
}
