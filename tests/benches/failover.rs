//! How long a change of leadership takes, from its cause to the next job's first act, on this machine:
//!
//! ```text
//! cargo xtask bench failover [--runs N] [--driver native|zookeeper-async] [--cuts] [--sync-limit TICKS]
//! ```
//!
//! Where it may create network namespaces, it also cuts leaders' hosts off, by dropping packets, and measures fast
//! failover: of a host with a worker only, with a worker and a ZooKeeper follower, and with a worker and the ensemble's
//! leader. In the last two cases the sessions of all other workers are with the server that is cut off. `--cuts` measures
//! nothing else. `--sync-limit` is that of the servers.
//!
//! Milliseconds differ between machines, so the same run also measures one write round trip of the ensemble, and prints
//! every time in that unit too.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use e2e::{Cluster, Driver, JOB, Leader, SOON, Setup, TICK, own_ensemble};
use zk_session::{BootTime, CreateMode};
use zk_testkit::Network;

/// The number of round trips of which the unit is the median.
const ROUND_TRIPS: usize = 500;
const DEFAULT_RUNS: usize = 20;
/// For three servers on one machine with a tick of half a second.
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);
/// A session timeout so long that no run waits for it.
const LONG_SESSION: Duration = Duration::from_secs(10);
const SUSPECT_AFTER: Duration = Duration::from_millis(300);
/// A session that had to leave servers one after the other searches less often for a while. A host is seldom lost right after
/// that.
const RESTED: Duration = Duration::from_secs(5);
/// The worker that is cut off, and the server whose host it may share: of equal servers this one becomes the leader.
const LOST: (&str, usize) = ("east-1", 2);

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

#[derive(Clone, Copy)]
struct Options {
    runs: usize,
    driver: Driver,
    only_cuts: bool,
    sync_limit: u32,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options =
        Options { runs: DEFAULT_RUNS, driver: Driver::Native, only_cuts: false, sync_limit: 10 };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            // Cargo's own.
            "--bench" => {}
            "--cuts" => options.only_cuts = true,
            "--runs" => options.runs = positive(&arg, &value()?)?,
            "--sync-limit" => options.sync_limit = positive(&arg, &value()?)?,
            "--driver" => {
                let name = value()?;
                let known = [Driver::Native, Driver::ZookeeperAsync];
                let found = known.into_iter().find(|driver| driver.to_string() == name);
                options.driver =
                    found.ok_or_else(|| format!("--driver {name}: {} or {}", known[0], known[1]))?;
            }
            other => {
                return Err(format!(
                    "no such option: {other}; there are --runs N, --driver NAME, --cuts and --sync-limit TICKS"
                ));
            }
        }
    }
    Ok(options)
}

fn positive<T: std::str::FromStr<Err = std::num::ParseIntError> + Default + PartialEq>(
    option: &str,
    value: &str,
) -> Result<T, String> {
    match value.parse() {
        Ok(number) if number != T::default() => Ok(number),
        Ok(_) => Err(format!("{option} 0: at least one")),
        Err(error) => Err(format!("{option} {value}: {error}")),
    }
}

async fn measure(options: Options) {
    let mut rows = Vec::new();
    if !options.only_cuts {
        moves(options, &mut rows).await;
    }
    if Network::available_or_skip() {
        for on_host in [OnHost::Worker, OnHost::Follower, OnHost::Leader] {
            cuts(options, on_host, &mut rows).await;
        }
    }
    println!("unit: one write round trip of the ensemble, the median of {ROUND_TRIPS}");
    println!("{:42}{:>10}{:>10}{:>10}{:>10}", "", "min", "median", "p90", "max");
    rows.iter().for_each(Row::print);
    let Options { runs, driver, sync_limit, .. } = options;
    println!("session timeout {SESSION_TIMEOUT:?}, driver {driver}, {runs} runs each");
    println!(
        "cuts: session timeout {LONG_SESSION:?}, suspect_after {SUSPECT_AFTER:?}, syncLimit {sync_limit} ticks of {TICK:?}"
    );
}

