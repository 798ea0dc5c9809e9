//! Many elections on one session, beside as many of Curator's LeaderLatches on one client:
//!
//! ```text
//! cargo xtask bench elections [-- [--elections N] [--idle SECONDS]]
//! ```
//!
//! One process opens and leads all of them, over a server of its own. The result is the ratio to Curator's figure of
//! the same run.

mod contender;

use std::{path::Path, process::ExitCode, time::Duration};

use contender::{Contender, Kind, compile_curator};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use zk_testkit::Ensemble;

/// The rate after the setup: a heartbeat or two.
const QUIET_PER_SECOND: u64 = 20;

struct Options {
    elections: usize,
    idle: Duration,
}

/// The costs of one contender.
struct Figures {
    kind: Kind,
    until_all_lead: f64,
    bytes_per_election: f64,
    packets_per_second: f64,
    watches_per_election: f64,
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
            Ok(figures) => {
                print(&options, &figures);
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { elections: 10_000, idle: Duration::from_secs(10) };
    while let Some(arg) = args.next() {
        let mut number = || {
            let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
            let number: u32 = value.parse().map_err(|error| format!("{arg} {value}: {error}"))?;
            if number == 0 { Err(format!("{arg} 0: at least one")) } else { Ok(number) }
        };
        match arg.as_str() {
            // Cargo's own.
            "--bench" => {}
            "--elections" => options.elections = number()? as usize,
            "--idle" => options.idle = Duration::from_secs(number()?.into()),
            other => {
                return Err(format!("no such option: {other}; there are --elections N and --idle SECONDS"));
            }
        }
    }
    Ok(options)
}

async fn measure(options: &Options) -> Result<Vec<Figures>, String> {
    let classes = tempfile::tempdir().map_err(|error| error.to_string())?;
    let curator = compile_curator(classes.path());
    if let Err(why) = &curator {
        eprintln!("SKIPPED: Curator, for {why}");
    }
    let mut all = Vec::new();
    for kind in Kind::ALL {
        if kind != Kind::Curator || curator.is_ok() {
            all.push(one(kind, options, classes.path()).await?);
        }
    }
    Ok(all)
}

async fn one(kind: Kind, options: &Options, classes: &Path) -> Result<Figures, String> {
    // This many znodes and watches need more than a test's server has.
    let builder = Ensemble::builder().servers(1).tick_time(Duration::from_secs(2)).jvm_flag("-Xmx1g");
    let ensemble = builder.start().await.map_err(|error| error.to_string())?;
    let connect = ensemble.connect_string();
    let mut contender = Contender::start(kind, &connect, options.elections, classes).await?;
    let before = contender.resident()?;
    let took = contender.open(options.elections).await?;
    eprintln!("{}: all {} lead after {took:.1?}", kind.name(), options.elections);
    let mut packets = count(&ensemble, "zk_packets_received").await?;
    for _ in 0..60 {
        sleep(Duration::from_secs(1)).await;
        let now = count(&ensemble, "zk_packets_received").await?;
        let quiet = now - packets < QUIET_PER_SECOND;
        packets = now;
        if quiet {
            break;
        }
    }
    let after = contender.resident()?;
    let watches = count(&ensemble, "zk_watch_count").await?;
    let packets = count(&ensemble, "zk_packets_received").await?;
    sleep(options.idle).await;
    // The last question is one of them.
    let idle = count(&ensemble, "zk_packets_received").await?.saturating_sub(packets + 1);
    contender.kill().await;
    ensemble.end();
    let number = options.elections as f64;
    Ok(Figures {
        kind,
        until_all_lead: took.as_secs_f64(),
        bytes_per_election: after.saturating_sub(before) as f64 / number,
        packets_per_second: idle as f64 / options.idle.as_secs_f64(),
        watches_per_election: watches as f64 / number,
    })
}

/// A counter of the server.
async fn count(ensemble: &Ensemble, name: &str) -> Result<u64, String> {
    let said = ensemble.admin(0, "mntr").await.map_err(|error| error.to_string())?;
    let value = said.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.ok_or_else(|| format!("the server does not say {name}"))
}

fn print(options: &Options, all: &[Figures]) {
    println!("{} elections on one session, one server; x: as a multiple of Curator's", options.elections);
    println!(
        "{:24}{:>22}{:>22}{:>22}{:>12}",
        "", "until all lead", "memory/election", "requests/s idle", "watches"
    );
    let base = all.iter().find(|figures| figures.kind == Kind::Curator);
    for figures in all {
        let ratio = |of: fn(&Figures) -> f64| {
            let base = base.map(of).filter(|base| *base > 0.0);
            base.map_or("-".to_owned(), |base| format!("{:.2}x", of(figures) / base))
        };
        println!(
            "{:24}{:>12.1} s {:>7}{:>11.1} kB {:>7}{:>14.1} {:>7}{:>12.1}",
            figures.kind.name(),
            figures.until_all_lead,
            ratio(|f| f.until_all_lead),
            figures.bytes_per_election / 1024.0,
            ratio(|f| f.bytes_per_election),
            figures.packets_per_second,
            ratio(|f| f.packets_per_second),
            figures.watches_per_election,
        );
    }
}
