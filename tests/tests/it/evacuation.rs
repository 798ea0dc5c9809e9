//! The jobs of a site move together, in their order: when the site is lost, and whatever fails in the middle of it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use e2e::{Cluster, Driver, JOB, SOON, Setup, TICK, Worker, ensemble, own_ensemble, program, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use zk_session::BootTime;
use zk_testkit::Ensemble;

/// Each job follows the one before.
const CHAIN: [&str; 3] = [JOB, "app", "proxy"];

/// The longest session: what waits for the end of one is seen.
const LONG: Duration = Duration::from_secs(60);

/// The second job is ready once this file exists.
fn chain(gate: &Path) -> Setup {
    let setup = Setup::new(Driver::Native)
        .workers(&[("east-1", "east"), ("west-1", "west"), ("west-2", "west")])
        .not_started();
    let setup = CHAIN[1..].iter().fold(setup, |setup, job| {
        setup
            .set(&format!("job.{job}.command"), vec!["sleep", "3600"])
            .set(&format!("job.{job}.stop_timeout"), "1s")
            .set(&format!("job.{job}.ready.kind"), "none")
    });
    let setup = setup
        .unset("job.app.ready")
        .set("job.app.ready.kind", "exec")
        .set("job.app.ready.command", vec!["test", "-e", gate.to_str().unwrap()])
        .set("job.app.ready.interval", "100ms");
    setup.set("job.app.after", vec![JOB]).set("job.proxy.after", vec!["app"])
}

/// Waits until all jobs lead in a site.
async fn led(cluster: &mut Cluster, site: &str) {
    wait_for(&format!("all jobs lead in {site}"), LONG, async || {
        let mut sites = Vec::new();
        for job in CHAIN {
            sites.push(cluster.leader_of(job).await?.site);
        }
        if sites.iter().all(|led| led == site) { Ok(()) } else { Err(format!("{sites:?}")) }
    })
    .await;
}

async fn with_all_members(cluster: &Cluster) {
    wait_for("all members of all jobs", LONG, async || {
        for job in CHAIN {
            let list = cluster.operator().json(&["list", "--job", job]).await;
            if list["members"].as_array().is_none_or(|members| members.len() != 3) {
                return Err(format!("{list:#}"));
            }
        }
        Ok(())
    })
    .await;
}

/// All jobs lead in the east, and this worker, which was the first, is their elector.
async fn in_the_east(ensemble: Arc<Ensemble>, setup: Setup, elector: &str) -> Cluster {
    let mut cluster = Cluster::on(ensemble, setup).await;
    cluster.worker(elector).start();
    led(&mut cluster, elector.split('-').next().unwrap()).await;
    cluster.workers().iter_mut().filter(|worker| worker.id() != elector).for_each(Worker::start);
    with_all_members(&cluster).await;
    if !elector.starts_with("east") {
        cluster.operator().done(&["evacuate", "west", "--wait"]).await;
        cluster.operator().done(&["drain", "west", "--off", "--all"]).await;
        let early = cluster.operator().run(&["evacuate", "east"]).await.with_code(75);
        early.complains_of(&["has moved jobs that have not returned", "evacuate west --abandon"]);
        cluster.operator().done(&["evacuate", "west", "--abandon"]).await;
    }
    led(&mut cluster, "east").await;
    cluster
}

/// Each step has begun when the one before it was done.
fn assert_in_order(plan: &Value) {
    let steps = plan["steps"].as_array().unwrap();
    let jobs: Vec<_> = steps.iter().map(|step| step["job"].as_str().unwrap()).collect();
    assert_eq!(jobs, CHAIN, "{plan:#}");
    for pair in steps.windows(2) {
        let (ended, begun) = (pair[0]["ended_ms"].as_u64().unwrap(), pair[1]["begun_ms"].as_u64());
        assert!(begun.is_none_or(|begun| begun >= ended), "{plan:#}");
    }
}

