//! One process tree under one guard, from start to verified end.

use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Once;
use std::thread;
use std::time::Duration;

use boot_time::{BootTime, sleep_until};
use futures_util::future::OptionFuture;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::socket::{ControlMessage, MsgFlags, send, sendmsg};
use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::sync::watch;

use super::{
    guard_process::GuardProcess,
    guards::Guards,
    handover::GuardState,
    lock::StateLock,
    orphans::{self, ChildRegistry, JobSession},
    sweep::Clearing,
};
use crate::{
    config::StopSignal,
    guard::{
        cgroup,
        invocation::{OVER_STDIN, VERB},
        last_will::LastWill,
        memory,
        protocol::{Launch, Lines, Lingering, Order, Report, Terms, encode},
        tree::Sweep,
    },
    own_file::existing,
    program::program,
};

/// The pause between two sweeps of a tree that the worker itself has to end.
const SWEEP_INTERVAL: Duration = Duration::from_millis(10);

/// How long after the guard should have sent SIGKILL the worker sends it itself.
pub(super) const ESCALATION_LAG: Duration = Duration::from_millis(100);

/// How long a guard may take to read its start order, and then to begin with the start: it writes its record first.
const START_WITHIN: Duration = Duration::from_secs(5);

/// How long a guard that has nothing left to guard may take to end. One in an uninterruptible wait, such as for a disk that
/// hangs, takes longer, and is not waited for.
const GUARD_END: Duration = Duration::from_millis(200);

/// How often processes that survive SIGKILL are reported in the log.
const LINGERING_INTERVAL: Duration = Duration::from_secs(1);

/// Where a guard's output goes; by default where the worker's goes. The output of its program goes the same way, unless
/// the guard relays it.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
}

/// A process tree under a guard.
///
/// Dropped, it closes the socket, and the guard ends the tree.
#[derive(Debug)]
pub(super) struct Guarded {
    guard: GuardProcess,
    guard_pid: Pid,
    /// The main process, from `Started` to `Exited`.
    main: Option<Pid>,
    /// The main process, ended or not: its session and process group.
    session: Option<JobSession>,
    cgroup: Option<PathBuf>,
    /// Until when the guard has to begin with the start.
    start_by: Option<BootTime>,
    record: Option<PathBuf>,
    /// How to find what a guard leaves behind that is no child of this process: orphans of it go elsewhere.
    clearing: Option<Clearing>,
    /// The worker's last will, for the guard.
    will: Option<watch::Receiver<Option<LastWill>>>,
    /// Orders in one direction, reports in the other.
    socket: UnixStream,
    lines: Lines,
    /// The guard has reported that no process of the tree is left, and is about to end itself.
    is_tree_gone: bool,
    /// The guard has ended too.
    is_gone: bool,
}

