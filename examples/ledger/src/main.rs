//! `ledger`: a job that books each order of a file exactly once, and the reference for the use of a fencing token in a
//! program. The README has the reasons for its design.

#![forbid(unsafe_code)]

mod book;
mod check;
mod cli;
mod failure;
mod generate;
mod leadership;
mod orders;
mod output;
mod progress;
mod stop;
mod store;

use std::process::ExitCode;

use clap::Parser;

use cli::Verb;
use failure::Failure;

fn main() -> ExitCode {
    let arguments = match cli::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return cli::explain(&error),
    };
    match run(arguments.verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::say(format_args!("ledger: {failure}"));
            failure.exit_code()
        }
    }
}

fn run(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Run(run) => book::run(&run),
        Verb::Check { orders, store, output } => check::run(&orders, &store.address, output),
        Verb::Generate { orders, seed, out } => generate::run(orders, seed, out.as_deref()),
        Verb::Status { store } => progress::status(&store.address),
        Verb::Wait { store, booked, timeout } => progress::wait(&store.address, booked, timeout),
    }
}
