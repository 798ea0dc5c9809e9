//! What a job of the configuration is, beside the program that [`job_guard`] runs: its environment, its hooks, its commands.
//!
//! The calls of one leadership:
//!
//! ```text
//! run_hook(BeforeTakeover) ─▶ JobRun::start ─▶ ready() ─▶ run_hook(AfterReady) ─▶ finished() ...
//!          ... run_hook(BeforeStop) ─▶ stop(by) ─▶ run_hook(AfterStop) ─▶ leadership may be released
//! ```

mod described;
mod env;
mod error;
mod fitness;
mod follow_runs;
mod hook;
mod hung_disk;
mod kept_lines;
mod measure;
mod program;
mod rehearsal;
mod role;
mod shown_line;
mod standby;

pub use described::new_guards;
pub(crate) use described::{beside, guards_in, work_time};
pub use env::JobEnv;
pub(crate) use env::variables;
pub use error::{HookProblem, JobError};
pub(crate) use fitness::check_fitness;
pub(crate) use follow_runs::follow_runs;
pub use hook::{AsyncHooks, HookRuns, run_hook};
pub(crate) use hung_disk::HungDisk;
pub(crate) use kept_lines::WhoseOutput;
pub use measure::run_measure;
pub(crate) use program::ask_program;
pub(crate) use rehearsal::{Rehearsals, rehearse};
pub(crate) use role::SeenLeader;
pub(crate) use shown_line::ShownLine;
pub(crate) use standby::{HandedStandby, Standby, standby_name};
