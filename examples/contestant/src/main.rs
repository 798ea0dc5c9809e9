//! `contestant`: candidates of elections that say when they lead, one line each on
//! standard output, so that a program outside can measure them beside other
//! implementations. The README is the protocol.

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
    // What a client crate still does in the background must hold up nobody.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out::error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
