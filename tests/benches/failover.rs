//! How long a change of leadership takes, from its cause to the next job's first act, on this machine:
//!
//! ```text
//! cargo xtask bench failover [--runs N] [--driver native|zookeeper-async]
//! ```
//!
//! Where it may create network namespaces, it also cuts leaders' hosts off, by dropping packets, and measures fast
//! failover.
//!
//! Milliseconds differ between machines, so the same run also measures one write round trip of the ensemble, and prints
//! every time in that unit too.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use e2e::{Cluster, Driver, JOB, Leader, SOON, Setup, own_ensemble};
use zk_session::{BootTime, CreateMode};
use zk_testkit::Network;

/// The number of round trips of which the unit is the median.
const ROUND_TRIPS: usize = 500;
const DEFAULT_RUNS: usize = 20;
/// For three servers on one machine with a tick of half a second.
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);
/// A session timeout so long that no run waits for it.
const LONG_SESSION: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> ExitCode {
    let (runs, driver) = match parse(std::env::args().skip(1)) {
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
        () = measure(runs, driver) => ExitCode::SUCCESS,
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<(usize, Driver), String> {
    let (mut runs, mut driver) = (DEFAULT_RUNS, Driver::Native);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            // Cargo's own.
            "--bench" => {}
            "--runs" => {
                let count = value()?;
                runs = count.parse().map_err(|error| format!("--runs {count}: {error}"))?;
                if runs == 0 {
                    return Err("--runs 0: at least one".to_owned());
                }
            }
            "--driver" => {
                let name = value()?;
                let known = [Driver::Native, Driver::ZookeeperAsync];
                let found = known.into_iter().find(|driver| driver.to_string() == name);
                driver = found.ok_or_else(|| format!("--driver {name}: {} or {}", known[0], known[1]))?;
            }
            other => return Err(format!("no such option: {other}; there are --runs N and --driver NAME")),
        }
    }
    Ok((runs, driver))
}

async fn measure(runs: usize, driver: Driver) {
    let setup = Setup::new(driver)
        .set("zookeeper.session_timeout", format!("{}s", SESSION_TIMEOUT.as_secs()))
        // Each run is a takeover; the policy would hold the election after some.
        .set("policy.max_takeovers.count", 1_000_000);
    eprintln!("three servers, four workers of two sites, driver {driver}, {runs} runs each");
    let mut cluster = Cluster::of(setup).await;
    let leader = cluster.settled().await;
    cluster.acts(leader.token).await;
    let unit = Times::of(round_trips(&cluster).await);

    let mut planned = Planned::default();
    for run in 1..=runs {
        let (moved, gap) = switchover(&mut cluster).await;
        eprintln!("switchover {run}/{runs}: {}, {} of it without a job", ms(moved), ms(gap));
        planned.moves.push(moved);
        planned.gaps.push(gap);
    }
    let mut crashes = Vec::new();
    for run in 1..=runs {
        let took = crash(&mut cluster).await;
        eprintln!("worker dies {run}/{runs}: {}", ms(took));
        crashes.push(took);
    }
    cluster.journal().assert_one_at_a_time();
    cluster.end().await;
    let cuts = if Network::available_or_skip() { cuts(runs, driver).await } else { Vec::new() };

    let median = unit.median();
    println!("unit: one write round trip of the ensemble, the median of {ROUND_TRIPS}");
    println!("{:34}{:>10}{:>10}{:>10}{:>10}", "", "min", "median", "p90", "max");
    unit.print("write round trip", None);
    Times::of(planned.moves).print("planned switchover, from command", Some(median));
    Times::of(planned.gaps).print("  of which no job acts", Some(median));
    Times::of(crashes).print("worker dies, from SIGKILL", Some(median));
    if !cuts.is_empty() {
        let what = format!("host cut off, fast ({LONG_SESSION:?} session)");
        Times::of(cuts).print(&what, Some(median));
    }
    println!("session timeout {SESSION_TIMEOUT:?}, driver {driver}, {runs} runs each");
}

#[derive(Default)]
struct Planned {
    moves: Vec<Duration>,
    gaps: Vec<Duration>,
}

