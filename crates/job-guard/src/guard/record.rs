//! The record of a guard's run, for the next worker if guard and worker are killed together.
//!
//! The file exists from before the program starts until no process of it is left. If a member's lock is free and its
//! directory of records is empty, everything that ran under its guards has ended. A record that is left describes which
//! processes to look for (`crate::job::sweep`). Its name ends with a part of the boot id: after a power cut the file can be
//! empty, and its name still proves that nothing of the run is left.
//!
//! No guard waits for a disk while its program runs, because a disk can hang. The guard starts the launcher first, writes
//! the record once, and then lets the launcher become the program. At the end, guard and worker report that no process is
//! left, then remove the record, and wait neither for the file nor for a guard in an uninterruptible wait.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::tree::Process;
use crate::own_file;

/// One program under a guard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The boot of the machine: none of its processes outlives it.
    pub(crate) boot: String,
    /// The PID namespace in which the process ids are valid.
    pub(crate) pid_namespace: String,
    /// When the guard was started, in clock ticks since the boot. No process of the program is older.
    pub(crate) since: u64,
    /// The worker and its ancestors. Those that live inherit the processes that guard and worker leave behind.
    pub(crate) ancestors: Vec<i32>,
    /// The cgroups of the guard, as in `/proc/self/cgroup`. Everything that it starts begins there.
    pub(crate) hierarchy: String,
    /// The program's own cgroup.
    pub(crate) cgroup: Option<PathBuf>,
    /// The session that the program leads.
    pub(crate) session: i32,
    /// When its leader was started. A process with that number and another start time is not of the program, nor is its session.
    #[serde(default)]
    pub(crate) session_started: Option<u64>,
    /// The name of a program that outlives its worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outlives: Option<String>,
}

impl Record {
    /// The record of what this process is about to start: the launcher makes a session before it becomes the program.
    ///
    /// # Errors
    /// If `/proc` can't be read.
    pub(crate) fn of_this_guard(
        cgroup: Option<&Path>,
        launcher: Pid,
        outlives: Option<&str>,
    ) -> io::Result<Record> {
        let me = Process::read(Pid::this())?.ok_or(io::ErrorKind::NotFound)?;
        let leader = Process::read(launcher)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Record {
            boot: boot()?,
            pid_namespace: pid_namespace()?,
            since: me.started,
            ancestors: ancestors_of(&me)?.iter().map(|pid| pid.as_raw()).collect(),
            hierarchy: fs::read_to_string("/proc/self/cgroup")?,
            cgroup: cgroup.map(Path::to_owned),
            session: launcher.as_raw(),
            session_started: Some(leader.started),
            outlives: outlives.map(str::to_owned),
        })
    }

    /// Reads a record.
    ///
    /// # Errors
    /// If it can't be read, or if no guard has written it: a program leads a session of its own, and neither the kernel's nor
    /// that of the init system.
    pub(crate) fn read(path: &Path) -> io::Result<Record> {
        let record: Record = serde_json::from_slice(&own_file::read_own(path)?)?;
        match record.since > 0 && record.session > 1 {
            true => Ok(record),
            false => Err(io::Error::other(
                "no guard has written this record; remove it once no process of the job is left",
            )),
        }
    }

    /// Writes the record atomically.
    ///
    /// # Errors
    /// Any error of the file system.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        own_file::replace(path, &serde_json::to_vec(self)?)
    }
}

/// This boot of the machine.
///
/// # Errors
/// If `/proc` can't be read.
pub(crate) fn boot() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned())
}

/// The name of the record of a run that these numbers identify during this boot.
///
/// # Errors
/// If `/proc` can't be read.
pub(crate) fn name(numbers: [u128; NUMBERS]) -> io::Result<String> {
    let [pid, now, count] = numbers;
    Ok(format!("{pid}-{now}-{count}-{}", short(&boot()?)))
}

/// Whether the record is of another boot of the machine, by its name.
pub(crate) fn is_of_another_boot(record: &Path) -> bool {
    let name = record.file_name().and_then(OsStr::to_str);
    let named = name.and_then(|name| name.split('-').nth(NUMBERS));
    named.is_some_and(|named| boot().is_ok_and(|boot| named != short(&boot)))
}

/// How many numbers come before the boot in the name of a record.
const NUMBERS: usize = 3;

/// Enough of a boot id to distinguish it from others.
fn short(boot: &str) -> &str {
    boot.split('-').next().unwrap_or_default()
}

/// The PID namespace of this process.
///
/// # Errors
/// If `/proc` can't be read.
pub(crate) fn pid_namespace() -> io::Result<String> {
    fs::read_link("/proc/self/ns/pid").map(|link| link.display().to_string())
}

/// The ancestors of a process, its parent first.
///
/// # Errors
/// If they can't be determined.
pub(crate) fn ancestors_of(process: &Process) -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    let mut parent = process.parent;
    // The first process, and those from another namespace, have the parent 0.
    while parent.as_raw() > 0 && !found.contains(&parent) {
        found.push(parent);
        parent = match Process::read(parent)? {
            Some(process) => process.parent,
            None => break,
        };
    }
    Ok(found)
}
