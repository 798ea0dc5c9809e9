//! How long the evacuation of a site takes with many jobs in three layers, beside the longest chain of their starts:
//!
//! ```text
//! cargo xtask bench evacuation [--jobs N] [--start MILLISECONDS] [--runs N] [--faults yes|no]
//! ```
//!
//! Each run evacuates the site as planned, moves everything back, and at last the site is lost: its worker is killed, and the
//! evacuation is forced. A start is the time from a leader's znode until it is READY, by the history of the election. What
//! follows another job can't start before it, so the sum along the longest chain is the least that is possible.
//!
//! With faults there are two members in each site, and each row is a planned evacuation in the middle of which something is lost.
//! Each must end with all jobs READY in the other site, and each job after the one that it follows.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use e2e::{Cluster, Driver, Setup, TICK, Worker, own_ensemble, wait_for};
use serde_json::Value;

/// For starts of 100 jobs on a busy machine.
const LONG: Duration = Duration::from_secs(300);
/// So long that a forced evacuation does not wait for it.
const SESSION: Duration = Duration::from_secs(60);
/// A lost member's jobs go on after it.
const SHORT_SESSION: Duration = Duration::from_secs(6);

struct Options {
    jobs: usize,
    start: Duration,
    runs: usize,
    faults: bool,
}

/// What happens in the middle of an evacuation.
#[derive(Clone, Copy)]
enum Fault {
    /// A second operator asks for the same, and for the other site.
    Operator,
    /// The worker that carries it out is killed.
    Carrier,
    /// The elector of the first job is killed.
    Elector,
    /// The new leader of the first job is killed.
    NewLeader,
    /// The leader of the last job, which has not moved, is killed.
    OldLeader,
    /// All servers are frozen for three seconds.
    Servers,
}

const FAULTS: [(&str, Fault); 6] = [
    ("operators", Fault::Operator),
    ("carrier", Fault::Carrier),
    ("elector", Fault::Elector),
    ("new leader", Fault::NewLeader),
    ("old leader", Fault::OldLeader),
    ("servers", Fault::Servers),
];

#[tokio::main]
async fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("{wrong}");
            return ExitCode::from(64);
        }
    };
    tokio::select! {
        // The drop of the benchmark ends all its processes.
        _ = tokio::signal::ctrl_c() => {
            eprintln!("interrupted");
            ExitCode::from(130)
        }
        () = measure(options) => ExitCode::SUCCESS,
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { jobs: 50, start: Duration::from_secs(3), runs: 1, faults: false };
    while let Some(arg) = args.next() {
        if arg == "--bench" {
            // Cargo's own.
            continue;
        }
        let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
        if arg == "--faults" {
            options.faults = match value.as_str() {
                "yes" => true,
                "no" => false,
                _ => return Err(format!("--faults {value}: it is yes or no")),
            };
            continue;
        }
        let number: usize = value.parse().map_err(|error| format!("{arg} {value}: {error}"))?;
        match arg.as_str() {
            "--jobs" => options.jobs = number.max(3),
            "--start" => options.start = Duration::from_millis(number as u64),
            "--runs" => options.runs = number,
            _ => {
                return Err(format!(
                    "no such option: {arg}; there are --jobs N, --start MILLISECONDS, --runs N and --faults yes"
                ));
            }
        }
    }
    Ok(options)
}

/// A job, and the one that it follows.
type Job = (String, Option<String>);

/// Each job with the one that it follows: a fifth are the first layer, and two fifths each of the others.
fn jobs(count: usize) -> Vec<Job> {
    let first = count.div_ceil(5);
    let second = (count - first).div_ceil(2);
    let name = |layer: usize, at: usize| match (layer, at) {
        // Every cluster of the tests has it.
        (1, 0) => e2e::JOB.to_owned(),
        _ => format!("layer{layer}-{at:02}"),
    };
    let mut all: Vec<_> = (0..first).map(|at| (name(1, at), None)).collect();
    all.extend((0..second).map(|at| (name(2, at), Some(name(1, at % first)))));
    all.extend((0..count - first - second).map(|at| (name(3, at), Some(name(2, at)))));
    all
}

