//! What one seed is made of: sizes, timings, and how likely each fault is.

use std::{sync::Arc, time::Duration};

use election_core::{
    config::{
        Confirm, Leftovers, OnPause, Policy, QueueFormat, Recipe, SiteFailureLimit, SiteId, TakeoverLimit,
    },
    internals::{calendar::Windows, record::MAX_SLOTS},
};
use fastrand::Rng;

use crate::{
    strategy::{SiteOrder, Spread, Weighed},
    zookeeper::Millis,
};

/// When the window for elective moves ends that some seeds have.
pub(crate) const WINDOW_ENDS: Millis = 100_000;

/// Everything that can go wrong, by the name that a trace shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Crash,
    CrashSite,
    /// A worker dies and its host lives: its guard ends the job, and has the session closed.
    KillWorker,
    Leave,
    Cut,
    CutSite,
    Minority,
    FreezeWorker,
    FreezeHost,
    LoseReplies,
    SlowWatches,
    SlowNetwork,
    Outage,
    Unwell,
    Switchover,
    Failover,
    Force,
    ForceFromOutside,
    /// An operator asks for several moves at once that end within moments, and takes some of them back.
    Impatient,
    Mode,
    Drain,
    DeleteBallot,
    DeleteNode,
    DeleteCurrent,
    EndSession,
    SpoilNode,
    SpoilControl,
    SpoilRequest,
    SpoilElected,
    SpoilCurrent,
    /// Its peers can't reach a member; ZooKeeper can.
    Unseen,
    /// The members of one other site can't.
    UnseenBySite,
    /// An operator raises the base of the tokens.
    RaiseTokens,
    /// A member resigns by itself.
    Resign,
    ResignBy,
    Abdicate,
    Hold,
    Resize,
    /// An operator has looked at what went wrong.
    Ack,
    /// An operator confirms a move to another site, asked for or not.
    Confirm,
    /// Members report their whole site as unfit.
    SiteUnwell,
    /// An operator declares a site failed, and later clears that.
    DeclareFailed,
    /// An administrator deletes the decision.
    DeleteElected,
    /// An administrator deletes any znode and all below it.
    DeleteTree,
    /// The wall clock of a host is set wrong by days.
    WallClock,
    /// A server lags by seconds, and is not cut off.
    LagServer,
    /// The ensemble is stopped, and restored from an older copy.
    Restore,
    /// A member has other attributes from now on.
    Attributes,
    /// It measures other round trips.
    RoundTrips,
    /// Every write of a member is refused.
    Refuse,
    /// A clock runs at another rate.
    Drift,
    /// The store fails over to a copy that knows no token.
    ForgetTokens,
    /// The servers lose the latest transactions, which were acknowledged.
    LoseTail,
    /// The worker continues in another process, if it is at rest.
    Upgrade,
}

impl Fault {
    const ALL: [Self; 54] = [
        Self::Crash,
        Self::CrashSite,
        Self::KillWorker,
        Self::Leave,
        Self::Cut,
        Self::CutSite,
        Self::Minority,
        Self::FreezeWorker,
        Self::FreezeHost,
        Self::LoseReplies,
        Self::SlowWatches,
        Self::SlowNetwork,
        Self::Outage,
        Self::Unwell,
        Self::Switchover,
        Self::Failover,
        Self::Force,
        Self::ForceFromOutside,
        Self::Impatient,
        Self::Mode,
        Self::Drain,
        Self::DeleteBallot,
        Self::DeleteNode,
        Self::DeleteCurrent,
        Self::EndSession,
        Self::SpoilNode,
        Self::SpoilControl,
        Self::SpoilRequest,
        Self::SpoilElected,
        Self::SpoilCurrent,
        Self::Unseen,
        Self::UnseenBySite,
        Self::RaiseTokens,
        Self::Resign,
        Self::ResignBy,
        Self::Abdicate,
        Self::Hold,
        Self::Resize,
        Self::Ack,
        Self::Confirm,
        Self::SiteUnwell,
        Self::DeclareFailed,
        Self::DeleteElected,
        Self::DeleteTree,
        Self::WallClock,
        Self::LagServer,
        Self::Restore,
        Self::Attributes,
        Self::RoundTrips,
        Self::Refuse,
        Self::Drift,
        Self::ForgetTokens,
        Self::LoseTail,
        Self::Upgrade,
    ];

