//! The worker as a systemd service of `Type=notify-reload`: `READY=1` once it takes part, its role as `STATUS=`, `WATCHDOG=1`
//! while it works, and `RELOADING=1` while it reads its configuration again.
//!
//! ```text
//!   main task ── every third of the watchdog's timeout ──▶ each election's task ──▶ main task ── WATCHDOG=1 ──▶ systemd
//! ```
//!
//! [`ServiceManager::keep`] runs on the main task, beside what that waits for. So a main task or an election that is
//! blocked, and a process that is stopped, sends nothing, and systemd ends the worker. While it starts or stops and
//! works, it asks for more time: how long both may take depends on the configuration.
//!
//! The variables are not passed on to a job: `guard::launch` removes them.

mod socket;
mod text;

use std::{convert::Infallible, env, ffi::OsString, future::pending, io, process, time::Duration};

use election_core::status::Role;
use nix::time::{ClockId, clock_gettime};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::state::Worker;
use socket::Socket;

/// Between two looks at the roles.
const LOOK: Duration = Duration::from_secs(1);

/// How much more time a start or a stop asks for, each [`LOOK`].
const EXTENSION: Duration = Duration::from_secs(30);

/// What a worker is doing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase<'a> {
    /// It has not joined.
    Starting,
    /// It has joined its elections.
    Running(&'a Worker),
    /// It leaves them.
    Stopping(&'a Worker),
}

/// The service manager, if one has started this process and wants to be notified.
#[derive(Debug, Default)]
pub(super) struct ServiceManager {
    socket: Option<Socket>,
    watchdog: Option<Duration>,
    /// What it knows.
    is_ready: bool,
    is_reloading: bool,
    /// The beginning of a reload that could not be sent yet: the socket was full.
    unsent: Option<String>,
    is_stopping: bool,
    status: String,
    is_unreachable: bool,
}

impl ServiceManager {
    /// By the environment of this process.
    pub(super) fn of_this_process() -> Self {
        let socket = env::var_os("NOTIFY_SOCKET").and_then(|value| opened(&value));
        let (micros, pid) = (env::var("WATCHDOG_USEC").ok(), env::var("WATCHDOG_PID").ok());
        let watchdog = socket::watchdog(micros.as_deref(), pid.as_deref(), process::id());
        let watchdog = watchdog.unwrap_or_else(|variable| {
            tracing::warn!(
                variable,
                "ignored: the variable is invalid, so the service manager gets no WATCHDOG=1"
            );
            None
        });
        Self { socket, watchdog, ..Self::default() }
    }

    /// Keeps the service manager informed, until it is dropped. To be polled by the main task.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn keep(&mut self, phase: Phase<'_>) -> Infallible {
        if self.socket.is_none() {
            return pending().await;
        }
        let every = self.watchdog.map(|timeout| timeout / 3);
        let pause = every.map_or(LOOK, |every| every.min(LOOK)).max(Duration::from_millis(10));
        let mut next = Instant::now();
        loop {
            self.report(phase);
            if let Some(every) = every
                && Instant::now() >= next
            {
                next = Instant::now() + every;
                respond(phase).await;
                self.send("WATCHDOG=1");
            }
            sleep(pause).await;
        }
    }

    /// The configuration is read again: systemd waits for [`reloaded`](Self::reloaded).
    pub(super) fn reloading(&mut self) {
        self.is_reloading = true;
        // systemd ignores a READY=1 that was sent before this time.
        let micros = clock_gettime(ClockId::CLOCK_MONOTONIC).map(|now| Duration::from(now).as_micros());
        match micros {
            Ok(micros) => {
                self.unsent = Some(format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
                self.send_unsent();
            }
            Err(error) => tracing::warn!(%error, "can't read the clock for the service manager"),
        }
    }

    /// The end of [`reloading`](Self::reloading). A configuration that is refused is no failure: the old one is in force.
    pub(super) fn reloaded(&mut self) {
        self.is_reloading = false;
        // Sent with a later status if it does not take part yet, or if the socket is full.
        self.is_ready = self.is_ready && self.send_unsent() && self.send("READY=1");
    }

    /// Whether the beginning of the last reload was sent.
    fn send_unsent(&mut self) -> bool {
        self.unsent = self.unsent.take().filter(|message| !self.send(message));
        self.unsent.is_none()
    }

    fn report(&mut self, phase: Phase<'_>) {
        self.send_unsent();
        let status = match phase {
            Phase::Starting => "starting".to_owned(),
            Phase::Running(worker) => status_of(worker),
            Phase::Stopping(worker) => format!("stopping: {}", status_of(worker)),
        };
        let status = text::line(&status);
        if status != self.status && self.send(&format!("STATUS={status}")) {
            self.status = status;
        }
        match phase {
            Phase::Stopping(_) if !self.is_stopping => self.is_stopping = self.send("STOPPING=1"),
            Phase::Running(worker) if !self.is_ready && !self.is_reloading && worker.takes_part() => {
                self.is_ready = self.send_unsent() && self.send("READY=1");
            }
            _ => {}
        }
        if !self.is_ready || matches!(phase, Phase::Stopping(_)) {
            self.send(&format!("EXTEND_TIMEOUT_USEC={}", EXTENSION.as_micros()));
        }
    }

    /// Whether the message was sent. If not, it can be sent again later.
    fn send(&mut self, message: &str) -> bool {
        let Some(socket) = &self.socket else { return false };
        let sent = socket.send(message);
        if let Err(error) = &sent
            && error.kind() != io::ErrorKind::WouldBlock
            && !self.is_unreachable
        {
            tracing::warn!(%error, "can't notify the service manager");
        }
        self.is_unreachable = sent.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock);
        sent.is_ok()
    }
}

/// Tells the service manager why this process fails.
pub(crate) fn report_failure(why: &str) {
    if let Some(socket) = env::var_os("NOTIFY_SOCKET").and_then(|value| Socket::of(&value).ok()) {
        // The exit code says the same in fewer words.
        let _ = socket.send(&format!("STATUS={}", text::line(&format!("failed: {why}"))));
    }
}

fn opened(value: &OsString) -> Option<Socket> {
    Socket::of(value)
        .inspect_err(|error| {
            tracing::warn!(value = %value.display(), %error, "ignored NOTIFY_SOCKET: the service manager can't be notified");
        })
        .ok()
}

/// Returns when the task of each election has answered.
async fn respond(phase: Phase<'_>) {
    let (Phase::Running(worker) | Phase::Stopping(worker)) = phase else { return };
    for election in worker.jobs().iter().map(|job| &job.election).chain(worker.balancer()) {
        election.responds().await;
    }
}

fn status_of(worker: &Worker) -> String {
    let jobs: Vec<(&str, Role, u64)> = worker
        .jobs()
        .iter()
        .filter(|job| !job.has_left())
        .map(|job| {
            let status = watch::Receiver::from(job.election.status());
            let status = status.borrow();
            (job.slot.name(), status.role, status.term)
        })
        .collect();
    let mut parts = vec![text::roles(&jobs)];
    if let Some(open) = worker.last_reload().and_then(|reload| reload.open()) {
        // The roles need most of the line where there are many jobs.
        parts.insert(0, text::cut(&open, text::LONGEST / 2));
    }
    if !worker.is_active() {
        parts.insert(0, "ZooKeeper does not answer".to_owned());
    }
    parts.join("; ")
}
