//! The link: carries one session between the client, on loopback, and one server after another.
//!
//! The client sees a single connection that never breaks and a session that never changes. The link sees to the rest:
//! pings, the death of a connection, another server for the same session, the credentials and the watches there. What
//! was in flight on a connection that broke is answered as perhaps applied; what the client sends while there is none,
//! as not sent.
//!
//! ```text
//!              connected                 connection lost               session over
//!   attach() -----------> Up, serving ------------------> Down, seeking -----------> ended
//!                              ^                              |                         ^
//!                              +------ watches set again -----+        client failed ---+
//! ```

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval};

use super::exchange::{Exchange, FromClient, FromServer, Notice};
use super::gate::Local;
use super::outbox::Outbox;
use super::upstream::{Purpose, Upstream};
use super::wire::{Frame, FrameReader, Grant};
use crate::driver::seek::{self, Refusal, Seeker, judge_grant};
use crate::driver::{Auth, CloseAnswer, DriverEvent, Host, WatchToken};
use crate::time::{BootTime, sleep_until};

/// How long the client may sit on requests or on replies. Both are a matter of microseconds.
const CLIENT_HANGS_AFTER: Duration = Duration::from_secs(5);

/// The longest pause between two looks at the connection and at the client.
const LONGEST_TICK: Duration = Duration::from_millis(500);

/// What the parts of a driver tell each other about its link.
#[derive(Debug, Default)]
pub(super) struct LinkState {
    up: AtomicBool,
    requests: AtomicUsize,
    close_sent: AtomicBool,
}

impl LinkState {
    /// Of a link that has a connection, from before its first step: a driver is connected as soon as it is there.
    pub(super) fn of_connected() -> LinkState {
        LinkState { up: AtomicBool::new(true), ..LinkState::default() }
    }

    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Requests that the client has under way.
    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::Acquire)
    }

    /// Whether the request to close the session has been handed to a living connection.
    pub(super) fn is_close_sent(&self) -> bool {
        self.close_sent.load(Ordering::Acquire)
    }

    /// `request`, counted as one that the client has under way.
    pub(super) fn count_request<F: Future>(
        self: &Arc<Self>,
        request: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        struct Counted(Arc<LinkState>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.requests.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.requests.fetch_add(1, Ordering::AcqRel);
        let counted = Counted(self.clone());
        async move {
            let output = request.await;
            drop(counted);
            output
        }
    }
}

/// What the link is told.
#[derive(Debug)]
pub(super) enum Command {
    /// Nobody waits for this watch any more.
    Forget(WatchToken),
    /// Close the session, and say when the server has.
    Close(oneshot::Sender<CloseAnswer>),
    /// The client is of no more use.
    ClientFailed(String),
    /// The client has a second request under way: see [`Link::hurry`].
    Hurry,
}

/// What the link needs to find servers.
#[derive(Clone)]
pub(super) struct Servers {
    pub(super) seeker: Seeker,
    pub(super) auth: Arc<[Auth]>,
}

/// The link of one session.
pub(super) struct Link {
    servers: Servers,
    /// Where the present one is.
    at: SocketAddr,
    /// What the session was granted at first; the session is given up before it lives with less.
    grant: Grant,
    exchange: Exchange,
    client: FrameReader<OwnedReadHalf>,
    to_client: Outbox,
    commands: mpsc::UnboundedReceiver<Command>,
    events: mpsc::UnboundedSender<DriverEvent>,
    state: Arc<LinkState>,
    closing: Option<oneshot::Sender<CloseAnswer>>,
    heard: BootTime,
    /// At how many looks in a row the client sat on requests. Looks are counted, not time: a process that was frozen
    /// has not been looked at.
    stuck_looks: u32,
}

/// Why the link stops serving a connection.
enum Stop {
    /// The connection is of no more use; the session may be.
    Lost(String),
    /// The session is, too. The last word, if there is one to say.
    Over(Option<DriverEvent>),
}

impl From<super::wire::Malformed> for Stop {
    fn from(error: super::wire::Malformed) -> Stop {
        Stop::Lost(error.to_string())
    }
}

impl Link {
    pub(super) fn new(
        servers: Servers,
        at: SocketAddr,
        grant: Grant,
        local: Local,
        commands: mpsc::UnboundedReceiver<Command>,
        events: mpsc::UnboundedSender<DriverEvent>,
        state: Arc<LinkState>,
    ) -> Link {
        Link {
            servers,
            at,
            grant,
            exchange: Exchange::default(),
            client: local.reader,
            to_client: Outbox::new(local.writer),
            commands,
            events,
            state,
            closing: None,
            heard: BootTime::now(),
            stuck_looks: 0,
        }
    }

