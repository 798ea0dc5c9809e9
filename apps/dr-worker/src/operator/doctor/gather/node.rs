//! This node: files, limits and devices. It looks, and opens nothing that an opening changes.

use std::{fs, net::UdpSocket, os::unix::fs::FileTypeExt as _, path::Path};

use job_guard::{StateLock, capabilities::may_lock_any_memory, delegated_to, missing_controller};
use nix::unistd::{AccessFlags, access};
use rustix::fs::{statfs, statvfs};

use super::super::facts::{Disk, NodeFacts, Server};
use crate::{
    config::{Config, HostPort, WatchdogConfig, WatchdogMode},
    private_file,
    worker::{exposed, needed},
};

/// The types of file systems in memory, of linux/magic.h: tmpfs and ramfs.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

pub(super) fn node(config: &Config) -> NodeFacts {
    let dir = &config.node.state_dir;
    let problems = config.check_node().err();
    let problems = problems.iter().flat_map(|problems| problems.iter());
    let secret = config.zookeeper.auth.as_ref().map(|auth| &auth.credentials_file);
    let worker = StateLock::holder(dir, config.node.id.as_str()).ok().flatten();
    let process = worker.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).unwrap_or_default();
    NodeFacts {
        id: config.node.id.to_string(),
        address: config.node.address.clone(),
        unusable: problems
            .map(|problem| (problem.key.clone().unwrap_or_default(), problem.message.clone()))
            .collect(),
        certificate: match config.check_certificate() {
            Ok(warning) => warning.map(|warning| (false, warning)),
            Err(problems) => {
                Some((true, problems.iter().map(|p| p.message.clone()).collect::<Vec<_>>().join("; ")))
            }
        },
        readable_secret: secret.filter(|path| is_readable(path)).map(|path| path.display().to_string()),
        plain_password: config.zookeeper.plain_password(),
        state_dir: dir.display().to_string(),
        not_writable: not_writable(dir),
        in_memory: existing(dir).is_some_and(is_in_memory),
        open_files: limit(&limits, "Max open files").map(|most| (most, needed(&config.jobs))),
        // Without a worker its cgroup isn't known.
        unmet_limits: worker.map(|_| unmet_limits(config, &process)).unwrap_or_default(),
        locked_memory: soft_limit(&limits, "Max locked memory").filter(|_| !may_lock_any_memory(&process)),
        processes: limit(&limits, "Max processes"),
        watchdog: watchdog(&config.watchdog),
        exposed: if is_loopback(&config.http.listen) { Vec::new() } else { exposed(&config.http) },
    }
}

fn is_loopback(listen: &HostPort) -> bool {
    let parsed: Result<std::net::IpAddr, _> = listen.host.parse();
    parsed.map_or(listen.host == "localhost", |address| address.is_loopback())
}

fn is_readable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| private_file::is_open(&metadata))
}

/// The directory, or the nearest one above it that exists: the worker creates the rest.
fn existing(dir: &Path) -> Option<&Path> {
    dir.ancestors()
        .map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir })
        .find(|dir| dir.exists())
}

fn not_writable(dir: &Path) -> Option<String> {
    let there = existing(dir)?;
    if !there.is_dir() {
        return Some(format!("{} is not a directory", there.display()));
    }
    let why = access(there, AccessFlags::W_OK | AccessFlags::X_OK).err()?;
    Some(format!("{}: {}", there.display(), why.desc()))
}

fn is_in_memory(dir: &Path) -> bool {
    #[allow(clippy::useless_conversion, reason = "the type of the field differs between architectures")]
    statfs(dir).is_ok_and(|found| IN_MEMORY.contains(&i64::from(found.f_type)))
}

/// The disk of a server's data, if the server runs on this node.
pub(super) fn disk_of(server: &Server) -> Option<Disk> {
    let is_here = server.addresses.iter().any(|address| UdpSocket::bind((*address, 0)).is_ok());
    disk(server.settings.get("dataDir").filter(|_| is_here)?.as_ref())
}

/// The file system of a path, if it exists here.
fn disk(path: &Path) -> Option<Disk> {
    let found = statvfs(path).ok()?;
    Some(Disk { free: found.f_bavail * found.f_frsize, size: found.f_blocks * found.f_frsize })
}

fn unmet_limits(config: &Config, process: &str) -> Vec<(String, &'static str, String)> {
    let cgroup = delegated_to(process);
    let lack = |controller| match &cgroup {
        Ok(dir) => missing_controller(dir, controller),
        Err(why) => Some(format!("the worker has no cgroup to divide: {why}")),
    };
    let wanted = config.jobs.iter().flat_map(|job| {
        let limits = &job.spec.limits;
        let memory = limits.memory.map(|_| (job, "limits.memory", "memory"));
        memory.into_iter().chain(limits.processes.map(|_| (job, "limits.processes", "pids")))
    });
    wanted
        .filter_map(|(job, key, controller)| Some((job.name().to_owned(), key, lack(controller)?)))
        .collect()
}

/// The hard limit of this name; `None` if there is no limit. A worker raises its soft limit of open files.
fn limit(limits: &str, name: &str) -> Option<u64> {
    values(limits, name)?.nth(1)?.parse().ok()
}

/// The soft limit of this name; `None` if there is no limit.
fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    values(limits, name)?.next()?.parse().ok()
}

fn values<'a>(limits: &'a str, name: &str) -> Option<std::str::SplitAsciiWhitespace<'a>> {
    Some(limits.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace())
}

fn watchdog(config: &WatchdogConfig) -> Option<(bool, String)> {
    let is_required = match config.mode {
        WatchdogMode::Off => return None,
        WatchdogMode::Automatic => false,
        WatchdogMode::Required => true,
    };
    let device = config.device.display();
    // To open it would start it.
    let why = match fs::metadata(&config.device) {
        Err(error) => format!("{device}: {error}"),
        Ok(metadata) if !metadata.file_type().is_char_device() => format!("{device} is not a device"),
        Ok(_) => {
            let why = access(config.device.as_path(), AccessFlags::W_OK).err()?;
            format!("{device}: {}", why.desc())
        }
    };
    Some((is_required, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hard_limit_counts() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max processes             unlimited            unlimited            processes\n\
                      Max open files            1024                 4096                 files\n";
        assert_eq!(limit(limits, "Max open files"), Some(4096));
        assert_eq!(soft_limit(limits, "Max open files"), Some(1024));
        assert_eq!(limit(limits, "Max processes"), None);
        assert_eq!(limit("", "Max processes"), None);
    }

    #[test]
    fn what_does_not_exist_is_judged_by_what_is_above_it() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(not_writable(&dir.path().join("a/b")), None);
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(not_writable(&file.join("x")).unwrap().ends_with("is not a directory"));
        assert!(!is_in_memory(Path::new("/proc")));
        assert!(disk(dir.path()).unwrap().size > 0);
    }
}
