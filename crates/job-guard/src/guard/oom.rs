//! Memory runs out: which process the kernel ends, and whether it has ended one.
//!
//! It ends the process with the highest sum of its memory and its `oom_score_adj`, in thousandths of the memory that has run
//! out. It counts what it has ended: in the memory cgroup of the process that it ends (`memory.events`, or version 1's `memory.oom_control`),
//! and for the machine (`/proc/vmstat`). Other processes in the same cgroup are counted too, so only a rise shortly before
//! the end of a program is taken for its reason.

use std::fs;
use std::path::{Path, PathBuf};

use super::tree::kernel_text;

/// The line of each of these files that has the count.
const COUNT: &str = "oom_kill ";

/// How much the job's `oom_score_adj` exceeds the worker's. A job can be many small processes, and a worker is not small.
const DISTANCE: i32 = 200;

/// Makes the kernel end other processes before this one. Returns the `oom_score_adj` for the job.
pub(super) fn spare_the_guard() -> Option<i32> {
    const OWN: &str = "/proc/self/oom_score_adj";
    let worker = fs::read_to_string(OWN).ok()?.trim().parse().ok()?;
    // Lowering it takes a privilege, raising it does not.
    let _ = fs::write(OWN, "-1000");
    Some(of_job(worker))
}

/// Above the worker's, and no less than that of other services, also if the service manager spares the worker.
fn of_job(worker: i32) -> i32 {
    (worker + DISTANCE).clamp(0, 1000)
}

/// Processes that the kernel has ended.
#[derive(Debug)]
pub(super) struct OomKills {
    file: PathBuf,
    /// The counts at the last two looks, the older one first.
    seen: [u64; 2],
}

impl OomKills {
    /// Of the memory cgroup at `cgroup`, or else of the nearest one above this process.
    pub(super) fn of(cgroup: Option<&Path>) -> OomKills {
        let text = |path: &str| kernel_text(path).unwrap_or_default();
        let own = candidates(&text("/proc/self/mountinfo"), &text("/proc/self/cgroup"));
        let file = cgroup.map(|dir| dir.join("memory.events")).into_iter().chain(own);
        let file = file.into_iter().find(|file| count(file).is_some());
        let file = file.unwrap_or_else(|| "/proc/vmstat".into());
        let now = count(&file).unwrap_or_default();
        OomKills { file, seen: [now; 2] }
    }

    /// Call it now and then.
    pub(super) fn look(&mut self) {
        self.seen = [self.seen[1], count(&self.file).unwrap_or(self.seen[1])];
    }

    /// Whether it has ended one since the look before the last.
    pub(super) fn have_risen(&self) -> bool {
        count(&self.file).is_some_and(|now| now > self.seen[0])
    }
}

fn count(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(COUNT))?.trim().parse().ok()
}

/// The files that may count for the process with this `/proc/self/cgroup`, by `mounts` (`/proc/self/mountinfo`): the nearest
/// cgroup first.
fn candidates(mounts: &str, own: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let is_memory = controllers.split(',').any(|name| name == "memory");
        if !is_memory && !controllers.is_empty() {
            continue;
        }
        let mount = mounts.lines().find_map(|mount| {
            let (mount, filesystem) = mount.split_once(" - ")?;
            let mut fields = mount.split(' ').skip(3);
            let (root, point) = (fields.next()?, fields.next()?);
            let is_this = if is_memory {
                filesystem.starts_with("cgroup ") && filesystem.split([' ', ',']).any(|word| word == "memory")
            } else {
                filesystem.starts_with("cgroup2 ")
            };
            // A container may see a part of the hierarchy only.
            let below = if root == "/" { Some(path) } else { path.strip_prefix(root) };
            below.filter(|_| is_this).map(|below| Path::new(point).join(below.trim_start_matches('/')))
        });
        let Some(dir) = mount else { continue };
        if is_memory {
            found.push(dir.join("memory.oom_control"));
        } else {
            found.extend(dir.ancestors().map(|dir| dir.join("memory.events")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
25 22 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
26 22 0:24 /box /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
27 22 0:25 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
";

    #[test]
    fn a_job_comes_before_its_worker_and_is_not_spared() {
        assert_eq!([-1000, -900, -100, 0, 300, 900].map(of_job), [0, 0, 100, 200, 500, 1000]);
    }

    #[test]
    fn the_nearest_count_comes_first() {
        let found = candidates(MOUNTS, "8:pids:/x\n4:memory:/box/a\n0::/s/dr.service\n");
        assert_eq!(found[0], Path::new("/sys/fs/cgroup/memory/a/memory.oom_control"));
        assert_eq!(found[1], Path::new("/sys/fs/cgroup/unified/s/dr.service/memory.events"));
        assert_eq!(found[2], Path::new("/sys/fs/cgroup/unified/s/memory.events"));
        assert_eq!(candidates(MOUNTS, "4:memory:/elsewhere\n"), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_rise_counts_until_the_second_look_after_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("memory.events");
        let write = |count: u64| fs::write(&file, format!("max 3\noom {count}\noom_kill {count}\n"));
        write(7).expect("a file");
        let mut kills = OomKills::of(Some(dir.path()));
        assert_eq!(kills.file, file);
        assert!(!kills.have_risen());
        write(8).expect("a file");
        assert!(kills.have_risen());
        kills.look();
        assert!(kills.have_risen(), "the look may have come between the kill and the end");
        kills.look();
        assert!(!kills.have_risen());
    }
}
