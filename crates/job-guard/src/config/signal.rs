//! The signals that can stop a job.

use std::fmt;
use std::str::FromStr;

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

/// The signal that asks a job to stop. Written as `SIGTERM`; `TERM` is accepted as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum StopSignal {
    /// `SIGTERM`, the usual signal to stop a program.
    #[default]
    Term,
    /// `SIGINT`
    Int,
    /// `SIGQUIT`
    Quit,
    /// `SIGHUP`
    Hup,
    /// `SIGUSR1`
    Usr1,
    /// `SIGUSR2`
    Usr2,
    /// `SIGKILL`: the job can't handle it.
    Kill,
}

impl StopSignal {
    /// In the order of the variants.
    const ALL: [(StopSignal, Signal); 7] = [
        (StopSignal::Term, Signal::SIGTERM),
        (StopSignal::Int, Signal::SIGINT),
        (StopSignal::Quit, Signal::SIGQUIT),
        (StopSignal::Hup, Signal::SIGHUP),
        (StopSignal::Usr1, Signal::SIGUSR1),
        (StopSignal::Usr2, Signal::SIGUSR2),
        (StopSignal::Kill, Signal::SIGKILL),
    ];

    pub(crate) fn signal(self) -> Signal {
        StopSignal::ALL[self as usize].1
    }
}

impl fmt::Display for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.signal().as_str())
    }
}

/// Not the name of a signal that can stop a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a stop signal; use one of SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, \
     SIGKILL"
)]
pub struct NotAStopSignal(String);

impl FromStr for StopSignal {
    type Err = NotAStopSignal;

    fn from_str(name: &str) -> Result<Self, NotAStopSignal> {
        let short = name.strip_prefix("SIG").unwrap_or(name);
        StopSignal::ALL
            .into_iter()
            .find(|(_, signal)| signal.as_str().strip_prefix("SIG") == Some(short))
            .map(|(known, _)| known)
            .ok_or_else(|| NotAStopSignal(name.to_owned()))
    }
}

impl TryFrom<String> for StopSignal {
    type Error = NotAStopSignal;

    fn try_from(name: String) -> Result<Self, NotAStopSignal> {
        name.parse()
    }
}

impl From<StopSignal> for String {
    fn from(signal: StopSignal) -> Self {
        signal.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for (signal, _) in StopSignal::ALL {
            assert_eq!(signal.to_string().parse(), Ok(signal));
        }
        assert_eq!("HUP".parse(), Ok(StopSignal::Hup));
    }

    #[test]
    fn a_signal_that_stops_nothing_is_refused_by_name() {
        let error = "SIGCHLD".parse::<StopSignal>().unwrap_err();
        assert!(error.to_string().contains("SIGCHLD"), "{error}");
    }
}
