//! Where output goes.

use std::{path::PathBuf, time::Duration};

use super::Size;

/// Where a job's output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOutput {
    /// To this process's log, line by line.
    Log,
    /// To a file, unchanged.
    File(RotatedFile),
    /// To the systemd journal, line by line.
    Journal {
        /// The journal's socket.
        socket: PathBuf,
    },
}

/// A file that is renamed and begun again when it is large or old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotatedFile {
    /// The file; the older ones are beside it: `PATH.1`, `PATH.2`.
    pub path: PathBuf,
    /// It gets no larger.
    pub max_size: Size,
    /// It gets no older; zero: its age does not matter.
    pub max_age: Duration,
    /// How many older ones are kept.
    pub keep: u32,
}
