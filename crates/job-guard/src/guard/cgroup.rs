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

use nix::unistd::Uid;

use super::protocol::Launch;
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
    /// Makes the cgroup. If it exists, kills the processes in it, which were left by a guard that was killed together with its
    /// worker, and makes it again: the earlier one may be frozen, or have limits, and controllers for cgroups of its own.
    ///
    /// # Errors
    /// If it can't be made or emptied.
    pub(super) fn create(dir: &Path) -> io::Result<Cgroup> {
        let mut left = io::Error::other(format!("{} holds processes that can't be killed", dir.display()));
        for _ in 0..LEFTOVERS_GRACE.as_millis() / 10 {
            match fs::create_dir(dir) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Cgroup { dir: dir.to_owned() }),
            }
            if !is_empty(dir)? {
                kill(dir)?;
            } else if let Err(error) = remove(dir) {
                left = error;
            } else {
                continue;
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err(left)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Sets a limit by a file of a controller.
    ///
    /// # Errors
    /// Why it can't be set.
    fn set(&self, controller: &str, file: &str, limit: u64) -> Result<(), String> {
        let parent = self.dir.parent().unwrap_or(&self.dir);
        // Refused where the parent has processes of its own or lacks the controller.
        let _ = fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"));
        let file = self.dir.join(file);
        if !file.exists() {
            return Err(lack(parent, controller)
                .unwrap_or_else(|| format!("the controller {controller} could not be enabled")));
        }
        fs::write(&file, limit.to_string())
            .map_err(|error| format!("can't write {}: {error}", file.display()))
    }
}

/// Sets those of the limits for which the job's cgroup has a controller. Returns the others, which the program gets as limits
/// of its process, and how each of these falls short, as a sentence.
pub(super) fn limit(cgroup: Option<&Cgroup>, launch: &Launch) -> (Limits, Vec<String>) {
    let mut unmet = Vec::new();
    let mut set = |name: &str, controller, file, limit: Option<u64>, instead: &str| {
        let limit = limit?;
        let done = cgroup.ok_or(NOT_DELEGATED.to_owned()).and_then(|own| own.set(controller, file, limit));
        let why = done.err()?;
        unmet.push(format!("limits.{name} {instead}: {why}"));
        Some(limit)
    };
    let user = launch.run_as.as_ref().map_or(Uid::effective(), |identity| Uid::from_raw(identity.uid));
    let of_user =
        if user.is_root() { "does not apply to root" } else { "counts all processes of the job's user" };
    let of_process =
        "is the address space of each process; some programs (Java, Go) reserve much more than they use";
    let limits = Limits {
        memory: set("memory", "memory", "memory.max", launch.limits.memory, of_process),
        processes: set("processes", "pids", "pids.max", launch.limits.processes, of_user),
        ..launch.limits
    };
    (limits, unmet)
}

/// Why a job has no cgroup.
const NOT_DELEGATED: &str = "this worker has no cgroup to divide (Delegate=yes in its systemd unit)";

/// Why cgroups that are made in `dir` can't have a controller; `None` if they can.
pub fn lack(dir: &Path, controller: &str) -> Option<String> {
    let text = |file: &str| fs::read_to_string(dir.join(file)).unwrap_or_default();
    let has = |file: &str| text(file).split_ascii_whitespace().any(|word| word == controller);
    let shown = dir.display();
    if has("cgroup.subtree_control") {
        return None;
    }
    if !has("cgroup.controllers") {
        return Some(format!(
            "the controller {controller} is missing in {shown}: it is not delegated, or version 1 of cgroups uses it"
        ));
    }
    (!text("cgroup.procs").trim().is_empty()).then(|| {
        format!(
            "the controller {controller} can't be enabled in {shown}, which has processes of its own: the worker has to run in \
             a cgroup below it (DelegateSubgroup=worker in its unit, with systemd 254 or newer)"
        )
    })
}

/// Sends SIGKILL to every process inside, of any user, at once (Linux 5.14).
///
/// # Errors
/// As the kernel refuses it; [`io::ErrorKind::NotFound`] if there is no such cgroup.
pub(crate) fn kill(dir: &Path) -> io::Result<()> {
    with_reserve(|| fs::write(dir.join("cgroup.kill"), "1"))
}

