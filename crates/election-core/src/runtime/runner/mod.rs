//! The task that owns an engine.

mod session;

use std::{
    future::{pending, poll_fn},
    task::Poll,
    time::Duration,
};

use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, ready},
    stream::FuturesUnordered,
};
use tokio::{
    sync::{oneshot, watch},
    task::consume_budget,
    time::timeout,
};
use zk_session::{BootTime, Incarnation, Lease, LeaseKeeper, OpError, Session, SessionPin, SessionState};

use super::{
    at,
    ended::Ended,
    events::{Events, HandedOver, Inbox, Message},
    handler::{ElectionEvent, Handler},
    layout::Layout,
    living::Living,
    now, operations,
    publisher::Publisher,
    status::ElectionStatus,
    to_boot,
    turn::Turn,
    watches::{Pace, Watches},
    work::Work,
};
use crate::engine::{
    Action, AppEvent, Config, EndReason, Engine, EnteredLeadership, Event, Level, Note, NoteKind, OpId,
    Outcome, Wish, ZkOp,
};

/// How long a leaving member waits for ZooKeeper after its work has ended.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long the engine waits at most for another process that continues.
const HELD_FOR: Duration = Duration::from_secs(1);

/// How long a takeover comes before other reads. An application that starts slowly is watched from then on.
const UNDISTURBED: Duration = Duration::from_millis(50);

/// How many messages are received at once, before the status is published again.
const BATCH: usize = 64;

/// Runs an engine. On the heap, so that its task is small.
pub(super) struct Runner<H> {
    engine: Engine,
    living: Living,
    session: Session,
    states: watch::Receiver<SessionState>,
    inbox: Inbox,
    watches: Watches,
    work: Work<H>,
    turn: Turn,
    /// What has not ended.
    operations: FuturesUnordered<Operation>,
    /// Lists, which may be long, and are not needed to take over: they are begun after a takeover.
    lists: Vec<Operation>,
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
    /// Another process is about to continue; closed if it does not.
    held: Option<oneshot::Receiver<()>>,
    ending: Ending,
    /// The last field: what the others hold is released before the end is published.
    publisher: Publisher,
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
    /// A call of the application panicked.
    panicked: bool,
    /// Its part has ended.
    is_over: bool,
}

/// How an engine begins.
pub(super) enum Joining {
    /// It joins the election.
    Anew,
    /// It continues on a session that it was handed over on, with the leadership that continues.
    Again(SessionPin, Option<EnteredLeadership>),
}

