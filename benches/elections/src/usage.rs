//! What a process uses, by the kernel's own account.

use std::{fs, time::Duration};

/// The kernel's unit of processor time, on every machine that Linux runs on today.
const CLOCK_TICK: Duration = Duration::from_millis(10);

/// What processes use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The memory that they have in RAM, in bytes. What several share is counted for each.
    pub resident: u64,
    /// The processor time that they have used since they were started.
    pub cpu: Duration,
}

impl Usage {
    /// Of a process, and of those of its children that have this name.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn of(pid: u32, helper: Option<&str>) -> Result<Self, String> {
        let mut sum = of_one(pid)?;
        for child in children(pid) {
            let name = fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
            if helper == Some(name.trim_end()) {
                let Self { resident, cpu } = of_one(child)?;
                sum = Self { resident: sum.resident + resident, cpu: sum.cpu + cpu };
            }
        }
        Ok(sum)
    }
}

fn of_one(pid: u32) -> Result<Usage, String> {
    let read = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))
    };
    let status = read("status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let resident = kilobytes.ok_or_else(|| format!("process {pid} has no memory"))? * 1024;
    let cpu = ticks(&read("stat")?).ok_or_else(|| format!("/proc/{pid}/stat is in an unknown format"))?;
    Ok(Usage { resident, cpu: CLOCK_TICK * cpu })
}

/// The time in user and in kernel mode.
fn ticks(stat: &str) -> Option<u32> {
    // The name before is in parentheses and may contain any character.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let (user, system) = (fields.next()?, fields.next()?);
    Some(user.parse::<u32>().ok()? + system.parse::<u32>().ok()?)
}

fn children(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let line = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(line.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_are_found_behind_any_name() {
        let stat = "7 (a) b) (c) S 1 2 3 4 5 6 7 8 9 10 250 50 13 14 20 0 1 0";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("7 (a) S 1"), None);
    }

    #[test]
    fn only_children_of_that_name_are_added() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let own = std::process::id();
        // The child has another name until it has begun.
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap() != "sleep\n" {
            assert!(std::time::Instant::now() < deadline, "it does not begin");
            std::thread::yield_now();
        }
        let (alone, with) = (Usage::of(own, Some("other")).unwrap(), Usage::of(own, Some("sleep")).unwrap());
        let sleeps = Usage::of(child.id(), None).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(sleeps.resident > 0 && with.resident > alone.resident, "{sleeps:?} {with:?} {alone:?}");
        assert!(Usage::of(child.id(), None).is_err());
    }
}