/// Freezes every process inside, or continues them (Linux 5.2). A frozen process can be killed.
///
/// # Errors
/// As the kernel refuses it.
pub(super) fn freeze(dir: &Path, frozen: bool) -> io::Result<()> {
    with_reserve(|| fs::write(dir.join("cgroup.freeze"), if frozen { "1" } else { "0" }))
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

/// Removes the cgroup, with those that the job has made in it, if it is empty.
///
/// # Errors
/// As the kernel refuses it.
pub(crate) fn remove(dir: &Path) -> io::Result<()> {
    for below in with_reserve(|| children(dir))? {
        remove(&below)?;
    }
    fs::remove_dir(dir)
}

/// The cgroups in this one. Paths, because an entry keeps the directory open.
fn children(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The next worker finds one that is not empty by its record.
        let _ = remove(&self.dir);
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
    use crate::config::Identity;

    /// A cgroup as its files describe it, with one of a job in it.
    fn described(files: &[(&str, &str)]) -> (tempfile::TempDir, Cgroup) {
        let dir = tempfile::tempdir().expect("a directory");
        let job = Cgroup { dir: dir.path().join("job") };
        fs::create_dir(job.dir()).expect("a directory");
        for (file, text) in files {
            fs::write(dir.path().join(file), text).expect("a file");
        }
        (dir, job)
    }

    fn launch(limits: Limits, uid: u32) -> Launch {
        let identity = Identity { uid, gid: uid, groups: Vec::new(), account: None };
        Launch { run_as: Some(identity), limits, ..Launch::default() }
    }

    const LIMITS: Limits = Limits { open_files: Some(64), processes: Some(9), memory: Some(1 << 30) };

    #[test]
    fn each_limit_without_a_controller_is_named_with_the_reason() {
        let (_dir, none) = described(&[("cgroup.controllers", "cpu pids"), ("cgroup.procs", "17\n")]);
        let (limits, unmet) = limit(Some(&none), &launch(LIMITS, 1000));
        assert_eq!(limits, LIMITS);
        assert!(unmet[0].starts_with("limits.memory is the address space of each process"), "{unmet:?}");
        assert!(unmet[0].contains("the controller memory is missing in"), "{unmet:?}");
        assert!(unmet[1].starts_with("limits.processes counts all processes of the job's user"), "{unmet:?}");
        assert!(unmet[1].contains("the controller pids can't be enabled in"), "{unmet:?}");
        assert!(unmet[1].contains("DelegateSubgroup=worker"), "{unmet:?}");

        let (limits, unmet) = limit(None, &launch(Limits { memory: None, ..LIMITS }, 0));
        assert_eq!(limits.processes, Some(9));
        assert_eq!(unmet.len(), 1);
        assert!(unmet[0].starts_with("limits.processes does not apply to root: this worker has no cgroup"));
        assert_eq!(limit(None, &launch(Limits::default(), 0)).1, Vec::<String>::new());
    }

    #[test]
    fn a_limit_with_a_controller_is_set_in_the_cgroup_alone() {
        let (_dir, own) = described(&[("cgroup.controllers", "cpu memory pids"), ("cgroup.procs", "")]);
        fs::write(own.dir().join("memory.max"), "max").expect("a file");
        fs::write(own.dir().join("pids.max"), "max").expect("a file");
        let (limits, unmet) = limit(Some(&own), &launch(LIMITS, 0));
        assert_eq!(limits, Limits { open_files: Some(64), ..Limits::default() });
        assert_eq!(unmet, Vec::<String>::new());
        assert_eq!(fs::read_to_string(own.dir().join("memory.max")).expect("a file"), "1073741824");
        assert_eq!(fs::read_to_string(own.dir().join("pids.max")).expect("a file"), "9");
    }

    #[test]
    fn a_cgroup_without_processes_can_have_what_was_delegated() {
        let (dir, _job) = described(&[("cgroup.controllers", "memory pids"), ("cgroup.procs", "")]);
        assert_eq!(lack(dir.path(), "memory"), None);
        assert!(lack(dir.path(), "cpu").is_some());
        fs::write(dir.path().join("cgroup.procs"), "1").expect("a file");
        assert!(lack(dir.path(), "memory").is_some());
        fs::write(dir.path().join("cgroup.subtree_control"), "memory").expect("a file");
        assert_eq!(lack(dir.path(), "memory"), None, "the service manager has enabled it");
    }
}
