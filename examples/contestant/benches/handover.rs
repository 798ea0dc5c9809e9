//! A planned change of leadership: the leader is asked to leave, ends its work, and the next member leads.
//!
//! ```text
//! cargo xtask bench handover [--runs N] [--members N]... [--recipe RECIPE]... [--driver DRIVER]
//! cargo xtask bench handover --timeline [--members N] [--recipe RECIPE]
//! ```
//!
//! The table shows each time as a multiple of W, one quorum write of the ensemble, and of the raw sequence, which deletes
//! a znode, waits for the event and creates it again. Both are measured in turn with the changes. `--timeline` prints
//! every request and every watch event of one change, with its time since the order to leave.

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use election_bench::{
    Clients, Crowd, Moment, Party, Recorded, References, Table, Times, ensemble, raw, run, timeline::Timeline,
};

const TICK: Duration = Duration::from_millis(500);
/// The writes by each client before each change of which a timeline is printed.
const WRITES: usize = 10;

/// Measures planned changes of leadership.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    crowd: Crowd,
    /// Print every request of one change: of the one with the median duration.
    #[arg(long)]
    timeline: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { crowd, timeline } = Arguments::parse();
    if timeline { run(print_timeline(&crowd)).await } else { run(measure(&crowd)).await }
}

/// The steps of one change.
struct Change {
    old: usize,
    new: usize,
    asked: Moment,
    stopped: Moment,
    leads: Moment,
    ready: Moment,
}

async fn change(party: &mut Party) -> Result<Change, String> {
    let old = party.leader();
    party.contestant().say(&format!("release {old}")).await?;
    let asked = party.contestant().hear("RELEASE").await?.at;
    let [leads, ready] = party.next_leader().await?;
    let stopped = party.contestant().hear("STOPPED").await?.at;
    party.contestant().hear("RELEASED").await?;
    Ok(Change { old, new: party.leader(), asked, stopped, leads: leads.at, ready: ready.at })
}

async fn measure(crowd: &Crowd) -> Result<(), String> {
    let options = &crowd.options;
    let ensemble = ensemble(TICK).await?;
    let mut clients = Clients::connect(&ensemble.addresses(), TICK).await?;
    let setting = options.setting(env!("CARGO_BIN_EXE_contestant"), ensemble.connect_string(), TICK);
    let mut table = Table::default();
    for (kind, members) in crowd.cases() {
        eprintln!("{kind}, {members} members");
        let mut party = Party::gather(&setting, kind, members, clients.of(0).clone()).await?;
        let (mut references, mut changes) = (References::default(), Vec::new());
        for number in 1..=options.runs {
            references.measure(&mut clients, raw::handover).await?;
            let change = change(&mut party).await?;
            eprintln!(
                "  {number}/{}: work ended to leading {:.1?}, to READY {:.1?}",
                options.runs,
                change.leads.since(change.stopped),
                change.ready.since(change.stopped)
            );
            party.rejoin(&[change.old]).await?;
            changes.push(change);
        }
        party.end().await;
        table.add_case(
            &format!("{kind:13} N={members:<4}"),
            references,
            &changes,
            &[
                ("asked to leave -> work ended", |c| c.asked, |c| c.stopped),
                ("asked to leave -> leading", |c| c.asked, |c| c.leads),
                ("asked to leave -> READY", |c| c.asked, |c| c.ready),
                ("work ended -> leading", |c| c.stopped, |c| c.leads),
                ("work ended -> READY", |c| c.stopped, |c| c.ready),
            ],
        );
    }
    println!(
        "planned changes of leadership: {} for each row, driver {}, three servers of one host, tick {TICK:?}",
        options.runs, options.driver
    );
    println!("{table}");
    ensemble.end();
    Ok(())
}

async fn print_timeline(crowd: &Crowd) -> Result<(), String> {
    let options = &crowd.options;
    let (kind, members) = crowd.first_case();
    eprintln!("{kind}, {members} members");
    let Recorded { ensemble, mut watched, mut clients, mut party } =
        Recorded::gather(crowd, env!("CARGO_BIN_EXE_contestant"), TICK).await?;
    let mut unit = Vec::new();
    let mut changes = Vec::new();
    for _ in 0..options.runs {
        unit.extend(clients.round_trips(WRITES).await?);
        watched.take();
        let change = change(&mut party).await?;
        let lines = party.contestant().take_lines();
        party.settle().await?;
        let messages = watched.take();
        eprintln!("  asked to leave to leading {:.1?}", change.leads.since(change.asked));
        party.rejoin(&[change.old]).await?;
        changes.push((change, lines, messages));
    }
    let unit = Times::of(unit).median();
    changes.sort_by_key(|(change, ..)| change.leads.since(change.asked));
    let median = (changes.len() - 1) / 2;
    let (change, lines, messages) = changes.swap_remove(median);
    println!(
        "one planned change of leadership, the median of {}: {kind}, {members} members, driver {}; W = {:.2} ms",
        options.runs,
        options.driver,
        unit.as_secs_f64() * 1e3
    );
    println!("idle: ms since the session received anything; times are those at the proxies");
    println!(
        "{}",
        Timeline::of_change(&party, [change.old, change.new], (change.asked, unit), &lines, messages)
    );
    for (what, from, to) in [
        ("asked to leave -> leading", change.asked, change.leads),
        ("asked to leave -> READY", change.asked, change.ready),
        ("work ended -> leading", change.stopped, change.leads),
        ("work ended -> READY", change.stopped, change.ready),
    ] {
        let took = to.since(from).as_secs_f64();
        println!("{what:26} {:>7.2} ms {:>6.2} W", took * 1e3, took / unit.as_secs_f64());
    }
    party.end().await;
    ensemble.end();
    Ok(())
}
