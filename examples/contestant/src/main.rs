//! `contestant`: candidates of elections that print one line on standard output when they lead, so that another program
//! can measure them beside other implementations. The README describes the protocol.

#![forbid(unsafe_code)]

mod arguments;
mod candidate;
mod contest;
mod out;

use std::process::ExitCode;

use clap::Parser;

use arguments::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            out::error(&format!("no runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(contest::run(arguments));
    // Background work of a client crate must not delay the exit.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out::error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