#[tokio::test]
async fn a_lost_site_is_evacuated_by_force_without_its_elector_and_its_server() {
    let ensemble = own_ensemble(|servers| servers.session_timeouts(TICK, LONG)).await;
    let gate = tempfile::NamedTempFile::new().unwrap();
    let setup = chain(gate.path()).set("zookeeper.session_timeout", format!("{}s", LONG.as_secs()));
    let mut cluster = in_the_east(Arc::clone(&ensemble), setup, "east-1").await;

    let server = ensemble.leader().await.unwrap();
    let lost = BootTime::now();
    cluster.site("east").for_each(Worker::kill_with_guards);
    ensemble.kill(server).await.unwrap();
    let report = cluster.operator().json(&["evacuate", "east", "--force", "--yes", "--wait"]).await;
    let took = BootTime::now().duration_since(lost);
    println!("a lost site was evacuated in {took:?}");
    assert_eq!((&report["phase"], &report["force"]), (&json!("done"), &json!(true)), "{report:#}");
    assert_in_order(&report);
    led(&mut cluster, "west").await;
    assert!(took < LONG * 2 / 3, "it has waited for the sessions of the lost site: {took:?}");

    // The site returns, the jobs only when they are told to.
    ensemble.start_server(server).await.unwrap();
    cluster.worker("east-1").start();
    with_all_members(&cluster).await;
    assert_in_order(&cluster.operator().json(&["evacuate", "east", "--undo", "--wait"]).await);
    led(&mut cluster, "east").await;
    cluster.end().await;
}

/// What fails in the middle of an evacuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// After other operators have asked for more.
    Command,
    Carrier,
    Servers,
    /// The carrier, while a plan is practised.
    CarrierOfDrill,
}

#[tokio::test]
async fn an_evacuation_goes_on_whatever_fails_in_the_middle_of_it() {
    let ensemble = own_ensemble(|servers| servers).await;
    for lost in [Lost::Command, Lost::Carrier, Lost::Servers, Lost::CarrierOfDrill] {
        println!("lost: {lost:?}");
        let dir = tempfile::tempdir().unwrap();
        let gate = dir.path().join("gate");
        fs::write(&gate, "").unwrap();
        let setup = chain(&gate).set("plan.east-is-lost.site", "east").set("plan.east-is-lost.stay", "1s");
        let mut cluster = in_the_east(Arc::clone(&ensemble), setup, "west-2").await;
        fs::remove_file(&gate).unwrap();
        let operator = cluster.operator().clone();
        let is_drill = lost == Lost::CarrierOfDrill;
        let verb: &[&str] = match is_drill {
            true => &["--output", "json", "drill", "--plan", PLAN, "--yes"],
            false => &["evacuate", "east", "--wait"],
        };
        let command = tokio::spawn(async move { operator.run(verb).await });
        wait_for("the middle of it", SOON, async || {
            let plan = plan(&cluster).await;
            if plan["steps"][1]["state"] == "begun" { Ok(()) } else { Err(format!("{plan:#}")) }
        })
        .await;
        lose(&mut cluster, lost, &command).await;
        fs::write(&gate, "").unwrap();
        if is_drill {
            let report = command.await.unwrap().with_code(0).json();
            assert_eq!(report["outcome"], "passed", "{report:#}");
            assert_eq!(report["longest_chain"], json!(CHAIN), "{report:#}");
            led(&mut cluster, "east").await;
            cluster.end().await;
            continue;
        }
        if let Ok(said) = command.await {
            let said = said.with_code(0);
            assert!(said.stdout.contains("3 of 3 jobs done"), "{said:#?}");
        }
        led(&mut cluster, "west").await;
        wait_for("its end", SOON, async || {
            let plan = plan(&cluster).await;
            let is_done = |step: &Value| step["state"] == "done";
            if plan["steps"].as_array().unwrap().iter().all(is_done) {
                Ok(())
            } else {
                Err(format!("{plan:#}"))
            }
        })
        .await;
        assert_in_order(&plan(&cluster).await);
        for step in plan(&cluster).await["steps"].as_array().unwrap() {
            let list = cluster.operator().json(&["list", "--job", step["job"].as_str().unwrap()]).await;
            let filed = list["requests"].as_array().unwrap().iter();
            let filed = filed.filter(|request| request["reason"] == "evacuation of site east").count();
            assert_eq!(step["tries"], filed, "each try is begun once: {list:#}");
            // A leader may be lost with the servers, and its job is moved again.
            assert!(filed <= if lost == Lost::Command { 1 } else { 3 }, "{list:#}");
        }
        cluster.end().await;
    }
}

