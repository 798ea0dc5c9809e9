//! The guard: a small process between the worker and its job, which ends the job when the worker
//! can't.
//!
//! ```text
//!   worker ── orders: start, until, stop ──▶ guard ── starts, signals, reaps ──▶ job
//!     ◀────── reports: started, exited, gone ──┘                                  └─▶ its children
//! ```
//!
//! A worker that hangs, is frozen or is killed must not leave a job running past its lease. Therefore the guard
//! * has one thread, no async runtime and no network, and writes only where writing can't block;
//! * is locked in memory, so that no page of its program has to be read from a disk that hangs;
//! * knows the end of the lease, and kills the job by then unless the worker renews it;
//! * stops the job's processes (SIGSTOP) while it is not certain that the worker leads, where the policy asks for that;
//! * ends the job when its socket to the worker is closed, which means that the worker died;
//! * is the subreaper of the job's tree: every process that the job forks stays its descendant, and the tree is gone
//!   when the kernel reports that no child is left (`ECHILD`);
//! * passes the job's output on to the worker, and drops it instead of waiting;
//! * keeps the worker's lock file locked until the tree is gone;
//! * records the run in a file before it lets the launcher start the program, and removes the file when no process is left;
//! * ends the job if it is itself killed (by the parent-death signal of the job's main process; the worker ends the
//!   rest of the tree, see [`crate::worker::job`]).
//!
//! The last guard of a dead worker has the worker's ZooKeeper session closed, so that the other members do not wait for its
//! timeout: `last`.
//!
//! A guard is started with three descriptors, of which standard input is the socket: more than these can be passed on only by
//! code between `fork` and `exec`, and `fork` copies the page tables of the worker, which takes long where there are hundreds
//! of jobs. So the lock follows over the socket:
//!
//! ```text
//!   worker ── the lock's descriptor, with the first byte of the orders ──▶ socket ──▶ guard, until its end
//! ```
//!
//! It is held at any time: by the worker, by the descriptor on its way (even if the worker has died), by the guard. The guard
//! has it before it can read the whole order to start, so no job runs without it. If the worker dies in between, the order is
//! not whole, and the guard ends. The descriptor is closed on `exec` in worker and guard, so no launcher and no job has it.
//!
//! It outlives the worker by design, so it sets no parent-death signal for itself. It stays in the worker's session, in
//! its own process group, so that Ctrl-C reaches the worker alone.
//!
//! Not covered: guard and worker are killed at the same instant, and the job has no cgroup. Then the job's main process
//! dies, unless it has changed its user, and its children live until the next worker of this member ends them by the
//! guard's record ([`crate::worker::job::sweep`]). `docs/processes.md` lists every case.

pub(crate) mod cgroup;
mod closing;
pub(crate) mod frames;
mod freezer;
mod invocation;
mod keeper;
mod last;
mod launch;
pub(crate) mod memory;
mod oom;
pub(crate) mod plan;
pub(crate) mod protocol;
pub(crate) mod record;
mod relay;
pub(crate) mod session;
pub(crate) mod tree;

use std::ffi::OsString;
use std::process::ExitCode;

pub(crate) use invocation::{OVER_STDIN, SELF_EXE, VERB};
pub use protocol::{Exit, Why};

use crate::program::program;
use invocation::{CLOSE_SESSION, EXEC, EXIT_USAGE};

/// `dr-worker guard ARGS`: runs a guard to its end. `args` are the arguments after the verb.
///
/// Must be called before the process starts a thread.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    match args.next() {
        Some(option) if option == EXEC => launch::exec_stage(args),
        Some(option) if option == OVER_STDIN => keeper::run(),
        Some(option) if option == CLOSE_SESSION => closing::run(),
        _ => {
            let program = program();
            eprintln!("{program} {VERB}: started by `{program} run` for each job, not by hand");
            ExitCode::from(EXIT_USAGE)
        }
    }
}
