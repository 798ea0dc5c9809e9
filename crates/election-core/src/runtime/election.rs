//! Joining an election, and the handle on it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

use tokio::sync::{SetOnce, watch};
use zk_session::{BootTime, Session, SessionPin};

use super::{
    changes::Changes,
    config::ElectionConfig,
    ended::Ended,
    events::{Events, HandedOver, Message},
    handler::Handler,
    living::Living,
    now,
    publisher::Publisher,
    runner::{Joining, Runner},
    status::ElectionStatus,
    to_time,
};
use crate::{
    engine::{Config, Engine, Event, Profile, Resumption, Unrest, Wish},
    ids::Ballot,
    paths::Paths,
    record::{Health, RoundTrips},
};

#[cfg(doc)]
use super::StopBudgetTooLong;
#[cfg(doc)]
use crate::engine::Policy;

/// The size limit of a member's measured attributes, in bytes of JSON.
pub const MAX_ATTRIBUTES: usize = 16 * 1024;

/// A member's measured attributes exceed the size limit of its record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "what is measured has {bytes} bytes as JSON, more than {MAX_ATTRIBUTES}; publish fewer or shorter ones"
)]
pub struct AttributesTooLong {
    /// Their size.
    pub bytes: usize,
}

/// The number of the next member that this process has join an election. Another process that continues on a session of
/// this one begins elsewhere.
fn next_number() -> u32 {
    static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| AtomicU32::new(fastrand::u32(..)));
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A handle on this member's part in an election. Cheap to clone.
///
/// When the last handle is dropped the member leaves: the work is stopped, then leadership is released.
#[derive(Clone)]
pub struct Election {
    handle: Arc<Handle>,
}

struct Handle {
    paths: Paths,
    events: Events,
    status: watch::Receiver<ElectionStatus>,
    ended: Arc<SetOnce<Ended>>,
    holds: Mutex<Holds>,
}

/// The reasons to block planned moves, oldest first.
#[derive(Default)]
struct Holds {
    next: u64,
    reasons: BTreeMap<u64, String>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.events.send(Event::Leave { hand_over: false });
    }
}

impl Election {
    /// Joins an election on a session, which other elections and other members of this one can share.
    ///
    /// Returns at once. [`status`](Self::status) shows the progress. The election has [`ended`](Self::ended) with the
    /// first session if no member can lead on it: [`Ended::NoLease`], [`Ended::StopBudgetTooLong`]. Must be called in a
    /// tokio runtime, on which the election runs.
    pub fn join<H: Handler>(session: Session, config: ElectionConfig, handler: H) -> Self {
        let paths = config.paths().clone();
        let (number, living) = loop {
            let number = next_number();
            if let Some(living) = Living::begin(&paths, number) {
                break (number, living);
            }
        };
        let (config, (term, token)) = config.into_engine();
        let mut engine = Engine::new(config, number, now());
        engine.begin_above(term, token);
        Self::run(paths, (engine, Joining::Anew, living), session, handler)
    }

    /// Continues as a member that another process on this machine has handed over, on its session, which was
    /// [resumed](zk_session::SessionBuilder::resume) and pinned right after that.
    ///
    /// A leadership continues with its term and its token: [`Handler::lead`] is called, and neither `prepare` nor `takeover`.
    /// The leader znode, the decision and the member's own record are read again. If they are not as they were, or the
    /// session has ended, the work is stopped as always. The work may continue until the end of the lease that was handed
    /// over, and longer as soon as this process has proved a lease of its own.
    ///
    /// The configuration may differ in everything but the election, the member and the recipe.
    ///
    /// # Errors
    /// If the recipe is another one, or if this process continues as this member already. Then nothing has begun.
    pub fn resume<H: Handler>(
        session: Session,
        pin: SessionPin,
        config: ElectionConfig,
        from: Resumption,
        handler: H,
    ) -> Result<Self, Unrest> {
        let paths = config.paths().clone();
        let living = Living::begin(&paths, from.number())
            .ok_or(Unrest::Now("another engine of this process is this member"))?;
        let (engine, entered) = Engine::resume(config.into_engine().0, from, pin.epoch().0, now())?;
        Ok(Self::run(paths, (engine, Joining::Again(pin, entered), living), session, handler))
    }

    fn run<H: Handler>(
        paths: Paths,
        begins: (Engine, Joining, Living),
        session: Session,
        handler: H,
    ) -> Self {
        let (events, inbox) = Events::channel();
        let (sender, status) = watch::channel(ElectionStatus::of(&begins.0));
        let ended = Arc::default();
        let publisher = Publisher::new(sender, Arc::clone(&ended));
        let runner = Runner::new(begins, session, handler, (events.clone(), inbox), publisher);
        tokio::spawn(Box::new(runner).run());
        Self { handle: Arc::new(Handle { paths, events, status, ended, holds: Mutex::default() }) }
    }

