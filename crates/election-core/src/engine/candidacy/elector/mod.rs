//! The membership in the election: the ballot, the member's record, and the ballot before the own one.
//!
//! The record under `nodes/<member>` also distinguishes two processes of one id, so it is read before a ballot is
//! drawn.

mod steps;

use serde::{Deserialize, Serialize};

use super::{by_recipe::ByRecipe, other::OtherIncarnation, own_record::OwnRecord};
use crate::{
    engine::{
        core::Core,
        elector::Elector,
        io::{Level, Node, NoteKind, Outcome, StopReason, Watched},
        leader::OwnLeadership,
        ops::Part,
        own::OwnBallot,
    },
    ids::Ballot,
    record::{MemberRecord, Record},
    time::Time,
};

/// The progress of a member with joining the election.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct ElectorCandidacy {
    step: MembershipStep,
    /// The number of ballots drawn in this session. Each has a new number, so that a lost reply for one ballot can't
    /// be mistaken for another's.
    drawn: u32,
    record: OwnRecord,
    /// The ballot before the own one has gone: the ballots must be ranked again.
    look_again: bool,
    /// The own record must be read without the watch.
    reads_record: bool,
    /// When this member began to wait for another one of the same id.
    waiting_since: Option<Time>,
    /// The incarnation that it found.
    former: OtherIncarnation,
    /// The session on which its record was last written.
    registered_as: Option<i64>,
    /// While its ballot is the lowest.
    pub(crate) elector: Option<Box<Elector>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum MembershipStep {
    /// There is no session.
    #[default]
    Idle,
    /// Looks for ballots that this incarnation has left behind on this session: one whose creation had no answer, or one that was
    /// given up. A lowest ballot without a member would leave the election without an elector.
    Sweep(AfterSweep),
    DropStray(String, AfterSweep),
    LookForNode,
    /// Another session's record blocks joining; it may expire.
    AwaitNode,
    /// The decision is read before the leader znode: while that decision is in force and the left-over one is there, no
    /// other leader znode can have its version.
    ReadElected(Leftover),
    /// The leader znode of this slot, while the decision has this version.
    LookAtLeader(Leftover, usize, Option<i32>),
    /// The same, in this version, with the ballot.
    RemoveLeader(Leftover, usize, Option<i32>, i32),
    RemoveBallot(Leftover),
    RemoveNode,
    DrawBallot,
    WriteNode(Ballot),
    /// Looks for the ballot before the own one.
    Rank,
    Candidate,
    /// Leaving: deletes the record first, then every ballot of this incarnation.
    DropNode,
    Gone,
}

/// The next step once no stray ballot is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum AfterSweep {
    LookForNode,
    Leave,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Leftover {
    ballot: Option<Ballot>,
    owner: i64,
}

/// A candidate whose record is in ZooKeeper: what crosses to another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Registered {
    ballot: Ballot,
    drawn: u32,
    record: String,
    version: i32,
}

impl ElectorCandidacy {
    /// What crosses, if this member is a candidate and does nothing else.
    pub(crate) fn at_rest(&self, core: &Core) -> Option<Registered> {
        if self.step != MembershipStep::Candidate || self.look_again || self.reads_record {
            return None;
        }
        let ballot = core.own.ballot.name.clone().filter(|_| core.own.ballot.is_ranked)?;
        let (record, version) = self.record.published.as_ref()?;
        let record = str::from_utf8(record).ok()?.to_owned();
        Some(Registered { ballot, drawn: self.drawn, record, version: *version })
    }

    /// Continues in another process: the ballots are ranked and the record is read when the session is resumed.
    pub(crate) fn resume(core: &mut Core, from: Registered) -> Self {
        core.own.ballot = OwnBallot { name: Some(from.ballot), ..OwnBallot::default() };
        Self {
            step: MembershipStep::Rank,
            drawn: from.drawn,
            record: OwnRecord::published(from.record.into_bytes(), from.version),
            registered_as: Some(core.session_id()),
            ..Self::default()
        }
    }
}

impl ByRecipe for ElectorCandidacy {
    // ---- the session ----

    fn begin(&mut self, core: &mut Core) {
        self.reset(core, MembershipStep::LookForNode);
    }

    fn session_paused(&mut self) {
        if let Some(elector) = &mut self.elector {
            elector.session_paused();
        }
    }

