//! Process trees that grow by a seed, under workers and guards that are killed and stopped at random moments: nothing
//! of a job lives once its leadership may have been released, or its lease has ended. Some have their deadline from the
//! beginning; the others begin as standbys, and are promoted once or twice, also by the worker after the one that they have
//! outlived.
//!
//! The checker is no part of the program: each process of a tree inherits a fifo, whose reader sees when none holds it.
//!
//! `TREES=1000 FIRST_TREE=0 cargo test -p job-guard --test alone trees -- --nocapture` grows more of them, or others.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use crate::support::{CgroupRoot, PATIENCE, Tree, Worker, WorkerSetup, guards_of, names, wait_for};
use boot_time::BootTime;
use job_guard::{StateLock, sweep};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

/// Long enough for its renewals on a busy machine, short enough to wait for its end.
const LEASE: Duration = Duration::from_millis(1_600);

/// The guard kills 300 ms before the end of the lease, the worker 200 ms. If the one that has to kill has waited for a
/// processor for more than half of that, a tree that lives on shows nothing about the program.
const BUSY: Duration = Duration::from_millis(100);
const LAST: Duration = Duration::from_millis(300);

/// As long as a worker gives it: on a busy machine some process ends during most looks, and then twenty of them are needed.
const SWEEP_WITHIN: Duration = Duration::from_secs(2);

/// Of fewer trees, most may be excused by chance.
const FEW: u64 = 20;

#[test]
fn nothing_of_a_job_outlives_its_leadership() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
    };
    let (first, count) = (number("FIRST_TREE", 0), number("TREES", 16));
    let cgroups = CgroupRoot::new(&format!("trees-{first}"));
    if cgroups.is_none() {
        zk_testkit::skip("no cgroup v2 can be made here: all trees are grown without");
    }
    let mut tally = Tally::default();
    for seed in first..first + count {
        // Each fault in turn, each with and without a cgroup in turn, and each in each role in turn.
        let (round, index) = (seed / FAULTS.len() as u64, seed % FAULTS.len() as u64);
        let in_cgroup = cgroups.as_ref().filter(|_| (round + index) % 2 == 1);
        let small = |number: u64| usize::try_from(number).expect("a small number");
        let (fault, roles) = (FAULTS[small(index)], ROLES[small((3 * index + round + round / 2 + 1) % 4)]);
        // What such a guard leaves behind is not adopted by the worker. It is found by its cgroup, or in most cases by its record.
        let kills_guard = matches!(fault, Fault::KillGuard | Fault::KillGuardOfFrozenWorker);
        let is_hard = roles.contains(&NEXT) && kills_guard && in_cgroup.is_none();
        let roles = if is_hard { ROLES[1] } else { roles };
        // Without a cgroup, a tree that is named to its end is always proved to be gone. The short run has these.
        let is_named = round % 4 < 2;
        grow((seed, is_named), fault, roles, in_cgroup.map(|root| root.0.as_path()), &mut tally);
        if (seed + 1 - first).is_multiple_of(50) {
            eprintln!("{} of {count} trees: {tally:?}", seed + 1 - first);
        }
    }
    eprintln!("{count} trees from {first} on: {tally:?}");
    if count >= FAULTS.len() as u64 {
        for fault in FAULTS {
            assert!(tally.judged.contains(&fault), "no tree with {fault:?} was judged: {tally:?}");
        }
    }
    if tally.at_lease_end + tally.too_busy >= FEW {
        assert!(tally.too_busy <= tally.at_lease_end / 2, "most ends of leases were excused: {tally:?}");
    }
    if tally.killed_together >= FEW {
        assert!(
            tally.unproved <= tally.killed_together / 2,
            "most trees were not proved to be gone: {tally:?}"
        );
    }
}

#[derive(Debug, Default)]
struct Tally {
    /// The faults of these.
    judged: BTreeSet<Fault>,
    /// Judged when leadership could be released.
    at_release: u64,
    /// Judged when the lease ended.
    at_lease_end: u64,
    /// Killed together with guard and worker, without a cgroup.
    killed_together: u64,
    /// Of these, not proved to be gone, because all that live have cleared their environment.
    unproved: u64,
    /// Alive when the lease ended, because the process that has to kill waited for a processor, or those that it killed did.
    too_busy: u64,
    most_processes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Stop,
    Starve,
    KillGuard,
    KillWorker,
    KillBoth,
    KillBothInTurn,
    FreezeWorker,
    FreezeGuardAndStop,
    FreezeGuardAndStarve,
    FreezeBothForAMoment,
    FreezeGuardForAMomentAndKillWorker,
    KillGuardOfFrozenWorker,
}

