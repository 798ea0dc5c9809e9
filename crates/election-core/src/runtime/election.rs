//! Joining an election, and the handle on it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::{mpsc, watch};
use zk_session::{BootTime, LeaseTiming, NoLease, Session};

use super::{
    changes::Changes, config::ElectionConfig, handler::Handler, now, runner::Runner, status::ElectionStatus,
    to_time,
};
use crate::{
    engine::{Engine, Event, Wish},
    ids::{Ballot, MemberId},
    record::{Health, RoundTrips},
};

/// How long what a member measures may be, as JSON in bytes.
pub const MAX_ATTRIBUTES: usize = 16 * 1024;

/// A member says more of itself than its record should hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "what is measured has {bytes} bytes as JSON, more than {MAX_ATTRIBUTES}; publish fewer or shorter ones"
)]
pub struct AttributesTooLong {
    /// How long they are.
    pub bytes: usize,
}

/// Why this member's part in an election is over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// It left.
    Left,
    /// Another living process has the same id.
    DuplicateMember {
        /// The id.
        member: MemberId,
        /// The znode that the other one holds.
        path: String,
    },
    /// The session was closed under it.
    SessionClosed,
    /// The servers are none on which anybody can lead.
    NoLease(NoLease),
    /// The work can't surely end before its lease does, by what the servers granted to the first session.
    StopBudgetTooLong(StopBudgetTooLong),
    /// A call of the application panicked. Nothing was released, for nobody knows
    /// what still runs; the process should end.
    HandlerPanicked {
        /// Which call.
        call: &'static str,
    },
    /// The engine's own task panicked: a bug. The process should end.
    EnginePanicked,
}

impl std::error::Error for Ended {}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("this member has left the election"),
            Self::DuplicateMember { member, path } => write!(
                f,
                "another living process takes part as {member} (it holds {path}); give each process an id of its own"
            ),
            Self::SessionClosed => f.write_str("the ZooKeeper session was closed"),
            Self::NoLease(why) => why.fmt(f),
            Self::StopBudgetTooLong(why) => why.fmt(f),
            Self::HandlerPanicked { call } => write!(f, "the application panicked in `{call}`"),
            Self::EnginePanicked => f.write_str("the election engine panicked; this is a bug"),
        }
    }
}

/// [`Policy::stop_budget`] does not fit a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the stop budget of {stop_budget:?} does not fit a session timeout of {:?} with a tick time of {:?}: leases have {:?} \
     left at least; shorten Policy::stop_budget below that, or have a longer session timeout granted",
    timing.session_timeout, timing.tick_time, timing.shortest_lease()
)]
pub struct StopBudgetTooLong {
    /// How long the work may need to end.
    pub stop_budget: Duration,
    /// Of the session.
    pub timing: LeaseTiming,
}

impl StopBudgetTooLong {
    /// Checks that work which takes `stop_budget` to end has ended before its lease does.
    ///
    /// # Errors
    /// If it may not have.
    pub fn check(stop_budget: Duration, timing: LeaseTiming) -> Result<(), Self> {
        if stop_budget < timing.shortest_lease() { Ok(()) } else { Err(Self { stop_budget, timing }) }
    }
}

/// A handle on this member's part in an election. Cheap to clone.
///
/// When the last handle is dropped the member leaves: the work is stopped, and
/// leadership released after it.
#[derive(Clone)]
pub struct Election {
    handle: Arc<Handle>,
}

struct Handle {
    name: String,
    events: mpsc::UnboundedSender<Event>,
    status: watch::Receiver<ElectionStatus>,
    ended: watch::Receiver<Option<Ended>>,
    holds: Mutex<Holds>,
}

/// The reasons not to hand over, in the order that they came in.
#[derive(Debug, Default)]
struct Holds {
    next: u64,
    reasons: BTreeMap<u64, String>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.events.send(Event::Leave { hand_over: false });
    }
}

impl Election {
    /// Joins an election over a session, which other elections can share.
    ///
    /// Returns at once; what follows is to be seen in [`status`](Self::status). It [`ended`](Self::ended) with the
    /// first session if nobody can lead on that: [`Ended::NoLease`], [`Ended::StopBudgetTooLong`].
    /// Must be called in a tokio runtime, which the election lives on.
    pub fn join<H: Handler>(session: Session, config: ElectionConfig, handler: H) -> Self {
        let name = config.paths().name().to_owned();
        let engine = Engine::new(config.into_engine(), now());
        let (events, inbox) = mpsc::unbounded_channel();
        let (status_sender, status) = watch::channel(ElectionStatus::of(&engine));
        let (ended_sender, ended) = watch::channel(None);
        let runner =
            Runner::new(name.clone(), engine, session, handler, events.clone(), inbox, status_sender);
        let task = tokio::spawn(runner.run());
        tokio::spawn(async move {
            let reason = task.await.unwrap_or(Ended::EnginePanicked);
            ended_sender.send_replace(Some(reason));
        });
        Self { handle: Arc::new(Handle { name, events, status, ended, holds: Mutex::default() }) }
    }

