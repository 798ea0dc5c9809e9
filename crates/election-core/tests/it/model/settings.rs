//! What one run of the checker looks at.

use std::{sync::Arc, time::Duration};

pub(crate) use election_core::config::Leftovers;
use election_core::{
    Paths,
    config::{
        Confirm, MemberId, OnPause, Policy, Profile, QueueFormat, Recipe, SiteFailureLimit, SiteId,
        TakeoverLimit,
    },
    internals::{
        Config,
        calendar::Windows,
        record::{RequestKind, Target},
    },
};

use crate::strategy::SiteOrder;

/// A unit of time. It is longer than any retry, so every pending retry happens when time passes.
pub(crate) const TICK: Duration = Duration::from_secs(4);

/// After this many ticks without a message a session may expire.
pub(crate) const TIMEOUT: u32 = 4;

/// A lease lasts a tick less: the margin.
pub(crate) const LEASE: u32 = TIMEOUT - 1;

/// So many ticks a planned stop may take: more than a lease has.
pub(crate) const PLANNED: u32 = LEASE + 1;

/// The longest timeout of the engine: a phase's, or the wait for the session of a process with the same id. All longer
/// times count as this one.
pub(crate) const MEMORY: u32 = 5;

/// What can go wrong, or is asked for, and when a run of the checker allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// The process dies, with its job. It may start again at any time.
    Crash,
    /// The worker dies, its guard ends the job, and then closes the session, at any time before it would expire. The worker
    /// may start again at any time.
    Kill,
    /// The machine freezes, and continues at any time.
    Freeze,
    /// No message gets through; the client notices at any time.
    Cut,
    /// The connection is lost, and that is noticed at once.
    Reset,
    /// The member's server is cut off from the others.
    Minority,
    /// The member's server lags.
    Lag,
    /// Preparing or taking over fails.
    JobFails,
    /// The job never answers again.
    JobHangs,
    /// The work ends by itself.
    JobEnds,
    /// The member is asked to leave.
    Leave,
    /// The wall clock jumps an hour ahead.
    Clock,
    /// An administrator deletes everything that the election has.
    DeleteAll,
    /// What a member has read, by a watch or by itself, arrives later than what it reads and writes
    /// after that.
    Late,
    /// The connection is lost, and that is noticed at once. The write that was sent first reaches the ensemble all the same, at
    /// any time before the member's next write, so also after what it reads over its next connection.
    Stray,
    /// The member's standby ends. Another one is ready at any time.
    StandbyEnds,
}

impl Fault {
    pub(crate) const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// How the leader is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Elector,
    Queue,
    Single,
}

/// An operator's request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) kind: RequestKind,
    pub(crate) to: Option<&'static str>,
    pub(crate) force: bool,
    pub(crate) now: bool,
}

impl Ask {
    pub(crate) fn target(&self) -> Target {
        self.to.map_or(Target::Any, |member| Target::Member(MemberId::new(member).expect("an id")))
    }
}

/// The rules outside the engine, which can be left out to check that a failure follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outside {
    /// A job claims its token at the resource before it reads anything.
    Claim,
    /// The resource refuses older tokens.
    Tokens,
    /// No new session while work of the old one runs.
    SessionPin,
    /// The guard ends a job at its deadline.
    Guard,
    /// The lease rests on writes that the ensemble has acknowledged, not on being connected.
    Heartbeats,
}

/// Where a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// No process runs yet.
    Nothing,
    /// One leads, and all is quiet.
    Settled,
    /// The same, and the first of [`Setting::asks`] has just been made.
    Asked,
}

/// One run of the checker.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) recipe: Kind,
    /// How many members lead at once.
    pub(crate) slots: usize,
    /// Member and site.
    pub(crate) members: &'static [(&'static str, &'static str)],
    pub(crate) start: Start,
    /// How many faults may happen in one run of the system.
    pub(crate) faults: u8,
    /// How often an event may overtake an earlier one.
    pub(crate) overtakes: u8,
    pub(crate) kinds: &'static [Fault],
    /// Each kind of fault happens once at most.
    pub(crate) once: bool,
    /// A race of members. A member that is frozen or lags comes back between any two steps of others, and its messages
    /// arrive between any two, without counting as an overtake. Only a member's watch may overtake that member's other
    /// events.
    pub(crate) race: bool,
    /// If there are any, the faults are these, in this order: a fault and its member.
    pub(crate) script: &'static [(Fault, usize)],
    /// What operators ask for, one after the other, at any time.
    pub(crate) asks: &'static [Ask],
    pub(crate) leftovers: Leftovers,
    /// Members whose job never completes a takeover.
    pub(crate) broken: &'static [&'static str],
    /// Members that can't reach a leader may end its leadership.
    pub(crate) suspicion: bool,
    /// The application is asked before a planned move, and may call it off.
    pub(crate) calls_off: bool,
    /// A member is fit only with a ready standby, and a planned stop of its work may take [`PLANNED`] ticks.
    pub(crate) standbys: bool,
    /// The ensemble was restored from a copy: the resource has seen newer tokens than any later czxid, and an operator
    /// has raised the base.
    pub(crate) restored: bool,
    pub(crate) without_outside: Option<Outside>,
    /// Whether to check, from every state, that there is a leader in the end.
    pub(crate) liveness: bool,
    /// The same without the return of a dead, frozen or cut off member.
    pub(crate) survivors: bool,
}

