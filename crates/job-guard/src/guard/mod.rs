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
//! * knows the deadline (the end of the worker's lease), and kills the job by then unless the worker renews it;
//! * gives a program that runs without a deadline one, and confirms it before the program begins what needs it;
//! * stops the job's processes (SIGSTOP) while it is not certain that the worker leads, where the policy asks for that;
//! * ends the job when its socket to the worker is closed, which means that the worker died; a program that outlives its worker
//!   goes on until the next worker connects, unless it was given a deadline (`waiting`);
//! * is the subreaper of the job's tree: every process that the job forks stays its descendant, and the tree is gone
//!   when the kernel reports that no child is left (`ECHILD`);
//! * passes the job's output on to the worker, and drops it instead of waiting;
//! * keeps the worker's lock file locked until the tree is gone;
//! * records the run in a file before it lets the launcher start the program, and removes the file when no process is left;
//! * ends the job if it is itself killed (by the parent-death signal of the job's main process; the worker ends the
//!   rest of the tree, see [`crate::job`]).
//!
//! The last guard of a dead worker carries out the worker's last will: `last`.
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
//! guard's record (`crate::job::sweep`). `docs/processes.md` of this workspace lists every case.

pub(crate) mod cgroup;
pub(crate) mod frames;
mod freezer;
mod guard_loop;
pub(crate) mod invocation;
mod last;
pub(crate) mod last_will;
mod launch;
pub(crate) mod memory;
mod oom;
pub(crate) mod plan;
pub(crate) mod protocol;
pub(crate) mod readable;
pub(crate) mod record;
mod relay;
pub(crate) mod tree;
pub(crate) mod waiting;

use std::io::{self, Read as _};
use std::process::ExitCode;

use invocation::{EXEC, EXIT_USAGE, LAST_WILL, OVER_STDIN, VERB};

/// Runs a guard to its end if this process was started as one; `None` if it was not.
///
/// Call it first thing in `main`, before anything starts a thread, opens a file or writes to standard output. A guard is the
/// running image of the program that needs it, started again as `PROGRAM guard --over-stdin TITLE`: so the two always speak
/// the same protocol, even if an upgrade has replaced the file, there is nothing else to install, and they share their pages.
pub fn run_if_guard() -> Option<ExitCode> {
    run_if_guard_or(|_| ExitCode::SUCCESS)
}

/// As [`run_if_guard`], in a program whose guards have a [last will](crate::LastWill): `carry_out` gets it, in a process of its
/// own that may start threads.
pub fn run_if_guard_or(carry_out: impl FnOnce(&[u8]) -> ExitCode) -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != VERB {
        return None;
    }
    let option = args.next()?;
    if option == EXEC {
        Some(launch::exec_stage(args))
    } else if option == OVER_STDIN {
        Some(guard_loop::run())
    } else if option == LAST_WILL {
        let mut will = Vec::new();
        let read = io::stdin().lock().read_to_end(&mut will);
        Some(read.map_or(ExitCode::from(EXIT_USAGE), |_| carry_out(&will)))
    } else {
        None
    }
}
