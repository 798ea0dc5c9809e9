//! The application's side of a leadership.

use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use zk_session::{BootTime, OpError};

use super::changes::Changes;
use crate::{
    engine::{Appointment, Reason, StopReason},
    record::{Cause, Current, Phases},
};

/// An application that leads while this member is the leader.
///
/// The calls for one leadership have this order: `prepare`, `takeover`, `lead`, `stop`. After the first `prepare`,
/// `stop` is called exactly once for each leadership, at any time. The future of the call in progress is dropped before
/// that. Leadership is released only after `stop` has returned.
///
/// ```no_run
/// use election_core::{
///     Election, ElectionConfig, Handler, Leadership,
///     handler::{Failure, StopOrder},
///     session::Session,
/// };
///
/// # struct Store;
/// # impl Store {
/// #     async fn claim(&self, _: u64) -> Result<(), std::io::Error> { Ok(()) }
/// #     async fn serve(&self) -> Result<(), std::io::Error> { Ok(()) }
/// #     async fn close(&self) {}
/// # }
/// struct Primary {
///     store: Store,
/// }
///
/// impl Handler for Primary {
///     async fn takeover(&self, leadership: &Leadership) -> Result<(), Failure> {
///         // From here on the store refuses the writes of former leaders.
///         self.store.claim(leadership.fencing_token()).await.map_err(|error| Failure::new(error.to_string()))
///     }
///
///     async fn lead(&self, _: &Leadership) -> Result<(), Failure> {
///         self.store.serve().await.map_err(|error| Failure::new(error.to_string()))
///     }
///
///     async fn stop(&self, _: &StopOrder) {
///         self.store.close().await; // within the stop budget of the policy
///     }
/// }
///
/// # async fn run(session: Session, store: Store) -> Result<(), Box<dyn std::error::Error>> {
/// let election = Election::join(session, ElectionConfig::queue("/app/store", "host-1")?, Primary { store });
/// println!("not a member any more: {}", election.ended().await);
/// # Ok(())
/// # }
/// ```
///
/// A panic in a call ends the election with [`Ended::HandlerPanicked`](super::Ended::HandlerPanicked) and *without* a
/// release, because the state of the work is then unknown.
pub trait Handler: Send + Sync + 'static {
    /// Prepares to take over. It may overlap the old leader's stop, so it must not use what only the leader may use.
    fn prepare(&self, appointment: &Appointment) -> impl Future<Output = Result<(), Failure>> + Send {
        let _ = appointment;
        async { Ok(()) }
    }

    /// Takes over. READY is announced after it returns.
    ///
    /// First claim the fencing token at the resource, before anything is read there.
    fn takeover(&self, leadership: &Leadership) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Leads. Leadership is released after it returns. `Ok` means that the work is finished, and has the effect of
    /// [`resign`](super::Election::resign).
    ///
    /// # Errors
    /// When the work can't continue, which counts as a failure of this member.
    fn lead(&self, leadership: &Leadership) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Another member is named in a planned move. This one leads on, and `lead` is not interrupted, until this returns; then
    /// `stop` follows. Its future is dropped if leadership ends for another reason meanwhile. It is only called if
    /// [`asks_before_moves`](Self::asks_before_moves).
    ///
    /// # Errors
    /// Why the move is called off: this member leads on, with its token. A move that no operator has requested is tried again
    /// after [`Policy::exclusion`](crate::config::Policy::exclusion).
    fn before_move(
        &self,
        leadership: &Leadership,
        reason: &StopReason,
    ) -> impl Future<Output = Result<(), Failure>> + Send {
        let _ = (leadership, reason);
        async { Ok(()) }
    }

    /// Whether [`before_move`](Self::before_move) is to be called. Asked once, when the member joins. The recipes without an
    /// elector have no planned moves.
    fn asks_before_moves(&self) -> bool {
        false
    }

    /// Ends all work. Nothing may be running when it returns. All work must have ended by [`StopOrder::by`].
    fn stop(&self, order: &StopOrder) -> impl Future<Output = ()> + Send;

    /// The leader of `slot` has changed, or `slot` has no leader. `slot` is 0 unless the election has several.
    /// Intermediate leaders may be omitted. The calls do not overlap. It is only called if this member
    /// [follows the leaders](Self::follows_leaders).
    fn leader_changed(&self, slot: usize, leader: Option<&Current>) -> impl Future<Output = ()> + Send {
        let _ = (slot, leader);
        async {}
    }

    /// Whether [`leader_changed`](Self::leader_changed) is to be called. Asked once, when the member joins.
    ///
    /// If not, a change of leadership costs a passive member no request: while other members lead, and it is neither named nor the
    /// first in line. It reads the decision and the leader znode when a decision names it or has made it the first in line,
    /// and while its [status](super::Election::status) is followed.
    fn follows_leaders(&self) -> bool {
        false
    }

    /// A metric should change. It is called on the election's own task, so it must return at once and must not panic.
    fn observe(&self, event: ElectionEvent) {
        let _ = event;
    }

    /// ZooKeeper refuses to have the election read or written, for its path, an access list or the credentials. The election
    /// tries again, with pauses of seconds, and this is called for each attempt. It must return at once.
    fn refused(&self, error: &OpError) {
        let _ = error;
    }
}