/// The record.
async fn plan(cluster: &Cluster) -> Value {
    let znodes = cluster.znodes().await;
    let record = znodes.get("plans/evacuation").await.unwrap_or_default();
    serde_json::from_slice(&record).unwrap_or_default()
}

async fn lose(cluster: &mut Cluster, lost: Lost, command: &tokio::task::JoinHandle<e2e::Said>) {
    match lost {
        Lost::Command => {
            let other = cluster.operator().run(&["evacuate", "west"]).await.with_code(75);
            other.complains_of(&["the evacuation of site east by", "one site can be evacuated at a time"]);
            let fewer = cluster.operator().run(&["evacuate", "east", "--job", JOB]).await.with_code(75);
            fewer.complains_of(&["other jobs or options"]);
            let same = cluster.operator().done(&["evacuate", "east"]).await;
            assert!(same.stderr.contains("under way already"), "{same:#?}");
            command.abort();
        }
        Lost::Carrier | Lost::CarrierOfDrill => {
            let carrier = cluster.znodes().await.get("plans/carrier").await.unwrap();
            cluster.worker(std::str::from_utf8(&carrier).unwrap()).kill_with_guards();
        }
        Lost::Servers => {
            let servers = 0..cluster.ensemble().servers().len();
            servers.clone().for_each(|server| cluster.ensemble().faults().pause(server).unwrap());
            // Not to win a race: this is the fault.
            tokio::time::sleep(Duration::from_secs(3)).await;
            servers.for_each(|server| cluster.ensemble().faults().resume(server).unwrap());
        }
    }
}

const PLAN: &str = "east-is-lost";