    /// Whether two members may act for a moment after it, by design: the leader znode of a living leader is deleted. In
    /// a queue every znode can be that.
    fn takes_the_place(self, kind: Kind) -> bool {
        matches!(
            self,
            Self::Force | Self::ForceFromOutside | Self::DeleteCurrent | Self::DeleteTree | Self::EndSession
        ) || (kind != Kind::Elector && self == Self::DeleteBallot)
    }

    /// Whether it can't happen without an elector.
    fn needs_an_elector(self) -> bool {
        matches!(
            self,
            Self::Switchover
                | Self::Failover
                | Self::Force
                | Self::ForceFromOutside
                | Self::Impatient
                | Self::Mode
                | Self::Drain
                | Self::DeleteNode
                | Self::SpoilNode
                | Self::SpoilControl
                | Self::SpoilRequest
                | Self::SpoilElected
                | Self::RaiseTokens
                | Self::Ack
                | Self::Confirm
                | Self::SiteUnwell
                | Self::DeclareFailed
                | Self::DeleteElected
                | Self::Attributes
                | Self::RoundTrips
        )
    }
}

/// Which recipe is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Elector,
    /// In any of its formats.
    Queue,
    Single,
}

impl Kind {
    /// Its name in a command.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Elector => "elector",
            Self::Queue => "queue",
            Self::Single => "single",
        }
    }

    fn recipe(self, sites: &[SiteId], rng: &mut Rng) -> Recipe {
        match self {
            Self::Elector => {
                let order = SiteOrder(sites.to_vec());
                Recipe::Elector(match rng.u8(0..4) {
                    0 => Arc::new(order),
                    1 => Arc::new(Weighed(order)),
                    _ => Arc::new(Spread(order)),
                })
            }
            Self::Queue => Recipe::Queue(match rng.u8(0..4) {
                0 => QueueFormat::LeaderLatch,
                1 => QueueFormat::KazooElection,
                _ => QueueFormat::Native,
            }),
            Self::Single => Recipe::Single,
        }
    }
}

/// One seed's world.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) sites: Vec<SiteId>,
    pub(crate) recipe: Recipe,
    pub(crate) members: usize,
    pub(crate) timeout: Millis,
    pub(crate) tick: Millis,
    /// No member's spans are longer than these.
    pub(crate) policy: Policy,
    /// Whether every member has a policy of its own.
    pub(crate) differing: bool,
    pub(crate) leftovers: Leftovers,
    /// Whether a client gives a session up by its own clock.
    pub(crate) own_deadline: bool,
    pub(crate) fault_time: Millis,
    pub(crate) fault_every: Millis,
    /// How long the leaders must stay in the end: mostly so long that most flapping is seen,
    /// now and then so long that slow flapping is.
    pub(crate) stays: Millis,
    pub(crate) weights: Vec<(Fault, f64)>,
    pub(crate) latency: Millis,
    pub(crate) lag: Millis,
    pub(crate) app: App,
    /// How likely an operation fails without a fault.
    pub(crate) loss: f64,
    /// How likely a write arrives although its connection was lost.
    pub(crate) strays: f64,
    /// Whether members have two strategies, as while a fleet is upgraded.
    pub(crate) two_strategies: bool,
    /// Whether a second process with one id is started by mistake.
    pub(crate) twin: bool,
    /// How often members probe each other, where suspicion decides.
    pub(crate) probe_every: Option<Millis>,
    /// How likely a probe gets no answer.
    pub(crate) lost_probes: f64,
    /// The site that stays drained when all faults are mended.
    pub(crate) drained: Option<SiteId>,
    /// Whether 'at most one' is promised under these settings, leaders that were deposed apart.
    pub(crate) exclusive: bool,
}

/// How the application behaves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct App {
    pub(crate) prepare: Millis,
    pub(crate) take_over: Millis,
    /// How long a patient stop may take; an urgent one keeps the stop budget.
    pub(crate) stop: Millis,
    pub(crate) prepare_fails: f64,
    pub(crate) take_over_fails: f64,
    pub(crate) hangs: f64,
    pub(crate) work_ends: f64,
    /// Whether it is asked before a planned move, and how likely it calls that off.
    pub(crate) is_asked: bool,
    pub(crate) calls_off: f64,
    /// How long a standby takes at most to be ready, where a member is fit only with a ready one.
    pub(crate) standby: Option<Millis>,
}

fn ms(millis: Millis) -> Duration {
    Duration::from_millis(millis)
}