pub(crate) const TWO: &[(&str, &str)] = &[("a", "east"), ("b", "west")];
pub(crate) const THREE_TWO_EAST: &[(&str, &str)] = &[("a", "east"), ("b", "east"), ("c", "west")];
pub(crate) const THREE: &[(&str, &str)] = &[("a", "east"), ("b", "west"), ("c", "west")];

impl Setting {
    pub(crate) const fn new(name: &'static str, faults: u8, overtakes: u8, kinds: &'static [Fault]) -> Self {
        Self {
            name,
            recipe: Kind::Elector,
            slots: 1,
            members: TWO,
            start: Start::Settled,
            faults,
            overtakes,
            kinds,
            once: false,
            race: false,
            script: &[],
            asks: &[],
            leftovers: Leftovers::Wait,
            broken: &[],
            suspicion: false,
            calls_off: false,
            standbys: false,
            restored: false,
            without_outside: None,
            liveness: true,
            survivors: true,
        }
    }

    pub(crate) fn has(&self, rule: Outside) -> bool {
        self.without_outside != Some(rule)
    }

    /// Whether force may take a leader's znode while it works. It does so after the leader's stop budget, which is enough for
    /// a leader that hears of it.
    pub(crate) fn forces_unheard(&self) -> bool {
        use Fault::{Crash, JobEnds, JobFails, JobHangs, Kill, Leave};
        let is_heard = |fault: &Fault| matches!(fault, Crash | JobEnds | JobFails | JobHangs | Kill | Leave);
        let hears = || self.kinds.iter().chain(self.script.iter().map(|(fault, _)| fault)).all(is_heard);
        self.asks.iter().any(|ask| ask.now || (ask.force && !hears()))
    }

    pub(crate) fn paths(&self) -> Paths {
        Paths::new("/dr", "orders").expect("paths")
    }

    pub(crate) fn policy(&self) -> Policy {
        Policy::default().with(|policy| {
            policy.slots = self.slots;
            policy.on_pause = OnPause::Stop;
            policy.stop_budget = Some(TICK);
            policy.takeover_timeout = 2 * TICK;
            policy.release_timeout = if self.standbys { TICK * (PLANNED + 1) } else { 2 * TICK };
            policy.acquire_timeout = 2 * TICK;
            policy.exclusion = Duration::from_secs(1800);
            policy.max_exclusion = Duration::ZERO;

            // Another memory would be another dimension of the states.
            policy.penalty_window = Duration::ZERO;
            policy.max_site_failures = SiteFailureLimit { count: 0, within: Duration::ZERO };
            policy.site_gone_after = TICK;
            policy.min_tenure = Duration::ZERO;
            policy.max_takeovers = TakeoverLimit { count: 50, within: Duration::from_secs(600) };
            policy.better_after = Duration::from_secs(100 * 3600);
            policy.failback_windows = Windows::default();
            policy.confirm = Confirm::Never;
            policy.startup_wait = Duration::ZERO;
            policy.history_kept = 200;
            policy.fenced = self.suspicion;
            policy.fast_failover = self.suspicion;
            policy.suspect_after = TICK;
        })
    }

    pub(crate) fn config(&self, member: usize) -> Config {
        let (id, home) = self.members[member];
        let site = |name: &str| SiteId::new(name).expect("a site");
        let member = Profile::new(MemberId::new(id).expect("an id")).in_site(site(home));
        Config {
            paths: self.paths(),
            member: member.into(),
            policy: self.policy().into(),
            leftovers: self.leftovers,
            recipe: match self.recipe {
                Kind::Elector => Recipe::Elector(Arc::new(SiteOrder(["east", "west"].map(site).to_vec()))),
                Kind::Queue => Recipe::Queue(QueueFormat::Native),
                Kind::Single => Recipe::Single,
            },
        }
    }
}