    /// Carries the session to its end and returns the last word on it, `None` if it was closed as asked for.
    pub(super) async fn run(mut self, first: Upstream) -> Option<DriverEvent> {
        let mut connection = Connection::new(first);
        self.heard = BootTime::now();
        loop {
            let stop = self.serve(&mut connection).await;
            let was_up = self.state.up.swap(false, Ordering::AcqRel);
            drop(connection);
            let reason = match stop {
                Stop::Lost(reason) => reason,
                Stop::Over(event) => return event,
            };
            if self.state.is_close_sent() {
                self.answer_close(CloseAnswer::Sent);
                return None;
            }
            for frame in self.exchange.cut() {
                self.to_client.send(&frame);
            }
            if was_up {
                self.say(DriverEvent::Suspended { reason });
            }
            connection = match self.seek().await {
                Ok(upstream) => Connection::new(upstream),
                Err(event) => return event,
            };
            for frame in self.exchange.resume() {
                connection.send(&frame);
            }
        }
    }

    /// Serves the client over one connection until that is lost or the session is over.
    async fn serve(&mut self, connection: &mut Connection) -> Stop {
        let timeout = self.grant.timeout;
        let pace = (timeout / 20).min(LONGEST_TICK);
        let mut tick = interval(pace);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if !self.exchange.is_settling()
                && self.closing.is_none()
                && !self.state.up.swap(true, Ordering::AcqRel)
            {
                self.say(DriverEvent::Resumed);
            }
            if !self.exchange.is_settling() && self.closing.is_some() && !self.state.is_close_sent() {
                self.state.up.store(false, Ordering::Release);
                connection.send(&self.exchange.close());
                self.state.close_sent.store(true, Ordering::Release);
            }
            let step = tokio::select! {
                frame = self.client.next() => self.hear_all_of_client(frame, connection),
                frame = connection.reader.next() => self.hear_all_of_server(frame, connection),
                command = self.commands.recv() => self.obey(command),
                sent = connection.outbox.flush(), if !connection.outbox.is_empty() => {
                    sent.map_err(|error| Stop::Lost(format!("can't write: {error}")))
                }
                sent = self.to_client.flush(), if !self.to_client.is_empty() => sent.map_err(client_failed),
                _ = tick.tick() => self.keep_alive(connection, pace),
            };
            if let Err(stop) = step {
                return stop;
            }
        }
    }

    /// What has come with one read is passed on with one write.
    fn hear_all_of_client(
        &mut self,
        first: std::io::Result<Option<Frame>>,
        connection: &mut Connection,
    ) -> Result<(), Stop> {
        self.hear_client(first, Some(connection))?;
        while let Some(frame) = self.client.buffered().transpose() {
            self.hear_client(frame.map(Some), Some(connection))?;
        }
        if self.state.requests() > 1 || !self.client.is_drained() {
            self.hurry();
        }
        Ok(())
    }

    fn hear_all_of_server(
        &mut self,
        first: std::io::Result<Option<Frame>>,
        connection: &mut Connection,
    ) -> Result<(), Stop> {
        self.hear_server(first)?;
        while let Some(frame) = connection.reader.buffered().transpose() {
            self.hear_server(frame.map(Some))?;
        }
        Ok(())
    }

    /// The client leaves Nagle's algorithm on: what it sends waits in its socket until what it has sent before is
    /// acknowledged, and the kernel puts that off for up to 40 ms, or until the reply. Where there is more to come, it
    /// is acknowledged now. A request that is alone is spared the packet.
    fn hurry(&self) {
        let socket: &TcpStream = self.client.source().as_ref();
        // Without it, slower.
        let _ = socket.set_quickack(true);
    }

    /// Looks for another server for the session, refusing meanwhile what the client sends.
    async fn seek(&mut self) -> Result<Upstream, Option<DriverEvent>> {
        let timeout = self.grant.timeout;
        // Later than the server's own deadline by any reckoning: it counts from when it last heard of us.
        let give_up = self.heard + timeout + timeout / 2;
        let purpose = Purpose::Resume(self.grant.clone(), self.exchange.last_zxid());
        let Servers { seeker, auth } = self.servers.clone();
        let attach = move |host: Host, patience| {
            let (purpose, auth) = (purpose.clone(), Arc::clone(&auth));
            async move { Upstream::attach(&host, &purpose, &auth, patience).await }
        };
        let mut search = Box::pin(seeker.seek(self.at, timeout, attach));
        loop {
            let step = tokio::select! {
                found = &mut search => match found {
                    Ok((at, upstream)) => {
                        judge_grant(at, timeout, upstream.grant.timeout).map_err(Some)?;
                        self.at = at;
                        self.heard = BootTime::now();
                        self.grant.password = upstream.grant.password.clone();
                        return Ok(upstream);
                    }
                    Err(Refusal::Expired) => {
                        self.answer_close(CloseAnswer::Acknowledged);
                        return Err(Some(DriverEvent::Expired));
                    }
                    Err(Refusal::AuthFailed(reason)) => return Err(Some(DriverEvent::AuthFailed { reason })),
                    Err(Refusal::Unavailable(reason)) => return Err(Some(DriverEvent::Dead { reason })),
                },
                frame = self.client.next() => self.hear_client(frame, None),
                command = self.commands.recv() => self.obey(command),
                sent = self.to_client.flush(), if !self.to_client.is_empty() => sent.map_err(client_failed),
                () = sleep_until(give_up) => {
                    let reason = format!("no server has answered for {:?}", give_up.duration_since(self.heard));
                    return Err(Some(DriverEvent::Dead { reason }));
                }
            };
            match step {
                Ok(()) => {}
                Err(Stop::Lost(reason)) => return Err(Some(DriverEvent::Dead { reason })),
                Err(Stop::Over(event)) => return Err(event),
            }
        }
    }

    fn hear_client(
        &mut self,
        frame: std::io::Result<Option<Frame>>,
        connection: Option<&mut Connection>,
    ) -> Result<(), Stop> {
        let frame = match frame {
            Ok(Some(frame)) => frame,
            Ok(None) => return Err(client_failed("it dropped its connection")),
            Err(error) => return Err(client_failed(error)),
        };
        match connection {
            Some(connection) if self.state.is_up() => {
                match self.exchange.take_request(frame).map_err(client_failed)? {
                    FromClient::Forward(frame) => {
                        // Its pings would prove nothing: it goes on sending them.
                        self.stuck_looks = 0;
                        connection.send(&frame);
                    }
                    FromClient::Answer(frame) => {
                        frame.iter().for_each(|frame| self.to_client.send(frame));
                    }
                }
            }
            // While watches are set again older requests can't be under way, so the order of the answers is kept;
            // while the session is being closed, they can, and the client is not listened to any more.
            _ if self.closing.is_none() => {
                let refusal = Exchange::refuse(&frame).map_err(client_failed)?;
                self.to_client.send(&refusal);
            }
            _ => {}
        }
        Ok(())
    }

    fn hear_server(&mut self, frame: std::io::Result<Option<Frame>>) -> Result<(), Stop> {
        let frame = match frame {
            Ok(Some(frame)) => frame,
            Ok(None) => return Err(Stop::Lost("the server closed the connection".to_owned())),
            Err(error) => return Err(Stop::Lost(error.to_string())),
        };
        let FromServer { to_client, fired, notice } = self.exchange.take_reply(frame)?;
        self.heard = BootTime::now();
        for frame in &to_client {
            self.to_client.send(frame);
        }
        for (token, kind, path) in fired {
            self.say(DriverEvent::Watch { token, kind, path });
        }
        match notice {
            None => Ok(()),
            Some(Notice::Expired) => Err(Stop::Over(Some(DriverEvent::Expired))),
            Some(Notice::Moved) => Err(Stop::Lost("another server serves the session".to_owned())),
            Some(Notice::Closed) => {
                self.answer_close(CloseAnswer::Acknowledged);
                Err(Stop::Over(None))
            }
        }
    }

    fn obey(&mut self, command: Option<Command>) -> Result<(), Stop> {
        match command {
            Some(Command::Forget(token)) => self.exchange.forget(token),
            Some(Command::Close(answer)) => self.closing = Some(answer),
            Some(Command::ClientFailed(reason)) => return Err(client_failed(reason)),
            Some(Command::Hurry) => self.hurry(),
            // Every handle of the driver is gone.
            None => return Err(Stop::Over(None)),
        }
        Ok(())
    }

    /// Pings, and notices what has fallen silent.
    fn keep_alive(&mut self, connection: &mut Connection, pace: Duration) -> Result<(), Stop> {
        let now = BootTime::now();
        let timeout = self.grant.timeout;
        let silence = now.duration_since(self.heard);
        if silence >= seek::silence(timeout) {
            return Err(Stop::Lost(format!("the server has been silent for {silence:?}")));
        }
        if now.duration_since(connection.sent) >= timeout / 10 && !self.exchange.is_pinging() {
            connection.send(&self.exchange.ping());
        }
        // Requests that are neither on the wire nor answered are stuck in the client.
        let stuck = self.state.is_up() && self.exchange.is_idle() && self.state.requests() > 0;
        self.stuck_looks = if stuck { self.stuck_looks + 1 } else { 0 };
        if pace * self.stuck_looks >= CLIENT_HANGS_AFTER {
            let reason = format!("the client failed: it sat on requests for {CLIENT_HANGS_AFTER:?}");
            return Err(Stop::Over(Some(DriverEvent::Dead { reason })));
        }
        Ok(())
    }

    fn say(&self, event: DriverEvent) {
        // With nobody to listen the driver is about to be dropped.
        let _ = self.events.send(event);
    }

    fn answer_close(&mut self, answer: CloseAnswer) {
        if let Some(closing) = self.closing.take() {
            let _ = closing.send(answer);
        }
    }
}

/// The connection to the present server.
struct Connection {
    reader: FrameReader<OwnedReadHalf>,
    outbox: Outbox,
    sent: BootTime,
}

impl Connection {
    fn new(upstream: Upstream) -> Connection {
        let outbox = Outbox::new(upstream.writer);
        Connection { reader: upstream.reader, outbox, sent: BootTime::now() }
    }

    fn send(&mut self, frame: &Frame) {
        self.sent = BootTime::now();
        self.outbox.send(frame);
    }
}

/// The end of the session, for it can't go on with this client.
fn client_failed(what: impl std::fmt::Display) -> Stop {
    Stop::Over(Some(DriverEvent::Dead { reason: format!("the client failed: {what}") }))
}
