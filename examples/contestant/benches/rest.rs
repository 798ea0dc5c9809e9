//! What members and elections cost the servers while nothing happens:
//!
//! ```text
//! cargo xtask bench rest [--members N]... [--elections N]... [--recipe RECIPE]... [--seconds N] [--driver DRIVER]
//! ```
//!
//! Members of one election, each with a session of its own; then elections on one session, each with one member. There are
//! three servers, each behind a proxy that counts. Pings and watches are the servers' own figures. After each case the
//! process is killed, and the servers must end what it has left.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use election_bench::{Contestant, Kind, Message, Setting, Watched, run};
use tokio::{process::Command, time::sleep};
use zk_testkit::Ensemble;

const TICK: Duration = Duration::from_secs(2);
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

/// After that time without a message nothing follows.
const QUIET: Duration = Duration::from_secs(3);
/// The longest wait for it, and for the end of sessions.
const PATIENCE: Duration = Duration::from_secs(300);

/// Counts what elections cost the servers at rest.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many members one election has; may be repeated [default: 30 300; none if --elections is given].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    members: Vec<u32>,
    /// How many elections one session has; may be repeated [default: 100 1000; none if --members is given].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    elections: Vec<u32>,
    /// May be repeated [default: all].
    #[arg(long = "recipe", value_name = "RECIPE", value_enum)]
    kinds: Vec<Kind>,
    /// How long each case is counted.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// The ZooKeeper client of the members.
    #[arg(long, default_value = "native", value_parser = ["native", "zookeeper-async"])]
    driver: String,
    /// Cargo's own.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What is at rest.
#[derive(Clone, Copy, Debug)]
enum Case {
    /// So many members of one election.
    Members(usize),
    /// So many elections on one session.
    Elections(usize),
}

impl Arguments {
    fn cases(&self) -> Vec<(Kind, Case)> {
        let is_default = self.members.is_empty() && self.elections.is_empty();
        let or = |chosen: &Vec<u32>, default: [u32; 2]| match is_default {
            true => default.to_vec(),
            false => chosen.clone(),
        };
        let members = or(&self.members, [30, 300]).into_iter().map(|number| Case::Members(number as usize));
        let elections =
            or(&self.elections, [100, 1000]).into_iter().map(|number| Case::Elections(number as usize));
        let kinds = [Kind::Elector, Kind::Queue, Kind::Single];
        let is_chosen = |kind: &Kind| self.kinds.is_empty() || self.kinds.contains(kind);
        let kinds: Vec<_> = kinds.into_iter().filter(is_chosen).collect();
        let cases: Vec<_> = members.chain(elections).collect();
        cases.into_iter().flat_map(|case| kinds.iter().map(move |kind| (*kind, case))).collect()
    }
}

/// Figures of the servers.
#[derive(Clone, Copy, Debug, Default)]
struct Servers {
    packets: u64,
    watches: u64,
    znodes: u64,
    ephemerals: u64,
    bytes: u64,
}

/// One case.
#[derive(Debug)]
struct Figures {
    kind: Kind,
    case: Case,
    /// Sessions that send heartbeats.
    leases: usize,
    heartbeats: u64,
    probes: u64,
    pings: u64,
    /// Requests that are neither, and notifications.
    others: u64,
    watches: u64,
    znodes: u64,
    bytes: u64,
    /// The paths of the ephemeral znodes of one session, as the transaction that ends it lists them.
    ending: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    run(measure(&Arguments::parse())).await
}

async fn measure(arguments: &Arguments) -> Result<(), String> {
    // Thousands of elections on one session need more than a test's servers have.
    let ensemble = Ensemble::builder().servers(3).tick_time(TICK).jvm_flag("-Xmx1g").start().await;
    let ensemble = ensemble.map_err(|error| error.to_string())?;
    let mut watched = Watched::start(&ensemble.addresses()).await?;
    let setting = Setting {
        program: env!("CARGO_BIN_EXE_contestant"),
        connect: watched.connect_string(),
        tick: TICK,
        session_timeout: SESSION_TIMEOUT,
        driver: arguments.driver.clone(),
    };
    let mut all = Vec::new();
    for (kind, case) in arguments.cases() {
        eprintln!("{kind}, {case:?}");
        all.push(one(kind, case, arguments, &setting, &ensemble, &mut watched).await?);
    }
    print(arguments, &all);
    ensemble.end();
    Ok(())
}

