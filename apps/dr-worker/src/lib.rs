//! `dr-worker`, the daemon that runs a program on exactly one node across sites.
//!
//! Three parts, each of which uses only those before it. [`config`] reads the settings and refuses
//! them as a whole if anything is wrong. [`worker`] is the daemon: it opens one ZooKeeper session, joins the election
//! of each job, runs a job under a guard wherever this member leads, and serves HTTP endpoints. The operator's command
//! line (`operator`) parses arguments, starts the daemon for `run`, and reads or changes an election for every other
//! verb. What an election looks like to people and programs is in [`view`], and what operators do to it in `commands`,
//! the same for the HTTP endpoints and the command line.
//!
//! A program that adds stages of its own calls [`main_with`]:
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

mod advice;
mod checked;
mod client;
mod commands;
pub mod config;
mod connect;
mod error;
mod host_fault;
mod logging;
mod mask;
mod operator;
mod private_file;
mod program;
#[cfg(test)]
mod reference;
mod schema;
mod signals;
mod tls;
mod typed;
pub mod view;
mod wall;
pub mod worker;
mod workers;
pub mod znodes;

use std::process::ExitCode;

pub use strategies::Registry;

use worker::closing;

/// The whole program, daemon and command line, with policies that may name what is in the registry: stages in their
/// pipelines, and whole strategies.
///
/// Call it first thing in `main`, before anything starts a thread, opens a file or writes to standard output: the
/// same program runs again as the guard of each job, with other arguments. Every verb knows the registry; run the same
/// program on all nodes, and as the operator's.
pub fn main_with(registry: Registry) -> ExitCode {
    // Before anything else: a guard must not load configuration, open sockets or start threads.
    match job_guard::run_if_guard_or(closing::run) {
        Some(ended) => ended,
        None if std::env::args_os().nth(1).is_some_and(|verb| verb == "guard") => {
            let program = program::program();
            eprintln!("{program} guard: started by `{program} run` for each job, not by hand");
            error::ExitCode::Usage.into()
        }
        None => operator::main(&registry).into(),
    }
}
