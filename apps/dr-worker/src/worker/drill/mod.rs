//! Carries out the orders of drills on this member: `drill/order` in the election of each job. What is done about an order is
//! in [`decision`], without a clock and without I/O.
//!
//! At rest this is one watch per job. Whatever an order begins ends by this member's own clock: a rehearsal and a cut end when
//! the order does, at the latest, whatever has become of the program that gave it.
//!
//! A kill is recorded before it happens, in an answer that a restarted worker reads, so it happens once. A takeover enters its
//! leadership first and then ends the rehearsal, and a rehearsal looks for a leadership after it can be interrupted: one of
//! the two sees the other.

mod decision;
mod run;

use std::{env, process, sync::Arc, time::Duration};

use election_admin::Observer;
use election_core::{Election, Paths, errors::InvalidName, internals::record::Record as _, status::Role};
use job_guard::ProcessState;
use zk_session::{BootTime, DataWatch, Session, sleep_until};

use super::state::{Job, JobSlot, Worker};
use crate::{
    config::{Config, JobConfig},
    error::Error,
    wall::unix_ms,
    znodes::{DrillAnswer, DrillOrder, WorkerPaths as _, drills},
};
use decision::{DrillFacts, Duty, after_restart, duty, is_prober};
use run::Run;

/// The delay before something is read or written again after an error.
const RETRY: Duration = Duration::from_secs(1);

/// The drills of one job on this member.
#[derive(Clone, Debug)]
pub(super) struct Drills {
    worker: Arc<Worker>,
    session: Session,
    paths: Paths,
    election: Election,
    slot: Arc<JobSlot>,
}

impl Drills {
    /// Those of a job of this worker.
    ///
    /// # Errors
    /// If the job's election can't have a path.
    pub(super) fn of(worker: &Arc<Worker>, session: &Session, job: &Job) -> Result<Self, Error> {
        let invalid =
            |wrong: InvalidName| Error::Setting { key: "zookeeper.root", message: wrong.to_string() };
        let paths = Paths::new(worker.root(), job.slot.name()).map_err(invalid)?;
        let (worker, session) = (Arc::clone(worker), session.clone());
        let (election, slot) = (job.election.clone(), Arc::clone(&job.slot));
        Ok(Self { worker, session, paths, election, slot })
    }

    /// Carries out each order, until the session is closed.
    pub(super) async fn follow(self) {
        let mut watch = self.session.watch_data(self.paths.drill_order());
        let mut last = String::new();
        let mut next = None;
        loop {
            let order = match next.take() {
                Some(order) => Some(order),
                None => match watch.next_allowed().await {
                    Ok(seen) => self.decode(seen.value.as_ref().map(|node| &node.data[..])),
                    Err(_) => return,
                },
            };
            // A new session reports the same order again.
            let Some(order) = order.filter(|order| order.run != last && !order.is_over(unix_ms())) else {
                continue;
            };
            last.clone_from(&order.run);
            next = self.obey(order, &mut watch).await;
        }
    }

    fn decode(&self, data: Option<&[u8]>) -> Option<DrillOrder> {
        let order = DrillOrder::decode(&self.paths.drill_order(), data?);
        order
            .inspect_err(|error| {
                tracing::warn!(job = self.slot.name(), "an order of a drill is ignored: {error}")
            })
            .ok()
    }

    /// Carries out an order to its end. Returns another one that has been given meanwhile.
    async fn obey(&self, order: DrillOrder, watch: &mut DataWatch) -> Option<DrillOrder> {
        let until = BootTime::now() + order.remaining(unix_ms());
        let found = tokio::select! {
            found = self.before(&order) => found,
            () = sleep_until(until) => return None,
        };
        let mut duty = duty(&order, &self.facts(&self.worker.config(), &order));
        let config = self.slot.spec();
        let probe = config.drill.probe.clone().filter(|_| found.is_prober && found.answer.is_none());
        if duty == Duty::Probe && probe.is_none() && found.answer.is_none() {
            return None;
        }
        let (job, by, run) = (self.slot.name(), &order.by, &order.run);
        tracing::info!(job, by, run, mode = order.mode.as_str(), "a drill is under way");
        let mut first = None;
        if let Some(state) = found.answer.as_ref().and_then(DrillAnswer::state) {
            first = after_restart(order.mode, state);
            if first.is_some() || state.is_final() {
                duty = Duty::Probe;
            }
        }
        let run = Run::new(self, order, until, found.answer);
        if let Some((state, reason)) = first {
            run.note(state, Some(reason));
        }
        run.see_through(duty, probe, watch).await
    }

    /// What was answered before to this order, and whether this member probes. Waits until this process is a member, and retries
    /// until it is known: nothing may be done twice.
    async fn before(&self, order: &DrillOrder) -> FoundOrder {
        loop {
            // One that waits for another process of its id to end is not the member that the order names.
            if self.election.status().now().role == Role::Joining {
                tokio::time::sleep(RETRY).await;
                continue;
            }
            match self.read(order).await {
                Ok(found) => return found,
                Err(error) => {
                    let job = self.slot.name();
                    tracing::warn!(job, run = order.run, "can't carry out the order of a drill yet: {error}");
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn read(&self, order: &DrillOrder) -> Result<FoundOrder, election_admin::AdminError> {
        let (session, node) = (self.session.active().await?, self.worker.node());
        let answer = drills::answer_of(&session, &self.paths, &node.id, &order.run).await?;
        let is_prober = order.probe && {
            let snapshot = Observer::new(session).snapshot(&self.paths).await?;
            let members: Vec<_> =
                snapshot.members.iter().map(|member| (member.member.clone(), member.site.clone())).collect();
            is_prober(order, (&node.id, &node.site), &members)
        };
        Ok(FoundOrder { answer, is_prober })
    }

    /// What this member knows of itself now.
    fn facts<'a>(&'a self, config: &'a Config, order: &DrillOrder) -> DrillFacts<'a> {
        let own = |job: &&JobConfig| job.name() == self.slot.name();
        let spec = config.jobs.iter().find(own).map(|job| &job.spec);
        let vetoes = |job: &&JobConfig| !own(job) && !job.spec.drill.allow.contains(&order.mode);
        let (process, standby) = (self.slot.process(), self.slot.standby());
        let ready = standby.and_then(|standby| standby.process());
        let ready = ready.filter(|process| process.state == ProcessState::Running);
        DrillFacts {
            job: self.slot.name(),
            me: &self.worker.node().id,
            role: self.election.status().now().role,
            allowed: spec.map_or(&[], |spec| &spec.drill.allow),
            vetoed_by: config.jobs.iter().find(vetoes).map(JobConfig::name),
            rehearses: spec.is_some_and(|spec| spec.rehearsal.enabled),
            is_restarted: config.drill.restarted || is_main_process_of_service(),
            process: process.pid.filter(|_| self.slot.running().is_some()),
            standby: ready.and_then(|process| process.pid),
            lacks_rehearsal: standby.is_some() && spec.is_some_and(|spec| spec.rehearsal.command.is_none()),
        }
    }
}

/// What was found when an order was seen.
struct FoundOrder {
    /// This member's own answer, from before a restart.
    answer: Option<DrillAnswer>,
    is_prober: bool,
}

/// Whether systemd has started this process as the main process of a service. Its units restart it after SIGKILL, unless an
/// operator has changed `Restart=`.
fn is_main_process_of_service() -> bool {
    // Other variables of systemd, such as INVOCATION_ID, are also in a shell that a service has started.
    env::var("SYSTEMD_EXEC_PID").is_ok_and(|pid| pid == process::id().to_string())
}
