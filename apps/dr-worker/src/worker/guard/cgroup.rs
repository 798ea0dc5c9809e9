//! A cgroup v2 for each job, where the worker may make one. No process leaves it by forking.
//!
//! Only `cgroup.procs`, `cgroup.kill` and `cgroup.events` are used, no controller; so it works in
//! any writable part of the hierarchy, such as a systemd unit's with `Delegate=yes`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::tree::{unless_gone, with_reserve};

/// How long to wait for processes that an earlier, killed guard left in the cgroup.
const LEFTOVERS_GRACE: Duration = Duration::from_secs(2);

/// The cgroup; removed when dropped, if it is empty by then.
#[derive(Debug)]
pub(super) struct Cgroup {
    dir: PathBuf,
}

impl Cgroup {
    /// Makes the cgroup. If it exists, kills the processes in it: they were left by a guard that was killed together
    /// with its worker.
    ///
    /// # Errors
    /// If it can't be made or emptied.
    pub(super) fn create(dir: &Path) -> io::Result<Cgroup> {
        match fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let cgroup = Cgroup { dir: dir.to_owned() };
        let rounds = LEFTOVERS_GRACE.as_millis() / 10;
        for _ in 0..rounds {
            if is_empty(dir)? {
                return Ok(cgroup);
            }
            kill(dir)?;
            thread::sleep(Duration::from_millis(10));
        }
        Err(io::Error::other(format!("{} holds processes that can't be killed", cgroup.dir.display())))
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Sends SIGKILL to every process inside, of any user, at once (Linux 5.14).
///
/// # Errors
/// As the kernel refuses it; [`io::ErrorKind::NotFound`] if there is no such cgroup.
pub(crate) fn kill(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("cgroup.kill"), "1")
}

/// Whether no living process is inside. Zombies do not count. A cgroup that has been removed was empty.
///
/// # Errors
/// If this can't be determined.
pub(crate) fn is_empty(dir: &Path) -> io::Result<bool> {
    match with_reserve(|| fs::read_to_string(dir.join("cgroup.events"))) {
        Ok(events) => Ok(events.lines().any(|line| line == "populated 0")),
        Err(error) => unless_gone(error).map(|()| true),
    }
}

/// Removes the cgroup if it is empty.
pub(crate) fn remove(dir: &Path) {
    // The next worker finds one that is not empty by its record.
    let _ = fs::remove_dir(dir);
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

/// Moves the calling process into the cgroup at `dir`.
///
/// # Errors
/// As the kernel refuses it.
pub(super) fn enter(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("cgroup.procs"), "0")
}
