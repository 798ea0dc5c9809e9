//! Stops all processes of a tree without ending them, and continues them.
//!
//! In a cgroup of its own the kernel freezes the tree as a whole, and every process that is forked or moved there. Without
//! one each process gets SIGSTOP, until a look at the whole tree finds none that runs: what is stopped forks no more.
//!
//! A process that has called vfork does not stop while its child, stopped itself, has not called exec. It does nothing
//! either, so it counts as stopped once it has got the signal, as it does in a cgroup.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::cgroup;
use super::tree::{Process, descendants};

/// How many looks one attempt takes: a process needs a moment to stop.
const LOOKS: usize = 20;

/// What was stopped of a tree.
#[derive(Debug, Default)]
pub(super) struct Freezer {
    is_cgroup_frozen: bool,
    /// The processes that got SIGSTOP, and when each was started. One that was stopped before is not continued.
    stopped: BTreeMap<Pid, u64>,
}

impl Freezer {
    /// Stops the descendants of `root`, all of which are in the cgroup if there is one. True once none of them runs. Called
    /// again, it also stops those that another process has continued.
    ///
    /// # Errors
    /// If the processes can't be determined.
    pub(super) fn freeze(&mut self, root: Pid, cgroup: Option<&Path>) -> io::Result<bool> {
        if let Some(dir) = cgroup
            && (self.is_cgroup_frozen || cgroup::freeze(dir, true).is_ok())
        {
            self.is_cgroup_frozen = true;
            return cgroup::is_frozen(dir);
        }
        for _ in 0..LOOKS {
            if self.stop_running(root)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if each descendant was stopped before.
    fn stop_running(&mut self, root: Pid) -> io::Result<bool> {
        let mut all_rest = true;
        for pid in descendants(root)? {
            let Some(process) = Process::read(pid)? else { continue };
            if process.rests()? {
                continue;
            }
            if self.stopped.get(&pid) == Some(&process.started) && process.waits_for_exec()? {
                continue;
            }
            all_rest = false;
            // An error means that it has ended, or that it is another user's: then the tree does not count as stopped.
            if kill(pid, Signal::SIGSTOP).is_ok() {
                self.stopped.insert(pid, process.started);
            }
        }
        Ok(all_rest)
    }

    /// Continues what was stopped. Returns false if the cgroup is still frozen, because it can't be written: call it again.
    pub(super) fn thaw(&mut self, cgroup: Option<&Path>) -> bool {
        if let Some(dir) = cgroup
            && self.is_cgroup_frozen
        {
            self.is_cgroup_frozen = cgroup::freeze(dir, false).is_err();
        }
        for (pid, started) in std::mem::take(&mut self.stopped) {
            // The pid may be another process's by now.
            if matches!(Process::read(pid), Ok(Some(process)) if process.started == started) {
                let _ = kill(pid, Signal::SIGCONT);
            }
        }
        !self.is_cgroup_frozen
    }

    /// Whether the cgroup is to be continued yet.
    pub(super) fn is_cgroup_frozen(&self) -> bool {
        self.is_cgroup_frozen
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// A shell, and another one below it that starts programs all the time, by vfork.
    struct Tree(Child);

    impl Tree {
        fn start() -> Tree {
            let script = "sh -c 'while :; do /bin/true; done'; :";
            Tree(Command::new("sh").args(["-c", script]).spawn().expect("spawn"))
        }

        fn root(&self) -> Pid {
            Pid::from_raw(self.0.id().cast_signed())
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            for pid in descendants(self.root()).unwrap_or_default() {
                let _ = kill(pid, Signal::SIGKILL);
            }
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_cgroup_that_can_not_be_continued_is_continued_later() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut freezer = Freezer { is_cgroup_frozen: true, ..Freezer::default() };
        std::fs::create_dir(dir.path().join("cgroup.freeze")).expect("nothing that can be written");
        assert!(!freezer.thaw(Some(dir.path())));
        std::fs::remove_dir(dir.path().join("cgroup.freeze")).expect("empty");
        assert!(freezer.thaw(Some(dir.path())));
        assert_eq!(std::fs::read_to_string(dir.path().join("cgroup.freeze")).expect("written"), "0");
    }

    #[test]
    fn a_process_in_the_middle_of_starting_another_can_be_frozen() {
        let tree = Tree::start();
        let mut freezer = Freezer::default();
        for round in 0..200 {
            while descendants(tree.root()).expect("readable").len() < 2 {
                std::thread::yield_now();
            }
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while !freezer.freeze(tree.root(), None).expect("readable") {
                assert!(std::time::Instant::now() < deadline, "round {round}: it still runs");
            }
            assert!(freezer.thaw(None));
        }
    }
}
