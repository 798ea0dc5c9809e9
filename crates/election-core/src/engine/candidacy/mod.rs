//! How this member comes to lead: by the decision of an elector, or by a znode of its own.

mod by_recipe;
mod contest;
mod elector;
mod line;
mod other;
mod own_record;

use std::ops::{Deref, DerefMut};

use by_recipe::ByRecipe;
use contest::{ContestAtRest, ContestCandidacy};
use elector::{ElectorCandidacy, Registered};
use serde::{Deserialize, Serialize};

use super::{core::Core, recipe::Recipe};

/// What this member does under its recipe.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Candidacy {
    /// It is a member of the election with a ballot, and decides while that is the lowest.
    Elector(Box<ElectorCandidacy>),
    /// A znode alone decides who leads.
    Contest(Box<ContestCandidacy>),
}

/// The part of a member at rest: what crosses to another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CandidacyAtRest {
    Elector(Registered),
    Contest(ContestAtRest),
}

impl Candidacy {
    pub(crate) fn of(recipe: &Recipe) -> Self {
        match recipe {
            Recipe::Elector(_) => Self::Elector(Box::default()),
            Recipe::Queue(_) | Recipe::Single => Self::Contest(Box::default()),
        }
    }

    /// What crosses, if this member is at rest.
    pub(crate) fn at_rest(&self, core: &Core) -> Option<CandidacyAtRest> {
        match self {
            Self::Elector(membership) => membership.at_rest(core).map(CandidacyAtRest::Elector),
            Self::Contest(contest) => contest.at_rest(core).map(CandidacyAtRest::Contest),
        }
    }

    /// Continues with what has crossed. Returns whether that is of this recipe.
    pub(crate) fn resume(&mut self, core: &mut Core, from: CandidacyAtRest) -> bool {
        match (self, from) {
            (Self::Elector(membership), CandidacyAtRest::Elector(from)) => {
                **membership = ElectorCandidacy::resume(core, from);
            }
            (Self::Contest(contest), CandidacyAtRest::Contest(from)) if from.is_of(core) => {
                **contest = from.resume(core);
            }
            _ => return false,
        }
        true
    }
}

impl Deref for Candidacy {
    type Target = dyn ByRecipe;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Elector(membership) => &**membership,
            Self::Contest(contest) => &**contest,
        }
    }
}

impl DerefMut for Candidacy {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Elector(membership) => &mut **membership,
            Self::Contest(contest) => &mut **contest,
        }
    }
}
