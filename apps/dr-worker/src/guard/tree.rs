//! Who descends from whom, read from `/proc`.
//!
//! What is read is old by the time it is used, so every caller repeats until nothing is left. A pid
//! read here could in theory have been reaped by its parent and given to another process before it
//! is signalled; the kernel hands out all other pids first, and the window is microseconds.

use std::fs;

use nix::unistd::Pid;

/// One process as `/proc/PID/stat` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) parent: Pid,
    pub(crate) group: Pid,
    pub(crate) session: Pid,
    state: u8,
    threads: u32,
}

impl Process {
    /// The process `pid`, `None` if there is none.
    pub(crate) fn read(pid: Pid) -> Option<Process> {
        parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Whether nothing of it runs any more: it only waits to be reaped.
    ///
    /// A process whose main thread has ended is shown as a zombie too while its other threads run;
    /// the number of threads tells.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

/// The fields after the name, which may itself hold spaces and parentheses.
fn parse_stat(stat: &str) -> Option<Process> {
    let pid = stat.split(' ').next()?.parse().ok()?;
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 2..)?.split(' ').collect();
    let number = |index: usize| fields.get(index)?.parse::<i32>().ok();
    Some(Process {
        pid: Pid::from_raw(pid),
        state: *fields.first()?.as_bytes().first()?,
        parent: Pid::from_raw(number(1)?),
        group: Pid::from_raw(number(2)?),
        session: Pid::from_raw(number(3)?),
        threads: fields.get(17)?.parse().ok()?,
    })
}

/// Every process that can be seen.
pub(crate) fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Process::read(Pid::from_raw(pid)))
        .collect()
}

/// The children of `parent`, those of all its threads.
pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    listed_children(parent).unwrap_or_else(|| {
        // A kernel without CONFIG_PROC_CHILDREN: look at everybody.
        all().into_iter().filter(|process| process.parent == parent).map(|process| process.pid).collect()
    })
}

/// `None` if this kernel does not list children.
fn listed_children(parent: Pid) -> Option<Vec<Pid>> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{parent}/task")) else {
        return Some(Vec::new()); // no such process
    };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(list) => found
                .extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw)),
            Err(_) if task.path().exists() => return None,
            Err(_) => {} // the thread has ended
        }
    }
    Some(found)
}

/// All descendants of `root`, parents before their children; not `root` itself.
pub(crate) fn descendants(root: Pid) -> Vec<Pid> {
    let mut found = children(root);
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        next += 1;
        for child in children(pid) {
            // A process that changes its parent between two reads may be met twice.
            if !found.contains(&child) {
                found.push(child);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_name_full_of_parentheses_is_no_trouble() {
        let line = "42 (a) R (b) ) S 7 41 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 99 0 0";
        let process = parse_stat(line).expect("well formed");
        assert_eq!(process.pid.as_raw(), 42);
        assert_eq!(process.parent.as_raw(), 7);
        assert_eq!(process.group.as_raw(), 41);
        assert_eq!(process.session.as_raw(), 40);
        assert_eq!(process.threads, 3);
        assert!(!process.is_dead());
        assert_eq!(parse_stat("42 (cut"), None);
    }

    #[test]
    fn a_zombie_with_living_threads_is_not_dead() {
        let stat = |state: char, threads: u32| {
            parse_stat(&format!("42 (job) {state} 7 41 40 0 -1 0 1 2 3 4 5 6 7 8 20 0 {threads} 0 99"))
                .expect("well formed")
        };
        assert!(stat('Z', 1).is_dead());
        assert!(!stat('Z', 2).is_dead());
        assert!(!stat('T', 1).is_dead());
    }

    #[test]
    fn both_ways_of_finding_children_agree() {
        let me = Pid::this();
        let mut child = Command::new("sleep").arg("60").spawn().expect("spawn");
        let pid = Pid::from_raw(child.id().cast_signed());
        let listed = listed_children(me);
        let scanned = all().iter().any(|process| process.pid == pid && process.parent == me);
        let deep = descendants(Process::read(me).expect("myself").parent);
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert!(scanned);
        assert!(deep.contains(&pid), "{deep:?}");
        if let Some(listed) = listed {
            assert!(listed.contains(&pid), "{listed:?}");
        }
    }
}