    /// If the ensemble's leader changed, the clock of every session restarts, and so does the wait for the end of another
    /// session.
    ///
    /// The ensemble may also have been restored from an older copy meanwhile. That copy may contain an older record,
    /// and ballots that were deleted.
    fn session_resumed(&mut self, core: &mut Core) {
        if self.waiting_since.is_some() {
            self.waiting_since = Some(core.now.time);
        }
        // What was removed while leaving has returned with an older copy of the ensemble.
        let leaves = matches!(
            self.step,
            MembershipStep::Sweep(AfterSweep::Leave) | MembershipStep::DropStray(_, AfterSweep::Leave)
        );
        if self.step == MembershipStep::Gone {
            self.step = MembershipStep::LookForNode;
        }
        self.reads_record = self.record.published.is_some() || leaves;
        core.own.ballot.must_be_listed = core.own.ballot.is_lowest();
    }

    fn session_over(&mut self, core: &mut Core) {
        self.reset(core, MembershipStep::Idle);
        self.elector = None;
    }

    // ---- one step at a time ----

    fn advance(&mut self, core: &mut Core, _: &mut OwnLeadership) {
        self.take_step(core);
    }

    fn decide(&mut self, core: &mut Core) {
        Elector::advance(&mut self.elector, core);
    }

    fn done(&mut self, core: &mut Core, leader: &mut OwnLeadership, outcome: &Outcome) {
        match (self.step.clone(), outcome) {
            // By then another leader's znode may have this version.
            (MembershipStep::RemoveLeader(leftover, ..), Outcome::NotApplied(why)) => {
                self.step = MembershipStep::ReadElected(leftover);
                core.delayed(Part::Candidacy, why);
            }
            (_, Outcome::NotApplied(why)) => core.delayed(Part::Candidacy, why),
            (MembershipStep::Sweep(then), Outcome::Names(names)) => self.swept(core, then, names),
            (MembershipStep::DropStray(_, then), Outcome::Ok | Outcome::Missing) => {
                self.step = MembershipStep::Sweep(then);
            }
            (MembershipStep::LookForNode, Outcome::Got(node)) => self.found_node(core, node.as_ref()),
            (MembershipStep::ReadElected(leftover), Outcome::Got(node)) => {
                let decision = node.as_ref().map(|n| n.version);
                self.step = MembershipStep::LookAtLeader(leftover, 0, decision);
            }
            (MembershipStep::LookAtLeader(leftover, slot, decision), Outcome::Got(node)) => {
                self.step = steps::after_leader_znode(core, leftover, slot, decision, node.as_ref());
            }
            (MembershipStep::RemoveLeader(..), Outcome::Ok) => self.step = MembershipStep::RemoveNode,
            (MembershipStep::RemoveLeader(leftover, ..), Outcome::Missing) => {
                self.step = MembershipStep::RemoveBallot(leftover);
            }
            (MembershipStep::RemoveLeader(leftover, ..), _) => {
                self.step = MembershipStep::ReadElected(leftover);
                core.delayed(Part::Candidacy, "what a former session left behind has changed");
            }
            (MembershipStep::RemoveBallot(_), Outcome::Ok | Outcome::Missing) => {
                self.step = MembershipStep::RemoveNode
            }
            (MembershipStep::RemoveNode, Outcome::Ok | Outcome::Missing) => {
                self.step = MembershipStep::DrawBallot
            }
            (MembershipStep::DrawBallot, Outcome::Created { path, czxid, .. }) => {
                core.reading.memory.created(*czxid);
                self.drew_ballot(core, path);
            }
            (MembershipStep::WriteNode(ballot), Outcome::Created { .. }) => self.registered(core, ballot),
            // It is not known which ballot was drawn, if any: it is removed before another is drawn.
            (MembershipStep::DrawBallot, Outcome::Unknown(why)) => {
                self.step = MembershipStep::Sweep(AfterSweep::LookForNode);
                core.delayed(Part::Candidacy, why);
            }
            // Another process of this id was quicker, or the reply was lost: read the record.
            (MembershipStep::WriteNode(_), Outcome::Exists | Outcome::Unknown(_)) => {
                self.step = MembershipStep::Sweep(AfterSweep::LookForNode)
            }
            (MembershipStep::Rank, Outcome::Names(names)) => self.found_ballots(core, leader, names),
            (MembershipStep::Candidate, Outcome::Changed { version, .. }) => {
                self.record.was_written(*version)
            }
            (MembershipStep::Candidate, Outcome::Names(names)) => {
                core.own.ballot.must_be_listed = false;
                self.found_ballots(core, leader, names);
            }
            (MembershipStep::Candidate, Outcome::Got(node)) => {
                self.reads_record = false;
                // Nothing was written meanwhile, so the read counts even if the version went back.
                self.record.published = None;
                let path = core.own_node();
                self.saw(core, leader, &path, node.as_ref());
            }
            (MembershipStep::Candidate, Outcome::Missing) => {
                self.ballot_lost(core, leader, "the own record is gone")
            }
            // Another program wrote it, or the reply was lost, or the ensemble returned to an older copy.
            (MembershipStep::Candidate, outcome) => {
                self.reads_record |= matches!(outcome, Outcome::Stale | Outcome::Unknown(_));
                core.delayed(Part::Candidacy, "the own record could not be written");
            }
            (MembershipStep::DropNode, Outcome::Ok | Outcome::Missing) => {
                self.step = MembershipStep::Sweep(AfterSweep::Leave)
            }
            (_, outcome) => core.delayed(Part::Candidacy, outcome),
        }
    }

