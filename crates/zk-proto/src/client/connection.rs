//! A session's side of the wire, over one transport after another.
//!
//! # Driving it
//! Whatever happens goes in through [`Connection::handle`]; then [`Connection::poll`] is called until it has nothing more
//! to say, the bytes of [`Connection::outgoing`] are written and [`Input::Written`] says how many were, and by
//! [`Connection::deadline`] at the latest [`Input::Tick`] comes in. Time is what the caller says it is: any clock that
//! does not go back.
//!
//! # The end of a request
//! Each request ends in exactly one [`Outcome`]: answered, certainly not sent, or perhaps applied. A request is certainly
//! not sent if none of its bytes was written to the transport.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};

use super::handshake::{Grant, Ticket};
use super::pace::Pace;
use super::watches::{Look, Removal, WatchId, WatchKind, Watches};
use crate::codec::{
    ErrorCode, EventKind, Malformed, OpCode, Reply, ReplyHeader, Request, WatchEvent, WatchMode, cut_frame,
    xid,
};

/// What is accepted and sent at the most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a request, without its length. A server closes the connection over a longer one, with everything that is
    /// under way on it: its `jute.maxbuffer`, 1,048,575 by default.
    pub request: usize,
    /// Bytes of a reply, without its length. Whoever sends more is taken for something that is no ZooKeeper.
    pub reply: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { request: 0xf_ffff, reply: 16 << 20 }
    }
}

/// What happens to the connection. `T` is whatever the caller knows a request by.
#[derive(Debug)]
pub enum Input<'a, T> {
    /// A handshake for this session has been granted, on a transport that takes the place of the one before.
    Attached(Grant),
    /// Bytes have arrived. Whole frames are taken out.
    Received(&'a mut BytesMut),
    /// So many bytes of [`Connection::outgoing`] have been written to the transport.
    Written(usize),
    /// The transport has failed.
    Lost(String),
    /// A request is to be sent.
    Request {
        /// What is asked for.
        request: &'a Request<'a>,
        /// The watch that a successful reply arms; the request must ask for one.
        watch: Option<WatchId>,
        /// Whether it is sent to learn how the server does: the time that its answer takes is what [`Connection::suspects`]
        /// goes by.
        heartbeat: bool,
        /// By which its outcome is known.
        tag: T,
    },
    /// Nobody waits for that watch any more.
    Forget(WatchId),
    /// The session is to be closed. Nothing else is sent after that.
    Close(T),
    /// Nothing but time has passed.
    Tick,
}

/// What the connection has to say.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<T> {
    /// A request has ended. In the order in which they were sent.
    Ended {
        /// Of the request.
        tag: T,
        /// How.
        outcome: Outcome,
    },
    /// A watch saw something. A one-shot watch is no longer armed.
    Watch {
        /// Which.
        id: WatchId,
        /// What it saw.
        kind: WatchKind,
        /// Where.
        path: String,
    },
    /// On the transport that was attached each watch is armed again or has fired.
    Ready,
    /// The transport is of no more use, and the session is to be taken to another. What was under way has ended.
    Lost {
        /// Why.
        reason: String,
    },
    /// The server says that the session has expired. Nothing follows.
    Expired,
    /// The session is closed, as it was asked to be. Nothing follows.
    Closed,
}

/// How a request ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server has answered.
    Answered(Result<Reply, ErrorCode>),
    /// Nothing of it was written: it had no effect and never will.
    NotSent(NotSent),
    /// It may have been applied, or may be applied later, as long as the session lives.
    PerhapsApplied(String),
}

/// Why a request was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// There is no transport, or it was lost before the request was written.
    #[error("there is no connection: {0}")]
    Disconnected(String),
    /// The session is being closed.
    #[error("the session is being closed")]
    Closing,
    /// Longer than [`Limits::request`]. It would cost everybody on the session the connection.
    #[error("the request takes {size} bytes, and servers take no more than {limit} (jute.maxbuffer)")]
    TooLarge {
        /// Of the request.
        size: usize,
        /// Of the server.
        limit: usize,
    },
}

