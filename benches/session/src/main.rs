//! What a session costs on this machine beside a bare socket, the client crate that carries it, and kazoo:
//!
//! ```text
//! cargo xtask bench session [-- [--rounds N] [--slice MS] [--sessions N] [--client NAME]...]
//! ```
//!
//! Figures of another machine mean little, and those of this one change while other programs run. So all clients are
//! measured in one run and in turn, a slice of time each, in many rounds; what counts is the ratio of two slices of the
//! same round, and the median of those ratios.
//!
//! Each client is a process of its own, connected to the same server of three, with nothing else in it.

mod child;
mod client;
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

fn main() -> ExitCode {
    options::obey(std::env::args().skip(1))
}
