//! An unplanned change of leadership: the leader's session ends, and the next member leads.
//!
//! ```text
//! cargo xtask bench crash [--runs N] [--members N]... [--recipe RECIPE]... [--driver DRIVER]
//! cargo xtask bench crash --timeline [--members N] [--recipe RECIPE]
//! ```
//!
//! Time runs from the moment at which another client hears that the leader znode is deleted: what comes before that is
//! the session timeout. The table shows each time as a multiple of W, one quorum write of the ensemble, and of the raw
//! sequence: a session is closed, and another client hears of it and creates the znode. Both are measured in turn with the
//! crashes.
//!
//! With the recipe `elector` the leader is the elector too. In a second series the first in line is lost with it: then the
//! third member has to become the elector and to decide. `--timeline` prints every request and every watch event of one change
//! of the first series, with its time since the deletion.

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use election_bench::{
    Clients, Crowd, Kind, Moment, Party, Recorded, References, Table, Times, ensemble, raw, run,
    timeline::Timeline,
};
use tokio::time::timeout;
use zk_session::DataWatch;

const TICK: Duration = Duration::from_millis(500);
/// The longest wait for the end of a session.
const PATIENCE: Duration = Duration::from_secs(60);
/// The writes by each client before each change of which a timeline is printed.
const WRITES: usize = 10;

/// Measures changes of leadership after a crash.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    crowd: Crowd,
    /// Print every request of one change: of the one with the median duration.
    #[arg(long)]
    timeline: bool,
}

/// Who is lost at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Leader,
    LeaderAndNext,
}

impl Lost {
    /// What is lost with that recipe.
    fn of(kind: Kind) -> &'static [Self] {
        match kind {
            Kind::Elector => &[Self::Leader, Self::LeaderAndNext],
            _ => &[Self::Leader],
        }
    }

    fn text(self, kind: Kind) -> &'static str {
        match (self, kind) {
            (Self::Leader, Kind::Elector) => "leader and elector",
            (Self::Leader, _) => "leader",
            (Self::LeaderAndNext, _) => "leader, elector, next",
        }
    }
}

/// The steps of one change.
struct Change {
    /// Who is lost, the leader first.
    lost: Vec<usize>,
    gone: Moment,
    leads: Moment,
    ready: Moment,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { crowd, timeline } = Arguments::parse();
    if timeline { run(print_timeline(&crowd)).await } else { run(measure(&crowd)).await }
}

async fn measure(crowd: &Crowd) -> Result<(), String> {
    let options = &crowd.options;
    let ensemble = ensemble(TICK).await?;
    let mut clients = Clients::connect(&ensemble.addresses(), TICK).await?;
    let setting = options.setting(env!("CARGO_BIN_EXE_contestant"), ensemble.connect_string(), TICK);
    let mut table = Table::default();
    for (kind, members) in crowd.cases() {
        let mut party = Party::gather(&setting, kind, members, clients.of(0).clone()).await?;
        for &lost in Lost::of(kind) {
            eprintln!("{kind}, {members} members; lost: {}", lost.text(kind));
            let (mut references, mut changes) = (References::default(), Vec::new());
            for number in 1..=options.runs {
                references.measure(&mut clients, raw::crash).await?;
                let change = crash(&mut party, &mut clients, lost).await?;
                party.rejoin(&change.lost).await?;
                eprintln!(
                    "  {number}/{}: leading after {:.1?}, READY after {:.1?}",
                    options.runs,
                    change.leads.since(change.gone),
                    change.ready.since(change.gone)
                );
                changes.push(change);
            }
            let case = format!("{kind:13} N={members:<4} {:21}", lost.text(kind));
            table.add_case(
                &case,
                references,
                &changes,
                &[
                    ("deleted -> leading", |c| c.gone, |c| c.leads),
                    ("deleted -> READY", |c| c.gone, |c| c.ready),
                ],
            );
        }
        party.end().await;
    }
    println!(
        "leaders whose session ends: {} for each row, driver {}, three servers of one host, tick {TICK:?}",
        options.runs, options.driver
    );
    println!("{table}");
    ensemble.end();
    Ok(())
}

async fn crash(party: &mut Party, clients: &mut Clients, lost: Lost) -> Result<Change, String> {
    let mut watch: DataWatch = clients.of_next().watch_data(party.leader_znode().await?);
    while watch.next().await.map_err(|error| error.to_string())?.value.is_none() {}
    let mut members = vec![party.leader()];
    if lost == Lost::LeaderAndNext {
        members.push(party.next_in_line().await?);
    }
    let words: Vec<_> = members.iter().map(usize::to_string).collect();
    party.contestant().say(&format!("crash {}", words.join(" "))).await?;
    timeout(PATIENCE, watch.changed()).await.map_err(|_| format!("no session has ended in {PATIENCE:?}"))?;
    let gone = Moment::now();
    let [leads, ready] = party.next_leader().await?;
    if leads.at < gone && gone.since(leads.at) > Duration::from_millis(50) {
        return Err(format!("{leads:?} before the leader znode was gone, at {gone:?}"));
    }
    Ok(Change { lost: members, gone, leads: leads.at, ready: ready.at })
}

async fn print_timeline(crowd: &Crowd) -> Result<(), String> {
    let options = &crowd.options;
    let (kind, members) = crowd.first_case();
    eprintln!("{kind}, {members} members; lost: {}", Lost::Leader.text(kind));
    let Recorded { ensemble, mut watched, mut clients, mut party } =
        Recorded::gather(crowd, env!("CARGO_BIN_EXE_contestant"), TICK).await?;
    let (mut unit, mut changes) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        unit.extend(clients.round_trips(WRITES).await?);
        watched.take();
        let change = crash(&mut party, &mut clients, Lost::Leader).await?;
        let lines = party.contestant().take_lines();
        party.settle().await?;
        let messages = watched.take();
        eprintln!("  deleted to leading {:.1?}", change.leads.since(change.gone));
        party.rejoin(&change.lost).await?;
        changes.push((change, party.leader(), lines, messages));
    }
    let unit = Times::of(unit).median();
    changes.sort_by_key(|(change, ..)| change.leads.since(change.gone));
    let median = (changes.len() - 1) / 2;
    let (change, new, lines, messages) = changes.swap_remove(median);
    println!(
        "one change of leadership after a crash, the median of {}: {kind}, {members} members, driver {}; W = {:.2} ms",
        options.runs,
        options.driver,
        unit.as_secs_f64() * 1e3
    );
    println!("idle: ms since the session received anything; times are those at the proxies");
    println!("{}", Timeline::of_change(&party, [change.lost[0], new], (change.gone, unit), &lines, messages));
    for (what, to) in [("deleted -> leading", change.leads), ("deleted -> READY", change.ready)] {
        let took = to.since(change.gone).as_secs_f64();
        println!("{what:26} {:>7.2} ms {:>6.2} W", took * 1e3, took / unit.as_secs_f64());
    }
    party.end().await;
    ensemble.end();
    Ok(())
}
