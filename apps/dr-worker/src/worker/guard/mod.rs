//! The guard: a small process between the worker and its job, which ends the job when the worker
//! can't.
//!
//! ```text
//!   worker ── orders: start, until, stop ──▶ guard ── starts, signals, reaps ──▶ job
//!     ◀────── reports: started, exited, gone ──┘                                  └─▶ its children
//! ```
//!
//! What it is there for: a worker that hangs, is frozen or is killed must not leave a job running
//! past its lease. So the guard
//! * has one thread, no runtime, no network, and writes only where writing can't block;
//! * knows the end of the lease, and has killed the job by then unless the worker renewed it;
//! * takes the end of its socket to the worker for the worker's death, and ends the job;
//! * is the subreaper of the job's tree: whatever the job forks stays its descendant, however it
//!   hides, and the tree is gone when the kernel says that no child is left (`ECHILD`);
//! * passes the job's output on to the worker, and drops it rather than wait;
//! * keeps the worker's lock file locked until then (it holds the descriptor and never uses it);
//! * notes what it runs in a file before it does, and removes that file when nothing of it is left;
//! * takes the job with it when it is itself killed (the parent-death signal of the job's main
//!   process; the rest of the tree falls to the worker, see [`crate::worker::job`]).
//!
//! It outlives the worker by design, so it asks for no parent-death signal itself; and it stays in
//! the worker's session, in a process group of its own, so that Ctrl-C reaches the worker alone.
//!
//! Not covered: guard and worker killed at the same instant, where no cgroup holds the job. Then the job's
//! main process dies, unless it has changed its user, and its children live on until the next worker of this
//! member ends them by the notes that the guard has left ([`crate::worker::job::sweep`]). `docs/processes.md` has the
//! whole table of what is covered.

pub(crate) mod cgroup;
mod invocation;
mod keeper;
mod launch;
pub(crate) mod plan;
pub(crate) mod protocol;
pub(crate) mod record;
mod relay;
pub(crate) mod tree;

use std::ffi::OsString;
use std::process::ExitCode;

pub(crate) use invocation::{OVER_STDIN, SELF_EXE, VERB};
pub use protocol::{Exit, Why};

use crate::program::program;
use invocation::{EXEC, EXIT_USAGE};

/// `dr-worker guard ARGS`: runs a guard to its end. `args` are those after the verb.
///
/// Must be called before the process starts a thread.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    match args.next() {
        Some(option) if option == EXEC => launch::exec_stage(args),
        Some(option) if option == OVER_STDIN => keeper::run(),
        _ => {
            let program = program();
            eprintln!("{program} {VERB}: started by `{program} run` for each job, not by hand");
            ExitCode::from(EXIT_USAGE)
        }
    }
}
