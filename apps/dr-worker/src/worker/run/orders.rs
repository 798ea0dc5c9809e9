//! What operators ask of the leader of a job: to restart, to stop or to start it. Leadership stays.
//!
//! A request is begun by a compare-and-set in which only one leader, in one term, can succeed, and only what this process
//! has begun itself is carried out. So no request is carried out twice, whatever happens to replies and leaders. That the
//! job is stopped is a standing order, written in the same transaction. Each leader reads it before it starts the job.

use std::{
    collections::BTreeMap,
    future::{Future, pending},
    pin::{Pin, pin},
    time::Duration,
};

use election_admin::{JobNews, JobRequests, Leading};
use election_core::{
    Leadership,
    config::MemberId,
    handler::Failure,
    internals::record::{
        AdminRequest, Control, FiledRequest, RequestKind, RequestRef, RequestState, StoppedJob,
    },
};
use futures_util::future::OptionFuture;
use tokio::sync::watch;

use super::{
    after::Source,
    work::{JobWork, RESTARTED},
};
use crate::{
    typed::Typed,
    wall::unix_ms,
    worker::{job::JobError, state::Halt},
    znodes::HaltedProgram,
};

/// What starts the job again.
fn start(job: &str) -> Typed {
    Typed::verb("start").job(job)
}

/// The delay before a request is begun or answered again after an error.
const RETRY: Duration = Duration::from_secs(1);

/// The orders and requests about the job of one leadership.
pub(super) struct Orders {
    source: JobRequests,
    me: MemberId,
    /// Requests that may not have ended.
    open: Vec<FollowedRequest>,
    /// The outcomes of requests that this leadership has carried out.
    outcomes: BTreeMap<RequestRef, RequestState>,
    /// Whether something could not be written, and has to be tried again.
    is_owed: bool,
}

struct FollowedRequest {
    filed: FiledRequest,
    /// Whether this leader has nothing to do with it any more.
    is_over: bool,
}

impl Orders {
    pub(super) fn follow(source: &Source) -> Self {
        Self {
            source: JobRequests::follow(&source.session, source.paths.clone()),
            me: source.me.clone(),
            open: Vec::new(),
            outcomes: BTreeMap::new(),
            is_owed: false,
        }
    }

    /// Starts the job, unless it is stopped by a standing order. A request to stop it is carried out as well: a job that
    /// never becomes ready can be stopped.
    pub(super) async fn take_over(&mut self, work: &JobWork, leadership: &Leadership) -> Result<(), Failure> {
        if let Some(order) = &work.order {
            order.enters(leadership.term());
        }
        let news = self.source.next().await?;
        let stopped = if let JobNews::Orders(orders) = &news { orders.stopped.clone() } else { None };
        let halt = match stopped {
            Some(order) => Halt::Stopped(order),
            None => {
                self.note(work, news);
                match work.may_not_start(leadership).await {
                    Some(why) => Halt::Waiting(why),
                    None => {
                        let Some(halt) = self.start(work, leadership).await? else { return Ok(()) };
                        halt
                    }
                }
            }
        };
        lead_without(work, leadership, halt).await;
        Ok(())
    }

    /// Starts the job and waits until it is ready. Returns why it is to be stopped, if an order or a job that it comes after
    /// says so before: it may need long to get ready.
    async fn start(&mut self, work: &JobWork, leadership: &Leadership) -> Result<Option<Halt>, Failure> {
        let must_stop = OptionFuture::from(work.order.as_ref().map(|order| order.until_must_stop()));
        let started = tokio::select! {
            biased;
            started = work.start(leadership) => started.map(|()| None),
            order = self.until_stopped(work, leadership) => Ok(Some(Halt::Stopped(order?))),
            Some(why) = must_stop => Ok(Some(Halt::Waiting(why))),
        };
        // What has been read meanwhile is looked at afterwards.
        self.is_owed = true;
        started
    }

    /// Waits for an order to stop the job.
    async fn until_stopped(
        &mut self,
        work: &JobWork,
        leadership: &Leadership,
    ) -> Result<StoppedJob, Failure> {
        loop {
            self.is_owed = false;
            for at in 0..self.open.len() {
                let AdminRequest { kind, state, .. } = &self.open[at].filed.request;
                if (*kind, state) == (RequestKind::Stop, &RequestState::Pending)
                    && let Some(Control { stopped: Some(order), .. }) = self.begin(at, work, leadership).await
                {
                    return Ok(order);
                }
            }
            match self.news().await? {
                Some(JobNews::Orders(orders)) => {
                    if let Some(order) = orders.stopped {
                        return Ok(order);
                    }
                }
                Some(news) => self.note(work, news),
                None => {}
            }
        }
    }

