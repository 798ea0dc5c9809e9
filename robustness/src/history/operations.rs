//! Operations: a first line and a last line.

use std::collections::BTreeMap;

use super::line::{Answer, Call, Event, Line};

/// One operation.
#[derive(Clone, Debug)]
pub struct Operation<'a> {
    /// What was asked.
    pub call: &'a Call,
    /// The number of its first line.
    pub line: usize,
    /// When it began.
    pub from: u64,
    /// When its outcome was known; `u64::MAX` if it never was.
    pub to: u64,
    /// The number of its last line.
    pub last: Option<usize>,
    /// Its outcome.
    pub outcome: Outcome<'a>,
}

/// What came of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// It was carried out.
    Ok(&'a Answer),
    /// It had no effect.
    Fail(&'a str),
    /// It may have had an effect, at any time since.
    Unknown,
}

impl Operation<'_> {
    /// Its lines.
    pub fn lines(&self) -> Vec<usize> {
        [Some(self.line), self.last].into_iter().flatten().collect()
    }

    /// All operations of a history, in the order in which they began.
    pub(super) fn all(lines: &[Line]) -> Vec<Operation<'_>> {
        let mut all: Vec<Operation<'_>> = Vec::new();
        let mut open = BTreeMap::new();
        for (number, line) in lines.iter().enumerate() {
            let (op, outcome) = match &line.event {
                Event::Invoke { op, call } => {
                    open.insert((&line.by, *op), all.len());
                    let (from, to) = (line.at, u64::MAX);
                    all.push(Operation {
                        call,
                        line: number,
                        from,
                        to,
                        last: None,
                        outcome: Outcome::Unknown,
                    });
                    continue;
                }
                Event::Ok { op, answer } => (*op, Outcome::Ok(answer)),
                Event::Fail { op, reason } => (*op, Outcome::Fail(reason)),
                Event::Unknown { op, .. } => (*op, Outcome::Unknown),
                _ => continue,
            };
            if let Some(known) = open.remove(&(&line.by, op)) {
                let to = if outcome == Outcome::Unknown { u64::MAX } else { line.at };
                (all[known].outcome, all[known].to, all[known].last) = (outcome, to, Some(number));
            }
        }
        all
    }
}