/// An event in an election, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElectionEvent {
    /// This member, as the elector, did not decide, for this reason.
    Skipped(Reason),
    /// A takeover by this member failed.
    TakeoverFailed,
    /// This member became READY.
    Ready {
        /// The cause of the change.
        cause: Cause,
        /// How long each phase took.
        phases: Phases,
    },
}

/// Why an application could not carry out a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    why: String,
    is_declined: bool,
}

impl Failure {
    /// A failure with its reason, for operators.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_declined: false }
    }

    /// `prepare` or `takeover` declines leadership: this member is not to lead now, for this reason. It gives up its
    /// claim as with [`resign`](super::Election::resign), and that does not count as a failure. From `lead` it is an
    /// ordinary failure.
    pub fn declined(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_declined: true }
    }

    /// Whether it was made by [`declined`](Self::declined).
    pub fn is_declined(&self) -> bool {
        self.is_declined
    }

    /// The reason.
    pub fn as_str(&self) -> &str {
        &self.why
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
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
        Self::new(words)
    }
}

/// Leadership that has been acquired: its term, its fencing token, and until when it lasts.
///
/// [`Candidate::campaign`](super::Candidate::campaign) returns a leadership that resigns when it is dropped. A
/// [`Handler`] borrows one during each call.
#[derive(Debug)]
pub struct Leadership {
    pub(super) terms: Arc<Terms>,
    /// Releases leadership when it is dropped. Only an owned leadership has one.
    pub(super) hold: Option<Box<dyn Loan>>,
}

/// The ownership of a [`Leadership`]: the work has ended when it is dropped.
pub(super) trait Loan: fmt::Debug + Send + Sync {
    /// The work has failed, which counts once this is dropped.
    fn fail(&mut self, why: Failure);

    /// Waits until the election has released leadership, or has ended. Polled after the loan is dropped.
    fn released(&self) -> BoxFuture<'static, ()>;
}

/// What a leadership consists of, for the application and for the election.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) appointment: Arc<Appointment>,
    pub(super) fencing_token: u64,
    pub(super) work_until: watch::Receiver<BootTime>,
    pub(super) suspended: watch::Receiver<bool>,
    /// Why it ends.
    pub(super) stop: watch::Receiver<Option<StopReason>>,
    /// What `takeover` remarks.
    pub(super) remark: Mutex<Option<String>>,
}

impl Leadership {
    pub(super) fn new(terms: Arc<Terms>) -> Self {
        Self { terms, hold: None }
    }