async fn measure(Options { jobs: count, start, runs, faults }: Options) {
    let jobs = jobs(count);
    let (members, session): (&[_], _) = match faults {
        true => {
            (&[("east-1", "east"), ("west-1", "west"), ("east-2", "east"), ("west-2", "west")], SHORT_SESSION)
        }
        false => (&[("east-1", "east"), ("west-1", "west")], SESSION),
    };
    let setup = Setup::new(Driver::Native)
        .workers(members)
        .command(vec!["sleep".to_owned(), "36000".to_owned()])
        .set("zookeeper.session_timeout", format!("{}s", session.as_secs()))
        .not_started();
    let setup = jobs.iter().fold(setup, |setup, (job, after)| {
        let key = |key: &str| format!("job.{job}.{key}");
        let setup = if job == e2e::JOB { setup } else { setup.set(&key("command"), vec!["sleep", "36000"]) };
        let setup = setup
            .set(&key("stop_timeout"), "1s")
            .set(&key("ready.kind"), "none")
            .set(&key("ready.after"), format!("{}ms", start.as_millis()));
        after.iter().fold(setup, |setup, after| setup.set(&key("after"), vec![after.as_str()]))
    });
    let ensemble = own_ensemble(|servers| servers.session_timeouts(TICK, SESSION)).await;
    let mut cluster = Cluster::on(ensemble, setup).await;
    eprintln!("{count} jobs of three layers in two sites, each starts in {start:?}");
    cluster.worker("east-1").start();
    led(&cluster, &jobs, "east").await;
    cluster.workers().iter_mut().filter(|worker| !worker.is_started()).for_each(Worker::start);
    joined(&cluster, &jobs, members.len()).await;

    println!("{:20}{:>12}{:>16}{:>16}{:>8}", "", "command", "evacuation", "longest chain", "ratio");
    if faults {
        for (what, fault) in FAULTS.into_iter().cycle().take(runs * FAULTS.len()) {
            faulty(&mut cluster, &jobs, what, fault, members.len()).await;
        }
        return;
    }
    for _ in 0..runs {
        row(&cluster, &jobs, "planned", &["evacuate", "east", "--wait"]).await;
        row(&cluster, &jobs, "back", &["evacuate", "east", "--undo", "--wait"]).await;
    }
    cluster.site("east").for_each(Worker::kill_with_guards);
    row(&cluster, &jobs, "site lost", &["evacuate", "east", "--force", "--now", "--yes", "--wait"]).await;
    led(&cluster, &jobs, "west").await;
}

/// Waits until each job has so many members.
async fn joined(cluster: &Cluster, jobs: &[Job], count: usize) {
    wait_for("all members of each job", LONG, async || {
        for (job, _) in jobs {
            let members = cluster.znodes().await.children(&format!("{job}/nodes")).await.unwrap_or_default();
            if members.len() != count {
                return Err(format!("{job}: {members:?}"));
            }
        }
        Ok(())
    })
    .await;
}

