//! The task that owns an engine.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::sync::{oneshot, watch};
use zk_session::{
    BootTime, Incarnation, Lease, LeaseKeeper, OpError, Session, SessionPin, SessionState, Wakeup,
};

use super::{
    ended::{Ended, StopBudgetTooLong},
    events::{End, Events, HandedOver, Inbox, Message},
    handler::{ElectionEvent, Handler},
    layout::Layout,
    living::Living,
    now, operations,
    status::ElectionStatus,
    to_boot, to_time,
    turn::Turn,
    watches::{Pace, Watches},
    work::Work,
};
use crate::engine::{
    Action, AppEvent, EndReason, Engine, Event, Grant, Level, Note, NoteKind, OpId, Outcome, ZkOp,
};

/// How long a leaving member waits for ZooKeeper after its work has ended.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long the engine waits at most for another process that continues.
const HELD_FOR: Duration = Duration::from_secs(1);

/// How long a takeover comes before other reads. An application that starts slowly is watched from then on.
const UNDISTURBED: Duration = Duration::from_millis(50);

/// How many events are handled before the status is published again, and before other tasks have their turn.
const BATCH: usize = 64;

pub(super) struct Runner<H> {
    engine: Engine,
    living: Living,
    session: Session,
    states: watch::Receiver<SessionState>,
    /// At each change of the state or the lease, and in time for the engine.
    wakeup: Wakeup,
    inbox: Inbox,
    watches: Watches,
    work: Work<H>,
    turn: Turn,
    /// What has not ended.
    operations: Vec<Operation>,
    incarnation: Option<Incarnation>,
    pin: Option<SessionPin>,
    paused: bool,
    /// Set while it takes over: until then it reads nothing else.
    undisturbed_until: Option<BootTime>,
    /// The pauses of the session that the engine knows of.
    pauses: u64,
    lease: Option<(LeaseKeeper, watch::Receiver<Option<Lease>>)>,
    /// It has taken part on a session.
    fitted: bool,
    /// Its status was looked at: what has changed is read, although it is passive.
    looked: bool,
    /// Another process is about to continue; closed if it does not.
    held: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// There once it leaves, or ends.
    ending: Option<Box<Ending>>,
}

/// How a member's part ends.
#[derive(Default)]
struct Ending {
    leaving: bool,
    leave_by: Option<BootTime>,
    /// It has left as far as its caller waits for that. Its znodes are deleted when the connection returns.
    lingers: bool,
    /// Why it leaves, if the caller did not ask for it.
    refusal: Option<Ended>,
    end: Option<Ended>,
}

/// How an engine begins.
pub(super) enum Joining {
    /// It joins the election.
    Anew,
    /// It continues on a session that it was handed over on, with the leadership that continues.
    Again(SessionPin, Option<Grant>),
}

/// An operation that the engine has requested.
struct Operation {
    op: OpId,
    /// An error if ZooKeeper refuses it.
    outcome: Pin<Box<dyn Future<Output = Result<Outcome, OpError>> + Send>>,
    is_sent: bool,
    /// A list, which may be long, and is not needed to take over.
    is_list: bool,
}

/// What woke the runner.
enum Woken {
    /// An error if ZooKeeper refuses the watch.
    Watch(Result<Event, OpError>),
    Done(OpId, Result<Outcome, OpError>),
    Message(Message),
    Session,
    Lease,
    Clock,
}

impl<H: Handler> Runner<H> {
    pub(super) fn new(
        (engine, joining, living): (Engine, Joining, Living),
        session: Session,
        handler: H,
        events: Events,
        inbox: Inbox,
    ) -> Self {
        let mut work = Work::new(handler, events.clone());
        let (pin, fitted) = match joining {
            Joining::Anew => (None, false),
            Joining::Again(pin, grant) => {
                if let Some(grant) = grant {
                    work.resume(grant);
                }
                (Some(pin), true)
            }
        };
        Self {
            watches: Watches::default(),
            states: subscribe(&session),
            wakeup: session.wakeup(),
            engine,
            living,
            work,
            session,
            inbox,
            turn: Turn::default(),
            operations: Vec::new(),
            incarnation: pin.as_ref().map(SessionPin::incarnation),
            // A session that another process has handed over is paused until it is known to live.
            paused: pin.is_some(),
            undisturbed_until: None,
            pauses: 0,
            pin,
            lease: None,
            fitted,
            looked: false,
            held: None,
            ending: None,
        }
    }

