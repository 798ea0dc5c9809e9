//! The session on the wire: one task that keeps a [`zk_proto::Connection`] on some server, and the handle by which
//! requests are handed to it.
//!
//! ```text
//!   callers -- send --> Connection (under a lock) -- bytes --> socket --> a server, another server, ...
//!              Answer <----- outcomes ----+
//!                                         | one task: reads, timers, writes that did not go at once,
//!                                         | finding servers, moving to a better one
//! ```
//!
//! A request that is alone is written by its caller, at once; while others are under way the task gathers what has come
//! and writes it together. Nothing else happens here: what becomes of requests, watches and the connection is decided in
//! zk-proto, and which servers are tried, in `seek`.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::AbortHandle;
use tracing::debug;
use zk_proto::{
    Aftermath, Connection, Input, Limits, NotSent, Outcome, Output, Purpose, Reply, Request, Ticket, WatchId,
};

use super::dial::{Attached, Dialer, Refusal};
use super::seek::{Seeker, Tickets, judge_grant};
use super::transport::{ReadEnd, Source, WriteEnd};
use super::{
    Along, Answer, BoxFuture, CloseAnswer, ConnectFailure, ConnectSpec, Driver, DriverError, DriverEvent,
    DriverResult, Place,
};
use crate::hosts::Server;
use crate::incarnation::lock;
use crate::time::{BootTime, sleep_until, within};

/// Makes or resumes a session. Also answers when the connect request was sent.
pub(super) async fn connect(
    spec: ConnectSpec,
) -> Result<(Wire, mpsc::UnboundedReceiver<DriverEvent>, BootTime), ConnectFailure> {
    let dialer = Dialer::new(&spec).await?;
    let seeker = Seeker { resolver: Arc::clone(&spec.resolver), dialer };
    let mut said = Vec::new();
    let making = seeker.first(&spec.purpose, spec.deadline, &mut said);
    let attached = match within(spec.deadline, Box::pin(making)).await {
        Some(Ok(Some(attached))) => attached,
        Some(Err(Refusal::AuthFailed(reason))) => return Err(ConnectFailure::AuthFailed(reason)),
        Some(Err(Refusal::Expired)) if matches!(spec.purpose, Purpose::Resume(_)) => {
            return Err(ConnectFailure::Expired);
        }
        Some(Ok(None) | Err(_)) | None => return Err(failure(said)),
    };
    if let Purpose::Resume(ticket) = &spec.purpose
        && let Err(DriverEvent::Dead { reason }) =
            judge_grant(attached.address, ticket.timeout, attached.grant.ticket.timeout)
    {
        let server = Server { name: attached.address.ip().to_string(), port: attached.address.port() };
        return Err(ConnectFailure::Unavailable(vec![(server, reason)]));
    }
    let (events, receiver) = mpsc::unbounded_channel();
    let sent = attached.sent;
    let limits = Limits { request: spec.max_request, ..Limits::default() };
    let mut grant = attached.grant.clone();
    if let Purpose::Resume(ticket) = spec.purpose {
        grant.ticket.timeout = ticket.timeout;
    }
    let core = Arc::new(Core {
        state: Mutex::new(State {
            connection: Connection::new(now(), grant, limits),
            direct: None,
            events: Some(events),
            suspended: false,
            close: None,
            servers_changed: false,
            over: false,
        }),
        wake: Notify::new(),
    });
    let task = tokio::spawn(Arc::clone(&core).keep(seeker, attached)).abort_handle();
    Ok((Wire { core, task }, receiver, sent))
}

fn failure(said: Vec<(Server, Refusal)>) -> ConnectFailure {
    let (mut tls, mut others) = (Vec::new(), Vec::new());
    for (server, refusal) in said {
        match refusal {
            Refusal::Tls(reason) => tls.push(format!("{server}: {reason}")),
            Refusal::Unavailable(reason) | Refusal::AuthFailed(reason) => others.push((server, reason)),
            Refusal::Expired => {}
        }
    }
    // Another attempt fails alike.
    if tls.is_empty() { ConnectFailure::Unavailable(others) } else { ConnectFailure::Tls(tls.join("; ")) }
}

