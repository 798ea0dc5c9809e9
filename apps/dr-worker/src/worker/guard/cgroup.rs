//! A cgroup v2 of the job's own, where one may be made: nothing forks its way out of it.
//!
//! Only `cgroup.procs`, `cgroup.kill` and `cgroup.events` are used, no controller; so it works in
//! any writable part of the hierarchy, such as a systemd unit's with `Delegate=yes`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::tree::{unless_gone, with_reserve};

/// How long the processes that an earlier, killed guard left in the cgroup get to vanish.
const LEFTOVERS_GRACE: Duration = Duration::from_secs(2);

/// The cgroup; removed when dropped, if it is empty by then.
#[derive(Debug)]
pub(super) struct Cgroup {
    dir: PathBuf,
}

impl Cgroup {
    /// Makes the cgroup, or takes over the one that is there and kills what it finds in it: left by
    /// a guard that was killed together with its worker.
    ///
    /// # Errors
    /// If it can't be made or can't be emptied.
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

/// SIGKILL to every process inside, of any user, at once (Linux 5.14).
///
/// # Errors
/// As the kernel refuses it; [`io::ErrorKind::NotFound`] if there is no such cgroup.
pub(crate) fn kill(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("cgroup.kill"), "1")
}

/// Whether no living process is inside. Zombies do not count. A cgroup that has been removed was empty.
///
/// # Errors
/// If it can't be known.
pub(crate) fn is_empty(dir: &Path) -> io::Result<bool> {
    match with_reserve(|| fs::read_to_string(dir.join("cgroup.events"))) {
        Ok(events) => Ok(events.lines().any(|line| line == "populated 0")),
        Err(error) => unless_gone(error).map(|()| true),
    }
}

/// Removes an empty one.
pub(crate) fn remove(dir: &Path) {
    // One that is not empty is found by its record.
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