async fn one(
    kind: Kind,
    case: Case,
    arguments: &Arguments,
    setting: &Setting,
    ensemble: &Ensemble,
    watched: &mut Watched,
) -> Result<Figures, String> {
    let before = servers(ensemble).await?;
    let mut contestant = start(kind, case, setting).await?;
    quiet(watched).await?;
    let begun = servers(ensemble).await?;
    watched.take();
    sleep(Duration::from_secs(arguments.seconds.into())).await;
    let messages = watched.take();
    let ended = servers(ensemble).await?;
    // The last question to each server is one of its packets.
    let packets = (ended.packets - begun.packets).saturating_sub(ensemble.servers().len() as u64);
    let mut figures = Figures {
        kind,
        case,
        leases: 0,
        heartbeats: 0,
        probes: 0,
        pings: 0,
        others: 0,
        watches: ended.watches,
        znodes: ended.znodes.saturating_sub(before.znodes),
        bytes: ended.bytes.saturating_sub(before.bytes),
        ending: ending(ensemble).await?,
    };
    let mut leases = BTreeSet::new();
    for message in messages {
        match message {
            Message::Exchange(exchange) if exchange.what.name == "heartbeat" => {
                figures.heartbeats += 1;
                leases.insert(exchange.session);
            }
            Message::Exchange(exchange) if exchange.what.is_upkeep() => figures.probes += 1,
            _ => figures.others += 1,
        }
    }
    figures.leases = leases.len();
    figures.pings = packets.saturating_sub(figures.heartbeats + figures.probes + figures.others);
    if contestant.take_lines().iter().any(|line| line.word == "LOST") {
        return Err(format!("{kind}, {case:?}: a leadership was lost"));
    }
    contestant.kill().await;
    end_sessions(ensemble).await.map_err(|error| {
        format!("{kind}, {case:?}: {error}; its session had {} bytes of paths to end", figures.ending)
    })?;
    Ok(figures)
}

/// Starts the members, and returns when all have joined and all elections have a leader.
async fn start(kind: Kind, case: Case, setting: &Setting) -> Result<Contestant, String> {
    match case {
        Case::Members(number) => {
            let command = setting.command(kind, number, &format!("/rest/{kind}-{number}"));
            let mut contestant = Contestant::start("contestant", command)?;
            contestant.hear("ANNOUNCED").await?;
            contestant.hear("READY").await?;
            Ok(contestant)
        }
        Case::Elections(number) => {
            let mut contestant = Contestant::start("contestant", many(kind, number, setting))?;
            contestant.hear("CONNECTED").await?;
            contestant.say("go").await?;
            let mut led = 0;
            while led < number {
                led += usize::from(contestant.next().await?.word == "ANNOUNCED");
            }
            Ok(contestant)
        }
    }
}

/// The command for so many elections on one session.
fn many(kind: Kind, number: usize, setting: &Setting) -> Command {
    let mut command = Command::new(setting.program);
    command.args(["--connect", &setting.connect, "--path", &format!("/rest/{kind}-many-{number}")]);
    command.args(["--mode", "many", "--recipe", kind.recipe(), "--n", &number.to_string()]);
    command.args(["--session", &setting.session_timeout.as_millis().to_string()]);
    command.args(["--tick", &setting.tick.as_millis().to_string(), "--driver", &setting.driver]);
    command
}

