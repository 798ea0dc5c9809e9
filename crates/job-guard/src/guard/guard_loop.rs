//! The guard's loop: wait for an event, handle it, read the clock, act.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::{fs::OpenOptionsExt as _, net::UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use boot_time::BootTime;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, Shutdown, recvmsg, send, shutdown};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::{self, Pid};
use rustix::process::{PidfdFlags, WaitOptions, pidfd_open, wait};
use rustix::stdio::dup2_stdin;

use super::cgroup::{self, Cgroup};
use super::freezer::Freezer;
use super::invocation::EXIT_USAGE;
use super::last::HeldLock;
use super::last_will::LastWill;
use super::launch::{self, Launched, NO_TIME};
use super::memory;
use super::oom::{OomKills, spare_the_guard};
use super::plan::{Plan, Step};
use super::protocol::{ADOPTION, Exit, Launch, Lines, Lingering, Order, Report, Why, encode};
use super::readable::is_readable;
use super::record::Record;
use super::relay::Relay;
use super::tree;
use super::waiting::Waiting;

/// The pause between two rounds of SIGKILL, unless a death wakes the guard earlier.
const KILL_INTERVAL: Duration = Duration::from_millis(10);

/// How often frozen processes are looked at: another process may have continued one, or they can't be continued yet.
const FROZEN_INTERVAL: Duration = Duration::from_millis(100);

/// How long after the first SIGKILL, and how often, surviving processes are reported.
const LINGERING_INTERVAL: Duration = Duration::from_secs(1);

/// The longest wait: within a timer's range, and rare enough to cost nothing.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Why nothing is started without the lock that was sent: the kernel drops a descriptor for which there is no room.
const NO_LOCK: &str = "the guard did not receive the member's lock; check the limit of open files";

/// Waits for the start order on standard input, and guards the job to its end.
pub(super) fn run() -> ExitCode {
    let mut orders = Orders::default();
    let launch = match orders.first() {
        Ok(Some(Order::Start(launch))) => launch,
        Ok(None) => return ExitCode::SUCCESS, // the worker went away before it wanted anything
        Ok(Some(_)) | Err(_) => return ExitCode::from(EXIT_USAGE),
    };
    let has_lock = orders.lock().is_some();
    // Before anything is started: with a disk that hangs already this waits, and no job runs.
    if let Err(error) = memory::lock() {
        report(&Report::Unlocked { error: error.to_string() });
    }
    let guarded = match has_lock {
        false if launch.lock_from.is_some() => Err(NO_LOCK.to_owned()),
        _ => Wakers::new(&launch.guard_name)
            .map_err(|error| format!("the guard can't set itself up: {error}"))
            .and_then(|wakers| GuardLoop::start(&launch, &mut orders, wakers)),
    };
    match guarded {
        Ok(guard_loop) => guard_loop.guard(),
        Err(error) => {
            report(&Report::Failed { error });
            report(&Report::Gone);
        }
    }
    let will = orders.will_of_the_dead();
    let lock = orders.held_lock(launch.lock_from);
    if let (Some(lock), Some(record), Some(will)) = (lock, &launch.record, will) {
        lock.release(record, &will);
    }
    ExitCode::SUCCESS
}

/// Sends a report to the worker. It never blocks the guard: a worker that does not read loses the report.
fn report(report: &Report) {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let _ = send(io::stdin().as_raw_fd(), &encode(report), flags);
}

struct GuardLoop<'a> {
    plan: Plan,
    main: Main,
    stop_signal: Signal,
    freezer: Freezer,
    /// Whether all processes were at rest at the last look, which was reported.
    is_frozen: bool,
    cgroup: Option<Cgroup>,
    /// The file of the record of this run.
    record: Option<PathBuf>,
    /// Whether the program goes on when the worker has died.
    outlives: bool,
    /// Without a worker: where the next one connects.
    waiting: Option<Waiting>,
    orders: &'a mut Orders,
    relay: Option<Relay>,
    oom_kills: OomKills,
    wakers: Wakers,
    /// When to report processes that survive SIGKILL.
    name_lingering_at: Option<BootTime>,
    /// Whether no child is left, though its cgroup is not known to be empty: nothing reports when it is.
    waits_for_cgroup: bool,
}

