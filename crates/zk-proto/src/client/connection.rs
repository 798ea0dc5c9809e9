//! A session's side of the wire, over one transport after another.
//!
//! # Driving it
//! Pass every event to [`Connection::handle`]. Then call [`Connection::poll`] until it returns nothing more, write the
//! bytes of [`Connection::outgoing`], and report their number by [`Input::Written`]. Pass [`Input::Tick`] by
//! [`Connection::deadline`] at the latest. The time is that of any clock of the caller's that does not go back.
//!
//! # The end of a request
//! Each request ends in exactly one [`Outcome`]: answered, certainly not sent, or perhaps applied; a read also as answered
//! by too much. A request is certainly not sent if none of its bytes was written to the transport.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};

use super::dialogue::{Input, Limits, NotSent, Outcome, Output};
use super::pace::{Check, Pace, WaitsFor};
use super::pending_watch::{PendingWatch, without_watch};
use super::ticket::Ticket;
use super::watches::{Look, Removal, WatchId, WatchKind, Watches};
use crate::codec::{
    Aftermath, ErrorCode, EventKind, Malformed, OpCode, Reply, ReplyHeader, Request, WatchEvent, WatchMode,
    cut_frame, frame_length, xid,
};

/// The session's side of the wire.
/// It has three kinds of methods: *queries* ([`ticket`](Self::ticket), [`outgoing`](Self::outgoing),
/// [`deadline`](Self::deadline), [`suspects`](Self::suspects)), the one that takes *inputs* ([`handle`](Self::handle)), and
/// the one that returns *outputs* ([`poll`](Self::poll)).
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

/// The state of one transport.
struct Link<T> {
    /// Not written yet.
    outgoing: BytesMut,
    /// Bytes that were written on this transport.
    written: u64,
    pending: VecDeque<Pending<T>>,
    /// The heartbeats that are not answered, oldest first.
    heartbeats: VecDeque<Check>,
    last_received: Duration,
    /// When something was last put into `outgoing`.
    spoken: Duration,
    /// The pings that are not answered, oldest first.
    pings: VecDeque<Check>,
    /// Answers to `SetWatches` that are still to come; watches are armed once there are none.
    settling: usize,
    /// How much of a reply beyond the limit is still to come.
    skipping: usize,
    closing: bool,
}

struct Pending<T> {
    xid: i32,
    op: OpCode,
    /// Where it begins among the bytes of this transport.
    begins: u64,
    watch: Option<PendingWatch>,
    is_heartbeat: bool,
    /// `None`: no caller waits for it.
    tag: Option<T>,
}

/// Whether a server that answers so is to be left for another one: it speaks of the session or of itself, not of the
/// request. An overloaded one is not left, because the others would get its load.
fn does_not_serve(error: ErrorCode, is_heartbeat: bool) -> bool {
    match error {
        ErrorCode::SESSION_EXPIRED | ErrorCode::SESSION_MOVED => true,
        ErrorCode::OK | ErrorCode::THROTTLED => false,
        _ => error.refuses_client() || (is_heartbeat && error.aftermath() != Aftermath::Refused),
    }
}

/// The requests that wait for a reply.
fn pending_watches<T>(link: Option<&Link<T>>) -> impl Iterator<Item = &PendingWatch> {
    link.into_iter().flat_map(|link| &link.pending).filter_map(|pending| pending.watch.as_ref())
}

/// The longest session timeout that the protocol can express.
const LONGEST: Duration = Duration::from_millis(i32::MAX as u64);

impl<T> Connection<T> {
    /// The session of a ticket, on the transport that it was granted on. Times of the ticket and of the limits that are longer
    /// than 2^31 - 1 ms, the longest that a server grants, count as that.
    #[must_use]
    pub fn new(now: Duration, mut ticket: Ticket, mut limits: Limits) -> Self {
        ticket.timeout = ticket.timeout.min(LONGEST);
        limits.suspect_after = limits.suspect_after.map(|after| after.min(LONGEST));
        let mut connection = Self {
            pace: Pace::new(ticket.timeout, limits.suspect_after),
            ticket: ticket.clone(),
            limits,
            link: None,
            lost: String::new(),
            last_xid: 0,
            watches: Watches::default(),
            handled: now,
            outputs: VecDeque::new(),
        };
        connection.attach(now, ticket);
        connection
    }