    /// Why this member was named, and the previous leader.
    pub fn appointment(&self) -> &Appointment {
        &self.terms.appointment
    }

    /// The term.
    pub fn term(&self) -> u64 {
        self.terms.appointment.term
    }

    /// The slot; 0 if the election has only one.
    pub fn slot(&self) -> usize {
        self.terms.appointment.slot
    }

    /// The fencing token. It grows with every leadership of a slot. Pass it to every resource that the work writes to,
    /// and make the resource refuse older tokens. A resource that several slots write to must check the tokens of each
    /// slot separately.
    pub fn fencing_token(&self) -> u64 {
        self.terms.fencing_token
    }

    /// Adds a remark to the sentence of this leadership in the history. Only `takeover` can do that, and the last remark
    /// counts.
    pub fn remark(&self, remark: impl Into<String>) {
        *self.terms.remark.lock().unwrap_or_else(PoisonError::into_inner) = Some(remark.into());
    }

    /// Until when the work may continue. It is renewed while the session is proved alive.
    pub fn work_until(&self) -> Changes<BootTime> {
        Changes::new(self.terms.work_until.clone())
    }

    /// Whether the work must rest now, because it is not certain that this member still leads. Only with
    /// [`OnPause::Freeze`](crate::engine::OnPause::Freeze); otherwise always false.
    pub fn suspended(&self) -> Changes<bool> {
        Changes::new(self.terms.suspended.clone())
    }

    /// Whether the work may continue *now*. The process can freeze between this check and its next step. The fencing
    /// token protects against that.
    pub fn is_valid(&self) -> bool {
        let terms = &self.terms;
        terms.stop.borrow().is_none()
            && !*terms.suspended.borrow()
            && BootTime::now() < *terms.work_until.borrow()
    }

    /// Waits until leadership ends: this member resigned, its election or the runtime has ended, another member was named, or the lease nears its end. The
    /// work must end by [`work_until`](Self::work_until). Leadership is not released before the work has ended.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) -> StopReason {
        let mut stop = self.terms.stop.clone();
        match stop.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(StopReason::LeaseEnds),
            // The election has ended, and its last task with it.
            Err(_) => StopReason::SessionOver,
        }
    }

    /// Resigns, and waits until leadership is released or the election has ended. Dropping it resigns too, but does not wait.
    ///
    /// # Cancel safety
    /// Cancel safe: the resignation continues.
    pub async fn resign(self) {
        let released = self.hold.as_ref().map(|hold| hold.released());
        drop(self);
        if let Some(released) = released {
            released.await;
        }
    }
}

/// The order to stop.
#[derive(Clone, Debug)]
pub struct StopOrder {
    pub(super) term: u64,
    pub(super) reason: watch::Receiver<Option<StopReason>>,
    pub(super) deadline: watch::Receiver<BootTime>,
}

impl StopOrder {
    /// The term that ends.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// The reason. It can become more urgent later.
    pub fn reason(&self) -> StopReason {
        self.reason.borrow().clone().unwrap_or(StopReason::LeaseEnds)
    }

    /// The present deadline by which all work must have ended. It moves on while the lease is still renewed.
    pub fn by(&self) -> BootTime {
        *self.deadline.borrow()
    }

    /// The deadline by which all work must have ended, and its changes.
    pub fn deadline(&self) -> Changes<BootTime> {
        Changes::new(self.deadline.clone())
    }

    /// Whether there is time for an orderly stop, because no other member can be leading yet.
    pub fn is_orderly(&self) -> bool {
        !self.reason().is_urgent()
    }

    /// Waits until there is no longer time for an orderly stop, or the stop has ended.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn urgent(&self) {
        let mut reason = self.reason.clone();
        // An error: it has ended.
        let _ = reason.wait_for(|reason| reason.as_ref().is_some_and(StopReason::is_urgent)).await;
    }
}
