//! `ledger`: a job that books each order of a file exactly once, and the
//! reference for how a program uses its fencing token. The README says why it
//! is built the way it is.

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

fn main() -> ExitCode {
    let arguments = match cli::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return cli::explain(&error),
    };
    match cli::dispatch(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::say(format_args!("ledger: {failure}"));
            failure.exit_code()
        }
    }
}
