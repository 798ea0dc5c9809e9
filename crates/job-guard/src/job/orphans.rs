//! The worker ends the processes that a killed guard leaves behind.

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
use tokio::{
    process::{Child, Command},
    signal::unix::{self, SignalKind},
};

use crate::guard::tree::{self, Process};

/// How often orphans are looked for without a notification of a death.
const TEND_INTERVAL: Duration = Duration::from_secs(1);

/// How often the children are listed at most until two lists agree.
const LOOKS: usize = 20;

static ADOPTING: AtomicBool = AtomicBool::new(false);

/// The children that this process has started: guards, and commands of notifications. With the start time of each,
/// because the pid of a reaped child may be reused by an orphan.
static STARTED: Mutex<BTreeMap<Pid, u64>> = Mutex::new(BTreeMap::new());

/// The start time of a child that could not be read.
const UNSEEN: u64 = u64::MAX;

/// Makes this process the parent of the processes that a dying guard leaves behind. So a job's processes are found and
/// killed even if they have their own sessions.
///
/// Call it once, in a process that starts children only by [`start_child`]: every other child is treated as an orphan, and is
/// killed.
///
/// # Errors
/// If the kernel refuses it, or no descriptors are left for the reserve.
pub fn adopt_orphans() -> io::Result<()> {
    tree::keep_reserve()?;
    prctl::set_child_subreaper(true)?;
    ADOPTING.store(true, Ordering::Relaxed);
    Ok(())
}

/// Registers guards that the program before this one has handed over, before [`adopt_orphans`]: they are no orphans.
pub fn adopt_guards(guards: impl IntoIterator<Item = i32>) {
    guards.into_iter().for_each(|pid| ChildRegistry::lock().register(Pid::from_raw(pid)));
}

/// Starts a child that is no orphan, and registers it before it can be taken for one.
///
/// # Errors
/// Any error of the system.
pub fn start_child(command: &mut Command) -> io::Result<(Child, Pid)> {
    // No list of children is read in between.
    let registry = ChildRegistry::lock();
    let child = command.spawn()?;
    let pid = child
        .id()
        .and_then(|pid| i32::try_from(pid).ok())
        .map(Pid::from_raw)
        .ok_or_else(|| io::Error::other("the child has no process id"))?;
    registry.register(pid);
    Ok((child, pid))
}

