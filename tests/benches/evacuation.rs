//! How long the evacuation of a site takes with many jobs in three layers, beside the longest chain of their starts:
//!
//! ```text
//! cargo xtask bench evacuation [--jobs N] [--start MILLISECONDS] [--runs N]
//! ```
//!
//! Each run evacuates the site as planned, moves everything back, and at last the site is lost: its worker is killed, and the
//! evacuation is forced. A start is the time from a leader's znode until it is READY, by the history of the election. What
//! follows another job can't start before it, so the sum along the longest chain is the least that is possible.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use e2e::{Cluster, Driver, Setup, TICK, Worker, own_ensemble, wait_for};
use serde_json::Value;

/// For starts of 100 jobs on a busy machine.
const LONG: Duration = Duration::from_secs(300);
/// So long that a forced evacuation does not wait for it.
const SESSION: Duration = Duration::from_secs(60);

struct Options {
    jobs: usize,
    start: Duration,
    runs: usize,
}

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
    let mut options = Options { jobs: 50, start: Duration::from_secs(3), runs: 1 };
    while let Some(arg) = args.next() {
        if arg == "--bench" {
            // Cargo's own.
            continue;
        }
        let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
        let number: usize = value.parse().map_err(|error| format!("{arg} {value}: {error}"))?;
        match arg.as_str() {
            "--jobs" => options.jobs = number.max(3),
            "--start" => options.start = Duration::from_millis(number as u64),
            "--runs" => options.runs = number,
            _ => {
                return Err(format!(
                    "no such option: {arg}; there are --jobs N, --start MILLISECONDS and --runs N"
                ));
            }
        }
    }
    Ok(options)
}

/// Each job with the one that it follows: a fifth are the first layer, and two fifths each of the others.
fn jobs(count: usize) -> Vec<(String, Option<String>)> {
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

async fn measure(Options { jobs: count, start, runs }: Options) {
    let jobs = jobs(count);
    let setup = Setup::new(Driver::Native)
        .workers(&[("east-1", "east"), ("west-1", "west")])
        .command(vec!["sleep".to_owned(), "36000".to_owned()])
        .set("zookeeper.session_timeout", format!("{}s", SESSION.as_secs()))
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
    cluster.worker("west-1").start();
    wait_for("a second member of each job", LONG, async || {
        for (job, _) in &jobs {
            let members = cluster.znodes().await.children(&format!("{job}/nodes")).await.unwrap_or_default();
            if members.len() != 2 {
                return Err(format!("{job}: {members:?}"));
            }
        }
        Ok(())
    })
    .await;

    println!("{:12}{:>12}{:>16}{:>16}{:>8}", "", "command", "evacuation", "longest chain", "ratio");
    for _ in 0..runs {
        row(&cluster, &jobs, "planned", &["evacuate", "east", "--wait"]).await;
        row(&cluster, &jobs, "back", &["evacuate", "east", "--undo", "--wait"]).await;
    }
    cluster.site("east").for_each(Worker::kill_with_guards);
    row(&cluster, &jobs, "site lost", &["evacuate", "east", "--force", "--now", "--yes", "--wait"]).await;
    led(&cluster, &jobs, "west").await;
}

/// Waits until each job has a READY leader in the site.
async fn led(cluster: &Cluster, jobs: &[(String, Option<String>)], site: &str) {
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

async fn row(cluster: &Cluster, jobs: &[(String, Option<String>)], what: &str, verb: &[&str]) {
    let begun = Instant::now();
    cluster.operator().done(verb).await;
    let command = begun.elapsed();
    let znodes = cluster.znodes().await;
    let plan = znodes.json("plans/evacuation").await;
    let steps = plan["steps"].as_array().expect("steps");
    let times = |key: &str| steps.iter().map(|step| step[key].as_u64().expect("a time")).collect::<Vec<_>>();
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
    println!("{what:12}{command:>12}{:>16}{:>16}{ratio:>8}", seconds(took), seconds(chain));
}