    /// The election's name.
    pub fn name(&self) -> &str {
        &self.handle.name
    }

    /// What this member is doing, and its changes.
    pub fn status(&self) -> Changes<ElectionStatus> {
        Changes::new(self.handle.status.clone())
    }

    pub(super) fn token_while_leading(&self) -> Option<u64> {
        let status = self.handle.status.borrow();
        if status.leads_now() { status.fencing_token } else { None }
    }

    pub(super) fn downgrade(&self) -> WeakElection {
        WeakElection(Arc::downgrade(&self.handle))
    }

    /// Reports whether this member is fit to lead, with the reason if it is not. At any time, as often as the program
    /// likes: it returns at once, the latest report counts, and only a change is a write to ZooKeeper. Nothing is
    /// awaited, thus nothing can be cancelled half way. A report that comes after the election has [`ended`](Self::ended)
    /// is dropped.
    ///
    /// - [`Health::Unhealthy`]: it is not elected. A leader makes room, with the cause
    ///   [`Unhealthy`](crate::record::Cause::Unhealthy), as soon as another member may lead, and leads on until then. The
    ///   reason is shortened to 500 bytes, and shown by whatever lists the members.
    /// - [`Health::Healthy`]: it is elected as before.
    /// - [`Health::Unknown`]: no check has been answered yet. It is not elected; a leader leads on. For a member that is
    ///   to be so from the beginning, set [`Profile::health`]: this method may come too late for the first decision.
    ///
    /// It is [`Health::Unchecked`] until the first report. With the recipes `queue` and `single` nothing is published: a
    /// member that is not fit withdraws its znode, and a leader that is not gives up leadership, whether another one
    /// follows or not.
    pub fn set_health(&self, health: Health) {
        let _ = self.handle.events.send(Event::Health(health));
    }

    /// Says whether the whole site of this member is fit, as far as it can tell: whether its
    /// uplink stands, say, or its storage. When most of the living members of a site say that it is
    /// not, nobody leads there. `None` for one that does not look, which counts as a member that
    /// does not say so.
    ///
    /// Each change is a write to ZooKeeper. The recipes without an elector publish none.
    pub fn set_site_health(&self, health: Option<Health>) {
        let _ = self.handle.events.send(Event::SiteHealth(health));
    }

    /// Says what was measured of this member, such as a score or a lag: attributes that a policy may go by,
    /// before those of [`Profile::attributes`] that have the same names. These are all of them: what was said
    /// before is forgotten.
    ///
    /// What is measured wavers, so whatever a policy makes of it waits as any move to somebody better does, where
    /// what is configured can move leadership at once.
    ///
    /// Each change is a write to ZooKeeper that every member's elector reads, so smooth what
    /// wavers, and say it only when it has changed by enough. The recipes without an elector
    /// publish none.
    ///
    /// # Errors
    /// When they are longer than [`MAX_ATTRIBUTES`] in JSON; then nothing has changed.
    pub fn set_measured(&self, measured: BTreeMap<String, String>) -> Result<(), AttributesTooLong> {
        let bytes = serde_json::to_vec(&measured).map_or(usize::MAX, |json| json.len());
        if bytes > MAX_ATTRIBUTES {
            return Err(AttributesTooLong { bytes });
        }
        let _ = self.handle.events.send(Event::Measured(measured));
        Ok(())
    }

    /// Says how far away others are from this member, as it has measured and smoothed it; what
    /// a policy may go by. Each change is a write, as for [`set_measured`](Self::set_measured).
    ///
    /// # Errors
    /// When they are longer than [`MAX_ATTRIBUTES`] in JSON; then nothing has changed.
    pub fn set_round_trips(&self, round_trips: RoundTrips) -> Result<(), AttributesTooLong> {
        let bytes = serde_json::to_vec(&round_trips).map_or(usize::MAX, |json| json.len());
        if bytes > MAX_ATTRIBUTES {
            return Err(AttributesTooLong { bytes });
        }
        let _ = self.handle.events.send(Event::RoundTrips(round_trips));
        Ok(())
    }

    /// Says which of the other members did not answer in a round of probes, by ballot:
    /// what [`Policy::fast_failover`] rests on. To be said after each round, also when
    /// nothing has changed, a few times within [`Policy::suspect_after`]. How they are
    /// probed is up to the application; the network that matters is the one between
    /// the members, not the way to ZooKeeper.
    pub fn probed(&self, unanswered: BTreeSet<Ballot>) {
        let _ = self.handle.events.send(Event::Probed { unanswered });
    }

