//! The guard's loop: wait, take in what happened, read the clock, act.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{self, Pid};

use super::cgroup::Cgroup;
use super::launch::{self, Launched};
use super::plan::{Plan, Step};
use super::protocol::{Exit, Launch, Lines, Order, Report, Why, encode};
use super::tree;
use zk_session::BootTime;

/// Between two rounds of killing, should no death wake the guard before.
const KILL_INTERVAL: Duration = Duration::from_millis(10);

/// How long after the first SIGKILL, and how often, those that are still there are named.
const LINGERING_INTERVAL: Duration = Duration::from_secs(1);

/// The longest wait; far less than what a timer can't express, far more than costs anything.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Waits for the start order on standard input, and guards the job to its end.
pub(super) fn run(reports: File) -> ExitCode {
    let mut reports = Reports(reports);
    let mut orders = Orders::default();
    let launch = match orders.first() {
        Ok(Some(Order::Start(launch))) => launch,
        Ok(None) => return ExitCode::SUCCESS, // the worker went away before it wanted anything
        Ok(Some(_)) | Err(_) => return ExitCode::from(super::EXIT_USAGE),
    };
    let guarded = Wakers::new()
        .map_err(|error| format!("the guard can't set itself up: {error}"))
        .and_then(|wakers| Keeper::start(&launch, reports.clone_handle()?, orders, wakers));
    match guarded {
        Ok(keeper) => keeper.guard(),
        Err(error) => {
            reports.send(&Report::Failed { error });
            reports.send(&Report::Gone);
        }
    }
    ExitCode::SUCCESS
}

struct Keeper {
    plan: Plan,
    main: Main,
    stop_signal: Signal,
    cgroup: Option<Cgroup>,
    orders: Orders,
    reports: Reports,
    wakers: Wakers,
    /// When to name those that survive SIGKILL.
    name_lingering_at: Option<BootTime>,
}

/// The process that the guard started.
enum Main {
    /// Not yet the job's program.
    Launching(Launched),
    /// The job's program.
    Running(Pid),
    /// Reaped. Its pid may be another's by now.
    Ended,
}

impl Keeper {
    fn start(launch: &Launch, reports: Reports, orders: Orders, wakers: Wakers) -> Result<Keeper, String> {
        let mut plan = Plan::new(Duration::from_millis(launch.stop_timeout_ms), launch.until.into());
        if plan.step(BootTime::now()) != Step::Wait {
            return Err("the lease leaves no time to run and stop the job".to_owned());
        }
        prctl::set_child_subreaper(true)
            .map_err(|errno| format!("the guard can't become a subreaper: {errno}"))?;
        let cgroup = launch
            .cgroup
            .as_deref()
            .map(|dir| {
                Cgroup::create(dir)
                    .map_err(|error| format!("can't set up the cgroup {}: {error}", dir.display()))
            })
            .transpose()?;
        let launched = launch::launch(launch, cgroup.as_ref().map(Cgroup::dir))?;
        Ok(Keeper {
            plan,
            main: Main::Launching(launched),
            stop_signal: launch.stop_signal.signal(),
            cgroup,
            orders,
            reports,
            wakers,
            name_lingering_at: None,
        })
    }

    /// Returns when nothing of the job is left.
    fn guard(mut self) {
        loop {
            self.wait();
            // However long this process was frozen or the machine asleep: first the clock, then the orders,
            // and only then the job. In this order no renewal that came before `now` is overlooked, at
            // whatever point the process was frozen; and a clock read too early is read again at once, for
            // the timer rings for a deadline that has passed.
            let now = BootTime::now();
            self.take_orders(now);
            self.see_the_launch_through();
            if self.reap(now) && self.cgroup_is_empty() {
                break;
            }
            match self.plan.step(now) {
                Step::Wait => {}
                Step::Ask(why) => {
                    self.reports.send(&Report::Stopping(why));
                    self.ask();
                }
                Step::Kill => self.kill_all(now),
            }
        }
        drop(self.cgroup.take());
        self.reports.send(&Report::Gone);
    }

