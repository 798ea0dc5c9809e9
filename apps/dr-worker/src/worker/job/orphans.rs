//! The worker as the last resort of what a killed guard leaves behind.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{WaitOptions, waitpid};
use tokio::signal::unix::{self, SignalKind};

use crate::worker::guard::tree::{self, Process};

/// How often orphans are looked for, should no death be heard of.
const TEND_INTERVAL: Duration = Duration::from_secs(1);

/// How often the children are listed for a list that stays the same.
const LOOKS: usize = 20;

static ADOPTING: AtomicBool = AtomicBool::new(false);

/// The children that are this process's own: guards, and nothing else. With when each was started: the number of
/// one that the runtime has reaped may be an orphan's.
static GUARDS: Mutex<BTreeMap<Pid, u64>> = Mutex::new(BTreeMap::new());

/// For a guard whose start was not seen.
const UNSEEN: u64 = u64::MAX;

/// Makes this process the parent of whatever a dying guard leaves behind, so that even those of a
/// job's processes that hid in sessions of their own can be found and killed.
///
/// To be called once, by a process that starts no child but through [`crate::worker::job`]: when a guard
/// dies, every child that is no guard is taken for its leavings, and is killed.
///
/// # Errors
/// As the kernel refuses it, or without descriptors to keep in reserve.
pub fn adopt_orphans() -> io::Result<()> {
    tree::keep_reserve()?;
    prctl::set_child_subreaper(true)?;
    ADOPTING.store(true, Ordering::Relaxed);
    Ok(())
}

/// The right to spawn: while it is held nobody takes the new child for an orphan.
pub(super) struct Nursery(MutexGuard<'static, BTreeMap<Pid, u64>>);

impl Nursery {
    pub(super) fn enter() -> Nursery {
        // A panic elsewhere leaves the set as good as it was.
        Nursery(GUARDS.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// `pid` is a guard, not yet reaped.
    pub(super) fn born(mut self, pid: Pid) {
        self.forget_reaped();
        // If it can't be seen now, it is a guard whatever it was.
        let started = Process::read(pid).ok().flatten().map_or(UNSEEN, |process| process.started);
        self.0.insert(pid, started);
    }

    /// A guard that was dropped is reaped by the runtime.
    fn forget_reaped(&mut self) {
        self.0.retain(|&guard, started| match Process::read(guard) {
            Ok(Some(process)) => *started == UNSEEN || process.started == *started,
            Ok(None) => false,
            Err(_) => true,
        });
    }

    /// The guard `pid` has been reaped.
    pub(super) fn buried(pid: Pid) {
        Nursery::enter().0.remove(&pid);
    }
}

/// What is left of a job whose guard is gone: the members of the job's session and process group, and
/// whatever this process adopted, living or dead, with all that descends from it. What was adopted is killed
/// and reaped on the way. Empty only once nothing lives: one that was adopted dead may have left a child,
/// which is adopted by the next look.
///
/// # Errors
/// If it can't be known what is left.
pub(super) fn remains(job: Option<Pid>) -> io::Result<Vec<Pid>> {
    let mut found: Vec<Pid> = Vec::new();
    if let Some(job) = job {
        let kin = |process: &Process| process.session == job || process.group == job;
        found.extend(tree::all()?.iter().filter(|p| kin(p) && !p.is_dead()).map(|process| process.pid));
    }
    for orphan in adopted()? {
        found.push(orphan);
        // At once: it may be about to start another.
        let _ = kill(orphan, Signal::SIGKILL);
        found.extend(tree::descendants(orphan)?);
        end(orphan);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Ends and reaps what this process adopts, whoever left it: a guard that was killed after its job had
/// been dropped has nobody else who would. To be run beside everything else, by the process that
/// [adopts](adopt_orphans).
///
/// # Errors
/// If the deaths of children can't be heard of.
///
/// # Cancel safety
/// Cancel safe.
pub async fn tend_orphans() -> io::Result<()> {
    let mut deaths = unix::signal(SignalKind::child())?;
    loop {
        // Where it can't be seen who is left, the next death, or the next second, shows it.
        for orphan in adopted().unwrap_or_default() {
            end(orphan);
        }
        let _ = tokio::time::timeout(TEND_INTERVAL, deaths.recv()).await;
    }
}

/// Kills an adopted child, and reaps it if it is dead.
fn end(orphan: Pid) {
    let _ = kill(orphan, Signal::SIGKILL);
    let _ = waitpid(rustix::process::Pid::from_raw(orphan.as_raw()), WaitOptions::NOHANG);
}

/// The children of this process that it did not start.
///
/// The kernel's list can leave one out where another one is reaped while it is read. So it is read until it
/// says the same twice.
///
/// # Errors
/// If that can't be known.
fn adopted() -> io::Result<Vec<Pid>> {
    if !ADOPTING.load(Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let me = Pid::this();
    let mut nursery = Nursery::enter();
    let mut children = tree::children(me)?;
    for look in 0.. {
        let again = tree::children(me)?;
        if again == children {
            break;
        }
        children = again;
        if look == LOOKS {
            return Err(Errno::EAGAIN.into());
        }
    }
    nursery.forget_reaped();
    children.retain(|child| !nursery.0.contains_key(child));
    Ok(children)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_that_was_reaped_unseen_leaves_the_registry() {
        let mut child = std::process::Command::new("true").spawn().expect("spawn");
        let pid = Pid::from_raw(child.id().cast_signed());
        Nursery::enter().born(pid);
        let is_known = || {
            let mut nursery = Nursery::enter();
            nursery.forget_reaped();
            nursery.0.contains_key(&pid)
        };
        assert!(is_known(), "it is not reaped yet");
        child.wait().expect("wait");
        assert!(!is_known());
        // Its number is another's.
        Nursery::enter().0.insert(Pid::this(), 1);
        Nursery::enter().forget_reaped();
        assert!(!Nursery::enter().0.contains_key(&Pid::this()));
    }
}
