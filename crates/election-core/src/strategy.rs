//! The question 'who should lead?', and the form of its answer.
//!
//! A [`Strategy`] is a pure function from a [`Round`] to a [`Ranking`]. Every
//! elector that asks the same question gets the same answer: no clock, no
//! randomness, no memory.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

pub use crate::time::in_words;
use crate::{
    ids::{Ballot, SiteId},
    record::{Cause, Control, Exclusion, Failure, MemberRecord, Named, Previous},
};

/// Decides who should lead.
pub trait Strategy: fmt::Debug + Send + Sync {
    /// Ranks the members of a round.
    ///
    /// Must be pure and total: each candidate of the round stands either in
    /// [`Ranking::order`] or in [`Ranking::refused`], exactly once.
    fn rank(&self, round: &Round<'_>) -> Ranking;

    /// What a reader should know of a member with these attributes that comes to lead for
    /// this cause, such as how much may be lost with it. For a successor that steps in, which
    /// can't rank anybody; [`rank`](Self::rank) says it among the reasons.
    ///
    /// As pure as that.
    fn remark(&self, attributes: &BTreeMap<String, String>, cause: Cause) -> Option<String> {
        let _ = (attributes, cause);
        None
    }
}

/// One question to a strategy.
#[derive(Clone, Debug)]
pub struct Round<'a> {
    /// Why it is asked.
    pub cause: Cause,
    /// The wall clock of whoever asks, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// The living members, lowest ballot first.
    pub candidates: &'a [MemberRecord],
    /// Who is named or in office now, and still a candidate.
    pub incumbent: Option<&'a Ballot>,
    /// Whom an operator has named: whom the order that is carried out is for, or who leads by one.
    pub ordered: Option<&'a Ballot>,
    /// Whether an operator accepts, for this one decision, that something is lost with who leads then.
    pub accepts_loss: bool,
    /// The leader that failed, when [`Cause::is_failure`].
    pub failed: Option<&'a Previous>,
    /// Who leads now or led last, whatever has become of it; nobody before the first leader
    /// of a slot.
    pub previous: Option<&'a Previous>,
    /// Who leads the other slots of the election: not a candidate for this one.
    pub others: &'a [Named],
    /// Who may not be named for a while.
    pub exclusions: &'a [Exclusion],
    /// What has gone wrong lately.
    pub trouble: &'a Trouble,
    /// Standing orders.
    pub control: &'a Control,
}

/// What has gone wrong lately, as far as it is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Which members have failed, oldest first.
    pub failures: Vec<Failure>,
    /// Which sites have failed as a whole, and why.
    pub failed_sites: Vec<SiteTrouble>,
    /// Which sites have failed too often to be gone back to, and how often.
    pub barred_sites: Vec<SiteTrouble>,
}

/// What is wrong with a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SiteTrouble {
    /// Which.
    pub site: SiteId,
    /// In words.
    pub why: String,
}

/// The answer: everyone who may lead, best first, and everyone who may not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranking {
    /// Who may lead, best first.
    pub order: Vec<Ranked>,
    /// Who may not.
    pub refused: Vec<Refused>,
    /// Set when a better candidate than any here may well be about to join, in
    /// words; before the very first decision the elector then waits a little.
    pub worth_waiting: Option<String>,
}

impl Ranking {
    /// The best candidate.
    pub fn first(&self) -> Option<&Ranked> {
        self.order.first()
    }

    /// Why `ballot` may not lead, if so.
    pub fn refusal(&self, ballot: &Ballot) -> Option<&Refused> {
        self.refused.iter().find(|r| r.named.ballot == *ballot)
    }
}

/// Fills so many slots, one after the other: ranks for each of them the candidates
/// that lead no other, those that were chosen before included. The best of each
/// ranking is who is chosen; where nobody is left the order is empty.
///
/// As pure as the strategy that it asks.
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
pub struct Ranked {
    /// Who.
    pub named: Named,
    /// Why it stands where it stands: one short phrase per comparison that
    /// mattered, the most important first.
    pub reasons: Vec<String>,
    /// Which comparison each of these is of, the first one asked first; of a strategy that
    /// doesn't say, none.
    pub compared: Vec<Compared>,
}

/// How a candidate came out of one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compared {
    /// The comparison's name.
    pub stage: &'static str,
    /// Its number among the comparisons, for one can stand there twice.
    pub number: usize,
    /// Lower is better; to be compared with what others got of the same comparison, in the
    /// same ranking.
    pub grade: i64,
    /// Which of [`Ranked::reasons`] says it in words.
    pub reason: usize,
}

/// The comparison that put one candidate before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decider<'a> {
    /// The comparison's name.
    pub stage: &'static str,
    /// What is said of the one that goes first.
    pub first: &'a str,
    /// What is said of the other.
    pub other: &'a str,
}

impl Ranked {
    /// A candidate with reasons that say nothing of a comparison.
    pub const fn new(named: Named, reasons: Vec<String>) -> Self {
        Self { named, reasons, compared: Vec::new() }
    }

    /// The comparison that put this candidate before `other` of the same ranking, if the
    /// strategy tells.
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
pub struct Refused {
    /// Who.
    pub named: Named,
    /// The stage that put it out.
    pub stage: String,
    /// Why, in words.
    pub reason: String,
    /// What that rests on.
    pub ground: Ground,
}

/// What a refusal rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ground {
    /// What is measured, or passes by itself. It moves nobody at once, for it wavers.
    #[default]
    State,
    /// Somebody's word, an operator's or the configuration's. Whoever leads against it makes room at
    /// once for somebody who may.
    Order,
    /// What would be lost with the candidate. An operator may accept that
    /// ([`Round::accepts_loss`]).
    Loss,
}

impl MemberRecord {
    /// This member as it is named in a decision.
    pub fn named(&self) -> Named {
        Named { member: self.member.clone(), ballot: self.ballot.clone(), site: self.site.clone() }
    }
}
