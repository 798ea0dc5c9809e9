//! What one change of leadership costs the servers, by the number of members:
//!
//! ```text
//! cargo xtask bench herd [--members N]... [--changes N] [--recipe RECIPE]... [--driver DRIVER]
//! ```
//!
//! All members are connected through a proxy that counts. Leaders resign, one after the other. Each change is counted
//! from the resignation until there are no more messages. Pings, probes and heartbeats of sessions depend on time and
//! not on changes, and are not counted.
//!
//! With the recipe `elector` the leader is often the elector, and leaves together with it. Another member then becomes
//! the elector, and reads all members' records once. So that recipe is measured twice: with an elector that stays, and
//! with one that leads.

mod everybody;
mod members;
mod ours;
mod passed;

use std::{fmt, process::ExitCode, time::Duration};

use clap::Parser;
use election_bench::{Kind, Setting, Watched, run};
use everybody::Everybody;
use members::Members;
use ours::Ours;
use passed::{Counter, Passed};
use zk_testkit::Ensemble;

/// Long enough for sessions of forty seconds, which seldom send anything by themselves.
const TICK: Duration = Duration::from_secs(2);

/// After that, a change has no further messages.
const QUIET: Duration = Duration::from_millis(1500);

/// The session timeout of the members.
const SESSION_TIMEOUT: Duration = Duration::from_secs(40);

/// Counts what one change of leadership costs the servers.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many members; may be repeated [default: 10 100 500].
    #[arg(long = "members", value_name = "N", value_parser = clap::value_parser!(u32).range(3..))]
    members: Vec<u32>,
    /// Only members with this recipe; may be repeated [default: all, and members that watch each other].
    #[arg(long = "recipe", value_name = "RECIPE", value_enum)]
    kinds: Vec<Kind>,
    /// Changes of leadership for each recipe and number of members.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    changes: u32,
    /// The ZooKeeper client of the members.
    #[arg(long, default_value = "native", value_parser = ["native", "zookeeper-async"])]
    driver: String,
    /// Cargo's own.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Who watches what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Ours(Kind),
    Everybody,
}

impl Group {
    const ALL: [Self; 5] = [
        Self::Ours(Kind::ElectorStays),
        Self::Ours(Kind::Elector),
        Self::Ours(Kind::Queue),
        Self::Ours(Kind::Single),
        Self::Everybody,
    ];
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours(kind) => write!(f, "{kind}"),
            Self::Everybody => f.write_str("everybody watches all"),
        }
    }
}

/// One change of leadership. All figures are the median of the changes.
#[derive(Clone, Copy, Debug)]
struct Change {
    requests: u64,
    events: u64,
    bytes: u64,
    /// The median of the members that led neither before nor after.
    bystander: Passed,
}

#[tokio::main]
async fn main() -> ExitCode {
    run(measure(&Arguments::parse())).await
}

async fn measure(arguments: &Arguments) -> Result<(), String> {
    let members = if arguments.members.is_empty() { &[10, 100, 500][..] } else { &arguments.members };
    let mut table = Vec::new();
    let is_chosen = |group: &Group| match group {
        Group::Ours(kind) => arguments.kinds.is_empty() || arguments.kinds.contains(kind),
        Group::Everybody => arguments.kinds.is_empty(),
    };
    for group in Group::ALL.into_iter().filter(is_chosen) {
        for &number in members {
            eprintln!("{group}, {number} members");
            table.push((group, number, one(group, number as usize, arguments).await?));
        }
    }
    println!(
        "one change of leadership, the median of {}; requests and bytes at the servers",
        arguments.changes
    );
    println!(
        "{:30}{:>8}{:>10}{:>8}{:>10}   each member that only looks on:     all others:",
        "", "members", "requests", "events", "bytes"
    );
    println!("{:66}   {:>10}{:>8}{:>10}{:>14}", "", "requests", "events", "bytes", "requests");
    for (group, number, change) in table {
        let Change { requests, events, bytes, bystander } = change;
        let others = requests.saturating_sub(u64::from(number) * bystander.requests);
        println!(
            "{:30}{number:>8}{requests:>10}{events:>8}{bytes:>10}   {:>10}{:>8}{:>10}{others:>14}",
            group.to_string(),
            bystander.requests,
            bystander.events,
            bystander.to_client
        );
    }
    Ok(())
}

async fn one(group: Group, number: usize, arguments: &Arguments) -> Result<Change, String> {
    let ensemble = Ensemble::builder().servers(1).tick_time(TICK).jvm_flag("-Xmx512m").start().await;
    let ensemble = ensemble.map_err(|error| error.to_string())?;
    let watched = Watched::start(&ensemble.addresses()).await?;
    let connect = watched.connect_string();
    let (counter, changes) = (Counter::new(watched), arguments.changes);
    let change = match group {
        Group::Ours(kind) => {
            let setting = Setting {
                program: env!("CARGO_BIN_EXE_contestant"),
                connect,
                tick: TICK,
                session_timeout: SESSION_TIMEOUT,
                driver: arguments.driver.clone(),
            };
            change_all(Ours::start(&setting, kind, number).await?, counter, changes).await?
        }
        Group::Everybody => change_all(Everybody::start(&connect, number).await?, counter, changes).await?,
    };
    ensemble.end();
    Ok(change)
}

async fn change_all(mut members: impl Members, mut counter: Counter, changes: u32) -> Result<Change, String> {
    let mut all = Vec::new();
    for _ in 0..changes {
        // Whatever came before is not counted.
        counter.quiet(QUIET).await?;
        let old = members.release().await?;
        all.push(change(&counter.quiet(QUIET).await?));
        members.rejoin(old).await?;
    }
    members.end().await;
    let of = |of: fn(&Change) -> u64| median(all.iter().map(of).collect());
    Ok(Change {
        requests: of(|c| c.requests),
        events: of(|c| c.events),
        bytes: of(|c| c.bytes),
        bystander: Passed {
            requests: of(|c| c.bystander.requests),
            events: of(|c| c.bystander.events),
            to_server: of(|c| c.bystander.to_server),
            to_client: of(|c| c.bystander.to_client),
        },
    })
}

fn change(each: &[Passed]) -> Change {
    let sum = |of: fn(&Passed) -> u64| each.iter().map(of).sum();
    let middle = |of: fn(&Passed) -> u64| median(each.iter().map(of).collect());
    Change {
        requests: sum(|p| p.requests),
        events: sum(|p| p.events),
        bytes: sum(|p| p.to_server + p.to_client),
        bystander: Passed {
            requests: middle(|p| p.requests),
            events: middle(|p| p.events),
            to_server: middle(|p| p.to_server),
            to_client: middle(|p| p.to_client),
        },
    }
}

fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(0)
}
