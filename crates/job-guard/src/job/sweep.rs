//! Ends the processes that remain after a worker and its guards were killed together; run by the next worker.
//!
//! Each guard writes a record before it starts its program, and removes it when no process is left
//! ([`crate::guard`]). So a record that is found while this worker holds the member's lock belongs to a guard
//! that was killed, or that waits for this worker ([`left_runs`](super::left)). Its processes are recognised by their cgroup,
//! by the variable of the run in their environment, by their session, or by their parent. A process without any of these
//! marks can't be distinguished from an unrelated one. But if the record excludes every unmarked process, all of the run is
//! proved to be gone.
//!
//! Without a cgroup the proof is a look at all processes. A process that ends during the look can leave a child that the look
//! has already passed. Such a child got its number after the look began, because the kernel hands out numbers in ascending
//! order. So the look goes on to the numbers given since then, until there is no new one: then every living process has been
//! seen. (A program with CAP_CHECKPOINT_RESTORE can choose numbers. Run it in a cgroup.)
//!
//! What is found is killed after each of these steps, not at the end of the look: a process that starts its successor and ends
//! would have ended by then each time, and no look would ever kill it.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use boot_time::{BootTime, sleep_until};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::{guards::Guards, left::LeftRun};
use crate::{
    guard::{
        cgroup,
        record::{Record, ancestors_of, boot, is_of_another_boot, pid_namespace},
        tree::{self, Process},
    },
    own_file::existing,
};

/// The pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How many whole looks have to find nothing: a new process has its number a moment before it becomes visible.
const EMPTY_LOOKS: u32 = 2;

/// How often one look goes on to the numbers that were given meanwhile.
const ROUNDS: usize = 100;

/// Ends the processes that earlier guards with this lock left behind, but for these runs, and proves `by` then that all are gone.
/// Call it before anything is run under the lock.
///
/// # Errors
/// A sentence: which processes are left, or can't be determined.
///
/// # Cancel safety
/// Cancel safe: called again, it continues.
pub async fn sweep(guards: &Guards, left_alone: &[LeftRun], by: BootTime) -> Result<(), String> {
    let Some(lock) = guards.lock.as_ref() else { return Ok(()) };
    let mut clearings = BTreeMap::new();
    loop {
        let mut left = None;
        let paths = lock.records().map_err(|error| format!("the records of runs can't be read: {error}"))?;
        for path in paths.into_iter().filter(|path| !left_alone.iter().any(|run| run.is_of(path))) {
            if is_of_another_boot(&path) {
                remove(&path)?;
                continue;
            }
            let clearing = match clearings.entry(path.clone()) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => match existing(Clearing::new(&path, guards.run_variable())) {
                    Ok(Some(clearing)) => entry.insert(clearing),
                    // Its guard has removed it, and so has seen the end.
                    Ok(None) => continue,
                    Err(error) => {
                        left = Some(unsearched(&path, &error));
                        continue;
                    }
                },
            };
            match clearing.look() {
                Ok(()) => remove(&path)?,
                Err(reason) => left = Some(reason),
            }
        }
        match left {
            None => return Ok(()),
            Some(reason) if BootTime::now() >= by => return Err(reason),
            Some(_) => sleep_until(BootTime::now() + LOOK_AGAIN).await,
        }
    }
}

/// Removes the record of a run of which nothing is left.
fn remove(record: &Path) -> Result<(), String> {
    let shown = record.display();
    existing(fs::remove_file(record)).map_err(|error| format!("can't remove {shown}: {error}"))?;
    tracing::info!(record = %shown, "the processes that a killed guard left behind are gone");
    Ok(())
}

/// The end of the processes of one record.
#[derive(Debug)]
pub(super) struct Clearing {
    path: PathBuf,
    record: Record,
    /// That of the run.
    variable: String,
    /// How many whole looks have found nothing, since the last one that found something.
    empty: u32,
}

impl Clearing {
    /// Reads the record.
    ///
    /// # Errors
    /// If no guard has written it, or it can't be read.
    pub(super) fn new(path: &Path, variable: String) -> io::Result<Clearing> {
        let record = Record::read(path)?;
        Ok(Clearing { path: path.to_owned(), record, variable, empty: 0 })
    }

    /// When the guard was started, in clock ticks since the boot.
    pub(super) fn guard_started(&self) -> u64 {
        self.record.since
    }

