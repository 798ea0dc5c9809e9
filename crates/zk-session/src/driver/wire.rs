//! The session on the wire: one task that keeps a [`zk_proto::Connection`] on some server, and the handle by which
//! requests are handed to it.
//!
//! ```text
//!   callers -- send --> Connection (under a lock) -- bytes --> socket --> a server, another server, ...
//!              Answer <----- outcomes ----+
//!                                         | one task: reads, timers, writes that did not go at once,
//!                                         | finding servers, moving to a better one
//! ```
//! A single request is written by its caller, at once; while others are under way the task collects new ones and writes
//! them together. Nothing else happens here: zk-proto decides the outcome of requests, watches and the connection, and
//! `seek` which servers are tried.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::AbortHandle;
use tracing::{Instrument as _, debug};
use zk_proto::{
    Aftermath, Connection, Input, Limits, NotSent, Outcome, Output, Purpose, Reply, Request, Ticket, WatchId,
};

use super::dial::{Attached, Link};
use super::search::Search;
use super::seek::{Seeker, Tickets};
use super::{
    Along, Answer, Answers, BoxFuture, ConnectFailure, ConnectSpec, Driver, DriverError, DriverEvent,
    DriverResult, Place,
};
use crate::driver::close::CloseOutcome;
#[cfg(any(feature = "tls", feature = "sasl"))]
use crate::error::ConnectError;
use crate::error::InactiveReason;
use crate::lock::lock;
use crate::time::{BootTime, Moment, sleep_until, within};

/// Makes or resumes a session. Also returns when the connect request was sent.
pub(super) async fn connect(
    spec: ConnectSpec,
) -> Result<(Wire, mpsc::UnboundedReceiver<DriverEvent>, Moment), ConnectFailure> {
    // Files that have never been of use are an error at once.
    #[cfg(feature = "tls")]
    super::tls::connector(&spec.settings)
        .await
        .map_err(|reason| ConnectFailure::Final(ConnectError::Tls { reason }))?;
    #[cfg(feature = "sasl")]
    super::sasl::user(&spec.settings)
        .await
        .map_err(|reason| ConnectFailure::Final(ConnectError::AuthFailed { reason }))?;
    let seeker = Seeker { resolver: Arc::clone(&spec.resolver), settings: Arc::clone(&spec.settings) };
    let mut answers = Answers::default();
    let making = seeker.first(&spec, &mut answers);
    let attached = match within(spec.deadline, Box::pin(making)).await {
        Some(Ok(Some(attached))) => attached,
        Some(Err(error)) => return Err(ConnectFailure::Final(error)),
        Some(Ok(None)) | None => return Err(ConnectFailure::Unavailable(answers)),
    };
    let (events, receiver) = mpsc::unbounded_channel();
    let sent = attached.sent;
    let suspect_after = spec.settings.suspect_after;
    let limits = Limits { request: spec.settings.max_request, suspect_after, ..Limits::default() };
    let mut ticket = attached.ticket.clone();
    if let Purpose::Resume(before) = spec.purpose {
        ticket.timeout = before.timeout;
    }
    let core = Arc::new(Core {
        state: Mutex::new(State {
            connection: Connection::new(now(), ticket, limits),
            attached: sent,
            server: attached.link.address,
            direct: None,
            events: Some(events),
            suspended: false,
            close: None,
            servers_changed: false,
        }),
        wake: Notify::new(),
    });
    let kept = Arc::clone(&core).keep(seeker, attached).in_current_span();
    let task = tokio::spawn(kept).abort_handle();
    Ok((Wire { core, task }, receiver, sent))
}

fn now() -> Duration {
    BootTime::now().as_duration()
}

/// One session.
pub(super) struct Wire {
    core: Arc<Core>,
    task: AbortHandle,
}

/// The caller that waits for a request.
pub(super) struct Ticketed {
    answer: oneshot::Sender<DriverResult<Reply>>,
    /// Given back with the ticket.
    _place: Option<Place>,
}

