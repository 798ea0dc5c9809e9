//! The worker's side of a job: running it under a [guard](crate::worker::guard), telling when it is ready,
//! restarting it, ending it, and the hooks around all that.
//!
//! A leadership, seen from here:
//!
//! ```text
//! run_hook(BeforeTakeover) ─▶ JobRun::start ─▶ ready() ─▶ run_hook(AfterReady) ─▶ finished() ...
//!          ... run_hook(BeforeStop) ─▶ stop(by) ─▶ run_hook(AfterStop) ─▶ leadership may be released
//! ```
//!
//! Every process that the worker starts (job, exec probe, hook) runs under a guard of its own, with
//! a deadline: so none of them outlives the worker or the lease, and the worker's only children are
//! guards. [`adopt_orphans`] builds on that.
//!
//! What [`JobRun::stop`] promises, it has verified: the guard has no descendant left; or, where the
//! guard itself was lost, the worker found none of the job's processes.

mod cgroup;
mod check;
mod env;
mod error;
mod guarded;
mod hook;
mod lock;
mod measure;
mod notify;
mod oneshot;
mod orphans;
mod output;
mod privileges;
mod probe;
mod restart;
mod run;
mod status;
mod supervisor;
mod sweep;

pub use cgroup::delegated_cgroup;
pub(crate) use check::Tally;
pub use env::JobEnv;
pub use error::{HookProblem, JobError};
pub use guarded::Guards;
pub use hook::{HookRuns, run_hook};
pub use lock::{LockError, StateLock};
pub use measure::run_measure;
pub use oneshot::Deadline;
pub use orphans::{adopt_orphans, tend_orphans};
pub(crate) use privileges::may_kill_any_user;
pub(crate) use probe::{check_fitness, check_once};
pub use run::JobRun;
pub use status::{ProcessState, ProcessStatus, Stopped};
pub use sweep::sweep;
