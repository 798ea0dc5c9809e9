//! Breaks a whole deployment: four workers of two sites on hosts of their own, three servers of Apache ZooKeeper, jobs that
//! write to a store, operators. What happens goes into a history, and the checker looks at it.
//!
//! `cargo xtask chaos` builds what this needs, and starts it.
#![forbid(unsafe_code)]

mod cli;
mod disturbed;
mod faults;
mod http;
mod operators;
mod run;
mod stage;
mod store;
mod watchers;
mod witnesses;

use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Parser as _;
use robustness::checker::Report;
use robustness::schedule::Schedule;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    match chaos(&cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Exit code 0 if every promise has held, 1 if one was broken. It is an error if a check had nothing to look at.
fn chaos(cli: &cli::Cli) -> anyhow::Result<ExitCode> {
    let dir = cli.directory()?;
    let schedule = match cli.replayed() {
        Some(from) => {
            let path = from.join(SCHEDULE);
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            serde_json::from_str(&text).with_context(|| path.display().to_string())?
        }
        None => Schedule::draw(cli.seed(), cli.length_ms()),
    };
    fs::write(dir.join(SCHEDULE), serde_json::to_string_pretty(&schedule)?)?;
    println!("seed {}, {} steps, {}", schedule.seed, schedule.steps.len(), dir.display());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let history = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        // Dropping the run ends everything that it has started.
        tokio::select! {
            history = run::run(&schedule, &dir) => history.map(Some),
            _ = interrupt.recv() => Ok(None),
            _ = terminate.recv() => Ok(None),
        }
    })?;
    let Some(history) = history else { return Ok(ExitCode::from(130)) };
    let report = Report::of(&history);
    let text = report.text(&history);
    fs::write(dir.join("report.txt"), &text)?;
    if let Some(check) = &cli.expect {
        let caught = report.broken().any(|broken| broken == check);
        let others = report.broken().filter(|broken| broken != check).collect::<Vec<_>>().join(", ");
        println!(
            "{check}: {}; other checks that found something: {others}",
            if caught { "caught" } else { "NOT CAUGHT" }
        );
        return Ok(ExitCode::from(u8::from(!caught)));
    }
    print!("{text}");
    if report.held() {
        let idle: Vec<_> = report.idle().filter(|check| ALWAYS.contains(check)).collect();
        ensure!(idle.is_empty(), "nothing to check, so nothing was shown: {}", idle.join(", "));
        ensure!(report.unread() == 0, "{} records of the servers can't be read", report.unread());
    } else {
        println!("repeat it by: cargo xtask chaos replay {}", dir.display());
    }
    Ok(ExitCode::from(u8::from(!report.held())))
}

/// The checks that each run has something for: the rest is about what a schedule may not have.
const ALWAYS: [&str; 8] = [
    "one-actor",
    "ends-with-its-znode",
    "tokens-grow",
    "store-is-fenced",
    "one-answers-200",
    "leader-in-time",
    "nothing-left",
    "no-crash",
];
/// The file of the schedule in the directory of a run.
const SCHEDULE: &str = "schedule.json";
