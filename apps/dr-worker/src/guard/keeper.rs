//! The guard's loop: wait, take in what happened, read the clock, act.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
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
            // However long this process was frozen or the machine asleep, nothing is done before
            // the newest deadline and the clock are known: first the pipe, which may hold a renewal
            // that was in time, then the clock, and only then the job.
            self.take_orders();
            self.see_the_launch_through(false);
            if self.reap() && self.cgroup_is_empty() {
                break;
            }
            let now = BootTime::now();
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
        self.wakers.wait(
            wake_at,
            self.orders.open.then_some(io::stdin()).as_ref(),
            match &self.main {
                Main::Launching(launched) => Some(launched),
                _ => None,
            },
        );
    }

    fn take_orders(&mut self) {
        if self.wakers.orders {
            self.orders.read();
        }
        // Also when nothing was read: orders may have come in one piece with the first.
        loop {
            match self.orders.lines.next() {
                Ok(Some(Order::Until(until))) => self.plan.renew(until.into()),
                Ok(Some(Order::Stop { by })) => self.stop(Some(by.into()), Why::Order),
                // A worker that talks nonsense is no worker.
                Ok(Some(Order::Start(_))) | Err(_) => {
                    self.orders.open = false;
                    break;
                }
                Ok(None) => break,
            }
        }
        if !self.orders.open {
            self.stop(None, Why::WorkerGone);
        }
    }

    fn stop(&mut self, by: Option<BootTime>, why: Why) {
        self.plan.stop(BootTime::now(), by, why);
    }

    /// Learns whether the job's program runs. `ended`: the launched process has been reaped, so the
    /// answer is there.
    fn see_the_launch_through(&mut self, ended: bool) {
        if !ended && !self.wakers.launch {
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
    fn reap(&mut self) -> bool {
        loop {
            let (pid, exit) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, Exit::Code(code)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, Exit::Signal(signal as i32)),
                Ok(WaitStatus::StillAlive) => return false,
                Err(Errno::ECHILD) => return true,
                Ok(_) | Err(_) => continue,
            };
            if matches!(&self.main, Main::Launching(launched) if launched.pid == pid) {
                self.see_the_launch_through(true);
            }
            if matches!(self.main, Main::Running(main) if main == pid) {
                self.main = Main::Ended;
                self.reports.send(&Report::Exited(exit));
                self.end_the_rest();
            }
        }
    }

    /// The job is over with its program. What else it started is asked and killed like the job
    /// itself; if a stop is under way, those are asked now whom the signal to the group missed.
    fn end_the_rest(&mut self) {
        if self.plan.is_stopping() {
            self.ask();
        } else {
            self.stop(None, Why::Exited);
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
    /// Set by [`Wakers::wait`]: orders can be read.
    orders: bool,
    /// Set by [`Wakers::wait`]: the launch is decided.
    launch: bool,
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
            orders: false,
            launch: false,
        })
    }

    fn wait(&mut self, until: BootTime, orders: Option<&io::Stdin>, launch: Option<&Launched>) {
        // Absolute, on the clock that goes on in suspend: the timer rings on waking up.
        let ring = Expiration::OneShot(TimeSpec::from_duration(until.as_duration()));
        let set = self.timer.set(ring, TimerSetTimeFlags::TFD_TIMER_ABSTIME);
        let mut fds = vec![
            PollFd::new(self.deaths.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.timer.as_fd(), PollFlags::POLLIN),
        ];
        let orders_at = orders.map(|orders| {
            fds.push(PollFd::new(orders.as_fd(), PollFlags::POLLIN));
            fds.len() - 1
        });
        let launch_at = launch.map(|launch| {
            fds.push(PollFd::new(launch.fd(), PollFlags::POLLIN));
            fds.len() - 1
        });
        // Without a timer the guard looks around often instead.
        let timeout = if set.is_ok() { PollTimeout::NONE } else { PollTimeout::from(10u8) };
        let polled = poll(&mut fds, timeout).is_ok();
        let is_ready = |at: Option<usize>| polled && at.is_some_and(|at| fds[at].any().unwrap_or(true));
        (self.orders, self.launch) = (is_ready(orders_at), is_ready(launch_at));
        // Emptied, so that they ring anew; what they stand for is looked at in any case.
        while let Ok(Some(_)) = self.deaths.read_signal() {}
    }
}
