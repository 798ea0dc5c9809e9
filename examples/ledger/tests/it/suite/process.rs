//! The program under test as a process that ends with the test, however it ends.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::wait_until;

pub struct Ledger {
    child: Child,
    stdout: File,
    stderr: File,
}

/// How a process ended.
pub struct Ended {
    /// None: by a signal.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ledger {
    pub fn spawn(arguments: &[&str]) -> Self {
        // Files, not pipes, so that no reader is needed.
        let (stdout, stderr) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_ledger"));
        for variable in ["DR_TERM", "DR_FENCING_TOKEN", "DR_MEMBER", "DR_SITE", "LEDGER_STORE", "PGPASSWORD"]
        {
            command.env_remove(variable);
        }
        let child = command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(stdout.try_clone().unwrap())
            .stderr(stderr.try_clone().unwrap())
            .spawn()
            .unwrap();
        Self { child, stdout, stderr }
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    pub fn freeze(&self) {
        zk_testkit::freeze(self.child.id()).unwrap();
    }

    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Waits until SIGTERM would be handled and not fatal.
    pub fn wait_listening(&self) {
        let term = 1_u64 << (Signal::SIGTERM as i32 - 1);
        wait_until("the program listens to signals", || {
            let status = self.proc_file("status");
            let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim();
            u64::from_str_radix(blocked, 16).unwrap() & term != 0
        });
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Its standard error so far.
    pub fn words(&self) -> String {
        text(&self.stderr)
    }

    pub fn wait_words(&self, part: &str) {
        wait_until(&format!("the program says {part:?}"), || self.words().contains(part));
    }

    /// Waits until it ends by itself.
    pub fn end(mut self) -> Ended {
        wait_until("the program ends", || !self.is_running());
        self.ended()
    }

    /// Kills it at any point.
    pub fn kill(mut self) -> Ended {
        self.child.kill().unwrap();
        self.ended()
    }

    fn ended(&mut self) -> Ended {
        let status = self.child.wait().unwrap();
        Ended { code: status.code(), stdout: text(&self.stdout), stderr: text(&self.stderr) }
    }

    fn proc_file(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.child.id())).unwrap()
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All of a file, through a descriptor with a position of its own: the process that writes shares the position of
/// `file`.
fn text(file: &File) -> String {
    std::fs::read_to_string(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
}
