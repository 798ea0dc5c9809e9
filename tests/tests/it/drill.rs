//! Practised failovers, with their reports.
//!
//! `DRILL_PAGES=DIR` keeps the report of each mode as an HTML file: `cut-site.html` and the like.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use e2e::{Cluster, Driver, Frontend, JOB, SOON, Said, Setup, own_ensemble, program, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use zk_testkit::{Network, PortReservation};

const MODES: [&str; 5] = ["rehearse", "switchover", "kill-job", "kill-worker", "cut-site"];

/// The port of the job, and that of the address that its users know.
const PORT: u16 = 8000;

/// How far the outage of the probes may be from the measured phases: two probes, and a busy machine.
const APART_MS: u64 = 3_000;

/// Four workers whose job listens at this address.
fn setup(listen: &str) -> Setup {
    // Options live as long as the program.
    let option: &'static str = Box::leak(listen.to_owned().into_boxed_str());
    Setup::new(Driver::Native)
        .job_options(&["--listen", option])
        .set("policy.min_tenure", "0s")
        .unset("job.orders.ready")
        .set("job.orders.ready.kind", "tcp")
        .set("job.orders.ready.address", listen)
        .set("job.orders.restart.backoff", "1s")
        .set("job.orders.hooks.before_takeover.command", vec!["sleep", "0.7"])
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
        .set("drill.slow.limit", "30m")
        .set("drill.cut.job", JOB)
        .set("drill.cut.mode", "cut-site")
        .set("drill.cut.to_site", "west")
        .set("drill.cut.stay", "1s")
        .set("drill.cut.cut_for", "15s")
}

/// Runs a drill that must pass. Returns its report.
async fn passed(cluster: &Cluster, options: &[&str]) -> Value {
    let said = cluster.operator().done(&[&["--output", "json", "drill", "--yes"], options].concat()).await;
    has_passed(cluster, said).await
}

