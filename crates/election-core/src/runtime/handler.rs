//! What an application does with leadership.

use std::{fmt, future::Future};

use tokio::sync::watch;
use zk_session::BootTime;

use super::{candidate::Hold, changes::Changes};
use crate::{
    engine::{Nomination, Reason, StopReason},
    record::{Cause, Current, Phases},
};

/// An application that leads, while this member does.
///
/// The calls for one leadership come in this order: `prepare`, `takeover`, `lead`,
/// `stop`. Whatever was begun is stopped: after the first `prepare`, `stop` is
/// called exactly once for each leadership, at any point, and the future of the
/// call that was running is dropped before. Leadership is released when `stop` has
/// returned, and not before.
///
/// A panic in any of them ends the election with
/// [`Ended::HandlerPanicked`](super::Ended::HandlerPanicked) and *without* a
/// release: what still runs is then unknown.
pub trait Handler: Send + Sync + 'static {
    /// Gets ready to take over. May overlap the old leader's stop, so it must not
    /// touch what the leader alone may touch.
    fn prepare(&self, nomination: &Nomination) -> impl Future<Output = Result<(), Failure>> + Send {
        let _ = nomination;
        async { Ok(()) }
    }

    /// Takes over. READY is announced once it returns.
    ///
    /// The first thing to do with the fencing token is to claim it at the resource,
    /// before anything is read there.
    fn takeover(&self, leadership: &Leadership) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Leads. Leadership is given up when this returns: as after
    /// [`resign`](super::Election::resign) if the work is finished.
    ///
    /// # Errors
    /// When the work can't be kept up, which counts as a failure of this member.
    fn lead(&self, leadership: &Leadership) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Ends everything that was begun. When it returns, nothing may be running any
    /// more; by [`StopOrder::by`] everything must have ended.
    fn stop(&self, order: &StopOrder) -> impl Future<Output = ()> + Send;

    /// Another member, or none, leads `slot` (0, unless the election has
    /// several). Intermediate leaders may be left out; the calls come one after the other.
    fn leader_changed(&self, slot: usize, leader: Option<&Current>) -> impl Future<Output = ()> + Send {
        let _ = (slot, leader);
        async {}
    }

    /// Something happened that is worth a metric. Called on the election's own task: it must return at once, and must
    /// not panic.
    fn observe(&self, event: ElectionEvent) {
        let _ = event;
    }
}

/// What happened in an election, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElectionEvent {
    /// This member, as the elector, decided nothing for this reason.
    Skipped(Reason),
    /// A takeover by this member failed.
    TakeoverFailed,
    /// This member became READY.
    Ready {
        /// Why leadership changed.
        cause: Cause,
        /// How long each phase took.
        phases: Phases,
    },
}

/// Why an application could not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// A failure, in words for operators.
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// The words.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut words = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            words = format!("{words}: {error}");
            cause = error.source();
        }
        Self(words)
    }
}

/// Leadership that has been acquired: its term, its fencing token, and until when it lasts.
///
/// [`Candidate::campaign`](super::Candidate::campaign) returns one, which resigns when it is dropped. A [`Handler`] is
/// lent one for the time of each call.
#[derive(Debug)]
pub struct Leadership {
    pub(super) nomination: Nomination,
    pub(super) fencing_token: u64,
    pub(super) work_until: watch::Receiver<BootTime>,
    pub(super) stop: watch::Receiver<Option<StopReason>>,
    /// Releases leadership when it is dropped, where it is owned.
    pub(super) hold: Option<Hold>,
}

impl Leadership {
    /// The same, without what releases it.
    pub(super) fn lent(&self) -> Self {
        Self {
            nomination: self.nomination.clone(),
            fencing_token: self.fencing_token,
            work_until: self.work_until.clone(),
            stop: self.stop.clone(),
            hold: None,
        }
    }

    /// Why this member was named, and who led before.
    pub fn nomination(&self) -> &Nomination {
        &self.nomination
    }

    /// The term.
    pub fn term(&self) -> u64 {
        self.nomination.term
    }

    /// Which of the election's slots; 0 where it has only one.
    pub fn slot(&self) -> usize {
        self.nomination.slot
    }

    /// Grows with every leadership of a slot. Pass it to every resource that the work writes to, and have the
    /// resource refuse older ones; a resource that several slots write to keeps the tokens of each slot apart.
    pub fn fencing_token(&self) -> u64 {
        self.fencing_token
    }

    /// Until when the work may go on, renewed while the session is proved alive.
    pub fn work_until(&self) -> Changes<BootTime> {
        Changes::new(self.work_until.clone())
    }

    /// Whether the work may go on *now*. A process can be frozen between this and
    /// what it does next; the fencing token is for that.
    pub fn is_valid(&self) -> bool {
        self.stop.borrow().is_none() && BootTime::now() < *self.work_until.borrow()
    }

    /// Waits until leadership ends: this member resigned, another one was named, or the lease nears its end. The work
    /// must have ended by [`work_until`](Self::work_until), and leadership is not released before it has.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) -> StopReason {
        let mut stop = self.stop.clone();
        match stop.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(StopReason::LeaseEnds),
            // The election is over, its last task with it.
            Err(_) => StopReason::SessionOver,
        }
    }
}

/// The order to stop.
#[derive(Clone, Debug)]
pub struct StopOrder {
    pub(super) term: u64,
    pub(super) reason: watch::Receiver<StopReason>,
    pub(super) deadline: watch::Receiver<BootTime>,
}

impl StopOrder {
    /// The term that ends.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Why. It can become more urgent meanwhile.
    pub fn reason(&self) -> StopReason {
        self.reason.borrow().clone()
    }

    /// By when everything must have ended, as known now. It moves on while the lease
    /// is still renewed.
    pub fn by(&self) -> BootTime {
        *self.deadline.borrow()
    }

    /// By when everything must have ended, and its changes.
    pub fn deadline(&self) -> Changes<BootTime> {
        Changes::new(self.deadline.clone())
    }

    /// Whether there is time for an orderly stop: no other member can be leading yet.
    pub fn is_orderly(&self) -> bool {
        !self.reason.borrow().is_urgent()
    }

    /// Waits until there is no time for an orderly stop any more.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn urgent(&self) {
        let mut reason = self.reason.clone();
        if reason.wait_for(StopReason::is_urgent).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
