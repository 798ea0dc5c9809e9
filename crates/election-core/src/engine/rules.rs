//! The rules that the election rests on, by name.
//!
//! With the feature `mutants` a test can switch one off, to see that something is
//! amiss without it: a rule whose absence nobody notices is not tested. Otherwise
//! [`Rules::keep`] is the constant `true`.

use crate::{
    ids::{Ballot, MemberId},
    record::Named,
};

/// A rule of the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(not(feature = "mutants"), allow(unreachable_pub))]
pub enum Rule {
    /// A leader stops as its lease nears its end.
    Lease,
    /// Whatever happens, the deadline is looked at first.
    DeadlineFirst,
    /// Whoever is named is named by ballot, not by the member's id alone.
    Ballots,
    /// A place is one's own if this session owns it, whatever its record says.
    OwnerChecked,
    /// After a lost reply, a place that this session owns is adopted.
    AdoptOwnZnode,
    /// Whoever has created the place reads the decision again before anything else.
    Reread,
    /// A successor makes it the decision before it acts.
    Commit,
    /// A successor has itself seen the named member leading.
    SeenLeading,
    /// A successor reads the decision and the place anew before it creates anything.
    SuccessorReads,
    /// A decision replaces the one that it was made from, and no other.
    CompareAndSet,
    /// Exclusions stand in the decision, for the next elector to know.
    ExclusionsInDecision,
    /// Exclusions end.
    ExclusionsEnd,
    /// Exclusions are dropped rather than exclude the last candidate.
    LastCandidate,
    /// What is deleted on the way out is read before if it may be another's.
    DeleteOwnOnly,
    /// The elector decides on a valid lease only.
    ElectorLease,
    /// The elector makes a pass after every event, not only when the membership changes.
    LevelTriggered,
    /// A request that was decided, in this term or before, is not decided again.
    DecidedOnce,
    /// A ballot whose creation was answered by nobody is looked for, and removed.
    SweepBallots,
    /// The place is let go once the work has ended, and not before.
    WorkEndsFirst,
    /// The new leader's time runs while the place is free or its own.
    TimerPerPhase,
    /// Who does not take over in time is excluded.
    TakeoverTimeout,
    /// READY is written in the version of one's own place only.
    ReadyOnOwnZnode,
    /// A place is taken by force only from the ballot that is excluded.
    VacateExcludedOnly,
    /// A leader stops when somebody else, or another term, is named.
    StandDown,
    /// A leader is deposed on the word of more than one site only.
    WitnessesOfTwoSites,
    /// A decision keeps the base of the tokens.
    TokenBaseKept,
    /// The next decision is above what any member has seen decided.
    Remembered,
    /// A member says in its record what it remembers that is missing.
    MemoryShared,
    /// A member is named for one slot at most.
    OneSlot,
    /// A decision leaves all slots but its own as they are.
    SlotsCarried,
    /// A leader goes by the term in which its slot was decided.
    TermOfSlot,
    /// In the queue: when the one before has gone, the queue is read again before this one leads.
    RanksAgain,
    /// A watch's reading of the decision that is older than what is known changes nothing.
    OlderReadings,
    /// A leader znode that a watch reports lost is read again before its leader stops.
    DoubtedFirst,
}

/// Which rules hold: all of them, but for a test.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Rules {
    #[cfg(feature = "mutants")]
    dropped: Option<Rule>,
}

#[cfg(not(feature = "mutants"))]
impl Rules {
    pub(in crate::engine) const fn keep(self, _: Rule) -> bool {
        true
    }
}

#[cfg(feature = "mutants")]
impl Rules {
    pub(in crate::engine) fn keep(self, rule: Rule) -> bool {
        self.dropped != Some(rule)
    }

    pub(in crate::engine) const fn drop(&mut self, rule: Rule) {
        self.dropped = Some(rule);
    }
}

impl Rules {
    /// Whether `named` is this incarnation of this member.
    pub(in crate::engine) fn same(self, named: &Named, member: &MemberId, ballot: &Ballot) -> bool {
        named.ballot == *ballot || (!self.keep(Rule::Ballots) && named.member == *member)
    }

    /// The version that must stand where a decision is replaced; -1 is any.
    pub(in crate::engine) fn version(self, version: i32) -> i32 {
        if self.keep(Rule::CompareAndSet) { version } else { -1 }
    }
}