    /// The election's name.
    pub fn name(&self) -> &str {
        self.handle.paths.name()
    }

    /// What this member is doing, and its changes.
    ///
    /// While the returned value exists, a passive member reads each change of leadership, within a quarter of a second.
    /// Without one, and unless its [handler follows the leaders](Handler::follows_leaders), it does not: `elected` and
    /// `leaders` are then as it last read them, and this call makes it read them once.
    pub fn status(&self) -> Changes<ElectionStatus> {
        let changes = Changes::new(self.handle.status.clone());
        self.handle.events.put(Message::Looked);
        changes
    }

    pub(super) fn token_while_leading(&self) -> Option<u64> {
        let status = self.handle.status.borrow();
        status.fencing_token.filter(|_| status.leads_now())
    }

    pub(super) fn downgrade(&self) -> WeakElection {
        WeakElection(Arc::downgrade(&self.handle))
    }

    /// Reports whether this member is fit to lead, with the reason if it is not. It can be called at any time and
    /// returns at once. The latest report counts, and only a change is written to ZooKeeper. A report after the
    /// election has [`ended`](Self::ended) is ignored.
    ///
    /// - [`Health::Unhealthy`]: it is not elected. A leader is replaced, with the cause
    ///   [`Unhealthy`](crate::record::Cause::Unhealthy), as soon as another member may lead, and continues to lead
    ///   until then. The reason is shortened to 500 bytes, and shown in every list of the members.
    /// - [`Health::Healthy`]: it can be elected.
    /// - [`Health::Unknown`]: there is no result of a check yet. It is not elected, but a leader continues to lead. To
    ///   start a member in this state, set [`Profile::health`]: this method may be too late for the first decision.
    ///
    /// It is [`Health::Unchecked`] until the first report. With the recipes `queue` and `single` nothing is published:
    /// an unfit member withdraws its znode, and an unfit leader resigns even if there is no other candidate.
    pub fn set_health(&self, health: Health) {
        self.handle.events.send(Event::Health(health));
    }

    /// Reports whether the whole site of this member is fit, as far as it can determine, for example by the site's
    /// uplink or storage. If most of the living members of a site report it as unfit, no member leads there. `None`
    /// means that this member does not check. It then counts as a member that does not report the site as unfit.
    ///
    /// Each change is a write to ZooKeeper. With the recipes without an elector nothing is published.
    pub fn set_site_health(&self, health: Option<Health>) {
        self.handle.events.send(Event::SiteHealth(health));
    }

    /// Reports measured attributes of this member, such as a score or a lag, for use in a policy. They override the
    /// [`Profile::attributes`] of the same names. Each call replaces all attributes of the call before.
    ///
    /// Measurements fluctuate, so a policy's response to them is delayed like any move to a better candidate.
    /// Configured attributes can move leadership at once.
    ///
    /// Each change is a write to ZooKeeper that every member's elector reads. Smooth fluctuating values, and report
    /// only relevant changes. With the recipes without an elector nothing is published.
    ///
    /// # Errors
    /// When they are longer than [`MAX_ATTRIBUTES`] in JSON. The former attributes then remain.
    pub fn set_measured(&self, measured: BTreeMap<String, String>) -> Result<(), AttributesTooLong> {
        let bytes = serde_json::to_vec(&measured).map_or(usize::MAX, |json| json.len());
        if bytes > MAX_ATTRIBUTES {
            return Err(AttributesTooLong { bytes });
        }
        self.handle.events.send(Event::Measured(measured));
        Ok(())
    }

    /// Reports the round trips from this member to others, measured and smoothed, for use in a policy. Each change is a
    /// write, as for [`set_measured`](Self::set_measured).
    ///
    /// # Errors
    /// When they are longer than [`MAX_ATTRIBUTES`] in JSON. The former ones then remain.
    pub fn set_round_trips(&self, round_trips: RoundTrips) -> Result<(), AttributesTooLong> {
        let bytes = serde_json::to_vec(&round_trips).map_or(usize::MAX, |json| json.len());
        if bytes > MAX_ATTRIBUTES {
            return Err(AttributesTooLong { bytes });
        }
        self.handle.events.send(Event::RoundTrips(round_trips));
        Ok(())
    }

    /// Reports the other members that did not answer in a round of probes, by ballot. [`Policy::fast_failover`] is
    /// based on these reports. Call it after each round, also without a change, several times within
    /// [`Policy::suspect_after`]. The application determines how to probe. Probe the network between the members, not
    /// the route to ZooKeeper.
    pub fn probed(&self, unanswered: BTreeSet<Ballot>) {
        self.handle.events.send(Event::Probed(unanswered));
    }

