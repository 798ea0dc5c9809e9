//! A memory cgroup, of either version.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::unistd::Pid;

/// Removed when dropped, when its last process has ended.
pub struct MemoryGroup {
    dir: PathBuf,
    files: &'static Files,
}

struct Files {
    root: &'static str,
    reclaim: &'static str,
    /// How much to reclaim.
    amount: &'static str,
    limit: &'static str,
    /// The limit of swap: with memory in version 1, without in version 2.
    swap: (&'static str, bool),
}

const VERSIONS: [Files; 2] = [
    Files {
        root: "/sys/fs/cgroup/memory",
        reclaim: "memory.force_empty",
        amount: "0",
        limit: "memory.limit_in_bytes",
        swap: ("memory.memsw.limit_in_bytes", true),
    },
    Files {
        root: "/sys/fs/cgroup",
        reclaim: "memory.reclaim",
        amount: "1G",
        limit: "memory.max",
        swap: ("memory.swap.max", false),
    },
];

impl MemoryGroup {
    /// `None`, loudly, where this user can't have one.
    pub fn new(name: &str) -> Option<MemoryGroup> {
        // Tests of one name run side by side.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("dr-test-{name}-{}-{number}", std::process::id());
        for files in &VERSIONS {
            let dir = Path::new(files.root).join(&name);
            if std::fs::create_dir(&dir).is_err() {
                continue;
            }
            let group = MemoryGroup { dir, files };
            if group.dir.join(files.limit).exists() {
                return Some(group);
            }
        }
        zk_testkit::skip("this test needs a memory cgroup");
        None
    }

    pub fn enter(&self, pid: Pid) {
        std::fs::write(self.dir.join("cgroup.procs"), pid.to_string()).expect("moved");
    }

    /// Takes from memory what can be taken. The kernel spares a page at the first look.
    pub fn reclaim(&self) {
        for _ in 0..5 {
            // Version 2 reports that it found less.
            let _ = std::fs::write(self.dir.join(self.files.reclaim), self.files.amount);
        }
    }

    /// Limits its memory, without swap.
    pub fn limit(&self, bytes: u64) {
        std::fs::write(self.dir.join(self.files.limit), bytes.to_string()).expect("a limit");
        let (swap, with_memory) = self.files.swap;
        // A kernel without swap may have no such file.
        let _ = std::fs::write(self.dir.join(swap), if with_memory { bytes } else { 0 }.to_string());
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            if std::fs::remove_dir(&self.dir).is_ok() {
                break;
            }
            // It is empty once the last process has ended.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
