//! The record that the leader's program does not run, for jobs that come after this one.

use election_core::internals::record::{Record, VERSION, limits};
use serde::{Deserialize, Serialize};

/// The program of a leader is being stopped as planned, or does not run although it leads, in `halted`. It counts only while
/// the leader znode has the same term. Written only for a job with `after`, and for those
/// that it names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halted {
    /// Format version.
    pub v: u32,
    /// The term of the leader.
    #[serde(with = "limits::term")]
    pub term: u64,
    /// Whether it is to run, is being stopped, or does not run.
    pub program: HaltedProgram,
}

/// What the program of a leader does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HaltedProgram {
    /// It runs, as that of every READY leader.
    Runs,
    /// It is being started again, and may run.
    Starting,
    /// It is stopped as soon as those that come after it have stopped.
    Stopping,
    /// It does not run.
    Stopped,
}

impl HaltedProgram {
    /// As the predicate of a sentence about it.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Starting => "is being started",
            Self::Stopping => "is about to stop",
            Self::Stopped => "does not run",
        }
    }
}

impl Halted {
    /// What the program of the leader of this term does.
    pub(crate) fn new(term: u64, program: HaltedProgram) -> Self {
        Self { v: VERSION, term, program }
    }
}

impl Record for Halted {
    const MENDED_BY: &str = "delete it; the leader of the job writes it again when its program is stopped";

    fn version(&self) -> u32 {
        self.v
    }
}
