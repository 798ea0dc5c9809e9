//! A watchdog device resets this machine if a job outlives its lease: when the guards can't end it, because the kernel hangs, or
//! worker and guard are both stopped.
//!
//! The worker kicks the device, from the task that [`Watchdog::start`] spawns, for as long as the leases allow. So the machine is
//! reset if the worker dies, is stopped or hangs while a job may run. The device is armed before a job is started, and stopped
//! once the worker has verified that no process of any job is left. [`plan`] has the times.

mod device;
mod plan;

use std::{collections::BTreeMap, time::Duration};

use tokio::sync::{mpsc, oneshot, watch};
use zk_session::{BootTime, sleep_until};

use self::{
    device::Device,
    plan::{Plan, Step},
};
use crate::config::{WatchdogConfig, WatchdogMode};

/// The watchdog of a worker.
#[derive(Clone, Debug)]
pub(in crate::worker) struct Watchdog {
    orders: mpsc::UnboundedSender<WatchdogOrder>,
}

#[derive(Debug)]
enum WatchdogOrder {
    /// A job is about to be started, and may run until this time.
    Arm { job: String, until: watch::Receiver<BootTime>, armed: oneshot::Sender<Result<(), String>> },
    /// No process of the job is left.
    Release { job: String, released: oneshot::Sender<()> },
}

impl Watchdog {
    /// Checks that the device can be used, which stops it if an earlier worker has left it running: no process of a job is left
    /// then. `longest` is the longest timeout that leases allow.
    ///
    /// # Errors
    /// Why it can't be used, as a sentence.
    pub(in crate::worker) fn check(config: &WatchdogConfig, longest: Duration) -> Result<(), String> {
        let device = Device::open(config, longest)?;
        device.disarm().map_err(|error| format!("can't stop {}: {error}", config.device.display()))
    }

    /// Starts the task that kicks the device while a job may run.
    pub(in crate::worker) fn start(config: WatchdogConfig, longest: Duration) -> Watchdog {
        let (orders, inbox) = mpsc::unbounded_channel();
        let keeper = WatchdogKeeper { config, longest, device: None, until: BTreeMap::new() };
        tokio::spawn(keeper.keep(inbox));
        Watchdog { orders }
    }

    /// Arms the device for a job that is about to be started and may work until then.
    ///
    /// # Errors
    /// Why the device can't be used, as a sentence, where this node must not lead without it.
    pub(in crate::worker) async fn arm(
        &self,
        job: &str,
        until: watch::Receiver<BootTime>,
    ) -> Result<(), String> {
        let (armed, answer) = oneshot::channel();
        // Without its task no answer comes.
        let _ = self.orders.send(WatchdogOrder::Arm { job: job.to_owned(), until, armed });
        answer.await.unwrap_or_else(|_| Err("the watchdog's task has ended".to_owned()))
    }

    /// No process of the job is left. If it was the last job, the device is stopped when this returns.
    pub(in crate::worker) async fn release(&self, job: &str) {
        let (released, answer) = oneshot::channel();
        let _ = self.orders.send(WatchdogOrder::Release { job: job.to_owned(), released });
        let _ = answer.await;
    }
}

/// The task that has the device.
struct WatchdogKeeper {
    config: WatchdogConfig,
    longest: Duration,
    device: Option<(Device, Plan)>,
    /// Until when each job of which a process may be left may work.
    until: BTreeMap<String, watch::Receiver<BootTime>>,
}

impl WatchdogKeeper {
    async fn keep(mut self, mut inbox: mpsc::UnboundedReceiver<WatchdogOrder>) {
        loop {
            let wake_at = self.act();
            tokio::select! {
                order = inbox.recv() => match order {
                    Some(WatchdogOrder::Arm { job, until, armed }) => {
                        // One that has stopped waiting releases it.
                        let _ = armed.send(self.arm(job, until));
                    }
                    Some(WatchdogOrder::Release { job, released }) => {
                        self.until.remove(&job);
                        self.act();
                        let _ = released.send(());
                    }
                    None => return,
                },
                () = sleep_until(wake_at.unwrap_or_else(BootTime::now)), if wake_at.is_some() => {}
            }
        }
    }

    fn arm(&mut self, job: String, until: watch::Receiver<BootTime>) -> Result<(), String> {
        if self.device.is_none() {
            match self.open(*until.borrow()) {
                Ok(opened) => self.device = Some(opened),
                Err(why) if self.config.mode == WatchdogMode::Required => return Err(why),
                Err(why) => {
                    tracing::warn!(job, "the job is started without the watchdog device: {why}");
                    return Ok(());
                }
            }
        }
        self.until.insert(job, until);
        self.act();
        Ok(())
    }

    /// It runs from then on.
    fn open(&self, end: BootTime) -> Result<(Device, Plan), String> {
        let margin = self.config.safety_margin;
        if BootTime::now() + self.longest > end + margin / 2 {
            return Err("the lease is too short at the moment to delay the reset".to_owned());
        }
        let device = Device::open(&self.config, self.longest)?;
        let (path, timeout) = (self.config.device.display(), device.timeout);
        tracing::info!(device = %path, ?timeout, "the watchdog device is armed: it resets this machine if a job outlives its lease");
        let plan = Plan::new(timeout, margin);
        Ok((device, plan))
    }

    /// Does what is due, and returns when to look again.
    fn act(&mut self) -> Option<BootTime> {
        let end = self.until.values().map(|until| *until.borrow()).min();
        let (device, plan) = self.device.as_mut()?;
        let now = BootTime::now();
        match plan.step(now, end) {
            Step::Wait => {}
            Step::Kick => {
                if let Err(error) = device.kick() {
                    let device = self.config.device.display();
                    tracing::error!(%device, %error, "can't kick the watchdog device");
                }
            }
            Step::Disarm => {
                let (device, _) = self.device.take()?;
                let path = self.config.device.display();
                match device.disarm() {
                    Ok(()) => {
                        tracing::info!(device = %path, "the watchdog device is stopped: no job is left")
                    }
                    Err(error) => {
                        tracing::error!(device = %path, %error, "can't stop the watchdog device; it will reset this machine");
                    }
                }
                return None;
            }
        }
        plan.wake_at(now, end)
    }
}
