//! One operation and its attempts: waits for the connection, distinguishes lost answers from refusals, records whether a
//! write may have been applied, and gives up in time.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use zk_proto::{ErrorCode, Reply, Request, WatchId};

use crate::backoff::Backoff;
use crate::driver::{self, Along, DriverError, DriverResult, Place, answered};
use crate::error::{InactiveReason, OpError, UnknownCause};
use crate::node::{Children, Node, Stat};
use crate::path;
use crate::session::armed::Armed;
use crate::session::incarnation::{Incarnation, Inner, PLACES};
use crate::session::scope::Scope;
use crate::session::state::Event;
use crate::time::{BootTime, sleep_until};

/// More attempts than that in one operation mean that something is wrong which does not pass with time.
const MAX_ATTEMPTS: u32 = 32;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));

/// The outcome of one attempt: at a write, unless it is answered for.
pub(crate) enum Write<T> {
    Done(T),
    /// This attempt had no effect. An earlier one may have had one: see [`Attempts::in_doubt`].
    Refused(ErrorCode),
    /// The answer is lost: the attempt may have been applied.
    Lost,
}

/// What a reply of that kind holds; `Err` with a reply of any other kind.
macro_rules! of_kind {
    ($reply:expr, $kind:pat => $holds:expr) => {
        match $reply {
            $kind => Ok($holds),
            other => Err(other),
        }
    };
}
pub(crate) use of_kind;

impl<T> Write<T> {
    fn answer(self) -> Option<Result<T, ErrorCode>> {
        match self {
            Self::Done(reply) => Some(Ok(reply)),
            Self::Refused(code) => Some(Err(code)),
            Self::Lost => None,
        }
    }
}

pub(crate) struct Attempts<'a> {
    inner: &'a Arc<Inner>,
    scope: &'a Scope,
    path: &'a str,
    started: BootTime,
    deadline: BootTime,
    backoff: Backoff,
    /// Whether a write was sent whose outcome is not known: an operation clears it that finds out that none had an effect.
    pub(crate) in_doubt: bool,
    /// The newest change that the session had seen when the first of those was sent.
    pub(crate) seen: i64,
    /// What went wrong last.
    last: Cow<'static, str>,
}

impl Incarnation {
    /// An operation on a path, and the path as the server knows it.
    pub(crate) fn begin<'a>(&'a self, path: &'a str) -> Result<(String, Attempts<'a>), OpError> {
        path::check(path)?;
        Ok((self.scope.absolute(path), self.attempts(path)))
    }

    /// An operation that names `path` in its errors.
    pub(crate) fn attempts<'a>(&'a self, path: &'a str) -> Attempts<'a> {
        let started = BootTime::now();
        Attempts {
            inner: &self.inner,
            scope: &self.scope,
            path,
            started,
            deadline: self.bound.deadline(started, &self.inner.settings),
            backoff: BACKOFF,
            in_doubt: false,
            seen: 0,
            last: "ZooKeeper is not connected".into(),
        }
    }
}

