//! The command line.

use std::process::ExitCode;
use std::time::Duration;

use crate::client::Kind;
use crate::{child, measure};

/// Runs the command line.
pub(crate) fn obey(args: impl Iterator<Item = String>) -> ExitCode {
    match Role::parse(args) {
        Ok(Role::Child { kind, address }) => child::run(kind, &address),
        Ok(Role::Parent(options)) => measure::run(&options),
        Err(wrong) => {
            eprintln!("{wrong}");
            ExitCode::from(64)
        }
    }
}

/// The role of this process.
enum Role {
    /// The benchmark.
    Parent(Options),
    /// One of the measured clients. It reads orders from its standard input.
    Child { kind: Kind, address: String },
}

pub(crate) struct Options {
    pub(crate) rounds: usize,
    /// The time of each load for each client in each round.
    pub(crate) slice: Duration,
    /// The number of sessions by which memory is measured.
    pub(crate) sessions: usize,
    pub(crate) kinds: Vec<Kind>,
}

impl Role {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options =
            Options { rounds: 60, slice: Duration::from_millis(100), sessions: 200, kinds: Vec::new() };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--rounds" => options.rounds = count(&arg, &value()?)?,
                "--slice" => options.slice = Duration::from_millis(count(&arg, &value()?)? as u64),
                "--sessions" => options.sessions = count(&arg, &value()?)?,
                "--client" => options.kinds.push(value()?.parse()?),
                "--child" => return Ok(Self::Child { kind: value()?.parse()?, address: value()? }),
                other => {
                    return Err(format!(
                        "no such option: {other}; there are --rounds N, --slice MS, --sessions N and --client NAME, \
                         which may be repeated"
                    ));
                }
            }
        }
        if options.kinds.is_empty() {
            options.kinds = Kind::all();
        }
        Ok(Self::Parent(options))
    }
}

fn count(option: &str, value: &str) -> Result<usize, String> {
    match value.parse() {
        Ok(0) => Err(format!("{option} 0: at least one")),
        Ok(count) => Ok(count),
        Err(error) => Err(format!("{option} {value}: {error}")),
    }
}
