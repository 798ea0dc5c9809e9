//! The membership: one step at a time.

use super::{
    super::{
        line::{Line, NEVER_CREATED, Rank},
        other::OtherIncarnation,
    },
    AfterSweep, ElectorCandidacy, Leftover, MembershipStep, is_own_record,
};
use crate::{
    engine::{
        core::Core,
        io::{Level, Node, NoteKind, ZkOp},
        leader::OwnLeadership,
        ops::{Part, Pending, USED_UP},
        own::OwnBallot,
        recipe::Leftovers,
        transaction::{Transaction, ZnodeWrite},
    },
    ids::Ballot,
    record::{Current, MemberRecord, Record},
    time::Time,
};

impl ElectorCandidacy {
    /// Takes the next step, if none is under way.
    pub(super) fn take_step(&mut self, core: &mut Core) {
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
                // Another leader znode can have this version under the same decision, if this write comes late and a
                // second one came before it, or after the whole tree was deleted. Then the ballot is gone as well,
                // and the name of a ballot is never used twice.
                if let Some(ballot) = leftover.ballot {
                    delete = delete.then_delete([paths.ballot(&ballot)]);
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
    pub(super) fn advance_leaving(&mut self, core: &mut Core) -> bool {
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
    pub(super) fn registered(&mut self, core: &mut Core, ballot: Ballot) {
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

    pub(super) fn found_node(&mut self, core: &mut Core, node: Option<&Node>) {
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
    pub(super) fn duplicate_at(&self, core: &Core) -> Option<Time> {
        self.waiting_since.map(|since| since + self.former.patience(core))
    }

    /// Reads the record again once another session that holds it has had time to expire. A process that was frozen has
    /// not been told of a deletion meanwhile.
    pub(super) fn wait_for_other(&mut self, core: &mut Core) {
        // The work of this member ends before its part in the election ends.
        let Some(due) = self.duplicate_at(core).filter(|_| core.own.duty.is_idle()) else { return };
        if core.now.time < due {
            core.ops.retry(Part::Candidacy, due);
            return;
        }
        self.step = MembershipStep::LookForNode;
        self.take_step(core);
    }

    pub(super) fn drew_ballot(&mut self, core: &mut Core, path: &str) {
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

    pub(super) fn found_ballots(&mut self, core: &mut Core, leader: &mut OwnLeadership, names: &[String]) {
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
    pub(super) fn is_ranked(&mut self, core: &mut Core, before: Option<Ballot>) {
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

    pub(super) fn swept(&mut self, core: &Core, then: AfterSweep, names: &[String]) {
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
}

/// The step after a look for a left-over leader znode.
pub(super) fn after_leader_znode(
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