    /// Leads until the job has failed.
    pub(super) async fn lead(&mut self, work: &JobWork, leadership: &Leadership) -> Result<(), Failure> {
        let after_ready = Box::pin(work.after_ready(leadership));
        let mut led = Led { orders: self, work, leadership, after_ready };
        let mut others = work.order.as_ref().map(|order| order.others.changes());
        let mut late = pin!(work.slot.is_late());
        loop {
            others.iter_mut().for_each(watch::Receiver::mark_unchanged);
            led.keep_order().await?;
            let run = work.slot.running();
            if run.is_none() && work.slot.stopped().is_none() && work.slot.waits().is_none() {
                return Err(Failure::new("the job is not running"));
            }
            let finished = OptionFuture::from(run.as_ref().map(|run| run.finished()));
            let changed = OptionFuture::from(others.as_mut().map(|others| others.changed()));
            tokio::select! {
                Some(end) = finished => return Err(JobError::from(end).into()),
                () = &mut late => return Err(work.not_ready()),
                Some(Ok(())) = changed => {}
                never = work.keep_recorded(leadership) => match never {},
                () = &mut led.after_ready => led.after_ready = Box::pin(pending()),
                news = led.orders.news() => match news? {
                    Some(JobNews::Orders(orders)) => led.obey(orders.stopped).await?,
                    Some(news) => led.orders.note(work, news),
                    None => {}
                },
            }
            led.orders.is_owed = false;
            let mut at = 0;
            // A start listens to what is new.
            while at < led.orders.open.len() {
                led.look_at(at).await?;
                at += 1;
            }
            led.orders.open.retain(|open| !open.is_over);
        }
    }

    /// What is new; `None` when it is time to try again what could not be written.
    async fn news(&mut self) -> Result<Option<JobNews>, Failure> {
        tokio::select! {
            news = self.source.next() => Ok(Some(news?)),
            () = tokio::time::sleep(RETRY), if self.is_owed => Ok(None),
        }
    }

    fn note(&mut self, work: &JobWork, news: JobNews) {
        match news {
            JobNews::Requests(open) => {
                self.open = open.into_iter().map(|filed| FollowedRequest { filed, is_over: false }).collect();
            }
            JobNews::Unreadable(error) => {
                tracing::warn!(
                    job = work.slot.name(),
                    "the orders of operators can't be read, so the job runs on: {error}"
                );
            }
            JobNews::Orders(_) => {}
        }
    }

    /// Begins a pending request. Returns the standing orders then; `None` if it can't be begun, now or at all.
    async fn begin(&mut self, at: usize, work: &JobWork, leadership: &Leadership) -> Option<Control> {
        let (slot, term) = (leadership.slot(), leadership.term());
        let FollowedRequest { filed, is_over } = &mut self.open[at];
        let job = work.slot.name();
        match self.source.begin(filed, Leading { member: &self.me, slot, term }).await {
            Ok(Some(control)) => {
                let (kind, by, request) = (filed.request.kind.as_str(), &filed.request.by, &filed.which.name);
                tracing::info!(
                    job,
                    request,
                    by,
                    reason = filed.request.reason,
                    "carrying out a {kind} of the job"
                );
                filed.request.state = RequestState::Accepted { term };
                Some(control)
            }
            // It was withdrawn or has expired, or the leader of another slot has begun it.
            Ok(None) => {
                *is_over = true;
                None
            }
            Err(error) => {
                tracing::warn!(job, request = filed.which.name, "can't begin a request yet: {error}");
                self.is_owed = true;
                None
            }
        }
    }

    /// Answers for a member that has begun a request about its standby, and is gone. What becomes of either is not reported here.
    async fn look_at_standby(&mut self, at: usize, which: &RequestRef, member: &MemberId, work: &JobWork) {
        match self.source.of_standby(which, member).await {
            Ok(Some((RequestState::Pending, _))) if work.slot.standby().is_none() => {
                let outcome = failed(format!("job {} has no standby", work.slot.name()));
                self.answer(which, outcome, work).await;
            }
            Ok(Some((RequestState::Accepted { .. }, true))) => {
                let outcome = failed(format!("it was interrupted: {member} is gone, or has come back since"));
                self.answer(which, outcome, work).await;
            }
            Ok(Some((state, _))) if !state.is_final() => self.is_owed = true,
            Ok(_) => self.open[at].is_over = true,
            Err(error) => {
                let (job, request) = (work.slot.name(), &which.name);
                tracing::debug!(job, request, %error, "can't read the outcome of a request yet");
                self.is_owed = true;
            }
        }
    }