/// Planned moves and crashes.
async fn moves(Options { runs, driver, .. }: Options, rows: &mut Vec<Row>) {
    let setup = Setup::new(driver)
        .set("zookeeper.session_timeout", format!("{}s", SESSION_TIMEOUT.as_secs()))
        // Each run is a takeover; the policy would hold the election after some.
        .set("policy.max_takeovers.within", "1s");
    eprintln!("three servers, four workers of two sites, driver {driver}, {runs} runs each");
    let mut cluster = Cluster::of(setup).await;
    let leader = cluster.settled().await;
    cluster.acts(leader.token).await;
    let unit = Times::of(round_trips(&cluster).await);
    let median = Some(unit.median());
    rows.push(Row { what: "write round trip".to_owned(), times: unit, unit: None });

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
    for (what, times) in [
        ("planned switchover, from command", planned.moves),
        ("  of which no job acts", planned.gaps),
        ("worker dies, from SIGKILL", crashes),
    ] {
        rows.push(Row { what: what.to_owned(), times: Times::of(times), unit: median });
    }
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

/// What the host carries that is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnHost {
    Worker,
    /// A follower too, with the sessions of all other workers.
    Follower,
    /// The ensemble's leader too, with these sessions.
    Leader,
}

/// The times from the cut until the job acts elsewhere, with fast failover.
async fn cuts(Options { runs, driver, sync_limit, .. }: Options, on_host: OnHost, rows: &mut Vec<Row>) {
    let mut setup = Setup::new(driver)
        .on_hosts()
        .set("zookeeper.session_timeout", format!("{}s", LONG_SESSION.as_secs()))
        .set("policy.max_takeovers.within", "1s")
        .set("policy.fast_failover", true)
        .set("policy.suspect_after", format!("{}ms", SUSPECT_AFTER.as_millis()))
        // The member that was cut off must be a candidate again in the next run.
        .set("policy.exclusion", "1s");
    if on_host != OnHost::Worker {
        setup = setup.beside_server(LOST.0, LOST.1);
    }
    let ensemble = own_ensemble(|builder| builder.in_namespaces(true).sync_limit(sync_limit)).await;
    let mut cluster = Cluster::on(ensemble, setup).await;
    cluster.settled().await;
    let unit = Times::of(round_trips(&cluster).await).median();
    let mut all = Vec::new();
    for run in 1..=runs {
        let old = ready_to_be_lost(&mut cluster, on_host).await;
        let cut = BootTime::now();
        cluster.worker(&old.member).cut_off();
        let took = next_acts(&mut cluster, &old).await.duration_since(cut);
        eprintln!("host cut off, {on_host:?} {run}/{runs}: {}", ms(took));
        cluster.worker(&old.member).plug_in();
        cluster.ensemble().wait_serving(SOON).await.expect("servers that serve");
        cluster.standing_by(3).await;
        all.push(took);
    }
    // If the old job continued to act, its resource would have refused it: two may act at a time here.
    cluster.end().await;
    let what = match on_host {
        OnHost::Worker => "host cut off: a worker",
        OnHost::Follower => "  a worker and a ZooKeeper follower",
        OnHost::Leader => "  a worker and the ensemble's leader",
    };
    rows.push(Row { what: what.to_owned(), times: Times::of(all), unit: Some(unit) });
}

/// Brings everything to the host that is going to be cut off.
async fn ready_to_be_lost(cluster: &mut Cluster, on_host: OnHost) -> Leader {
    loop {
        if on_host != OnHost::Worker {
            cluster.let_server_lead(LOST.1, on_host == OnHost::Leader).await;
        }
        let leader = cluster.settled().await;
        if leader.member != LOST.0 {
            cluster.operator().done(&["switchover", "--job", JOB, "--to", LOST.0, "--wait"]).await;
            cluster.standing_by(3).await;
        }
        if on_host != OnHost::Worker {
            cluster.gather_sessions(LOST.1).await;
            tokio::time::sleep(RESTED).await;
        }
        // A change of the ensemble's leader can cost the job's leader its lease.
        let leader = cluster.settled().await;
        if leader.member == LOST.0 {
            cluster.acts(leader.token).await;
            return leader;
        }
    }
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
}

/// A line of the result.
struct Row {
    what: String,
    times: Times,
    /// Printed in this unit too.
    unit: Option<Duration>,
}

impl Row {
    fn print(&self) {
        let columns = [0, 5, 9, 10].map(|tenths| self.times.tenths(tenths));
        let line =
            |show: &dyn Fn(Duration) -> String| columns.map(|time| format!("{:>10}", show(time))).concat();
        println!("{:42}{}", self.what, line(&ms));
        if let Some(unit) = self.unit {
            let times = |time: Duration| format!("{:.0} x", time.as_secs_f64() / unit.as_secs_f64());
            println!("{:42}{}", "", line(&times));
        }
    }
}

fn ms(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.0} ms") }
}
