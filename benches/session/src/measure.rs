//! One run of the benchmark, from the first server to the table.

use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use zk_testkit::{Ensemble, Mode};

use crate::client::Kind;
use crate::idle;
use crate::load::{Load, Sample};
use crate::options::Options;
use crate::process::{self, Process};
use crate::relay;
use crate::report::Report;
use crate::setting::TICK;

#[tokio::main]
pub(crate) async fn run(options: &Options) -> ExitCode {
    let mut interrupt = signal(SignalKind::interrupt()).expect("SIGINT can be watched for");
    let mut terminate = signal(SignalKind::terminate()).expect("SIGTERM can be watched for");
    tokio::select! {
        // The drop of the benchmark ends all its processes.
        _ = interrupt.recv() => {
            eprintln!("interrupted");
            ExitCode::from(130)
        }
        _ = terminate.recv() => {
            eprintln!("terminated");
            ExitCode::from(143)
        }
        measured = measure(options) => match measured {
            Ok(report) => {
                print!("{report}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    }
}

async fn measure(options: &Options) -> Result<Report, String> {
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
    // The servers and the interpreters compile at run time, so the first results differ.
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
        let idle = idle::measure(kind, &address, options.sessions).await?;
        report.add_alone(kind, idle, relay::round_trips(kind, options.rounds.min(5)).await?);
    }
    ensemble.end();
    Ok(report)
}

/// Every load by every client. A session is measured beside the client that carries it, in alternating order.
async fn round(
    clients: &mut [Process],
    slice: Duration,
    number: usize,
    mut take: impl FnMut(Kind, Load, Sample),
) -> Result<(), String> {
    for load in Load::ALL {
        let mut order: Vec<usize> = (0..clients.len()).collect();
        // The first client also has the rest of the former load.
        order.rotate_left(number / 2 % clients.len().max(1));
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

/// A server that is not the leader: most clients of an ensemble are connected to a follower.
async fn follower(ensemble: &Ensemble) -> Result<(usize, String), String> {
    for index in 0..ensemble.servers().len() {
        if ensemble.mode(index).await == Some(Mode::Follower) {
            return Ok((index, ensemble.server(index).address().to_string()));
        }
    }
    Err("the ensemble has no follower".to_owned())
}