    /// Resigns, if this member leads or is about to: stops the work, then releases leadership, and another
    /// member is named. This member can be named again after [`Policy::exclusion`], or as soon as no other
    /// member may lead.
    pub fn resign(&self, reason: impl Into<String>) {
        self.wish(Wish::Resign { reason: reason.into() });
    }

    /// Resigns by a deadline: the work has ended by then. The stop begins [`Policy::stop_budget`] before the
    /// deadline, or at once if that moment has passed, and has its whole budget.
    /// No effect on a member that does not lead.
    pub fn resign_by(&self, by: BootTime, reason: impl Into<String>) {
        self.wish(Wish::ResignBy { by: to_time(by), reason: reason.into() });
    }

    /// Resigns and is no candidate until [`rejoin`](Self::rejoin): this member is not named, even if no other
    /// member is left or an operator asks for it. It stays a member of the election, and can be its elector.
    pub fn withdraw(&self, reason: impl Into<String>) {
        self.wish(Wish::Withdraw { reason: reason.into() });
    }

    /// Becomes a candidate again after [`withdraw`](Self::withdraw).
    pub fn rejoin(&self) {
        self.wish(Wish::Rejoin);
    }

    /// Blocks planned moves of leadership until the returned guard is dropped: operators' switchovers are
    /// refused with this reason, and leadership does not move to a better member. Failovers and forced steps are
    /// not blocked. It takes effect once this member's record is written.
    #[must_use = "leadership is handed over again as soon as this is dropped"]
    pub fn block_switchover(&self, reason: impl Into<String>) -> SwitchoverBlock {
        let reason = reason.into();
        let mut holds = self.handle.holds();
        let number = holds.next;
        holds.next += 1;
        holds.reasons.insert(number, reason.clone());
        self.wish(Wish::BlockSwitchover { reason });
        drop(holds);
        SwitchoverBlock { handle: Arc::downgrade(&self.handle), number }
    }

    fn wish(&self, wish: Wish) {
        let _ = self.handle.events.send(Event::Wish(wish));
    }

    /// Leaves: leadership is handed over, the work stopped, the ballot withdrawn.
    ///
    /// A leader works on until another member is named, for 2 s at most, and has prepared, for
    /// [`Policy::acquire_timeout`](crate::engine::Policy::acquire_timeout) at most; that is a planned move (its cause is
    /// `leader-shutdown`), and counts as no failure. In the recipes `queue` and `single`, and without a connection, it stops
    /// at once.
    ///
    /// Without a connection it ends soon after the work has; what is left in
    /// ZooKeeper then goes with the session.
    ///
    /// # Cancel safety
    /// Cancel safe: once begun, leaving goes on.
    pub async fn leave(&self) -> Ended {
        let _ = self.handle.events.send(Event::Leave { hand_over: true });
        self.ended().await
    }

    /// Leaves as [`leave`](Self::leave) does, without waiting for the next leader: also where that wait has begun.
    pub fn leave_at_once(&self) {
        let _ = self.handle.events.send(Event::Leave { hand_over: false });
    }

    /// Waits until this member's part is over.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ended(&self) -> Ended {
        let mut ended = self.handle.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(Ended::EnginePanicked),
            Err(_) => Ended::EnginePanicked,
        }
    }
}

impl Handle {
    fn holds(&self) -> MutexGuard<'_, Holds> {
        // Nothing that can panic is done under it.
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle that does not keep the election running.
#[derive(Debug)]
pub(super) struct WeakElection(Weak<Handle>);

impl WeakElection {
    pub(super) fn upgrade(&self) -> Option<Election> {
        self.0.upgrade().map(|handle| Election { handle })
    }
}

/// Planned moves of leadership are blocked while this lives. From [`Election::block_switchover`].
#[derive(Debug)]
pub struct SwitchoverBlock {
    /// The guard does not keep the election running.
    handle: Weak<Handle>,
    number: u64,
}

impl Drop for SwitchoverBlock {
    fn drop(&mut self) {
        let Some(handle) = self.handle.upgrade() else { return };
        let mut holds = handle.holds();
        holds.reasons.remove(&self.number);
        let wish = match holds.reasons.last_key_value() {
            Some((_, reason)) => Wish::BlockSwitchover { reason: reason.clone() },
            None => Wish::AllowSwitchover,
        };
        let _ = handle.events.send(Event::Wish(wish));
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election").field("name", &self.handle.name).finish_non_exhaustive()
    }
}
