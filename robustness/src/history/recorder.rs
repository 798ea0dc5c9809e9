//! Writes lines as they happen.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::line::{Event, Line};

/// Appends lines to a file, each in one write, so that a process that is killed leaves at most one incomplete line.
#[derive(Debug)]
pub struct Recorder {
    file: File,
    by: String,
    ops: AtomicU64,
}

impl Recorder {
    /// `by` is unique among the writers of a history.
    ///
    /// # Errors
    /// If the file can't be created.
    pub fn create(path: &Path, by: &str) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file, by: by.to_owned(), ops: AtomicU64::new(0) })
    }

    /// Writes a line.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn record(&self, at: u64, event: Event) -> io::Result<()> {
        let line = Line { at, by: self.by.clone(), event };
        let text = serde_json::to_string(&line)? + "\n";
        (&self.file).write_all(text.as_bytes())
    }

    /// A number for an operation.
    pub fn next_op(&self) -> u64 {
        self.ops.fetch_add(1, Ordering::Relaxed)
    }
}
