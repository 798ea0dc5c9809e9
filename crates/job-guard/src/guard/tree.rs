//! Process trees, read from `/proc`.
//!
//! Only ENOENT and ESRCH prove that a process is gone. Any other failure (no descriptors, no permission) is an error,
//! and the caller tries again.
//!
//! A list is outdated when it is used, so every caller repeats until no process is left. In theory a pid could be
//! reaped and reused before it is signalled. But the kernel hands out all other pids first, and the window is
//! microseconds.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread;

use nix::errno::Errno;
use nix::unistd::{self, Pid};

use super::protocol::Lingering;

/// One process as `/proc/PID/stat` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) parent: Pid,
    pub(crate) group: Pid,
    pub(crate) session: Pid,
    /// When it was started, in clock ticks since the boot. Together with the pid this identifies a process.
    pub(crate) started: u64,
    state: u8,
    threads: u32,
}

impl Process {
    /// The process `pid`, `None` if there is none.
    ///
    /// # Errors
    /// If it can't be determined whether there is one.
    pub(crate) fn read(pid: Pid) -> io::Result<Option<Process>> {
        match with_reserve(|| kernel_text(&format!("/proc/{pid}/stat"))) {
            Ok(stat) => parse_stat(&stat).map(Some).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("/proc/{pid}/stat is not understood: {stat:?}"),
                )
            }),
            Err(error) => unless_gone(error).map(|()| None),
        }
    }

    /// Whether it is stopped, by a signal or a debugger, or dead.
    ///
    /// # Errors
    /// If this can't be determined.
    pub(crate) fn rests(&self) -> io::Result<bool> {
        match self.state {
            b'T' | b't' => Ok(true),
            b'Z' | b'X' => Ok(self.is_dead() || self.threads_rest()?),
            _ => Ok(false),
        }
    }

    /// Whether each of its threads is stopped or has ended.
    fn threads_rest(&self) -> io::Result<bool> {
        let threads = match with_reserve(|| numbers_in(&format!("/proc/{}/task", self.pid))) {
            Err(error) => return unless_gone(error).map(|()| true),
            threads => threads?,
        };
        for thread in threads {
            let stat = read(self.pid, &format!("task/{thread}/stat"))?;
            let thread = stat.and_then(|stat| parse_stat(&String::from_utf8_lossy(&stat)));
            if thread.is_some_and(|thread| !matches!(thread.state, b'T' | b't' | b'Z' | b'X')) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether it has called vfork and waits for its child to call exec or to end. Until then it does nothing, not even stop.
    ///
    /// # Errors
    /// If this can't be determined.
    pub(crate) fn waits_for_exec(&self) -> io::Result<bool> {
        // The function of the kernel that it sleeps in, by the names of several versions.
        const WAITS: [&[u8]; 3] = [b"kernel_clone", b"wait_for_vfork_done", b"_do_fork"];
        Ok(self.state == b'D' && read(self.pid, "wchan")?.is_some_and(|wchan| WAITS.contains(&&*wchan)))
    }

    /// Whether all of its threads have ended and it only waits to be reaped.
    ///
    /// A process whose main thread has ended is also shown as a zombie while its other threads run. The number of
    /// threads distinguishes the two.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

/// Whether this process exists and is no zombie.
pub fn is_alive(pid: i32) -> bool {
    matches!(Process::read(Pid::from_raw(pid)), Ok(Some(process)) if !process.is_dead())
}

/// The fields after the name, which may itself hold spaces and parentheses.
pub(crate) fn parse_stat(stat: &str) -> Option<Process> {
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
        started: fields.get(19)?.parse().ok()?,
    })
}

/// A file of the process `pid` in `/proc`, `None` if there is no such process.
///
/// # Errors
/// If it can't be read.
pub(crate) fn read(pid: Pid, file: &str) -> io::Result<Option<Vec<u8>>> {
    match with_reserve(|| fs::read(format!("/proc/{pid}/{file}"))) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => unless_gone(error).map(|()| None),
    }
}

/// A file of the kernel. The names of processes and of mounts in it can be any bytes.
pub(crate) fn kernel_text(path: &str) -> io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The numbers of all processes.
///
/// # Errors
/// If they can't be listed.
pub(crate) fn pids() -> io::Result<Vec<Pid>> {
    with_reserve(|| numbers_in("/proc"))
}

/// Takes the next number of a process or thread in this PID namespace, for a thread that ends at once. The one after it is higher,
/// unless the numbers wrap around at `kernel.pid_max`. (In a container `/proc/loadavg` can have those of its host.)
///
/// # Errors
/// If no thread can be started.
pub(crate) fn next_number() -> io::Result<i32> {
    let thread = thread::Builder::new().spawn(|| unistd::gettid().as_raw())?;
    thread.join().map_err(|_| io::Error::other("a thread that does nothing has panicked"))
}