    /// Takes over new settings without leaving: the policy, the strategy of the recipe `elector`, and this member's
    /// addresses, attributes, priority, policy fingerprint and overlay. The rest of `config` has no effect: who this member is, the recipe,
    /// [`Policy::slots`](crate::engine::Policy::slots) and [`Policy::on_pause`](crate::engine::Policy::on_pause) need another
    /// [`join`](Self::join).
    ///
    /// Returns at once. All members need the same policy in the end; until then the elector's decides. A longer
    /// [`Policy::stop_budget`](crate::engine::Policy::stop_budget) must fit the lease: [`StopBudgetTooLong::check`].
    pub fn reconfigure(&self, config: ElectionConfig) {
        let new = config.into_engine().0;
        self.change(move |config| *config = new);
    }

    /// Changes the addresses, the attributes, the priority, the policy fingerprint or the overlay that this member publishes. It
    /// keeps leading. `change` gets what it publishes now; changes of the rest have no effect. It runs in the task of the election,
    /// which it must not delay. Returns at once.
    ///
    /// ```
    /// # fn moved(election: &election_core::Election) {
    /// election.proclaim(|member| member.address = Some("10.0.0.7:8080".to_owned()));
    /// # }
    /// ```
    pub fn proclaim(&self, change: impl FnOnce(&mut Profile) + Send + 'static) {
        self.change(|config| change(Arc::make_mut(&mut config.member)));
    }

    fn change(&self, change: impl FnOnce(&mut Config) + Send + 'static) {
        self.handle.events.put(Message::Reconfigure(Box::new(change)));
    }

    /// Resigns, if this member leads or is about to: stops the work, then releases leadership, and another
    /// member is named. This member can be named again after [`Policy::exclusion`], or as soon as no other
    /// member may lead.
    pub fn resign(&self, reason: impl Into<String>) {
        self.wish(Wish::Resign(reason.into()));
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
        self.wish(Wish::Withdraw(reason.into()));
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
        self.wish(Wish::BlockSwitchover(reason));
        drop(holds);
        SwitchoverBlock { handle: Arc::downgrade(&self.handle), number }
    }

    fn wish(&self, wish: Wish) {
        self.handle.events.send(Event::Wish(wish));
    }

    /// Leaves: leadership is handed over, the work is stopped, and the ballot is deleted.
    ///
    /// A leader continues to work until another member is named, for 2 s at most, and that member has prepared, for
    /// [`Policy::acquire_timeout`](crate::engine::Policy::acquire_timeout) at most. This is a planned move with the
    /// cause `leader-shutdown`, and does not count as a failure. With the recipes `queue` and `single`, and without a
    /// connection, the leader stops at once.
    ///
    /// Without a connection it returns soon after the work has ended. The remaining znodes are deleted when the connection
    /// returns, or at the end of the session. It returns no earlier than [`Handler::stop`]: until then it waits, whatever
    /// has become of the lease.
    ///
    /// # Cancel safety
    /// Cancel safe: once begun, leaving continues.
    pub async fn leave(&self) -> Ended {
        self.handle.events.send(Event::Leave { hand_over: true });
        self.ended().await
    }

    /// Leaves as [`leave`](Self::leave) does, but does not wait for the next leader. It also ends a wait that has
    /// begun.
    pub fn leave_at_once(&self) {
        self.handle.events.send(Event::Leave { hand_over: false });
    }

    /// Hands this member over to another process on this machine, such as a newer version of this program, which continues
    /// by [`resume`](Self::resume) on this session: resume that by its [ticket](zk_session::Incarnation::ticket), taken
    /// after this call. While the returned value is held, this election does nothing, so the other process must have begun
    /// or this value must be dropped soon.
    ///
    /// # Errors
    /// If it is not at rest: it joins, takes over, steps down or leaves, or an operation is under way. That ends soon as a
    /// rule.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn hand_over(&self) -> Result<HandedOver, Unrest> {
        self.handle.events.ask(Message::HandOver).await.unwrap_or(Err(Unrest::Now("its election has ended")))
    }

    /// Waits until the task of this election has received all earlier reports and requests, or has ended. It returns
    /// at once as a rule, and within a second while it is [handed over](Self::hand_over): a supervisor of this process, such
    /// as a watchdog, learns from it that the task runs.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn responds(&self) {
        self.handle.events.ask(Message::Ping).await;
    }

    /// Waits until this member's part has ended, for any reason of [`Ended`]; after a call of the application that has
    /// begun and does not end, for as long as that.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ended(&self) -> Ended {
        self.handle.ended.wait().await.clone()
    }
}

impl Handle {
    fn holds(&self) -> MutexGuard<'_, Holds> {
        // No code under this lock can panic.
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

/// Blocks planned moves of leadership while it lives. From [`Election::block_switchover`].
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
            Some((_, reason)) => Wish::BlockSwitchover(reason.clone()),
            None => Wish::AllowSwitchover,
        };
        handle.events.send(Event::Wish(wish));
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election").field("name", &self.name()).finish_non_exhaustive()
    }
}
