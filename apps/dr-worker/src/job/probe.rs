//! Telling when a job that runs also serves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;

use super::guarded::Guards;
use super::oneshot::OneShot;
use super::spec::{JobSpec, ReadyProbe};
use crate::guard::BootTime;

/// How often it is said why a job is not ready yet.
const WORDS_INTERVAL: Duration = Duration::from_secs(10);

/// What a probe needs to know of the job it probes.
#[derive(Clone)]
pub(super) struct Probe {
    pub(super) spec: Arc<JobSpec>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) guards: Guards,
    pub(super) work_until: watch::Receiver<BootTime>,
}

impl Probe {
    /// Returns when the probe has passed once.
    ///
    /// # Cancel safety
    /// Cancel safe; a command that is being tried is killed by its guard soon after.
    pub(super) async fn passed(self) {
        let (interval, timeout) = match &self.spec.ready {
            ReadyProbe::None => return,
            ReadyProbe::Exec { interval, timeout, .. }
            | ReadyProbe::Http { interval, timeout, .. }
            | ReadyProbe::Tcp { interval, timeout, .. } => (*interval, *timeout),
            // Refused by `JobSpec::check`.
            ReadyProbe::Notify => return std::future::pending().await,
        };
        let mut say_at = BootTime::now() + WORDS_INTERVAL;
        loop {
            let began = tokio::time::Instant::now();
            let Err(words) = self.attempt(timeout).await else {
                return;
            };
            let now = BootTime::now();
            if now >= say_at {
                say_at = now + WORDS_INTERVAL;
                tracing::warn!(job = self.spec.name, "not ready yet: {words}");
            } else {
                tracing::debug!(job = self.spec.name, "not ready yet: {words}");
            }
            tokio::time::sleep_until(began + interval).await;
        }
    }

    /// One try; the reason in words if it fails.
    async fn attempt(&self, timeout: Duration) -> Result<(), String> {
        match &self.spec.ready {
            ReadyProbe::None | ReadyProbe::Notify => Ok(()),
            ReadyProbe::Exec { command, .. } => self.exec(command, timeout).await,
            ReadyProbe::Http { url, .. } => http(url, timeout).await,
            ReadyProbe::Tcp { address, .. } => tcp(address, timeout).await,
        }
    }

    async fn exec(&self, command: &[String], timeout: Duration) -> Result<(), String> {
        let lease_end = *self.work_until.borrow();
        let finished = OneShot {
            title: format!("job {} probe", self.spec.name),
            command: command.to_vec(),
            env: self.env.clone(),
            working_dir: self.spec.working_dir.clone(),
            timeout,
            by: Some(lease_end),
        }
        .run(&self.guards)
        .await;
        match (finished.timed_out, finished.exit) {
            (_, Ok(exit)) if exit.is_success() => Ok(()),
            (Some(after), _) => Err(format!("the probe did not end within {after:?}")),
            (None, Ok(exit)) => Err(format!("the probe ended: {exit} {}", finished.stderr)),
            (None, Err(words)) => Err(format!("the probe did not start: {words}")),
        }
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