    /// Looks once, and kills what it finds. It is `Ok` once all processes are proved to be gone.
    ///
    /// # Errors
    /// What is left, or may be, as a sentence.
    pub(super) fn look(&mut self) -> Result<(), String> {
        match clear(&self.record, &self.path, &self.variable) {
            Ok(Swept::Gone) => self.empty = EMPTY_LOOKS,
            Ok(Swept::NotSeen { is_whole }) => self.empty += u32::from(is_whole),
            Ok(Swept::Left(reason)) => {
                self.empty = 0;
                return Err(reason);
            }
            Err(error) => return Err(unsearched(&self.path, &error)),
        }
        match self.empty >= EMPTY_LOOKS {
            true => Ok(()),
            false => Err("processes that the last look may have missed".to_owned()),
        }
    }
}

fn unsearched(record: &Path, error: &io::Error) -> String {
    format!("the processes of {} can't be searched for: {error}", record.display())
}

enum Swept {
    /// No process of it can be left.
    Gone,
    /// This look has found no process of it.
    NotSeen { is_whole: bool },
    /// Which processes are left, as a sentence.
    Left(String),
}

/// Looks once for the processes of one record, and kills those that are found.
fn clear(record: &Record, path: &Path, variable: &str) -> io::Result<Swept> {
    if record.boot != boot()? {
        return Ok(Swept::Gone);
    }
    if record.pid_namespace != pid_namespace()? {
        // The worker was the first process of its namespace. It does not have the lock, so it has ended, and all there with it.
        if record.ancestors == [1] {
            return Ok(Swept::Gone);
        }
        return Ok(Swept::Left(format!(
            "a job of another PID namespace, such as a container's; remove {} once that has ended",
            path.display()
        )));
    }
    if let Some(own) = &record.cgroup {
        return clear_cgroup(own);
    }
    let run = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let seen = SweepLook::look(record, variable, run)?;
    let (ours, strangers) = judge(record, &seen);
    if !ours.is_empty() {
        return Ok(Swept::Left(format!(
            "processes {} of a job survive SIGKILL, or run as another user",
            listed(&ours)
        )));
    }
    if !strangers.is_empty() {
        let reason =
            format!("processes {} may be a job's that has cleared its environment", listed(&strangers));
        return Ok(Swept::Left(reason));
    }
    Ok(Swept::NotSeen { is_whole: seen.is_whole })
}

fn clear_cgroup(dir: &Path) -> io::Result<Swept> {
    if existing(cgroup::kill(dir))?.is_none() {
        return Ok(Swept::Gone);
    }
    if cgroup::is_empty(dir)? {
        // One that stays is made again for the next job of this name.
        let _ = cgroup::remove(dir);
        return Ok(Swept::Gone);
    }
    Ok(Swept::Left(format!("processes in {} survive SIGKILL", dir.display())))
}

/// The result of one look at all processes.
#[derive(Debug, Default)]
struct SweepLook {
    processes: BTreeMap<Pid, Known>,
    /// This process and its ancestors, which belong to no job.
    exempt: BTreeSet<Pid>,
    /// Whether it has seen all that live.
    is_whole: bool,
}

#[derive(Clone, Debug)]
struct Known {
    process: Process,
    mark: Mark,
    hierarchy: String,
}

/// The record that the variable of the run names in a process's environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Ours,
    Others,
    /// Absent, or not readable.
    Unknown,
}

impl SweepLook {
    /// Looks at all processes, and kills those of the run.
    fn look(record: &Record, variable: &str, run: &str) -> io::Result<SweepLook> {
        if Process::read(Pid::from_raw(1)).ok().flatten().is_none() {
            return Err(io::Error::other(
                "processes of other users are hidden (the option hidepid of /proc)",
            ));
        }
        let me = Process::read(Pid::this())?.ok_or(io::ErrorKind::NotFound)?;
        let mut seen = SweepLook::default();
        seen.exempt.insert(me.pid);
        seen.exempt.extend(ancestors_of(&me)?);
        let mut killed = BTreeSet::new();
        seen.is_whole = see_all(tree::next_number, tree::pids, |pids| {
            for pid in pids {
                if !tree::is_thread(pid)? {
                    seen.add(pid, record, variable, run)?;
                }
            }
            let ours = BTreeSet::from_iter(judge(record, &seen).0);
            // The youngest first: it may be about to start another one.
            for &pid in ours.iter().rev().filter(|&&pid| killed.insert(pid)) {
                seen.kill(pid, &ours);
            }
            Ok(())
        })?;
        Ok(seen)
    }

