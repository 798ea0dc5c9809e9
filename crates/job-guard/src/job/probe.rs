//! Probes of a job: whether it is ready, and whether it still serves (liveness).

use std::sync::Arc;
use std::time::Duration;

use boot_time::BootTime;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::{
    guards::Guards,
    http,
    oneshot::{Deadline, OneShot},
    tally::Tally,
};
use crate::config::{Job, ReadyProbe, RunAs};

/// How often the log reports why a job is not ready yet.
const WORDS_INTERVAL: Duration = Duration::from_secs(10);

/// The pause between the first two attempts of a readiness probe. It doubles up to the configured interval: a job that
/// starts quickly is soon found to be ready.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The pauses between the attempts of a readiness probe.
fn pauses(interval: Duration) -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(FIRST_PAUSE.min(interval)), move |pause| Some((*pause * 2).min(interval)))
}

/// A probe of one run of a job.
pub(super) struct Probe {
    pub(super) job: Arc<Job>,
    pub(super) guards: Guards,
    pub(super) work_until: watch::Receiver<BootTime>,
    /// True once the program has sent `READY=1` in its present role.
    pub(super) says_ready: watch::Receiver<bool>,
    /// Each is true while the job has to rest: all of its processes are frozen, or the worker has suspended it, whatever its
    /// processes do yet. A try in that time says nothing about the job.
    pub(super) rests: [watch::Receiver<bool>; 2],
    /// True when the probe is cancelled.
    pub(super) cancel: watch::Receiver<bool>,
}

impl Probe {
    /// Returns true when the probe has passed once, or false when it was cancelled. No command of it is running then, but one that
    /// has survived SIGKILL may exist.
    ///
    /// # Cancel safety
    /// If the future is dropped, the guard kills a running command soon after.
    pub(super) async fn passed(self) -> bool {
        match &self.job.ready {
            ReadyProbe::None { after } => return self.has_run_for(*after).await,
            ReadyProbe::Notify => return self.is_notified().await,
            ReadyProbe::Exec { .. } | ReadyProbe::Http { .. } | ReadyProbe::Tcp { .. } => {}
        }
        let interval = self.job.ready.pause();
        let mut say_at = BootTime::now() + WORDS_INTERVAL;
        let mut pauses = pauses(interval);
        loop {
            let began = tokio::time::Instant::now();
            let reason = match self.attempt_awake(&self.job.ready_as, &self.job.ready).await {
                Some(Ok(())) => return true,
                Some(Err(reason)) => reason,
                None if *self.cancel.borrow() => return false,
                None => continue,
            };
            let now = BootTime::now();
            if now >= say_at {
                say_at = now + WORDS_INTERVAL;
                tracing::warn!(job = self.job.name, "not ready yet: {reason}");
            } else {
                tracing::debug!(job = self.job.name, "not ready yet: {reason}");
            }
            tokio::select! {
                biased;
                () = self.cancelled() => return false,
                () = tokio::time::sleep_until(began + pauses.next().unwrap_or(interval)) => {}
            }
        }
    }

    async fn cancelled(&self) {
        // A closed channel cancels the probe.
        let _ = self.cancel.clone().wait_for(|&is_cancelled| is_cancelled).await;
    }

    /// Without a break: a job that had to rest meanwhile begins again.
    async fn has_run_for(&self, after: Duration) -> bool {
        let mut rests = self.rests.clone();
        loop {
            tokio::select! {
                biased;
                () = self.cancelled() => return false,
                () = awake(&mut rests) => {}
            }
            let [frozen, suspended] = &mut rests;
            tokio::select! {
                biased;
                () = self.cancelled() => return false,
                Ok(()) = frozen.changed() => {}
                Ok(()) = suspended.changed() => {}
                () = tokio::time::sleep(after) => return true,
            }
        }
    }

    /// One try while the job need not rest; `None` if it had to meanwhile, or the probe is cancelled.
    async fn attempt_awake(&self, run_as: &Option<RunAs>, probe: &ReadyProbe) -> Option<Result<(), String>> {
        let mut rests = self.rests.clone();
        tokio::select! {
            biased;
            () = self.cancelled() => return None,
            () = awake(&mut rests) => {}
        }
        let outcome = self.attempt(run_as, probe).await;
        // Without its sender none of them changes.
        let has_rested = rests.iter().any(|rest| rest.has_changed().unwrap_or_else(|_| *rest.borrow()));
        (!has_rested).then_some(outcome)
    }