/// The process that the guard started.
enum Main {
    /// Still the launcher.
    Launching(Launched),
    /// The job's program.
    Running(Pid),
    /// Reaped. Its pid may belong to another process by now.
    Ended,
}

impl<'a> GuardLoop<'a> {
    fn start(launch: &Launch, orders: &'a mut Orders, wakers: Wakers) -> Result<GuardLoop<'a>, String> {
        let stop_timeout = Duration::from_millis(launch.stop_timeout_ms);
        let plan = Plan::new(stop_timeout, launch.until.into(), launch.freezes);
        if BootTime::now() >= plan.start_by() {
            return Err(NO_TIME.to_owned());
        }
        tree::keep_reserve().map_err(|error| format!("the guard can't set itself up: {error}"))?;
        prctl::set_child_subreaper(true)
            .map_err(|errno| format!("the guard can't become a subreaper: {errno}"))?;
        let oom_score_adj = spare_the_guard();
        let cgroup = launch.cgroup.as_deref().map(|dir| {
            Cgroup::create(dir).map_err(|error| format!("can't set up the cgroup {}: {error}", dir.display()))
        });
        let cgroup = cgroup.transpose()?;
        let dir = cgroup.as_ref().map(Cgroup::dir);
        let (relay, output) = launch
            .relays_output
            .then(Relay::new)
            .transpose()
            .map_err(|errno| format!("can't make a pipe for the job's output: {errno}"))?
            .unzip();
        let (limits, unmet) = cgroup::limit(cgroup.as_ref(), launch);
        if !unmet.is_empty() {
            report(&Report::Unmet(unmet));
        }
        let oom_kills = OomKills::of(dir);
        let mut launched = launch::launch(launch, dir, limits, plan.start_by(), oom_score_adj, output)?;
        // While the launcher waits. Nothing waits for the disk once the program may run: its deadline would pass.
        if let Some(path) = &launch.record
            && let Err(error) = write_record(path, dir, launched.pid, launch.outlives.as_deref())
        {
            launched.abandon();
            return Err(error);
        }
        report(&Report::Starting);
        launched.go();
        Ok(GuardLoop {
            plan,
            main: Main::Launching(launched),
            stop_signal: launch.stop_signal.signal(),
            freezer: Freezer::default(),
            is_frozen: false,
            cgroup,
            record: launch.record.clone(),
            outlives: launch.outlives.is_some(),
            waiting: None,
            orders,
            relay,
            oom_kills,
            wakers,
            name_lingering_at: None,
            waits_for_cgroup: false,
        })
    }

    /// Returns when no process of the job is left.
    fn guard(mut self) {
        loop {
            self.wait();
            // First the clock, then the orders, then the job, because this process may have been frozen or the machine
            // asleep at any point. In this order no renewal that came before `now` is overlooked. A clock that was read
            // too early is read again at once: the timer fires for a deadline that has passed.
            let now = BootTime::now();
            self.take_orders(now);
            if let Some(relay) = &mut self.relay {
                relay.step(now);
            }
            self.see_the_launch_through();
            self.waits_for_cgroup = self.reap(now);
            if self.waits_for_cgroup && self.cgroup_is_empty() {
                break;
            }
            let was_stopping = self.plan.is_stopping();
            match self.plan.step(now) {
                Step::Freeze => self.freeze(),
                // Also what could not be continued before.
                Step::Wait | Step::Thaw => self.thaw(),
                Step::Ask(why) => {
                    self.thaw();
                    report(&Report::Stopping(why));
                    self.ask();
                }
                Step::Kill => {
                    if !was_stopping {
                        report(&Report::Expired);
                    }
                    self.kill_all(now);
                }
            }
        }
        drop(self.cgroup.take());
        if let Some(relay) = self.relay.take() {
            let lines = relay.finish();
            if lines > 0 {
                report(&Report::Dropped { lines });
            }
        }
        report(&Report::Gone);
        // After the last report: the worker does not wait for a disk that hangs to learn that the job has ended.
        if let Some(record) = self.record {
            // One that can't be removed costs the next worker one sweep.
            let _ = fs::remove_file(record);
        }
    }

    fn wait(&mut self) {
        let now = BootTime::now();
        let relay_at = self.relay.as_ref().and_then(Relay::wake_at);
        let look_at = match (self.plan.is_frozen(), self.is_frozen) {
            _ if self.waits_for_cgroup => now,
            (false, _) if self.freezer.is_cgroup_frozen() => now + FROZEN_INTERVAL,
            (false, _) => now + LONGEST_WAIT,
            (true, true) => now + FROZEN_INTERVAL,
            (true, false) => now,
        };
        let wake_at = self.plan.wake_at().min(relay_at.unwrap_or(look_at)).min(look_at);
        let wake_at = wake_at.clamp(now + KILL_INTERVAL, now + LONGEST_WAIT);
        let stdin = io::stdin();
        let waiting = self.waiting.as_ref().map(Waiting::fd);
        let orders = if self.orders.open { Some(stdin.as_fd()) } else { waiting };
        let launch = match &self.main {
            Main::Launching(launched) => Some(launched.fd()),
            Main::Running(_) | Main::Ended => None,
        };
        let read = orders.into_iter().chain(launch).map(|fd| (fd, PollFlags::POLLIN));
        let relayed = self.relay.iter().flat_map(Relay::waits_for);
        self.wakers.wait(wake_at, read.chain(relayed));
    }

    fn take_orders(&mut self, now: BootTime) {
        if let Some(waiting) = &self.waiting
            && !self.orders.open
        {
            self.orders.open_from(waiting.accept());
        }
        self.orders.drain();
        loop {
            match self.orders.next() {
                Ok(Some(Order::Adopt { format: ADOPTION })) if self.waiting.is_some() => {
                    if self.begin_anew().is_err() {
                        self.orders.refuse();
                        break;
                    }
                }
                // It is not the next worker, or another version of it.
                Ok(Some(_)) | Err(_) if self.waiting.is_some() => {
                    self.orders.refuse();
                    break;
                }
                Ok(Some(Order::Until(until))) => {
                    self.plan.renew(until.into());
                    self.oom_kills.look();
                }
                Ok(Some(Order::Arm(terms))) => {
                    let stop_timeout = Duration::from_millis(terms.stop_timeout_ms);
                    self.plan.arm(stop_timeout, terms.until.into(), terms.freezes);
                    self.stop_signal = terms.stop_signal.signal();
                    self.outlives = false;
                    report(&Report::Armed);
                }
                Ok(Some(Order::Signal(signal))) => {
                    // One that has been reaped is not there any more, so no other process gets the signal.
                    if let Main::Running(pid) = self.main {
                        let _ = kill(pid, signal.signal());
                    }
                }
                Ok(Some(Order::Suspend(suspended))) => self.plan.suspend(suspended),
                Ok(Some(Order::Stop { kill_at })) => self.plan.stop_by(now, kill_at.into(), Why::Order),
                // A worker that sends an invalid order counts as gone. `Orders::next` returns no order about the will.
                Ok(Some(Order::Start(_) | Order::Adopt { .. } | Order::Will(_))) | Err(_) => {
                    self.orders.open = false;
                    self.orders.will = None;
                    self.outlives = false;
                    break;
                }
                Ok(None) => break,
            }
        }
        if !self.orders.open {
            if !self.waits_for_a_worker() {
                self.plan.stop(now, Why::WorkerGone);
            }
            if let Some(relay) = &mut self.relay {
                relay.leave_worker();
            }
        }
    }

    /// Whether the program goes on without its worker. From then on this member's lock is free, and the next worker can connect.
    fn waits_for_a_worker(&mut self) -> bool {
        let goes_on = self.outlives && matches!(self.main, Main::Running(_));
        if !goes_on || self.plan.is_stopping() {
            return false;
        }
        if self.waiting.is_none() {
            let Some(record) = &self.record else { return false };
            self.waiting = Waiting::listen(record).ok();
        }
        if self.waiting.is_some() {
            self.orders.forget();
        }
        self.waiting.is_some()
    }

    /// The next worker has connected: the same as after the start from now on.
    fn begin_anew(&mut self) -> io::Result<()> {
        let Main::Running(pid) = self.main else { return Err(io::ErrorKind::NotFound.into()) };
        let output = self.orders.output().ok_or(io::ErrorKind::InvalidInput)?;
        if let Some(relay) = &mut self.relay {
            relay.begin_anew(&output)?;
        }
        self.waiting = None;
        report(&Report::Adopted { pid: pid.as_raw() });
        Ok(())
    }

    /// Reads whether the job's program runs, once that is decided.
    fn see_the_launch_through(&mut self) {
        if !matches!(&self.main, Main::Launching(launched) if is_readable(launched.fd())) {
            return;
        }
        let Main::Launching(launched) = mem::replace(&mut self.main, Main::Ended) else { return };
        let pid = launched.pid;
        report(&match launched.outcome() {
            Ok(()) => {
                self.main = Main::Running(pid);
                Report::Started { pid: pid.as_raw() }
            }
            // The launcher is exiting. It is reaped like any child.
            Err(error) => Report::Failed { error },
        });
    }

    /// Reaps the children that have ended. True if no child is left, and so no descendant.
    fn reap(&mut self, now: BootTime) -> bool {
        loop {
            let (pid, status) = match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => (Pid::from_raw(pid.as_raw_nonzero().get()), status),
                Ok(None) => return false,
                Err(rustix::io::Errno::CHILD) => return true,
                Err(_) => continue,
            };
            // A raw number: signals from 32 on have no names.
            let exit = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Exit::Code(code),
                (None, Some(signal)) => Exit::Signal(signal),
                (None, None) => continue,
            };
            // The process has closed its end of the pipe, so the outcome is decided.
            self.see_the_launch_through();
            if matches!(self.main, Main::Running(main) if main == pid) {
                self.main = Main::Ended;
                if !exit.is_success() && self.oom_kills.have_risen() {
                    report(&Report::OutOfMemory);
                }
                report(&Report::Exited(exit));
                self.end_the_rest(now);
            }
        }
    }

    /// The job ends with its program. The rest of its tree is stopped like the job itself. During a stop, the stop
    /// signal is now sent to the processes that are not in the group.
    fn end_the_rest(&mut self, now: BootTime) {
        self.waiting = None;
        if self.plan.is_stopping() {
            self.ask();
        } else {
            self.plan.stop(now, Why::Exited);
        }
    }

    fn freeze(&mut self) {
        let cgroup = self.cgroup.as_ref().map(Cgroup::dir);
        let is_frozen = self.freezer.freeze(Pid::this(), cgroup).unwrap_or(false);
        if is_frozen && !self.is_frozen {
            report(&Report::Frozen);
        }
        // One that another process has continued is stopped again, and nothing new is reported.
        self.is_frozen |= is_frozen;
    }

    /// Does nothing unless something was frozen.
    fn thaw(&mut self) {
        let is_thawed = self.freezer.thaw(self.cgroup.as_ref().map(Cgroup::dir));
        if is_thawed && mem::take(&mut self.is_frozen) {
            report(&Report::Thawed);
        }
    }

    /// False as well if this can't be determined.
    fn cgroup_is_empty(&self) -> bool {
        self.cgroup.as_ref().is_none_or(|own| cgroup::is_empty(own.dir()).unwrap_or(false))
    }

    /// Sends the stop signal: to the job's process group while its leader exists, else to all remaining processes.
    /// Errors mean that a process has ended meanwhile.
    fn ask(&self) {
        // A stopped process receives the signal only when it is continued.
        for signal in [self.stop_signal, Signal::SIGCONT] {
            match &self.main {
                Main::Launching(launched) => {
                    let _ = kill(launched.pid, signal);
                }
                Main::Running(pid) => {
                    let _ = killpg(*pid, signal);
                }
                Main::Ended => {
                    // Processes that this does not reach are killed at the end of the stop timeout.
                    for pid in tree::descendants(Pid::this()).unwrap_or_default() {
                        let _ = kill(pid, signal);
                    }
                }
            }
        }
    }

    /// Sends SIGKILL to every descendant of the guard.
    fn kill_all(&mut self, now: BootTime) {
        if let Some(own) = &self.cgroup {
            let _ = cgroup::kill(own.dir());
        }
        if let Main::Running(pid) = self.main {
            let _ = killpg(pid, Signal::SIGKILL);
        }
        let mut lingering = Lingering::default();
        if let Err(error) = tree::Sweep::default().kill(Pid::this(), &mut lingering) {
            lingering.blind = Some(error.to_string());
        }
        let name_at = *self.name_lingering_at.get_or_insert(now + LINGERING_INTERVAL);
        if now >= name_at {
            self.name_lingering_at = Some(now + LINGERING_INTERVAL);
            report(&Report::Lingering(lingering));
        }
    }
}