    fn wait(&mut self) {
        let now = BootTime::now();
        let wake_at = self.plan.wake_at().clamp(now + KILL_INTERVAL, now + LONGEST_WAIT);
        let stdin = io::stdin();
        let orders = self.orders.open.then_some(stdin.as_fd());
        let launch = match &self.main {
            Main::Launching(launched) => Some(launched.fd()),
            Main::Running(_) | Main::Ended => None,
        };
        self.wakers.wait(wake_at, orders.into_iter().chain(launch));
    }

    fn take_orders(&mut self, now: BootTime) {
        self.orders.drain();
        loop {
            match self.orders.lines.next() {
                Ok(Some(Order::Until(until))) => self.plan.renew(until.into()),
                Ok(Some(Order::Stop { by })) => self.plan.stop(now, Some(by.into()), Why::Order),
                // A worker that talks nonsense is no worker.
                Ok(Some(Order::Start(_))) | Err(_) => {
                    self.orders.open = false;
                    break;
                }
                Ok(None) => break,
            }
        }
        if !self.orders.open {
            self.plan.stop(now, None, Why::WorkerGone);
        }
    }

    /// Learns whether the job's program runs, once that is decided.
    fn see_the_launch_through(&mut self) {
        if !matches!(&self.main, Main::Launching(launched) if is_readable(launched.fd())) {
            return;
        }
        match std::mem::replace(&mut self.main, Main::Ended) {
            Main::Launching(launched) => {
                let pid = launched.pid;
                let report = match launched.outcome() {
                    Ok(()) => {
                        self.main = Main::Running(pid);
                        Report::Started { pid: pid.as_raw() }
                    }
                    // The launcher is on its way out; reaped like any child.
                    Err(error) => Report::Failed { error },
                };
                self.reports.send(&report);
            }
            other => self.main = other,
        }
    }

    /// Reaps what has ended. True if no child is left, so no descendant either.
    fn reap(&mut self, now: BootTime) -> bool {
        loop {
            let (pid, exit) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, Exit::Code(code)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, Exit::Signal(signal as i32)),
                Ok(WaitStatus::StillAlive) => return false,
                Err(Errno::ECHILD) => return true,
                Ok(_) | Err(_) => continue,
            };
            // With the process its end of the pipe is closed: by now it is decided.
            self.see_the_launch_through();
            if matches!(self.main, Main::Running(main) if main == pid) {
                self.main = Main::Ended;
                self.reports.send(&Report::Exited(exit));
                self.end_the_rest(now);
            }
        }
    }

    /// The job is over with its program. What else it started is asked and killed like the job
    /// itself; if a stop is under way, those are asked now whom the signal to the group missed.
    fn end_the_rest(&mut self, now: BootTime) {
        if self.plan.is_stopping() {
            self.ask();
        } else {
            self.plan.stop(now, None, Why::Exited);
        }
    }

    fn cgroup_is_empty(&self) -> bool {
        // A cgroup that can't be read has been removed, which an occupied one can't be.
        self.cgroup.as_ref().is_none_or(|cgroup| cgroup.is_empty().unwrap_or(true))
    }

    /// Sends the stop signal: to the job's process group while its leader is there, else to all
    /// that is left. Errors say that somebody has ended meanwhile.
    fn ask(&self) {
        // A stopped process would see the signal only when continued.
        for signal in [self.stop_signal, Signal::SIGCONT] {
            match &self.main {
                Main::Launching(launched) => {
                    let _ = kill(launched.pid, signal);
                }
                Main::Running(pid) => {
                    let _ = killpg(*pid, signal);
                }
                Main::Ended => {
                    for pid in tree::descendants(Pid::this()) {
                        let _ = kill(pid, signal);
                    }
                }
            }
        }
    }

    /// One sweep of SIGKILL over everything that descends from the guard.
    fn kill_all(&mut self, now: BootTime) {
        if let Some(cgroup) = &self.cgroup {
            let _ = cgroup.kill();
        }
        if let Main::Running(pid) = self.main {
            let _ = killpg(pid, Signal::SIGKILL);
        }
        // Again while the tree grows under the sweep: a job may fork as fast as it is killed.
        let mut killed = Vec::new();
        for _ in 0..100 {
            let fresh: Vec<Pid> =
                tree::descendants(Pid::this()).into_iter().filter(|pid| !killed.contains(pid)).collect();
            if fresh.is_empty() {
                break;
            }
            for &pid in &fresh {
                let _ = kill(pid, Signal::SIGKILL);
            }
            killed.extend(fresh);
        }
        let name_at = *self.name_lingering_at.get_or_insert(now + LINGERING_INTERVAL);
        if now >= name_at {
            self.name_lingering_at = Some(now + LINGERING_INTERVAL);
            let pids = killed.iter().map(|pid| pid.as_raw()).collect();
            self.reports.send(&Report::Lingering { pids });
        }
    }
}