#[tokio::test]
async fn the_plan_for_a_site_is_evaluated_practised_and_reported() {
    let gate = tempfile::NamedTempFile::new().unwrap();
    let setup = chain(gate.path())
        .set("plan.east-is-lost.site", "east")
        .set("plan.east-is-lost.objectives.rto", "60s")
        .set("plan.east-is-lost.job.app.rto", "30s")
        .set("plan.east-is-lost.check_every", "1s")
        .set("plan.east-is-lost.stay", "1s")
        .set("plan.wrong.site", "east")
        .set("plan.wrong.jobs", vec![JOB, "nowhere"])
        .set("plan.short.site", "east")
        .set("plan.short.limit", "3s");
    let mut cluster = in_the_east(ensemble().await, setup, "east-1").await;
    let check = cluster.operator().json(&["drill", "check", "--plan", PLAN]).await;
    assert_eq!(check["passed"], true, "{check:#}");
    let of = |plan: &str, name: &str, value: &str| {
        format!("{name}{{member=\"east-1\",site=\"east\",plan=\"{plan}\"}} {value}")
    };
    let gauge = |name: &str, value: &str| of(PLAN, name, value);
    evaluated(&mut cluster, &gauge("dr_plan_check_passed", "1")).await;
    evaluated(&mut cluster, &of("wrong", "dr_plan_check_passed", "0")).await;
    let (_, status) = cluster.worker("east-1").get("/status").await.unwrap();
    assert!(status.contains("unknown job nowhere"), "{status}");

    let report = cluster.operator().json(&["drill", "--plan", PLAN, "--yes"]).await;
    assert_eq!(report["outcome"], "passed", "{report:#}");
    assert_eq!(report["longest_chain"], json!(CHAIN), "{report:#}");
    for job in report["jobs"].as_array().unwrap() {
        assert!(job["outage_ms"].as_u64().unwrap() > 0, "{report:#}");
        assert!(job["predicted_outage_ms"].as_u64().unwrap() > 0, "{report:#}");
        assert_eq!(job["leader"]["site"], "west", "{report:#}");
    }
    assert!(report["jobs"][2]["waited_ms"].as_u64() > report["jobs"][1]["waited_ms"].as_u64(), "{report:#}");
    assert!(report["back_ms"].as_u64().unwrap() > 0, "{report:#}");
    led(&mut cluster, "east").await;
    // Unix time, in seconds.
    evaluated(&mut cluster, &gauge("dr_plan_last_success_timestamp_seconds", "1")).await;
    assert_eq!(cluster.operator().json(&["drill", "show", "last", "--plan", PLAN]).await, report);
    let text = cluster.operator().done(&["drill", "show", "last", "--plan", PLAN]).await.stdout;
    assert!(text.contains("orders, then app, then proxy"), "{text}");

    // A job that can't move is an obstacle, and nothing is done.
    cluster.operator().done(&["drain", "west", "--job", "app"]).await;
    cluster
        .operator()
        .run(&["drill", "--plan", PLAN, "--yes"])
        .await
        .with_code(75)
        .complains_of(&["app", "drained"]);
    evaluated(&mut cluster, &gauge("dr_plan_check_passed", "0")).await;
    cluster.operator().done(&["drain", "west", "--job", "app", "--off"]).await;
    evaluated(&mut cluster, &gauge("dr_plan_check_passed", "1")).await;

    // One that is told to end moves back, and leaves the proof of the one before.
    fs::remove_file(gate.path()).unwrap();
    let mut drill = Command::new(program("dr-worker"));
    let (mark, value) = cluster.tree().mark();
    drill.arg("--config").arg(cluster.dir().join("cluster.toml")).args(["drill", "--plan", PLAN, "--yes"]);
    let mut drill = drill.env(mark, value).stdin(Stdio::null()).spawn().unwrap();
    wait_for("the middle of it", SOON, async || {
        let kept = cluster.operator().json(&["drill", "show", "last", "--plan", PLAN]).await;
        let plan = plan(&cluster).await;
        let is_there = kept["outcome"] == "running" && plan["steps"][1]["state"] == "begun";
        if is_there { Ok(()) } else { Err(format!("{kept:#} {plan:#}")) }
    })
    .await;
    kill(Pid::from_raw(i32::try_from(drill.id()).unwrap()), Signal::SIGTERM).unwrap();
    fs::write(gate.path(), "").unwrap();
    let code = wait_for("the end of the drill", LONG, async || match drill.try_wait().unwrap() {
        Some(status) => Ok(status.code()),
        None => Err("it runs".to_owned()),
    })
    .await;
    assert_eq!(code, Some(1));
    led(&mut cluster, "east").await;
    let aborted = cluster.operator().json(&["drill", "show", "last", "--plan", PLAN]).await;
    assert_eq!(aborted["last_success_ms"], report["ended_ms"], "{aborted:#}");
    assert!(aborted["sentence"].as_str().unwrap().contains("the command received SIGTERM"), "{aborted:#}");

    // A plan that can't be is a failed check, and no other one with it.
    let wrong = cluster.operator().run(&["--output", "json", "drill", "check"]).await.with_code(75);
    assert!(wrong.stdout.contains("unknown job nowhere"), "{wrong:#?}");

    // One that is not done in time has failed, and goes on.
    fs::remove_file(gate.path()).unwrap();
    let check = cluster.operator().json(&["drill", "check", "--plan", "short"]).await;
    assert_eq!(check["passed"], true, "{check:#}");
    let slow = cluster.operator().run(&["--output", "json", "drill", "--plan", "short", "--yes"]).await;
    let report = slow.with_code(1).json();
    assert_eq!((&report["outcome"], &report["jobs"][2]["took_ms"]), (&json!("failed"), &Value::Null));
    assert!(report["took_ms"].as_u64().unwrap() > 0, "{report:#}");
    assert_eq!(cluster.operator().json(&["drill", "show", "last", "--plan", "short"]).await, report);
    fs::write(gate.path(), "").unwrap();
    led(&mut cluster, "west").await;
    let check = cluster.operator().run(&["--output", "json", "drill", "check", "--plan", "short"]).await;
    let check = check.with_code(75).json();
    let failed = check["checks"].as_array().unwrap().iter().filter(|check| check["passed"] == false);
    assert!(failed.into_iter().any(|check| check["name"] == "evacuation"), "{check:#}");
    // Another member evaluates it now.
    evaluated(&mut cluster, &gauge("dr_plan_check_passed", "NaN")).await;
    cluster.end().await;
}

/// Waits until a worker of the east reports this.
async fn evaluated(cluster: &mut Cluster, line: &str) {
    let worker = cluster.worker("east-1");
    wait_for(line, SOON, async || {
        let metrics = worker.get("/metrics").await.map(|(_, text)| text).unwrap_or_default();
        let found: Vec<_> = metrics.lines().filter(|metric| metric.contains("dr_plan")).collect();
        if found.iter().any(|metric| metric.starts_with(line)) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}