/// The worker's orders, on standard input.
#[derive(Default)]
struct Orders {
    lines: Lines,
    open: bool,
    /// The worker's last will, by the last order about it.
    will: Option<LastWill>,
    /// What has come with the first order: the member's lock, and the pipe for the output from a later worker. Numbers, so that
    /// nothing closes them but [`forget`](Orders::forget) and the end of the guard.
    descriptors: Vec<RawFd>,
    worker: Worker,
}

/// Who sends the orders.
#[derive(Default)]
enum Worker {
    /// The one that has started this guard.
    #[default]
    First,
    /// A later one, with its process id.
    Later(i32, OwnedFd),
    /// A later one whose death can't be noticed, or none.
    Unknown,
}

impl Orders {
    /// Waits for the first order; `None` if the stream ends before it.
    fn first(&mut self) -> Result<Option<Order>, super::protocol::Garbled> {
        self.open = true;
        while self.open {
            if let Some(order) = self.next()? {
                return Ok(Some(order));
            }
            self.read();
        }
        Ok(None)
    }

    /// The next order that was read whole. Those about the will are taken on the way.
    fn next(&mut self) -> Result<Option<Order>, super::protocol::Garbled> {
        loop {
            match self.lines.next()? {
                Some(Order::Will(will)) => self.will = will,
                other => return Ok(other),
            }
        }
    }

