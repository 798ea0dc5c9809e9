//! What is to be run, and under which conditions: plain data.

mod identity;
mod job;
mod limits;
mod output;
mod probe;
mod signal;
mod size;

pub use identity::{Identity, RunAs, UserError};
pub use job::{ExitCodes, Job, JobProcess, KILL_RESERVE, OnExit, RestartPolicy};
pub use limits::Limits;
pub use output::{JobOutput, RotatedFile};
pub use probe::{Check, ReadyProbe};
pub use signal::{NotAStopSignal, StopSignal};
pub use size::{NotASize, Size};
