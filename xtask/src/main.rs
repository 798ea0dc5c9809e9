//! The chores of this workspace: `cargo xtask test | demo | ensemble | bench | build-figures | model`.
#![forbid(unsafe_code)]

mod bench;
mod build_figures;
mod cargo;
mod cli;
mod demo;
mod ensemble;
mod group;
mod model;
mod packages;
mod signals;
mod test;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: cli::Cli) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Dropping the chore ends every process that it has started.
        tokio::select! {
            outcome = cli.chore.run() => outcome,
            signal = signalled() => Ok(signal?.exit_code()),
        }
    })
}

/// Speaks up at once: ending everything takes a moment.
async fn signalled() -> anyhow::Result<signals::Ended> {
    let signal = signals::any().await?;
    eprintln!("\n{signal}: ending everything that was started");
    Ok(signal)
}
