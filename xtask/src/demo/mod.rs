//! `cargo xtask demo`: two sites, four workers, one job. Workers and sites fail and return; at the end the ledger is checked.

mod acts;
mod http;
mod ledger;
mod narrator;
mod operator;
mod servers;
mod stage;
mod summary;
mod sweep;
mod worker;

use std::process::ExitCode;

use crate::cli::DemoArgs;
use narrator::Narrator;
use stage::{Stage, programs};

/// Runs the demo. Success only if every check passed.
pub(crate) async fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    eprintln!("building dr-worker and ledger (some minutes the first time)");
    let programs = programs().await?;

    let narrator = Narrator::start();
    // Dropping it, on Ctrl-C too, ends every process and removes every file.
    let mut stage = Stage::set(programs, servers::start(args.real, &narrator).await?)?;
    let played = acts::play(&mut stage, &narrator).await;
    match &played {
        Ok(summary) => print!("\n{summary}"),
        Err(error) => {
            eprintln!("\n{}", stage.logs());
            eprintln!("the demo FAILED after {}: {error:#}", narrator.time());
        }
    }
    if args.keep {
        print!("\n{}", stage.what_to_try()?);
        // Until Ctrl-C.
        std::future::pending::<()>().await;
    }
    let cleared = stage.strike();
    match (played, cleared) {
        (Ok(_), Ok(())) => {
            println!("\nAll checks passed; every process has ended and every file is removed.");
            Ok(ExitCode::SUCCESS)
        }
        (Ok(_), Err(error)) => Err(error),
        (Err(_), _) => Ok(ExitCode::FAILURE),
    }
}
