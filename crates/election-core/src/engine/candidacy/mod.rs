//! How this member comes to lead: by the decision of an elector, or by a znode of its own.

pub(crate) mod contest;
pub(crate) mod elector;
mod line;

use contest::{ContestAtRest, ContestCandidacy};
use elector::{ElectorCandidacy, Registered};
use serde::{Deserialize, Serialize};

use super::{
    core::Core,
    elector::Elector,
    io::{EndReason, Node, Watched},
    leader::OwnLeadership,
    recipe::Recipe,
};
use crate::{ids::Ballot, time::Time};

/// What this member does under its recipe.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Candidacy {
    /// It is a member of the election with a ballot, and decides while that is the lowest.
    Elector(Box<ElectorCandidacy>, Option<Box<Elector>>),
    /// A znode alone decides who leads.
    Contest(Box<ContestCandidacy>),
}

/// The part of a member at rest: what crosses to another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CandidacyAtRest {
    Elector(Registered),
    Contest(Box<ContestAtRest>),
}

impl Candidacy {
    pub(crate) fn of(recipe: &Recipe) -> Self {
        match recipe {
            Recipe::Elector(_) => Self::Elector(Box::default(), None),
            Recipe::Queue(_) | Recipe::Single => Self::Contest(Box::default()),
        }
    }

    // ---- the session ----

    pub(crate) fn begin(&mut self, core: &mut Core) {
        match self {
            Self::Elector(membership, _) => membership.begin(core),
            Self::Contest(contest) => contest.begin(core),
        }
    }

    pub(crate) fn session_paused(&mut self) {
        if let Self::Elector(_, Some(elector)) = self {
            elector.session_paused();
        }
    }

    pub(crate) fn session_resumed(&mut self, core: &mut Core) {
        match self {
            Self::Elector(membership, _) => membership.session_resumed(core),
            Self::Contest(contest) => contest.session_resumed(core),
        }
    }

    pub(crate) fn session_over(&mut self, core: &mut Core) {
        match self {
            Self::Elector(membership, elector) => {
                membership.session_over(core);
                *elector = None;
            }
            Self::Contest(contest) => contest.session_over(core),
        }
    }

    /// This process did not run for a while.
    pub(crate) fn look_again(&mut self) {
        if let Self::Contest(contest) = self {
            contest.look_again();
        }
    }

    // ---- another process ----

    /// What crosses, if this member is at rest.
    pub(crate) fn at_rest(&self, core: &Core) -> Option<CandidacyAtRest> {
        match self {
            Self::Elector(membership, _) => membership.at_rest(core).map(CandidacyAtRest::Elector),
            Self::Contest(contest) => contest.at_rest(core).map(Box::new).map(CandidacyAtRest::Contest),
        }
    }

    /// Continues with what has crossed. Returns whether that is of this recipe.
    pub(crate) fn resume(&mut self, core: &mut Core, from: CandidacyAtRest) -> bool {
        match (self, from) {
            (Self::Elector(membership, _), CandidacyAtRest::Elector(from)) => {
                **membership = ElectorCandidacy::resume(core, from);
            }
            (Self::Contest(contest), CandidacyAtRest::Contest(from)) if from.is_of(core) => {
                **contest = ContestCandidacy::resume(core, *from);
            }
            _ => return false,
        }
        true
    }

    // ---- taking the next steps ----

    /// Takes the next step towards joining or leaving the election.
    pub(crate) fn advance(&mut self, core: &mut Core, leader: &mut OwnLeadership) {
        match self {
            Self::Elector(membership, _) => membership.advance(core),
            Self::Contest(contest) => contest.advance(core, leader),
        }
    }

    /// The elector's pass.
    pub(crate) fn decide(&mut self, core: &mut Core) {
        if let Self::Elector(_, elector) = self {
            Elector::advance(elector, core);
        }
    }

    /// A watch has read a znode of this member's own, or the znode before it.
    pub(crate) fn saw(
        &mut self,
        core: &mut Core,
        leader: &mut OwnLeadership,
        path: &str,
        node: Option<&Node>,
    ) {
        match self {
            Self::Elector(membership, _) => membership.saw(core, leader, path, node),
            Self::Contest(contest) => contest.saw(core, leader, path, node),
        }
    }

    // ---- reading the state ----

    /// The znodes to watch for it.
    pub(crate) fn watched(&self, core: &Core) -> Vec<Watched> {
        match self {
            Self::Elector(membership, _) => membership.watched(core),
            Self::Contest(contest) => contest.watched(core),
        }
    }

    /// The watch on the znode right before the own one.
    pub(crate) fn predecessor(&self, core: &Core) -> Option<Watched> {
        let path = match self {
            Self::Elector(..) => {
                core.own.ballot.before.as_ref().map(|ballot| core.config.paths.ballot(ballot))
            }
            Self::Contest(contest) => contest.predecessor(),
        };
        path.map(Watched::node)
    }

    /// Whether no znode of this member is left in the election.
    pub(crate) fn is_gone(&self) -> bool {
        match self {
            Self::Elector(membership, _) => membership.is_gone(),
            Self::Contest(contest) => contest.is_gone(),
        }
    }

    /// How this member's part has ended, once it is gone.
    pub(crate) fn end(&self, core: &Core) -> EndReason {
        match self {
            Self::Elector(..) => EndReason::Left,
            Self::Contest(contest) => contest.end(core),
        }
    }

    pub(crate) fn ballot(&self, core: &Core) -> Option<Ballot> {
        match self {
            Self::Elector(..) => core.own.ballot.name.clone(),
            Self::Contest(contest) => contest.ballot(core),
        }
    }

    /// When it continues even without an event, apart from retries.
    pub(crate) fn wake(&self, core: &Core) -> Option<Time> {
        match self {
            Self::Elector(_, elector) => elector.as_ref()?.wake(core),
            Self::Contest(contest) => contest.wake(core),
        }
    }

    /// Whether it is a candidate that pauses after a failure, or is not fit.
    pub(crate) fn is_paused(&self) -> bool {
        matches!(self, Self::Contest(contest) if contest.is_paused())
    }

    /// Whether this member may have to lead soon by this recipe alone.
    pub(crate) fn keeps_lease(&self) -> bool {
        matches!(self, Self::Contest(contest) if contest.keeps_lease())
    }
}
