//! One operation, sent as often as it takes: waits for the connection, tells lost answers from refusals, keeps in mind
//! whether a write may have been applied, and gives up in time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::SemaphorePermit;

use crate::backoff::Backoff;
use crate::driver::{BoxFuture, Code, DriverError, DriverResult};
use crate::error::{OpError, UnknownCause};
use crate::incarnation::{Inner, PLACES};
use crate::state::InactiveReason;
use crate::time::{BootTime, sleep_until, within};

/// More attempts than that in one operation mean that something is wrong which time alone will not mend.
const MAX_ATTEMPTS: u32 = 32;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));

/// What became of a write that was sent once.
pub(crate) enum Write<T> {
    Done(T),
    /// This attempt had no effect. An earlier one may have had one: see [`Attempts::in_doubt`].
    Refused(Code),
    /// The answer is lost: the attempt may have been applied.
    Lost,
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
    pub(crate) async fn read<T>(
        &mut self,
        mut request: impl FnMut(BootTime) -> BoxFuture<'static, DriverResult<T>>,
    ) -> Result<Result<T, Code>, OpError> {
        loop {
            match self.send(&mut request).await? {
                Ok(value) => return Ok(Ok(value)),
                Err(DriverError::Definite(code)) => return Ok(Err(code)),
                Err(DriverError::Ambiguous(reason) | DriverError::NotSent(reason)) => {
                    self.pause(reason).await?
                }
            }
        }
    }

    /// Sends a request that changes something, once.
    pub(crate) async fn write<T>(
        &mut self,
        mut request: impl FnMut(BootTime) -> BoxFuture<'static, DriverResult<T>>,
    ) -> Result<Write<T>, OpError> {
        loop {
            match self.send(&mut request).await? {
                Ok(value) => return Ok(Write::Done(value)),
                Err(DriverError::Definite(code)) => return Ok(Write::Refused(code)),
                Err(DriverError::NotSent(reason)) => self.pause(reason).await?,
                Err(DriverError::Ambiguous(reason)) => {
                    self.in_doubt = true;
                    self.pause(reason).await?;
                    return Ok(Write::Lost);
                }
            }
        }
    }

    /// The error for a refusal. In doubt it tells what stands there now, not what became of the request.
    pub(crate) fn refused(&self, code: Code) -> OpError {
        self.refused_at(self.path, code)
    }

    /// The same where it is another path that was refused.
    pub(crate) fn refused_at(&self, path: &str, code: Code) -> OpError {
        let path = path.to_owned();
        if self.in_doubt {
            return self.changed(format!("now the answer is: {code}"));
        }
        match code {
            Code::NoNode => OpError::NoNode { path },
            Code::NodeExists => OpError::NodeExists { path, owner: None },
            Code::BadVersion => OpError::BadVersion { path },
            Code::NotEmpty => OpError::NotEmpty { path },
            Code::NoAuth => OpError::NoAuth { path },
            Code::NoChildrenForEphemerals | Code::Invalid(_) | Code::Other(_) => {
                OpError::Invalid { path, reason: code.to_string() }
            }
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

    async fn send<T>(
        &mut self,
        request: &mut impl FnMut(BootTime) -> BoxFuture<'static, DriverResult<T>>,
    ) -> Result<DriverResult<T>, OpError> {
        let _place = self.wait_for_place().await?;
        let sent = BootTime::now();
        let answer = tokio::select! {
            biased;
            answer = within(self.deadline, request(self.deadline)) => {
                answer.unwrap_or_else(|| Err(DriverError::Ambiguous("ZooKeeper did not answer".to_owned())))
            }
            () = self.inner.over_token().cancelled() => {
                Err(DriverError::Ambiguous("the session ended meanwhile".to_owned()))
            }
        };
        match &answer {
            Ok(_) | Err(DriverError::Definite(_)) => self.inner.contact(sent),
            Err(DriverError::Ambiguous(_) | DriverError::NotSent(_)) => {}
        }
        Ok(answer)
    }

    /// Waits until the session is active and has few enough requests under way. Those who wait are served in turn.
    async fn wait_for_place(&mut self) -> Result<SemaphorePermit<'a>, OpError> {
        let inner = self.inner;
        loop {
            self.wait_until_open().await?;
            if let Ok(place) = inner.places().try_acquire() {
                return Ok(place);
            }
            let next = self.deadline.min(inner.deadline());
            let place = tokio::select! {
                biased;
                // Never closed.
                place = inner.places().acquire() => place.ok(),
                () = inner.over_token().cancelled() => None,
                () = sleep_until(next) => None,
            };
            match place {
                // The wait may have been long: looked at once more, right before something is sent.
                Some(place) if *inner.open().borrow() && !inner.is_over() => return Ok(place),
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
        let mut open = self.inner.open();
        loop {
            if self.inner.is_over() {
                return Err(self.over());
            }
            if *open.borrow_and_update() {
                return Ok(());
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

    /// What the client library did can't be right: the session is given up, for nothing it says can be relied on.
    pub(crate) fn distrust(&self, reason: String) -> OpError {
        self.inner.end(InactiveReason::DriverFailed { reason });
        OpError::Unknown { path: self.path.to_owned(), cause: UnknownCause::SessionOver }
    }
}