/// The short run has the first four twice, with and without a cgroup.
const FAULTS: [Fault; 12] = [
    Fault::KillBoth,
    Fault::KillBothInTurn,
    Fault::KillWorker,
    Fault::KillGuard,
    Fault::Starve,
    Fault::FreezeGuardAndStarve,
    Fault::FreezeWorker,
    Fault::KillGuardOfFrozenWorker,
    Fault::FreezeGuardForAMomentAndKillWorker,
    Fault::FreezeGuardAndStop,
    Fault::FreezeBothForAMoment,
    Fault::Stop,
];

/// The roles that a standby gets in turn; none: the tree is the leader's from the beginning.
const ROLES: [&[&str]; 4] = [&[], &["leader"], &["leader", "standby", "leader"], &[NEXT, "leader"]];

/// Its worker is killed, and the next one continues it.
const NEXT: &str = "next";

/// Grows one tree and does one thing to those who watch over it.
fn grow(
    (seed, is_named): (u64, bool),
    fault: Fault,
    roles: &[&str],
    cgroup: Option<&Path>,
    tally: &mut Tally,
) {
    let mut dice = fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let tree = Tree::new();
    let state = tempfile::tempdir().expect("tempdir");
    fs::set_permissions(tree.dir.path(), fs::Permissions::from_mode(0o755)).expect("readable for all");
    fs::write(tree.file("tree.py"), include_str!("../support/tree.py")).expect("written");
    let mark = Mark::new(&tree.file("mark"));
    let named = if is_named { "named" } else { "" };
    let script = format!("exec python3 -ISE {}/tree.py {named}{seed} mark 0", tree.dir.path().display());
    let mut setup = WorkerSetup::new(&tree, &script);
    (setup.lease, setup.unarmed, setup.outlives) = (LEASE, !roles.is_empty(), roles.contains(&NEXT));
    setup.stop_timeout = Duration::from_millis(dice.u64(0..300));
    setup.lock_dir = Some(state.path());
    setup.cgroup = cgroup;
    let leftovers = Leftovers(format!("{}/tree.py", tree.dir.path().display()));
    let mut worker = setup.start();
    wait_for("the first process", || mark.is_held());
    let (mut is_over, mut guard) = (false, None);
    for (at, role) in roles.iter().enumerate() {
        if *role == NEXT {
            guard = guards_of(worker.pid()).first().copied();
            worker.signal(Signal::SIGKILL);
            worker.wait();
            // It begins another tree if this one has ended by itself.
            worker = setup.start();
            continue;
        }
        worker.tell(&format!("arm {role}"));
        // A fault in the middle of the last change is one too, unless the end of the lease is what is judged.
        let judges_lease = matches!(fault, Fault::Starve | Fault::FreezeGuardAndStarve | Fault::FreezeWorker);
        if at + 1 < roles.len() || judges_lease || dice.bool() {
            let word = worker.expect("");
            is_over = !word.starts_with("armed");
            if word.starts_with("not armed") {
                worker.expect("finished");
            }
        }
        if is_over {
            // The tree has ended by itself.
            break;
        }
    }
    // The moment of the fault: at random, and nothing is waited for.
    std::thread::sleep(Duration::from_millis(dice.u64(0..400)));
    // A tree may have ended by itself, and its guard with it.
    let guard = guards_of(worker.pid()).first().copied().or(guard);
    let signal_guard = |signal| {
        if signal == Signal::SIGSTOP {
            let _ = guard.map(|guard| zk_testkit::freeze(guard.as_raw().cast_unsigned()));
        } else {
            let _ = guard.map(|guard| kill(guard, signal));
        }
    };
    tally.killed_together +=
        u64::from(cgroup.is_none() && matches!(fault, Fault::KillBoth | Fault::KillBothInTurn));
    tally.most_processes = tally.most_processes.max(leftovers.living().len());

    let case = format!("tree {seed}, {fault:?}, cgroup {}, roles {roles:?}", cgroup.is_some());
    // Shown where it fails.
    println!("{case}");
    let judged = match fault {
        _ if is_over => Judged::AtRelease { is_gone: !mark.is_held() },
        Fault::Stop => {
            worker.tell("stop 1000");
            released(&worker, &mark)
        }
        Fault::Starve => {
            worker.tell("starve it");
            lease_ends(&worker, &mark, guard)
        }
        Fault::KillGuard => {
            signal_guard(Signal::SIGKILL);
            released(&worker, &mark)
        }
        Fault::KillWorker => {
            worker.signal(Signal::SIGKILL);
            next_worker(&mut worker, state.path(), &mark)
        }
        Fault::KillBoth => {
            // The guard first, as in `kill_together` of `job_worker_faults`.
            for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
                signal_guard(signal);
                worker.signal(signal);
            }
            next_worker(&mut worker, state.path(), &mark)
        }
        Fault::KillBothInTurn => {
            let is_guard_first = dice.bool();
            for is_guard in [is_guard_first, !is_guard_first] {
                if is_guard {
                    signal_guard(Signal::SIGKILL);
                } else {
                    worker.signal(Signal::SIGKILL);
                }
                // How far apart the two die is part of the case.
                std::thread::sleep(Duration::from_millis(dice.u64(0..20)));
            }
            next_worker(&mut worker, state.path(), &mark)
        }
        Fault::FreezeWorker => {
            worker.signal(Signal::SIGSTOP);
            lease_ends(&worker, &mark, guard)
        }
        Fault::FreezeGuardAndStop => {
            signal_guard(Signal::SIGSTOP);
            worker.tell("stop 1000");
            released(&worker, &mark)
        }
        Fault::FreezeGuardAndStarve => {
            signal_guard(Signal::SIGSTOP);
            worker.tell("starve it");
            lease_ends(&worker, &mark, Some(worker.pid()))
        }
        Fault::FreezeBothForAMoment => {
            for signal in [Signal::SIGSTOP, Signal::SIGCONT] {
                signal_guard(signal);
                worker.signal(signal);
                // How long they are frozen is part of the case.
                std::thread::sleep(Duration::from_millis(dice.u64(0..100)));
            }
            worker.tell("stop 1000");
            released(&worker, &mark)
        }
        Fault::FreezeGuardForAMomentAndKillWorker => {
            signal_guard(Signal::SIGSTOP);
            worker.signal(Signal::SIGKILL);
            // How long the guard is frozen is part of the case.
            std::thread::sleep(Duration::from_millis(dice.u64(0..100)));
            signal_guard(Signal::SIGCONT);
            next_worker(&mut worker, state.path(), &mark)
        }
        Fault::KillGuardOfFrozenWorker => {
            worker.signal(Signal::SIGSTOP);
            signal_guard(Signal::SIGKILL);
            // How long the worker is frozen is part of the case.
            std::thread::sleep(Duration::from_millis(dice.u64(0..100)));
            worker.signal(Signal::SIGCONT);
            released(&worker, &mark)
        }
    };
    match judged {
        Judged::AtRelease { is_gone } => {
            assert!(is_gone, "{case}: these live: {:?}", mark.holders());
            tally.at_release += 1;
            tally.judged.insert(fault);
        }
        Judged::AtLeaseEnd => {
            tally.at_lease_end += 1;
            tally.judged.insert(fault);
        }
        Judged::PastLeaseEnd { holders, waited } => {
            let are_killed = !holders.is_empty() && holders.iter().all(|holder| holder.is_killed);
            assert!(
                are_killed || waited > BUSY,
                "{case}: these live past the end of the lease, and what has to kill them has waited {waited:?} for a \
                 processor: {holders:?}"
            );
            tally.too_busy += 1;
        }
        Judged::Unproved(words) => {
            assert!(!is_named, "{case}: no process has cleared its environment, yet: {words}");
            assert!(cgroup.is_none(), "{case}: nothing forks its way out of a cgroup, yet: {words}");
            tally.unproved += 1;
        }
    }
    drop(worker);
    wait_for("the end of all", || {
        // What forks meanwhile is met by the next look.
        leftovers.kill();
        !mark.is_held()
    });
}

