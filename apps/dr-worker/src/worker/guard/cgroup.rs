//! A cgroup v2 for each job, where the worker may make one. No process leaves it by forking.
//!
//! Only `cgroup.procs`, `cgroup.kill`, `cgroup.freeze` and `cgroup.events` are needed, no controller; so it works in
//! any writable part of the hierarchy, such as a systemd unit's with `Delegate=yes`. Limits use the controllers that are
//! there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::tree::{unless_gone, with_reserve};
use crate::config::Limits;

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
                // A guard that was killed may have left it frozen.
                let _ = freeze(dir, false);
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

    /// Sets those of the limits for which there is a controller, and returns the others.
    pub(super) fn limit(&self, limits: Limits) -> Limits {
        if let (true, Some(parent)) = (limits != Limits::default(), self.dir.parent()) {
            for controller in ["+memory", "+pids"] {
                // Refused where the parent has processes of its own or lacks the controller.
                let _ = fs::write(parent.join("cgroup.subtree_control"), controller);
            }
        }
        let set = |file: &str, limit: Option<u64>| {
            limit.filter(|limit| {
                let file = self.dir.join(file);
                !file.exists() || fs::write(file, limit.to_string()).is_err()
            })
        };
        Limits {
            memory: set("memory.max", limits.memory),
            processes: set("pids.max", limits.processes),
            ..limits
        }
    }
}

/// Sends SIGKILL to every process inside, of any user, at once (Linux 5.14).
///
/// # Errors
/// As the kernel refuses it; [`io::ErrorKind::NotFound`] if there is no such cgroup.
pub(crate) fn kill(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("cgroup.kill"), "1")
}

/// Freezes every process inside, or continues them (Linux 5.2). A frozen process can be killed.
///
/// # Errors
/// As the kernel refuses it.
pub(super) fn freeze(dir: &Path, frozen: bool) -> io::Result<()> {
    fs::write(dir.join("cgroup.freeze"), if frozen { "1" } else { "0" })
}

/// Whether all processes inside are frozen.
///
/// # Errors
/// If this can't be determined.
pub(super) fn is_frozen(dir: &Path) -> io::Result<bool> {
    has_event(dir, "frozen 1")
}

fn has_event(dir: &Path, event: &str) -> io::Result<bool> {
    let events = with_reserve(|| fs::read_to_string(dir.join("cgroup.events")))?;
    Ok(events.lines().any(|line| line == event))
}

/// Whether no living process is inside. Zombies do not count. A cgroup that has been removed was empty.
///
/// # Errors
/// If this can't be determined.
pub(crate) fn is_empty(dir: &Path) -> io::Result<bool> {
    has_event(dir, "populated 0").or_else(|error| unless_gone(error).map(|()| true))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_without_a_controller_are_left_to_others() {
        let dir = tempfile::tempdir().expect("a directory");
        let limits = Limits { open_files: Some(64), processes: Some(9), memory: Some(1 << 30) };
        let none = Cgroup { dir: dir.path().join("job") };
        fs::create_dir(none.dir()).expect("a directory");
        assert_eq!(none.limit(limits), limits);
        fs::write(none.dir().join("memory.max"), "max").expect("a file");
        assert_eq!(none.limit(limits), Limits { memory: None, ..limits });
        assert_eq!(fs::read_to_string(none.dir().join("memory.max")).expect("a file"), "1073741824");
    }
}
