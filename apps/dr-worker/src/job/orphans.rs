//! The worker as the last resort of what a killed guard leaves behind.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::guard::tree::{self, Process};

static ADOPTING: AtomicBool = AtomicBool::new(false);

/// The children that are this process's own: guards, and nothing else.
static GUARDS: Mutex<BTreeSet<Pid>> = Mutex::new(BTreeSet::new());

/// Makes this process the parent of whatever a dying guard leaves behind, so that even those of a
/// job's processes that hid in sessions of their own can be found and killed.
///
/// To be called once, by a process that starts no child but through [`crate::job`]: when a guard
/// dies, every child that is no guard is taken for its leavings, and is killed.
///
/// # Errors
/// As the kernel refuses it.
pub fn adopt_orphans() -> io::Result<()> {
    prctl::set_child_subreaper(true)?;
    ADOPTING.store(true, Ordering::Relaxed);
    Ok(())
}

/// The right to spawn: while it is held nobody takes the new child for an orphan.
pub(super) struct Nursery(MutexGuard<'static, BTreeSet<Pid>>);

impl Nursery {
    pub(super) fn enter() -> Nursery {
        // A panic elsewhere leaves the set as good as it was.
        Nursery(GUARDS.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// `pid` is a guard.
    pub(super) fn born(mut self, pid: Pid) {
        self.0.insert(pid);
    }

    /// The guard `pid` has been reaped.
    pub(super) fn buried(pid: Pid) {
        Nursery::enter().0.remove(&pid);
    }
}

/// What is left of a job whose guard is gone, SIGKILLed on the way: the members of the job's
/// session and process group, and whatever this process adopted, with all that descends from it.
/// Empty once nothing lives.
pub(super) fn kill_remains(job: Option<Pid>) -> Vec<Pid> {
    let mut found: Vec<Pid> = Vec::new();
    if let Some(job) = job {
        found.extend(
            tree::all()
                .iter()
                .filter(|process| process.session == job || process.group == job)
                .map(|process| process.pid),
        );
    }
    let orphans = adopted();
    for &orphan in &orphans {
        found.push(orphan);
        found.extend(tree::descendants(orphan));
    }
    found.sort_unstable();
    found.dedup();
    found.retain(|&pid| Process::read(pid).is_some_and(|process| !process.is_dead()));
    for &pid in &found {
        let _ = kill(pid, Signal::SIGKILL);
    }
    for orphan in orphans {
        let _ = waitpid(orphan, Some(WaitPidFlag::WNOHANG));
    }
    found
}

/// The children of this process that it did not start.
fn adopted() -> Vec<Pid> {
    if !ADOPTING.load(Ordering::Relaxed) {
        return Vec::new();
    }
    let nursery = Nursery::enter();
    let mut children = tree::children(Pid::this());
    children.retain(|child| !nursery.0.contains(child));
    children
}
