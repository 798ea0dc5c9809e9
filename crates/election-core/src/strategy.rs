//! The question 'who should lead?', and the form of its answer.
//!
//! A [`Strategy`] is a pure function from a [`Round`] to a [`Ranking`]. Every
//! elector that asks the same question gets the same answer: no clock, no
//! randomness, no memory. All that an own strategy names is in this module.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

pub use crate::{
    calendar::{Windows, utc},
    ids::{Ballot, MemberId, SiteId},
    record::{
        Cause, Control, Exclusion, FailedSite, Health, Maintenance, MemberFailure, MemberRecord, Mode, Named,
        OrderedBy, Previous, RoundTrips,
    },
    time::in_words,
};

/// Decides who should lead.
pub trait Strategy: fmt::Debug + Send + Sync {
    /// Ranks the members of a round.
    ///
    /// It must be pure and total: each candidate of the round is in [`Ranking::order`] or in [`Ranking::refused`],
    /// exactly once.
    fn rank(&self, round: &Round<'_>) -> Ranking;

    /// A note about a member with these attributes that becomes the leader for this cause, such as how much data may
    /// be lost with it. It is for a successor that steps in, which cannot rank anybody; [`rank`](Self::rank) has the
    /// note among the reasons.
    ///
    /// It must be pure as well.
    fn remark(&self, attributes: &BTreeMap<String, String>, cause: Cause) -> Option<String> {
        let _ = (attributes, cause);
        None
    }

    /// Why a member with these attributes must not step in by the line of succession, if they alone show that it must not
    /// lead. The line has the attributes that the elector has seen last, and the elector may be lost with the leader. The
    /// next elector decides then, by [`rank`](Self::rank).
    ///
    /// It must be pure as well.
    fn holds_back(&self, attributes: &BTreeMap<String, String>, cause: Cause) -> Option<String> {
        let _ = (attributes, cause);
        None
    }
}

/// One question to a strategy. [`Round::new`] has the three fields that every question needs, and [`Round::with`] sets
/// the others.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Round<'a> {
    /// Why it is asked.
    pub cause: Cause,
    /// The wall clock of the elector that asks, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// The living members, lowest ballot first.
    pub candidates: &'a [MemberRecord],
    /// The member that is elected or leads now, if it is still a candidate.
    pub incumbent: Option<&'a Ballot>,
    /// The member that an operator has named: the target of the order that is carried out, or the leader by one.
    pub ordered: Option<&'a Ballot>,
    /// Whether an operator accepts, for this one decision, that data is lost with the new leader.
    pub accepts_loss: bool,
    /// The leader that failed, when [`Cause::is_failure`].
    pub failed: Option<&'a Previous>,
    /// The present leader or the last one, whatever has become of it. None before the first leader of a slot.
    pub previous: Option<&'a Previous>,
    /// The leaders of the election's other slots. They are no candidates for this one.
    pub others: &'a [Named],
    /// Members that are excluded for a while.
    pub exclusions: &'a [Exclusion],
    /// Recent failures.
    pub trouble: &'a Trouble,
    /// The standing orders.
    pub control: &'a Control,
}

impl<'a> Round<'a> {
    /// A question for this cause, at `unix_ms` milliseconds since the Unix epoch, about these living members (lowest
    /// ballot first). There is no incumbent, no leader before, no failure and no order.
    pub const fn new(cause: Cause, unix_ms: u64, candidates: &'a [MemberRecord]) -> Self {
        static NO_TROUBLE: Trouble =
            Trouble { failures: Vec::new(), failed_sites: Vec::new(), barred_sites: Vec::new() };
        static NO_ORDERS: Control = Control::NONE;
        Self {
            cause,
            unix_ms,
            candidates,
            incumbent: None,
            ordered: None,
            accepts_loss: false,
            failed: None,
            previous: None,
            others: &[],
            exclusions: &[],
            trouble: &NO_TROUBLE,
            control: &NO_ORDERS,
        }
    }

    /// This question with a change.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// Recent failures, as far as they are remembered. By default there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trouble {
    /// Failures of members, oldest first.
    pub failures: Vec<MemberFailure>,
    /// Sites that have failed as a whole, and why.
    pub failed_sites: Vec<SiteTrouble>,
    /// Sites that have failed too often for leadership to return, and how often.
    pub barred_sites: Vec<SiteTrouble>,
}

impl Trouble {
    /// These failures with a change.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// What is wrong with a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SiteTrouble {
    /// The site.
    pub site: SiteId,
    /// The reason, as a short phrase.
    pub why: String,
}

impl SiteTrouble {
    /// This is wrong with this site.
    pub fn new(site: SiteId, why: impl Into<String>) -> Self {
        Self { site, why: why.into() }
    }
}

/// The answer: all candidates that may lead, best first, and all that may not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ranking {
    /// Candidates that may lead, best first.
    pub order: Vec<Ranked>,
    /// Candidates that may not.
    pub refused: Vec<Refused>,
    /// Set when a better candidate than all of these is likely to join soon: why, as a short phrase. Before the very
    /// first decision the elector then waits a little.
    pub worth_waiting: Option<String>,
}

