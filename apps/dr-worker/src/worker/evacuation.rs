//! Carries out an evacuation: one worker at a time, whichever has the claim. What is done is in
//! `commands/evacuation/course.rs`, without a clock and without I/O.
//!
//! ```text
//!   plans/evacuation changes ─▶ claim ─▶ each step that is due: looks at its job ─▶ begins it ─▶ follows its request
//!                                 ▲                                                                    ▼
//!                                 └── another worker, if this one dies          its outcome, and what is due then
//! ```
//!
//! The claim only spares work. Everything is written over the version of the record that was read, together with what it is
//! about, so two workers that carry it out at once begin each step once.

use std::{sync::Arc, time::Duration};

use election_admin::{AdminError, Attempts, Hindrance, Known, NotNow, Refusal, orders};
use election_core::{
    Paths,
    internals::record::{
        AdminRequest, Control, FiledRequest, Outgoing, Record as _, RequestKind, RequestState, Target,
    },
};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::sync::Mutex;
use zk_session::{BootTime, CreateMode, MultiOp, OpError, Session, SessionId};

use super::state::Worker;
use crate::{
    commands::{
        Operator,
        drill::gather::gather_election,
        evacuation::{
            course::{EvacuationPhase, StepOutcome},
            store,
            survey::{NextMove, arrived, next},
        },
        moves::{self, Decision, longest_move},
    },
    error::Error,
    wall::unix_ms,
    znodes::{Evacuation, EvacuationStep, PLANS, WorkerPaths as _},
};

/// The delay before something is tried again after an error.
const RETRY: Duration = Duration::from_secs(1);

/// The pause between two looks at a job that can't be moved yet.
const LOOK: Duration = Duration::from_millis(200);

/// How long a worker of the site that is emptied leaves the work to the others.
const COURTESY: Duration = Duration::from_millis(500);

