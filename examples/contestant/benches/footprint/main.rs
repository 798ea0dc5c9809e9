//! What a node pays for its candidate while nothing happens: `dr-worker`, beside Patroni and Curator in the same run:
//!
//! ```text
//! cargo xtask bench footprint [--starts N] [--settle SECONDS] [--idle SECONDS]
//! ```
//!
//! Each leads an election of its own, alone, on the same three servers, one after the other. Patroni is installed from PyPI
//! into the target directory once. Times of starts are medians; memory and processor time are those of the last start.

mod contender;
mod patroni;
mod running;

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use contender::Contender;
use election_bench::{Times, ensemble, run};
use running::Running;
use tokio::time::sleep;
use zk_testkit::Ensemble;

/// ZooKeeper's own.
const TICK: Duration = Duration::from_secs(2);

/// Measures what a candidate costs at rest.
#[derive(Debug, Parser)]
struct Arguments {
    /// Starts of each.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    starts: u32,
    /// The time between the last start and the measurement.
    #[arg(long, value_name = "SECONDS", default_value_t = 90)]
    settle: u32,
    /// How long processor time and requests are counted.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    idle: u32,
    /// Cargo's own.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The figures of one contender.
struct Figures {
    name: String,
    note: String,
    /// From the start of the process until it leads, in ms.
    start: f64,
    /// MB.
    memory: f64,
    /// ms each second.
    cpu: f64,
    /// Each second.
    packets: f64,
    /// MB.
    program: f64,
}

/// The name of a row, and its figure.
type Row = (&'static str, fn(&Figures) -> f64);

#[tokio::main]
async fn main() -> ExitCode {
    run(measure(Arguments::parse())).await
}

async fn measure(arguments: Arguments) -> Result<(), String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let ensemble = ensemble(TICK).await?;
    let mut all = Vec::new();
    for prepare in contender::ALL {
        // The next one is prepared when the former one has ended.
        match prepare(directory.path(), &ensemble.connect_string()).await {
            Ok(mut contender) => all.push(one(contender.as_mut(), &arguments, &ensemble).await?),
            Err(why) => eprintln!("SKIPPED: {why}"),
        }
    }
    print(&arguments, &all);
    ensemble.end();
    Ok(())
}

async fn one(
    contender: &mut dyn Contender,
    arguments: &Arguments,
    ensemble: &Ensemble,
) -> Result<Figures, String> {
    let mut starts = Vec::new();
    let mut last: Option<Running> = None;
    for number in 1..=arguments.starts {
        if let Some(former) = last.take() {
            former.end().await?;
        }
        contender.clear().await?;
        let mut running = Running::start(contender.command(number), contender.leads()).await?;
        let took = running.leads_after().await.map_err(|error| format!("{}: {error}", contender.name()))?;
        eprintln!("{} {number}/{}: leading after {took:.1?}", contender.name(), arguments.starts);
        starts.push(took);
        last = Some(running);
    }
    let running = last.ok_or("nothing was started")?;
    sleep(Duration::from_secs(arguments.settle.into())).await;
    let (packets, before) = (received(ensemble).await?, running.usage(contender.helper())?);
    sleep(Duration::from_secs(arguments.idle.into())).await;
    let (more, after) = (received(ensemble).await?, running.usage(contender.helper())?);
    running.end().await?;
    let seconds = f64::from(arguments.idle);
    // The questions to the servers are among them.
    let packets = more.saturating_sub(packets + ensemble.servers().len() as u64);
    Ok(Figures {
        name: contender.name(),
        note: contender.note(),
        start: Times::of(starts).median().as_secs_f64() * 1e3,
        memory: megabytes(after.resident),
        cpu: after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e3 / seconds,
        packets: packets as f64 / seconds,
        program: megabytes(contender.bytes()?),
    })
}

/// The packets that the servers have received from clients.
async fn received(ensemble: &Ensemble) -> Result<u64, String> {
    let mut sum = 0;
    for server in 0..ensemble.servers().len() {
        let said = ensemble.admin(server, "mntr").await.map_err(|error| error.to_string())?;
        let mut values = said.lines().filter_map(|line| line.strip_prefix("zk_packets_received"));
        let value = values.next().and_then(|value| value.trim().parse::<u64>().ok());
        sum += value.ok_or("the server does not say zk_packets_received")?;
    }
    Ok(sum)
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn print(arguments: &Arguments, all: &[Figures]) {
    println!(
        "one candidate that leads, on three servers of one host; at rest: for {} s, {} s after the last of {} starts",
        arguments.idle, arguments.settle, arguments.starts
    );
    println!("x: as a multiple of the first column");
    print!("{:30}", "");
    for figures in all {
        print!("{:>28}", figures.name);
    }
    println!();
    let rows: [Row; 5] = [
        ("start until it leads, ms", |figures| figures.start),
        ("memory at rest, MB", |figures| figures.memory),
        ("processor at rest, ms/s", |figures| figures.cpu),
        ("packets to the servers/s", |figures| figures.packets),
        ("program, MB", |figures| figures.program),
    ];
    for (head, of) in rows {
        print!("{head:30}");
        let base = all.first().map(of).filter(|base| *base > 0.0);
        for figures in all {
            let ratio = base.map_or_else(|| "-".to_owned(), |base| format!("{:.1}x", of(figures) / base));
            print!("{:>19.2} {ratio:>8}", of(figures));
        }
        println!();
    }
    for figures in all {
        println!("{}: {}", figures.name, figures.note);
    }
}
