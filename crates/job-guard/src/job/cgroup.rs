//! The cgroup v2 subtree that a service manager has delegated to this process.

use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use crate::guard::tree::kernel_text;

/// The cgroup of a service unit's worker, below that of the unit: the unit's own may then have controllers for the jobs, which
/// the kernel refuses to a cgroup with processes (DelegateSubgroup= of systemd).
const WORKERS_OWN: &str = "worker";

/// The cgroup in which those of the jobs are made, if a service manager has delegated it, as with systemd's `Delegate=yes`: the
/// unit's.
///
/// A job in its own cgroup is killed by one write, and is found even if worker and guard were killed together.
///
/// # Errors
/// Why there is none.
pub fn delegated_cgroup() -> Result<PathBuf, String> {
    delegated_to("self")
}

/// The same for the process with this name in `/proc`, as this user may use it.
pub fn delegated_to(process: &str) -> Result<PathBuf, String> {
    let read = |file: &str| {
        let path = format!("/proc/{process}/{file}");
        kernel_text(&path).map_err(|error| format!("can't read {path}: {error}"))
    };
    let dir =
        locate(&read("mountinfo")?, &read("cgroup")?).ok_or("it is not in the cgroup of a service unit")?;
    let may_write = |path: &Path| access(path, AccessFlags::W_OK).is_ok();
    if !may_write(&dir) || !may_write(&dir.join("cgroup.procs")) {
        return Err(format!("{} is not delegated to it (Delegate=yes in its systemd unit)", dir.display()));
    }
    if !dir.join("cgroup.kill").exists() {
        return Err("the kernel has no cgroup.kill (Linux 5.14)".to_owned());
    }
    Ok(dir)
}

/// The directory of the unit's cgroup by `own` (`/proc/self/cgroup`) and `mounts` (`/proc/self/mountinfo`). Only a service unit
/// counts: the root of the hierarchy, a login session's scope and the like belong to others, even if their permissions would
/// allow writing.
fn locate(mounts: &str, own: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    if !path.split('/').any(|unit| unit.ends_with(".service")) {
        return None;
    }
    let path = match path.rsplit_once('/') {
        Some((unit, WORKERS_OWN)) if unit.ends_with(".service") => unit,
        _ => path,
    };
    let mount = mounts.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (filesystem.starts_with("cgroup2 ") && root == "/").then_some(point)
    })?;
    Some(Path::new(mount).join(path))
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
        for own in ["0::/system.slice/dr-worker.service/worker\n", "0::/system.slice/dr-worker.service\n"] {
            let unit = locate(MOUNTS, own);
            assert_eq!(unit, Some("/sys/fs/cgroup/system.slice/dr-worker.service".into()), "{own}");
        }
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
        let deeper = locate(MOUNTS, "0::/user@1.service/app.slice/worker\n");
        assert_eq!(deeper, Some("/sys/fs/cgroup/user@1.service/app.slice/worker".into()), "no unit's leaf");
    }
}
