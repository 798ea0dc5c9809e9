//! The parts of `dr-worker`, the daemon that runs a program on exactly one node.
//!
//! A program with stages of its own is [`main_with`] and nothing else:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use dr_worker::Registry;
//!
//! fn main() -> ExitCode {
//!     // `Registry::default().stage("my-own", ...)?`
//!     dr_worker::main_with(Registry::default())
//! }
//! ```
#![forbid(unsafe_code)]

pub mod ask;
pub mod cli;
pub mod config;
pub mod connect;
mod descriptors;
pub mod error;
pub mod guard;
pub mod http;
pub mod job;
pub mod logging;
mod mask;
pub mod run;
pub mod view;
mod wall;

use std::{ffi::OsString, path::Path, process::ExitCode};

pub use strategies::Registry;

/// What this program is called where it has no stages of its own.
const NAME: &str = env!("CARGO_PKG_NAME");

/// The whole program, daemon and command line, with policies that may name what is in the registry: stages in their
/// pipelines, and whole strategies.
///
/// Call it first thing in `main`, before anything starts a thread, opens a file or writes to standard output: the
/// same program runs again as the guard of each job, with other arguments. Every verb knows the registry; run the same
/// program on all nodes, and as the operator's.
pub fn main_with(registry: Registry) -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    // Before anything else: a guard must not load configuration, open sockets or start threads.
    if args.next().is_some_and(|verb| verb == guard::VERB) {
        return guard::main(args);
    }
    cli::main(&registry).into()
}

/// The name that this program was started by.
fn program() -> String {
    let started_by = std::env::args_os().next().unwrap_or_else(|| OsString::from(NAME));
    let name = Path::new(&started_by).file_name();
    name.map_or_else(|| NAME.to_owned(), |name| name.to_string_lossy().into_owned())
}
