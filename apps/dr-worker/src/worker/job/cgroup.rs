//! The cgroup v2 subtree that a service manager has delegated to this process.

use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

/// The cgroup of this process, if a service manager has delegated it, as with systemd's `Delegate=yes`; `None`
/// otherwise, or if that can't be determined.
///
/// A job in its own cgroup is killed by one write, and is found even if worker and guard were killed together.
pub fn delegated_cgroup() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let dir = locate(&mounts, &own)?;
    is_usable(&dir).then_some(dir)
}

/// The directory of the cgroup that `own` (`/proc/self/cgroup`) names, by `mounts` (`/proc/self/mountinfo`). Only a
/// service unit counts: the root of the hierarchy, a login session's scope and the like belong to others, even if their
/// permissions would allow writing.
fn locate(mounts: &str, own: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    if !path.split('/').any(|unit| unit.ends_with(".service")) {
        return None;
    }
    let mount = mounts.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (filesystem.starts_with("cgroup2 ") && root == "/").then_some(point)
    })?;
    Some(Path::new(mount).join(path))
}

fn is_usable(dir: &Path) -> bool {
    let may_write = |path: &Path| access(path, AccessFlags::W_OK).is_ok();
    // `cgroup.kill`: since Linux 5.14.
    may_write(dir) && may_write(&dir.join("cgroup.procs")) && dir.join("cgroup.kill").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 0:20 / /proc rw,nosuid - proc proc rw
25 22 0:23 / /sys/fs/cgroup rw,nosuid,nodev shared:4 - cgroup2 cgroup2 rw,nsdelegate
";

    #[test]
    fn a_units_own_cgroup_is_found_where_it_is_mounted() {
        assert_eq!(
            locate(MOUNTS, "0::/system.slice/dr-worker.service\n"),
            Some("/sys/fs/cgroup/system.slice/dr-worker.service".into())
        );
        let hybrid = "30 25 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        assert_eq!(
            locate(hybrid, "4:memory:/x\n0::/system.slice/dr-worker.service\n"),
            Some("/sys/fs/cgroup/unified/system.slice/dr-worker.service".into())
        );
    }

    #[test]
    fn what_belongs_to_others_is_left_alone() {
        assert_eq!(locate(MOUNTS, "0::/\n"), None, "the root");
        assert_eq!(locate(MOUNTS, "0::/user.slice/user-0.slice/session-1.scope\n"), None, "a login");
        assert_eq!(locate(MOUNTS, "4:memory:/x.service\n"), None, "version 1");
        assert_eq!(locate("22 1 0:20 / /proc rw - proc proc rw\n", "0::/a.service\n"), None, "no mount");
        assert!(!is_usable(Path::new("/proc")));
    }
}
