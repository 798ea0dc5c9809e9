//! What a session costs over the client crate that carries it, and beside kazoo, on this machine:
//!
//! ```text
//! cargo xtask bench session [-- [--rounds N] [--slice MS] [--sessions N]]
//! ```
//!
//! Figures of another machine mean little, and those of this one change while other programs run. So all clients are
//! measured in one run and in turn, a slice of time each, in many rounds; what counts is the ratio of two slices of the
//! same round, and the median of those ratios.
//!
//! Each client is a process of its own, connected to the same server of three, with nothing else in it.

mod child;
mod client;
mod load;
mod memory;
mod options;
mod process;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use zk_testkit::{Ensemble, Mode};

use self::client::Kind;
use self::load::Load;
use self::options::{Options, Role};
use self::process::Process;
use self::report::Report;

/// The servers' tick, and what sessions ask for: a session does its usual work of keeping itself alive meanwhile.
pub(crate) const TICK: Duration = Duration::from_millis(500);
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// Of what is read and written.
pub(crate) const DATA: usize = 128;

fn main() -> ExitCode {
    match Role::parse(std::env::args().skip(1)) {
        Ok(Role::Child { kind, address }) => child::run(kind, &address),
        Ok(Role::Parent(options)) => parent(&options),
        Err(wrong) => {
            eprintln!("{wrong}");
            ExitCode::from(64)
        }
    }
}

#[tokio::main]
async fn parent(options: &Options) -> ExitCode {
    let mut interrupt = signal(SignalKind::interrupt()).expect("SIGINT can be watched for");
    let mut terminate = signal(SignalKind::terminate()).expect("SIGTERM can be watched for");
    tokio::select! {
        // Dropped, the benchmark ends all that it has started.
        _ = interrupt.recv() => {
            eprintln!("interrupted");
            ExitCode::from(130)
        }
        _ = terminate.recv() => {
            eprintln!("terminated");
            ExitCode::from(143)
        }
        measured = measure(options) => match measured {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    }
}

async fn measure(options: &Options) -> Result<(), String> {
    let kinds = kinds(options);
    eprintln!("three servers are starting");
    let ensemble = Ensemble::builder().tick_time(TICK).start().await.map_err(|error| error.to_string())?;
    let (server, address) = follower(&ensemble).await?;
    eprintln!("{} rounds of {:?} for each client and load", options.rounds, options.slice);

    let mut report = Report::new(options, format!("server {server}, a follower of three, tick {TICK:?}"));
    let mut clients = Vec::new();
    for &kind in &kinds {
        clients.push(Process::start(kind, &address).await?);
    }
    // The servers and the interpreters compile as they go: what they do at first is not what they do later.
    for _ in 0..3 {
        round(&mut clients, options.slice, 0, |_, _, _| {}).await?;
    }
    for number in 0..options.rounds {
        round(&mut clients, options.slice, number, |kind, load, sample| {
            report.add(number, kind, load, sample)
        })
        .await?;
        if (number + 1) % 10 == 0 {
            eprintln!("{} of {} rounds", number + 1, options.rounds);
        }
    }
    for client in clients {
        client.end().await;
    }
    for &kind in &kinds {
        eprintln!("{} sessions of {kind}", options.sessions);
        report.add_memory(kind, memory::per_session(kind, &address, options.sessions).await?);
    }
    ensemble.end();
    report.print();
    Ok(())
}

/// Every load by every client. A session is measured right beside the client that carries it, first one of them, then the
/// other.
async fn round(
    clients: &mut [Process],
    slice: Duration,
    number: usize,
    mut take: impl FnMut(Kind, Load, load::Sample),
) -> Result<(), String> {
    for load in Load::ALL {
        let mut order: Vec<usize> = (0..clients.len()).collect();
        if number % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let client = &mut clients[at];
            take(client.kind(), load, client.run(load, slice).await?);
        }
    }
    Ok(())
}

fn kinds(options: &Options) -> Vec<Kind> {
    let mut kinds = options.kinds.clone();
    if kinds.contains(&Kind::Kazoo)
        && let Err(reason) = process::find_kazoo()
    {
        eprintln!("SKIPPED: kazoo, for {reason}; install it by: pip install kazoo");
        kinds.retain(|kind| *kind != Kind::Kazoo);
    }
    kinds
}

/// A server that is not the leader: most clients of an ensemble are connected to such a one.
async fn follower(ensemble: &Ensemble) -> Result<(usize, String), String> {
    for index in 0..ensemble.servers().len() {
        if ensemble.mode(index).await == Some(Mode::Follower) {
            return Ok((index, ensemble.server(index).address().to_string()));
        }
    }
    Err("the ensemble has no follower".to_owned())
}