/// No child but these exists, and none is started while this is held.
pub struct NoOthers(#[expect(dead_code, reason = "it is locked")] ChildRegistry);

/// Whether no child but these exists.
///
/// # Errors
/// How many others there are: guards of hooks, probes and measurements, and commands of notifications.
pub fn no_guards_but(guards: &[i32]) -> Result<NoOthers, usize> {
    let mut registry = ChildRegistry::lock();
    registry.forget_reaped();
    match registry.0.keys().filter(|pid| !guards.contains(&pid.as_raw())).count() {
        0 => Ok(NoOthers(registry)),
        others => Err(others),
    }
}

/// The registry of the children that this process has started. While it is locked, no new child is treated as an orphan.
pub(super) struct ChildRegistry(MutexGuard<'static, BTreeMap<Pid, u64>>);

impl ChildRegistry {
    pub(super) fn lock() -> ChildRegistry {
        // A panic elsewhere leaves the set intact.
        ChildRegistry(STARTED.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Registers the child `pid`, which is not reaped yet. Those that were reaped unseen stay until the next
    /// [`adopted`]: to look at each of a thousand guards when the next one starts takes seconds in all.
    fn register(mut self, pid: Pid) {
        // Without a start time the pid alone counts.
        let started = Process::read(pid).ok().flatten().map_or(UNSEEN, |process| process.started);
        self.0.insert(pid, started);
    }

    /// Removes children that the runtime has reaped.
    fn forget_reaped(&mut self) {
        self.0.retain(|&child, started| match Process::read(child) {
            Ok(Some(process)) => *started == UNSEEN || process.started == *started,
            Ok(None) => false,
            Err(_) => true,
        });
    }

    /// Removes the child `pid`, which has been reaped.
    pub(super) fn reaped(pid: Pid) {
        ChildRegistry::lock().0.remove(&pid);
    }
}

/// The session and the process group of a job, whose leader is its main process.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobSession {
    leader: Pid,
    /// When that was started: zero if it had ended before it was seen, `None` if it could not be seen.
    started: Option<u64>,
}

impl JobSession {
    /// Call it soon after the start of the leader.
    pub(super) fn of(leader: Pid) -> JobSession {
        let seen = Process::read(leader).ok();
        JobSession { leader, started: seen.map(|process| process.map_or(0, |process| process.started)) }
    }

    /// Those of its processes that are alive.
    fn members(self, all: &[Process]) -> Vec<Pid> {
        let is_another =
            |p: &Process| p.pid == self.leader && self.started.is_some_and(|own| own != p.started);
        if all.iter().any(is_another) {
            // The number has been given again.
            return Vec::new();
        }
        let is_member = |p: &&Process| p.session == self.leader || p.group == self.leader;
        all.iter().filter(is_member).filter(|p| !p.is_dead()).map(|p| p.pid).collect()
    }
}

/// The remaining processes of a job whose guard is gone: the job's session and process group, and the orphans that this
/// process has adopted, alive or dead, with their descendants. Orphans are killed and reaped on the way. Empty only if
/// none is alive: a zombie may have left a child, which the next call finds.
///
/// # Errors
/// If the remaining processes can't be determined.
pub(super) fn remains(job: Option<JobSession>) -> io::Result<Vec<Pid>> {
    let mut found = match job {
        Some(job) => job.members(&tree::all()?),
        None => Vec::new(),
    };
    for orphan in adopted()? {
        found.push(orphan);
        // At once: it may be about to start another process.
        let _ = kill(orphan, Signal::SIGKILL);
        found.extend(tree::descendants(orphan)?);
        end(orphan);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Kills and reaps all orphans that this process adopts. No other task does so if a guard is killed after its job was
/// dropped. Run it in the background, in the process that called [`adopt_orphans`].
///
/// # Errors
/// If SIGCHLD can't be handled.
///
/// # Cancel safety
/// Cancel safe.
pub async fn tend_orphans() -> io::Result<()> {
    let mut deaths = unix::signal(SignalKind::child())?;
    loop {
        // If the orphans can't be listed, the next death or the next interval shows them.
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

/// The children that this process did not start.
///
/// The kernel's list can omit a child while another one is reaped. So it is read until two lists agree.
///
/// # Errors
/// If they can't be determined.
fn adopted() -> io::Result<Vec<Pid>> {
    if !ADOPTING.load(Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let me = Pid::this();
    let mut registry = ChildRegistry::lock();
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
    registry.forget_reaped();
    children.retain(|child| !registry.0.contains_key(child));
    Ok(children)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_whose_number_was_given_again_has_no_members() {
        let process = |pid: i32, started: u64| {
            let line = format!("{pid} (x) S 1 21 21 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {started}");
            tree::parse_stat(&line).expect("well formed")
        };
        let members = |started, all: &[Process]| {
            let session = JobSession { leader: Pid::from_raw(21), started };
            session.members(all).into_iter().map(Pid::as_raw).collect::<Vec<_>>()
        };
        let all = [process(21, 100), process(22, 110)];
        assert_eq!(members(Some(100), &all), [21, 22]);
        assert_eq!(members(None, &all), [21, 22], "it could not be seen");
        assert_eq!(members(Some(90), &all), Vec::<i32>::new());
        assert_eq!(members(Some(0), &all), Vec::<i32>::new(), "it had ended before");
        assert_eq!(members(Some(90), &all[1..]), [22], "it has ended since");
    }

    #[test]
    fn a_child_that_was_reaped_unseen_leaves_the_registry() {
        let mut child = std::process::Command::new("true").spawn().expect("spawn");
        let pid = Pid::from_raw(child.id().cast_signed());
        ChildRegistry::lock().register(pid);
        let is_known = || {
            let mut registry = ChildRegistry::lock();
            registry.forget_reaped();
            registry.0.contains_key(&pid)
        };
        assert!(is_known(), "it is not reaped yet");
        child.wait().expect("wait");
        assert!(!is_known());
        // A pid that was reused.
        ChildRegistry::lock().0.insert(Pid::this(), 1);
        ChildRegistry::lock().forget_reaped();
        assert!(!ChildRegistry::lock().0.contains_key(&Pid::this()));
    }
}