impl Attempts<'_> {
    /// Sends a request that changes nothing until it is answered.
    pub(crate) async fn read(&mut self, request: &Request<'_>) -> Result<Result<Reply, ErrorCode>, OpError> {
        loop {
            if let Some(answer) = self.send(request, None, false).await?.answer() {
                return Ok(answer);
            }
        }
    }

    /// Sends a request that changes nothing and arms a watch, until it is answered.
    pub(crate) async fn read_and_watch(
        &mut self,
        request: &Request<'_>,
        prepare: impl Fn(&Arc<Inner>) -> Armed,
    ) -> Result<(Result<Reply, ErrorCode>, Armed), OpError> {
        loop {
            // A new one each time: the one before may be armed.
            let armed = prepare(self.inner);
            if let Some(answer) = self.send(request, Some(armed.id), false).await?.answer() {
                return Ok((answer, armed));
            }
        }
    }

    /// Whether that znode, in that life, is older than the writes whose outcomes are not known. Data versions and names
    /// come again in every life of a znode; so one that is not older does not show what became of the one before.
    pub(crate) fn is_older(&self, stat: &Stat) -> bool {
        stat.czxid <= self.seen
    }

    /// Sends a request that changes something, once.
    pub(crate) async fn write(&mut self, request: &Request<'_>) -> Result<Write<Reply>, OpError> {
        self.send(request, None, true).await
    }

    /// Sends a write until it is answered; `None` if it is refused for its version after an attempt whose answer was lost.
    pub(crate) async fn write_version(&mut self, request: &Request<'_>) -> Result<Option<Stat>, OpError> {
        loop {
            match self.write(request).await? {
                Write::Done(reply) => return self.stat(reply).map(Some),
                Write::Lost => {}
                Write::Refused(ErrorCode::BAD_VERSION) if self.in_doubt => return Ok(None),
                Write::Refused(code) => return Err(self.refused(code)),
            }
        }
    }

    /// A znode, `None` if there is none.
    pub(crate) async fn get(&mut self, absolute: &str) -> Result<Option<Node>, OpError> {
        let request = Request::GetData { path: absolute.into(), watch: false };
        self.read_if_there(&request).await?.map(|reply| self.node(reply)).transpose()
    }

    /// The stat of a znode, `None` if there is none.
    pub(crate) async fn exists(&mut self, absolute: &str) -> Result<Option<Stat>, OpError> {
        let request = Request::Exists { path: absolute.into(), watch: false };
        self.read_if_there(&request).await?.map(|reply| self.stat(reply)).transpose()
    }

    /// The children of a znode, `None` if there is none.
    pub(crate) async fn children(&mut self, absolute: &str) -> Result<Option<Children>, OpError> {
        let request = Request::GetChildren { path: absolute.into(), watch: false, with_stat: true };
        self.read_if_there(&request).await?.map(|reply| self.names(reply)).transpose()
    }

    async fn read_if_there(&mut self, request: &Request<'_>) -> Result<Option<Reply>, OpError> {
        match self.read(request).await? {
            Ok(reply) => Ok(Some(reply)),
            Err(ErrorCode::NO_NODE) => Ok(None),
            Err(code) => Err(self.refused(code)),
        }
    }

    /// A quorum round trip. It needs no permit: see [`driver::barrier`].
    pub(crate) async fn barrier(&mut self) -> Result<(), OpError> {
        loop {
            self.wait_until_open().await?;
            let sent = BootTime::now();
            let answer = driver::barrier(&*self.inner.driver, self.deadline).await;
            match self.outcome(sent, answer, false).await? {
                Some(Write::Done(())) => return Ok(()),
                Some(Write::Refused(code)) => return Err(self.refused(code)),
                Some(Write::Lost) | None => {}
            }
        }
    }

    // A reply is read by the kind of its request, so it is of no other kind.

    pub(crate) fn node(&self, reply: Reply) -> Result<Node, OpError> {
        let node = of_kind!(reply, Reply::Data(data, stat) => {
            // A copy: the reply shares the memory of all that was read with it.
            Node::new(data.as_deref().unwrap_or_default(), stat)
        });
        node.map_err(|other| self.unexpected(other))
    }

    pub(crate) fn stat(&self, reply: Reply) -> Result<Stat, OpError> {
        of_kind!(reply, Reply::Stat(stat) => stat).map_err(|other| self.unexpected(other))
    }

    pub(crate) fn names(&self, reply: Reply) -> Result<Children, OpError> {
        let names = of_kind!(reply, Reply::NamesAndStat(names, stat) => Children::new(names, stat));
        names.map_err(|other| self.unexpected(other))
    }

    pub(crate) fn unexpected(&self, reply: Reply) -> OpError {
        self.distrust(format!("it returned a reply of another kind: {reply:?}"))
    }

    /// The error for a refusal. In doubt the refusal is about what exists now, and does not show what became of the
    /// request.
    pub(crate) fn refused(&self, code: ErrorCode) -> OpError {
        self.refused_at(self.path, code)
    }

    /// The same where it is another path that was refused.
    pub(crate) fn refused_at(&self, path: &str, code: ErrorCode) -> OpError {
        self.refused_for(&self.scope.absolute(path), path, code)
    }

    /// The same for a creation: where a znode is missing, it is the parent.
    pub(crate) fn refused_create(&self, absolute: &str, code: ErrorCode) -> OpError {
        let parent = zk_proto::ancestors(absolute).next().unwrap_or("/");
        self.refused_for(if code == ErrorCode::NO_NODE { parent } else { absolute }, self.path, code)
    }

    /// The error, which names `path`, where the reason is what is at `suspect`, or is not.
    fn refused_for(&self, suspect: &str, path: &str, code: ErrorCode) -> OpError {
        let path = path.to_owned();
        if self.in_doubt {
            return self.changed(format!("the server now answers: {code}"));
        }
        if let ErrorCode::NO_NODE | ErrorCode::NODE_EXISTS | ErrorCode::BAD_VERSION = code {
            self.inner.reliance.refused(suspect);
        }
        match code {
            ErrorCode::NO_NODE => OpError::NoNode { path },
            ErrorCode::NODE_EXISTS => OpError::NodeExists { path, owner: None },
            ErrorCode::BAD_VERSION => OpError::BadVersion { path },
            ErrorCode::NOT_EMPTY => OpError::NotEmpty { path },
            ErrorCode::NO_AUTH => OpError::NoAuth { path },
            _ => OpError::Invalid { path, reason: code.to_string() },
        }
    }

    /// The error if the answer is lost and what exists now does not show the outcome.
    pub(crate) fn changed(&self, now: String) -> OpError {
        OpError::Unknown { path: self.path.to_owned(), cause: UnknownCause::Changed { now } }
    }

    /// A write was refused for its version after an earlier attempt whose answer was lost: was it that one? It was if the
    /// next version is there `now`, in the same life, and what is there is what was to be written.
    pub(crate) fn explain_version(
        &self,
        expected: Option<i32>,
        (now, stat): (i32, Stat),
        is_same: bool,
    ) -> Result<Stat, OpError> {
        let next = expected.map(|version| version.wrapping_add(1));
        match (self.is_older(&stat), next == Some(now), is_same) {
            (true, true, true) => Ok(stat),
            (true, true, false) => Err(OpError::BadVersion { path: self.path.to_owned() }),
            (true, false, _) => Err(self.changed(format!("the version is {now} now"))),
            (false, ..) => Err(self.changed("another znode exists at the path now".to_owned())),
        }
    }

    /// The error of an operation on a session that has ended.
    pub(crate) fn over(&self) -> OpError {
        if self.in_doubt {
            OpError::Unknown { path: self.path.to_owned(), cause: UnknownCause::SessionOver }
        } else {
            OpError::SessionOver
        }
    }

    /// Sends a request until it has left.
    async fn send(
        &mut self,
        request: &Request<'_>,
        watch: Option<WatchId>,
        is_write: bool,
    ) -> Result<Write<Reply>, OpError> {
        loop {
            let place = self.wait_for_place().await?;
            if is_write && !self.in_doubt {
                self.seen = self.inner.driver.ticket().last_zxid;
            }
            let sent = BootTime::now();
            let along = Along { watch, heartbeat: false, place: Some(place) };
            let answer = self.inner.driver.send(request, along);
            // When the session ends, the driver ends and answers.
            let answer = answered(answer, self.deadline).await;
            if let Some(outcome) = self.outcome(sent, answer, is_write).await? {
                return Ok(outcome);
            }
        }
    }

    /// What an answer says of the request; `None` if it did not leave. Where it is to be repeated, a pause has passed.
    async fn outcome<T>(
        &mut self,
        sent: BootTime,
        answer: DriverResult<T>,
        is_write: bool,
    ) -> Result<Option<Write<T>>, OpError> {
        if matches!(answer, Ok(_) | Err(DriverError::Refused(_))) {
            self.inner.handle(Event::Contact { sent, answered: BootTime::now() });
        }
        match answer {
            Ok(reply) => Ok(Some(Write::Done(reply))),
            Err(DriverError::Refused(code)) => Ok(Some(Write::Refused(code))),
            Err(DriverError::NotSent(reason)) => self.pause(reason).await.map(|()| None),
            Err(DriverError::Ambiguous(reason)) => {
                self.in_doubt |= is_write;
                self.pause(reason).await.map(|()| Some(Write::Lost))
            }
            Err(DriverError::Invalid(reason)) if self.in_doubt => Err(self.changed(reason)),
            Err(DriverError::Invalid(reason)) => Err(OpError::Invalid { path: self.path.to_owned(), reason }),
        }
    }

    /// Waits until the session is active and has few enough requests under way. Waiting operations are served in turn.
    async fn wait_for_place(&mut self) -> Result<Place, OpError> {
        let inner = self.inner;
        loop {
            self.wait_until_open().await?;
            if let Ok(place) = Arc::clone(&inner.places).try_acquire_owned() {
                return Ok(place);
            }
            let place = tokio::select! {
                biased;
                // The semaphore is never closed.
                place = Arc::clone(&inner.places).acquire_owned() => place.ok(),
                () = inner.over() => None,
                () = sleep_until(self.deadline) => None,
            };
            match place {
                // The wait may have been long: checked again right before sending.
                Some(place) if inner.is_open() && !inner.is_over() => return Ok(place),
                None if BootTime::now() >= self.deadline && !inner.is_over() => {
                    self.last = format!("{PLACES} requests are under way already").into();
                    return Err(self.out_of_time());
                }
                _ => {}
            }
        }
    }

    /// Waits until the session is active. The clock is read last, right before sending.
    async fn wait_until_open(&mut self) -> Result<(), OpError> {
        loop {
            if self.inner.is_over() {
                return Err(self.over());
            }
            let is_open = self.inner.is_open();
            if BootTime::now() >= self.deadline {
                if is_open && !self.in_doubt {
                    self.last = "the timeout had passed before it was sent".into();
                }
                return Err(self.out_of_time());
            }
            if is_open {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = self.inner.opens() => {}
                () = self.inner.over() => {}
                () = sleep_until(self.deadline) => {}
            }
        }
    }

    /// Waits a moment before the next attempt, or gives up.
    async fn pause(&mut self, reason: String) -> Result<(), OpError> {
        self.last = reason.into();
        if self.inner.is_over() {
            return Err(self.over());
        }
        let until = BootTime::now() + self.backoff.next();
        if self.backoff.attempts >= MAX_ATTEMPTS || until >= self.deadline {
            return Err(self.out_of_time());
        }
        tokio::select! {
            biased;
            () = self.inner.over() => Err(self.over()),
            () = sleep_until(until) => Ok(()),
        }
    }

    fn out_of_time(&self) -> OpError {
        let path = self.path.to_owned();
        if self.in_doubt {
            OpError::Unknown { path, cause: UnknownCause::NoAnswer { last: self.last.to_string() } }
        } else {
            let within = BootTime::now().duration_since(self.started);
            OpError::Unavailable { path, within, reason: self.last.to_string() }
        }
    }

    /// The driver did something impossible: the session is given up, because its answers can't be relied on.
    pub(crate) fn distrust(&self, reason: String) -> OpError {
        self.inner.handle(Event::Ended(InactiveReason::DriverFailed { reason }));
        OpError::Unknown { path: self.path.to_owned(), cause: UnknownCause::SessionOver }
    }
}