    /// Handles what has come, and returns how the member's part has ended.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        // Before it looks: a change from now on wakes this task.
        self.wakeup.register(cx.waker());
        for _ in 0..BATCH {
            if let Some(held) = &mut self.held {
                ready!(held.as_mut().poll(cx));
                self.held = None;
                if !self.living.resume() {
                    self.end(Ended::HandedOver);
                }
            }
            self.settle();
            if let Some(end) = self.ending.as_mut().and_then(|ending| ending.end.take()) {
                self.leave_behind();
                return Poll::Ready(end);
            }
            if self.work.has_begun() {
                // The application's call runs before what is left to do here.
                break;
            }
            match ready!(self.poll_woken(cx)) {
                Woken::Watch(Ok(event)) => {
                    self.handle(event);
                    self.receive_more();
                }
                Woken::Watch(Err(error)) => self.work.refused(&error),
                Woken::Done(op, outcome) => {
                    let outcome = outcome.unwrap_or_else(|error| {
                        self.work.refused(&error);
                        Outcome::NotApplied(error.to_string())
                    });
                    self.handle(Event::Done { op, outcome });
                    self.receive_more();
                }
                Woken::Message(message) => {
                    self.receive(message);
                    self.receive_more();
                }
                Woken::Session => {
                    let state = self.states.borrow_and_update().clone();
                    self.session_changed(&state);
                }
                Woken::Lease => self.lease_changed(),
                Woken::Clock => {
                    // What the application has answered comes before the deadline for it.
                    self.receive_more();
                    self.handle(Event::Tick);
                }
            }
        }
        // Other tasks of this thread have their turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// The znodes of a member that has left may not all be deleted yet.
    fn leave_behind(&mut self) {
        if !self.operations.is_empty() {
            tokio::spawn(join_all(std::mem::take(&mut self.operations).into_iter().map(|left| left.outcome)));
        }
    }

    fn poll_woken(&mut self, cx: &mut Context<'_>) -> Poll<Woken> {
        // The session first: an event that was read on an ended session is meaningless. The sender lives as long as the
        // session.
        if self.states.has_changed().unwrap_or(false) || self.turn.poll_come(cx).is_ready() {
            return Poll::Ready(Woken::Session);
        }
        if self.lease.as_ref().is_some_and(|(_, lease)| lease.has_changed().unwrap_or(false)) {
            return Poll::Ready(Woken::Lease);
        }
        // Ahead of the reads of watches: a server answers in order, and another member may wait for these.
        let takeover_first = self.takeover_first();
        let is_due = |operation: &Operation| !operation.is_list || takeover_first.is_none();
        let unsent = |operation: &Operation| !operation.is_sent && is_due(operation);
        if let Poll::Ready((op, outcome)) = poll_any(&mut self.operations, cx, unsent) {
            return Poll::Ready(Woken::Done(op, outcome));
        }
        let leaving = self.ending.as_ref().filter(|ending| !ending.lingers);
        let leave_by = leaving.and_then(|ending| ending.leave_by);
        let wakeup =
            [self.engine.wakeup().map(to_boot), leave_by, takeover_first].into_iter().flatten().min();
        if wakeup.is_some_and(|at| at <= BootTime::now()) {
            return Poll::Ready(Woken::Clock);
        }
        self.wakeup.wake_at(wakeup);
        let pace = if takeover_first.is_some() { Pace::AfterTakeover } else { self.pace() };
        if let Poll::Ready(event) = self.watches.poll_next(cx, pace) {
            return Poll::Ready(Woken::Watch(event));
        }
        // What had changed is being read now.
        self.looked = false;
        let sent = |operation: &Operation| operation.is_sent;
        if let Poll::Ready((op, outcome)) = poll_any(&mut self.operations, cx, sent) {
            return Poll::Ready(Woken::Done(op, outcome));
        }
        self.inbox.poll_receive(cx).map(Woken::Message)
    }

