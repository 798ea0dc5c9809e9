use serde::{Deserialize, Serialize};

/// What a program may take of its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Open files of each process.
    pub open_files: Option<u64>,
    /// Processes and threads: of the job, or without cgroups of its user.
    pub processes: Option<u64>,
    /// Bytes of memory: of the job, or without cgroups the address space of each process.
    pub memory: Option<u64>,
}