/// The session's side of the wire.
///
/// Its methods are of three kinds: those that *look* ([`ticket`](Self::ticket), [`outgoing`](Self::outgoing),
/// [`deadline`](Self::deadline), [`suspects`](Self::suspects)), the one that takes *events* ([`handle`](Self::handle)),
/// and the one that tells what *follows* ([`poll`](Self::poll)).
pub struct Connection<T> {
    ticket: Ticket,
    limits: Limits,
    link: Option<Link<T>>,
    /// Why there is no link.
    lost: String,
    last_xid: i32,
    watches: Watches,
    pace: Pace,
    /// When something was handled last.
    handled: Duration,
    outputs: VecDeque<Output<T>>,
}

/// Queues that were longer hold no memory while they are empty.
const ROOM: usize = 8;

/// What goes with one transport.
struct Link<T> {
    /// Not written yet.
    outgoing: BytesMut,
    /// Bytes that were written on this transport.
    written: u64,
    pending: VecDeque<Pending<T>>,
    /// When the heartbeats were sent that are not answered, oldest first.
    heartbeats: VecDeque<Duration>,
    heard: Duration,
    /// When something was last put into `outgoing`.
    spoken: Duration,
    /// When the ping was sent that is not answered.
    pinged: Option<Duration>,
    /// Answers to `SetWatches` that are still to come; watches are armed once there are none.
    settling: usize,
    closing: bool,
}

struct Pending<T> {
    xid: i32,
    op: OpCode,
    /// Where it begins among the bytes of this transport.
    begins: u64,
    watch: Option<Wish>,
    is_heartbeat: bool,
    /// `None`: nobody waits for it.
    tag: Option<T>,
}

/// A watch that a successful reply arms.
struct Wish {
    id: WatchId,
    path: String,
    /// Of a request for a lasting watch.
    lasting: Option<Look>,
    /// Whether the server is asked for a recursive one, for this watch or for another one of the path.
    recursive: bool,
    /// Whether the server arms it. Where a lasting watch tells of the path already, it need not.
    on_server: bool,
    /// Given up before it was armed.
    forgotten: bool,
}

impl<T> Connection<T> {
    /// The session of a grant, on the transport that it was granted on.
    #[must_use]
    pub fn new(now: Duration, grant: Grant, limits: Limits) -> Self {
        let mut connection = Self {
            ticket: grant.ticket.clone(),
            limits,
            link: None,
            lost: String::new(),
            last_xid: 0,
            watches: Watches::default(),
            pace: Pace::default(),
            handled: now,
            outputs: VecDeque::new(),
        };
        connection.attach(now, grant);
        connection
    }

    /// What takes the session to another transport.
    #[must_use]
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// What is to be written, oldest first.
    #[must_use]
    pub fn outgoing(&self) -> &[u8] {
        self.link.as_ref().map_or(&[], |link| &link.outgoing)
    }

