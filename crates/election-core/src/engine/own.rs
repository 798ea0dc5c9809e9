//! What this member reports about itself and its own wishes, its position in the election, and its work as a leader:
//! the state that more than one part of the engine uses.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    io::Node,
    policy::Policy,
    tokens::fencing_token,
    transaction::{Transaction, ZnodeWrite},
};
use crate::{
    ids::Ballot,
    paths::Paths,
    record::{CalledOff, GaveUp, Health, RoundTrips, Unreached, limits},
    time::{Now, Time},
};

/// This member.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Own {
    pub(super) health: Health,
    pub(super) reports: Reports,
    pub(super) wishes: Wishes,
    pub(super) joined_ms: u64,
    /// Seldom there, so on the heap.
    pub(super) gave_up: Option<Box<GaveUp>>,
    pub(super) called_off: Option<Box<CalledOff>>,
    pub(super) leaving: Leaving,
    pub(super) ballot: OwnBallot,
    pub(super) contest: OwnContestZnode,
    pub(super) duty: LeadershipSummary,
}

/// What this member has reported, apart from its health.
#[derive(Clone, Debug, Default, Hash, Serialize, Deserialize)]
pub(super) struct Reports {
    pub(super) site_health: Option<Health>,
    pub(super) measured: BTreeMap<String, String>,
    pub(super) round_trips: RoundTrips,
    /// Another process probes anew.
    #[serde(skip)]
    pub(super) reach: Reachability,
    /// The latest term for which this member has prepared while the leader before continued its work.
    pub(super) prepared_for: Option<u64>,
}

impl Own {
    /// Why this member is unfit to lead, as far as is known.
    pub(super) fn ill_health(&self) -> Option<String> {
        match &self.health {
            Health::Unhealthy { reason } => Some(format!("it is not healthy: {reason}")),
            Health::Healthy | Health::Unchecked | Health::Unknown => {
                self.wishes.withdrawn.as_ref().map(|why| format!("it has withdrawn: {why}"))
            }
        }
    }

    /// Why this member is no candidate now, if it isn't. Unknown health ends no leadership.
    pub(super) fn no_candidate(&self) -> Option<String> {
        let unknown = || "its first health check has not been answered yet".to_owned();
        self.ill_health().or_else(|| (self.health == Health::Unknown).then(unknown))
    }
}

/// This member's ballot under an elector, and its rank among the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct OwnBallot {
    /// Its name, once the election contains it.
    pub(super) name: Option<Ballot>,
    /// The ballot before the own one, if there is any.
    pub(super) before: Option<Ballot>,
    /// Whether the ballot before is known and up to date.
    pub(super) is_ranked: bool,
    /// The latest transaction that has set the own ballot, 0 if none has: a decision that names this member.
    pub(super) called_at: i64,
    /// Whether the ballots must be read, to check that the own one still exists.
    pub(super) must_be_listed: bool,
    /// The own ballot and record are being deleted with the leader znode, because this member leaves.
    pub(super) is_clearing: bool,
}

/// This member's znode in a contest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct OwnContestZnode {
    pub(super) znode: Option<Box<OwnZnode>>,
    /// It was deleted with its release.
    pub(super) is_released: bool,
    /// Queue: whether the queue must be read before this member leads, to check that its znode is still the first.
    pub(super) ranks_again: bool,
}

/// The own znode in a contest, which becomes the leader znode.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct OwnZnode {
    pub(super) path: Arc<str>,
    pub(super) node: Node,
    /// Single: the creation that made it.
    pub(super) creation: Option<Creation>,
    /// The base of the tokens when it began to lead with this znode.
    #[serde(default, with = "limits::base")]
    pub(super) base: u64,
    /// The name of this member's incarnation with it.
    pub(super) ballot: Ballot,
}

/// Single: one creation of the leader znode.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Creation {
    /// The version that it gave the parent.
    pub(super) count: i32,
    /// The parent's generation then.
    pub(super) generation: Option<Arc<str>>,
}

impl Creation {
    /// Deletes this version of the leader znode, and no later creation of it.
    pub(super) fn undo(&self, paths: &Paths, version: i32) -> Transaction {
        let delete =
            ZnodeWrite::delete(paths.leader_znode(0), version).only_while(paths.leader(), self.count);
        self.generation.iter().fold(delete, |delete, generation| delete.only_while(&**generation, None))
    }
}

