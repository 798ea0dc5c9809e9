//! Runs the programs of a job, each under a [guard](crate::worker::guard): starts and restarts the job, probes it,
//! stops it, and runs its hooks.
//!
//! The calls of one leadership:
//!
//! ```text
//! run_hook(BeforeTakeover) ─▶ JobRun::start ─▶ ready() ─▶ run_hook(AfterReady) ─▶ finished() ...
//!          ... run_hook(BeforeStop) ─▶ stop(by) ─▶ run_hook(AfterStop) ─▶ leadership may be released
//! ```
//!
//! Every process of a job (its program, exec probe, hook) runs under its own guard, with a deadline. So none of them
//! outlives the worker or the lease. The worker starts each of its children by `start`: `adopt_orphans` relies on it.
//!
//! When [`JobRun::stop`] returns, it has verified that the guard has no descendant left, or, if the guard was lost,
//! that the worker finds no process of the job.

mod cgroup;
mod check;
mod env;
mod error;
mod guard_process;
mod guarded;
mod handover;
mod hook;
mod hung_disk;
mod lock;
mod machine;
mod measure;
mod notify;
mod oneshot;
mod orphans;
mod output;
mod probe;
mod program;
mod rehearsal;
mod restart;
mod run;
mod status;
mod supervisor;
mod sweep;
mod work_time;

pub use cgroup::delegated_cgroup;
pub(crate) use cgroup::delegated_to;
pub(crate) use check::Tally;
pub use env::JobEnv;
pub(crate) use env::variables;
pub use error::{HookProblem, JobError};
pub use guarded::Guards;
pub(crate) use handover::{HandedRun, RunState};
pub use hook::{AsyncHooks, HookRuns, run_hook};
pub(crate) use hung_disk::HungDisk;
pub use lock::{LockError, StateLock};
pub(crate) use lock::{file_name, path_of as lock_of};
pub use measure::run_measure;
pub use oneshot::Deadline;
pub(crate) use orphans::{NoOthers, adopt_guards, no_guards_but, start};
pub use orphans::{adopt_orphans, tend_orphans};
pub(crate) use output::{KeptOutput, ShownLine, flush as flush_output};
pub(crate) use probe::{check_fitness, check_once};
pub(crate) use program::ask_program;
pub(crate) use rehearsal::{Rehearsals, rehearse};
pub use run::JobRun;
pub use status::{ProcessState, ProcessStatus, Stopped};
pub use sweep::sweep;
pub use work_time::WorkTime;
