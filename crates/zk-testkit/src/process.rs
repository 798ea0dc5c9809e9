//! Reads processes from `/proc`, and freezes them.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

/// The maximum time of a stop by SIGSTOP on a busy machine.
const FREEZES_WITHIN: Duration = Duration::from_secs(10);

/// SIGSTOP to a process, and a wait of at most 10 s until none of its threads runs any more. Without the wait a test
/// may assume too early that the process does nothing: the other threads run on until the one that has the signal
/// gets a processor, which takes long on a busy machine. Blocks the thread that calls it.
///
/// ```
/// let mut program = std::process::Command::new("sleep").arg("1000").spawn()?;
/// zk_testkit::freeze(program.id())?;
/// program.kill()?;
/// program.wait()?;
/// assert!(zk_testkit::freeze(program.id()).is_err());
/// assert!(zk_testkit::freeze(0).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// There is no such process, it belongs to another user, or it has not stopped within that time: it waits for a disk.
pub fn freeze(pid: u32) -> io::Result<()> {
    // 0 and negative numbers are groups of processes.
    let one = i32::try_from(pid).ok().filter(|pid| *pid > 0).ok_or(io::ErrorKind::InvalidInput)?;
    signal::kill(Pid::from_raw(one), Signal::SIGSTOP)?;
    let deadline = Instant::now() + FREEZES_WITHIN;
    // One that is gone by now was there, and does nothing either.
    while threads(pid).is_some_and(|mut states| states.any(|state| !matches!(state, 'T' | 't' | 'X' | 'Z'))) {
        if Instant::now() >= deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{pid} still runs after SIGSTOP")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The states of those threads of a process that are still there; `None` if it is gone.
pub(crate) fn threads(pid: u32) -> Option<impl Iterator<Item = char>> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    Some(tasks.flatten().filter_map(|task| field_of(&task.path(), 0)?.chars().next()))
}

/// One of the fields that follow the name of a process or thread, which is in parentheses.
pub(crate) fn field_of(task: &Path, index: usize) -> Option<String> {
    let stat = fs::read_to_string(task.join("stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(index).map(str::to_owned)
}