impl OwnZnode {
    /// The last part of its path.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Its fencing token, which is the term in a contest.
    pub(super) fn term(&self) -> u64 {
        fencing_token(self.node.czxid, self.base).unwrap_or(0)
    }
}

impl OwnBallot {
    /// Whether this member has the lowest ballot.
    pub(super) fn is_lowest(&self) -> bool {
        self.is_ranked && self.before.is_none()
    }

    /// The ballot before the own one, where that is known.
    pub(super) fn predecessor(&self) -> Option<&Ballot> {
        self.before.as_ref().filter(|_| self.is_ranked)
    }
}

/// The state of this member as a leader, kept by the leader's side for the other parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct LeadershipSummary {
    /// The slot that it leads, is acquiring, or is releasing.
    pub(super) slot: Option<usize>,
    /// Whether any work of the application runs.
    pub(super) is_working: bool,
    /// Whether this member is about to lead, or leads.
    pub(super) wants_lease: bool,
    /// Whether the first decision is being written with the leader znode.
    pub(super) names_itself: bool,
    /// The leadership that is held.
    pub(super) held: Option<HeldSummary>,
}

impl LeadershipSummary {
    /// Nothing is held, and nothing is being done.
    pub(super) fn is_idle(&self) -> bool {
        self.slot.is_none()
    }
}

/// A summary of a leadership that is held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct HeldSummary {
    pub(super) slot: usize,
    pub(super) ballot: Ballot,
    /// When its leader znode was created, and when it became READY, in milliseconds since the Unix epoch.
    pub(super) created_ms: u64,
    pub(super) ready_ms: Option<u64>,
    /// Whether it has been announced.
    pub(super) leads: bool,
}

/// The wishes of this member about its own part.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Wishes {
    /// Why it has withdrawn, if it has.
    pub(super) withdrawn: Option<String>,
    /// Why it blocks planned handovers, if it does.
    pub(super) holds: Option<String>,
    /// Whether its application is asked before a planned move.
    pub(super) is_asked: bool,
    /// When the leadership that it has must have ended, and why.
    pub(super) deadline: Option<Box<(Time, String)>>,
}

impl Wishes {
    /// The earlier one of `until` and the deadline.
    pub(super) fn until(&self, until: Time) -> Time {
        self.deadline.as_ref().map_or(until, |deadline| until.min(deadline.0))
    }
}

/// Whether this member must leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Leaving {
    #[default]
    No,
    /// It was asked to leave at this time, and hands over its leadership first.
    HandingOver(Time),
    /// It leaves without waiting for a successor.
    AtOnce,
}

impl Leaving {
    pub(super) fn is_asked(self) -> bool {
        self != Self::No
    }
}

/// How many lost members a record names: the reports of further witnesses would not change a decision.
const NAMED: usize = 32;

/// The members that this member can't reach.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Reachability {
    /// Since when a member has answered no probe, and whether that has lasted long enough.
    failing: BTreeMap<Ballot, (Now, bool)>,
}

impl Reachability {
    /// A round of probes has ended. It is judged now, and not when time has passed since: a process that was frozen
    /// has lost no member; it has only sent no probes.
    pub(super) fn told(&mut self, unanswered: &BTreeSet<Ballot>, policy: &Policy, now: Now) {
        self.failing.retain(|ballot, _| unanswered.contains(ballot));
        for ballot in unanswered {
            let (since, is_lost) = self.failing.entry(ballot.clone()).or_insert((now, false));
            *is_lost = now.time.since(since.time) >= policy.suspect_after;
        }
    }

    pub(super) fn has_lost(&self, ballot: &Ballot) -> bool {
        self.failing.get(ballot).is_some_and(|(_, is_lost)| *is_lost)
    }

    /// What the own record contains of this.
    pub(super) fn published(&self) -> Vec<Unreached> {
        let lost = self.failing.iter().filter(|(_, (_, is_lost))| *is_lost).take(NAMED);
        lost.map(|(ballot, (since, _))| Unreached { ballot: ballot.clone(), since_ms: since.unix_ms })
            .collect()
    }
}