    /// The ticket that resumes the session on another transport.
    #[must_use]
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// The bytes to write, oldest first.
    #[must_use]
    pub fn outgoing(&self) -> &[u8] {
        self.link.as_ref().map_or(&[], |link| &link.outgoing)
    }

    /// Whether requests can be sent now.
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
        let silent = link.last_received + self.silence();
        let next = self.ping_at().map_or(silent, |at| silent.min(at));
        // Once suspected, a server stays so until it answers, whatever the time.
        let suspicious = self.suspicious_at().filter(|at| *at > self.handled);
        Some(suspicious.map_or(next, |at| next.min(at)))
    }

    /// Whether a heartbeat or a ping has been unanswered for several of its usual round trips, or for about
    /// [`Limits::suspect_after`]: another server may be faster.
    #[must_use]
    pub fn suspects(&self, now: Duration) -> bool {
        self.suspicious_at().is_some_and(|at| now >= at)
    }

    /// When the oldest heartbeat or ping was sent that is unanswered.
    #[must_use]
    pub fn unanswered_since(&self) -> Option<Duration> {
        self.checks().map(|check| check.sent).min()
    }

    /// Handles what has happened at `now`.
    pub fn handle(&mut self, now: Duration, input: Input<'_, T>) {
        // Its timers wake it every tenth of the session timeout. A process that was frozen for longer than half of it must
        // not write what it should have written before.
        let stood_still = now.saturating_sub(self.handled);
        self.handled = now;
        if self.link.is_some() && stood_still >= self.ticket.timeout / 2 {
            self.lose(format!("this process was frozen for {stood_still:?}"));
        }
        match input {
            Input::Attached(ticket) => self.attach(now, ticket),
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

    /// The next output.
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

    /// When the next ping is due: to keep the session alive, and to check a server from which nothing arrives.
    fn ping_at(&self) -> Option<Duration> {
        let link = self.link.as_ref()?;
        let alive = link.pings.is_empty().then(|| link.spoken + self.pace.ping_interval());
        let check = self.pace.check_interval(link.pings.len()).map(|interval| {
            let checks = link.pings.back().into_iter().chain(link.heartbeats.back());
            checks.map(|check| check.sent).fold(link.last_received, Duration::max) + interval
        });
        alive.into_iter().chain(check).min()
    }

    /// The heartbeats and pings that are unanswered.
    fn checks(&self) -> impl Iterator<Item = &Check> {
        self.link.iter().flat_map(|link| link.heartbeats.iter().chain(&link.pings))
    }

    fn suspicious_at(&self) -> Option<Duration> {
        self.checks().map(|check| self.pace.suspicious_at(*check)).min()
    }

    fn attach(&mut self, now: Duration, granted: Ticket) {
        self.lose("the session was moved to another server".to_owned());
        // Another server has other round trips. If all have become slow, it would be suspected at once by the former ones.
        self.pace = Pace::new(self.ticket.timeout, self.limits.suspect_after);
        // The first timeout stays: the caller decides whether another one is acceptable.
        self.ticket.password = granted.password;
        let mut link = Link {
            outgoing: BytesMut::new(),
            written: 0,
            pending: VecDeque::new(),
            heartbeats: VecDeque::new(),
            last_received: now,
            spoken: now,
            pings: VecDeque::new(),
            settling: 0,
            skipping: 0,
            closing: false,
        };
        self.watches.set_again(self.ticket.last_zxid, self.limits.request, |request| {
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
            self.notify([id], WatchKind::Gap, &path);
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
            let mut wanted = PendingWatch::new(id, request)?;
            let path = wanted.path.as_str();
            let mut others = pending_watches(self.link.as_ref()).filter(|other| other.path == path);
            if wanted.lasting.is_none() {
                wanted.on_server =
                    !self.watches.has_lasting(path) && !others.any(|other| other.lasting.is_some());
            } else if !wanted.recursive {
                wanted.recursive = self.watches.is_recursive(path) || others.any(|other| other.recursive);
            }
            Some(wanted)
        });
        let sent = match &watch {
            // It would replace the lasting one.
            Some(wanted) if !wanted.on_server => self.send(now, &without_watch(request)),
            Some(wanted) if wanted.recursive => {
                let (path, mode) = (Cow::Borrowed(wanted.path.as_str()), WatchMode::Recursive.number());
                self.send(now, &Request::AddWatch { path, mode })
            }
            _ => self.send(now, request),
        };
        let waits_for = if request.op().needs_quorum() { WaitsFor::Quorum } else { self.next_waits_for() };
        let check = is_heartbeat.then_some(Check { sent: now, waits_for });
        self.expect(sent, request.op(), watch, check, Some(tag));
    }

    /// What the answer to the next request waits for: those before it are answered first.
    fn next_waits_for(&self) -> WaitsFor {
        let mut pending = self.link.iter().flat_map(|link| &link.pending);
        if pending.any(|pending| pending.op.needs_quorum()) { WaitsFor::Quorum } else { WaitsFor::Server }
    }

    /// Awaits the reply to a request, or reports that it was not sent.
    fn expect(
        &mut self,
        sent: Result<(i32, u64), NotSent>,
        op: OpCode,
        watch: Option<PendingWatch>,
        heartbeat: Option<Check>,
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

    /// Queues a request; returns its number and where it begins.
    fn send(&mut self, now: Duration, request: &Request<'_>) -> Result<(i32, u64), NotSent> {
        let Some(link) = &mut self.link else { return Err(NotSent::Disconnected(self.lost.clone())) };
        if link.closing {
            return Err(NotSent::Closing);
        }
        let before = link.outgoing.len();
        // Of most requests, at once.
        link.outgoing.reserve(128);
        // Positive: negative numbers are reserved.
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

    fn close(&mut self, now: Duration, tag: T) {
        let sent = self.send(now, &Request::CloseSession);
        if let (Ok(_), Some(link)) = (&sent, &mut self.link) {
            link.closing = true;
        }
        self.expect(sent, OpCode::CLOSE_SESSION, None, None, Some(tag));
    }

    fn forget(&mut self, now: Duration, id: WatchId) {
        let mut pending = self.link.iter_mut().flat_map(|link| &mut link.pending);
        let wanted = pending.find_map(|pending| pending.watch.as_mut().filter(|wanted| wanted.id == id));
        if let Some(wanted) = wanted {
            wanted.forgotten = true;
            return;
        }
        self.give_up(now, id);
    }

    /// The same for a watch that is armed.
    fn give_up(&mut self, now: Duration, id: WatchId) {
        let is_wanted = |path: &str| {
            pending_watches(self.link.as_ref()).any(|wanted| wanted.lasting.is_some() && wanted.path == path)
        };
        let removal = self.watches.forget(id, is_wanted);
        self.remove(now, removal);
    }

    /// Has the server remove a watch, and the oldest of those that have been given up if they are too many.
    fn remove(&mut self, now: Duration, removal: Option<Removal>) {
        let is_wanted = |path: &str| pending_watches(self.link.as_ref()).any(|wanted| wanted.path == path);
        let excess = self.watches.excess(is_wanted);
        for Removal { path, kind, gaps } in removal.into_iter().chain(excess) {
            self.notify(gaps, WatchKind::Gap, &path);
            let request = Request::RemoveWatches { path: path.into(), kind: kind.number() };
            let sent = self.send(now, &request);
            // The answer does not matter.
            self.expect(sent, request.op(), None, None, None);
        }
    }

    fn receive(&mut self, now: Duration, bytes: &mut BytesMut) {
        while let Some(link) = &mut self.link {
            let skipped = link.skipping.min(bytes.len());
            bytes.advance(skipped);
            link.skipping -= skipped;
            let message = match frame_length(bytes, usize::MAX) {
                Ok(Some(size)) if size > self.limits.reply => {
                    if bytes.len() < 4 + ReplyHeader::LEN {
                        break;
                    }
                    let head = bytes.split_to(4 + ReplyHeader::LEN);
                    self.skip(now, &head, size)
                }
                _ => match cut_frame(bytes, self.limits.reply) {
                    Ok(None) => break,
                    Ok(Some(frame)) => self.message(now, &frame),
                    Err(malformed) => Err(malformed),
                },
            };
            if let Err(malformed) = message {
                self.lose(malformed.to_string());
            }
        }
    }

    /// Ends the read whose reply is too large, by the length and the header of that. The rest is dropped as it comes; a
    /// server that takes too long over it is silent meanwhile.
    fn skip(&mut self, now: Duration, head: &[u8], size: usize) -> Result<(), Malformed> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let header = ReplyHeader::decode(&head[4..])?;
        let is_read = |oldest: &Pending<T>| {
            oldest.xid == header.xid && !oldest.op.needs_quorum() && !oldest.is_heartbeat
        };
        if !link.pending.front().is_some_and(is_read) {
            return frame_length(head, self.limits.reply).map(drop);
        }
        link.last_received = now;
        link.skipping = size.saturating_sub(ReplyHeader::LEN);
        if let Some(tag) = link.pending.pop_front().and_then(|read| read.tag) {
            let outcome = Outcome::TooLarge { size, limit: self.limits.reply };
            self.outputs.push_back(Output::Ended { tag, outcome });
        }
        Ok(())
    }

    fn message(&mut self, now: Duration, frame: &Bytes) -> Result<(), Malformed> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let header = ReplyHeader::decode(frame)?;
        link.last_received = now;
        match header.xid {
            xid::EVENT => self.event(WatchEvent::decode(frame)?),
            xid::PING => {
                let ping =
                    link.pings.pop_front().ok_or(Malformed("the answer to a ping that was not sent"))?;
                self.pace.answered(ping, now);
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
        // It is about the connection, not about a znode.
        if kind == EventKind::NONE {
            return;
        }
        // Until the watches are armed again, events are about one-shot watches. Lasting ones then have a gap, which comes
        // after them.
        let settled = self.link.as_ref().is_some_and(|link| link.settling == 0);
        let (event, fired) = self.watches.fire(kind, &path, settled);
        self.notify(fired, event, &path);
        if let Some((parent, fired)) = self.watches.fire_parent(kind, &path, settled) {
            self.notify(fired, WatchKind::ChildrenChanged, &parent);
        }
    }

    fn notify(&mut self, ids: impl IntoIterator<Item = WatchId>, kind: WatchKind, path: &str) {
        let event = |id| Output::Watch { id, kind, path: path.to_owned() };
        self.outputs.extend(ids.into_iter().map(event));
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
        // Only now: the request of a malformed reply stays unanswered, and ends with the transport.
        let Some(Pending { op, watch, is_heartbeat, tag, .. }) = link.pending.pop_front() else {
            return Ok(());
        };
        if is_heartbeat && let Some(heartbeat) = link.heartbeats.pop_front() {
            self.pace.answered(heartbeat, now);
        }
        if link.pending.is_empty() && link.pending.capacity() > ROOM {
            link.pending = VecDeque::new();
            link.heartbeats = VecDeque::new();
        }
        if header.zxid > 0 {
            self.ticket.last_zxid = header.zxid;
        }
        let armed = watch.and_then(|wanted| Some((wanted.look_after(op, &answer)?, wanted)));
        if let Some(tag) = tag {
            self.outputs.push_back(Output::Ended { tag, outcome: Outcome::Answered(answer) });
        }
        if let Some((look, wanted)) = armed {
            self.arm(now, look, wanted);
        }
        if does_not_serve(header.error, is_heartbeat) {
            self.lose(format!("the server does not serve the session: {}", header.error));
        } else if op == OpCode::CLOSE_SESSION {
            self.link = None;
            self.outputs.push_back(Output::Closed);
        }
        Ok(())
    }

    fn arm(&mut self, now: Duration, look: Look, wanted: PendingWatch) {
        let PendingWatch { id, path, recursive, on_server, forgotten, .. } = wanted;
        if !on_server && !self.watches.has_lasting(&path) {
            // The lasting watch for this event has been refused, or given up.
            return self.notify((!forgotten).then_some(id), WatchKind::Gap, &path);
        }
        if recursive {
            self.watches.note_recursive(&path);
        }
        self.watches.arm(look, &path, id);
        if forgotten {
            self.give_up(now, id);
        }
    }

    /// Ends the transport and its requests.
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
        let is_due = self.ping_at().is_some_and(|at| now >= at);
        let (silence, waits_for) = (self.silence(), self.next_waits_for());
        let Some(link) = &mut self.link else { return };
        let silent = now.saturating_sub(link.last_received);
        if silent >= silence {
            self.lose(format!("the server has been silent for {silent:?}"));
        } else if is_due {
            Request::Ping.encode(xid::PING, &mut link.outgoing);
            link.pings.push_back(Check { sent: now, waits_for });
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
