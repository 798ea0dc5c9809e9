//! Processes, as the kernel reports them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use zk_session::BootTime;

/// A variable in the environment of every process that a test starts. Their children inherit it, so each is found after
/// the end of its parents.
const MARK: &str = "DR_E2E_TREE";

const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// All processes with one test's mark.
#[derive(Clone, Debug)]
pub struct Tree {
    dir: PathBuf,
}

impl Tree {
    /// The mark is the test's directory, which no other test has.
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The variable and its value, for new processes.
    pub fn mark(&self) -> (&'static str, &Path) {
        (MARK, &self.dir)
    }

    /// The living processes with the mark.
    pub fn living(&self) -> Vec<u32> {
        let mut mark = OsString::from(format!("{MARK}="));
        mark.push(&self.dir);
        let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| {
            // Unreadable for other users' processes, empty for the dead.
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        })
        .collect()
    }

    /// Waits until none is left; kills and names those that are left at the deadline.
    pub(crate) fn await_none(&self, within: Duration) -> Result<(), String> {
        let deadline = Instant::now() + within;
        loop {
            let left = self.living();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let names: Vec<String> = left.iter().map(|pid| describe(*pid)).collect();
                left.into_iter().for_each(kill_pid);
                return Err(format!("left behind, and killed now: {}", names.join(", ")));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Kills all of them, by pid, until none is left.
    pub(crate) fn kill_all(&self) {
        for _ in 0..200 {
            let left = self.living();
            if left.is_empty() {
                return;
            }
            left.into_iter().for_each(kill_pid);
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

/// SIGKILL to one process.
pub fn kill_pid(pid: u32) {
    signal(pid, Signal::SIGKILL);
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    // An error means that the process is gone.
    let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
}

/// Whether a process exists and is no zombie.
pub fn is_there(pid: u32) -> bool {
    state_of(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// Waits in a thread until none of these processes is there, and returns when that was.
#[must_use]
pub fn when_gone(pids: BTreeSet<u32>) -> JoinHandle<BootTime> {
    thread::spawn(move || {
        while pids.iter().any(|pid| is_there(*pid)) {
            thread::sleep(Duration::from_millis(2));
        }
        BootTime::now()
    })
}

/// Freezes one process; returns when it has stopped, or has ended: a guard of a hook or a measurement can end at any time.
///
/// # Panics
/// If it does neither.
pub fn freeze_pid(pid: u32) {
    let frozen = zk_testkit::freeze(pid);
    assert!(frozen.is_ok() || !is_there(pid), "{}: {frozen:?}", describe(pid));
}

/// SIGCONT to one process.
pub fn thaw_pid(pid: u32) {
    signal(pid, Signal::SIGCONT);
}

/// The name that a process has given itself.
pub fn name_of(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// The children of a process, of all its threads.
pub fn children(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let line = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(line.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    found
}

/// The state of a process by one letter, as in `/proc`; `None` if it does not exist.
pub fn state_of(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it is in parentheses and may contain any character.
    stat.rsplit_once(") ")?.1.chars().next()
}

fn describe(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    format!("{pid} ({})", words.join(" ").trim_end())
}
