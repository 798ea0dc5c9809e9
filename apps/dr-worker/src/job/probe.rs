//! Telling when a job that runs also serves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::Pid;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::guarded::Guards;
use super::notify::NotifySocket;
use super::oneshot::OneShot;
use super::spec::{JobSpec, ReadyProbe};
use crate::guard::BootTime;

/// How often it is said why a job is not ready yet.
const WORDS_INTERVAL: Duration = Duration::from_secs(10);

/// What a probe needs to know of the job it probes.
pub(super) struct Probe {
    pub(super) spec: Arc<JobSpec>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) guards: Guards,
    pub(super) work_until: watch::Receiver<BootTime>,
    /// The job's main process.
    pub(super) main: Pid,
    pub(super) notify: Option<Arc<NotifySocket>>,
    /// Says true when nobody wants to know any more.
    pub(super) cancel: watch::Receiver<bool>,
}

impl Probe {
    /// Returns true when the probe has passed once, or false when it was cancelled. Nothing that it
    /// started runs any more then.
    ///
    /// # Cancel safety
    /// Dropped, a command that is being tried is killed by its guard soon after.
    pub(super) async fn passed(self) -> bool {
        let (interval, timeout) = match &self.spec.ready {
            ReadyProbe::None { after } => return self.has_run_for(*after).await,
            ReadyProbe::Notify => return self.is_notified().await,
            ReadyProbe::Exec { interval, timeout, .. }
            | ReadyProbe::Http { interval, timeout, .. }
            | ReadyProbe::Tcp { interval, timeout, .. } => (*interval, *timeout),
        };
        let mut say_at = BootTime::now() + WORDS_INTERVAL;
        loop {
            let began = tokio::time::Instant::now();
            let Err(words) = self.attempt(timeout).await else {
                return true;
            };
            let now = BootTime::now();
            if now >= say_at {
                say_at = now + WORDS_INTERVAL;
                tracing::warn!(job = self.spec.name, "not ready yet: {words}");
            } else {
                tracing::debug!(job = self.spec.name, "not ready yet: {words}");
            }
            tokio::select! {
                biased;
                () = self.cancelled() => return false,
                () = tokio::time::sleep_until(began + interval) => {}
            }
        }
    }

    async fn cancelled(&self) {
        // An end of the channel is the end of the interest.
        let _ = self.cancel.clone().wait_for(|&is_cancelled| is_cancelled).await;
    }

    async fn has_run_for(&self, after: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.cancelled() => false,
            () = tokio::time::sleep(after) => true,
        }
    }

    async fn is_notified(&self) -> bool {
        let word = async {
            match &self.notify {
                Some(socket) => socket.ready(self.main).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.cancelled() => false,
            () = word => true,
        }
    }

    /// One try; the reason in words if it fails.
    async fn attempt(&self, timeout: Duration) -> Result<(), String> {
        let asked = async {
            match &self.spec.ready {
                // A command has to be ended, not only forgotten: it minds the cancelling by itself.
                ReadyProbe::Exec { command, .. } => self.exec(command, timeout).await,
                ReadyProbe::Http { url, .. } => http(url, timeout).await,
                ReadyProbe::Tcp { address, .. } => tcp(address, timeout).await,
                ReadyProbe::None { .. } | ReadyProbe::Notify => Ok(()),
            }
        };
        let is_command = matches!(self.spec.ready, ReadyProbe::Exec { .. });
        tokio::select! {
            biased;
            outcome = asked => outcome,
            () = self.cancelled(), if !is_command => Err("it is no longer asked for".to_owned()),
        }
    }

    async fn exec(&self, command: &[String], timeout: Duration) -> Result<(), String> {
        let probe = OneShot {
            title: format!("job {} probe", self.spec.name),
            command: command.to_vec(),
            env: self.env.clone(),
            working_dir: self.spec.working_dir.clone(),
            no_new_privileges: self.spec.no_new_privileges,
            timeout,
            by: Some(self.work_until.clone().into()),
            listen: false,
        };
        passes(probe, &self.guards, self.cancelled()).await
    }
}

/// One try of a probe that is no job's; the reason in words if it fails.
///
/// # Cancel safety
/// Dropped, a command that is being tried is killed by its guard soon after.
pub(crate) async fn check_once(
    probe: &ReadyProbe,
    title: &str,
    env: &BTreeMap<String, String>,
    guards: &Guards,
) -> Result<(), String> {
    match probe {
        ReadyProbe::None { .. } | ReadyProbe::Notify => Ok(()),
        ReadyProbe::Http { url, timeout, .. } => http(url, *timeout).await,
        ReadyProbe::Tcp { address, timeout, .. } => tcp(address, *timeout).await,
        ReadyProbe::Exec { command, timeout, .. } => {
            let probe = OneShot {
                title: title.to_owned(),
                command: command.clone(),
                env: env.clone(),
                working_dir: None,
                no_new_privileges: None,
                timeout: *timeout,
                by: None,
                listen: false,
            };
            passes(probe, guards, std::future::pending()).await
        }
    }
}

async fn passes(probe: OneShot, guards: &Guards, cancelled: impl Future<Output = ()>) -> Result<(), String> {
    let finished = probe.run(guards, cancelled).await;
    match (finished.timed_out, finished.exit) {
        (_, Ok(exit)) if exit.is_success() => Ok(()),
        (Some(after), _) => Err(format!("the probe did not end within {after:?}")),
        (None, Ok(exit)) => Err(format!("the probe ended: {exit} {}", finished.stderr)),
        (None, Err(words)) => Err(format!("the probe did not start: {words}")),
    }
}

async fn http(url: &str, timeout: Duration) -> Result<(), String> {
    // A client a try: a probe must not pass over a connection that a predecessor left open. No
    // proxy, no redirect: it is this job that has to answer.
    let client = reqwest::Client::builder()
        .timeout(timeout)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| format!("can't make an HTTP client: {error}"))?;
    let answer = client.get(url).send().await.map_err(|error| {
        // The outermost words only repeat the address.
        let mut cause: &dyn std::error::Error = &error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        format!("{url}: {cause}")
    })?;
    if answer.status().is_success() { Ok(()) } else { Err(format!("{url}: {}", answer.status())) }
}

async fn tcp(address: &str, timeout: Duration) -> Result<(), String> {
    match tokio::time::timeout(timeout, TcpStream::connect(address)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("{address}: {error}")),
        Err(_) => Err(format!("{address}: no connection within {timeout:?}")),
    }
}
