//! What a session costs over the client crate that carries it, and beside kazoo, on this machine:
//!
//! ```text
//! cargo xtask bench session [-- [--rounds N] [--slice MS] [--sessions N]]
//! ```
//!
//! Figures of another machine mean little, and those of this one change while other programs run. So all clients are
//! measured in one run and in turn, a slice of time each, in many rounds; what counts is the ratio of two slices of the
//! same round, and the median of those ratios.
//!
//! Each client is a process of its own, connected to the same server of three, with nothing else in it.

mod child;
mod client;
mod load;
mod measure;
mod memory;
mod options;
mod process;
mod report;
mod setting;

use std::process::ExitCode;

fn main() -> ExitCode {
    options::obey(std::env::args().skip(1))
}