impl Ticketed {
    fn end(self, outcome: Outcome) {
        let result = match outcome {
            Outcome::Answered(Ok(reply)) => Ok(reply),
            Outcome::Answered(Err(code)) => Err(match code.aftermath() {
                Aftermath::Refused => DriverError::Refused(code),
                Aftermath::Retry => DriverError::NotSent(code.to_string()),
                Aftermath::Unknown => DriverError::Ambiguous(code.to_string()),
            }),
            Outcome::NotSent(reason @ NotSent::TooLarge { .. }) => {
                Err(DriverError::Invalid(reason.to_string()))
            }
            Outcome::NotSent(reason) => Err(DriverError::NotSent(reason.to_string())),
            Outcome::PerhapsApplied(reason) => Err(DriverError::Ambiguous(reason)),
            Outcome::TooLarge { size, limit } => Err(DriverError::Invalid(format!(
                "the answer has {size} bytes, more than a session takes ({limit})"
            ))),
        };
        // The caller may have given up.
        let _ = self.answer.send(result);
    }
}

impl Wire {
    /// Hands a request over, for a caller that waits already.
    pub(super) fn hand_over(
        &self,
        request: &Request<'_>,
        Along { watch, heartbeat, place }: Along,
        answer: oneshot::Sender<DriverResult<Reply>>,
    ) {
        let tag = Ticketed { answer, _place: place };
        let mut state = lock(&self.core.state);
        let alone = !state.connection.is_busy() && state.connection.outgoing().is_empty();
        state.handle(Input::Request { request, watch, heartbeat, tag });
        if alone && let Some(stream) = state.direct.clone() {
            // If it is not written now, the task tries.
            let _ = state.write_with(|bytes| stream.try_write(bytes));
        }
        // A heartbeat moves the next deadline forward.
        self.core.leave_to_task(state, heartbeat);
    }

    /// The driver has failed.
    #[cfg_attr(not(feature = "zookeeper-async"), allow(dead_code, reason = "this one never fails by itself"))]
    pub(super) fn fail(&self, reason: String) {
        lock(&self.core.state).end(InactiveReason::DriverFailed { reason });
        self.abort();
    }
}

impl Driver for Wire {
    fn ticket(&self) -> Ticket {
        self.core.ticket()
    }

    fn attached(&self) -> Moment {
        lock(&self.core.state).attached
    }

    fn server(&self) -> SocketAddr {
        lock(&self.core.state).server
    }

    fn send(&self, request: &Request<'_>, along: Along) -> Answer {
        let (answer, receiver) = oneshot::channel();
        self.hand_over(request, along, answer);
        receiver
    }

    fn forget(&self, watch: WatchId) {
        self.core.handle(Input::Forget(watch));
    }

    fn servers_changed(&self) {
        lock(&self.core.state).servers_changed = true;
        self.core.wake.notify_one();
    }

    fn close(&self, deadline: BootTime) -> BoxFuture<'static, CloseOutcome> {
        let (answer, answered) = oneshot::channel();
        let tag = Ticketed { answer, _place: None };
        {
            let mut state = lock(&self.core.state);
            if state.connection.is_attached() {
                state.handle(Input::Close(tag));
            } else if state.events.is_some() {
                state.close = Some(tag);
            }
        }
        self.core.wake.notify_one();
        let (core, task) = (Arc::clone(&self.core), self.task.clone());
        Box::pin(async move {
            let answer = within(deadline, answered).await;
            let written = lock(&core.state).connection.is_close_written();
            core.give_up(&task);
            match answer {
                Some(Ok(Ok(_))) => CloseOutcome::Acknowledged,
                Some(Ok(Err(DriverError::Ambiguous(_)))) => CloseOutcome::Sent,
                None if written => CloseOutcome::Sent,
                _ => CloseOutcome::Unknown,
            }
        })
    }

    fn abort(&self) {
        self.core.give_up(&self.task);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.abort();
    }
}

struct Core {
    state: Mutex<State>,
    /// Wakes the task.
    wake: Notify,
}

struct State {
    connection: Connection<Ticketed>,
    /// When the connect request of the present connection was sent.
    attached: Moment,
    server: SocketAddr,
    /// For callers that write themselves.
    direct: Option<Arc<OwnedWriteHalf>>,
    /// `None` after the last event.
    events: Option<mpsc::UnboundedSender<DriverEvent>>,
    /// The loss of the connection has been reported, and its return has not.
    suspended: bool,
    /// The session is to be closed as soon as it has a connection again.
    close: Option<Ticketed>,
    servers_changed: bool,
}

