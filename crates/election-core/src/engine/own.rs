//! What this member says of itself and wants of itself, where it is in the election, and what it is at as a
//! leader: what more than one part of the engine looks at.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    io::{Epoch, Node},
    policy::Policy,
};
use crate::{
    ids::Ballot,
    record::{GaveUp, Health, RoundTrips, Unreached},
    time::{Now, Time},
};

/// This member.
#[derive(Clone, Debug, Hash)]
pub(super) struct Own {
    pub(super) health: Health,
    pub(super) site_health: Option<Health>,
    pub(super) measured: BTreeMap<String, String>,
    pub(super) round_trips: RoundTrips,
    pub(super) reach: Reach,
    pub(super) joined_ms: u64,
    pub(super) gave_up: Option<GaveUp>,
    pub(super) wishes: Wishes,
    pub(super) leaving: Leaving,
    /// The latest term that this member has prepared for while the leader before worked on.
    pub(super) prepared_for: Option<u64>,
    pub(super) seat: Seat,
    pub(super) duty: Duty,
}

impl Own {
    pub(super) fn new(health: Health, joined_ms: u64) -> Self {
        Self {
            health,
            site_health: None,
            measured: BTreeMap::new(),
            round_trips: RoundTrips::default(),
            reach: Reach::default(),
            joined_ms,
            gave_up: None,
            wishes: Wishes::default(),
            leaving: Leaving::No,
            prepared_for: None,
            seat: Seat::default(),
            duty: Duty::default(),
        }
    }

    /// Why this member is unfit to lead by what is known of it.
    pub(super) fn ill_health(&self) -> Option<String> {
        match &self.health {
            Health::Unhealthy { reason } => Some(format!("it is not healthy: {reason}")),
            Health::Healthy | Health::Unchecked | Health::Unknown => {
                self.wishes.withdrawn.as_ref().map(|why| format!("it has withdrawn: {why}"))
            }
        }
    }

    /// Why this member is no candidate now, if it isn't. That its health is not known yet ends no leadership.
    pub(super) fn no_candidate(&self) -> Option<String> {
        let unknown = || "its first health check has not been answered yet".to_owned();
        self.ill_health().or_else(|| (self.health == Health::Unknown).then(unknown))
    }
}

/// Where this member is in the election: its own ephemeral znode there. Kept by the membership or by the contest, whichever
/// the recipe has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Seat {
    /// Its ballot, once that is in the election; none in a contest.
    pub(super) ballot: Option<Ballot>,
    /// The ballot before the own one, if there is any.
    pub(super) before: Option<Ballot>,
    /// Whether the ballot before is known as it is now.
    pub(super) is_ranked: bool,
    /// Whether the own ballot is still there is to be read.
    pub(super) lists_ballots: bool,
    /// Contest: the own znode.
    pub(super) own: Option<OwnZnode>,
    /// Queue: whether this one is still the first is to be read before it leads.
    pub(super) ranks_again: bool,
}

/// The own znode in a contest, which becomes the leader znode.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OwnZnode {
    pub(super) path: String,
    pub(super) node: Node,
    /// Single: which creation of the leader znode it is.
    pub(super) count: Option<i32>,
}

impl OwnZnode {
    /// The last part of its path.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Its fencing token, which is the term in a contest.
    pub(super) fn term(&self) -> u64 {
        u64::try_from(self.node.czxid).unwrap_or(0)
    }
}

impl Seat {
    /// Whether this member has the lowest ballot.
    pub(super) fn is_lowest(&self) -> bool {
        self.is_ranked && self.before.is_none()
    }

    /// The ballot before the own one, where that is known.
    pub(super) fn predecessor(&self) -> Option<&Ballot> {
        self.before.as_ref().filter(|_| self.is_ranked)
    }
}

/// What this member is at as a leader, kept by the leader's side for those who must know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Duty {
    /// The slot that it leads, or is on its way to or from.
    pub(super) slot: Option<usize>,
    /// Whether anything of the application runs.
    pub(super) is_working: bool,
    /// Whether this member is on its way to lead, or leads.
    pub(super) wants_lease: bool,
    /// The leadership that is held.
    pub(super) held: Option<HeldDuty>,
}

impl Duty {
    /// Nothing is held, and nothing is being done.
    pub(super) fn is_idle(&self) -> bool {
        self.slot.is_none()
    }
}

/// A leadership that is held, in short.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HeldDuty {
    pub(super) slot: usize,
    pub(super) ballot: Ballot,
    pub(super) epoch: Epoch,
    /// When its leader znode was created, and when it became READY, in milliseconds since the Unix epoch.
    pub(super) created_ms: u64,
    pub(super) ready_ms: Option<u64>,
    /// Whether it has been announced.
    pub(super) leads: bool,
}

/// What this member wants of itself.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Wishes {
    /// Why it has withdrawn, if it has.
    pub(super) withdrawn: Option<String>,
    /// Why it does not hand over as planned, if it doesn't.
    pub(super) holds: Option<String>,
    /// By when the leadership that it has is to have ended, and why.
    pub(super) deadline: Option<(Time, String)>,
}

impl Wishes {
    /// The deadline and what comes before it.
    pub(super) fn until(&self, until: Time) -> Time {
        self.deadline.as_ref().map_or(until, |(by, _)| until.min(*by))
    }

    pub(super) fn leadership_ended(&mut self) {
        self.deadline = None;
    }
}

/// Whether this member is to leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Leaving {
    #[default]
    No,
    /// It was asked to then, and hands over first what it leads.
    HandingOver(Time),
    /// Without waiting for a successor.
    AtOnce,
}

impl Leaving {
    pub(super) fn is_asked(self) -> bool {
        self != Self::No
    }
}

/// How many lost members a record names: more witnesses' words than these decide
/// nothing that fewer don't.
const NAMED: usize = 32;

/// Whom this member can't reach.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Reach {
    /// Since when no probe was answered.
    failing: BTreeMap<Ballot, Now>,
    /// Those for which that has lasted.
    lost: BTreeSet<Ballot>,
}

impl Reach {
    /// A round of probes has ended. It is judged here and not when time has passed
    /// since: a process that was frozen has lost no member, it has merely not asked.
    pub(super) fn told(&mut self, unanswered: &BTreeSet<Ballot>, policy: &Policy, now: Now) {
        self.failing.retain(|ballot, _| unanswered.contains(ballot));
        for ballot in unanswered {
            self.failing.entry(ballot.clone()).or_insert(now);
        }
        let lasts = |since: &Now| now.time.since(since.time) >= policy.suspect_after;
        self.lost =
            self.failing.iter().filter(|(_, since)| lasts(since)).map(|(ballot, _)| ballot.clone()).collect();
    }

    pub(super) fn has_lost(&self, ballot: &Ballot) -> bool {
        self.lost.contains(ballot)
    }

    /// What the own record says.
    pub(super) fn published(&self) -> Vec<Unreached> {
        let lost = self.failing.iter().filter(|(ballot, _)| self.lost.contains(*ballot));
        lost.take(NAMED)
            .map(|(ballot, since)| Unreached { ballot: ballot.clone(), since_ms: since.unix_ms })
            .collect()
    }
}