    /// Until when a takeover comes before other reads; `None` if it does not.
    fn takeover_first(&mut self) -> Option<BootTime> {
        if !self.engine.is_taking_over() {
            self.undisturbed_until = None;
            return None;
        }
        let now = BootTime::now();
        let until = *self.undisturbed_until.get_or_insert_with(|| now + UNDISTURBED);
        (now < until).then_some(until)
    }

    fn pace(&self) -> Pace {
        if !self.engine.is_passive() {
            Pace::AtOnce
        } else if self.looked || self.work.follows_leaders() || self.inbox.status().is_followed() {
            Pace::Coalesced
        } else {
            Pace::Later
        }
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Looked => self.looked = true,
            Message::Event(event) => self.handle(event),
            Message::Reconfigure(config) => {
                self.engine.reconfigure(now(), *config);
                self.carry_out_all();
            }
            Message::Panicked(call) => {
                tracing::error!(election = self.engine.name(), call, "the application panicked");
                self.end(Ended::HandlerPanicked { call });
            }
            // A caller that has stopped waiting needs no answer.
            Message::Ping(answer) => drop(answer.send(())),
            Message::HandOver(answer) => {
                let (held, released) = oneshot::channel();
                let resumption = self.engine.resumption();
                let answered = answer.send(resumption.map(|resumption| HandedOver { resumption, held }));
                // An error, or a caller that has stopped waiting, drops the other end at once.
                if answered.is_ok() {
                    self.living.hand_over();
                    let granted = self.incarnation.as_ref().map_or(HELD_FOR, Incarnation::granted_timeout);
                    let held = tokio::time::timeout(HELD_FOR.min(granted / 8), released);
                    self.held = Some(Box::pin(async move { drop(held.await) }));
                }
            }
        }
    }

    /// Handles what has come meanwhile.
    fn receive_more(&mut self) {
        for _ in 0..BATCH {
            if self.has_ended() || self.held.is_some() {
                return;
            }
            match self.inbox.try_receive() {
                Some(message) => self.receive(message),
                None => return,
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match &event {
            Event::Leave { .. } => self.ending.get_or_insert_default().leaving = true,
            Event::App(AppEvent::Stopped) => self.work.stopped(),
            Event::Done { op, outcome } => self.watches.ended(*op, outcome),
            _ => {}
        }
        self.engine.handle(now(), event);
        self.carry_out_all();
    }

    fn carry_out_all(&mut self) {
        while let Some(action) = self.engine.poll_action() {
            self.carry_out(action);
        }
    }

    // ---- the session ----

    fn session_changed(&mut self, state: &SessionState) {
        if matches!(state, SessionState::Closed) {
            self.session_over();
            // Work that is still running is stopped first. Its lease ends soon.
            if self.engine.is_clear() {
                self.end(Ended::SessionClosed);
            }
            return;
        }
        let living = state.epoch();
        if self.incarnation.as_ref().is_some_and(|known| Some(known.epoch()) != living || known.is_over()) {
            self.session_over();
        }
        if self.incarnation.is_none() && state.is_active() {
            self.session_started(state);
        }
        let Some(known) = &self.incarnation else { return };
        let (epoch, pauses) = (known.epoch().0, known.pauses());
        // It may be over already, while this task did not run.
        let was_paused = std::mem::replace(&mut self.pauses, pauses) != pauses;
        if !self.paused && (was_paused || !state.is_active()) {
            self.paused = true;
            self.handle(Event::SessionPaused { epoch });
        }
        if self.paused && state.is_active() {
            self.paused = false;
            self.handle(Event::SessionResumed { epoch });
        }
    }

    fn session_started(&mut self, state: &SessionState) {
        // The pin comes before the first action on it, so that no new session begins while work of this one may run.
        let Some(pin) = self.session.pin() else { return };
        if Some(pin.epoch()) != state.epoch() {
            // The session has moved on already. The next state will report it.
            return;
        }
        let incarnation = pin.incarnation();
        if let Err(refusal) = self.fits(&incarnation) {
            tracing::error!(election = self.engine.name(), %refusal, "leaving the election");
            self.ending.get_or_insert_default().refusal = Some(refusal);
            return self.handle(Event::Leave { hand_over: false });
        }
        if !self.turn.take(incarnation.session_id()) {
            return;
        }
        let event = Event::SessionStarted {
            epoch: incarnation.epoch().0,
            session_id: incarnation.session_id().0,
            granted: incarnation.granted_timeout(),
        };
        self.pauses = incarnation.pauses();
        self.pin = Some(pin);
        self.incarnation = Some(incarnation);
        self.paused = false;
        self.handle(event);
        self.lease_changed();
    }

    /// Whether a member can lead on it. If the servers grant less than before, the election continues: the work gets
    /// less time, and leadership is given up sooner.
    fn fits(&mut self, incarnation: &Incarnation) -> Result<(), Ended> {
        incarnation.leases().map_err(Ended::NoLease)?;
        let timing = incarnation.lease_timing();
        let stop_budget = self.engine.policy().stop_budget(timing.session_timeout);
        match StopBudgetTooLong::check(stop_budget.saturating_add(self.engine.policy().lease_reserve), timing)
        {
            Err(wrong) if !self.fitted => return Err(Ended::StopBudgetTooLong(wrong)),
            Err(wrong) => tracing::error!(election = self.engine.name(), "{wrong}"),
            Ok(()) => {}
        }
        self.fitted = true;
        Ok(())
    }

    fn session_over(&mut self) {
        if let Some(known) = self.incarnation.take() {
            self.turn.pass_on();
            self.handle(Event::SessionOver { epoch: known.epoch().0 });
        }
    }

    fn lease_changed(&mut self) {
        let Some((_, receiver)) = &mut self.lease else { return };
        let lease = *receiver.borrow_and_update();
        if let Some(lease) = lease {
            self.handle(Event::Lease { epoch: lease.epoch.0, valid_until: to_time(lease.valid_until) });
        }
    }

    /// Consequences of the engine's state rather than of an action.
    fn settle(&mut self) {
        if self.incarnation.as_ref().is_none_or(Incarnation::is_over) && self.engine.is_clear() {
            self.pin = None;
        }
        // It is a candidate, or waits for something other than an answer.
        if self.turn.has_come()
            && self.incarnation.is_some()
            && (self.operations.is_empty() || self.engine.ballot().is_some())
        {
            self.turn.pass_on();
        }
        let on_session = self.incarnation.as_ref().is_some_and(|known| !known.is_over());
        if let Some(ending) = &mut self.ending
            && ending.leaving
            && self.engine.is_clear()
        {
            let by = *ending.leave_by.get_or_insert_with(|| BootTime::now() + FAREWELL);
            if !(ending.lingers && on_session) && BootTime::now() >= by {
                ending.lingers = on_session;
                self.leave();
            }
        }
        if self.engine.is_clear() && matches!(*self.states.borrow(), SessionState::Closed) {
            self.end(Ended::SessionClosed);
        }
        let status = ElectionStatus::of(&self.engine);
        let published = self.inbox.status();
        if published.with(|known| *known != status) {
            published.set(status);
        }
    }

    /// It has left.
    fn leave(&mut self) {
        let ending = self.ending.get_or_insert_default();
        let refusal = ending.refusal.clone();
        ending.end.get_or_insert(refusal.unwrap_or(Ended::Left));
    }

    /// Its part has ended. The first reason counts.
    fn end(&mut self, how: Ended) {
        self.ending.get_or_insert_default().end.get_or_insert(how);
    }

    /// Whether its znodes must still be deleted, though its end is reported.
    fn lingers(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.lingers)
    }

    fn has_ended(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.end.is_some())
    }

    // ---- actions ----

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Perform { op, epoch, request } => self.perform(op, epoch, request),
            Action::Watch { epoch, set } => {
                let engine = &self.engine;
                self.watches.set(
                    &self.session,
                    epoch,
                    &set,
                    engine.base(),
                    engine.looks_for_its_rank(),
                    |watched| engine.reports_leaders(watched),
                );
            }
            Action::KeepLease(true) => {
                let keeper = self.session.keep_lease();
                let mut receiver = keeper.subscribe();
                receiver.mark_changed();
                self.lease = Some((keeper, receiver));
            }
            Action::KeepLease(false) => self.lease = None,
            Action::Prepare(nomination) => self.work.prepare(nomination),
            Action::TakeOver(grant) => self.work.take_over(grant),
            Action::Lead => self.work.lead(),
            Action::WorkUntil(until) => self.work.work_until(to_boot(until)),
            Action::Suspend(suspended) => self.work.suspend(suspended),
            Action::Stop(reason) => self.work.stop(reason),
            Action::LeaderChanged(slot, leader) => self.work.leader_changed(slot, leader),
            Action::Note(note) => self.note(&note),
            Action::End(EndReason::Left) => {
                self.ending.get_or_insert_default().lingers = false;
                self.leave();
            }
            Action::End(EndReason::DuplicateMember { member, path, address }) => {
                self.end(Ended::DuplicateMember { member, path, address });
            }
            Action::End(EndReason::OtherRecipe(recipe)) => self.end(Ended::OtherRecipe { recipe }),
        }
    }

    fn perform(&mut self, op: OpId, epoch: u64, request: ZkOp) {
        let session = self.incarnation.clone().filter(|known| known.epoch().0 == epoch);
        if let Some(session) = &session {
            self.watches.begins(op, &request, session.session_id().0);
        }
        let is_list = matches!(request, ZkOp::Children { .. });
        let (directories, starts) = (self.engine.directories(), self.turn.starts());
        let (recipe, paths) = self.engine.recipe();
        let own = starts.as_ref().and_then(|_| Some((Layout::of(recipe)?, paths.clone())));
        let outcome = Box::pin(async move {
            match session {
                Some(session) => {
                    operations::perform(&session, request, &directories, starts.as_deref(), own).await
                }
                None => Ok(Outcome::NotApplied("the session is over".to_owned())),
            }
        });
        self.operations.push(Operation { op, outcome, is_sent: false, is_list });
    }

    fn note(&self, note: &Note) {
        let election = self.engine.name();
        match (&note.kind, note.level) {
            (NoteKind::Skipped(_), Level::Info) => tracing::debug!(election, "{}", note.text),
            (_, Level::Info) => tracing::info!(election, "{}", note.text),
            (_, Level::Warn) => tracing::warn!(election, "{}", note.text),
        }
        let event = match note.kind {
            NoteKind::Skipped(reason) => ElectionEvent::Skipped(reason),
            NoteKind::TakeoverFailed => ElectionEvent::TakeoverFailed,
            NoteKind::Ready { cause, phases } => ElectionEvent::Ready { cause, phases },
            NoteKind::Registration | NoteKind::Decided | NoteKind::Leadership | NoteKind::Trouble => return,
        };
        self.work.observe(event);
    }
}