    /// Whether requests are sent at the moment.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.link.is_some()
    }

    /// Whether requests wait for answers.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !link.pending.is_empty())
    }

    /// Whether the request to close the session has been written.
    #[must_use]
    pub fn is_close_written(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.closing && link.outgoing.is_empty())
    }

    /// When [`Input::Tick`] is due; `None` without a transport.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let link = self.link.as_ref()?;
        let silent = link.heard + self.silence();
        let next = match link.pinged {
            None => silent.min(link.spoken + self.ping_interval()),
            Some(_) => silent,
        };
        // Once suspicious it stays so until something is answered, which is no matter of time.
        let suspicious = self.suspicious_at().filter(|at| *at > self.handled);
        Some(suspicious.map_or(next, |at| next.min(at)))
    }

    /// Whether a heartbeat has been unanswered for several of its usual round trips: another server may do better.
    #[must_use]
    pub fn suspects(&self, now: Duration) -> bool {
        self.suspicious_at().is_some_and(|at| now >= at)
    }

    /// Takes note of what has happened at `now`.
    pub fn handle(&mut self, now: Duration, input: Input<'_, T>) {
        // Its timers wake it every tenth of the session timeout. A process that stood still for longer than half of it
        // must not write what was meant to be written before.
        let stood_still = now.saturating_sub(self.handled);
        self.handled = now;
        if self.link.is_some() && stood_still >= self.ticket.timeout / 2 {
            self.lose(format!("this process stood still for {stood_still:?}"));
        }
        match input {
            Input::Attached(grant) => self.attach(now, grant),
            Input::Received(bytes) => self.receive(now, bytes),
            Input::Written(count) => {
                if let Some(link) = &mut self.link {
                    let count = count.min(link.outgoing.len());
                    link.outgoing.advance(count);
                    link.written += count as u64;
                    if link.outgoing.is_empty() {
                        // Idle sessions hold no memory for it.
                        link.outgoing = BytesMut::new();
                    }
                }
            }
            Input::Lost(reason) => self.lose(reason),
            Input::Request { request, watch, heartbeat, tag } => {
                self.request(now, request, watch, heartbeat, tag);
            }
            Input::Forget(id) => self.forget(now, id),
            Input::Close(tag) => self.close(now, tag),
            Input::Tick => {}
        }
        self.keep_alive(now);
    }

    /// What follows from it, one after the other.
    pub fn poll(&mut self) -> Option<Output<T>> {
        let output = self.outputs.pop_front();
        if output.is_none() && self.outputs.capacity() > ROOM {
            self.outputs = VecDeque::new();
        }
        output
    }

    /// How long a transport may be silent before it is given up.
    fn silence(&self) -> Duration {
        self.ticket.timeout * 3 / 10
    }

    fn ping_interval(&self) -> Duration {
        self.ticket.timeout / 10
    }

    fn suspicious_at(&self) -> Option<Duration> {
        let link = self.link.as_ref()?;
        let oldest = link.heartbeats.front().copied().into_iter().chain(link.pinged).min()?;
        Some(oldest + self.pace.suspicious_after(self.ticket.timeout))
    }

    fn attach(&mut self, now: Duration, grant: Grant) {
        self.lose("the session was taken to another server".to_owned());
        // Another server has another pace. Where all have become slow, it would be suspected at once by that of before.
        self.pace = Pace::default();
        // The timeout of the beginning stays: whether another one will do is the caller's to judge.
        self.ticket.password = grant.ticket.password;
        let mut link = Link {
            outgoing: BytesMut::new(),
            written: 0,
            pending: VecDeque::new(),
            heartbeats: VecDeque::new(),
            heard: now,
            spoken: now,
            pinged: None,
            settling: 0,
            closing: false,
        };
        self.watches.set_again(self.ticket.last_zxid, |request| {
            request.encode(xid::SET_WATCHES, &mut link.outgoing);
            link.settling += 1;
        });
        self.link = Some(link);
        self.settle();
    }

    /// Once every watch is armed again.
    fn settle(&mut self) {
        if self.link.as_ref().is_none_or(|link| link.settling > 0) {
            return;
        }
        for (id, path) in self.watches.lasting() {
            self.outputs.push_back(Output::Watch { id, kind: WatchKind::Gap, path });
        }
        self.outputs.push_back(Output::Ready);
    }

    fn request(
        &mut self,
        now: Duration,
        request: &Request<'_>,
        watch: Option<WatchId>,
        is_heartbeat: bool,
        tag: T,
    ) {
        let watch = watch.and_then(|id| {
            let path = request.path()?.to_owned();
            let lasting = match request {
                Request::AddWatch { mode, .. } if *mode == WatchMode::Recursive.number() => {
                    Some(Look::Recursive)
                }
                Request::AddWatch { .. } => Some(Look::Persistent),
                _ => None,
            };
            let on_server = lasting.is_some() || !self.tells_of(&path);
            let recursive =
                lasting == Some(Look::Recursive) || (lasting.is_some() && self.is_recursive(&path));
            Some(Wish { id, path, lasting, recursive, on_server, forgotten: false })
        });
        let sent = match &watch {
            // It would take the place of the lasting one.
            Some(wish) if !wish.on_server => self.send(now, &without_watch(request)),
            Some(wish) if wish.recursive => {
                let (path, mode) = (Cow::Borrowed(wish.path.as_str()), WatchMode::Recursive.number());
                self.send(now, &Request::AddWatch { path, mode })
            }
            _ => self.send(now, request),
        };
        self.expect(sent, request.op(), watch, is_heartbeat.then_some(now), Some(tag));
    }

    /// Awaits the reply to what was sent, or tells that nothing was.
    fn expect(
        &mut self,
        sent: Result<(i32, u64), NotSent>,
        op: OpCode,
        watch: Option<Wish>,
        heartbeat: Option<Duration>,
        tag: Option<T>,
    ) {
        match (sent, &mut self.link, tag) {
            (Ok((xid, begins)), Some(link), tag) => {
                link.heartbeats.extend(heartbeat);
                let is_heartbeat = heartbeat.is_some();
                link.pending.push_back(Pending { xid, op, begins, watch, is_heartbeat, tag });
            }
            (Err(reason), _, Some(tag)) => {
                self.outputs.push_back(Output::Ended { tag, outcome: Outcome::NotSent(reason) });
            }
            _ => {}
        }
    }

    /// Whether a lasting watch tells of the znode, or is about to.
    fn tells_of(&self, path: &str) -> bool {
        let mut pending = self.link.iter().flat_map(|link| &link.pending);
        self.watches.has_lasting(path)
            || pending.any(|pending| {
                pending.op == OpCode::ADD_WATCH
                    && pending.watch.as_ref().is_some_and(|wish| wish.path == path)
            })
    }

    /// Whether the server watches the znode recursively, or is about to.
    fn is_recursive(&self, path: &str) -> bool {
        let mut pending = self.link.iter().flat_map(|link| &link.pending);
        self.watches.is_recursive(path)
            || pending
                .any(|pending| pending.watch.as_ref().is_some_and(|wish| wish.recursive && wish.path == path))
    }

    /// Puts a request behind the others; answers its number and where it begins.
    fn send(&mut self, now: Duration, request: &Request<'_>) -> Result<(i32, u64), NotSent> {
        let Some(link) = &mut self.link else { return Err(NotSent::Disconnected(self.lost.clone())) };
        if link.closing {
            return Err(NotSent::Closing);
        }
        let before = link.outgoing.len();
        // Positive, for the negative ones mean something else.
        let xid = self.last_xid.checked_add(1).unwrap_or(1);
        request.encode(xid, &mut link.outgoing);
        let size = link.outgoing.len() - before - 4;
        if size > self.limits.request {
            link.outgoing.truncate(before);
            return Err(NotSent::TooLarge { size, limit: self.limits.request });
        }
        self.last_xid = xid;
        link.spoken = now;
        Ok((xid, link.written + before as u64))
    }

    /// A request of the connection's own, whose answer says nothing that matters.
    fn send_own(&mut self, now: Duration, request: &Request<'_>) {
        let sent = self.send(now, request);
        self.expect(sent, request.op(), None, None, None);
    }

    fn close(&mut self, now: Duration, tag: T) {
        let sent = self.send(now, &Request::CloseSession);
        if let (Ok(_), Some(link)) = (&sent, &mut self.link) {
            link.closing = true;
        }
        self.expect(sent, OpCode::CLOSE_SESSION, None, None, Some(tag));
    }

    fn forget(&mut self, now: Duration, id: WatchId) {
        let mut pending = self.link.iter_mut().flat_map(|link| &mut link.pending);
        let wish = pending.find_map(|pending| pending.watch.as_mut().filter(|wish| wish.id == id));
        if let Some(wish) = wish {
            wish.forgotten = true;
            return;
        }
        self.give_up(now, id);
    }

    /// The same for a watch that is armed.
    fn give_up(&mut self, now: Duration, id: WatchId) {
        let mut pending = self.link.iter().flat_map(|link| &link.pending);
        let is_wanted = |path: &str| {
            pending.any(|pending| {
                let wish = pending.watch.as_ref().filter(|wish| wish.lasting.is_some());
                wish.is_some_and(|wish| wish.path == path)
            })
        };
        let removal = self.watches.forget(id, is_wanted);
        self.remove(now, removal);
    }

    /// Has the server remove a watch, and those that nobody waits for where they have become too many.
    fn remove(&mut self, now: Duration, removal: Option<Removal>) {
        let pending = self.link.as_ref().map(|link| &link.pending);
        let is_wanted = |path: &str| {
            let mut wishes = pending.into_iter().flatten().filter_map(|pending| pending.watch.as_ref());
            wishes.any(|wish| wish.path == path)
        };
        let excess = self.watches.excess(is_wanted);
        for Removal { path, kind, gaps } in removal.into_iter().chain(excess) {
            for id in gaps {
                self.outputs.push_back(Output::Watch { id, kind: WatchKind::Gap, path: path.clone() });
            }
            let (path, kind) = (path.into(), kind.number());
            self.send_own(now, &Request::RemoveWatches { path, kind });
        }
    }

    fn receive(&mut self, now: Duration, bytes: &mut BytesMut) {
        while self.link.is_some() {
            match cut_frame(bytes, self.limits.reply) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    if let Err(malformed) = self.message(now, &frame) {
                        self.lose(malformed.to_string());
                    }
                }
                Err(malformed) => self.lose(malformed.to_string()),
            }
        }
    }

    fn message(&mut self, now: Duration, frame: &Bytes) -> Result<(), Malformed> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let header = ReplyHeader::decode(frame)?;
        link.heard = now;
        match header.xid {
            xid::EVENT => self.event(WatchEvent::decode(frame)?),
            xid::PING => {
                let sent = link.pinged.take().ok_or(Malformed("the answer to a ping that was not sent"))?;
                self.pace.measured(now.saturating_sub(sent));
            }
            xid::SET_WATCHES => {
                let left = link.settling.checked_sub(1);
                link.settling = left.ok_or(Malformed("an answer to watches that were not set"))?;
                if header.error != ErrorCode::OK {
                    // Without them changes would be missed: begin again on another connection.
                    return Err(Malformed("the server refused to set the watches again"));
                }
                self.settle();
            }
            _ => return self.reply(now, header, frame),
        }
        Ok(())
    }

    fn event(&mut self, event: WatchEvent) {
        let WatchEvent { kind, path, .. } = event;
        // Not about a znode but about the connection, of which this side knows more.
        if kind == EventKind::NONE {
            return;
        }
        // Until the watches are armed again, what is told is about one-shot watches. Lasting ones have a gap then, which
        // comes after it.
        let settled = self.link.as_ref().is_some_and(|link| link.settling == 0);
        let (told, fired) = self.watches.fire(kind, &path, settled);
        for id in fired {
            self.outputs.push_back(Output::Watch { id, kind: told, path: path.clone() });
        }
        if settled && let Some((parent, fired)) = self.watches.fire_parent(kind, &path) {
            for id in fired {
                let (kind, path) = (WatchKind::ChildrenChanged, parent.clone());
                self.outputs.push_back(Output::Watch { id, kind, path });
            }
        }
    }

    fn reply(&mut self, now: Duration, header: ReplyHeader, frame: &Bytes) -> Result<(), Malformed> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let Some(oldest) = link.pending.front().filter(|oldest| oldest.xid == header.xid) else {
            return Err(Malformed("a reply to another request than the oldest"));
        };
        let answer = match header.error {
            ErrorCode::OK => Ok(Reply::decode(oldest.op, frame)?),
            error => Err(error),
        };
        // Only now: a reply that is no good leaves its request without one, and it ends with the transport.
        let Some(Pending { op, watch, is_heartbeat, tag, .. }) = link.pending.pop_front() else {
            return Ok(());
        };
        if is_heartbeat && let Some(sent) = link.heartbeats.pop_front() {
            self.pace.measured(now.saturating_sub(sent));
        }
        if link.pending.is_empty() && link.pending.capacity() > ROOM {
            link.pending = VecDeque::new();
            link.heartbeats = VecDeque::new();
        }
        if header.zxid > 0 {
            self.ticket.last_zxid = header.zxid;
        }
        let armed = watch.and_then(|wish| Some((armed_look(op, &wish, &answer)?, wish)));
        if let Some(tag) = tag {
            self.outputs.push_back(Output::Ended { tag, outcome: Outcome::Answered(answer) });
        }
        if let Some((look, wish)) = armed {
            self.arm(now, look, wish);
        }
        match header.error {
            ErrorCode::SESSION_EXPIRED => {
                self.lose("the session has expired".to_owned());
                self.outputs.push_back(Output::Expired);
            }
            ErrorCode::SESSION_MOVED => self.lose("another server serves the session".to_owned()),
            _ if op == OpCode::CLOSE_SESSION => {
                self.link = None;
                self.outputs.push_back(Output::Closed);
            }
            _ => {}
        }
        Ok(())
    }

    fn arm(&mut self, now: Duration, look: Look, wish: Wish) {
        let Wish { id, path, recursive, on_server, forgotten, .. } = wish;
        if !on_server && !self.watches.has_lasting(&path) {
            // The lasting watch that was to tell of it has been refused, or given up meanwhile.
            if !forgotten {
                self.outputs.push_back(Output::Watch { id, kind: WatchKind::Gap, path });
            }
            return;
        }
        if recursive {
            self.watches.note_recursive(&path);
        }
        self.watches.arm(look, path, id);
        if forgotten {
            self.give_up(now, id);
        }
    }

    /// Ends what goes with the transport.
    fn lose(&mut self, reason: String) {
        let Some(link) = self.link.take() else { return };
        for Pending { begins, tag, .. } in link.pending {
            let outcome = if begins >= link.written {
                Outcome::NotSent(NotSent::Disconnected(reason.clone()))
            } else {
                Outcome::PerhapsApplied(reason.clone())
            };
            if let Some(tag) = tag {
                self.outputs.push_back(Output::Ended { tag, outcome });
            }
        }
        self.lost.clone_from(&reason);
        self.outputs.push_back(Output::Lost { reason });
    }

    /// Notices silence, and pings.
    fn keep_alive(&mut self, now: Duration) {
        let (silence, interval) = (self.silence(), self.ping_interval());
        let Some(link) = &mut self.link else { return };
        let silent = now.saturating_sub(link.heard);
        if silent >= silence {
            self.lose(format!("the server has been silent for {silent:?}"));
        } else if link.pinged.is_none() && now.saturating_sub(link.spoken) >= interval {
            Request::Ping.encode(xid::PING, &mut link.outgoing);
            link.pinged = Some(now);
            link.spoken = now;
        }
    }
}

impl<T> fmt::Debug for Connection<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("ticket", &self.ticket)
            .field("attached", &self.is_attached())
            .finish_non_exhaustive()
    }
}

/// The watch that the server holds after that answer.
fn armed_look(op: OpCode, wish: &Wish, answer: &Result<Reply, ErrorCode>) -> Option<Look> {
    match (op, answer) {
        (OpCode::EXISTS | OpCode::GET_DATA, Ok(_)) => Some(Look::Data),
        (OpCode::EXISTS, Err(ErrorCode::NO_NODE)) => Some(Look::Absence),
        (OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2, Ok(_)) => Some(Look::Children),
        (OpCode::ADD_WATCH, Ok(_)) => wish.lasting,
        _ => None,
    }
}

/// The same read without a watch.
fn without_watch<'a>(request: &'a Request<'_>) -> Request<'a> {
    match request {
        Request::Exists { path, .. } => Request::Exists { path: Cow::Borrowed(path), watch: false },
        Request::GetData { path, .. } => Request::GetData { path: Cow::Borrowed(path), watch: false },
        Request::GetChildren { path, with_stat, .. } => {
            Request::GetChildren { path: Cow::Borrowed(path), watch: false, with_stat: *with_stat }
        }
        other => other.clone(),
    }
}