    /// Kills a process of the run, and all of its process group if no other is known in that: such a signal reaches also what
    /// the group starts at this moment.
    fn kill(&self, pid: Pid, ours: &BTreeSet<Pid>) {
        let Some(Known { process: Process { group, .. }, .. }) = self.processes.get(&pid) else { return };
        let mut members = (self.processes.values())
            .filter(|known| known.process.group == *group && !known.process.is_dead());
        // Zero is that of a group outside this PID namespace.
        if group.as_raw() > 1 && members.all(|known| ours.contains(&known.process.pid)) {
            let _ = killpg(*group, Signal::SIGKILL);
        }
        let _ = kill(pid, Signal::SIGKILL);
    }

    fn add(&mut self, pid: Pid, record: &Record, variable: &str, run: &str) -> io::Result<()> {
        let Some(process) = Process::read(pid)? else { return Ok(()) };
        let mut known = Known { process, mark: Mark::Unknown, hierarchy: String::new() };
        if process.started >= record.since {
            known.mark = mark_of(pid, variable, run)?;
            known.hierarchy = text(pid, "cgroup")?;
        }
        self.processes.insert(pid, known);
        Ok(())
    }
}

/// Calls `see` with all that `list` returns, then with the numbers that were given until it had seen those, and so on. `next`
/// takes the next number. Returns whether no living process was left out.
fn see_all(
    mut next: impl FnMut() -> io::Result<i32>,
    list: impl FnOnce() -> io::Result<Vec<Pid>>,
    mut see: impl FnMut(Vec<Pid>) -> io::Result<()>,
) -> io::Result<bool> {
    let mut newest = next()?;
    see(list()?)?;
    for _ in 0..ROUNDS {
        let before = std::mem::replace(&mut newest, next()?);
        // None if the numbers have wrapped around.
        see((before + 1..newest).rev().map(Pid::from_raw).collect())?;
        if newest <= before {
            break;
        }
        if newest == before + 1 {
            return Ok(true);
        }
    }
    Ok(false)
}

fn mark_of(pid: Pid, name: &str, run: &str) -> io::Result<Mark> {
    let environ = match tree::read(pid, "environ") {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(Mark::Unknown),
        read => read?.unwrap_or_default(),
    };
    let value =
        |variable: &[u8]| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_owned);
    Ok(match environ.split(|&byte| byte == 0).find_map(value) {
        Some(named) if named == run.as_bytes() => Mark::Ours,
        Some(_) => Mark::Others,
        None => Mark::Unknown,
    })
}