    /// The worker's last will, if the socket is closed by now.
    fn will_of_the_dead(&mut self) -> Option<LastWill> {
        self.drain();
        while self.next().ok()?.is_some() {}
        self.will.take().filter(|_| !self.open)
    }

    fn lock(&self) -> Option<RawFd> {
        self.descriptors.first().copied()
    }

    /// The pipe for the output, from a later worker: the same one, without a wait for its reader.
    fn output(&mut self) -> Option<File> {
        let flags = OFlag::O_NONBLOCK.bits();
        let path = format!("/proc/self/fd/{}", self.descriptors.get(1)?);
        let output = OpenOptions::new().write(true).custom_flags(flags).open(path).ok()?;
        close(self.descriptors.drain(1..));
        Some(output)
    }

    /// Closes what the worker has sent, and forgets it.
    fn forget(&mut self) {
        close(self.descriptors.drain(..));
        (self.lines, self.will, self.worker) = (Lines::default(), None, Worker::Unknown);
    }

    /// The member's lock, with the worker that has it as well. `first`: the one that has started this guard.
    fn held_lock(&mut self, first: Option<i32>) -> Option<HeldLock> {
        let fd = self.lock()?;
        match mem::replace(&mut self.worker, Worker::Unknown) {
            Worker::First => Some(HeldLock { worker: first?, later: None, fd }),
            Worker::Later(worker, handle) => Some(HeldLock { worker, later: Some(handle), fd }),
            Worker::Unknown => None,
        }
    }

