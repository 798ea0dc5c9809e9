//! Many elections on one session, beside as many of Curator's LeaderLatches on one client:
//!
//! ```text
//! cargo xtask bench elections [--elections N] [--idle SECONDS] [--recipe RECIPE]...
//! ```
//!
//! One process opens and leads all of them, over a server of its own. The result is the ratio to Curator's figure of
//! the same run.

mod contender;

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use contender::{Kind, resident};
use election_bench::{Curator, run};
use tokio::time::sleep;
use zk_testkit::Ensemble;

/// The rate after the setup: a heartbeat or two.
const QUIET_PER_SECOND: u64 = 20;

/// Measures many elections on one session.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many elections.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    elections: u32,
    /// How long the idle requests are counted.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    idle: u32,
    /// May be repeated; Curator is measured as well [default: all].
    #[arg(long = "recipe", value_name = "RECIPE", value_parser = ["elector", "queue", "single"])]
    recipes: Vec<String>,
    /// The ZooKeeper client of the elections.
    #[arg(long, default_value = "native", value_parser = ["native", "zookeeper-async"])]
    driver: String,
    /// Cargo's own.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Counters of the server.
const PACKETS: &str = "zk_packets_received";
const BYTES: &str = "zk_bytes_received_count";

/// The costs of one contender.
struct Figures {
    kind: Kind,
    until_all_lead: f64,
    /// Until all lead.
    requests_per_election: f64,
    sent_per_election: f64,
    bytes_per_election: f64,
    packets_per_second: f64,
    watches_per_election: f64,
}

#[tokio::main]
async fn main() -> ExitCode {
    run(async {
        let arguments = Arguments::parse();
        print(&arguments, &measure(&arguments).await?);
        Ok(())
    })
    .await
}

async fn measure(arguments: &Arguments) -> Result<Vec<Figures>, String> {
    let classes = tempfile::tempdir().map_err(|error| error.to_string())?;
    let curator = Curator::compile(classes.path());
    if let Err(why) = &curator {
        eprintln!("SKIPPED: Curator, for {why}");
    }
    let mut all = Vec::new();
    for kind in Kind::ALL {
        let wanted = match kind.recipe() {
            Some(recipe) => arguments.recipes.is_empty() || arguments.recipes.iter().any(|r| r == recipe),
            None => curator.is_ok(),
        };
        if wanted {
            all.push(one(kind, arguments, curator.as_ref().ok()).await?);
        }
    }
    Ok(all)
}

async fn one(kind: Kind, arguments: &Arguments, curator: Option<&Curator>) -> Result<Figures, String> {
    // This many znodes and watches need more than a test's server has.
    let builder = Ensemble::builder().servers(1).tick_time(Duration::from_secs(2)).jvm_flag("-Xmx1g");
    let ensemble = builder.start().await.map_err(|error| error.to_string())?;
    let connect = ensemble.connect_string();
    let elections = arguments.elections as usize;
    let mut contestant = contender::start(kind, &connect, elections, &arguments.driver, curator).await?;
    let before = resident(&contestant)?;
    let [requests, bytes] = received(&ensemble).await?;
    let took = contender::open(&mut contestant, elections).await?;
    let [all_requests, all_bytes] = received(&ensemble).await?;
    eprintln!("{}: all {elections} lead after {took:.1?}", kind.name());
    let mut packets = count(&ensemble, PACKETS).await?;
    for _ in 0..60 {
        sleep(Duration::from_secs(1)).await;
        let now = count(&ensemble, PACKETS).await?;
        let quiet = now - packets < QUIET_PER_SECOND;
        packets = now;
        if quiet {
            break;
        }
    }
    let after = resident(&contestant)?;
    let watches = count(&ensemble, "zk_watch_count").await?;
    let packets = count(&ensemble, PACKETS).await?;
    sleep(Duration::from_secs(arguments.idle.into())).await;
    // The last question is one of them.
    let idle = count(&ensemble, PACKETS).await?.saturating_sub(packets + 1);
    contestant.kill().await;
    ensemble.end();
    let number = f64::from(arguments.elections);
    Ok(Figures {
        kind,
        until_all_lead: took.as_secs_f64(),
        // The second question is one of them.
        requests_per_election: all_requests.saturating_sub(requests + 1) as f64 / number,
        sent_per_election: all_bytes.saturating_sub(bytes) as f64 / number,
        bytes_per_election: after.saturating_sub(before) as f64 / number,
        packets_per_second: idle as f64 / f64::from(arguments.idle),
        watches_per_election: watches as f64 / number,
    })
}

/// The requests that the server has received, and their bytes.
async fn received(ensemble: &Ensemble) -> Result<[u64; 2], String> {
    Ok([count(ensemble, PACKETS).await?, count(ensemble, BYTES).await?])
}

/// A counter of the server.
async fn count(ensemble: &Ensemble, name: &str) -> Result<u64, String> {
    let said = ensemble.admin(0, "mntr").await.map_err(|error| error.to_string())?;
    let value = said.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.ok_or_else(|| format!("the server does not say {name}"))
}

fn print(arguments: &Arguments, all: &[Figures]) {
    println!(
        "{} elections on one session, one server, driver {}; x: as a multiple of Curator's",
        arguments.elections, arguments.driver
    );
    print!("{:22}", "");
    for head in ["until all lead s", "requests each", "bytes sent each", "memory kB each", "idle requests/s"]
    {
        print!("{head:>18}");
    }
    println!("{:>10}", "watches");
    let base = all.iter().find(|figures| figures.kind == Kind::Curator);
    for figures in all {
        print!("{:22}", figures.kind.name());
        let columns: [fn(&Figures) -> f64; 5] = [
            |figures| figures.until_all_lead,
            |figures| figures.requests_per_election,
            |figures| figures.sent_per_election,
            |figures| figures.bytes_per_election / 1024.0,
            |figures| figures.packets_per_second,
        ];
        for of in columns {
            let ratio =
                base.map(of).filter(|base| *base > 0.0).map(|base| format!("{:.2}x", of(figures) / base));
            print!("{:>10.1} {:>7}", of(figures), ratio.unwrap_or_else(|| "-".to_owned()));
        }
        println!("{:>10.1}", figures.watches_per_election);
    }
}