impl Guarded {
    /// Starts a guard and has it start the program. `title` is shown in the guard's argument list.
    ///
    /// # Errors
    /// The reason, as a sentence, if no guard could be started. A program that could not be started is reported
    /// instead.
    ///
    /// # Cancel safety
    /// Dropped before it returns, no process stays behind.
    pub(super) async fn start(
        guards: &Guards,
        title: &str,
        mut launch: Launch,
        output: Output,
    ) -> Result<Guarded, String> {
        let lock = guards.lock.as_ref();
        launch.lock_from = lock.map(|_| Pid::this().as_raw());
        let record = lock.map(StateLock::new_record).transpose();
        launch.record = record.map_err(|error| format!("can't read the id of this boot: {error}"))?;
        let mut guarded = spawn(guards, title, launch.record.as_deref(), output)
            .map_err(|error| format!("can't start a guard ({}): {error}", guards.exe.display()))?;
        guarded.record.clone_from(&launch.record);
        guarded.cgroup.clone_from(&launch.cgroup);
        let mut orders = guarded.will_order().map(|order| encode(&order)).unwrap_or_default();
        orders.extend(encode(&Order::Start(Box::new(launch))));
        // An order that is longer than the socket's buffer is written as fast as the guard reads. Half an order starts
        // nothing.
        let sending = send_all(&guarded.socket, &orders, lock.map(StateLock::fd));
        match tokio::time::timeout(START_WITHIN, sending).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(format!("can't send orders to the guard: {error}")),
            Err(_) => return Err(format!("the guard has not read its orders within {START_WITHIN:?}")),
        }
        guarded.start_by = Some(BootTime::now() + START_WITHIN);
        Ok(guarded)
    }

    /// What another program of this process needs to continue with a guard whose program runs, and the socket.
    ///
    /// # Errors
    /// The reason, if the program does not run, or no descriptors are left.
    pub(super) fn hand_over(&self) -> Result<(GuardState, OwnedFd), String> {
        let main = self.main.filter(|_| !self.is_tree_gone && !self.is_gone && !self.guard.is_reaped());
        let main = main.ok_or("its program is not running")?;
        let socket = self.socket.as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
        let state = GuardState {
            pid: self.guard_pid.as_raw(),
            main: main.as_raw(),
            cgroup: self.cgroup.clone(),
            record: self.record.clone(),
            unread: self.lines.rest().to_vec(),
        };
        Ok((state, socket))
    }

    /// Continues with a guard of the program before this one, or of an earlier worker. It learns the present will.
    ///
    /// # Errors
    /// If the socket can't be used.
    pub(super) fn adopt(guards: &Guards, state: GuardState, socket: OwnedFd) -> io::Result<Guarded> {
        let socket = std::os::unix::net::UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        let socket = UnixStream::from_std(socket)?;
        let (pid, main) = (Pid::from_raw(state.pid), Pid::from_raw(state.main));
        let (guard, clearing) = match GuardProcess::of_child(pid)? {
            Some(guard) => (guard, None),
            None => {
                // A guard that has removed it has seen the end.
                let new = |path: &Path| existing(Clearing::new(path, guards.run_variable()));
                let clearing = state.record.as_deref().map(new).transpose()?.flatten();
                (GuardProcess::foreign(pid, clearing.as_ref().map(Clearing::guard_started))?, clearing)
            }
        };
        let mut lines = Lines::default();
        lines.push(&state.unread);
        let mut guarded = Guarded {
            guard,
            guard_pid: pid,
            main: Some(main),
            session: Some(JobSession::of(main)),
            cgroup: state.cgroup,
            record: state.record,
            clearing,
            will: guards.will.clone(),
            socket,
            lines,
            start_by: None,
            is_tree_gone: false,
            is_gone: false,
        };
        if let Some(order) = guarded.will_order() {
            guarded.order(&order);
        }
        Ok(guarded)
    }

    /// The next report. [`Report::Gone`] is the last, and comes in any case. It means that no process of the tree is
    /// left: the guard has reported it, or the guard was lost and the worker has ended the tree itself. The guard has
    /// ended too, unless a disk that hangs keeps it from removing its record. Called again, it returns the same.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Report {
        loop {
            if self.is_gone {
                return Report::Gone;
            }
            if self.is_tree_gone {
                self.reap().await;
                continue;
            }
            match self.lines.next() {
                Ok(Some(Report::Gone)) => self.is_tree_gone = true,
                Ok(Some(Report::Starting)) => self.start_by = None,
                Ok(Some(report)) => {
                    match &report {
                        Report::Failed { .. } => self.start_by = None,
                        Report::Started { pid } => {
                            self.main = Some(Pid::from_raw(*pid));
                            self.session = self.main.map(JobSession::of);
                        }
                        Report::Exited(_) => self.main = None,
                        Report::Unlocked { error } => warn_unlocked(error),
                        _ => {}
                    }
                    return report;
                }
                Ok(None) => {
                    let start_by = self.start_by.map(sleep_until);
                    // A worker that was frozen reads what was reported meanwhile, before it acts on the time.
                    let read = tokio::select! {
                        biased;
                        read = self.read() => read,
                        Some(()) = OptionFuture::from(start_by) => {
                            return Report::Failed { error: self.give_up_the_start().await };
                        }
                    };
                    if read.is_err() {
                        tracing::error!(
                            guard = self.guard_pid.as_raw(),
                            "a guard has ended before its job; ending the job"
                        );
                        self.destroy().await;
                    }
                }
                Err(_) => {
                    tracing::error!(
                        guard = self.guard_pid.as_raw(),
                        "a guard sent an invalid report; ending it and its job"
                    );
                    self.destroy().await;
                }
            }
        }
    }

    /// Ends a guard that has not begun to start the program in time. Returns why nothing is started.
    ///
    /// # Cancel safety
    /// Cancel safe: called again, it continues.
    async fn give_up_the_start(&mut self) -> String {
        let record = self.record.clone();
        self.destroy().await;
        let nothing = format!("the guard has not begun to start the program within {START_WITHIN:?}");
        match record {
            Some(record) => format!("{nothing}; check whether the disk of {} hangs", record.display()),
            None => nothing,
        }
    }

    async fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            tokio::select! {
                ready = self.socket.readable() => ready?,
                Some(Ok(())) = OptionFuture::from(self.will.as_mut().map(|will| will.changed())) => {
                    if let Some(order) = self.will_order() {
                        self.order(&order);
                    }
                    continue;
                }
            }
            match self.socket.try_read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.lines.push(&buffer[..count]);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The main process, while it runs.
    pub(super) fn main(&self) -> Option<Pid> {
        self.main
    }

    /// Sends the guard the new end of the lease.
    pub(super) fn until(&mut self, until: BootTime) {
        self.order(&Order::Until(until.into()));
    }

    /// Has these terms count from now on, which the guard confirms. Returns whether it was ordered.
    pub(super) fn arm(&mut self, terms: Terms) -> bool {
        self.order(&Order::Arm(terms))
    }

    /// Has the guard send the program a signal.
    pub(super) fn signal(&mut self, signal: StopSignal) {
        self.order(&Order::Signal(signal));
    }

    /// Orders the guard to stop the processes for a while, or to continue them.
    pub(super) fn suspend(&mut self, suspended: bool) {
        self.order(&Order::Suspend(suspended));
    }

    /// Orders the guard to stop the tree: the stop signal now, SIGKILL at `kill_at`.
    pub(super) fn stop(&mut self, kill_at: BootTime) {
        self.order(&Order::Stop { kill_at: kill_at.into() });
    }

    fn will_order(&mut self) -> Option<Order> {
        let will = self.will.as_mut()?.borrow_and_update().clone();
        Some(Order::Will(will))
    }

    /// The socket takes such a short line completely or not at all. If the guard hangs and the socket is full, the
    /// order is lost, and the guard keeps an older, and so earlier, deadline. Not by the runtime, which does not know at once whether
    /// a socket that was handed over can be written to.
    fn order(&self, order: &Order) -> bool {
        let order = encode(order);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        send(self.socket.as_raw_fd(), &order, flags).is_ok_and(|sent| sent == order.len())
    }

    /// Sends a signal to the main process and its group, instead of a guard that does not.
    pub(super) fn signal_directly(&self, signal: StopSignal) {
        if let Some(main) = self.main {
            let _ = killpg(main, signal.signal());
        }
    }

    /// Ends the tree and the guard without the guard's help, and returns when no process of the tree is left, and the guard
    /// can't start another. [`Guarded::next`] returns [`Report::Gone`] from then on.
    ///
    /// It does not return while a process survives SIGKILL (in an uninterruptible wait of the kernel), and logs that.
    ///
    /// # Cancel safety
    /// Cancel safe: called again, it continues.
    pub(super) async fn destroy(&mut self) {
        let mut warn_at = BootTime::now() + LINGERING_INTERVAL;
        let mut sweep = Sweep::default();
        // While the guard exists, the whole tree descends from it. So it is frozen, and kept until all its descendants
        // are dead. If it was killed, this finds nothing; once it is reaped, its pid may be reused.
        while !self.is_gone && !self.guard.is_reaped() {
            let _ = kill(self.guard_pid, Signal::SIGSTOP);
            let mut lingering = Lingering::default();
            let killed = self.kill_cgroup();
            let swept = sweep.kill(self.guard_pid, &mut lingering);
            if *swept.as_ref().unwrap_or(&false) {
                break;
            }
            lingering.blind = swept.and(killed).err().map(|error| error.to_string());
            warn_lingering(&lingering, &mut warn_at);
            tokio::time::sleep(SWEEP_INTERVAL).await;
        }
        // Then the processes that it left to others if it was killed from outside.
        while !self.is_gone {
            self.guard.start_kill();
            // A killed process starts nothing, even if it dies only when a disk answers. What it had started before shows now.
            let is_bare = self.guard_has_ended().await
                || sweep.kill(self.guard_pid, &mut Lingering::default()).unwrap_or(false);
            let killed = self.kill_cgroup();
            let looked = orphans::remains(self.session);
            let elsewhere = self.clearing.as_mut().and_then(|clearing| clearing.look().err());
            match (looked, self.cgroup_is_empty()) {
                (Ok(found), Ok(true)) if is_bare && found.is_empty() && elsewhere.is_none() => {
                    self.mark_gone();
                }
                (looked, is_empty) => {
                    let mut lingering = kill_each(looked);
                    let unseen = killed.and(is_empty).err().map(|error| error.to_string());
                    lingering.blind = lingering.blind.or(unseen).or(elsewhere);
                    warn_lingering(&lingering, &mut warn_at);
                    tokio::time::sleep(SWEEP_INTERVAL).await;
                }
            }
        }
    }

    fn kill_cgroup(&self) -> io::Result<()> {
        // Removed, or not made yet: no process is in it.
        existing(self.cgroup.as_deref().map_or(Ok(()), cgroup::kill)).map(drop)
    }

    fn cgroup_is_empty(&self) -> io::Result<bool> {
        self.cgroup.as_deref().map_or(Ok(true), cgroup::is_empty)
    }

    /// Waits a moment for the guard's own end, after it has reported the end of the tree.
    async fn reap(&mut self) {
        if !self.guard_has_ended().await {
            self.guard.start_kill();
        }
        self.mark_gone();
    }

    /// Nothing depends on the end of a guard whose tree is gone, and which starts nothing any more.
    async fn guard_has_ended(&mut self) -> bool {
        tokio::time::timeout(GUARD_END, self.guard.wait()).await.is_ok()
    }

    fn mark_gone(&mut self) {
        let (pid, is_child) = (self.guard_pid, self.guard.is_child());
        if !self.guard.is_reaped() {
            self.warn_held_up();
        }
        if is_child && self.guard.is_reaped() {
            ChildRegistry::reaped(pid);
        } else if is_child {
            // Registered until then: removed too early, the guard would be treated as an orphan.
            let ended = GuardProcess::Adopted { pid, is_reaped: true };
            let mut guard = std::mem::replace(&mut self.guard, ended);
            tokio::spawn(async move {
                guard.wait().await;
                ChildRegistry::reaped(pid);
            });
        }
        // A killed guard leaves both.
        if let Some(cgroup) = &self.cgroup {
            let _ = cgroup::remove(cgroup);
        }
        if let Some(record) = self.record.take() {
            // On a thread: the disk may hang, and the end of the tree is a fact already. A record that stays costs the next
            // worker one sweep.
            let _ = thread::Builder::new().name("record".to_owned()).spawn(move || fs::remove_file(record));
        }
        self.main = None;
        self.is_gone = true;
    }

    fn warn_held_up(&self) {
        let guard = self.guard_pid.as_raw();
        match &self.record {
            Some(record) => tracing::warn!(
                guard,
                record = %record.display(),
                "no process of the run is left, but its guard can't end; check whether the disk of its record hangs"
            ),
            None => tracing::warn!(guard, "no process of the run is left, but its guard can't end"),
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // The socket is closed, so the guard ends its tree and itself, and the runtime reaps it. This worker lives, so its program
        // does not outlive it, and there is no last will. The guard may be frozen by a `destroy` that was dropped, so it is
        // continued. Its pid stays registered: removed too early, the guard would be treated as an orphan.
        if !self.is_gone && !self.guard.is_reaped() {
            self.order(&Order::Will(None));
            self.stop(BootTime::from_duration(Duration::MAX));
            let _ = kill(self.guard_pid, Signal::SIGCONT);
        }
    }
}