/// A planned evacuation with a fault in the middle of it, and the move back.
async fn faulty(cluster: &mut Cluster, jobs: &[Job], what: &str, fault: Fault, members: usize) {
    let operator = cluster.operator().clone();
    let evacuation = ["evacuate", "east", "--wait"];
    let begun = Instant::now();
    let command = tokio::spawn(async move { operator.run(&evacuation).await });
    wait_for("the middle of it", LONG, async || {
        let plan = cluster.znodes().await.get("plans/evacuation").await.unwrap_or_default();
        let plan: Value = serde_json::from_slice(&plan).unwrap_or_default();
        let steps = plan["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
        let done = steps.iter().filter(|step| step["state"] == "done").count();
        if plan["undo"] != true && done > 0 && done < steps.len() { Ok(()) } else { Err(format!("{plan}")) }
    })
    .await;
    let killed = strike(cluster, jobs, fault).await;
    let said = command.await.expect("a command");
    let took = begun.elapsed();
    assert_eq!(said.code, Some(0), "{said:#?}");
    led(cluster, jobs, "west").await;
    let plan = cluster.znodes().await.json("plans/evacuation").await;
    let steps = plan["steps"].as_array().expect("steps");
    for step in steps {
        for before in
            steps.iter().filter(|before| step["after"].to_string().contains(&before["job"].to_string()))
        {
            let (begun, ended) = (step["begun_ms"].as_u64(), before["ended_ms"].as_u64());
            assert!(begun.is_none_or(|begun| Some(begun) >= ended), "{step} began before {before} was done");
        }
    }
    print_row(cluster, jobs, &format!("{what} {}", killed.unwrap_or_default()), took).await;
    cluster.workers().iter_mut().filter(|worker| !worker.is_started()).for_each(Worker::start);
    joined(cluster, jobs, members).await;
    row(cluster, jobs, "back", &["evacuate", "east", "--undo", "--wait"]).await;
    led(cluster, jobs, "east").await;
}

/// Returns who was killed.
async fn strike(cluster: &mut Cluster, jobs: &[Job], fault: Fault) -> Option<String> {
    let znodes = cluster.znodes().await;
    let leader_of = async |job: &str| {
        let leader = znodes.json(&format!("{job}/leader/current")).await;
        leader["member"].as_str().expect("a leader").to_owned()
    };
    let victim = match fault {
        Fault::Operator => {
            cluster.operator().run(&["evacuate", "west"]).await.with_code(75).complains_of(&["one site"]);
            cluster.operator().done(&["evacuate", "east"]).await;
            return None;
        }
        Fault::Servers => {
            let servers = 0..cluster.ensemble().servers().len();
            servers.clone().for_each(|server| cluster.ensemble().faults().pause(server).expect("a server"));
            tokio::time::sleep(Duration::from_secs(3)).await; // the fault
            servers.for_each(|server| cluster.ensemble().faults().resume(server).expect("a server"));
            return None;
        }
        Fault::Carrier => {
            let carrier = znodes.get("plans/carrier").await.expect("a carrier");
            String::from_utf8(carrier).expect("a name")
        }
        Fault::Elector => {
            let list = cluster.operator().json(&["list", "--job", e2e::JOB]).await;
            list["elector"].as_str().unwrap_or_else(|| panic!("{list:#}")).to_owned()
        }
        Fault::NewLeader => leader_of(e2e::JOB).await,
        Fault::OldLeader => leader_of(&jobs.last().expect("jobs").0).await,
    };
    cluster.worker(&victim).kill_with_guards();
    Some(victim)
}

/// Waits until each job has a READY leader in the site.
async fn led(cluster: &Cluster, jobs: &[Job], site: &str) {
    wait_for(&format!("all jobs lead in {site}"), LONG, async || {
        for (job, _) in jobs {
            let leader =
                cluster.znodes().await.get(&format!("{job}/leader/current")).await.unwrap_or_default();
            let leader: Value = serde_json::from_slice(&leader).unwrap_or_default();
            if leader["status"] != "READY" || leader["site"] != site {
                return Err(format!("{job}: {leader}"));
            }
        }
        Ok(())
    })
    .await;
}

async fn row(cluster: &Cluster, jobs: &[Job], what: &str, verb: &[&str]) {
    let begun = Instant::now();
    cluster.operator().done(verb).await;
    print_row(cluster, jobs, what, begun.elapsed()).await;
}

async fn print_row(cluster: &Cluster, jobs: &[Job], what: &str, command: Duration) {
    let znodes = cluster.znodes().await;
    let plan = znodes.json("plans/evacuation").await;
    let steps = plan["steps"].as_array().expect("steps");
    // A step has no times if its job was there already.
    let times = |key: &str| steps.iter().filter_map(|step| step[key].as_u64()).collect::<Vec<_>>();
    let (first, last) = (times("begun_ms").into_iter().min(), times("ended_ms").into_iter().max());
    let took = last.zip(first).map_or(0, |(last, first)| last - first);
    let mut ends = BTreeMap::new();
    for (job, after) in jobs {
        let entries = znodes.children(&format!("{job}/history")).await.unwrap_or_default();
        let newest = entries.iter().max().expect("a leadership");
        let entry = znodes.json(&format!("{job}/history/{newest}")).await;
        let start = entry["phases"]["takeover_ms"].as_u64().expect("how long it took");
        let before = after.as_ref().map_or(0, |after| ends[after]);
        ends.insert(job.clone(), before + start);
    }
    let chain = ends.into_values().max().unwrap_or(1);
    let seconds = |ms: u64| format!("{}.{:03} s", ms / 1000, ms % 1000);
    let command = seconds(u64::try_from(command.as_millis()).unwrap_or(u64::MAX));
    let ratio = took * 100 / chain.max(1);
    let ratio = format!("{}.{:02}", ratio / 100, ratio % 100);
    println!("{what:20}{command:>12}{:>16}{:>16}{ratio:>8}", seconds(took), seconds(chain));
}