    /// Ends a connection.
    fn refuse(&mut self) {
        let _ = shutdown(io::stdin().as_raw_fd(), Shutdown::Both);
        self.open = false;
    }

    /// Reads the orders of a worker that has connected.
    fn open_from(&mut self, worker: Option<(UnixStream, Pid)>) {
        let Some((stream, pid)) = worker else { return };
        self.open = dup2_stdin(&stream).is_ok();
        let pid = pid.as_raw();
        let handle =
            rustix::process::Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        self.worker = handle.map_or(Worker::Unknown, |handle| Worker::Later(pid, handle));
    }

    /// Reads what is available without waiting.
    fn drain(&mut self) {
        while self.open && is_readable(io::stdin().as_fd()) {
            self.read();
        }
    }

    /// One read. It blocks if nothing is available.
    fn read(&mut self) {
        let mut buffer = [0; 16 * 1024];
        let mut control = nix::cmsg_space!([RawFd; 2]);
        let mut parts = [IoSliceMut::new(&mut buffer)];
        // Closed on `exec`: a job that has the lock would keep it locked.
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let count = match recvmsg::<()>(io::stdin().as_raw_fd(), &mut parts, Some(&mut control), flags) {
            Ok(received) => {
                for message in received.cmsgs().into_iter().flatten() {
                    if let ControlMessageOwned::ScmRights(descriptors) = message {
                        self.descriptors.extend(descriptors);
                    }
                }
                received.bytes
            }
            Err(Errno::EINTR | Errno::EAGAIN) => return,
            Err(_) => 0,
        };
        self.open = count > 0;
        self.lines.push(&buffer[..count]);
    }
}