/// An operation that the engine has requested. An error if ZooKeeper refuses it.
type Operation = BoxFuture<'static, (OpId, Result<Outcome, OpError>)>;

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
        (mut engine, joining, living): (Engine, Joining, Living),
        session: Session,
        handler: H,
        (events, inbox): (Events, Inbox),
        publisher: Publisher,
    ) -> Self {
        let mut work = Work::new(handler, events);
        let (pin, fitted) = match joining {
            Joining::Anew => (None, false),
            Joining::Again(pin, entered) => {
                if let Some(entered) = entered {
                    work.resume(entered);
                }
                (Some(pin), true)
            }
        };
        if work.handler.asks_before_moves() {
            engine.handle(now(), Event::Wish(Wish::AskBeforeMoves));
        }
        let mut states = session.subscribe();
        // Its present state counts as a change.
        states.mark_changed();
        Self {
            watches: Watches::default(),
            states,
            engine,
            living,
            work,
            session,
            inbox,
            turn: Turn::default(),
            operations: FuturesUnordered::new(),
            lists: Vec::new(),
            incarnation: pin.as_ref().map(SessionPin::incarnation),
            // A session that another process has handed over is paused until it is known to live.
            paused: pin.is_some(),
            undisturbed_until: None,
            pauses: 0,
            pin,
            lease: None,
            fitted,
            held: None,
            ending: Ending::default(),
            publisher,
        }
    }

    /// Runs until the member's part has ended and its znodes are deleted.
    pub(super) async fn run(mut self: Box<Self>) {
        self.until_end().await;
        while self.ending.lingers {
            self.publisher.end();
            self.until_end().await;
        }
        // The znodes of a member that has left may not all be deleted yet.
        let left = std::mem::take(&mut self.operations);
        if !left.is_empty() {
            tokio::spawn(left.for_each(|_| ready(())));
        }
    }

    /// Handles what comes until the member's part has ended.
    async fn until_end(&mut self) {
        loop {
            // Other tasks of this thread have their turn.
            consume_budget().await;
            if let Some(held) = self.held.take() {
                let granted = self.incarnation.as_ref().map_or(HELD_FOR, Incarnation::granted_timeout);
                let _ = timeout(HELD_FOR.min(granted / 8), held).await;
                if !self.living.resume() {
                    self.end(Ended::HandedOver);
                }
            }
            self.settle();
            if std::mem::take(&mut self.ending.is_over) {
                return;
            }
            if self.work.has_begun() {
                // The application's call runs before what is left to do here.
                pass_on().await;
                continue;
            }
            match self.woken().await {
                Woken::Watch(Ok(event)) => {
                    self.handle(event);
                    self.receive_more();
                }
                Woken::Watch(Err(error)) => self.work.handler.refused(&error),
                Woken::Done(op, outcome) => {
                    let outcome = outcome.unwrap_or_else(|error| {
                        self.work.handler.refused(&error);
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
    }

    /// Waits for what comes next. Cancel safe.
    async fn woken(&mut self) -> Woken {
        let takeover_first = self.takeover_first();
        if takeover_first.is_none() {
            std::mem::take(&mut self.lists).into_iter().for_each(|list| self.begin(list));
        }
        let leave_by = self.ending.leave_by.filter(|_| !self.ending.lingers);
        let wakeup =
            [self.engine.wakeup().map(to_boot), leave_by, takeover_first].into_iter().flatten().min();
        let pace = match takeover_first {
            Some(_) => Pace::AfterTakeover,
            None if self.engine.is_passive() => Pace::WhenFollowed,
            None => Pace::AtOnce,
        };
        let Self { work, publisher, lease, .. } = self;
        let is_followed = || work.follows_leaders() || publisher.is_followed();
        tokio::select! {
            biased;
            // The session first: an event that was read on an ended session is meaningless. The sender lives as long as
            // the session.
            Ok(()) = self.states.changed() => Woken::Session,
            () = self.turn.come() => Woken::Session,
            () = changed(lease.as_mut().map(|(_, lease)| lease)) => Woken::Lease,
            () = at(wakeup) => Woken::Clock,
            event = self.watches.next(pace, is_followed) => Woken::Watch(event),
            Some((op, outcome)) = self.operations.next() => Woken::Done(op, outcome),
            Some(message) = self.inbox.next() => Woken::Message(message),
        }
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

    fn receive(&mut self, message: Message) {
        match message {
            Message::Looked => self.watches.look(),
            Message::Event(event) => self.handle(event),
            Message::Reconfigure(change) => {
                let mut config = self.engine.config().clone();
                change(&mut config);
                self.engine.reconfigure(now(), config);
                self.carry_out_all();
            }
            Message::Panicked(call) => {
                tracing::error!(election = self.name(), call, "the application panicked");
                self.ending.panicked = true;
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
                    self.held = Some(released);
                }
            }
        }
    }

    /// Handles what has come meanwhile.
    fn receive_more(&mut self) {
        for _ in 0..BATCH {
            if self.ending.is_over || self.held.is_some() {
                return;
            }
            match self.inbox.try_recv() {
                Ok(message) => self.receive(message),
                Err(_) => return,
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match &event {
            Event::Leave { .. } => self.ending.leaving = true,
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

    /// Consequences of the engine's state rather than of an action.
    fn settle(&mut self) {
        if self.incarnation.as_ref().is_none_or(Incarnation::is_over) && self.engine.is_clear() {
            self.pin = None;
        }
        // It is a candidate, or waits for something other than an answer.
        if self.turn.has_come()
            && self.incarnation.is_some()
            && (self.operations.is_empty() && self.lists.is_empty() || self.engine.ballot().is_some())
        {
            self.turn.pass_on();
        }
        let on_session = self.incarnation.as_ref().is_some_and(|known| !known.is_over());
        let ending = &mut self.ending;
        if ending.leaving && self.engine.is_clear() {
            let by = *ending.leave_by.get_or_insert_with(|| BootTime::now() + FAREWELL);
            if !(ending.lingers && on_session) && BootTime::now() >= by {
                ending.lingers = on_session;
                self.leave();
            }
        }
        if self.engine.is_clear() && matches!(*self.states.borrow(), SessionState::Closed) {
            self.end(Ended::SessionClosed);
        }
        self.publisher.status(ElectionStatus::of(&self.engine));
    }

    /// It has left.
    fn leave(&mut self) {
        self.end(self.ending.refusal.clone().unwrap_or(Ended::Left));
    }

    /// Its part has ended. The first reason counts.
    fn end(&mut self, how: Ended) {
        self.publisher.ends(how);
        self.ending.is_over = true;
    }

    // ---- actions ----

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Perform { op, epoch, request } => self.perform(op, epoch, request),
            Action::Watch { epoch, set } => {
                self.watches.set(&self.session, epoch, &set, &self.engine);
            }
            Action::KeepLease(true) => {
                let keeper = self.session.keep_lease();
                let mut receiver = keeper.subscribe();
                receiver.mark_changed();
                self.lease = Some((keeper, receiver));
            }
            Action::KeepLease(false) => self.lease = None,
            Action::Prepare(appointment) => self.work.prepare(appointment),
            Action::TakeOver(entered) => self.work.take_over(entered),
            Action::AskBeforeMove(reason) => self.work.before_move(reason),
            Action::Lead => self.work.lead(),
            Action::WorkUntil(until) => self.work.work_until(to_boot(until)),
            Action::Suspend(suspended) => self.work.suspend(suspended),
            Action::Stop(reason) => self.work.stop(reason),
            Action::LeaderChanged(slot, leader) => self.work.leader_changed(slot, leader),
            Action::Note(note) => self.note(&note),
            Action::End(EndReason::Left) => {
                self.ending.lingers = false;
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
        let is_list = matches!(request, ZkOp::Children(_));
        let Config { recipe, paths, .. } = self.engine.config();
        let (directories, starts) = (recipe.directories(paths), self.turn.starts());
        let own = starts.as_ref().and_then(|_| Some((Layout::of(recipe)?, paths.clone())));
        let operation = Box::pin(async move {
            let outcome = match session {
                Some(session) => {
                    let (directories, starts) = (&directories[..], starts.as_deref());
                    operations::Attempt { session: &session, request: &request, directories, starts }
                        .perform(own)
                        .await
                }
                None => Ok(Outcome::NotApplied("the session is over".to_owned())),
            };
            (op, outcome)
        });
        match is_list {
            true => self.lists.push(operation),
            false => self.begin(operation),
        }
    }

    /// Sends it now, ahead of the reads of watches: a server answers in order, and another member may wait for it.
    fn begin(&self, mut operation: Operation) {
        match operation.as_mut().now_or_never() {
            Some(done) => self.operations.push(Box::pin(ready(done))),
            None => self.operations.push(operation),
        }
    }

    /// The election's name.
    fn name(&self) -> &str {
        self.engine.config().paths.name()
    }

    fn note(&self, note: &Note) {
        let election = self.name();
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
        self.work.handler.observe(event);
    }
}

impl<H> Drop for Runner<H> {
    /// After a panic, work that was not stopped may still run. The last handle of a session closes it, and ZooKeeper would
    /// delete the leader znode: a handle that is never dropped keeps both until the process exits.
    fn drop(&mut self) {
        if (self.ending.panicked || std::thread::panicking()) && self.engine.is_working() {
            std::mem::forget(self.session.clone());
        }
    }
}

/// Waits for a change, if there is anything that can change.
async fn changed<T>(value: Option<&mut watch::Receiver<T>>) {
    if let Some(value) = value
        && value.changed().await.is_ok()
    {
        return;
    }
    pending().await
}

/// Lets the tasks run first that are ready now. Tokio's `yield_now` would let all run that become ready meanwhile, and
/// thousands of elections that begin together would wait for one another.
async fn pass_on() {
    let mut passed = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut passed, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
