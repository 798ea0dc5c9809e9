//! The last guard of a dead worker carries out the worker's last will.
//!
//! Over the network a dead worker looks like one that is cut off, for as long as a session or a lease lasts. On its host the
//! difference can be proved. The will is carried out only if all of this holds:
//!
//! * The socket to the worker is closed, and the worker is no longer the parent of this process: the kernel gives a process
//!   another parent when no thread of its parent can run any more. The kernel reports the same of a worker that has only continued
//!   with this guard.
//! * No other process has the member's lock. The worker has it, each of its guards (from its order to start until no process of
//!   its job is left; an order on its way counts), and the next worker. So no guard has a job, or is about to start one.
//! * The directory of records has none but those of guards that wait for the next worker. A guard that was killed leaves a record
//!   there, and perhaps processes of its job.
//!
//! In any other case nothing is done.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd, RawFd};
use std::path::Path;
use std::thread;
use std::time::Duration;

use boot_time::BootTime;
use nix::unistd::{self, Pid};

use super::{last_will::LastWill, readable::is_readable, waiting};

/// How long to wait for the end of the worker: a process that is killed closes its descriptors one after the other, and its
/// threads end after that.
const PATIENCE: Duration = Duration::from_secs(1);

/// The first pause between two attempts; it doubles up to the longest one, because a worker can have a thousand guards.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The member's lock, as a guard has it from its worker.
#[derive(Debug)]
pub(super) struct HeldLock {
    /// The worker's process id.
    pub(super) worker: i32,
    /// The worker, if it is not the one that has started this guard.
    pub(super) later: Option<OwnedFd>,
    /// The descriptor: a number, so that nothing closes it before the guard ends, or gives up the lock.
    pub(super) fd: RawFd,
}

impl HeldLock {
    /// Gives up the lock, and carries out the will if no other process had it. `record` was the record of this guard's run.
    /// Call it when no process of the run is left and the socket is closed.
    pub(super) fn release(self, record: &Path, will: &LastWill) {
        // After an error it is not carried out.
        let _ = self.is_due(record).and_then(|is_due| if is_due { will.carry_out() } else { Ok(()) });
    }

    /// Whether a thread of the worker can still run.
    fn worker_lives(&self) -> bool {
        match &self.later {
            Some(worker) => !is_readable(worker.as_fd()),
            None => Pid::parent().as_raw() == self.worker,
        }
    }

    fn is_due(&self, record: &Path) -> io::Result<bool> {
        // The same file, even if its name is another one's by now, with a lock of its own.
        let file = OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{}", self.fd));
        unistd::close(self.fd)?;
        Ok(self.is_last(&file?)? && is_empty(record)?)
    }

