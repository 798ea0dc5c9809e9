//! The chores of this workspace: `cargo xtask --help` lists them.
#![forbid(unsafe_code)]

#[cfg(test)]
mod architecture;
mod bench;
mod bench_postgres;
mod build_figures;
mod cargo;
mod chaos;
mod cli;
mod dashboard;
mod demo;
mod dist;
mod ensemble;
mod figures;
mod group;
mod model;
mod packages;
mod published;
mod release;
mod sources;
mod test;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

use cli::{Chore, EnsembleChore};

/// Runs the chore of the command line.
#[must_use]
pub fn main() -> ExitCode {
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
            outcome = chore(cli.chore) => outcome,
            code = signalled() => code,
        }
    })
}

async fn chore(chore: Chore) -> anyhow::Result<ExitCode> {
    match chore {
        Chore::Test(args) => test::run(&args).await,
        Chore::Demo(args) => demo::run(&args).await,
        Chore::Dist(args) => dist::run(&args).await,
        Chore::Release(args) => release::run(&args).await,
        Chore::Ensemble(EnsembleChore::Up(up)) => ensemble::up(&up).await,
        Chore::Ensemble(EnsembleChore::Down(down)) => ensemble::down(&down),
        Chore::Ensemble(EnsembleChore::Status(at)) => ensemble::status(&at).await,
        Chore::Bench { name, args } => bench::run(name.as_deref(), &args).await,
        Chore::BuildFigures { build } => build_figures::run(build).await,
        Chore::Figures { circles } => figures::run(circles),
        Chore::Dashboard => dashboard::run().await,
        Chore::Book => book().await,
        Chore::Model(args) => model::run(&args).await,
        Chore::Chaos(args) => chaos::run(&args).await,
    }
}

/// A program of its own: mdBook's library is compiled for nothing else.
async fn book() -> anyhow::Result<ExitCode> {
    let mut command = cargo::cargo(["run", "--quiet", "-p", "book", "--"]);
    let status = cargo::run(command.arg(cargo::target_directory()?)).await?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits for Ctrl-C or SIGTERM, and reports it at once: ending everything takes a moment. From the first call on neither
/// ends this process, so that it can clean up. The exit code is 128 and the signal's number, as shells give it.
async fn signalled() -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
    let (how, code) = tokio::select! {
        _ = interrupt.recv() => ("interrupted", 130),
        _ = terminate.recv() => ("terminated", 143),
    };
    eprintln!("\n{how}: ending everything that was started");
    Ok(ExitCode::from(code))
}