/// Zero half of the time, else mostly small: rare faults must be rare in most
/// seeds and frequent in some, or whole families of schedules are never drawn.
fn weight(rng: &mut Rng) -> f64 {
    if rng.bool() { 0.0 } else { rng.f64() * rng.f64() }
}

/// Two or three mostly; now and then as many as there can be.
pub(crate) fn slots(rng: &mut Rng) -> usize {
    if rng.f64() < 0.8 { rng.usize(2..4) } else { rng.usize(4..=MAX_SLOTS) }
}

/// Mostly few, as in most elections; sometimes as many as a whole fleet. For many slots, about as many members as
/// slots.
fn members(slots: usize, rng: &mut Rng) -> usize {
    match rng.u8(0..100) {
        0..70 if slots > 3 => rng.usize(slots - 2..slots + 4),
        0..90 => rng.usize(2..8),
        90..97 => rng.usize(8..21),
        _ => rng.usize(21..=50),
    }
}

impl Settings {
    pub(crate) fn stop_budget(&self) -> Millis {
        let budget = self.policy.stop_budget(ms(self.timeout));
        u64::try_from(budget.as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn kill_budget(&self) -> Millis {
        match self.policy.on_pause {
            OnPause::Freeze { kill_budget } => u64::try_from(kill_budget.as_millis()).unwrap_or(u64::MAX),
            _ => self.stop_budget(),
        }
    }

    pub(crate) fn draw(kind: Kind, rng: &mut Rng) -> Self {
        let timeout = rng.u64(2000..6000);
        let tick = rng.u64(timeout / 10..timeout / 4 - 100);
        // A heartbeat proves the one before it, a quarter of the timeout earlier; the margin and a round trip take
        // 100 ms each.
        let longest = timeout / 2 - 200;
        let stop_budget = ms(rng.u64(longest / 8..longest - 1));
        let keep = rng.f64() < 0.15;
        let max_pause = rng.bool().then(|| ms(rng.u64(1000..20_000)));
        let fast = rng.f64() < 0.3;
        let several = kind == Kind::Elector && rng.bool();
        // A run begins at 22:13:20 and mostly takes no more than a few minutes.
        let window: &[&str] = if rng.f64() < 0.3 { &["22:14-22:15"] } else { &[] };
        let failback_windows = Windows::read(window).expect("a window");
        let exclusion = ms(rng.u64(3000..30_000));
        // By how much a planned stop may take longer than another one: then the elector waits as much longer.
        let planned_stop = if rng.bool() { 0 } else { rng.u64(0..3 * timeout) };
        let policy = Policy::default().with(|policy| {
            policy.slots = if several { slots(rng) } else { 1 };
            policy.on_pause = match (keep, max_pause) {
                (true, _) => OnPause::Keep { max_pause },
                (false, Some(_)) => OnPause::Freeze { kill_budget: stop_budget / 4 },
                (false, None) => OnPause::Stop,
            };
            policy.stop_budget = Some(stop_budget);
            policy.takeover_timeout = ms(rng.u64(1000..6000));
            policy.release_timeout = ms(rng.u64(1000..5000) + planned_stop);
            policy.acquire_timeout = ms(rng.u64(800..4000));
            policy.exclusion = exclusion;
            policy.max_exclusion = exclusion * rng.u32(1..5);
            policy.penalty_window = ms(if rng.bool() { rng.u64(1000..60_000) } else { 0 });
            policy.max_site_failures =
                SiteFailureLimit { count: rng.u32(0..4), within: ms(rng.u64(5000..90_000)) };
            policy.site_gone_after = ms(rng.u64(500..8000));
            policy.min_tenure = ms(rng.u64(500..8000));
            policy.max_takeovers = TakeoverLimit { count: rng.u32(2..9), within: ms(rng.u64(8000..40_000)) };
            policy.better_after = ms(if rng.bool() { rng.u64(1000..15_000) } else { 3_600_000 });
            policy.failback_windows = failback_windows;
            policy.confirm = if rng.f64() < 0.2 { Confirm::CrossSite } else { Confirm::Never };
            policy.startup_wait = ms(rng.u64(0..3000));
            policy.history_kept = rng.usize(1..30);
            policy.fenced = true;
            policy.fast_failover = fast;
            policy.suspect_after = ms(rng.u64(50..1500));
        });
        let mut weights: Vec<_> = Fault::ALL.into_iter().map(|fault| (fault, weight(rng))).collect();
        // Most seeds leave leaders their znodes.
        if rng.f64() < 0.7 {
            weights.retain(|(fault, _)| !fault.takes_the_place(kind));
        }
        if kind != Kind::Elector {
            weights.retain(|(fault, _)| !fault.needs_an_elector());
        }
        let app = App {
            prepare: rng.u64(1..800),
            take_over: rng.u64(1..1500),
            stop: rng.u64(1..3000) + planned_stop,
            prepare_fails: weight(rng) * 0.5,
            take_over_fails: weight(rng) * 0.5,
            hangs: weight(rng) * 0.3,
            work_ends: weight(rng) * 0.5,
            is_asked: rng.bool(),
            calls_off: rng.f64(),
            standby: (rng.f64() < 0.4).then(|| rng.u64(1..10_000)),
        };
        let twin = rng.f64() < 0.15;
        let wait = rng.bool() || twin;
        let sites = ["east", "west"].map(|s| SiteId::new(s).expect("a site")).to_vec();
        let drained =
            (kind == Kind::Elector && rng.f64() < 0.3).then(|| sites[rng.usize(0..sites.len())].clone());
        Self {
            recipe: kind.recipe(&sites, rng),
            sites,
            members: members(policy.slots, rng),
            timeout,
            tick,
            policy,
            differing: rng.f64() < 0.3,
            leftovers: if wait { Leftovers::Wait } else { Leftovers::Remove },
            own_deadline: rng.bool(),
            fault_time: rng.u64(20_000..70_000),
            fault_every: rng.u64(300..8000),
            stays: if rng.f64() < 0.85 { 4000 } else { rng.u64(10_000..90_000) },
            weights,
            latency: rng.u64(1..45),
            lag: if rng.bool() { 0 } else { rng.u64(1..300) },
            app,
            loss: weight(rng) * 0.1,
            strays: if rng.bool() { 0.0 } else { rng.f64() },
            two_strategies: kind == Kind::Elector && rng.f64() < 0.1,
            twin,
            probe_every: fast.then(|| rng.u64(20..400)),
            lost_probes: 0.0,
            drained,
            exclusive: !keep,
        }
    }

    /// What one member is configured with. Slots, windows and what a site may fail are what all
    /// agree on.
    pub(crate) fn policy_of_one(&self, rng: &mut Rng) -> Policy {
        let mut policy = self.policy.clone();
        if !self.differing {
            return policy;
        }
        // Whole milliseconds, as all time here: else an engine would wake before it is due, again and again.
        let mut shorter = |span: Duration| {
            let longest = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
            ms(rng.u64(longest / 2..=longest))
        };
        let within = shorter(policy.max_takeovers.within);
        policy.takeover_timeout = shorter(policy.takeover_timeout).max(ms(1000));
        policy.release_timeout = shorter(policy.release_timeout).max(ms(1000));
        policy.acquire_timeout = shorter(policy.acquire_timeout).max(ms(800));
        policy.exclusion = shorter(policy.exclusion);
        policy.penalty_window = shorter(policy.penalty_window);
        policy.min_tenure = shorter(policy.min_tenure);
        policy.site_gone_after = shorter(policy.site_gone_after);
        policy.better_after = shorter(policy.better_after);
        policy.startup_wait = shorter(policy.startup_wait);
        policy.suspect_after = shorter(policy.suspect_after);
        policy.max_takeovers = TakeoverLimit { count: rng.u32(2..=policy.max_takeovers.count), within };
        policy.on_pause = if rng.bool() { OnPause::Stop } else { policy.on_pause };
        policy.fast_failover = policy.fast_failover && rng.f64() < 0.8;
        policy.history_kept = rng.usize(1..30);
        policy
    }

    pub(crate) fn recipe_of_one(&self, number: usize, rng: &mut Rng) -> Recipe {
        if self.two_strategies && number % 2 == 1 {
            let sites: Vec<_> = self.sites.iter().rev().cloned().collect();
            return Kind::Elector.recipe(&sites, rng);
        }
        self.recipe.clone()
    }

    pub(crate) fn draw_fault(&self, rng: &mut Rng) -> Option<Fault> {
        let sum: f64 = self.weights.iter().map(|(_, w)| w).sum();
        let mut at = rng.f64() * sum;
        for (fault, weight) in &self.weights {
            at -= weight;
            if at < 0.0 {
                return Some(*fault);
            }
        }
        None
    }
}