/// What the checker saw at the moment that counts.
enum Judged {
    AtRelease {
        is_gone: bool,
    },
    /// Nothing lived.
    AtLeaseEnd,
    /// Something lived.
    PastLeaseEnd {
        /// What did not end while they were listed.
        holders: Vec<Holder>,
        /// For how long the process that has to kill has waited for a processor in the last part of the lease.
        waited: Duration,
    },
    /// Nothing was released, for these reasons, and what lives can't be distinguished from unrelated processes.
    Unproved(String),
}

/// The worker says that nothing of the job is left.
fn released(worker: &Worker, mark: &Mark) -> Judged {
    let mut word = worker.expect("");
    // The fault has come while the role changed.
    while word.starts_with("armed") || word.starts_with("not armed") {
        word = worker.expect("");
    }
    let is_gone = !mark.is_held();
    assert!(word.starts_with("stopped") || word.starts_with("finished"), "{word}");
    Judged::AtRelease { is_gone }
}

/// `killer` has to end what is left; there is none if the tree has ended by itself.
fn lease_ends(worker: &Worker, mark: &Mark, killer: Option<Pid>) -> Judged {
    wait_for("the last part of the lease", || BootTime::now() + LAST >= worker.lease_until());
    let before = killer.map(waited).unwrap_or_default();
    wait_for("the end of the lease", || BootTime::now() >= worker.lease_until());
    if !mark.is_held() {
        return Judged::AtLeaseEnd;
    }
    let holders = mark.holders();
    let waited = killer.map(waited).unwrap_or_default().saturating_sub(before);
    Judged::PastLeaseEnd { holders, waited }
}

