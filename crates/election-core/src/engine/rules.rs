//! The named rules on which the election depends.
//!
//! With the feature `mutants` a test can switch one off, to see that a failure follows: a rule whose absence causes
//! no failure in a test is not tested. Otherwise [`Rules::keep`] is the constant `true`.

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
    /// On every event, the deadline is checked first.
    DeadlineFirst,
    /// A member is named by ballot, not by its id alone.
    Ballots,
    /// A leader znode is the member's own only if its session owns it.
    OwnerChecked,
    /// After a lost reply, a leader znode that this session owns is adopted.
    AdoptOwnZnode,
    /// The leader znode is created only while the decision that names its creator is in force.
    NamedAtCreation,
    /// A successor writes the decision with the leader znode, in one transaction.
    Commit,
    /// An elector that names itself in the first decision writes that with the leader znode, in one transaction.
    CommitFirst,
    /// A successor has itself seen the named member lead.
    SeenLeading,
    /// A decision replaces the one that it was made from, and no other.
    CompareAndSet,
    /// The decision contains the exclusions, so that the next elector knows them.
    ExclusionsInDecision,
    /// Exclusions end.
    ExclusionsEnd,
    /// Exclusions are dropped rather than exclude the last candidate.
    LastCandidate,
    /// A znode to be deleted on the way out is read first if it may be another member's.
    DeleteOwnOnly,
    /// The elector decides only on a valid lease.
    ElectorLease,
    /// The elector makes a pass after every event, not only when the membership changes.
    LevelTriggered,
    /// A request that was decided, in this term or before, is not decided again.
    DecidedOnce,
    /// A ballot whose creation had no answer is searched for and removed.
    SweepBallots,
    /// The leader znode is released only after the work has ended.
    WorkEndsFirst,
    /// The new leader's time runs while the leader znode is free or its own.
    TimerPerPhase,
    /// A member that does not take over in time is excluded.
    TakeoverTimeout,
    /// READY is written only in the version of the own leader znode.
    ReadyOnOwnZnode,
    /// A leader znode is removed by force only from the ballot that is excluded.
    VacateExcludedOnly,
    /// A leader that is removed by force has its stop budget first.
    ForceWaits,
    /// A leader stops when another member, or another term, is named.
    StandDown,
    /// A leader is deposed only on the reports of more than one site.
    WitnessesOfTwoSites,
    /// A decision keeps the base of the tokens.
    TokenBaseKept,
    /// The next decision is above what any member has seen decided.
    Remembered,
    /// A member reports in its record what it remembers and ZooKeeper lacks.
    MemoryShared,
    /// A member is named for one slot at most.
    OneSlot,
    /// A decision leaves all slots but its own as they are.
    SlotsCarried,
    /// A leader uses the term in which its slot was decided.
    TermOfSlot,
    /// In the queue: after the znode before has gone, the queue is read again before this member leads, unless that znode was
    /// the only one before its own.
    RanksAgain,
    /// A result of a watch on the decision that is older than what is known changes nothing.
    OlderReadings,
    /// A leader znode that a watch reports lost is read again before its leader stops.
    DoubtedFirst,
}

/// Which rules are active: all of them, except in a test.
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

    /// The version that a decision must have to be replaced; -1 is any.
    pub(in crate::engine) fn version(self, version: i32) -> i32 {
        if self.keep(Rule::CompareAndSet) { version } else { -1 }
    }
}