    /// Waits until the worker is dead and `file` is locked by this process alone. True for one guard of a worker.
    fn is_last(&self, file: &File) -> io::Result<bool> {
        let by = BootTime::now() + PATIENCE;
        let mut pause = FIRST_PAUSE;
        while self.worker_lives() || file.try_lock().is_err() {
            if BootTime::now() >= by {
                return Ok(false);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        // Others that have waited get the lock after this one.
        let mut written = String::new();
        file.take(32).read_to_string(&mut written)?;
        if written.trim() != self.worker.to_string() {
            return Ok(false);
        }
        file.set_len(0)?;
        Ok(true)
    }
}

/// Whether no record is left beside the one that was `record` and those of programs that outlive their worker.
fn is_empty(record: &Path) -> io::Result<bool> {
    let dir = record.parent().ok_or(io::ErrorKind::NotFound)?;
    for entry in fs::read_dir(dir)? {
        if waiting::connect(&entry?.path()).is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;
    use std::path::PathBuf;
    use std::process::Command;

    use rustix::process::{PidfdFlags, pidfd_open};

    use super::*;

    /// A process id that no process has, so that its owner counts as dead.
    const DEAD: i32 = i32::MAX;

    /// A state directory in which a worker has the lock.
    struct State {
        dir: tempfile::TempDir,
        lock: File,
    }

    impl State {
        fn of(worker: i32) -> State {
            let dir = tempfile::tempdir().expect("tempdir");
            fs::create_dir(dir.path().join("runs")).expect("a directory");
            fs::write(dir.path().join("lock"), format!("{worker}\n")).expect("the worker's pid");
            let lock = File::open(dir.path().join("lock")).expect("the file");
            lock.try_lock().expect("free");
            State { dir, lock }
        }

        /// As a guard receives it.
        fn guard(&self, worker: i32) -> HeldLock {
            HeldLock { worker, later: None, fd: self.lock.try_clone().expect("dup").into_raw_fd() }
        }

        fn record(&self) -> PathBuf {
            self.dir.path().join("runs/one")
        }
    }

    fn is_due(guard: HeldLock, record: &Path) -> bool {
        guard.is_due(record).expect("no error")
    }

    #[test]
    fn one_guard_alone_carries_it_out_and_it_is_the_last() {
        let state = State::of(DEAD);
        let (first, second) = (state.guard(DEAD), state.guard(DEAD));
        let record = state.record();
        drop(state.lock);
        assert!(!is_due(first, &record), "the second one has its job yet");
        assert!(is_due(second, &record));
        let late = File::open(state.dir.path().join("lock")).expect("the file").into_raw_fd();
        assert!(
            !is_due(HeldLock { worker: DEAD, later: None, fd: late }, &record),
            "another one has done it"
        );
    }

    #[test]
    fn the_will_of_a_worker_that_lives_is_not_carried_out() {
        // The socket is closed, and the lock is free.
        let worker = Pid::parent().as_raw();
        let state = State::of(worker);
        let (guard, record) = (state.guard(worker), state.record());
        drop(state.lock);
        assert!(!is_due(guard, &record));
    }

    #[test]
    fn the_will_is_not_carried_out_while_the_worker_or_the_next_one_has_the_lock() {
        let state = State::of(DEAD);
        assert!(!is_due(state.guard(DEAD), &state.record()));
    }

    #[test]
    fn the_will_is_not_carried_out_after_the_next_worker_had_the_lock() {
        let state = State::of(DEAD - 1);
        let (guard, record) = (state.guard(DEAD), state.record());
        drop(state.lock);
        assert!(!is_due(guard, &record));
    }

    #[test]
    fn the_will_of_a_worker_that_has_continued_with_a_guard_is_carried_out_once_it_is_dead() {
        for is_dead in [false, true] {
            let mut worker = Command::new("sleep").arg("1000").spawn().expect("it runs");
            let pid = worker.id().cast_signed();
            let state = State::of(pid);
            let handle = pidfd_open(rustix::process::Pid::from_child(&worker), PidfdFlags::empty());
            let guard = HeldLock { later: Some(handle.expect("a handle")), ..state.guard(pid) };
            let record = state.record();
            drop(state.lock);
            if is_dead {
                worker.kill().expect("it lives");
            }
            assert_eq!(is_due(guard, &record), is_dead);
            let _ = worker.kill();
            worker.wait().expect("its own child");
        }
    }

    #[test]
    fn the_will_is_carried_out_beside_a_program_that_outlives_its_worker() {
        let state = State::of(DEAD);
        let (guard, record) = (state.guard(DEAD), state.record());
        let left = state.dir.path().join("runs/of-a-guard-that-waits");
        fs::write(&left, "").expect("a record");
        let _waiting = waiting::Waiting::listen(&left).expect("it listens");
        drop(state.lock);
        assert!(is_due(guard, &record));
    }

    #[test]
    fn the_will_is_not_carried_out_while_there_is_the_record_of_a_killed_guard() {
        let state = State::of(DEAD);
        let (guard, record) = (state.guard(DEAD), state.record());
        fs::write(state.dir.path().join("runs/of-a-killed-guard"), "").expect("a record");
        drop(state.lock);
        assert!(!is_due(guard, &record));
    }
}