fn now() -> Duration {
    BootTime::now().as_duration()
}

/// One session.
pub(super) struct Wire {
    core: Arc<Core>,
    task: AbortHandle,
}

/// Who waits for a request.
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
        };
        // The caller may have given up.
        let _ = self.answer.send(result);
    }
}

impl Wire {
    /// As [`Driver::send`], to whoever waits already.
    pub(super) fn hand_over(
        &self,
        request: &Request<'_>,
        along: Along,
        answer: oneshot::Sender<DriverResult<Reply>>,
    ) {
        let Along { watch, heartbeat, place } = along;
        self.core.send(request, watch, heartbeat, Ticketed { answer, _place: place });
    }

    /// The driver can't go on.
    #[cfg_attr(not(feature = "zookeeper-async"), allow(dead_code, reason = "this one never fails by itself"))]
    pub(super) fn fail(&self, reason: String) {
        lock(&self.core.state).end(DriverEvent::Dead { reason });
        self.abort();
    }
}

impl Driver for Wire {
    fn ticket(&self) -> Ticket {
        lock(&self.core.state).connection.ticket().clone()
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

    fn close(&self, deadline: BootTime) -> BoxFuture<'static, CloseAnswer> {
        let (answer, answered) = oneshot::channel();
        let tag = Ticketed { answer, _place: None };
        {
            let mut state = lock(&self.core.state);
            if state.connection.is_attached() {
                state.handle(Input::Close(tag));
            } else if !state.over {
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
                Some(Ok(Ok(_))) => CloseAnswer::Acknowledged,
                Some(Ok(Err(DriverError::Ambiguous(_)))) => CloseAnswer::Sent,
                None if written => CloseAnswer::Sent,
                _ => CloseAnswer::Unknown,
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
    /// There is something for the task to do.
    wake: Notify,
}

struct State {
    connection: Connection<Ticketed>,
    /// Where a caller may write by itself.
    direct: Option<Arc<OwnedWriteHalf>>,
    /// `None` once the last word has been said.
    events: Option<mpsc::UnboundedSender<DriverEvent>>,
    /// The loss of the connection has been told, and its return has not.
    suspended: bool,
    /// The session is to be closed as soon as it has a connection again.
    close: Option<Ticketed>,
    servers_changed: bool,
    /// The last word has been said.
    over: bool,
}

impl State {
    /// Takes note of something, and does what follows from it.
    fn handle(&mut self, input: Input<'_, Ticketed>) {
        self.connection.handle(now(), input);
        while let Some(output) = self.connection.poll() {
            match output {
                Output::Ended { tag, outcome } => tag.end(outcome),
                Output::Watch { id, kind, path } => self.say(DriverEvent::Watch { watch: id, kind, path }),
                Output::Ready => {
                    if std::mem::take(&mut self.suspended) {
                        self.say(DriverEvent::Resumed);
                    }
                    if let Some(tag) = self.close.take() {
                        self.connection.handle(now(), Input::Close(tag));
                    }
                }
                Output::Lost { reason } => {
                    self.direct = None;
                    if !std::mem::replace(&mut self.suspended, true) {
                        self.say(DriverEvent::Suspended { reason });
                    }
                }
                Output::Expired => self.end(DriverEvent::Expired),
                Output::Closed => self.shut(),
            }
        }
    }

    fn say(&self, event: DriverEvent) {
        if let Some(events) = &self.events {
            // With nobody to listen the driver is about to be dropped.
            let _ = events.send(event);
        }
    }

    /// Says the last word.
    fn end(&mut self, event: DriverEvent) {
        if let Some(tag) = self.close.take()
            && event == DriverEvent::Expired
        {
            // It is no more, as was wanted.
            tag.end(Outcome::Answered(Ok(Reply::Empty)));
        }
        self.say(event);
        self.shut();
    }

    /// Nothing more is written or said, whoever waits is answered, and the socket closes: however long somebody keeps
    /// the driver.
    fn shut(&mut self) {
        self.over = true;
        self.events = None;
        self.close = None;
        self.handle(Input::Lost("the session was given up".to_owned()));
        self.direct = None;
    }

    /// Writes what is outgoing, as far as it goes at once.
    fn write_with(&mut self, write: impl FnOnce(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        // What waited while this process stood still is not written any more.
        self.handle(Input::Tick);
        if self.connection.outgoing().is_empty() {
            return Ok(());
        }
        let count = write(self.connection.outgoing())?;
        self.handle(Input::Written(count));
        Ok(())
    }
}

impl Source for Core {
    fn write_with(&self, write: impl FnOnce(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        lock(&self.state).write_with(write)
    }
}

/// What the task sees when it looks.
struct View {
    outgoing: bool,
    deadline: BootTime,
    suspects: bool,
    servers_changed: bool,
}

/// Why the task stops serving a connection.
enum Stop {
    /// The connection is of no more use; the session may be.
    Lost,
    /// The last word on the session has been said.
    Over,
}

impl Core {
    fn handle(&self, input: Input<'_, Ticketed>) {
        let mut state = lock(&self.state);
        state.handle(input);
        let wake = !state.connection.outgoing().is_empty() || !state.connection.is_attached();
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    fn send(&self, request: &Request<'_>, watch: Option<WatchId>, heartbeat: bool, tag: Ticketed) {
        let mut state = lock(&self.state);
        let alone = !state.connection.is_busy() && state.connection.outgoing().is_empty();
        state.handle(Input::Request { request, watch, heartbeat, tag });
        if alone && let Some(stream) = state.direct.clone() {
            // If it does not go now the task will try.
            let _ = state.write_with(|bytes| stream.try_write(bytes));
        }
        // A heartbeat moves the next deadline forward.
        let wake = heartbeat || !state.connection.outgoing().is_empty() || !state.connection.is_attached();
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
        let ticket = move || lock(&core.state).connection.ticket().clone();
        let tickets = Tickets { timeout: ticket().timeout, now: Arc::new(ticket) };
        let mut search = Search::new(seeker.clone(), tickets.clone());
        loop {
            if let Stop::Over = self.serve(&mut search, &mut link).await {
                return;
            }
            let lost = link.address;
            drop(link);
            // Later than the servers' own deadline by any reckoning.
            let patience = tickets.timeout + tickets.timeout / 2;
            // Whoever has been asked may have the session, which is why the connection was lost.
            let asked = search.asked();
            // On the heap: every session has this task, which would otherwise be as large as this for good.
            let seeker = seeker.clone();
            let tickets = tickets.clone();
            let seeking = Box::pin(async move {
                if let Some(asked) = asked {
                    // No longer than an answer takes that comes at all. One that was asked before more was seen on the
                    // connection that was lost has to be asked again.
                    match within(BootTime::now() + tickets.timeout / 4, asked).await {
                        Some(Ok(Some(found)))
                            if found.grant.ticket.last_zxid >= (tickets.now)().last_zxid =>
                        {
                            return Ok(found);
                        }
                        Some(Err(Refusal::Expired)) => return Err(Refusal::Expired),
                        Some(Ok(_) | Err(_)) | None => {}
                    }
                }
                seeker.seek(lost, tickets).await
            });
            let last = match within(BootTime::now() + patience, seeking).await {
                Some(Ok(attached)) => match self.judge(&attached) {
                    Ok(()) => {
                        link = self.link(attached, false);
                        continue;
                    }
                    Err(last) => last,
                },
                Some(Err(Refusal::Expired)) => DriverEvent::Expired,
                Some(Err(Refusal::AuthFailed(reason))) => DriverEvent::AuthFailed { reason },
                Some(Err(Refusal::Unavailable(reason) | Refusal::Tls(reason))) => {
                    DriverEvent::Dead { reason }
                }
                None => DriverEvent::Dead { reason: format!("no server has answered for {patience:?}") },
            };
            return lock(&self.state).end(last);
        }
    }

    /// The newest change that the session has seen.
    fn seen(&self) -> i64 {
        lock(&self.state).connection.ticket().last_zxid
    }

    fn judge(&self, attached: &Attached) -> Result<(), DriverEvent> {
        let before = lock(&self.state).connection.ticket().timeout;
        judge_grant(attached.address, before, attached.grant.ticket.timeout)
    }

    /// Takes the session to a connection.
    fn link(&self, attached: Attached, is_first: bool) -> Link {
        let Attached { address, stream, grant, rest, .. } = attached;
        let (reader, writer) = stream.split();
        let mut link = Link { address, reader, writer, input: rest };
        let mut state = lock(&self.state);
        if !is_first {
            state.handle(Input::Attached(grant));
        }
        state.direct = link.writer.direct();
        state.handle(Input::Received(&mut link.input));
        link
    }

    fn look(&self) -> Result<View, Stop> {
        let mut state = lock(&self.state);
        if state.over {
            return Err(Stop::Over);
        }
        let deadline = state.connection.deadline().ok_or(Stop::Lost)?;
        Ok(View {
            outgoing: !state.connection.outgoing().is_empty(),
            deadline: BootTime::from_duration(deadline),
            suspects: state.connection.suspects(now()),
            servers_changed: std::mem::take(&mut state.servers_changed),
        })
    }

    /// Serves one connection after another until one is lost with no other at hand.
    async fn serve(&self, search: &mut Search, link: &mut Link) -> Stop {
        let mut alarm = Alarm::default();
        loop {
            let view = match self.look() {
                Ok(view) => view,
                Err(stop) => return stop,
            };
            let deadline = view.deadline.min(search.update(&view, link.address));
            tokio::select! {
                biased;
                written = link.writer.write(self), if view.outgoing || link.writer.is_behind() => {
                    if let Err(error) = written {
                        self.handle(Input::Lost(error.to_string()));
                    }
                }
                read = link.reader.read(&mut link.input) => match read {
                    Ok(0) => self.handle(Input::Lost("the server closed the connection".to_owned())),
                    Ok(_) => {
                        self.handle(Input::Received(&mut link.input));
                        if link.input.is_empty() {
                            // Idle sessions hold no memory for it.
                            link.input = BytesMut::new();
                        }
                    }
                    Err(error) => self.handle(Input::Lost(error.to_string())),
                },
                // Whoever else is about to send goes into the same write.
                () = self.wake.notified() => tokio::task::yield_now().await,
                found = search.found() => {
                    let found = match found {
                        Ok(Some(attached)) => self.judge(&attached).map(|()| Some(attached)),
                        Err(Refusal::Expired) => Err(DriverEvent::Expired),
                        Ok(None) | Err(_) => Ok(None),
                    };
                    match found {
                        Ok(None) => {}
                        // It was asked whether it is as far as the session was then. Here more has been seen since, which
                        // it may not know: it has to be asked again.
                        Ok(Some(attached)) if attached.grant.ticket.last_zxid < self.seen() => {
                            self.handle(Input::Lost("the session moves to another server".to_owned()));
                        }
                        Ok(Some(attached)) => {
                            debug!(from = %link.address, to = %attached.address, "the session moves to a server that answers");
                            *link = self.link(attached, false);
                        }
                        Err(last) => lock(&self.state).end(last),
                    }
                }
                () = alarm.wait(deadline) => self.handle(Input::Tick),
            }
        }
    }
}

/// Ends the events with the task, should it panic: a session that nobody keeps must not look alive.
struct SilencedOnDrop<'a>(&'a Core);

impl Drop for SilencedOnDrop<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.over = true;
        state.events = None;
        state.direct = None;
    }
}

/// One connection.
struct Link {
    address: SocketAddr,
    reader: ReadEnd,
    writer: WriteEnd,
    /// The beginning of a frame.
    input: BytesMut,
}

/// A timer that is set anew only when it would ring too late: deadlines mostly move away.
#[derive(Default)]
struct Alarm(Option<(BootTime, BoxFuture<'static, ()>)>);

impl Alarm {
    /// # Cancel safety
    /// Cancel safe.
    async fn wait(&mut self, deadline: BootTime) {
        loop {
            if self.0.as_ref().is_none_or(|(at, _)| deadline < *at) {
                self.0 = Some((deadline, Box::pin(sleep_until(deadline))));
            }
            if let Some((_, sleep)) = &mut self.0 {
                sleep.as_mut().await;
            }
            self.0 = None;
            if BootTime::now() >= deadline {
                return;
            }
        }
    }
}

/// The way to a better server, beside the connection that goes on.
struct Search {
    seeker: Seeker,
    tickets: Tickets,
    under_way: Option<(Why, BoxFuture<'static, Found>)>,
    /// Whether the search has asked a server to take the session.
    asked: Arc<AtomicBool>,
    /// Not before this, after a search: when all servers are slow, another one is of no use.
    not_before: BootTime,
    pause: Duration,
}

type Found = Result<Option<Attached>, Refusal>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Suspicion,
    /// The servers to choose from have changed.
    Change,
}

impl Search {
    fn new(seeker: Seeker, tickets: Tickets) -> Self {
        let not_before = BootTime::from_duration(Duration::ZERO);
        Self { seeker, tickets, under_way: None, asked: Arc::default(), not_before, pause: Duration::ZERO }
    }

    /// Begins or calls off a search. Answers when to look again.
    fn update(&mut self, view: &View, present: SocketAddr) -> BootTime {
        let now = BootTime::now();
        if view.servers_changed {
            let leaving = self.seeker.clone().leave(present, self.tickets());
            self.under_way = Some((Why::Change, Box::pin(leaving)));
        }
        match &self.under_way {
            // It has answered after all. Once another one has been asked the session may be there.
            Some((Why::Suspicion, _)) if !view.suspects && !self.has_asked() => self.under_way = None,
            None if view.suspects && now >= self.not_before => {
                let timeout = self.tickets.timeout;
                // Each search in a row waits longer for the next; a quiet while makes the next one early again.
                let rested = now.duration_since(self.not_before) > timeout * 2;
                self.pause = if rested { timeout / 10 } else { (self.pause * 2).min(timeout) };
                self.not_before = now + self.pause.mul_f64(0.5 + fastrand::f64());
                let search = self.seeker.clone().beside(present, self.tickets());
                self.under_way = Some((Why::Suspicion, Box::pin(search)));
            }
            None if view.suspects => return self.not_before,
            _ => {}
        }
        BootTime::from_duration(Duration::MAX)
    }

    /// For a new search, which has asked nobody yet.
    fn tickets(&mut self) -> Tickets {
        self.asked = Arc::default();
        let (asked, now) = (Arc::clone(&self.asked), Arc::clone(&self.tickets.now));
        let now = Arc::new(move || {
            asked.store(true, Ordering::Relaxed);
            now()
        });
        Tickets { now, ..self.tickets }
    }

    fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// The search that is under way, if it has asked somebody; otherwise it is called off.
    fn asked(&mut self) -> Option<BoxFuture<'static, Found>> {
        let (_, search) = self.under_way.take()?;
        self.has_asked().then_some(search)
    }

    /// What a search has come to; never where none is under way.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn found(&mut self) -> Found {
        match &mut self.under_way {
            Some((_, search)) => {
                let found = search.await;
                self.under_way = None;
                found
            }
            None => std::future::pending().await,
        }
    }
}