/// Whether this is the number of a thread, and another one that of its process.
///
/// # Errors
/// If this can't be determined.
pub(crate) fn is_thread(number: Pid) -> io::Result<bool> {
    let status = read(number, "status")?.unwrap_or_default();
    let process = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"Tgid:"));
    Ok(process.is_some_and(|process| process.trim_ascii() != number.to_string().as_bytes()))
}

/// How often the threads of a process are listed again because one of them has ended meanwhile.
const LOOKS: usize = 20;

/// Every process that this user may see.
///
/// # Errors
/// If the list, or a visible process, can't be read.
pub(crate) fn all() -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for pid in pids()? {
        match Process::read(pid) {
            Ok(process) => found.extend(process),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The children of `parent`, those of all its threads; none if there is no such process.
///
/// # Errors
/// If they can't be determined.
pub(crate) fn children(parent: Pid) -> io::Result<Vec<Pid>> {
    for _ in 0..LOOKS {
        match with_reserve(|| listed_children(parent)) {
            Ok(Some(children)) => return Ok(children),
            Ok(None) => break,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    // A kernel without CONFIG_PROC_CHILDREN: look at every process.
    Ok(all()?.into_iter().filter(|process| process.parent == parent).map(|process| process.pid).collect())
}

/// `None` if this kernel does not list children; EAGAIN if one of the threads has ended meanwhile.
fn listed_children(parent: Pid) -> io::Result<Option<Vec<Pid>>> {
    let tasks = match numbers_in(&format!("/proc/{parent}/task")) {
        Ok(tasks) => tasks,
        Err(error) => return unless_gone(error).map(|()| Some(Vec::new())),
    };
    let mut found = Vec::new();
    for task in tasks {
        let task = format!("/proc/{parent}/task/{task}");
        match fs::read_to_string(format!("{task}/children")) {
            Ok(list) => found
                .extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw)),
            Err(error) => {
                unless_gone(error)?;
                if fs::exists(&task)? {
                    return Ok(None);
                }
                // Its children belong to another thread now, which may have been read before.
                if fs::exists(format!("/proc/{parent}"))? {
                    return Err(Errno::EAGAIN.into());
                }
            }
        }
    }
    Ok(Some(found))
}

/// All descendants of `root`, parents before their children; not `root` itself. Those of a process of
/// another user may be hidden: they come to `root` once that process has ended, if it is a subreaper.
///
/// # Errors
/// If they can't be determined.
pub(crate) fn descendants(root: Pid) -> io::Result<Vec<Pid>> {
    let mut found = children(root)?;
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        next += 1;
        let below = match children(pid) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Vec::new(),
            below => below?,
        };
        for child in below {
            // A process that changes its parent between two reads may be listed twice.
            if !found.contains(&child) {
                found.push(child);
            }
        }
    }
    Ok(found)
}

/// How many rounds one sweep makes while the tree grows.
const ROUNDS: usize = 100;

/// Kills the descendants of a process until none is alive.
///
/// A process that died between two looks may have left a child. So the sweep repeats until every listed process was
/// dead before the list was made: a dead process makes no more children.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    dead: BTreeSet<Pid>,
}

impl Sweep {
    /// Sends SIGKILL to all descendants of `root`, and records them in `lingering`. True only if no descendant is
    /// alive.
    ///
    /// Each is killed as soon as it is seen, and zombies cost only a line of the list. Otherwise a job that forks as
    /// fast as it is killed would leave more and more zombies and outrun the sweep.
    ///
    /// # Errors
    /// If the descendants can't be determined.
    pub(crate) fn kill(&mut self, root: Pid, lingering: &mut Lingering) -> io::Result<bool> {
        let mut killed = BTreeSet::new();
        for _ in 0..ROUNDS {
            let (mut is_empty, mut has_grown) = (true, false);
            let known = std::mem::take(&mut self.dead);
            let mut next = children(root)?;
            while let Some(pid) = next.pop() {
                if known.contains(&pid) {
                    self.dead.insert(pid);
                } else if is_dead(pid)? {
                    has_grown |= self.dead.insert(pid);
                } else {
                    is_empty = false;
                    if killed.insert(pid) {
                        has_grown = true;
                        lingering.kill(pid);
                    }
                    match children(pid) {
                        // Processes of another user may be hidden. They come to `root` when their parent ends, if
                        // `root` is a subreaper.
                        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                        below => next.extend(below?.into_iter().filter(|below| !self.dead.contains(below))),
                    }
                }
            }
            if !has_grown {
                return Ok(is_empty && self.are_dead()?);
            }
        }
        Ok(false)
    }