/// The report of a drill that has passed.
async fn has_passed(cluster: &Cluster, said: Said) -> Value {
    let report = said.with_code(0).json();
    assert_eq!(report["outcome"], "passed", "{report:#}");
    if let Some(dir) = std::env::var_os("DRILL_PAGES") {
        let page = cluster.operator().done(&["drill", "show", "last", "--format", "html"]).await.stdout;
        let name = format!("{}.html", report["mode"].as_str().unwrap());
        std::fs::write(Path::new(&dir).join(name), page).unwrap();
    }
    report
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

async fn listed(cluster: &Cluster) -> Vec<Value> {
    let list = cluster.operator().json(&["drill", "list"]).await;
    list["drills"].as_array().unwrap().clone()
}

/// From now on one member of each site probes this address, by this kind of probe. Returns what reports show as its target.
async fn probe(cluster: &Cluster, kind: &str, address: SocketAddr) -> String {
    let (key, target) = match kind {
        "http" => ("url", format!("http://{address}/")),
        _ => ("address", address.to_string()),
    };
    // A busy machine is no outage.
    let pace = "interval = \"100ms\"\ntimeout = \"5s\"";
    let file = cluster.dir().join("probe.toml");
    let overlay = format!("[drill.probe]\nkind = \"{kind}\"\n{key} = \"{target}\"\n{pace}\n");
    std::fs::write(&file, overlay).unwrap();
    let operator = cluster.operator();
    operator.done(&["config", "push", file.to_str().unwrap(), "--job", JOB]).await;
    wait_for("the probe on all members", SOON, async || {
        let history = operator.json(&["config", "history", "--job", JOB]).await;
        let version = &history["versions"].as_array().unwrap().last().unwrap()["version"];
        let members = history["members"].as_array().unwrap();
        let all = members.len() == 4 && members.iter().all(|member| member["version"] == *version);
        if all { Ok(()) } else { Err(format!("{history:#}")) }
    })
    .await;
    target
}

/// A prober of each site has asked the target, and each has an answer at the end. The outage of those that saw one lies
/// between the phases in which nothing served, and these with `others`, in which it can have been away.
fn assert_probed(report: &Value, target: &str, away: &[&str], others: &[&str]) {
    let probes = report["probes"].as_array().unwrap();
    let sites: Vec<_> = probes.iter().map(|probed| probed["site"].as_str().unwrap()).collect();
    assert_eq!(sites, ["east", "west"], "{report:#}");
    for probed in probes {
        assert!(probed["target"] == target && probed["serves"] == true, "{report:#}");
        assert!(number(&probed["count"]) >= 5, "{probed:#}");
        let has_seen = number(&probed["failed"]) > 0 && number(&probed["outage_ms"]) > 0;
        assert_eq!(has_seen, !away.is_empty(), "{probed:#}");
    }
    let outage = number(&report["outage_ms"]);
    let moves = report["moves"].as_array().unwrap();
    let phases: Vec<_> = moves.iter().map(|change| &change["phases"]).collect();
    let phases = if phases.is_empty() { vec![&report["phases"]] } else { phases };
    let longest = |names: &[&str]| {
        let took = |phases: &&Value| names.iter().filter_map(|name| phases[name].as_u64()).sum::<u64>();
        phases.iter().map(took).max().unwrap()
    };
    let (least, most) = (longest(away), longest(&[away, others].concat()));
    println!("{}: the probes saw {outage} ms, the phases {least} to {most} ms", report["mode"]);
    assert!(outage + APART_MS >= least && outage <= most + APART_MS, "{least} to {most}: {report:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drill_of_each_mode_is_measured_by_phases_and_probes_and_reported() {
    if !Network::available_or_skip() {
        return;
    }
    let ensemble = own_ensemble(|servers| servers.in_namespaces(true)).await;
    let users = SocketAddr::from((ensemble.network().unwrap().own_address(), PORT));
    let [one, two, three] = ensemble.addresses()[..] else { panic!("three servers") };
    let setup = setup(&format!("0.0.0.0:{PORT}"))
        .on_hosts()
        .set("job.orders.ready.address", format!("127.0.0.1:{PORT}"))
        .set("zookeeper.overlay", "all");
    let sites = [("east", one), ("west", two), ("third", three)];
    let setup = sites.iter().fold(setup, |setup, (site, server)| {
        setup.set(&format!("zookeeper.sites.{site}"), vec![server.to_string()])
    });
    let mut cluster = Cluster::on(ensemble, setup).await;
    let places = cluster.workers().iter().map(|worker| SocketAddr::from((worker.host().ip(), PORT)));
    let _frontend = Frontend::start(users, places.collect());
    let first = cluster.settled().await;
    assert_eq!(first.site, "east");
    let operator = cluster.operator().clone();
    let http = probe(&cluster, "http", users).await;

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
    assert_probed(&report, &http, &["acquire_ms", "takeover_ms"], &["release_ms", "ready_ms"]);
    assert_eq!(
        (&report["objectives"][0]["name"], &report["objectives"][0]["passed"]),
        (&json!("rto"), &json!(true))
    );
    assert_eq!(report["members"].as_array().unwrap().len(), 4);
    let quorum = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "quorum").unwrap();
    assert_eq!(quorum["sentence"], "it survives the loss of any one site; 3 servers have a vote");
    let back = cluster.leader().await.unwrap();
    assert_eq!((&back.member, back.term), (&first.member, first.term + 2));

    // The reports are kept.
    let run = report["run"].as_str().unwrap();
    assert_eq!(listed(&cluster).await[0]["run"], run);
    let text = operator.done(&["drill", "show", run]).await.stdout;
    assert!(text.contains(&format!("Drill {run} of ")) && text.contains("a <test>"), "{text}");
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
        let since = |name: &str| value(name).is_some_and(|at| at as u64 >= ended);
        let checked = since("dr_drill_check_timestamp_seconds{");
        let could_run = since("dr_drill_check_last_passed_timestamp_seconds{");
        let is_planned = text.contains("plan=\"quarterly\"");
        if proved && checked && could_run && is_planned { Ok(()) } else { Err(text) }
    })
    .await;

    // Nothing moves in a rehearsal.
    let report = passed(&cluster, &["--to-site", "west"]).await;
    assert_eq!((&report["mode"], &report["to"]["site"]), (&json!("rehearse"), &json!("west")));
    assert!(report["phases"]["takeover_ms"].is_u64() && report["moves"] == json!([]), "{report:#}");
    assert_probed(&report, &http, &[], &[]);
    assert_eq!(report["outage_ms"], 0, "{report:#}");
    assert_eq!(cluster.leader().await.unwrap(), back);

    // A killed job is restarted by its leader.
    let report = passed(&cluster, &["--mode", "kill-job"]).await;
    assert_eq!(report["moves"], json!([]), "{report:#}");
    assert_probed(&report, &http, &["takeover_ms"], &["ready_ms"]);
    let again = cluster.leader().await.unwrap();
    assert_eq!((&again.member, again.token, again.restarts), (&back.member, back.token, back.restarts + 1));

    // A service manager restarts the worker.
    let tcp = probe(&cluster, "tcp", users).await;
    let restarts = async {
        wait_for("the worker's end", SOON, async || {
            cluster.worker(&first.member).ended().ok_or_else(|| "it lives".to_owned())
        })
        .await;
        cluster.worker(&first.member).start();
    };
    let options = ["--output", "json", "drill", "--mode", "kill-worker", "--to-site", "west", "--back"];
    let (said, ()) = tokio::join!(operator.run(&options), restarts);
    let report = has_passed(&cluster, said).await;
    assert_eq!(report["to"]["site"], "west", "{report:#}");
    assert!(report["phases"]["detect_ms"].is_u64(), "{report:#}");
    assert_eq!(report["moves"][1]["back"], true);
    let all = ["detect_ms", "decide_ms", "release_ms", "ready_ms"];
    assert_probed(&report, &tcp, &["acquire_ms", "takeover_ms"], &all);
    let back = cluster.leader_is("the first one", SOON, |leader| leader.member == first.member).await;

    // Checks that fail: nothing happens.
    let before = listed(&cluster).await;
    assert_eq!(before.len(), 4);
    let servers =
        format!("zookeeper.sites={{ east = [\"{one}\", \"{two}\"], west = [\"{three}\"], third = [] }}");
    let refused = operator.run(&["--set", &servers, "drill", "--plan", "cut", "--yes"]).await.with_code(75);
    refused.complains_of(&["nothing was done", "quorum: the loss of site east loses the quorum: 1 of 3"]);
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
    assert_eq!(cluster.leader().await.unwrap(), back);

    let report = passed(&cluster, &["--plan", "cut"]).await;
    assert_eq!(report["to"]["site"], "west", "{report:#}");
    // They are cut off for longer than the session timeout.
    assert!(number(&report["phases"]["detect_ms"]) > 1_000, "{report:#}");
    assert!(number(&report["ended_ms"]) - number(&report["started_ms"]) >= 15_000, "{report:#}");
    assert_probed(&report, &tcp, &["acquire_ms", "takeover_ms"], &all);
    let west = cluster.successor_of(&back, SOON).await;
    assert_eq!(west.site, "west");
    cluster.standing_by(3).await;
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
    // A rehearsal on the host of the leader can't listen at its address.
    let rehearses = vec!["sleep", "1000"];
    let setup =
        setup(&format!("127.0.0.1:{}", ports.ports()[0])).set("job.orders.rehearsal.command", rehearses);
    let mut cluster = Cluster::of(setup).await;
    let first = cluster.settled().await;
    assert_eq!(first.site, "east");
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
async fn a_drill_that_has_lost_all_servers_ends_when_it_is_asked_to() {
    let ports = PortReservation::take(1).unwrap();
    let ensemble = own_ensemble(|servers| servers).await;
    let mut cluster = Cluster::on(ensemble, setup(&format!("127.0.0.1:{}", ports.ports()[0]))).await;
    let first = cluster.settled().await;
    let mut drill = Background::start(&cluster, &["--plan", "slow", "--yes"]);
    cluster.successor_of(&first, SOON).await;
    let servers = 0..cluster.ensemble().servers().len();
    servers.clone().for_each(|server| cluster.ensemble().faults().pause(server).unwrap());
    let ended = wait_for("the end of the drill", SOON, async || {
        drill.signal(Signal::SIGINT);
        drill.0.try_wait().unwrap().map(|status| status.code()).ok_or_else(|| "it runs".to_owned())
    })
    .await;
    servers.for_each(|server| cluster.ensemble().faults().resume(server).unwrap());
    assert_eq!(ended, Some(1));
    cluster.standing_by(3).await;
    cluster.end().await;
}
