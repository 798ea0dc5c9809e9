//! Where this crate reports the output and the state of its programs.

use std::fmt;
use std::pin::Pin;

use crate::guard::frames::Stream;

/// The log of a program that runs jobs, and its counters. Each method has a default: `()` is one that logs by [`tracing`] and
/// counts nothing.
pub trait Reporter: fmt::Debug + Send + Sync {
    /// Completes when the log has room for a line. A line waits for it a moment, and is dropped then.
    ///
    /// # Cancel safety
    /// It must be cancel safe.
    fn room(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }

    /// Logs a line of a job, or of a command with this title.
    fn line(&self, job: &str, stream: Stream, line: &str) {
        tracing::info!(target: "job", job, stream = stream.as_str(), "{line}");
    }

    /// So many lines of its output were dropped.
    fn lines_dropped(&self, _job: &str, _lines: u64) {}

    /// What is kept among its last output when it is started.
    fn start_note(&self) -> String {
        "starting".to_owned()
    }

    /// Its liveness check has failed, and it is ended.
    fn liveness_failed(&self, _job: &str) {}
}

impl Reporter for () {}
