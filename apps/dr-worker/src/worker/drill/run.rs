//! One drill on this member, from the first sight of its order to the last answer.

use std::{convert::Infallible, future::pending, pin::pin, time::Duration};

use election_core::strategy::in_words;
use job_guard::{ProcessState, ProcessStatus, probe_once};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use zk_session::{BootTime, DataWatch, sleep_until};

use super::{
    Drills, RETRY,
    decision::{Duty, at_end, duty},
};
use crate::{
    config::{Helper, ReadyProbe},
    logging,
    mask::mask,
    wall::{ms, unix_ms},
    worker::job::beside,
    znodes::{DrillAnswer, DrillOrder, DrillProbes, DrillState, drills},
};

/// How often the answer of a prober is written while nothing else happens.
const PROBES_WRITTEN: Duration = Duration::from_secs(2);

/// How long the last answer is tried to be written.
const CLOSED_WITHIN: Duration = Duration::from_secs(60);

/// How long the last lines of the log may take before the worker kills itself.
const LAST_LINES: Duration = Duration::from_secs(1);

/// A drill on this member.
pub(super) struct Run<'a> {
    drills: &'a Drills,
    order: DrillOrder,
    /// The origin of all times in the answer.
    began: BootTime,
    /// When the order is forgotten.
    until: BootTime,
    answer: Mutex<DrillAnswer>,
    /// Counts the changes of the answer, and which of them is written.
    changes: watch::Sender<u64>,
    written: watch::Sender<u64>,
    /// Whether the order is to be carried out, and whether it is over.
    is_going: watch::Sender<bool>,
    is_over: watch::Sender<bool>,
}

impl<'a> Run<'a> {
    /// `earlier`: what this member answered before its worker was restarted.
    pub(super) fn new(
        drills: &'a Drills,
        order: DrillOrder,
        until: BootTime,
        earlier: Option<DrillAnswer>,
    ) -> Self {
        let (now, unix_ms) = (BootTime::now(), unix_ms());
        let answer = earlier.unwrap_or_else(|| {
            let (me, site) = (drills.worker.node().id.clone(), drills.worker.node().site.clone());
            DrillAnswer::new(&order, me, site, env!("CARGO_PKG_VERSION"), unix_ms)
        });
        let began = now - Duration::from_millis(unix_ms.saturating_sub(answer.seen_ms));
        let (changes, written) = (watch::Sender::new(0), watch::Sender::new(0));
        let (is_going, is_over) = (watch::Sender::new(order.go), watch::Sender::new(false));
        Self { drills, order, began, until, answer: Mutex::new(answer), changes, written, is_going, is_over }
    }

    /// Carries the order out until it ends, and answers for the last time. Returns another order that has been given meanwhile.
    pub(super) async fn see_through(
        self,
        duty: Duty,
        probe: Option<ReadyProbe>,
        watch: &mut DataWatch,
    ) -> Option<DrillOrder> {
        let (mut next, mut is_over, mut is_done) = (None, false, false);
        {
            let mut over = pin!(self.until_over(watch));
            let mut carried_out = pin!(self.carry_out(duty));
            let mut beside = pin!(async { tokio::join!(self.keep_written(), self.probe(probe)) });
            while !(is_over && is_done) {
                tokio::select! {
                    given = &mut over, if !is_over => {
                        (next, is_over) = (given, true);
                        self.is_over.send_replace(true);
                    }
                    () = &mut carried_out, if !is_done => is_done = true,
                    (never, _) = &mut beside => match never {},
                }
            }
        }
        self.close().await;
        next
    }

    /// Waits until the order is over, or another one is given. Reports when it is to be carried out.
    async fn until_over(&self, watch: &mut DataWatch) -> Option<DrillOrder> {
        let ended = async {
            while let Ok(seen) = watch.next_allowed().await {
                let order = self.drills.decode(seen.value.as_ref().map(|node| &node.data[..]));
                match order {
                    Some(order) if order.run == self.order.run => drop(self.is_going.send_replace(order.go)),
                    other => return other,
                }
            }
            // The session is closed: this worker ends.
            pending().await
        };
        tokio::select! {
            next = ended => next,
            () = sleep_until(self.until) => None,
        }
    }

    async fn carry_out(&self, duty: Duty) {
        match duty {
            Duty::Refuse(reason) => return self.note(DrillState::Refused, Some(reason)),
            // It was restarted before it began, or it has answered all.
            _ if self.answer.lock().state().is_some() && duty == Duty::Probe => return,
            Duty::Probe => return self.note(DrillState::Accepted, None),
            _ if self.answer.lock().state().is_none() => self.note(DrillState::Accepted, None),
            _ => {}
        }
        tokio::select! {
            () = until_true(&self.is_going) => {}
            () = until_true(&self.is_over) => return,
        }
        // Much may have changed meanwhile.
        let config = self.drills.worker.config();
        match self::duty(&self.order, &self.drills.facts(&config, &self.order)) {
            Duty::Refuse(reason) => self.note(DrillState::Failed, Some(reason)),
            Duty::Rehearse => self.rehearse().await,
            Duty::KillJob(process) => self.kill_job(process).await,
            Duty::KillStandby(process) => self.kill_standby(process).await,
            Duty::KillWorker => self.kill_worker().await,
            Duty::Cut => self.cut().await,
            Duty::Agree | Duty::Probe => {}
        }
    }

