//! What a check finds.

use crate::history::History;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// How, in one sentence.
    pub sentence: String,
    /// The lines that show it, by their numbers in the history.
    pub lines: Vec<usize>,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// How many things it has looked at; with 0 it has shown nothing.
    pub examined: usize,
    /// What it has found.
    pub violations: Vec<Violation>,
}

impl Findings {
    pub(super) fn found(&mut self, sentence: String, lines: Vec<usize>) {
        self.violations.push(Violation { sentence, lines });
    }
}

/// A promise, and what checks it.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// The promise.
    pub promise: &'static str,
    /// Checks it.
    pub run: fn(&History) -> Findings,
}
