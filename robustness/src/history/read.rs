//! A history, from its files.

use super::line::{Event, Line, Setup};
use super::operations::Operation;

/// All lines of a history, in the order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    lines: Vec<Line>,
    tolerance: u64,
}

/// A line that is none of a history.
#[derive(Debug, thiserror::Error)]
#[error("line {number} is no line of a history: {error}: {text}")]
pub struct BadLine {
    number: usize,
    text: String,
    error: serde_json::Error,
}

impl History {
    /// Puts lines of several writers in the order of time.
    #[must_use]
    pub fn of(mut lines: Vec<Line>) -> Self {
        lines.sort_by_key(|line| line.at);
        Self { lines, tolerance: Self::TOLERANCE }
    }

    /// The usual tolerance, in nanoseconds, for servers and jobs on one machine: the servers' times are in milliseconds, rounded
    /// down.
    pub const TOLERANCE: u64 = 2_000_000;

    /// The same with so many nanoseconds by which the servers' times may differ from the others.
    #[must_use]
    pub fn tolerating(self, tolerance: u64) -> Self {
        Self { tolerance, ..self }
    }

    /// By how many nanoseconds the servers' times may differ from the others.
    #[must_use]
    pub fn tolerance(&self) -> u64 {
        self.tolerance
    }

    /// Reads lines of JSON. The last one may be incomplete, since who wrote it may have been killed.
    ///
    /// # Errors
    /// The first line that is none.
    pub fn parse(text: &str) -> Result<Vec<Line>, BadLine> {
        let (whole, last) = text.rsplit_once('\n').unwrap_or(("", text));
        let last = serde_json::from_str(last).ok();
        let lines = whole.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        lines
            .map(|(at, line)| {
                serde_json::from_str(line).map_err(|error| BadLine {
                    number: at + 1,
                    text: line.to_owned(),
                    error,
                })
            })
            .chain(last.map(Ok))
            .collect()
    }

    /// The lines.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// All operations, in the order in which they began.
    #[must_use]
    pub fn operations(&self) -> Vec<Operation<'_>> {
        Operation::all(&self.lines)
    }

    /// The setup, if a line has it.
    #[must_use]
    pub fn setup(&self) -> Option<&Setup> {
        self.lines.iter().find_map(|line| match &line.event {
            Event::Setup(setup) => Some(setup),
            _ => None,
        })
    }
}
