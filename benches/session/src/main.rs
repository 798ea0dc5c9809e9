//! The cost of a session on this machine, compared with a bare socket, the client crate that carries it, and kazoo:
//!
//! ```text
//! cargo xtask bench session [--rounds N] [--slice MS] [--sessions N] [--client NAME]...
//! ```
//!
//! Figures differ between machines, and change while other programs run. So all clients are measured in one run and in
//! turn, a slice of time each, in many rounds. The result is the median of the ratios of two slices of the same round.
//!
//! Each client is a separate process, connected to the same server of three, with nothing else in it.

mod child;
mod client;
mod drive;
mod idle;
mod load;
mod measure;
mod options;
mod process;
mod relay;
mod report;
mod setting;
mod socket;

use std::process::ExitCode;

use options::Role;

fn main() -> ExitCode {
    match Role::parse(std::env::args().skip(1)) {
        Ok(Role::Child { kind, address }) => child::run(kind, &address),
        Ok(Role::Parent(options)) => measure::run(&options),
        Err(wrong) => {
            eprintln!("{wrong}");
            ExitCode::from(64)
        }
    }
}
