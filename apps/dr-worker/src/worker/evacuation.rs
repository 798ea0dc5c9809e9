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

use election_admin::{AdminError, Attempts, Hindrance, Known, NotNow, Observer, Refusal, orders};
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
        drill::{checks::State, gather::gather_election},
        evacuation::{
            course::{EvacuationPhase, StepOutcome},
            store,
            survey::{NextMove, arrived, is_to_decide, late, next},
        },
        moves::{self, Decision, longest_of},
    },
    error::Error,
    wall::unix_ms,
    znodes::{Evacuation, EvacuationStep, Halted, PLANS, WorkerPaths as _},
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

/// A change of the record about one step, unless it is about an earlier request.
enum StepChange<'a> {
    /// It is begun by this request.
    Begin { seen: &'a Evacuation, term: Option<u64>, filing: &'a [MultiOp; 2] },
    /// This came of it, as it was then.
    Settle { seen: &'a Evacuation, outcome: &'a StepOutcome },
    /// The site is drained for the job, or opened.
    Drain { request: Option<&'a String>, close: bool },
}

/// A worker that carries out an evacuation.
struct Carrier<'a> {
    worker: &'a Worker,
    operator: Operator,
    session: &'a Session,
    /// Those of plans.
    paths: &'a Paths,
    /// The record as this worker has written it, with its version. One change of it at a time: they would only lose races against
    /// each other.
    last: Mutex<Option<(i32, Evacuation)>>,
}