fn close(descriptors: impl Iterator<Item = RawFd>) {
    for fd in descriptors {
        let _ = unistd::close(fd);
    }
}

/// Records what is about to be started: what this launcher becomes.
fn write_record(
    path: &Path,
    cgroup: Option<&Path>,
    launcher: Pid,
    outlives: Option<&str>,
) -> Result<(), String> {
    let written = Record::of_this_guard(cgroup, launcher, outlives).and_then(|record| record.write(path));
    written.map_err(|error| {
        format!(
            "can't record in {} what is running: {error}; check that its directory is writable",
            path.display()
        )
    })
}

/// Everything that can wake the guard.
struct Wakers {
    deaths: SignalFd,
    timer: TimerFd,
}

impl Wakers {
    fn new(name: &str) -> nix::Result<Wakers> {
        let _ = CString::new(name).map(|name| prctl::set_name(&name));
        // All signals are blocked. SIGCHLD is read from a descriptor. No catchable signal ends the guard, because it
        // must not end before the job. The worker, which receives the same signals, gives the order to stop.
        SigSet::all().thread_block()?;
        let mut deaths = SigSet::empty();
        deaths.add(Signal::SIGCHLD);
        Ok(Wakers {
            deaths: SignalFd::with_flags(&deaths, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?,
            timer: TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?,
        })
    }

    /// Waits until `until`, the death of a child, or an event on one of the `others`. The caller has to check which:
    /// that may change before this returns.
    fn wait<'fd>(&mut self, until: BootTime, others: impl Iterator<Item = (BorrowedFd<'fd>, PollFlags)>) {
        // Absolute, on the clock that runs during suspend: the timer fires on wake-up.
        let ring = Expiration::OneShot(TimeSpec::from_duration(until.as_duration()));
        let set = self.timer.set(ring, TimerSetTimeFlags::TFD_TIMER_ABSTIME);
        let own = [self.deaths.as_fd(), self.timer.as_fd()];
        let mut fds: Vec<PollFd<'_>> = own.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).into();
        fds.extend(others.map(|(fd, flags)| PollFd::new(fd, flags)));
        // Without a timer the guard polls often.
        let timeout = if set.is_ok() { PollTimeout::NONE } else { PollTimeout::from(10u8) };
        let _ = poll(&mut fds, timeout);
        // Drained, so that it fires again.
        while let Ok(Some(_)) = self.deaths.read_signal() {}
    }
}