    async fn answer(&mut self, which: &RequestRef, outcome: RequestState, work: &JobWork) {
        match self.source.answer(which, &outcome).await {
            Ok(()) => {
                let answered = self.open.iter_mut().filter(|open| open.filed.which == *which);
                answered.for_each(|open| open.is_over = true);
            }
            Err(error) => {
                let (job, request) = (work.slot.name(), &which.name);
                tracing::warn!(job, request, "can't record the outcome of a request yet: {error}");
                self.is_owed = true;
            }
        }
    }
}

/// A leadership, and what runs beside its job.
struct Led<'a> {
    orders: &'a mut Orders,
    work: &'a JobWork,
    leadership: &'a Leadership,
    /// The hook that runs when the job is ready; pending forever after its end.
    after_ready: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
}

impl Led<'_> {
    /// Makes the job run or not, as ordered.
    async fn obey(&mut self, stopped: Option<StoppedJob>) -> Result<(), Failure> {
        let slot = &self.work.slot;
        match (stopped, slot.stopped()) {
            (Some(order), None) => {
                tracing::warn!(job = slot.name(), "the job is {order}; `{}` starts it", start(slot.name()));
                self.after_ready = Box::pin(pending());
                self.work.halt(self.leadership, Halt::Stopped(order)).await;
                Ok(())
            }
            (None, Some(_)) => self.resume().await,
            (stopped, known) => {
                if stopped != known {
                    slot.set_halt(stopped.map(Halt::Stopped));
                }
                Ok(())
            }
        }
    }

    /// Carries out or answers an open request, if that is this leader's part.
    async fn look_at(&mut self, at: usize) -> Result<(), Failure> {
        let FiledRequest { which, request } = self.orders.open[at].filed.clone();
        if let Some(member) = request.standby_of() {
            self.orders.look_at_standby(at, &which, member, self.work).await;
            return Ok(());
        }
        let is_stopped = self.work.slot.stopped().is_some();
        match request.state {
            RequestState::Accepted { term } => {
                let (now, may_be_own) = (self.leadership.term(), self.orders.source.has_tried(&which));
                let outcome = match request.kind {
                    _ if self.orders.outcomes.contains_key(&which) => self.orders.outcomes[&which].clone(),
                    // Each leader obeys the standing order, also if another one has begun the request.
                    RequestKind::Stop if is_stopped => self.done(),
                    RequestKind::Start if !is_stopped => self.done(),
                    // The reply to its beginning was lost.
                    RequestKind::Restart if term == now && may_be_own => return self.carry_out(at).await,
                    RequestKind::Restart if self.is_meant(&request) && term <= now => self.interrupted(term),
                    _ => match self.orders.source.is_abandoned(&request, term).await {
                        Ok(true) => self.interrupted(term),
                        // Its leader may be lost later, which nothing reports here.
                        Ok(false) => {
                            self.orders.is_owed = true;
                            return Ok(());
                        }
                        Err(error) => {
                            let (job, request) = (self.work.slot.name(), &which.name);
                            tracing::debug!(job, request, %error, "can't read yet who carries out a request");
                            self.orders.is_owed = true;
                            return Ok(());
                        }
                    },
                };
                self.orders.answer(&which, outcome, self.work).await;
                return Ok(());
            }
            RequestState::Pending if self.is_meant(&request) => {}
            _ => return Ok(()),
        }
        if request.kind == RequestKind::Restart && is_stopped {
            let reason = format!("the job is stopped; `{}` starts it", start(self.work.slot.name()));
            self.orders.answer(&which, failed(reason), self.work).await;
            return Ok(());
        }
        self.carry_out(at).await
    }

    /// Begins a request, carries it out and answers it, unless it can't be begun.
    async fn carry_out(&mut self, at: usize) -> Result<(), Failure> {
        let FiledRequest { which, request } = self.orders.open[at].filed.clone();
        let Some(control) = self.orders.begin(at, self.work, self.leadership).await else {
            return Ok(());
        };
        let carried_out = if request.kind == RequestKind::Restart {
            if let Err(why) = self.work.before_stop(self.leadership, RESTARTED).await {
                let outcome = failed(format!("called off: {why}"));
                self.orders.outcomes.insert(which.clone(), outcome.clone());
                self.orders.answer(&which, outcome, self.work).await;
                return Ok(());
            }
            self.after_ready = Box::pin(pending());
            self.work.halt(self.leadership, Halt::Starting).await;
            self.resume().await
        } else {
            self.obey(control.stopped).await
        };
        let outcome = match (&carried_out, self.work.slot.stopped()) {
            (Ok(()), Some(order)) if request.kind != RequestKind::Stop => {
                failed(format!("the job is {order}"))
            }
            (Ok(()), _) => self.done(),
            (Err(why), _) => failed(why.to_string()),
        };
        self.orders.outcomes.insert(which.clone(), outcome.clone());
        self.orders.answer(&which, outcome, self.work).await;
        carried_out
    }

    fn is_meant(&self, request: &AdminRequest) -> bool {
        request.is_for(&self.orders.me, self.leadership.slot())
    }

    fn done(&self) -> RequestState {
        let (term, leader) = (self.leadership.term(), self.orders.me.clone());
        RequestState::Done { term, leader, at_ms: unix_ms() }
    }

    fn interrupted(&self, term: u64) -> RequestState {
        let (now, me) = (self.leadership.term(), &self.orders.me);
        failed(format!("it was interrupted in term {term} before it had ended; {me} leads in term {now}"))
    }

    /// Stops, starts or restarts the job as the jobs require that it comes after.
    async fn keep_order(&mut self) -> Result<(), Failure> {
        let (slot, Some(order)) = (&self.work.slot, &self.work.order) else { return Ok(()) };
        if slot.waits().is_some() {
            return if order.waits().is_none() { self.resume().await } else { Ok(()) };
        }
        if slot.is_halted() {
            return Ok(());
        }
        if let Some(why) = order.must_stop() {
            tracing::info!(job = slot.name(), "stopping the job, but keeping leadership: {why}");
            self.after_ready = Box::pin(pending());
            self.work.halt(self.leadership, Halt::Waiting(why)).await;
            return Ok(());
        }
        if let Some(moved) = order.moved(slot).filter(|_| slot.spec().restart_with) {
            tracing::info!(
                job = slot.name(),
                "{moved} has another leader: restarting the job (restart_with)"
            );
            self.after_ready = Box::pin(pending());
            self.work.halt(self.leadership, Halt::Starting).await;
            return self.resume().await;
        }
        Ok(())
    }

    /// Starts the job and waits until it is ready, unless it has to wait for another job.
    async fn resume(&mut self) -> Result<(), Failure> {
        let slot = &self.work.slot;
        let halt = match self.work.may_not_start(self.leadership).await {
            Some(why) => Some(Halt::Waiting(why)),
            None => {
                let within = slot.takeover_timeout();
                slot.set_halt(Some(Halt::Starting));
                let started = self.orders.start(self.work, self.leadership);
                let Ok(started) = tokio::time::timeout(within, started).await else {
                    return Err(self.work.not_ready());
                };
                let halt = started?;
                if halt.is_some() {
                    // Those after it may run still, from a leadership before.
                    self.work.let_others_stop(self.leadership).await;
                }
                halt
            }
        };
        if let Some(halt) = halt {
            lead_without(self.work, self.leadership, halt).await;
            // What it waits for may have changed before it was halted.
            self.orders.is_owed = true;
            return Ok(());
        }
        slot.set_halt(None);
        self.work.record(self.leadership, HaltedProgram::Runs).await;
        self.after_ready = Box::pin(self.work.after_ready(self.leadership));
        Ok(())
    }
}

/// The outcome of a request that has failed now.
pub(super) fn failed(reason: String) -> RequestState {
    RequestState::Failed { reason, at_ms: unix_ms() }
}

/// Stops the job, if it runs or is being started, and leads without it.
async fn lead_without(work: &JobWork, leadership: &Leadership, halt: Halt) {
    let job = work.slot.name();
    match &halt {
        Halt::Stopped(order) => tracing::warn!(
            job,
            "this member leads and does not start the job, which is {order}; `{}` starts it",
            start(job)
        ),
        Halt::Waiting(why) => tracing::info!(job, "this member leads, and starts the job later: {why}"),
        Halt::Starting => {}
    }
    work.halt(leadership, halt).await;
}
