//! A marked tree of processes, and conditions with a deadline.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Ten times what anything here should take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for a condition.
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        // Between two looks.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for a condition without holding up the runtime.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        // Between two looks.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A directory for one test, and a mark in the environment of all that its job starts. What still
/// carries the mark when the test ends, in panic too, is killed.
pub struct Tree {
    pub dir: tempfile::TempDir,
    mark: String,
}

impl Tree {
    pub fn new() -> Tree {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Tree { dir: tempfile::tempdir().expect("tempdir"), mark: format!("{}-{number}", std::process::id()) }
    }

    /// The living processes that carry the mark, with their names.
    pub fn living(&self) -> Vec<(Pid, String)> {
        living(&self.mark)
    }

    pub fn is_gone(&self) -> bool {
        self.living().is_empty()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    pub fn lines(&self, name: &str) -> Vec<String> {
        self.read(name).lines().map(str::to_owned).collect()
    }

    /// The variable with the mark.
    pub fn variable(&self) -> (String, String) {
        ("DR_TEST_TREE".to_owned(), self.mark.clone())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for (pid, _) in self.living() {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

fn living(mark: &str) -> Vec<(Pid, String)> {
    let wanted = format!("DR_TEST_TREE={mark}");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let environ = environ_of(&entry.path());
        if environ.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes()) {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push((Pid::from_raw(pid), name.trim().to_owned()));
        }
    }
    found
}

/// The environment of a process, empty once it is dead. That of one that is starting a program reads as empty for a
/// moment, which is waited for.
fn environ_of(process: &Path) -> Vec<u8> {
    let moment = Instant::now() + Duration::from_millis(100);
    loop {
        let environ = std::fs::read(process.join("environ")).unwrap_or_default();
        // Neither the dead nor the kernel's own have a program.
        let has_program = std::fs::read_link(process.join("exe")).is_ok();
        if !environ.is_empty() || !has_program || Instant::now() >= moment {
            return environ;
        }
        std::thread::yield_now();
    }
}
