//! A part of the cgroups of version 2, for tests.
#![allow(unreachable_pub, reason = "two kinds of tests use it")]

use std::path::{Path, PathBuf};
use std::time::Duration;

/// A cgroup to make others in, removed with all of them; `None` where this user can't have one.
pub struct CgroupRoot(pub PathBuf);

impl CgroupRoot {
    pub fn new(name: &str) -> Option<CgroupRoot> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("/proc");
        let mount = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (point, filesystem) = (fields.next()?, fields.next()?);
            (filesystem == "cgroup2").then_some(point)
        })?;
        let dir = Path::new(mount).join(format!("dr-test-{}-{name}", std::process::id()));
        std::fs::create_dir(&dir).ok()?;
        dir.join("cgroup.kill").exists().then_some(CgroupRoot(dir))
    }
}

impl Drop for CgroupRoot {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("cgroup.kill"), "1");
        for _ in 0..100 {
            for below in ["job-orders", "worker"] {
                let _ = std::fs::remove_dir(self.0.join(below));
            }
            if std::fs::remove_dir(&self.0).is_ok() {
                break;
            }
            // It is empty once the last process has ended.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
