//! The last output of a job as programs get it.

use job_guard::{KeptLine, KeptOutput, Stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::wall::exact_moment;

/// A line as programs get it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub(crate) struct ShownLine {
    /// RFC 3339.
    pub(crate) time: String,
    /// `stdout`, `stderr` or `worker`.
    pub(crate) stream: String,
    /// Of a job that has several processes: which one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<String>,
    pub(crate) line: String,
}

impl ShownLine {
    /// How many lines are shown by default.
    pub(crate) const USUAL: usize = 100;

    /// The most that an answer with all that is kept of a job may have, in bytes: each may be escaped.
    pub(crate) const MOST: usize = 8 * KeptOutput::MOST;

    pub(super) fn of(process: Option<&str>, KeptLine { at_ms, stream, line }: KeptLine) -> Self {
        let stream = stream.map_or("worker", Stream::as_str).to_owned();
        Self { time: exact_moment(at_ms), stream, process: process.map(str::to_owned), line }
    }
}
