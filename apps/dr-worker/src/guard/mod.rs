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
//! * takes the end of the order pipe for the worker's death, and ends the job;
//! * is the subreaper of the job's tree: whatever the job forks stays its descendant, however it
//!   hides, and the tree is gone when the kernel says that no child is left (`ECHILD`);
//! * keeps the worker's lock file locked until then (it holds the descriptor and never uses it);
//! * takes the job with it when it is itself killed (the parent-death signal of the job's main
//!   process; the rest of the tree falls to the worker, see [`crate::job`]).
//!
//! It outlives the worker by design, so it asks for no parent-death signal itself; and it stays in
//! the worker's session, in a process group of its own, so that Ctrl-C reaches the worker alone.
//!
//! Not covered: guard and worker killed at the same instant, where no cgroup holds the job: then
//! only the job's main process dies.

mod cgroup;
mod keeper;
mod launch;
mod plan;
pub(crate) mod protocol;
mod signal;
pub(crate) mod tree;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::ExitCode;

use nix::libc::O_NONBLOCK;
use nix::unistd;

pub use plan::KILL_RESERVE;
pub use protocol::{Exit, Why};
pub use signal::{NotAStopSignal, StopSignal};
pub use zk_session::{BootTime, sleep_until};

/// This very image, whatever has become of its file: an upgrade replaces the file while the process
/// runs, and worker, guard and launcher must speak the same protocol.
pub(crate) const SELF_EXE: &str = "/proc/self/exe";

/// The option before the number of the descriptor to report on.
pub(crate) const REPORT_FD: &str = "--report-fd";

const EXIT_USAGE: u8 = 64;

/// `dr-worker guard ARGS`: runs a guard to its end. `args` are those after the verb.
///
/// Orders come on standard input. Must be called before the process starts a thread.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    match args.next() {
        Some(option) if option == launch::EXEC => launch::exec_stage(args),
        Some(option) if option == REPORT_FD => {
            let reports = args.next().and_then(|fd| fd.to_str()?.parse().ok()).and_then(|fd| {
                let mut options = OpenOptions::new();
                options.write(true).custom_flags(O_NONBLOCK);
                inherited(fd, &options).ok()
            });
            match reports {
                Some(reports) => keeper::run(reports),
                None => usage(),
            }
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("dr-worker guard: started by `dr-worker run` for each job, not by hand");
    ExitCode::from(EXIT_USAGE)
}

/// Takes over a pipe that the parent passed as descriptor `fd`, closed on `exec` from now on.
///
/// Opened anew by way of `/proc`, since turning a bare number into an owner is beyond safe code.
fn inherited(fd: RawFd, options: &OpenOptions) -> io::Result<File> {
    let file = options.open(format!("/proc/self/fd/{fd}"))?;
    unistd::close(fd)?;
    Ok(file)
}