impl State {
    /// Handles an input and its consequences.
    fn handle(&mut self, input: Input<'_, Ticketed>) {
        self.handle_with(input, Ticketed::end);
    }

    /// Handles an input; `end` reports the requests that end.
    fn handle_with(&mut self, input: Input<'_, Ticketed>, mut end: impl FnMut(Ticketed, Outcome)) {
        self.connection.handle(now(), input);
        while let Some(output) = self.connection.poll() {
            match output {
                Output::Ended { tag, outcome } => end(tag, outcome),
                Output::Watch { id, kind, path } => self.say(DriverEvent::Watch { watch: id, kind, path }),
                Output::Ready => {
                    if std::mem::take(&mut self.suspended) {
                        self.say(DriverEvent::Ready);
                    }
                    if let Some(tag) = self.close.take() {
                        self.connection.handle(now(), Input::Close(tag));
                    }
                }
                Output::Lost { reason } => {
                    self.direct = None;
                    if !std::mem::replace(&mut self.suspended, true) {
                        self.say(DriverEvent::Lost { reason });
                    }
                }
                Output::Closed => self.shut(),
            }
        }
    }

    fn say(&self, event: DriverEvent) {
        if let Some(events) = &self.events {
            // Without a receiver the driver is about to be dropped.
            let _ = events.send(event);
        }
    }

    /// Sends the last event.
    fn end(&mut self, reason: InactiveReason) {
        if let Some(tag) = self.close.take()
            && reason == InactiveReason::Expired
        {
            // It has been closed, as requested.
            tag.end(Outcome::Answered(Ok(Reply::Empty)));
        }
        self.say(DriverEvent::Ended(reason));
        self.shut();
    }

    /// Ends the driver, however long its handle is kept: nothing more is written or reported, callers are answered, and the
    /// socket closes.
    fn shut(&mut self) {
        self.events = None;
        self.close = None;
        self.handle(Input::Lost("the session was given up".to_owned()));
        self.direct = None;
    }

    /// Writes outgoing bytes, as far as is possible at once.
    fn write_with(&mut self, write: impl FnOnce(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        // What waited while this process was frozen is not written any more.
        self.handle(Input::Tick);
        if self.connection.outgoing().is_empty() {
            return Ok(());
        }
        let count = write(self.connection.outgoing())?;
        self.handle(Input::Written(count));
        Ok(())
    }
}

impl Core {
    fn ticket(&self) -> Ticket {
        lock(&self.state).connection.ticket().clone()
    }

    fn handle(&self, input: Input<'_, Ticketed>) {
        let mut state = lock(&self.state);
        state.handle(input);
        self.leave_to_task(state, false);
    }

    /// Handles what was read. Callers are woken after the lock is free, because their next request needs it.
    fn receive(&self, input: &mut BytesMut, ended: &mut Vec<(Ticketed, Outcome)>) {
        let mut state = lock(&self.state);
        state.handle_with(Input::Received(input), |tag, outcome| ended.push((tag, outcome)));
        self.leave_to_task(state, false);
        ended.drain(..).for_each(|(tag, outcome)| tag.end(outcome));
    }

