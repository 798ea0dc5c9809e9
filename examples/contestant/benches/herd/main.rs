//! What one change of leadership costs the servers, by the number of members:
//!
//! ```text
//! cargo xtask bench herd [-- [--members N]... [--changes N]]
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
mod proxy;

use std::{process::ExitCode, time::Duration};

use everybody::Everybody;
use members::Members;
use ours::Ours;
use proxy::{Passed, Proxy};
use tokio::signal::unix::{SignalKind, signal};
use zk_testkit::Ensemble;

/// Long enough for sessions of forty seconds, which seldom send anything by themselves.
const TICK: Duration = Duration::from_secs(2);

/// After that, a change has no further messages.
const QUIET: Duration = Duration::from_millis(1500);

struct Options {
    members: Vec<usize>,
    changes: usize,
}

/// The recipe of the election, and its elector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ours(&'static str),
    /// With an elector that never leads and stays while leaders change.
    UnderAnElector,
    Everybody,
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::UnderAnElector,
        Self::Ours("elector"),
        Self::Ours("queue"),
        Self::Ours("single"),
        Self::Everybody,
    ];

    fn name(self) -> String {
        match self {
            Self::UnderAnElector => "recipe elector, which stands".to_owned(),
            Self::Ours("elector") => "recipe elector, which leads".to_owned(),
            Self::Ours(recipe) => format!("recipe {recipe}"),
            Self::Everybody => "everybody watches all".to_owned(),
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
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("{wrong}");
            return ExitCode::from(64);
        }
    };
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return ExitCode::FAILURE };
    tokio::select! {
        // Dropping the benchmark ends all processes that it has started.
        _ = tokio::signal::ctrl_c() => {
            eprintln!("interrupted");
            ExitCode::from(130)
        }
        _ = terminate.recv() => {
            eprintln!("terminated");
            ExitCode::from(143)
        }
        measured = measure(&options) => match measured {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { members: Vec::new(), changes: 5 };
    while let Some(arg) = args.next() {
        let mut number = |least: usize| {
            let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
            let number: usize = value.parse().map_err(|error| format!("{arg} {value}: {error}"))?;
            if number < least { Err(format!("{arg} {number}: at least {least}")) } else { Ok(number) }
        };
        match arg.as_str() {
            // Cargo's own.
            "--bench" => {}
            "--members" => options.members.push(number(3)?),
            "--changes" => options.changes = number(1)?,
            other => return Err(format!("no such option: {other}; there are --members N and --changes N")),
        }
    }
    if options.members.is_empty() {
        options.members = vec![10, 100, 500];
    }
    Ok(options)
}

async fn measure(options: &Options) -> Result<(), String> {
    let mut table = Vec::new();
    for kind in Kind::ALL {
        for &number in &options.members {
            eprintln!("{}, {number} members", kind.name());
            table.push((kind, number, one(kind, number, options.changes).await?));
        }
    }
    println!(
        "one change of leadership, the median of {}; requests and bytes at the servers",
        options.changes
    );
    println!(
        "{:30}{:>8}{:>10}{:>8}{:>10}   each member that only looks on:     all others:",
        "", "members", "requests", "events", "bytes"
    );
    println!("{:66}   {:>10}{:>8}{:>10}{:>14}", "", "requests", "events", "bytes", "requests");
    for (kind, number, change) in table {
        let Change { requests, events, bytes, bystander } = change;
        let others = requests.saturating_sub(number as u64 * bystander.requests);
        println!(
            "{:30}{number:>8}{requests:>10}{events:>8}{bytes:>10}   {:>10}{:>8}{:>10}{others:>14}",
            kind.name(),
            bystander.requests,
            bystander.events,
            bystander.to_client
        );
    }
    Ok(())
}

async fn one(kind: Kind, number: usize, changes: usize) -> Result<Change, String> {
    let ensemble = Ensemble::builder().servers(1).tick_time(TICK).jvm_flag("-Xmx512m").start().await;
    let ensemble = ensemble.map_err(|error| error.to_string())?;
    let server = ensemble.addresses()[0];
    let proxy = Proxy::start(server).await.map_err(|error| error.to_string())?;
    let change = match kind {
        Kind::Ours(recipe) => {
            let members = Ours::start(recipe, false, &proxy.address(), number).await?;
            change_all(members, &proxy, changes).await?
        }
        Kind::UnderAnElector => {
            let members = Ours::start("elector", true, &proxy.address(), number).await?;
            change_all(members, &proxy, changes).await?
        }
        Kind::Everybody => {
            let members = Everybody::start(&proxy.address(), number).await?;
            change_all(members, &proxy, changes).await?
        }
    };
    ensemble.end();
    Ok(change)
}

async fn change_all(mut members: impl Members, proxy: &Proxy, changes: usize) -> Result<Change, String> {
    let mut all = Vec::new();
    for _ in 0..changes {
        let before = proxy.quiet(QUIET).await?;
        let old = members.release().await?;
        let after = proxy.quiet(QUIET).await?;
        all.push(change(&before, &after));
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
            ended: false,
        },
    })
}

fn change(before: &[Passed], after: &[Passed]) -> Change {
    let each: Vec<_> = after
        .iter()
        .enumerate()
        .filter(|(_, now)| !now.ended)
        .map(|(at, now)| now.since(before.get(at).copied().unwrap_or_default()))
        .collect();
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
            ended: false,
        },
    }
}

fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(0)
}