/// Its present state counts as a change.
fn subscribe(session: &Session) -> watch::Receiver<SessionState> {
    let mut states = session.subscribe();
    states.mark_changed();
    states
}

/// A runner, and what reports its end. The runner is on the heap: an allocator wastes room around large tasks.
pub(super) struct Running<H> {
    runner: Option<Box<Runner<H>>>,
    end: Option<End>,
}

impl<H: Handler> Running<H> {
    pub(super) fn new(runner: Runner<H>, end: End) -> Self {
        Self { runner: Some(Box::new(runner)), end: Some(end) }
    }
}

impl<H: Handler> Future for Running<H> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(runner) = &mut this.runner else { return Poll::Ready(()) };
        let mut ended = ready!(runner.poll_end(cx));
        while runner.lingers() {
            if let Some(end) = &this.end {
                end.report(ended);
            }
            ended = ready!(runner.poll_end(cx));
        }
        // What it holds is released before its end is reported.
        this.runner = None;
        if let Some(end) = this.end.take() {
            end.report(ended);
        }
        Poll::Ready(())
    }
}

/// The outcome of the first one of these that has ended.
fn poll_any(
    operations: &mut Vec<Operation>,
    cx: &mut Context<'_>,
    these: impl Fn(&Operation) -> bool,
) -> Poll<(OpId, Result<Outcome, OpError>)> {
    for at in 0..operations.len() {
        if !these(&operations[at]) {
            continue;
        }
        operations[at].is_sent = true;
        if let Poll::Ready(outcome) = operations[at].outcome.as_mut().poll(cx) {
            let op = operations.remove(at).op;
            if operations.is_empty() {
                // An idle election holds no memory for it.
                *operations = Vec::new();
            }
            return Poll::Ready((op, outcome));
        }
    }
    Poll::Pending
}
