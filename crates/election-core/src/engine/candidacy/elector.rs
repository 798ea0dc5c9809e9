//! The membership in the election: the ballot, the member's record, and the ballot before the own one.
//!
//! The record under `nodes/<member>` also distinguishes two processes of one id, so it is read before a ballot is
//! drawn.

use serde::{Deserialize, Serialize};

use super::{
    by_recipe::ByRecipe,
    line::{Line, NEVER_CREATED, Rank},
    other::OtherIncarnation,
    own_record::OwnRecord,
};
use crate::{
    engine::{
        core::Core,
        elector::Elector,
        io::{Level, Node, NoteKind, Outcome, StopReason, Watched, ZkOp},
        leader::OwnLeadership,
        ops::{ElectorOp, Part, Pending, USED_UP},
        own::OwnBallot,
        recipe::Leftovers,
        transaction::{Transaction, ZnodeWrite},
    },
    ids::Ballot,
    record::{Current, MemberRecord, Record},
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
    /// The decision is read before the leader znode: while that decision is in force, no other leader znode can have
    /// the version of the left-over one.
    ReadElected(Leftover),
    /// The leader znode of this slot, while the decision has this version.
    LookAtLeader(Leftover, usize, Option<i32>),
    /// The same, in this version.
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

    /// An operation of the elector has ended. The slot whose leader znode was read, if one was.
    #[must_use]
    pub(crate) fn elector_done(
        &mut self,
        core: &mut Core,
        op: ElectorOp,
        outcome: &Outcome,
    ) -> Option<usize> {
        self.elector.as_mut()?.done(core, op, outcome)
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
                self.step = after_leader_znode(core, leftover, slot, decision, node.as_ref());
            }
            (MembershipStep::RemoveLeader(leftover, ..), Outcome::Ok | Outcome::Missing) => {
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

    /// Takes the next step, if none is under way.
    fn take_step(&mut self, core: &mut Core) {
        if !core.session_is_active() || !core.ops.is_free(Part::Candidacy, core.now.time) {
            return;
        }
        let has_ballot = core.own.ballot.name.is_some();
        if self.look_again && has_ballot && self.step == MembershipStep::Candidate {
            self.step = MembershipStep::Rank;
            core.own.ballot.is_ranked = false;
        }
        if core.own.leaving.is_asked() && self.advance_leaving(core) {
            return;
        }
        let paths = core.config.paths.clone();
        let request = match self.step.clone() {
            MembershipStep::Idle | MembershipStep::Gone => return,
            MembershipStep::Sweep(_) => Line::ballots(core).list(),
            MembershipStep::DropStray(name, _) => Line::ballots(core).drop(&name),
            MembershipStep::LookForNode => ZkOp::Get(core.own_node()),
            MembershipStep::AwaitNode => return self.wait_for_other(core),
            MembershipStep::LookAtLeader(_, slot, _) => ZkOp::Get(paths.leader_znode(slot)),
            MembershipStep::ReadElected(_) => ZkOp::Get(paths.elected()),
            MembershipStep::RemoveLeader(leftover, slot, decision, version) => {
                let mut delete = Transaction::from(ZnodeWrite::delete(paths.leader_znode(slot), version));
                if let Some(version) = decision {
                    delete = delete.only_while(paths.elected(), version);
                }
                // Versions begin at 0 again if the whole tree was deleted. Then its ballot was deleted as well, and
                // the name of a ballot is never used twice.
                if let Some(ballot) = leftover.ballot {
                    delete = delete.only_while(paths.ballot(&ballot), None);
                }
                delete.into()
            }
            MembershipStep::RemoveBallot(leftover) => match leftover.ballot {
                Some(ballot) => ZnodeWrite::delete(paths.ballot(&ballot), None).into(),
                None => {
                    self.step = MembershipStep::RemoveNode;
                    return self.take_step(core);
                }
            },
            MembershipStep::RemoveNode | MembershipStep::DropNode => {
                ZnodeWrite::delete(core.own_node(), None).into()
            }
            MembershipStep::DrawBallot => {
                self.drawn += 1;
                Line::ballots(core).create(self.drawn, core.config.member.member.as_str().into())
            }
            MembershipStep::WriteNode(ballot) => match self.record.data(core, &ballot) {
                Some(data) => ZnodeWrite::create_ephemeral(core.own_node(), &*data).into(),
                None => return,
            },
            MembershipStep::Rank => {
                // Cleared before the read, so that a ballot that vanishes meanwhile is checked again.
                self.look_again = false;
                Line::ballots(core).list()
            }
            MembershipStep::Candidate if core.own.ballot.must_be_listed => Line::ballots(core).list(),
            MembershipStep::Candidate if self.reads_record => ZkOp::Get(core.own_node()),
            MembershipStep::Candidate => match self.record.outdated(core) {
                Some(request) => request,
                None => return,
            },
        };
        core.perform(request, Pending::Candidacy);
    }

    /// Begins to leave once nothing is held any more.
    fn advance_leaving(&mut self, core: &mut Core) -> bool {
        // A member that is named waits until another one is named, so that the elector learns why it leaves.
        if !core.own.duty.is_idle() || core.hands_over() {
            return false;
        }
        match self.step {
            MembershipStep::Candidate | MembershipStep::Rank => {
                // Its only ballot and its record went with the leader znode.
                let is_cleared = core.own.ballot.is_clearing && self.drawn == 1 && !self.reads_record;
                self.step = match core.own.ballot.is_clearing {
                    true if is_cleared => MembershipStep::Gone,
                    true => MembershipStep::Sweep(AfterSweep::Leave),
                    false => MembershipStep::DropNode,
                };
                core.own.ballot = OwnBallot::default();
                return is_cleared;
            }
            MembershipStep::DropNode
            | MembershipStep::Sweep(AfterSweep::Leave)
            | MembershipStep::DropStray(_, AfterSweep::Leave) => {}
            MembershipStep::Gone => return true,
            // No ballot is in the election (any more, or yet). A record, and after a creation without an answer a
            // ballot, may still exist, and the session may continue for other elections.
            _ if self.drawn > 0 => self.step = MembershipStep::LookForNode,
            _ => {
                self.step = MembershipStep::Gone;
                return true;
            }
        }
        false
    }

    /// Its record was created with this ballot.
    fn registered(&mut self, core: &mut Core, ballot: Ballot) {
        self.registered_as = Some(core.session_id());
        self.record.published = self.record.data(core, &ballot).map(|data| (data, 0));
        let text = format!("is a candidate with ballot {ballot}");
        core.note(Level::Info, NoteKind::Registration, text);
        let is_first = self.drawn == 1 && Line::is_first_of_all(ballot.as_str());
        core.own.ballot = OwnBallot { name: Some(ballot), ..OwnBallot::default() };
        match is_first {
            true => self.is_ranked(core, None),
            false => self.step = MembershipStep::Rank,
        }
    }

    fn found_node(&mut self, core: &mut Core, node: Option<&Node>) {
        // No ballot is needed any more, though a leader znode may still have to be removed.
        if core.own.leaving.is_asked() && !core.own.duty.wants_lease {
            // The creation of a ballot that was not answered may still be on its way from another server. After a write of
            // this session it is refused.
            self.step = match node.is_some_and(|n| is_own_record(core, n)) {
                true => MembershipStep::DropNode,
                false => MembershipStep::DropStray(NEVER_CREATED.to_owned(), AfterSweep::Leave),
            };
            return;
        }
        let Some(node) = node else {
            self.waiting_since = None;
            self.step = MembershipStep::DrawBallot;
            return;
        };
        let record = MemberRecord::decode(&core.own_node(), &node.data).ok();
        let ballot = record.as_ref().map(|record| record.ballot.clone());
        self.former = record.map_or_else(OtherIncarnation::default, |record| {
            OtherIncarnation::new(record.session_timeout_ms, record.address, record.http)
        });
        // This very incarnation wrote it, on a session that is over. Nothing of that session leads any more.
        let is_former = || {
            let is_own = ballot.as_ref().is_some_and(|ballot| core.incarnation().has_drawn(ballot));
            is_own && self.registered_as == Some(node.owner) && core.own.duty.is_idle()
        };
        if is_own_record(core, node) {
            // It was written for a ballot that was given up: start again.
            self.step = MembershipStep::RemoveBallot(Leftover { ballot, owner: node.owner });
        } else if core.config.leftovers == Leftovers::Remove || is_former() {
            let text = "removing what a former session of this member left behind".to_owned();
            core.note(Level::Info, NoteKind::Registration, text);
            self.step = MembershipStep::ReadElected(Leftover { ballot, owner: node.owner });
        } else if self.duplicate_at(core).is_some_and(|due| due <= core.now.time) {
            self.step = MembershipStep::Gone;
            core.end(core.duplicate(core.own_node(), self.former.address.take()));
        } else {
            if self.waiting_since.is_none() {
                self.waiting_since = Some(core.now.time);
                let path = core.own_node();
                self.former.is_awaited(core, &path);
            }
            self.step = MembershipStep::AwaitNode;
        }
    }

    /// When another session that holds this member's record has had time to expire.
    fn duplicate_at(&self, core: &Core) -> Option<Time> {
        self.waiting_since.map(|since| since + self.former.patience(core))
    }

    /// Reads the record again once another session that holds it has had time to expire. A process that was frozen has
    /// not been told of a deletion meanwhile.
    fn wait_for_other(&mut self, core: &mut Core) {
        // The work of this member ends before its part in the election ends.
        let Some(due) = self.duplicate_at(core).filter(|_| core.own.duty.is_idle()) else { return };
        if core.now.time < due {
            core.ops.retry(Part::Candidacy, due);
            return;
        }
        self.step = MembershipStep::LookForNode;
        self.take_step(core);
    }

    fn drew_ballot(&mut self, core: &mut Core, path: &str) {
        let name = path.rsplit('/').next().unwrap_or_default();
        match Ballot::new(name) {
            Ok(ballot) => self.step = MembershipStep::WriteNode(ballot),
            // The counter of the parent has wrapped. The drawn ballots are removed before another try.
            Err(error) => {
                let parent = core.config.paths.election();
                core.trouble(format!(
                    "{error}; its numbers are used up: delete {parent} with all below it, and all members draw new ones"
                ));
                self.step = MembershipStep::Sweep(AfterSweep::LookForNode);
                core.ops.retry(Part::Candidacy, core.now.time + USED_UP);
            }
        }
    }

    fn found_ballots(&mut self, core: &mut Core, leader: &mut OwnLeadership, names: &[String]) {
        let Some(mine) = &core.own.ballot.name else { return };
        let before = match Line::ballots(core).rank(names, mine.as_str()) {
            Rank::Gone => return self.ballot_lost(core, leader, "the own ballot is gone"),
            Rank::Stray(_) => {
                return self.ballot_lost(core, leader, "a former ballot of this member still exists");
            }
            Rank::First => None,
            Rank::Behind(name, _) => Ballot::new(name).ok(),
        };
        self.is_ranked(core, before);
    }

    /// The ballot before the own one is known, or that there is none.
    fn is_ranked(&mut self, core: &mut Core, before: Option<Ballot>) {
        if before.is_none() && !core.own.ballot.is_lowest() {
            let text = "is the elector: its ballot is the lowest".to_owned();
            core.note(Level::Info, NoteKind::Registration, text);
        }
        if let (Some(ballot), MembershipStep::WriteNode(_) | MembershipStep::Rank) =
            (&core.own.ballot.name, &self.step)
        {
            core.reading.memory.listed(ballot, before.is_none());
        }
        core.own.ballot.before = before;
        core.own.ballot.is_ranked = true;
        self.step = MembershipStep::Candidate;
    }

    fn swept(&mut self, core: &Core, then: AfterSweep, names: &[String]) {
        self.step = match (Line::ballots(core).own(names).next(), then) {
            (Some(stray), then) => MembershipStep::DropStray(stray.to_owned(), then),
            (None, AfterSweep::LookForNode) => MembershipStep::LookForNode,
            // What was removed may have returned with an older copy of the ensemble.
            (None, AfterSweep::Leave) if std::mem::take(&mut self.reads_record) => {
                MembershipStep::LookForNode
            }
            (None, AfterSweep::Leave) => MembershipStep::Gone,
        };
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

/// The step after a look for a left-over leader znode.
fn after_leader_znode(
    core: &Core,
    leftover: Leftover,
    slot: usize,
    decision: Option<i32>,
    node: Option<&Node>,
) -> MembershipStep {
    let is_leftover = |node: &&Node| {
        let current = Current::decode(&core.config.paths.leader_znode(slot), &node.data);
        let is_its_own = |current: Current| Some(current.ballot) == leftover.ballot;
        node.owner == leftover.owner && current.is_ok_and(is_its_own)
    };
    match node.filter(is_leftover) {
        Some(node) => MembershipStep::RemoveLeader(leftover, slot, decision, node.version),
        None if slot + 1 < core.config.policy.slots => {
            MembershipStep::LookAtLeader(leftover, slot + 1, decision)
        }
        None => MembershipStep::RemoveBallot(leftover),
    }
}

/// Whether this incarnation wrote the own record on this session. A record that another program has spoiled counts as its
/// own: its path has the member's id.
fn is_own_record(core: &Core, node: &Node) -> bool {
    let record = MemberRecord::decode(&core.own_node(), &node.data);
    node.owner == core.session_id() && record.map_or(true, |record| core.is_own(&record.ballot))
}