    async fn rehearse(&self) {
        self.note(DrillState::Started, None);
        let ready = || self.note(DrillState::Ready, None);
        match self.drills.slot.rehearse(self.until, until_true(&self.is_over), ready).await {
            Ok(()) => self.note(DrillState::Ended, None),
            Err(reason) => self.note(DrillState::Failed, Some(reason)),
        }
    }

    async fn kill_job(&self, process: u32) {
        let slot = &self.drills.slot;
        let is_present = || slot.process().pid.filter(|_| slot.running().is_some()) == Some(process);
        let again = async {
            self.ready_after(process).await;
            Ok(())
        };
        self.kill_process("job", process, is_present, "the process has ended by itself", again).await;
    }

    async fn kill_standby(&self, process: u32) {
        let Some(standby) = self.drills.slot.standby() else { return };
        let is_present = || standby.process().and_then(|now| now.pid) == Some(process);
        let again = standby.ready_after(process);
        self.kill_process("standby", process, is_present, "the standby has ended, or was promoted", again)
            .await;
    }

    /// Kills the main process of the job or of its standby, unless it is `gone`, and waits until there is one `again`.
    async fn kill_process(
        &self,
        of: &str,
        process: u32,
        is_present: impl Fn() -> bool,
        gone: &str,
        again: impl Future<Output = Result<(), &'static str>>,
    ) {
        let what = format!("SIGKILL to process {process} of the {of}");
        if !self.record(DrillState::Started, what).await {
            return;
        }
        let (Ok(pid), true) = (i32::try_from(process), is_present()) else {
            return self.note(DrillState::Failed, Some(gone.to_owned()));
        };
        let (job, run) = (self.drills.slot.name(), &self.order.run);
        tracing::warn!(job, run, pid, "a drill kills the {of}'s main process");
        if let Err(error) = kill(Pid::from_raw(pid), Signal::SIGKILL) {
            return self.note(DrillState::Failed, Some(format!("can't kill process {process}: {error}")));
        }
        let again = tokio::select! {
            again = again => again,
            // Another member may lead by now.
            () = until_true(&self.is_over) => return,
        };
        match again {
            Ok(()) => {
                self.note(DrillState::Ready, None);
                self.note(DrillState::Ended, Some(format!("process {process} was killed")));
            }
            Err(why) => self.note(DrillState::Failed, Some(why.to_owned())),
        }
    }

    /// Waits until this member's job is ready again after this process was killed.
    async fn ready_after(&self, killed: u32) {
        let (slot, changed) = (&self.drills.slot, Notify::new());
        let again = async {
            let is_again = |now: ProcessStatus| {
                now.state == ProcessState::Running && now.pid.is_some_and(|pid| pid != killed)
            };
            while !is_again(slot.process()) {
                changed.notified().await;
            }
        };
        tokio::select! {
            () = again => {}
            () = slot.follow_process(|| changed.notify_one()) => pending().await,
        }
    }

    async fn kill_worker(&self) {
        let me = Pid::this();
        let what = format!("SIGKILL to the worker, process {me}");
        if !self.record(DrillState::Started, what).await {
            return;
        }
        tracing::warn!(job = self.drills.slot.name(), run = self.order.run, "a drill kills this worker");
        logging::flush(LAST_LINES);
        if let Err(error) = kill(me, Signal::SIGKILL) {
            self.note(DrillState::Failed, Some(format!("can't kill the worker: {error}")));
        }
    }

    async fn cut(&self) {
        let job = self.drills.slot.name();
        let wanted = self.order.cut_ms.map(Duration::from_millis);
        let remaining = self.until.duration_since(BootTime::now());
        let lasts = wanted.map_or(remaining, |wanted| wanted.min(remaining));
        let what = format!("cut off for {}", in_words(lasts));
        if !self.record(DrillState::Started, what).await {
            return;
        }
        let end = (BootTime::now() + lasts).min(self.until);
        tracing::warn!(
            job,
            run = self.order.run,
            lasts_ms = ms(lasts),
            "a drill cuts this worker off: it uses no connection to ZooKeeper, and its HTTP port answers nothing"
        );
        self.drills.worker.cut_off(end);
        let back = async {
            sleep_until(end).await;
            tracing::info!(job, run = self.order.run, "the cut is over");
            // An error: the worker ends.
            self.drills.session.active().await.is_ok()
        };
        tokio::select! {
            true = back => self.note(DrillState::Ended, None),
            () = until_true(&self.is_over) => {}
            else => {}
        }
    }

