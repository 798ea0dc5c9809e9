//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::failure;
use crate::leadership::Leadership;
use crate::store::StoreAddress;

/// Books each order of a file exactly once, under a fencing token.
#[derive(Debug, Parser)]
#[command(name = "ledger", version, after_help = failure::EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Claim the token at the store, then book what is not booked yet, one
    /// order per transaction.
    Run(RunArguments),
    /// Compare the store with the orders: exit code 0 only if every order is
    /// booked once and no deposed leader's write was accepted.
    Check {
        /// The orders that should be booked (CSV).
        #[arg(long, value_name = "FILE")]
        orders: PathBuf,
        #[command(flatten)]
        store: StoreArgument,
        /// Plain words, or one JSON object.
        #[arg(long, value_enum, default_value_t = Output::Pretty)]
        output: Output,
    },
    /// Write orders made from a seed: the same seed gives the same bytes.
    Generate {
        /// How many orders to make.
        #[arg(long, value_name = "N")]
        orders: u32,
        /// The seed.
        #[arg(long, value_name = "S")]
        seed: u64,
        /// Where to write them (default: standard output).
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Print how far the ledger is, as one JSON object.
    Status {
        #[command(flatten)]
        store: StoreArgument,
    },
    /// Wait until so many orders are booked, then print the status.
    Wait {
        #[command(flatten)]
        store: StoreArgument,
        /// How many orders to wait for. A store that is not there yet counts as 0.
        #[arg(long, value_name = "N")]
        booked: u64,
        /// How long to wait at most; exit code 75 after that.
        #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = humantime::parse_duration)]
        timeout: Duration,
    },
}

/// What `ledger run` needs.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArguments {
    /// The orders to book (CSV).
    #[arg(long, value_name = "FILE")]
    pub(crate) orders: PathBuf,
    #[command(flatten)]
    pub(crate) store: StoreArgument,
    #[command(flatten)]
    pub(crate) leadership: Leadership,
    /// Pause after each booking.
    #[arg(long, value_name = "DURATION", default_value = "5ms", value_parser = humantime::parse_duration)]
    pub(crate) pace: Duration,
    /// How long to keep trying while another process holds the store's lock.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = humantime::parse_duration)]
    pub(crate) patience: Duration,
    /// Exit when every order is booked, rather than stay until stopped.
    #[arg(long)]
    pub(crate) exit_when_done: bool,
}

/// Where the ledger is kept.
#[derive(Debug, clap::Args)]
pub(crate) struct StoreArgument {
    /// `sqlite:PATH` or `postgres://USER@HOST:PORT/DATABASE` (password from PGPASSWORD).
    #[arg(long = "store", value_name = "STORE", env = "LEDGER_STORE", hide_env_values = true)]
    pub(crate) address: StoreAddress,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Plain words.
    Pretty,
    /// One JSON object on one line.
    Json,
}

/// Prints clap's own message and gives its exit code: help and version are no
/// failures, anything else is bad usage.
pub(crate) fn explain(error: &clap::Error) -> ExitCode {
    // Nothing can be done about a standard error that is closed.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(failure::USAGE) } else { ExitCode::SUCCESS }
}