fn text(pid: Pid, file: &str) -> io::Result<String> {
    let bytes = tree::read(pid, file)?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Which living processes belong to the record's run, and which may belong to it.
fn judge(record: &Record, seen: &SweepLook) -> (Vec<Pid>, Vec<Pid>) {
    let young =
        |known: &&Known| known.process.started >= record.since && !seen.exempt.contains(&known.process.pid);
    let is_alive = |pid: &Pid| seen.processes.get(pid).is_some_and(|known| !known.process.is_dead());
    let id = Pid::from_raw(record.session);
    let leader = seen.processes.get(&id).map(|known| known.process.started);
    // Otherwise its number has been given again, and with it that of its session and group.
    let is_its_number = leader.is_none_or(|started| record.session_started.is_none_or(|own| own == started));
    let mut ours: BTreeSet<Pid> = seen
        .processes
        .values()
        .filter(young)
        .filter(|known| {
            let Process { session, group, .. } = known.process;
            let is_kin = is_its_number && known.mark != Mark::Others && (session == id || group == id);
            known.mark == Mark::Ours || is_kin && is_within(&known.hierarchy, &record.hierarchy)
        })
        .map(|known| known.process.pid)
        .collect();
    // Children of the run's processes belong to it too. A parent may have a higher pid than its child.
    loop {
        let more: Vec<Pid> = (seen.processes.values().filter(young))
            .filter(|known| ours.contains(&known.process.parent) && !ours.contains(&known.process.pid))
            .map(|known| known.process.pid)
            .collect();
        if more.is_empty() {
            break;
        }
        ours.extend(more);
    }
    let strangers = (seen.processes.values().filter(young))
        .filter(|known| !ours.contains(&known.process.pid) && may_be_ours(record, seen, known))
        .map(|known| known.process.pid)
        .filter(is_alive)
        .collect();
    (ours.into_iter().filter(is_alive).collect(), strangers)
}

/// Whether nothing excludes that a process belongs to the run. Orphans of guard and worker are adopted by an ancestor
/// of the worker, and their session is not older than the run: a process can't join a session, only create one. Any
/// other process of the run descends from such an orphan.
fn may_be_ours(record: &Record, seen: &SweepLook, known: &Known) -> bool {
    let mut top = known;
    loop {
        let parent = top.process.parent;
        if record.ancestors.contains(&parent.as_raw()) {
            break;
        }
        match seen.processes.get(&parent) {
            _ if seen.exempt.contains(&parent) => return false,
            Some(older) if older.process.started < record.since => return false,
            // A parent exists before its child, so this loop ends.
            Some(known) if known.process.started <= top.process.started => top = known,
            // It has ended meanwhile, or its pid was reused.
            _ => break,
        }
    }
    let session = top.process.session;
    let leader = seen.processes.get(&session);
    let is_of_old_session = session.as_raw() == 0
        || seen.exempt.contains(&session)
        || leader.is_some_and(|leader| leader.process.started < record.since);
    top.mark != Mark::Others && !is_of_old_session && is_within(&top.hierarchy, &record.hierarchy)
}

/// Whether the cgroups `of` a process are those of `all`, or below them; one line for each hierarchy. Those of version
/// 1 show a process that is ending in their root, though it may still have files open.
fn is_within(of: &str, all: &str) -> bool {
    all.lines().filter_map(parse_hierarchy).all(|(hierarchy, path)| {
        of.lines().filter_map(parse_hierarchy).any(|(other, below)| {
            let rest = below.strip_prefix(path.trim_end_matches('/'));
            let is_below = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            other == hierarchy && (is_below || below == "/" && hierarchy.0 != "0")
        })
    })
}

/// A line `ID:CONTROLLERS:PATH` of `/proc/PID/cgroup`: which hierarchy, and where in it.
fn parse_hierarchy(line: &str) -> Option<((&str, &str), &str)> {
    let (id, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    Some(((id, controllers), path))
}

/// Process ids, for a sentence.
fn listed(pids: &[Pid]) -> String {
    pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_no_guard_has_written_kills_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1-1-0");
        for (session, since, is_usable) in
            [(21, 100, true), (0, 100, false), (1, 100, false), (-1, 100, false), (21, 0, false)]
        {
            Record { session, since, ..record() }.write(&path).unwrap();
            assert_eq!(Record::read(&path).is_ok(), is_usable, "{session:?} {since}");
        }
    }

    /// The worker was process 10, a child of the init system; its guard 20 was started at 100, its job 21 after
    /// that. The worker of today is 50.
    fn record() -> Record {
        Record {
            boot: "b".into(),
            pid_namespace: "n".into(),
            since: 100,
            ancestors: vec![10, 1],
            hierarchy: "1:cpu:/\n0::/system.slice/dr.service\n".into(),
            cgroup: None,
            session: 21,
            session_started: Some(105),
            outlives: None,
        }
    }

    #[test]
    fn a_record_of_another_pid_namespace_is_proved_only_if_its_first_process_was_the_worker() {
        let path = Path::new("east-1.runs/7-1-0");
        let clear = |ancestors: &[i32], boot: String| {
            let record = Record { boot, ancestors: ancestors.to_vec(), ..record() };
            clear(&record, path, "RUN").unwrap()
        };
        let boot = || boot().unwrap();
        assert!(matches!(clear(&[1], boot()), Swept::Gone), "all processes have ended with the first one");
        match clear(&[7, 1], boot()) {
            Swept::Left(why) => assert!(why.contains("remove east-1.runs/7-1-0"), "{why}"),
            _ => panic!("another first process can live on"),
        }
        assert!(matches!(clear(&[7, 1], "another".to_owned()), Swept::Gone), "the machine was started again");
    }

    fn known(pid: i32, parent: i32, session: i32, started: u64) -> Known {
        let line =
            format!("{pid} (x) S {parent} {session} {session} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {started}");
        Known {
            process: tree::parse_stat(&line).expect("well formed"),
            mark: Mark::Unknown,
            hierarchy: record().hierarchy,
        }
    }

    fn judged(processes: impl IntoIterator<Item = Known>) -> (Vec<i32>, Vec<i32>) {
        let others = [known(1, 0, 1, 0), known(5, 1, 5, 50), known(50, 1, 50, 300)];
        let seen = SweepLook {
            processes: others.into_iter().chain(processes).map(|known| (known.process.pid, known)).collect(),
            exempt: BTreeSet::from([Pid::from_raw(50), Pid::from_raw(1)]),
            is_whole: true,
        };
        let (ours, strangers) = judge(&record(), &seen);
        let raw = |pids: Vec<Pid>| pids.into_iter().map(Pid::as_raw).collect();
        (raw(ours), raw(strangers))
    }

    #[test]
    fn a_look_goes_on_until_no_number_is_new() {
        let look = |numbers: &mut dyn Iterator<Item = i32>| {
            let mut seen = Vec::new();
            let is_whole = see_all(
                || Ok(numbers.next().expect("enough")),
                || Ok([1, 7].map(Pid::from_raw).to_vec()),
                |pids| {
                    seen.extend(pids.into_iter().map(Pid::as_raw));
                    Ok(())
                },
            );
            (is_whole.unwrap(), seen)
        };
        assert_eq!(look(&mut [9, 10].into_iter()), (true, vec![1, 7]));
        assert_eq!(look(&mut [9, 12, 14, 15].into_iter()), (true, vec![1, 7, 11, 10, 13]));
        assert_eq!(look(&mut [99, 4].into_iter()), (false, vec![1, 7]), "they have wrapped around");
        let (is_whole, seen) = look(&mut (5..).step_by(2));
        assert!(!is_whole && seen.len() == 2 + ROUNDS, "a machine on which another one always begins");
    }

    #[test]
    fn what_carries_the_mark_is_ours_with_all_below_it() {
        let marked = Known { mark: Mark::Ours, ..known(30, 1, 30, 110) };
        assert_eq!(
            judged([known(29, 31, 29, 130), marked, known(31, 30, 31, 120)]),
            (vec![29, 30, 31], vec![])
        );
    }

    #[test]
    fn the_session_of_the_job_is_ours() {
        assert_eq!(judged([known(22, 1, 21, 110)]), (vec![22], vec![]));
        let elsewhere = Known { hierarchy: "1:cpu:/\n0::/user.slice\n".into(), ..known(22, 1, 21, 110) };
        assert_eq!(judged([elsewhere]), (vec![], vec![]), "its number is another session's by now");
        let marked = Known { mark: Mark::Others, ..known(22, 1, 21, 110) };
        assert_eq!(judged([marked]), (vec![], vec![]), "the same");
        assert_eq!(judged([known(21, 1, 21, 105), known(22, 1, 21, 110)]), (vec![21, 22], vec![]));
        let again = [known(21, 1, 21, 300), known(22, 1, 21, 310)];
        assert_eq!(judged(again), (vec![], vec![21, 22]), "its number is another process's by now");
    }

    #[test]
    fn an_orphan_without_any_mark_may_be_ours() {
        assert_eq!(judged([known(30, 1, 30, 110), known(31, 30, 31, 111)]), (vec![], vec![30, 31]));
        assert_eq!(judged([known(30, 77, 30, 110)]), (vec![], vec![30]), "its parent has just ended");
    }

    #[test]
    fn what_can_be_excluded_is_a_stranger() {
        for (why, stranger) in [
            ("older than the guard", known(30, 1, 30, 99)),
            ("of another run", Known { mark: Mark::Others, ..known(30, 1, 30, 110) }),
            ("of another service", Known { hierarchy: "1:cpu:/\n0::/b\n".into(), ..known(30, 1, 30, 110) }),
            ("of an older session", known(30, 1, 5, 110)),
            ("a child of what is older", known(30, 5, 30, 110)),
            ("a child of ours of today", known(30, 50, 30, 310)),
        ] {
            assert_eq!(judged([stranger]), (vec![], vec![]), "{why}");
        }
        let service = known(40, 1, 5, 110);
        assert_eq!(judged([service, known(41, 40, 41, 111)]), (vec![], vec![]), "its parent is excluded");
    }

    #[test]
    fn a_cgroup_below_is_within() {
        let all = "1:cpu:/\n0::/a\n";
        assert!(is_within("1:cpu:/x\n0::/a/b\n", all));
        assert!(!is_within("1:cpu:/x\n0::/ab\n", all));
        assert!(!is_within("1:cpu:/x\n", all), "nothing is known of the other");
        assert!(is_within("1:cpu:/\n0::/a:b\n", "1:cpu:/x\n0::/a:b\n"), "one that is ending");
        assert!(!is_within("1:cpu:/x\n0::/\n", "1:cpu:/x\n0::/a\n"));
    }
}
