//! Finds the processes of the demo, and their children.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A variable in every worker's environment with the stage's directory. Its guards and their jobs inherit it, so each can be
/// found after the end of its parent.
pub(crate) const MARK: &str = "DR_DEMO_STAGE";

const LOOK: Duration = Duration::from_millis(20);

/// The processes with the mark of this stage.
pub(crate) fn marked(stage: &Path) -> Vec<u32> {
    let mut mark = OsString::from(format!("{MARK}="));
    mark.push(stage);
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Unreadable for other users' processes, empty for zombies.
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
            found.push(pid);
        }
    }
    found
}

/// Waits until no marked process is left.
///
/// # Errors
/// Processes that are left after that time. They have been killed by their process ids.
pub(crate) fn await_none(stage: &Path, within: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + within;
    let mut is_empty = false;
    loop {
        let left = marked(stage);
        let was_empty = std::mem::replace(&mut is_empty, left.is_empty());
        if was_empty && is_empty {
            return Ok(());
        }
        // A process has no environment for a moment in `exec`: two scans must find none.
        if is_empty || Instant::now() < deadline {
            std::thread::sleep(LOOK);
            continue;
        }
        let names: Vec<String> = left.iter().map(|pid| describe(*pid)).collect();
        for pid in left {
            if let Ok(pid) = i32::try_from(pid) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        bail!("still running {within:?} after the end of every worker, now killed: {}", names.join(", "));
    }
}

fn describe(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    format!("{pid} ({})", words.join(" ").trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn finds_the_children_of_children_and_ends_them() {
        let stage = tempfile::tempdir().unwrap();
        // The shell ends at once.
        let script = "sleep 60 >/dev/null 2>&1 & echo $!";
        let output = Command::new("/bin/sh").args(["-c", script]).env(MARK, stage.path()).output().unwrap();
        let orphan: u32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while marked(stage.path()) != [orphan] || describe(orphan) != format!("{orphan} (sleep 60)") {
            assert!(Instant::now() < deadline, "{:?} instead of {orphan}", marked(stage.path()));
            // Between two looks: the shell ends, and its child starts its program.
            std::thread::sleep(LOOK);
        }

        let said = await_none(stage.path(), Duration::ZERO).unwrap_err().to_string();
        assert!(said.contains(&format!("{orphan} (sleep 60)")), "{said}");
        await_none(stage.path(), Duration::from_secs(10)).unwrap();
    }
}