    /// Wakes the task if there is something to do.
    fn leave_to_task(&self, state: MutexGuard<'_, State>, has_timer: bool) {
        let wake = has_timer || !state.connection.outgoing().is_empty() || !state.connection.is_attached();
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Ends everything at once.
    fn give_up(&self, task: &AbortHandle) {
        lock(&self.state).shut();
        task.abort();
    }

    /// Carries the session from server to server until its end.
    async fn keep(self: Arc<Self>, seeker: Seeker, first: Attached) {
        let _silenced = SilencedOnDrop(&self);
        let mut link = self.link(first, true);
        let core = Arc::clone(&self);
        let ticket = move || core.ticket();
        let timeout = ticket().timeout;
        // Later than any deadline of the servers.
        let patience = timeout + timeout / 2;
        let mut search = Search::new(seeker, Tickets { timeout, now: Arc::new(ticket) });
        while self.serve(&mut search, &mut link).await {
            let lost = link.address;
            drop(link);
            let over = match within(BootTime::now() + patience, search.after_loss(lost)).await {
                Some(Ok(attached)) => {
                    link = self.link(attached, false);
                    continue;
                }
                Some(Err(over)) => over,
                None => {
                    let reason = format!("no server has accepted the session for {patience:?}");
                    InactiveReason::DriverFailed { reason }
                }
            };
            return lock(&self.state).end(over);
        }
    }

    /// Moves the session to a connection.
    fn link(&self, attached: Attached, is_first: bool) -> Link {
        let Attached { mut link, ticket, sent } = attached;
        let mut state = lock(&self.state);
        if !is_first {
            state.handle(Input::Attached(ticket));
        }
        state.attached = sent;
        state.server = link.address;
        state.direct = link.writer.direct();
        state.handle(Input::Received(&mut link.input));
        link
    }

    /// Serves one connection after another until one is lost without another one; `false` if the session is over.
    async fn serve(&self, search: &mut Search, link: &mut Link) -> bool {
        let mut alarm = Alarm::default();
        let mut ended = Vec::new();
        loop {
            if search.seeker.resolver.is_isolated() {
                self.handle(Input::Lost("this process has cut the session off for a time".to_owned()));
            }
            let (has_more, deadline, suspected, servers_changed) = {
                let mut state = lock(&self.state);
                if state.events.is_none() {
                    return false;
                }
                let Some(deadline) = state.connection.deadline() else { return true };
                let servers_changed = std::mem::take(&mut state.servers_changed);
                let connection = &state.connection;
                let suspected = connection.unanswered_since().filter(|_| connection.suspects(now()));
                let suspected = suspected.map(BootTime::from_duration);
                (!connection.outgoing().is_empty(), deadline, suspected, servers_changed)
            };
            if link.input.is_empty() {
                // Idle sessions hold no memory for it.
                link.input = BytesMut::new();
            }
            let deadline = BootTime::from_duration(deadline);
            let deadline = deadline.min(search.update(link.address, suspected, servers_changed));
            tokio::select! {
                biased;
                written = link.writer.write(|write| lock(&self.state).write_with(write)),
                    if has_more || link.writer.is_behind() =>
                {
                    if let Err(error) = written {
                        self.handle(Input::Lost(error.to_string()));
                    }
                }
                read = link.reader.read(&mut link.input) => match read {
                    Ok(0) => self.handle(Input::Lost("the server closed the connection".to_owned())),
                    Ok(_) => self.receive(&mut link.input, &mut ended),
                    Err(error) => self.handle(Input::Lost(error.to_string())),
                },
                // Requests of other callers go into the same write.
                () = self.wake.notified() => tokio::task::yield_now().await,
                found = search.found() => match found {
                    Ok(None) => {}
                    // It has seen as much as the session had when it was asked. The session has seen more since, which it
                    // may not have: it has to be asked again.
                    Ok(Some(attached)) if attached.ticket.last_zxid < self.ticket().last_zxid => {
                        self.handle(Input::Lost("the session moves to another server".to_owned()));
                    }
                    Ok(Some(attached)) => {
                        debug!(from = %link.address, to = %attached.link.address, "the session moves to a server that answers");
                        *link = self.link(attached, false);
                    }
                    Err(over) => lock(&self.state).end(over),
                },
                () = alarm.wait(deadline) => self.handle(Input::Tick),
            }
        }
    }
}

/// Ends the events if the task panics: a session without its task must not look alive.
struct SilencedOnDrop<'a>(&'a Core);

impl Drop for SilencedOnDrop<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.events = None;
        state.direct = None;
    }
}

/// A timer that is reset only if it would fire too late: deadlines mostly move to later.
#[derive(Default)]
struct Alarm(Option<(BootTime, BoxFuture<'static, ()>)>);

impl Alarm {
    /// # Cancel safety
    /// Cancel safe.
    async fn wait(&mut self, deadline: BootTime) {
        loop {
            self.0.take_if(|(at, _)| deadline < *at);
            let (_, sleep) = self.0.get_or_insert_with(|| (deadline, Box::pin(sleep_until(deadline))));
            sleep.await;
            self.0 = None;
            if BootTime::now() >= deadline {
                return;
            }
        }
    }
}