    /// Whether the zombies still are the same: the pid of a reaped one may have been reused.
    fn are_dead(&mut self) -> io::Result<bool> {
        for &pid in &self.dead {
            if !is_dead(pid)? {
                self.dead.remove(&pid);
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn is_dead(pid: Pid) -> io::Result<bool> {
    Ok(Process::read(pid)?.is_none_or(|process| process.is_dead()))
}

/// The numbers among the names in a directory of `/proc`.
fn numbers_in(dir: &str) -> io::Result<Vec<Pid>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        numbers.extend(number.map(Pid::from_raw));
    }
    Ok(numbers)
}

/// Whether an error means that the object does not exist any more; else the error.
pub(super) fn unless_gone(error: io::Error) -> io::Result<()> {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::ESRCH) => Ok(()),
        _ => Err(error),
    }
}

/// Descriptors that are released for reading `/proc` when the process has no others left.
static RESERVE: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Twice as many as one look needs, because other threads take some as they become free.
const RESERVED: usize = 4;

/// Fills the reserve.
///
/// # Errors
/// If there are no descriptors for it.
pub(crate) fn keep_reserve() -> io::Result<()> {
    refill(&mut RESERVE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn refill(reserve: &mut Vec<File>) -> io::Result<()> {
    while reserve.len() < RESERVED {
        reserve.push(File::open("/dev/null")?);
    }
    Ok(())
}

/// Runs `look`, and again with the descriptors of the reserve if none are left.
pub(super) fn with_reserve<T>(look: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let looked = look();
    let is_short = |error: &io::Error| {
        matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EMFILE | Errno::ENFILE))
    };
    if !looked.as_ref().is_err_and(is_short) {
        return looked;
    }
    let mut reserve = RESERVE.lock().unwrap_or_else(PoisonError::into_inner);
    reserve.clear();
    let again = look();
    // As far as it can be refilled. The next look may find more.
    let _ = refill(&mut reserve);
    again
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{Signal, kill};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
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
        assert_eq!(process.started, 99);
        assert!(!process.is_dead());
        assert_eq!(parse_stat("42 (cut"), None);
    }

    #[test]
    fn a_name_can_be_any_bytes() {
        let dir = tempfile::tempdir().expect("a directory");
        let program = dir.path().join(OsStr::from_bytes(b"x\xff"));
        std::os::unix::fs::symlink("/bin/sleep", &program).expect("a link");
        let mut child = Command::new(&program).arg("1000").spawn().expect("spawn");
        let found = Process::read(Pid::from_raw(child.id().cast_signed()));
        child.kill().expect("it lives");
        child.wait().expect("ended");
        assert!(found.expect("readable").is_some_and(|process| !process.is_dead()));
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
    fn only_what_was_not_found_is_gone() {
        for (errno, gone) in
            [(Errno::ENOENT, true), (Errno::ESRCH, true), (Errno::EMFILE, false), (Errno::EACCES, false)]
        {
            assert_eq!(unless_gone(errno.into()).is_ok(), gone, "{errno}");
        }
        let nobody = Pid::from_raw(i32::MAX);
        assert_eq!(Process::read(nobody).expect("known"), None);
        assert_eq!(children(nobody).expect("known"), []);
    }

    #[test]
    fn a_sweep_ends_when_all_below_are_dead() {
        let mut parent =
            Command::new("sh").args(["-c", "sleep 1000 & sleep 1000 & wait"]).spawn().expect("spawn");
        let root = Pid::from_raw(parent.id().cast_signed());
        while descendants(root).expect("readable").len() < 2 {
            std::thread::yield_now();
        }
        kill(root, Signal::SIGSTOP).expect("it lives");
        let mut sweep = Sweep::default();
        let mut lingering = Lingering::default();
        while !sweep.kill(root, &mut lingering).expect("readable") {
            std::thread::yield_now();
        }
        // They are not reaped yet.
        let left = descendants(root).expect("readable");
        assert_eq!(left.len(), 2);
        assert!(left.iter().all(|&pid| is_dead(pid).expect("readable")));
        assert!(left.iter().all(|pid| lingering.surviving.contains(&pid.as_raw())));
        parent.kill().expect("kill");
        parent.wait().expect("wait");
    }

    #[test]
    fn both_ways_of_finding_children_agree() {
        let me = Pid::this();
        let mut child = Command::new("sleep").arg("60").spawn().expect("spawn");
        let pid = Pid::from_raw(child.id().cast_signed());
        // Other tests' threads end beside this one.
        let listed = (0..100).find_map(|_| listed_children(me).ok()).expect("readable");
        let scanned =
            all().expect("readable").iter().any(|process| process.pid == pid && process.parent == me);
        let parent = Process::read(me).expect("readable").expect("myself").parent;
        let deep = descendants(parent).expect("readable");
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert!(scanned);
        assert!(deep.contains(&pid), "{deep:?}");
        if let Some(listed) = listed {
            assert!(listed.contains(&pid), "{listed:?}");
        }
    }
}