/// Carries out each evacuation of this root, until this is dropped.
pub(super) async fn run(worker: Arc<Worker>) {
    worker.until_joined().await;
    let (Some(session), Ok(paths)) = (worker.session().cloned(), Paths::new(worker.root(), PLANS)) else {
        return;
    };
    let mut watch = session.watch_data(paths.evacuation());
    while let Ok(seen) = watch.next_allowed().await {
        let plan = seen.value.and_then(|node| Evacuation::decode(&paths.evacuation(), &node.data).ok());
        let Some(plan) = plan.filter(|plan| plan.phase() == EvacuationPhase::Running) else { continue };
        if worker.node().site == plan.site {
            tokio::time::sleep(COURTESY).await;
        }
        loop {
            let carrier = match Carrier::new(&worker, &session, &paths) {
                Ok(carrier) => carrier,
                Err(error) => {
                    tracing::error!(%error, "this worker can't carry out the evacuation");
                    break;
                }
            };
            match carrier.see_through().await {
                Ok(()) => break,
                Err(error) => tracing::warn!(%error, "can't carry out the evacuation now; trying again"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// A worker that carries out an evacuation.
struct Carrier<'a> {
    worker: &'a Worker,
    operator: Operator,
    session: &'a Session,
    /// Those of plans.
    paths: &'a Paths,
    /// One change of the record at a time: they would only lose races against each other.
    writing: Mutex<()>,
}

impl<'a> Carrier<'a> {
    fn new(worker: &'a Worker, session: &'a Session, paths: &'a Paths) -> Result<Self, Error> {
        let operator = Operator { config: worker.config().what_if(&[])?, session: session.clone() };
        Ok(Self { worker, operator, session, paths, writing: Mutex::new(()) })
    }

    async fn running(&self) -> Result<Option<Evacuation>, Error> {
        let plan = store::read(self.session, self.paths).await?;
        Ok(plan.filter(|plan| plan.phase() == EvacuationPhase::Running))
    }

    /// Until it is not under way any more, by this worker or another one.
    async fn see_through(&self) -> Result<(), Error> {
        let path = self.paths.evacuation_carrier();
        let mut claim = self.session.watch_data(path.clone());
        loop {
            let seen = claim.next().await.map_err(AdminError::from)?;
            let Some(plan) = self.running().await? else { return Ok(()) };
            let incarnation = self.operator.incarnation().await?;
            let (id, session) = (&self.worker.node().id, incarnation.session_id());
            match seen.value {
                // The program before this one had it, before an upgrade in place.
                Some(node) if SessionId(node.stat.ephemeral_owner) == session => {}
                Some(_) => continue,
                None => match incarnation.create(&path, id.as_str(), CreateMode::Ephemeral).await {
                    Ok(_) => {}
                    Err(OpError::NodeExists { .. }) => continue,
                    Err(error) => return Err(error.into()),
                },
            }
            tracing::info!(site = %plan.site, by = plan.by, undo = plan.undo, "this worker carries out an evacuation");
            let result = self.carry_out().await;
            // It goes with the session otherwise.
            let _ = incarnation.delete(&path, None).await;
            return result;
        }
    }

    /// Drives each step that is due or under way, side by side.
    async fn carry_out(&self) -> Result<(), Error> {
        let mut watch = self.session.watch_data(self.paths.evacuation());
        let (mut driven, mut steps) = (Vec::new(), FuturesUnordered::new());
        loop {
            let Some(plan) = self.running().await? else { return Ok(()) };
            let due = plan.due();
            for (at, step) in plan.steps.iter().enumerate() {
                if (step.request_is_open() || due.contains(&at)) && !driven.contains(&at) {
                    driven.push(at);
                    steps.push(async move { (at, self.drive(at).await) });
                }
            }
            tokio::select! {
                ended = steps.next(), if !steps.is_empty() => {
                    if let Some((at, result)) = ended {
                        result?;
                        driven.retain(|other| *other != at);
                    }
                }
                seen = watch.next() => drop(seen.map_err(AdminError::from)?),
            }
        }
    }

    /// Begins a step if it is due, and writes its outcome.
    async fn drive(&self, at: usize) -> Result<(), Error> {
        self.begin(at).await?;
        let Some(plan) = self.running().await? else { return Ok(()) };
        let Some(step) = plan.steps.get(at).filter(|step| step.request_is_open()) else { return Ok(()) };
        let paths = self.operator.paths(&step.job)?;
        let why_not = self.follow((&plan, at), step, &paths).await?;
        let until = BootTime::now() + longest_move(&self.operator, &step.job);
        loop {
            let (snapshot, state) = gather_election(&self.operator, &paths).await?;
            let is_late = BootTime::now() >= until;
            let late = || is_late.then(|| StepOutcome::Failed(why_not.clone()));
            if let Some(outcome) = arrived(&plan, step, &state, &snapshot.members, &why_not).or_else(late) {
                return self.settle(at, step.request.as_ref(), outcome).await;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Begins a step that is due, in one transaction with its request. Waits for a change of leadership that is under way.
    async fn begin(&self, at: usize) -> Result<(), Error> {
        let mut until = None;
        loop {
            let Some(plan) = self.running().await? else { return Ok(()) };
            let Some(step) = plan.steps.get(at).filter(|_| plan.due().contains(&at)) else { return Ok(()) };
            let paths = self.operator.paths(&step.job)?;
            let (snapshot, state) = match gather_election(&self.operator, &paths).await {
                Ok(found) => found,
                Err(error @ Error::Usage(_)) => {
                    return self
                        .settle(at, step.request.as_ref(), StepOutcome::Failed(error.to_string()))
                        .await;
                }
                Err(error) => return Err(error),
            };
            let by = *until.get_or_insert_with(|| BootTime::now() + longest_move(&self.operator, &step.job));
            match next(&plan, step, &state) {
                NextMove::Wait(why) if BootTime::now() >= by => {
                    return self.settle(at, step.request.as_ref(), StepOutcome::Failed(why)).await;
                }
                NextMove::Wait(_) => tokio::time::sleep(LOOK).await,
                NextMove::Settle(outcome) => return self.settle(at, step.request.as_ref(), outcome).await,
                // Before the request: an elector must not see the request first.
                NextMove::Move(_) if plan.undo && step.drained => {
                    self.drain(at, step.request.as_ref(), false).await?
                }
                NextMove::Move(site) => {
                    let request = request(&plan, Target::Site(site));
                    let name = plan.request_of(at);
                    match election_admin::filing(&paths, &snapshot, &name, &request) {
                        Ok(filing) => {
                            if self.file(at, &plan, filing).await? {
                                return Ok(());
                            }
                            // The decision has changed meanwhile, or another worker has begun it.
                            tokio::time::sleep(LOOK).await;
                        }
                        // A request that has done its part waits for an elector, which ends it.
                        Err(AdminError::NotNow(
                            Hindrance::OpenRequest(_)
                            | Hindrance::Rules { why: NotNow::UnderWay { .. } | NotNow::Open { .. }, .. },
                        )) if BootTime::now() < by => tokio::time::sleep(LOOK).await,
                        Err(AdminError::NotNow(why)) => {
                            let failed = StepOutcome::Failed(crate::advice::on(&why));
                            return self.settle(at, step.request.as_ref(), failed).await;
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
    }

    /// Writes the record and the request together. Returns whether they were written.
    async fn file(&self, at: usize, seen: &Evacuation, filing: [MultiOp; 2]) -> Result<bool, Error> {
        let _writing = self.writing.lock().await;
        let mut attempts = Attempts::over(self.session);
        let observer = attempts.look().await?;
        let known: Known<Evacuation> = observer.known(self.paths.evacuation()).await?;
        let Some(mut plan) = known.record().map_err(AdminError::from)? else { return Ok(false) };
        let is_same = plan.at_ms == seen.at_ms && plan.undo == seen.undo && plan.due().contains(&at);
        if !is_same || plan.request_of(at) != seen.request_of(at) {
            return Ok(false);
        }
        plan.begin(at, unix_ms());
        observer.session().create_parents(filing[1].path()).await?;
        let record = known.replace(&plan).map_err(AdminError::from)?;
        Ok(attempts.write([record].into_iter().chain(filing)).await?)
    }

    /// Writes the outcome of a step, unless another one has been written since its request was the last one.
    async fn settle(&self, at: usize, request: Option<&String>, outcome: StepOutcome) -> Result<(), Error> {
        let _writing = self.writing.lock().await;
        let mut attempts = Attempts::over(self.session);
        loop {
            let observer = attempts.look().await?;
            let known: Known<Evacuation> = observer.known(self.paths.evacuation()).await?;
            let Some(mut plan) = known.record().map_err(AdminError::from)? else { return Ok(()) };
            let is_open = |step: &&EvacuationStep| step.request_is_open() || plan.due().contains(&at);
            let Some(step) = plan.steps.get(at).filter(is_open) else { return Ok(()) };
            if step.request.as_ref() != request {
                return Ok(());
            }
            plan.settle(at, outcome.clone(), unix_ms());
            let is_away = plan.steps.get(at).is_some_and(|step| step.is_away());
            let orders = self.drained(&observer, &mut plan, at, is_away).await?;
            let record = known.replace(&plan).map_err(AdminError::from)?;
            if attempts.write([record].into_iter().chain(orders)).await? {
                if let Some(step) = plan.steps.get(at) {
                    tracing::info!(job = step.job, site = %plan.site, outcome = step.progress(), "a step of the evacuation");
                }
                return Ok(());
            }
        }
    }

    /// Drains the site for the job of a step, or opens it, while this request is its last one.
    async fn drain(&self, at: usize, request: Option<&String>, close: bool) -> Result<(), Error> {
        let _writing = self.writing.lock().await;
        let mut attempts = Attempts::over(self.session);
        loop {
            let observer = attempts.look().await?;
            let known: Known<Evacuation> = observer.known(self.paths.evacuation()).await?;
            let Some(mut plan) = known.record().map_err(AdminError::from)? else { return Ok(()) };
            if plan.steps.get(at).is_none_or(|step| step.request.as_ref() != request || plan.undo == close) {
                return Ok(());
            }
            let before = plan.clone();
            let orders = self.drained(&observer, &mut plan, at, close).await?;
            if plan == before {
                return Ok(());
            }
            let record = known.replace(&plan).map_err(AdminError::from)?;
            if attempts.write([record].into_iter().chain(orders)).await? {
                return Ok(());
            }
        }
    }

    /// What drains the site for the job of a step, or opens it if this evacuation has drained it.
    async fn drained(
        &self,
        observer: &election_admin::Observer,
        plan: &mut Evacuation,
        at: usize,
        close: bool,
    ) -> Result<Option<MultiOp>, Error> {
        let (site, by, undo) = (plan.site.clone(), plan.by.clone(), plan.undo);
        let Some(step) = plan.steps.get_mut(at) else { return Ok(None) };
        if close == step.drained || (!close && !undo) {
            return Ok(None);
        }
        let paths = self.operator.paths(&step.job)?;
        let known: Known<Control> = observer.known(paths.control()).await?;
        let alter = |control: &mut Control| match close {
            true if control.drained.contains(&site) => {}
            true => control.drained.push(site.clone()),
            false => control.drained.retain(|drained| *drained != site),
        };
        let reason = format!("evacuation of site {site}");
        let altered = orders::altered(&known, &by, Some(&reason), alter)?;
        step.drained = close && altered.is_some();
        Ok(altered.map(|altered| altered.write))
    }

    /// Follows the request of a step to its end. Returns why it has not succeeded, if it has not.
    async fn follow(
        &self,
        (plan, at): (&Evacuation, usize),
        step: &EvacuationStep,
        paths: &Paths,
    ) -> Result<String, Error> {
        let name = step.request.as_deref().unwrap_or_default();
        let filed = match election_admin::request(self.session, paths, name).await {
            Ok(filed) => filed,
            Err(AdminError::Refused(Refusal::NoRequest(_))) => {
                return Ok(format!("request {name} is gone, with its outcome"));
            }
            Err(error) => return Err(error.into()),
        };
        let longest = longest_move(&self.operator, &step.job);
        let until = BootTime::now() + filed.request.valid_for() + longest;
        match filed.request.kind {
            RequestKind::Failover => self.decide_without_elector(plan, &filed, paths, until).await?,
            _ => drop(moves::until_begun(&self.operator, paths, &filed, until).await?),
        }
        if !step.back {
            // From now on no later change of leadership returns.
            self.drain(at, step.request.as_ref(), true).await?;
        }
        let last = tokio::select! {
            last = election_admin::follow(self.session, paths, &filed.which, until, |_| {}) => last,
            // No elector may be left that writes the outcome.
            led = self.until_led(plan, step, paths), if plan.is_forced() => {
                return led.map(|()| "its new leader was lost".to_owned());
            }
        };
        let last = match last {
            Ok(last) => last.map_or(filed.request.state, |last| last.state),
            Err(AdminError::Refused(_)) => return Ok(format!("request {name} is gone, with its outcome")),
            Err(error) => return Err(error.into()),
        };
        if last.is_unbegun() {
            let why = format!("by {} (no elector has begun it)", plan.by);
            election_admin::cancel(self.session, paths, &filed.which, &why).await?;
        }
        Ok(last.failure().unwrap_or_else(|| filed.request.kind.progress(&last)))
    }

    /// Until the job leads where it should.
    async fn until_led(&self, plan: &Evacuation, step: &EvacuationStep, paths: &Paths) -> Result<(), Error> {
        loop {
            let (snapshot, state) = gather_election(&self.operator, paths).await?;
            if let Some(StepOutcome::Leads(_)) = arrived(plan, step, &state, &snapshot.members, "") {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A failover must not depend on an elector: if none begins it, this worker decides. An elector of the lost site is not
    /// waited for.
    async fn decide_without_elector(
        &self,
        plan: &Evacuation,
        filed: &FiledRequest,
        paths: &Paths,
        until: BootTime,
    ) -> Result<(), Error> {
        let snapshot = self.operator.observer().await?.snapshot(paths).await?;
        let elector = snapshot.members.iter().find(|member| Some(&member.member) == snapshot.elector());
        let is_lost = elector.is_some_and(|elector| elector.site == plan.site);
        let by = BootTime::now() + if is_lost { Duration::ZERO } else { moves::PATIENCE };
        let begun = moves::until_begun(&self.operator, paths, filed, by).await?;
        if begun.is_none_or(|request| request.state != RequestState::Pending) {
            return Ok(());
        }
        match moves::decide(&self.operator, paths.name(), paths, filed, until, || {}).await? {
            Decision::Made | Decision::StillLed(_) => Ok(()),
            Decision::Refused(why) | Decision::NotNow(why) => {
                let reason = format!("by {} ({why})", filed.request.by);
                election_admin::cancel(self.session, paths, &filed.which, &reason).await?;
                Ok(())
            }
        }
    }
}

/// The request of a step.
fn request(plan: &Evacuation, to: Target) -> AdminRequest {
    let kind = if plan.is_forced() { RequestKind::Failover } else { RequestKind::Switchover };
    let reason = plan.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
    let verb = if plan.undo { "undo of the evacuation" } else { "evacuation" };
    let reason = Some(format!("{verb} of site {}{reason}", plan.site));
    let mut request =
        election_admin::new_request(kind, Outgoing::Only, to, plan.is_forced(), reason, plan.by.clone());
    request.now = plan.now && plan.is_forced();
    request
}