/// Sends the orders, and the lock with their first byte.
async fn send_all(socket: &UnixStream, mut orders: &[u8], lock: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut lock = lock.map(|lock| [lock.as_raw_fd()]);
    while !orders.is_empty() {
        let send = || {
            let lock = lock.as_ref().map(|fds| ControlMessage::ScmRights(fds.as_slice()));
            let (parts, flags) = ([IoSlice::new(orders)], MsgFlags::MSG_NOSIGNAL);
            sendmsg::<()>(socket.as_raw_fd(), &parts, lock.as_slice(), flags, None).map_err(io::Error::from)
        };
        let sent = socket.async_io(Interest::WRITABLE, send).await?;
        orders = &orders[sent..];
        lock = None;
    }
    Ok(())
}

/// Starts a guard.
///
/// Nothing here may need code between `fork` and `exec` (a closure, a user, a group): then the standard library would not
/// use `posix_spawn`, and the kernel would copy the page tables of this process for each guard.
fn spawn(guards: &Guards, title: &str, record: Option<&Path>, output: Output) -> io::Result<Guarded> {
    let (socket, guards_end) = std::os::unix::net::UnixStream::pair()?;
    socket.set_nonblocking(true)?;
    let socket = UnixStream::from_std(socket)?;
    let mut command = Command::new(&guards.exe);
    command
        .arg0(program())
        .args([VERB, OVER_STDIN, title])
        .process_group(0)
        .stdin(Stdio::from(OwnedFd::from(guards_end)));
    if let Some(run) = record.and_then(Path::file_name) {
        // As its program has it: so a search for the processes of another run knows whose it is.
        command.env(guards.run_variable(), run);
    }
    if let Some(stdout) = output.stdout {
        command.stdout(Stdio::from(stdout));
    }
    if let Some(stderr) = output.stderr {
        command.stderr(Stdio::from(stderr));
    }
    let (guard, pid) = orphans::start_child(&mut command)?;
    Ok(Guarded {
        guard: GuardProcess::Started(guard),
        guard_pid: pid,
        main: None,
        session: None,
        cgroup: None,
        record: None,
        clearing: None,
        will: guards.will.clone(),
        socket,
        lines: Lines::default(),
        start_by: None,
        is_tree_gone: false,
        is_gone: false,
    })
}

/// Sends SIGKILL to the processes that a sweep has found.
fn kill_each(looked: io::Result<Vec<Pid>>) -> Lingering {
    let mut lingering = Lingering::default();
    match looked {
        Ok(found) => found.into_iter().for_each(|pid| lingering.kill(pid)),
        Err(error) => lingering.blind = Some(error.to_string()),
    }
    lingering
}

/// Once for this process: it is the same for each guard.
fn warn_unlocked(error: &str) {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        tracing::warn!(
            "guards can't lock their memory ({error}): a guard whose pages are on a disk that hangs may end its job \
             too late. Raise the limit of locked memory to {} MiB or more (LimitMEMLOCK= in a systemd unit, ulimit -l \
             in a shell)",
            memory::NEEDED >> 20
        );
    });
}

fn warn_lingering(lingering: &Lingering, warn_at: &mut BootTime) {
    let now = BootTime::now();
    if now >= *warn_at {
        *warn_at = now + LINGERING_INTERVAL;
        tracing::error!("a job has not ended: {lingering}; its end is not reported yet");
    }
}
