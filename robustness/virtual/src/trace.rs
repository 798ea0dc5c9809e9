//! What happened: the history for the checks, and the trace of everything that passed.

use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use boot_time::BootTime;
use robustness::history::{Event, Line};

/// Both. Shared by all parts of a run.
#[derive(Debug)]
pub(crate) struct Trace {
    kept: Mutex<Kept>,
    /// Whether the text is kept, which takes most of the time.
    is_whole: bool,
}

#[derive(Debug, Default)]
struct Kept {
    text: String,
    lines: Vec<Line>,
    /// What no member should have met.
    problems: Vec<String>,
}

pub(crate) fn now() -> u64 {
    u64::try_from(BootTime::now().as_duration().as_nanos()).unwrap_or(u64::MAX)
}

impl Trace {
    pub(crate) fn new(is_whole: bool) -> Self {
        Self { kept: Mutex::default(), is_whole }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record(&self, by: &str, event: Event) {
        // Of two things at one moment one is the first.
        let last = self.kept().lines.last().map_or(0, |last| last.at);
        let line = Line { at: now().max(last + 1), by: by.to_owned(), event };
        if self.is_whole {
            self.said(&serde_json::to_string(&line).unwrap_or_default());
        }
        self.kept().lines.push(line);
    }

    /// Bytes have passed.
    pub(crate) fn passed(&self, link: &str, bytes: &[u8]) {
        if self.is_whole {
            self.said(&format!("{link} {}", bytes.escape_ascii()));
        }
    }

    pub(crate) fn said(&self, what: &str) {
        if self.is_whole {
            let _ = writeln!(self.kept().text, "{} {what}", now());
        }
    }

    pub(crate) fn problem(&self, what: String) {
        self.said(&what);
        self.kept().problems.push(what);
    }

    /// The text, the lines of the history, and the problems.
    pub(crate) fn take(&self) -> (String, Vec<Line>, Vec<String>) {
        let kept = std::mem::take(&mut *self.kept());
        (kept.text, kept.lines, kept.problems)
    }
}