/// One write after the other, each through a quorum.
async fn round_trips(cluster: &Cluster) -> Vec<Duration> {
    let znodes = cluster.znodes().await;
    let (session, path) = (znodes.session(), znodes.path("round-trip"));
    session.create(&path, b"0", CreateMode::Persistent).await.expect("a znode to write to");
    let mut all = Vec::with_capacity(ROUND_TRIPS);
    for number in 0..ROUND_TRIPS {
        let begun = Instant::now();
        session.set(&path, number.to_string(), None).await.expect("a write");
        all.push(begun.elapsed());
    }
    all
}

/// By an operator's command: the time from the start of the command to the first act of the new job, and the part of it
/// in which no job acted.
async fn switchover(cluster: &mut Cluster) -> (Duration, Duration) {
    let old = cluster.leader().await.expect("a leader");
    let target = if old.site == "east" { "west" } else { "east" };
    let asked = BootTime::now();
    cluster.operator().done(&["switchover", "--job", JOB, "--to-site", target, "--wait"]).await;
    let begun = next_acts(cluster, &old).await;
    let ended = cluster.journal().acting(old.token).expect("the old job has acted").to;
    cluster.standing_by(3).await;
    (begun.duration_since(asked), begun.duration_since(ended))
}

/// The time from SIGKILL to the leading worker, whose host lives, to the first act of the new job.
async fn crash(cluster: &mut Cluster) -> Duration {
    let old = cluster.leader().await.expect("a leader");
    let killed = BootTime::now();
    cluster.worker(&old.member).kill();
    let begun = next_acts(cluster, &old).await;
    cluster.worker(&old.member).start();
    cluster.standing_by(3).await;
    begun.duration_since(killed)
}

/// The time from the cut until the job acts elsewhere, with the defaults of fast failover.
async fn cuts(runs: usize, driver: Driver) -> Vec<Duration> {
    let setup = Setup::new(driver)
        .on_hosts()
        .set("zookeeper.session_timeout", format!("{}s", LONG_SESSION.as_secs()))
        .set("policy.max_takeovers.count", 1_000_000)
        .set("policy.fast_failover", true)
        // The member that was cut off must be a candidate again in the next run.
        .set("policy.exclusion", "1s");
    let ensemble = own_ensemble(|builder| builder.in_namespaces(true)).await;
    let mut cluster = Cluster::on(ensemble, setup).await;
    let leader = cluster.settled().await;
    cluster.acts(leader.token).await;
    let mut all = Vec::new();
    for run in 1..=runs {
        let old = cluster.leader().await.expect("a leader");
        let cut = BootTime::now();
        cluster.worker(&old.member).cut_off();
        let took = next_acts(&mut cluster, &old).await.duration_since(cut);
        eprintln!("host cut off {run}/{runs}: {}", ms(took));
        cluster.worker(&old.member).plug_in();
        cluster.standing_by(3).await;
        all.push(took);
    }
    // If the old job continued to act, its resource would have refused it: two may act at a time here.
    cluster.end().await;
    all
}

async fn next_acts(cluster: &mut Cluster, old: &Leader) -> BootTime {
    let new = cluster.successor_of(old, SOON).await;
    cluster.acts(new.token).await.from
}

/// Sorted.
struct Times(Vec<Duration>);

impl Times {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The smallest time that so many of ten do not exceed: a percentile in tenths.
    fn tenths(&self, tenths: usize) -> Duration {
        let rank = (self.0.len() * tenths).div_ceil(10).max(1);
        self.0[rank - 1]
    }

    fn median(&self) -> Duration {
        self.tenths(5)
    }

    fn print(&self, what: &str, unit: Option<Duration>) {
        let columns = [self.tenths(0), self.tenths(5), self.tenths(9), self.tenths(10)];
        let line =
            |show: &dyn Fn(Duration) -> String| columns.map(|time| format!("{:>10}", show(time))).concat();
        println!("{what:34}{}", line(&ms));
        if let Some(unit) = unit {
            let times = |time: Duration| format!("{:.0} x", time.as_secs_f64() / unit.as_secs_f64());
            println!("{:34}{}", "", line(&times));
        }
    }
}

fn ms(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.0} ms") }
}