    /// A watch has read the own record, the own ballot, or the ballot before.
    fn saw(&mut self, core: &mut Core, leader: &mut OwnLeadership, path: &str, node: Option<&Node>) {
        let is_record = path == core.own_node();
        if self.step == MembershipStep::AwaitNode && is_record && node.is_none() {
            core.ops.retry_now(Part::Candidacy);
            self.step = MembershipStep::LookForNode;
        }
        let own = &core.own.ballot;
        let Some(ballot) = &own.name else { return };
        let is = |ballot: &Ballot| path == core.config.paths.ballot(ballot);
        match node {
            // The record is gone, or another session's: a ballot without a record makes no member.
            None if is_record => self.ballot_lost(core, leader, "the own record is gone"),
            Some(node) if is_record && !is_own_record(core, node) => {
                self.ballot_lost(core, leader, "the own record is another's");
            }
            Some(node) if is_record => self.record.seen(node),
            None if is(ballot) => self.ballot_lost(core, leader, "the own ballot is gone"),
            Some(node) if is(ballot) && node.mzxid > node.czxid => core.own.ballot.called_at = node.mzxid,
            None if own.before.as_ref().is_some_and(is) => {
                // Its watch is given up.
                (core.own.ballot.before, core.own.ballot.is_ranked) = (None, false);
                self.look_again = true;
            }
            _ => {}
        }
    }

    // ---- reading the state ----

    /// The own record and ballot, and the ballot before.
    fn watched(&self, core: &Core) -> Vec<Watched> {
        let own = &core.own.ballot;
        let waits = self.step == MembershipStep::AwaitNode;
        let node = (waits || own.name.is_some()).then(|| core.own_node());
        let ballots = own.name.iter().chain(&own.before).map(|ballot| core.config.paths.ballot(ballot));
        node.into_iter().chain(ballots).map(Watched::node).collect()
    }

    fn predecessor(&self, core: &Core) -> Option<String> {
        core.own.ballot.before.as_ref().map(|ballot| core.config.paths.ballot(ballot))
    }

    fn is_gone(&self) -> bool {
        matches!(self.step, MembershipStep::Idle | MembershipStep::Gone)
    }

    fn ballot(&self, core: &Core) -> Option<Ballot> {
        core.own.ballot.name.clone()
    }

    fn wake(&self, core: &Core) -> Option<Time> {
        self.elector.as_ref()?.wake(core)
    }
}

impl ElectorCandidacy {
    fn reset(&mut self, core: &mut Core, step: MembershipStep) {
        core.ops.give_up_all(Part::Candidacy);
        core.own.ballot = OwnBallot::default();
        let (registered_as, elector) = (self.registered_as, self.elector.take());
        *self = Self { step, registered_as, elector, ..Self::default() };
    }

    /// Rejoins with a new ballot, once nothing is held under the old one.
    fn ballot_lost(&mut self, core: &mut Core, leader: &mut OwnLeadership, why: &str) {
        core.note(Level::Warn, NoteKind::Registration, format!("{why}; standing anew"));
        leader.end(core, StopReason::BallotLost);
        let drawn = self.drawn;
        self.reset(core, MembershipStep::Sweep(AfterSweep::LookForNode));
        self.drawn = drawn;
    }
}

/// Whether this incarnation wrote the own record on this session. A record that another program has spoiled counts as its
/// own: its path has the member's id.
fn is_own_record(core: &Core, node: &Node) -> bool {
    let record = MemberRecord::decode(&core.own_node(), &node.data);
    node.owner == core.session_id() && record.map_or(true, |record| core.is_own(&record.ballot))
}