/// Waits until nothing passes but what sessions send by themselves.
async fn quiet(watched: &mut Watched) -> Result<(), String> {
    let begun = Instant::now();
    let mut since = begun;
    let is_upkeep =
        |message: &Message| matches!(message, Message::Exchange(exchange) if exchange.what.is_upkeep());
    while since.elapsed() < QUIET {
        if begun.elapsed() > PATIENCE {
            return Err(format!("something has passed all the time for {PATIENCE:?}"));
        }
        sleep(Duration::from_millis(100)).await;
        if !watched.take().iter().all(is_upkeep) {
            since = Instant::now();
        }
    }
    Ok(())
}

/// Waits until the servers have ended the sessions of a killed process.
async fn end_sessions(ensemble: &Ensemble) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        sleep(Duration::from_secs(1)).await;
        let why = match servers(ensemble).await {
            Ok(Servers { ephemerals: 0, .. }) => return Ok(()),
            Ok(Servers { ephemerals, .. }) => format!("{ephemerals} ephemeral znodes are left"),
            Err(error) => error,
        };
        if begun.elapsed() > PATIENCE {
            return Err(format!("{PATIENCE:?} after the end of the process: {why}"));
        }
    }
}

/// What the servers report: packets and watches of all, znodes of one.
async fn servers(ensemble: &Ensemble) -> Result<Servers, String> {
    let mut all = Servers::default();
    for number in 0..ensemble.servers().len() {
        let said = ensemble.admin(number, "mntr").await.map_err(|error| error.to_string())?;
        let values: BTreeMap<&str, &str> = said.lines().filter_map(|line| line.split_once('\t')).collect();
        let value = |name: &str| {
            let value = values.get(name).and_then(|value| value.trim().parse::<u64>().ok());
            value.ok_or_else(|| format!("server {number} does not report {name}"))
        };
        all.packets += value("zk_packets_received")?;
        all.watches += value("zk_watch_count")?;
        all.znodes = value("zk_znode_count")?;
        all.ephemerals = value("zk_ephemerals_count")?;
        all.bytes = value("zk_approximate_data_size")?;
    }
    Ok(all)
}

/// The length of the longest list of one session's ephemeral znodes: each path, and its length in front.
async fn ending(ensemble: &Ensemble) -> Result<u64, String> {
    let said = ensemble.admin(0, "dump").await.map_err(|error| error.to_string())?;
    let (mut longest, mut length) = (0_u64, 0_u64);
    for line in said.lines() {
        match line.strip_prefix('\t').filter(|path| path.starts_with('/')) {
            Some(path) => length += path.len() as u64 + 4,
            None => length = 0,
        }
        longest = longest.max(length);
    }
    Ok(longest)
}

fn print(arguments: &Arguments, all: &[Figures]) {
    println!(
        "at rest: three servers of one host, session timeout {SESSION_TIMEOUT:?}, {} s each, driver {}",
        arguments.seconds, arguments.driver
    );
    println!(
        "{:9}{:>8}{:>10}{:>8}   each second: {:>10}{:>8}{:>8}{:>8}{:>9}{:>8}{:>8}{:>11}",
        "recipe",
        "members",
        "elections",
        "leases",
        "heartbeats",
        "probes",
        "pings",
        "others",
        "watches",
        "znodes",
        "kB",
        "ending kB"
    );
    for figures in all {
        let (members, elections) = match figures.case {
            Case::Members(number) => (number, 1),
            Case::Elections(number) => (1, number),
        };
        print!("{:9}{members:>8}{elections:>10}{:>8}{:>16}", figures.kind.recipe(), figures.leases, "");
        let each = |count: u64| format!("{:.1}", count as f64 / f64::from(arguments.seconds));
        print!("{:>10}{:>8}", each(figures.heartbeats), each(figures.probes));
        print!("{:>8}{:>8}", each(figures.pings), each(figures.others));
        let kilobytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1024.0);
        print!("{:>9}{:>8}{:>8}", figures.watches, figures.znodes, kilobytes(figures.bytes));
        println!("{:>11}", kilobytes(figures.ending));
    }
}
