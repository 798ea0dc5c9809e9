//! One operation, sent as often as it takes: waits for the connection, tells lost answers from refusals, keeps in mind
//! whether a write may have been applied, and gives up in time.

use std::sync::Arc;
use std::time::Duration;

use zk_proto::{ErrorCode, Reply, Request, Stat, WatchId};

use crate::backoff::Backoff;
use crate::driver::{self, Along, DriverError, DriverResult, Place, answered};
use crate::error::{OpError, UnknownCause};
use crate::incarnation::{ArmedWatch, Inner, PLACES};
use crate::state::InactiveReason;
use crate::time::{BootTime, sleep_until};

/// More attempts than that in one operation mean that something is wrong which time alone will not mend.
const MAX_ATTEMPTS: u32 = 32;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));

/// What became of a write that was sent once.
pub(crate) enum Write<T> {
    Done(T),
    /// This attempt had no effect. An earlier one may have had one: see [`Attempts::in_doubt`].
    Refused(ErrorCode),
    /// The answer is lost: the attempt may have been applied.
    Lost,
}

/// Why an attempt was not answered with what it asked for.
enum Failed {
    Refused(ErrorCode),
    Ambiguous(String),
    NotSent(String),
}

pub(crate) struct Attempts<'a> {
    inner: &'a Arc<Inner>,
    path: &'a str,
    started: BootTime,
    deadline: BootTime,
    backoff: Backoff,
    /// Whether a write was sent whose outcome is not known.
    in_doubt: bool,
    /// What went wrong last.
    last: String,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(inner: &'a Arc<Inner>, path: &'a str) -> Self {
        let started = BootTime::now();
        Self {
            inner,
            path,
            started,
            deadline: started + inner.operation_timeout(),
            backoff: BACKOFF,
            in_doubt: false,
            last: "ZooKeeper is not connected".to_owned(),
        }
    }

    pub(crate) fn in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// It has been found out that no attempt so far had an effect, nor ever will have one.
    pub(crate) fn clear_doubt(&mut self) {
        self.in_doubt = false;
    }

    /// Sends a request that changes nothing until it is answered.
    pub(crate) async fn read(&mut self, request: &Request<'_>) -> Result<Result<Reply, ErrorCode>, OpError> {
        loop {
            match self.send(request, None).await? {
                Ok(reply) => return Ok(Ok(reply)),
                Err(Failed::Refused(code)) => return Ok(Err(code)),
                Err(Failed::Ambiguous(reason) | Failed::NotSent(reason)) => self.pause(reason).await?,
            }
        }
    }

    /// As [`read`](Self::read), with a request that arms a watch.
    pub(crate) async fn read_and_watch(
        &mut self,
        request: &Request<'_>,
    ) -> Result<(Result<Reply, ErrorCode>, ArmedWatch), OpError> {
        loop {
            // A new one each time: the one before may be armed.
            let armed = self.inner.prepare_watch();
            if let Some(answer) = self.read_armed(request, armed.id).await? {
                return Ok((answer, armed));
            }
        }
    }

    /// One attempt at it; `None` where another one is due.
    pub(crate) async fn read_armed(
        &mut self,
        request: &Request<'_>,
        watch: WatchId,
    ) -> Result<Option<Result<Reply, ErrorCode>>, OpError> {
        match self.send(request, Some(watch)).await? {
            Ok(reply) => Ok(Some(Ok(reply))),
            Err(Failed::Refused(code)) => Ok(Some(Err(code))),
            Err(Failed::Ambiguous(reason) | Failed::NotSent(reason)) => {
                self.pause(reason).await?;
                Ok(None)
            }
        }
    }

    /// Sends a request that changes something, once.
    pub(crate) async fn write(&mut self, request: &Request<'_>) -> Result<Write<Reply>, OpError> {
        loop {
            match self.send(request, None).await? {
                Ok(reply) => return Ok(Write::Done(reply)),
                Err(Failed::Refused(code)) => return Ok(Write::Refused(code)),
                Err(Failed::NotSent(reason)) => self.pause(reason).await?,
                Err(Failed::Ambiguous(reason)) => {
                    self.in_doubt = true;
                    self.pause(reason).await?;
                    return Ok(Write::Lost);
                }
            }
        }
    }

    /// Data and stat of a znode.
    pub(crate) async fn get(
        &mut self,
        absolute: &str,
    ) -> Result<Result<(Vec<u8>, Stat), ErrorCode>, OpError> {
        let request = Request::GetData { path: absolute.into(), watch: false };
        Ok(match self.read(&request).await? {
            Ok(reply) => Ok(self.data(reply)?),
            Err(code) => Err(code),
        })
    }

    /// The stat of a znode, `None` if there is none.
    pub(crate) async fn exists(&mut self, absolute: &str) -> Result<Option<Stat>, OpError> {
        let request = Request::Exists { path: absolute.into(), watch: false };
        match self.read(&request).await? {
            Ok(reply) => self.stat(reply).map(Some),
            Err(ErrorCode::NO_NODE) => Ok(None),
            Err(code) => Err(self.refused(code)),
        }
    }

    /// As [`exists`](Self::exists), and `None` where that may not be known.
    pub(crate) async fn exists_if_readable(
        &mut self,
        absolute: &str,
    ) -> Result<Option<Option<Stat>>, OpError> {
        match self.exists(absolute).await {
            Ok(found) => Ok(Some(found)),
            Err(OpError::NoAuth { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The names of a znode's children, in any order, and its stat.
    pub(crate) async fn children(
        &mut self,
        absolute: &str,
    ) -> Result<Result<(Vec<String>, Stat), ErrorCode>, OpError> {
        let request = Request::GetChildren { path: absolute.into(), watch: false, with_stat: true };
        Ok(match self.read(&request).await? {
            Ok(reply) => Ok(self.names(reply)?),
            Err(code) => Err(code),
        })
    }

    /// A quorum round trip. Needs no place: see [`driver::barrier`].
    pub(crate) async fn barrier(&mut self) -> Result<(), OpError> {
        loop {
            self.wait_until_open().await?;
            let sent = BootTime::now();
            let barrier = driver::barrier(&**self.inner.driver(), self.deadline);
            let answer = tokio::select! {
                biased;
                answer = barrier => answer,
                () = self.inner.over_token().cancelled() => Err(session_ended()),
            };
            match self.classify(sent, answer)? {
                Ok(()) => return Ok(()),
                Err(Failed::Refused(code)) => return Err(self.refused(code)),
                Err(Failed::Ambiguous(reason) | Failed::NotSent(reason)) => self.pause(reason).await?,
            }
        }
    }

    // A reply is read by the kind of its request, so it is of no other kind.

    pub(crate) fn data(&self, reply: Reply) -> Result<(Vec<u8>, Stat), OpError> {
        match reply {
            Reply::Data(data, stat) => Ok((data.unwrap_or_default().to_vec(), stat)),
            other => Err(self.unexpected(&other)),
        }
    }

    pub(crate) fn stat(&self, reply: Reply) -> Result<Stat, OpError> {
        match reply {
            Reply::Stat(stat) => Ok(stat),
            other => Err(self.unexpected(&other)),
        }
    }

    pub(crate) fn names(&self, reply: Reply) -> Result<(Vec<String>, Stat), OpError> {
        match reply {
            Reply::NamesAndStat(names, stat) => Ok((names, stat)),
            other => Err(self.unexpected(&other)),
        }
    }

    pub(crate) fn unexpected(&self, reply: &Reply) -> OpError {
        self.distrust(format!("it took a reply for another kind: {reply:?}"))
    }

    /// The error for a refusal. In doubt it tells what stands there now, not what became of the request.
    pub(crate) fn refused(&self, code: ErrorCode) -> OpError {
        self.refused_at(self.path, code)
    }

    /// The same where it is another path that was refused.
    pub(crate) fn refused_at(&self, path: &str, code: ErrorCode) -> OpError {
        let path = path.to_owned();
        if self.in_doubt {
            return self.changed(format!("now the answer is: {code}"));
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

    /// The error where the answer is lost and what stands there now does not tell the outcome.
    pub(crate) fn changed(&self, now: String) -> OpError {
        OpError::Unknown { path: self.path.to_owned(), cause: UnknownCause::Changed { now } }
    }

    /// The error of an operation on a session that has ended.
    pub(crate) fn over(&self) -> OpError {
        if self.in_doubt {
            OpError::Unknown { path: self.path.to_owned(), cause: UnknownCause::SessionOver }
        } else {
            OpError::SessionOver
        }
    }

    async fn send(
        &mut self,
        request: &Request<'_>,
        watch: Option<WatchId>,
    ) -> Result<Result<Reply, Failed>, OpError> {
        let place = self.wait_for_place().await?;
        let sent = BootTime::now();
        let answer = self.inner.driver().send(request, Along { watch, heartbeat: false, place: Some(place) });
        let answer = tokio::select! {
            biased;
            answer = answered(answer, self.deadline) => answer,
            () = self.inner.over_token().cancelled() => Err(session_ended()),
        };
        self.classify(sent, answer)
    }

    fn classify<T>(&self, sent: BootTime, answer: DriverResult<T>) -> Result<Result<T, Failed>, OpError> {
        if matches!(answer, Ok(_) | Err(DriverError::Refused(_))) {
            self.inner.contact(sent);
        }
        Ok(match answer {
            Ok(answer) => Ok(answer),
            Err(DriverError::Refused(code)) => Err(Failed::Refused(code)),
            Err(DriverError::Ambiguous(reason)) => Err(Failed::Ambiguous(reason)),
            Err(DriverError::NotSent(reason)) => Err(Failed::NotSent(reason)),
            Err(DriverError::Invalid(reason)) if self.in_doubt => return Err(self.changed(reason)),
            Err(DriverError::Invalid(reason)) => {
                return Err(OpError::Invalid { path: self.path.to_owned(), reason });
            }
        })
    }

    /// Waits until the session is active and has few enough requests under way. Those who wait are served in turn.
    async fn wait_for_place(&mut self) -> Result<Place, OpError> {
        let inner = self.inner;
        loop {
            self.wait_until_open().await?;
            if let Ok(place) = Arc::clone(inner.places()).try_acquire_owned() {
                return Ok(place);
            }
            let next = self.deadline.min(inner.deadline());
            let place = tokio::select! {
                biased;
                // Never closed.
                place = Arc::clone(inner.places()).acquire_owned() => place.ok(),
                () = inner.over_token().cancelled() => None,
                () = sleep_until(next) => None,
            };
            match place {
                // The wait may have been long: looked at once more, right before something is sent.
                Some(place) if inner.is_open() && !inner.is_over() => return Ok(place),
                Some(_) => {}
                None if BootTime::now() >= self.deadline && !inner.is_over() => {
                    self.last = format!("{PLACES} requests are under way already");
                    return Err(self.out_of_time());
                }
                None => {}
            }
        }
    }

    /// Waits until the session is active. The clock is looked at last, right before something is sent.
    async fn wait_until_open(&mut self) -> Result<(), OpError> {
        loop {
            if self.inner.is_over() {
                return Err(self.over());
            }
            if self.inner.is_open() {
                return Ok(());
            }
            let mut open = self.inner.open();
            if *open.borrow_and_update() {
                continue;
            }
            if BootTime::now() >= self.deadline {
                return Err(self.out_of_time());
            }
            let next = self.deadline.min(self.inner.deadline());
            tokio::select! {
                // The sender lives as long as the incarnation.
                _ = open.changed() => {}
                () = self.inner.over_token().cancelled() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Waits a moment before the next attempt, or gives up.
    async fn pause(&mut self, reason: String) -> Result<(), OpError> {
        self.last = reason;
        if self.inner.is_over() {
            return Err(self.over());
        }
        let until = BootTime::now() + self.backoff.next();
        if self.backoff.attempts() >= MAX_ATTEMPTS || until >= self.deadline {
            return Err(self.out_of_time());
        }
        tokio::select! {
            () = self.inner.over_token().cancelled() => Err(self.over()),
            () = sleep_until(until) => Ok(()),
        }
    }

    fn out_of_time(&self) -> OpError {
        let path = self.path.to_owned();
        if self.in_doubt {
            OpError::Unknown { path, cause: UnknownCause::NoAnswer { last: self.last.clone() } }
        } else {
            let within = BootTime::now().duration_since(self.started);
            OpError::Unavailable { path, within, reason: self.last.clone() }
        }
    }

    /// What the driver did can't be right: the session is given up, for nothing it says can be relied on.
    pub(crate) fn distrust(&self, reason: String) -> OpError {
        self.inner.end(InactiveReason::DriverFailed { reason });
        OpError::Unknown { path: self.path.to_owned(), cause: UnknownCause::SessionOver }
    }
}

fn session_ended() -> DriverError {
    DriverError::Ambiguous("the session ended meanwhile".to_owned())
}