/// The order pipe, on standard input.
#[derive(Default)]
struct Orders {
    lines: Lines,
    open: bool,
}

impl Orders {
    /// The first order, waited for; `None` if the pipe ends before.
    fn first(&mut self) -> Result<Option<Order>, super::protocol::Garbled> {
        self.open = true;
        while self.open {
            if let Some(order) = self.lines.next()? {
                return Ok(Some(order));
            }
            self.read();
        }
        Ok(None)
    }

    /// Reads all that is there, and does not wait for more.
    fn drain(&mut self) {
        while self.open && is_readable(io::stdin().as_fd()) {
            self.read();
        }
    }

    /// One read, which blocks if nothing is there.
    fn read(&mut self) {
        let mut buffer = [0; 16 * 1024];
        match unistd::read(io::stdin().as_fd(), &mut buffer) {
            Ok(0) => self.open = false,
            Ok(count) => self.lines.push(&buffer[..count]),
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(_) => self.open = false,
        }
    }
}

/// The report pipe. It never blocks the guard: a worker that does not read has lost the report.
struct Reports(File);

impl Reports {
    fn clone_handle(&self) -> Result<Reports, String> {
        self.0.try_clone().map(Reports).map_err(|error| format!("the guard can't set itself up: {error}"))
    }

    fn send(&mut self, report: &Report) {
        let _ = self.0.write_all(&encode(report));
    }
}

/// All that can wake the guard.
struct Wakers {
    deaths: SignalFd,
    timer: TimerFd,
}

impl Wakers {
    fn new() -> nix::Result<Wakers> {
        let _ = prctl::set_name(c"dr-guard");
        // All blocked: SIGCHLD is read from a descriptor, and no polite signal ends the guard, for
        // ending before the job is the one thing that it must not do. The worker, which gets the
        // same signals from whoever ends the service, says when.
        SigSet::all().thread_block()?;
        let mut deaths = SigSet::empty();
        deaths.add(Signal::SIGCHLD);
        Ok(Wakers {
            deaths: SignalFd::with_flags(&deaths, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?,
            timer: TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?,
        })
    }

    /// Waits until `until`, the death of a child, or a word on one of the `others`. Which of them it was is
    /// for the caller to find out: that may have changed by the time this returns.
    fn wait<'fd>(&mut self, until: BootTime, others: impl Iterator<Item = BorrowedFd<'fd>>) {
        // Absolute, on the clock that goes on in suspend: the timer rings on waking up.
        let ring = Expiration::OneShot(TimeSpec::from_duration(until.as_duration()));
        let set = self.timer.set(ring, TimerSetTimeFlags::TFD_TIMER_ABSTIME);
        let own = [self.deaths.as_fd(), self.timer.as_fd()];
        let mut fds: Vec<PollFd<'_>> = own.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).into();
        fds.extend(others.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        // Without a timer the guard looks around often instead.
        let timeout = if set.is_ok() { PollTimeout::NONE } else { PollTimeout::from(10u8) };
        let _ = poll(&mut fds, timeout);
        // Emptied, so that it rings anew.
        while let Ok(Some(_)) = self.deaths.read_signal() {}
    }
}

/// Whether a read would not block: there is something, or the end.
fn is_readable(fd: BorrowedFd<'_>) -> bool {
    loop {
        match poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::ZERO) {
            Err(Errno::EINTR) => {}
            polled => return polled.is_ok_and(|count| count > 0),
        }
    }
}