/// The next worker of the member does what each does first.
fn next_worker(worker: &mut Worker, state: &Path, mark: &Mark) -> Judged {
    worker.wait();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let by = BootTime::now() + PATIENCE;
        let lock = StateLock::acquire_by(state, "east-1", by).await.expect("guard and worker end");
        loop {
            let Err(words) = sweep(&names().lock(lock.clone()), &[], BootTime::now() + SWEEP_WITHIN).await
            else {
                return Judged::AtRelease { is_gone: !mark.is_held() };
            };
            let holders = mark.holders();
            if !holders.is_empty() && holders.iter().all(|holder| holder.is_unmarked) {
                return Judged::Unproved(words);
            }
            assert!(BootTime::now() < by, "{words}; of this tree live: {holders:?}");
        }
    })
}

/// A fifo that all processes of a tree hold open.
struct Mark {
    reader: Mutex<File>,
    path: PathBuf,
}

impl Mark {
    fn new(path: &Path) -> Mark {
        mkfifo(path, Mode::from_bits_truncate(0o666)).expect("a fifo");
        let reader = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path);
        Mark { reader: Mutex::new(reader.expect("a reader")), path: path.to_owned() }
    }

    /// Whether a process has it open for writing, which none ever does.
    fn is_held(&self) -> bool {
        match self.reader.lock().expect("no panic").read(&mut [0]) {
            Ok(0) => false,
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            Err(error) => panic!("the fifo can't be read: {error}"),
        }
    }

    /// Those who hold it.
    fn holders(&self) -> Vec<Holder> {
        let holds = |task: &Path| {
            let files = fs::read_dir(task.join("fd")).into_iter().flatten().flatten();
            files.filter_map(|file| fs::read_link(file.path()).ok()).any(|link| link == self.path)
        };
        let me = fs::read_link("/proc/self").expect("/proc");
        let tasks = fs::read_dir("/proc").expect("/proc").flatten().filter(|entry| {
            entry.file_name() != me
                && entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok())
        });
        tasks.map(|entry| entry.path()).filter(|task| holds(task)).map(|task| Holder::read(&task)).collect()
    }
}

/// A process of a tree.
#[derive(Debug)]
struct Holder {
    /// SIGKILL is pending: it runs no more of its program.
    is_killed: bool,
    /// The run is not named in its environment.
    is_unmarked: bool,
    /// What the kernel reports about it, for people.
    #[expect(dead_code, reason = "shown where a test fails")]
    stat: String,
}

impl Holder {
    fn read(task: &Path) -> Holder {
        let status = fs::read_to_string(task.join("status")).unwrap_or_default();
        let kill = 1_u64 << (Signal::SIGKILL as u32 - 1);
        let is_pending = |set: &str| {
            let mask = status.lines().find_map(|line| line.strip_prefix(set)).map(str::trim);
            mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & kill != 0)
        };
        let environ = fs::read(task.join("environ")).unwrap_or_default();
        Holder {
            is_killed: is_pending("SigPnd:") || is_pending("ShdPnd:"),
            is_unmarked: !environ.split(|&byte| byte == 0).any(|variable| variable.starts_with(b"DR_RUN=")),
            stat: fs::read_to_string(task.join("stat")).unwrap_or_default(),
        }
    }
}

/// The processes whose command line names this program, ended with the test, in panic too.
struct Leftovers(String);

impl Leftovers {
    fn living(&self) -> Vec<Pid> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").expect("/proc").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if line.split(|&byte| byte == 0).any(|argument| argument == self.0.as_bytes()) {
                found.push(Pid::from_raw(pid));
            }
        }
        found
    }

    fn kill(&self) {
        for pid in self.living() {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        // Of a test that has failed.
        self.kill();
    }
}

/// For how long the threads of a process have waited for a processor, in all; 0 where the kernel does not say.
fn waited(pid: Pid) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let waited = tasks.filter_map(|task| {
        let times = fs::read_to_string(task.path().join("schedstat")).ok()?;
        times.split(' ').nth(1)?.parse::<u64>().ok()
    });
    Duration::from_nanos(waited.sum())
}