    /// Probes the job's service, one probe after another.
    async fn probe(&self, probe: Option<ReadyProbe>) -> Infallible {
        let Some((probe, interval)) = probe.and_then(|probe| Some((probe.clone(), probe.pace()?.0))) else {
            return pending().await;
        };
        let slot = &self.drills.slot;
        let spec = slot.spec();
        let env = slot.env_of_member().of_member(&spec.env, "prober");
        let command = beside(&spec, "drill probe", spec.user_of(Helper::DrillProbe), env);
        self.answer.lock().probes = Some(DrillProbes::new(&target(&probe), interval, self.after_ms()));
        loop {
            let next = Instant::now() + interval;
            let outcome = probe_once(&probe, command.clone(), &slot.guards).await;
            let outcome = outcome.map_err(|reason| mask(&reason).into_owned());
            if let Some(probes) = &mut self.answer.lock().probes {
                probes.add(self.after_ms(), outcome.as_ref().copied().map_err(String::as_str));
            }
            tokio::time::sleep_until(next).await;
        }
    }

    /// The time of a step that is taken now.
    fn after_ms(&self) -> u64 {
        ms(BootTime::now().duration_since(self.began))
    }

    /// Takes a step, which is written soon.
    pub(super) fn note(&self, state: DrillState, reason: Option<String>) {
        let (job, run) = (self.drills.slot.name(), &self.order.run);
        tracing::info!(job, run, reason, "step of a drill: {}", state.as_str());
        self.answer.lock().add(state, self.after_ms(), reason);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Takes a step, and waits until it is written: what follows must not be done twice. Returns false if the order has ended
    /// before; nothing was done then, and the answer says so.
    async fn record(&self, state: DrillState, reason: String) -> bool {
        self.note(state, Some(reason));
        let change = *self.changes.borrow();
        let mut written = self.written.subscribe();
        tokio::select! {
            biased;
            () = until_true(&self.is_over) => {
                let reason = "the drill has ended before this member acted; nothing was done".to_owned();
                self.note(DrillState::Failed, Some(reason));
                false
            }
            is_written = written.wait_for(|written| change <= *written) => is_written.is_ok(),
        }
    }

    /// Writes the answer after each change, and from time to time while this member probes.
    async fn keep_written(&self) -> Infallible {
        let mut changes = self.changes.subscribe();
        loop {
            let change = *changes.borrow_and_update();
            if change > 0 {
                match self.write().await {
                    Ok(true) => drop(self.written.send_replace(change)),
                    // The order is gone, and its end follows.
                    Ok(false) => {}
                    Err(reason) => {
                        let (job, run) = (self.drills.slot.name(), &self.order.run);
                        tracing::warn!(job, run, "can't write the answer to a drill yet: {reason}");
                        tokio::time::sleep(RETRY).await;
                        continue;
                    }
                }
            }
            let probes = self.answer.lock().probes.is_some();
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep(PROBES_WRITTEN), if probes => {}
            }
        }
    }

    /// Writes the answer. Returns false if nothing asks for it any more.
    async fn write(&self) -> Result<bool, String> {
        let session = self.drills.session.active().await.map_err(|error| error.to_string())?;
        let answer = self.answer.lock().clone();
        drills::answer(&session, &self.drills.paths, &answer).await.map_err(|error| error.to_string())
    }

    /// Answers for the last time.
    async fn close(&self) {
        let closed = async {
            // After a cut: when the connection is back.
            let _ = self.drills.session.active().await;
            let state = self.answer.lock().state();
            if let Some((state, reason)) = at_end(&self.order, &self.drills.worker.node().id, state) {
                self.note(state, reason);
            }
            self.answer.lock().closed = true;
            while self.write().await.is_err() {
                tokio::time::sleep(RETRY).await;
            }
        };
        let (job, run) = (self.drills.slot.name(), &self.order.run);
        match tokio::time::timeout(CLOSED_WITHIN, closed).await {
            Ok(()) => tracing::info!(job, run, "the drill has ended here"),
            Err(_) => {
                tracing::warn!(job, run, "the drill has ended here; its last answer could not be written")
            }
        }
    }
}

/// What is probed, as text. Of a command only the program: its arguments may hold secrets.
fn target(probe: &ReadyProbe) -> String {
    match probe {
        ReadyProbe::Http { url, .. } => mask(url).into_owned(),
        ReadyProbe::Tcp { address, .. } => address.clone(),
        ReadyProbe::Exec { command, .. } => command.first().cloned().unwrap_or_default(),
        ReadyProbe::None { .. } | ReadyProbe::Notify => String::new(),
    }
}

async fn until_true(flag: &watch::Sender<bool>) {
    if flag.subscribe().wait_for(|flag| *flag).await.is_err() {
        pending::<()>().await;
    }
}
