//! The start of a process until it leads an election without other members.
//!
//! ```text
//! cargo xtask bench start [--runs N] [--recipe RECIPE]... [--driver DRIVER]
//! ```
//!
//! The servers have ZooKeeper's own tick of 2 s, by which leases are computed. The table shows each time as a multiple of
//! W, one quorum write of the ensemble, and of the raw sequence: a client connects and creates a znode. Both are measured
//! in turn with the starts.

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use election_bench::{Clients, Contestant, Kind, Moment, Options, References, Table, ensemble, raw, run};

const TICK: Duration = Duration::from_secs(2);

/// Measures the time from the start of a process to its leadership.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

/// The steps of one start.
struct Start {
    begun: Moment,
    connected: Moment,
    leads: Moment,
    ready: Moment,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { options } = Arguments::parse();
    run(measure(&options)).await
}

async fn measure(options: &Options) -> Result<(), String> {
    let ensemble = ensemble(TICK).await?;
    let mut clients = Clients::connect(&ensemble.addresses(), TICK).await?;
    let setting = options.setting(env!("CARGO_BIN_EXE_contestant"), ensemble.connect_string(), TICK);
    let mut table = Table::default();
    // An elector that never leads needs a second member.
    for kind in options.kinds().into_iter().filter(|kind| *kind != Kind::ElectorStays) {
        eprintln!("{kind}");
        let (mut references, mut starts) = (References::default(), Vec::new());
        for number in 1..=options.runs {
            references.measure(&mut clients, raw::start).await?;
            let command = setting.command(kind, 1, &format!("/bench/start-{kind}-{number}"));
            let begun = Moment::now();
            let mut contestant = Contestant::start("contestant", command)?;
            let connected = contestant.hear("CONNECTED").await?.at;
            let leads = contestant.hear("LEADER").await?.at;
            let ready = contestant.hear("ANNOUNCED").await?.at;
            contestant.end().await?;
            eprintln!("  {number}/{}: leading after {:.1?}", options.runs, leads.since(begun));
            starts.push(Start { begun, connected, leads, ready });
        }
        table.add_case(
            &format!("{kind:8}"),
            references,
            &starts,
            &[
                ("process -> session", |start| start.begun, |start| start.connected),
                ("process -> leading", |start| start.begun, |start| start.leads),
                ("session -> leading", |start| start.connected, |start| start.leads),
                ("session -> READY", |start| start.connected, |start| start.ready),
            ],
        );
    }
    println!(
        "starts until leadership of an empty election: {} for each row, driver {}, three servers of one host, tick {TICK:?}",
        options.runs, options.driver
    );
    println!("{table}");
    ensemble.end();
    Ok(())
}