    async fn is_notified(&self) -> bool {
        let mut says_ready = self.says_ready.clone();
        tokio::select! {
            biased;
            () = self.cancelled() => false,
            said = says_ready.wait_for(|says_ready| *says_ready) => said.is_ok(),
        }
    }

    /// Runs the job's liveness check until it has failed too often in a row. Returns the reason, or `None` if it was
    /// cancelled or there is no check. What exists then is as in [`Probe::passed`].
    ///
    /// # Cancel safety
    /// As [`Probe::passed`].
    pub(super) async fn failed(self) -> Option<String> {
        let check = self.job.liveness.as_ref()?;
        let mut tally = Tally::new(check.failures);
        loop {
            let next = tokio::time::Instant::now() + check.interval();
            let outcome = self.attempt_awake(&self.job.liveness_as, &check.probe).await;
            // An interrupted try does not count.
            if *self.cancel.borrow() {
                return None;
            }
            let Some(outcome) = outcome else { continue };
            let report = tally.answered(outcome.is_ok());
            if let Err(reason) = outcome {
                let failures = tally.in_a_row();
                tracing::debug!(job = self.job.name, failures, "the liveness check failed: {reason}");
                if report == Some(false) {
                    return Some(reason);
                }
            }
            tokio::select! {
                biased;
                () = self.cancelled() => return None,
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    /// One try. The error is the reason, as a sentence.
    async fn attempt(&self, run_as: &Option<RunAs>, probe: &ReadyProbe) -> Result<(), String> {
        let command = OneShot {
            env: self.job.env.clone(),
            working_dir: self.job.working_dir.clone(),
            no_new_privileges: self.job.no_new_privileges,
            run_as: run_as.clone(),
            by: Some(Deadline::at(self.work_until.clone())),
            ..OneShot::new(format!("job {} probe", self.job.name))
        };
        attempt(probe, command, &self.guards, self.cancelled()).await
    }
}

/// Waits until none of them is true. A later change of any of them is new.
async fn awake(rests: &mut [watch::Receiver<bool>; 2]) {
    loop {
        for rest in rests.iter_mut() {
            if rest.wait_for(|rests| !rests).await.is_err() {
                // It was suspended last, and the order to stop follows.
                std::future::pending::<()>().await;
            }
        }
        if !rests.iter().any(|rest| *rest.borrow()) {
            return;
        }
    }
}

/// One try of a probe; `command` has what else a command needs. One that needs no try passes. The error is the reason, as a
/// sentence.
///
/// # Errors
/// Why it did not pass.
///
/// # Cancel safety
/// If the future is dropped, the guard kills a running command soon after.
pub async fn probe_once(probe: &ReadyProbe, command: OneShot, guards: &Guards) -> Result<(), String> {
    attempt(probe, command, guards, std::future::pending()).await
}

/// The same, until `cancelled` completes.
async fn attempt(
    probe: &ReadyProbe,
    as_command: OneShot,
    guards: &Guards,
    cancelled: impl Future<Output = ()>,
) -> Result<(), String> {
    match probe {
        ReadyProbe::None { .. } | ReadyProbe::Notify => Ok(()),
        // A command has to be ended, not only dropped, so it handles the cancellation itself.
        ReadyProbe::Exec { command, timeout, .. } => {
            let command =
                OneShot { command: command.clone(), timeout: *timeout, may_outlast: true, ..as_command };
            command.run(guards, cancelled).await.succeeded("the probe")
        }
        ReadyProbe::Http { url, timeout, .. } => unless(cancelled, http::get(url, *timeout)).await,
        ReadyProbe::Tcp { address, timeout, .. } => unless(cancelled, tcp(address, *timeout)).await,
    }
}

async fn unless(
    cancelled: impl Future<Output = ()>,
    asked: impl Future<Output = Result<(), String>>,
) -> Result<(), String> {
    tokio::select! {
        biased;
        outcome = asked => outcome,
        () = cancelled => Err("it is no longer asked for".to_owned()),
    }
}

async fn tcp(address: &str, timeout: Duration) -> Result<(), String> {
    match tokio::time::timeout(timeout, TcpStream::connect(address)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("{address}: {error}")),
        Err(_) => Err(format!("{address}: no connection within {timeout:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_frequent_at_first() {
        let ms = |interval: u64, count| -> Vec<u128> {
            pauses(Duration::from_millis(interval)).take(count).map(|pause| pause.as_millis()).collect()
        };
        assert_eq!(ms(500, 8), [10, 20, 40, 80, 160, 320, 500, 500]);
        assert_eq!(ms(4, 2), [4, 4]);
    }
}