impl<'a> Carrier<'a> {
    fn new(worker: &'a Worker, session: &'a Session, paths: &'a Paths) -> Result<Self, Error> {
        let operator = Operator { config: worker.config().what_if(&[])?, session: session.clone() };
        Ok(Self { worker, operator, session, paths, last: Mutex::default() })
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
            tracing::info!(
                from_site = %plan.site,
                by = plan.by,
                undo = plan.undo,
                "this worker carries out an evacuation"
            );
            let result = self.carry_out().await;
            // It goes with the session otherwise.
            let _ = incarnation.delete(&path, None).await;
            return result;
        }
    }

    /// Drives each step that is due or under way, side by side. When it becomes a forced one, what is done about steps that were
    /// under way is dropped.
    async fn carry_out(&self) -> Result<(), Error> {
        while let Some(plan) = self.running().await? {
            self.carry_out_as((plan.is_forced(), plan.now)).await?;
        }
        Ok(())
    }

    /// Until it is not under way any more, or has become a forced one, or one that waits for no stop: `as_it_is` has both.
    async fn carry_out_as(&self, as_it_is: (bool, bool)) -> Result<(), Error> {
        let mut watch = self.session.watch_data(self.paths.evacuation());
        let (mut driven, mut steps) = (Vec::new(), FuturesUnordered::new());
        loop {
            let plan = self.running().await?;
            let Some(plan) = plan.filter(|plan| (plan.is_forced(), plan.now) <= as_it_is) else {
                return Ok(());
            };
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

    /// Sees a step through. An error that does not pass by itself is the failure of this step alone.
    async fn drive(&self, at: usize) -> Result<(), Error> {
        let Err(error) = self.step(at).await else { return Ok(()) };
        if error.exit_code().may_pass() {
            return Err(error);
        }
        let Some(plan) = self.running().await? else { return Ok(()) };
        self.settle(at, &plan, &StepOutcome::Failed(error.to_string())).await
    }

    /// Begins a step if it is due, and writes its outcome.
    async fn step(&self, at: usize) -> Result<(), Error> {
        self.begin(at).await?;
        let Some(plan) = self.running().await? else { return Ok(()) };
        let Some(step) = plan.steps.get(at).filter(|step| step.request_is_open()) else { return Ok(()) };
        let paths = self.operator.paths(&step.job)?;
        let why_not = self.follow((&plan, at), step, &paths).await?;
        let longest = longest_of(&self.operator, step);
        let until = BootTime::now() + longest;
        loop {
            let (state, outcome) = self.outcome(&plan, step, &paths, &why_not).await?;
            let is_late = BootTime::now() >= until;
            if let Some(outcome) =
                outcome.or_else(|| is_late.then(|| late(&plan, step, &state, longest, &why_not)))
            {
                return self.settle(at, &plan, &outcome).await;
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
            // What it must lead beside may have moved a moment ago.
            let operator = self.operator.seeing(&step.job).await?;
            let (snapshot, state) = gather_election(&operator, &paths).await?;
            let by = *until.get_or_insert_with(|| BootTime::now() + longest_of(&self.operator, step));
            // Whoever carries it out may not know the job.
            let is_known = moves::lacks_policy(&operator.config, &step.job, &snapshot).is_none();
            match next(&plan, step, &state, is_known) {
                NextMove::Wait(why) if BootTime::now() >= by => {
                    return self.settle(at, &plan, &StepOutcome::Failed(why)).await;
                }
                NextMove::Wait(_) => tokio::time::sleep(LOOK).await,
                NextMove::Settle(outcome) => return self.settle(at, &plan, &outcome).await,
                // Before the request: an elector must not see the request first.
                NextMove::Move(_) if plan.undo && step.drained => self
                    .write(at, StepChange::Drain { request: step.request.as_ref(), close: false })
                    .await
                    .map(drop)?,
                NextMove::Move(site) => {
                    let request = request(&plan, Target::Site(site));
                    let name = plan.request_of(at);
                    let term = snapshot.decided().map(|elected| elected.term);
                    match election_admin::filing(&paths, &snapshot, &name, &request) {
                        Ok(filing) => {
                            let incarnation = self.operator.incarnation().await?;
                            incarnation.create_parents(filing[1].path()).await?;
                            let begun = StepChange::Begin { seen: &plan, term, filing: &filing };
                            if self.write(at, begun).await?.is_some() {
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
                            return self.settle(at, &plan, &failed).await;
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
    }

    /// Changes the record, in one transaction with what belongs to that. Returns the step as it was written; `None` if there is
    /// nothing to write. The record is read only if another one has changed it, or if nothing seems to be left to write.
    async fn write(&self, at: usize, change: StepChange<'_>) -> Result<Option<EvacuationStep>, Error> {
        let path = self.paths.evacuation();
        let mut last = self.last.lock().await;
        let incarnation = self.operator.incarnation().await?;
        let mut attempts = match *last {
            Some(_) => Attempts::within(&incarnation),
            None => Attempts::over(self.session),
        };
        for tries in 1.. {
            let observer = attempts.look().await?;
            let is_read = last.is_none();
            let (version, mut plan) = match last.take() {
                Some(last) => last,
                None => {
                    let known: Known<Evacuation> = observer.known(path.as_str()).await?;
                    let (record, node) = (known.record().map_err(AdminError::from)?, known.node());
                    let Some((node, plan)) = node.zip(record) else { break };
                    (node.version, plan)
                }
            };
            // After two, it is not the record that has changed, but what the request rests on.
            let is_hopeless = tries > 2 && matches!(change, StepChange::Begin { .. });
            match self.change(&observer, &mut plan, at, &change).await? {
                Some(others) if !is_hopeless => {
                    let data = plan.encode(&path).map_err(AdminError::from)?;
                    if attempts.write([MultiOp::set(&path, data, version)].into_iter().chain(others)).await? {
                        let step = plan.steps.get(at).cloned();
                        *last = Some((version + 1, plan));
                        return Ok(step);
                    }
                }
                _ if is_read => break,
                _ => {}
            }
        }
        Ok(None)
    }

    /// Makes a change of the record that was read. Returns what is written with it; `None` if it is not to be made.
    async fn change(
        &self,
        observer: &Observer,
        plan: &mut Evacuation,
        at: usize,
        change: &StepChange<'_>,
    ) -> Result<Option<Vec<MultiOp>>, Error> {
        let is_due = plan.due().contains(&at);
        let Some(step) = plan.steps.get(at) else { return Ok(None) };
        let was_drained = step.drained;
        let close = match change {
            StepChange::Begin { seen, term, filing } => {
                if !is_due || plan.undo != seen.undo || plan.request_of(at) != seen.request_of(at) {
                    return Ok(None);
                }
                plan.begin(at, *term, unix_ms());
                return Ok(Some(filing.to_vec()));
            }
            StepChange::Settle { seen, outcome } => {
                let is_same = seen.request_of(at) == plan.request_of(at)
                    && seen.steps.get(at).is_some_and(|seen| seen.state == step.state);
                let is_open = step.request_is_open() || (is_due && plan.undo == seen.undo);
                if !is_same || !is_open {
                    return Ok(None);
                }
                plan.settle(at, (*outcome).clone(), unix_ms());
                // The standing orders may be what can't be read.
                if matches!(outcome, StepOutcome::Failed(_)) {
                    return Ok(Some(Vec::new()));
                }
                // The site was drained after the move began. One that was drained before may be open.
                let step = plan.steps.get(at);
                step.is_some_and(|step| step.is_away() && !(step.drained && step.tries > 0))
            }
            StepChange::Drain { request, close } => {
                if step.request.as_ref() != *request || plan.undo == *close {
                    return Ok(None);
                }
                *close
            }
        };
        let orders = self.drained(observer, plan, at, close).await?;
        let is_changed = matches!(change, StepChange::Settle { .. })
            || !matches!(orders, None | Some(MultiOp::Check { .. }))
            || plan.steps.get(at).is_some_and(|step| step.drained != was_drained);
        Ok(is_changed.then(|| orders.into_iter().collect()))
    }

    /// Writes the outcome of a step, unless it is not as it was seen any more.
    async fn settle(&self, at: usize, seen: &Evacuation, outcome: &StepOutcome) -> Result<(), Error> {
        if let Some(step) = self.write(at, StepChange::Settle { seen, outcome }).await? {
            tracing::info!(job = step.job, outcome = step.progress(), "a step of the evacuation");
        }
        Ok(())
    }

    /// What drains the site for the job of a step, or opens it if this evacuation has drained it.
    async fn drained(
        &self,
        observer: &Observer,
        plan: &mut Evacuation,
        at: usize,
        close: bool,
    ) -> Result<Option<MultiOp>, Error> {
        let (site, by, undo) = (plan.site.clone(), plan.by.clone(), plan.undo);
        let Some(step) = plan.steps.get_mut(at) else { return Ok(None) };
        if !(close || undo && step.drained) {
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
        step.drained = close && (step.drained || altered.is_some());
        // It may be drained already. The server that was read may be behind.
        let seen = known.node().map(|node| MultiOp::check(paths.control(), node.version));
        Ok(altered.map(|altered| altered.write).or(seen))
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
        let longest = longest_of(&self.operator, step);
        let until = BootTime::now() + filed.request.valid_for() + longest;
        match filed.request.kind {
            RequestKind::Failover => self.decide_without_elector(plan, &filed, paths, until).await?,
            _ => drop(moves::until_begun(&self.operator, paths, &filed, until).await?),
        }
        if !step.back {
            // From now on no later change of leadership returns.
            self.write(at, StepChange::Drain { request: step.request.as_ref(), close: true }).await?;
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
        Ok(match last {
            RequestState::Done { leader, .. } => format!("{leader} led, and does not lead any more"),
            last => last.failure().unwrap_or_else(|| filed.request.kind.progress(&last)),
        })
    }

    /// How the job is, and the outcome of its step.
    async fn outcome(
        &self,
        plan: &Evacuation,
        step: &EvacuationStep,
        paths: &Paths,
        why_not: &str,
    ) -> Result<(State, Option<StepOutcome>), Error> {
        let (snapshot, state) = gather_election(&self.operator, paths).await?;
        // Read after the leader: that has written it before it was READY. One that can't be read is none, as for other jobs.
        let program: Known<Halted> = self.operator.observer().await?.known(paths.halted()).await?;
        let program = program.record().ok().flatten();
        let outcome = arrived(plan, step, &state, &snapshot.members, program.as_ref(), why_not);
        Ok((state, outcome))
    }

    /// Until the job leads where it should.
    async fn until_led(&self, plan: &Evacuation, step: &EvacuationStep, paths: &Paths) -> Result<(), Error> {
        loop {
            if let (_, Some(StepOutcome::Leads(_))) = self.outcome(plan, step, paths, "").await? {
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
        let Some(request) = moves::until_begun(&self.operator, paths, filed, by).await? else {
            return Ok(());
        };
        let snapshot = self.operator.observer().await?.snapshot(paths).await?;
        if !is_to_decide(&request.state, &filed.which, snapshot.decided()) {
            return Ok(());
        }
        let operator = self.operator.seeing(paths.name()).await?;
        if moves::lacks_policy(&operator.config, paths.name(), &snapshot).is_some() {
            // The next elector carries it out.
            return Ok(());
        }
        match moves::decide(&operator, paths.name(), paths, filed, until, || {}).await? {
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