impl Ranking {
    /// These candidates may lead, best first, and these may not.
    pub const fn new(order: Vec<Ranked>, refused: Vec<Refused>) -> Self {
        Self { order, refused, worth_waiting: None }
    }

    /// Sets [`worth_waiting`](Self::worth_waiting).
    #[must_use]
    pub fn with_worth_waiting(self, worth_waiting: Option<String>) -> Self {
        Self { worth_waiting, ..self }
    }

    /// The best candidate.
    pub fn first(&self) -> Option<&Ranked> {
        self.order.first()
    }

    /// Why this ballot may not lead, if it may not.
    pub fn refusal(&self, ballot: &Ballot) -> Option<&Refused> {
        self.refused.iter().find(|r| r.named.ballot == *ballot)
    }
}

/// Fills `vacant` slots, one after the other. For each slot it ranks the candidates that lead no other slot and were
/// chosen for none before; the first of each ranking is chosen. When no candidate is left the order is empty.
///
/// It is as pure as the strategy that it asks.
pub fn choose(strategy: &dyn Strategy, round: &Round<'_>, vacant: usize) -> Vec<Ranking> {
    let mut others = round.others.to_vec();
    let mut candidates = round.candidates.to_vec();
    let mut chosen = Vec::with_capacity(vacant);
    for _ in 0..vacant {
        let ranking = strategy.rank(&Round { candidates: &candidates, others: &others, ..round.clone() });
        if let Some(best) = ranking.first() {
            candidates.retain(|c| c.ballot != best.named.ballot);
            others.push(best.named.clone());
        }
        chosen.push(ranking);
    }
    chosen
}

/// A candidate that may lead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ranked {
    /// The candidate.
    pub named: Named,
    /// Why it has this rank: one short phrase per comparison that mattered, the most important first.
    pub reasons: Vec<String>,
    /// The comparisons behind these reasons, in the order in which they were asked. Empty if the strategy does not
    /// report them.
    pub compared: Vec<Compared>,
}

/// The result of one comparison for a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compared {
    /// The comparison's name.
    pub stage: &'static str,
    /// Its number among the comparisons: the same one can be used twice.
    pub number: usize,
    /// Lower is better. Comparable only with the grades of the same comparison in the same ranking.
    pub grade: i64,
    /// The index in [`Ranked::reasons`] of the phrase for it.
    pub reason: usize,
}

impl Compared {
    /// The comparison of this name and number has given this grade, and the reason of this index describes it.
    pub const fn new(stage: &'static str, number: usize, grade: i64, reason: usize) -> Self {
        Self { stage, number, grade, reason }
    }
}

/// The comparison that put one candidate before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decider<'a> {
    /// The comparison's name.
    pub stage: &'static str,
    /// Its reason for the candidate that goes first.
    pub first: &'a str,
    /// Its reason for the other one.
    pub other: &'a str,
}

impl Ranked {
    /// A candidate with these reasons, without the comparisons behind them.
    pub const fn new(named: Named, reasons: Vec<String>) -> Self {
        Self { named, reasons, compared: Vec::new() }
    }

    /// Sets [`compared`](Self::compared).
    #[must_use]
    pub fn with_compared(self, compared: Vec<Compared>) -> Self {
        Self { compared, ..self }
    }

    /// The comparison that put this candidate before `other` of the same ranking, if the strategy reports it.
    pub fn ahead_of<'a>(&'a self, other: &'a Self) -> Option<Decider<'a>> {
        let of_other = |mine: &Compared| other.compared.iter().find(|theirs| theirs.number == mine.number);
        let both = self.compared.iter().filter_map(|mine| Some((mine, of_other(mine)?)));
        let (mine, theirs) = both.into_iter().find(|(mine, theirs)| mine.grade < theirs.grade)?;
        Some(Decider {
            stage: mine.stage,
            first: self.reasons.get(mine.reason)?,
            other: other.reasons.get(theirs.reason)?,
        })
    }
}

/// A candidate that may not lead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// The candidate.
    pub named: Named,
    /// The stage that refused it.
    pub stage: String,
    /// Why, as a short phrase.
    pub reason: String,
    /// What the refusal is based on.
    pub ground: Ground,
}

impl Refused {
    /// This stage refuses this candidate for this reason, on a [`Ground::State`].
    pub fn new(named: Named, stage: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { named, stage: stage.into(), reason: reason.into(), ground: Ground::State }
    }

    /// Sets [`ground`](Self::ground).
    #[must_use]
    pub fn on(self, ground: Ground) -> Self {
        Self { ground, ..self }
    }
}

/// What a refusal is based on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ground {
    /// A measurement, or a state that ends by itself. It does not move a leader at once, because it can fluctuate.
    #[default]
    State,
    /// An order of an operator, or the configuration. A leader against it is replaced at once by a candidate that may
    /// lead.
    Order,
    /// Data that would be lost with the candidate. An operator can accept the loss ([`Round::accepts_loss`]).
    Loss,
}

impl MemberRecord {
    /// This member, as a decision names it.
    pub fn named(&self) -> Named {
        Named { member: self.member.clone(), ballot: self.ballot.clone(), site: self.site.clone() }
    }
}
