//! The membership in the election: the ballot, the member's record, and the ballot before the own one.
//!
//! The record under `nodes/<member>` also distinguishes two processes of one id, so it is read before a ballot is
//! drawn.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::line::{Line, NEVER_CREATED, Rank};
use crate::{
    engine::{
        core::Core,
        elector::decided::ms,
        io::{Level, Node, NoteKind, Outcome, StopReason, Watched, ZkOp},
        leader::OwnLeadership,
        ops::{Part, Pending, USED_UP},
        own::OwnBallot,
        recipe::Leftovers,
        transaction::{Transaction, ZnodeWrite},
    },
    ids::Ballot,
    record::{Control, Current, MemberRecord, Record, VERSION},
    time::Time,
};

/// The progress of a member with joining the election.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct ElectorCandidacy {
    step: MembershipStep,
    /// The number of ballots drawn in this session. Each has a new number, so that a lost reply for one ballot can't
    /// be mistaken for another's.
    drawn: u32,
    /// The record as it is in ZooKeeper, with its version.
    published: Option<(Arc<[u8]>, i32)>,
    /// The record as it should be, and a fingerprint of its input. As a rule that is the record as it is, and shared.
    encoded: Option<(u64, Arc<[u8]>)>,
    /// The content of a write of the own record that is under way.
    written: Option<Arc<[u8]>>,
    /// The ballot before the own one has gone: the ballots must be ranked again.
    look_again: bool,
    /// The own record must be read without the watch.
    reads_record: bool,
    /// When this member began to wait for another one of the same id.
    waiting_since: Option<Time>,
    /// The timeout that this other session was granted, according to its record.
    former_timeout: Duration,
    /// The address in its record.
    former_address: Option<String>,
    /// The session on which its record was last written.
    registered_as: Option<i64>,
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
    ReadElected {
        leftover: Leftover,
    },
    LookAtLeader {
        leftover: Leftover,
        slot: usize,
        decision: Option<i32>,
    },
    RemoveLeader {
        leftover: Leftover,
        slot: usize,
        version: i32,
        decision: Option<i32>,
    },
    RemoveBallot {
        leftover: Leftover,
    },
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
        let (record, version) = self.published.clone()?;
        Some(Registered {
            ballot,
            drawn: self.drawn,
            record: str::from_utf8(&record).ok()?.to_owned(),
            version,
        })
    }

    /// Continues in another process: the ballots are ranked and the record is read when the session is resumed.
    pub(crate) fn resume(core: &mut Core, from: Registered) -> Self {
        core.own.ballot = OwnBallot { name: Some(from.ballot), ..OwnBallot::default() };
        Self {
            step: MembershipStep::Rank,
            drawn: from.drawn,
            published: Some((from.record.into_bytes().into(), from.version)),
            registered_as: Some(core.session_id()),
            ..Self::default()
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.step, MembershipStep::Idle | MembershipStep::Gone)
    }

    // ---- the session ----

    pub(crate) fn begin(&mut self, core: &mut Core) {
        self.reset(core, MembershipStep::LookForNode);
    }

    pub(crate) fn session_over(&mut self, core: &mut Core) {
        self.reset(core, MembershipStep::Idle);
    }

    fn reset(&mut self, core: &mut Core, step: MembershipStep) {
        core.ops.give_up_all(Part::Membership);
        core.own.ballot = OwnBallot::default();
        *self = Self { step, registered_as: self.registered_as, ..Self::default() };
    }

    /// The connection was lost and has returned. If the ensemble's leader changed, the clock of every session
    /// restarts, and so does the wait for the end of another session.
    ///
    /// The ensemble may also have been restored from an older copy meanwhile. That copy may contain an older record,
    /// and ballots that were deleted.
    pub(crate) fn session_resumed(&mut self, core: &mut Core) {
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
        self.reads_record = self.published.is_some() || leaves;
        core.own.ballot.must_be_listed = core.own.ballot.is_lowest();
    }

    /// The znodes to watch for it: the own record and ballot, and the ballot before.
    pub(crate) fn watched(&self, core: &Core) -> Vec<Watched> {
        let paths = &core.config.paths;
        let own = &core.own.ballot;
        let waits = self.step == MembershipStep::AwaitNode;
        let node = (waits || own.name.is_some()).then(|| core.own_node());
        let ballots = own.name.iter().chain(&own.before).map(|ballot| paths.ballot(ballot));
        node.into_iter().chain(ballots).map(Watched::node).collect()
    }

    // ---- one step at a time ----

    /// Changes to a step in which this member has no ballot in the election.
    fn give_up_ballot(&mut self, core: &mut Core, step: MembershipStep) {
        core.own.ballot = OwnBallot::default();
        self.step = step;
    }

    /// Takes the next step, if none is under way.
    pub(crate) fn advance(&mut self, core: &mut Core) {
        if !core.session_is_active() || !core.ops.is_free(Part::Membership, core.now.time) {
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
            MembershipStep::LookForNode => ZkOp::Get { path: core.own_node() },
            MembershipStep::AwaitNode => {
                self.wait_for_other(core);
                return;
            }
            MembershipStep::LookAtLeader { slot, .. } => ZkOp::Get { path: paths.leader_znode(slot) },
            MembershipStep::ReadElected { .. } => ZkOp::Get { path: paths.elected() },
            MembershipStep::RemoveLeader { leftover, slot, version, decision } => {
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
            MembershipStep::RemoveBallot { leftover } => match leftover.ballot {
                Some(ballot) => ZnodeWrite::delete(paths.ballot(&ballot), None).into(),
                None => {
                    self.step = MembershipStep::RemoveNode;
                    return self.advance(core);
                }
            },
            MembershipStep::RemoveNode => ZnodeWrite::delete(core.own_node(), None).into(),
            MembershipStep::DrawBallot => {
                self.drawn += 1;
                Line::ballots(core).create(self.drawn, core.config.member.member.as_str().into())
            }
            MembershipStep::WriteNode(ballot) => match self.node_data(core, &ballot) {
                Some(data) => ZnodeWrite::create_ephemeral(core.own_node(), &*data).into(),
                None => return,
            },
            MembershipStep::Rank => {
                // Cleared before the read, so that a ballot that vanishes meanwhile is checked again.
                self.look_again = false;
                Line::ballots(core).list()
            }
            MembershipStep::Candidate if core.own.ballot.must_be_listed => Line::ballots(core).list(),
            MembershipStep::Candidate if self.reads_record => ZkOp::Get { path: core.own_node() },
            MembershipStep::Candidate => match self.outdated_node(core) {
                Some(request) => request,
                None => return,
            },
            MembershipStep::DropNode => ZnodeWrite::delete(core.own_node(), None).into(),
        };
        core.perform(request, Pending::Membership);
    }

    /// Begins to leave once nothing is held any more.
    fn advance_leaving(&mut self, core: &mut Core) -> bool {
        // A member that is named waits until another one is named, so that the elector learns why it leaves.
        if !core.own.duty.is_idle() || core.hands_over() {
            return false;
        }
        match self.step.clone() {
            MembershipStep::Candidate | MembershipStep::Rank => {
                // Its only ballot and its record went with the leader znode.
                let is_cleared = core.own.ballot.is_clearing && self.drawn == 1 && !self.reads_record;
                let next = match core.own.ballot.is_clearing {
                    true if is_cleared => MembershipStep::Gone,
                    true => MembershipStep::Sweep(AfterSweep::Leave),
                    false => MembershipStep::DropNode,
                };
                self.give_up_ballot(core, next);
                return is_cleared;
            }
            MembershipStep::DropNode
            | MembershipStep::Sweep(AfterSweep::Leave)
            | MembershipStep::DropStray(_, AfterSweep::Leave) => {}
            MembershipStep::Gone => return true,
            // No ballot is in the election (any more, or yet). A record, and after a creation without an answer a
            // ballot, may still exist, and the session may continue for other elections.
            MembershipStep::LookForNode if self.drawn > 0 => {}
            _ if self.drawn > 0 => self.step = MembershipStep::LookForNode,
            _ => {
                self.step = MembershipStep::Gone;
                return true;
            }
        }
        false
    }

    pub(crate) fn done(&mut self, core: &mut Core, leader: &mut OwnLeadership, outcome: &Outcome) {
        let step = self.step.clone();
        match (step, outcome) {
            // By then another leader's znode may have this version.
            (MembershipStep::RemoveLeader { leftover, .. }, Outcome::NotApplied(why)) => {
                self.step = MembershipStep::ReadElected { leftover };
                self.later(core, why);
            }
            (_, Outcome::NotApplied(why)) => self.later(core, why),
            (MembershipStep::Sweep(then), Outcome::Names(names)) => self.swept(core, then, names),
            (MembershipStep::DropStray(_, then), Outcome::Ok | Outcome::Missing) => {
                self.step = MembershipStep::Sweep(then);
            }
            (MembershipStep::LookForNode, Outcome::Got(node)) => self.found_node(core, node.as_ref()),
            (MembershipStep::ReadElected { leftover }, Outcome::Got(node)) => {
                let decision = node.as_ref().map(|n| n.version);
                self.step = MembershipStep::LookAtLeader { leftover, slot: 0, decision };
            }
            (MembershipStep::LookAtLeader { leftover, slot, decision }, Outcome::Got(node)) => {
                self.found_leader_znode(core, leftover, slot, decision, node.as_ref());
            }
            (MembershipStep::RemoveLeader { leftover, .. }, Outcome::Ok | Outcome::Missing) => {
                self.step = MembershipStep::RemoveBallot { leftover };
            }
            (MembershipStep::RemoveLeader { leftover, .. }, _) => {
                self.step = MembershipStep::ReadElected { leftover };
                self.later(core, "what a former session left behind has changed");
            }
            (MembershipStep::RemoveBallot { .. }, Outcome::Ok | Outcome::Missing) => {
                self.step = MembershipStep::RemoveNode
            }
            (MembershipStep::RemoveNode, Outcome::Ok | Outcome::Missing) => {
                self.step = MembershipStep::DrawBallot
            }
            (MembershipStep::DrawBallot, Outcome::Created { path, czxid, .. }) => {
                core.reading.memory.created(*czxid);
                self.drew_ballot(core, path);
            }
            (MembershipStep::WriteNode(ballot), Outcome::Created { .. }) => {
                self.registered_as = Some(core.session_id());
                self.published = self.node_data(core, &ballot).map(|data| (data, 0));
                core.note(
                    Level::Info,
                    NoteKind::Registration,
                    format!("is a candidate with ballot {ballot}"),
                );
                core.own.ballot = OwnBallot { name: Some(ballot.clone()), ..OwnBallot::default() };
                match self.drawn == 1 && Line::is_first_of_all(ballot.as_str()) {
                    true => self.is_ranked(core, None),
                    false => self.step = MembershipStep::Rank,
                }
            }
            // It is not known which ballot was drawn, if any: it is removed before another is drawn.
            (MembershipStep::DrawBallot, Outcome::Unknown(why)) => {
                self.step = MembershipStep::Sweep(AfterSweep::LookForNode);
                self.later(core, why);
            }
            // Another process of this id was quicker, or the reply was lost: read the record.
            (MembershipStep::WriteNode(_), Outcome::Exists | Outcome::Unknown(_)) => {
                self.step = MembershipStep::Sweep(AfterSweep::LookForNode)
            }
            (MembershipStep::Rank, Outcome::Names(names)) => {
                self.found_ballots(core, leader, names);
            }
            (MembershipStep::Candidate, Outcome::Changed { version, .. }) => {
                // A watch may have been quicker, and have reported a later state already.
                if let (Some((_, known)), Some(written)) = (&self.published, self.written.take())
                    && known < version
                {
                    self.published = Some((written, *version));
                }
            }
            (MembershipStep::Candidate, Outcome::Names(names)) => {
                core.own.ballot.must_be_listed = false;
                self.found_ballots(core, leader, names);
            }
            (MembershipStep::Candidate, Outcome::Got(node)) => {
                self.reads_record = false;
                // Nothing was written meanwhile, so the read counts even if the version went back.
                self.published = None;
                let path = core.own_node();
                self.saw(core, leader, &path, node.as_ref());
            }
            (MembershipStep::Candidate, Outcome::Missing) => {
                self.ballot_lost(core, leader, "the own record is gone")
            }
            // Another program wrote it, or the reply was lost, or the ensemble returned to an older copy.
            (MembershipStep::Candidate, Outcome::Stale | Outcome::Unknown(_)) => {
                self.reads_record = true;
                self.later(core, "the own record could not be written");
            }
            (MembershipStep::Candidate, _) => self.later(core, "the own record could not be written"),
            (MembershipStep::DropNode, Outcome::Ok | Outcome::Missing) => {
                self.step = MembershipStep::Sweep(AfterSweep::Leave)
            }
            (_, outcome) => self.later(core, &outcome.to_string()),
        }
    }

    fn later(&self, core: &mut Core, why: &str) {
        core.note(Level::Warn, NoteKind::Trouble, format!("joining the election is delayed: {why}"));
        core.retry(Part::Membership);
    }

    fn found_node(&mut self, core: &mut Core, node: Option<&Node>) {
        // No ballot is needed any more, though a leader znode may still have to be removed.
        if core.own.leaving.is_asked() && !core.own.duty.wants_lease {
            let mine = node.is_some_and(|n| is_own_record(core, n));
            // The creation of a ballot that was not answered may still be on its way from another server. After a write of
            // this session it is refused.
            self.step = match mine {
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
        let former = record.as_ref().map_or(0, |record| record.session_timeout_ms);
        self.former_timeout = Duration::from_millis(former);
        self.former_address = record.as_ref().and_then(|record| whereabouts(&record.address, &record.http));
        let ballot = record.map(|r| r.ballot);
        let is_former =
            || ballot.as_ref().is_some_and(|ballot| self.is_of_former_session(core, node, ballot));
        if is_own_record(core, node) {
            // It was written for a ballot that was given up: start again.
            self.step = MembershipStep::RemoveBallot { leftover: Leftover { ballot, owner: node.owner } };
        } else if core.config.leftovers == Leftovers::Remove || is_former() {
            let text = "removing what a former session of this member left behind".to_owned();
            core.note(Level::Info, NoteKind::Registration, text);
            self.step = MembershipStep::ReadElected { leftover: Leftover { ballot, owner: node.owner } };
        } else if self.duplicate_at(core).is_some_and(|due| due <= core.now.time) {
            self.step = MembershipStep::Gone;
            core.end(core.duplicate(core.own_node(), self.former_address.take()));
        } else {
            if self.waiting_since.is_none() {
                self.waiting_since = Some(core.now.time);
                let text = held_by_other(&core.own_node(), self.former_address.as_deref());
                core.note(Level::Warn, NoteKind::Registration, text);
            }
            self.step = MembershipStep::AwaitNode;
        }
    }

    /// Whether this very incarnation wrote it, on a session that is over. Nothing of that session leads any more.
    fn is_of_former_session(&self, core: &Core, node: &Node, ballot: &Ballot) -> bool {
        let is_own = self.registered_as == Some(node.owner) && core.incarnation().has_drawn(ballot);
        is_own && core.own.duty.is_idle()
    }

    /// When another session that holds this member's record has had time to expire.
    fn duplicate_at(&self, core: &Core) -> Option<Time> {
        self.waiting_since.map(|since| since + patience(core, self.former_timeout))
    }

    /// Reads the record again once another session that holds it has had time to expire. A process that was frozen has
    /// not been told of a deletion meanwhile.
    fn wait_for_other(&mut self, core: &mut Core) {
        // The work of this member ends before its part in the election ends.
        let Some(due) = self.duplicate_at(core).filter(|_| core.own.duty.is_idle()) else { return };
        if core.now.time < due {
            core.ops.retry(Part::Membership, due);
            return;
        }
        self.step = MembershipStep::LookForNode;
        self.advance(core);
    }

    fn found_leader_znode(
        &mut self,
        core: &mut Core,
        leftover: Leftover,
        slot: usize,
        decision: Option<i32>,
        node: Option<&Node>,
    ) {
        let path = core.config.paths.leader_znode(slot);
        let current = node.and_then(|n| Current::decode(&path, &n.data).ok().map(|c| (c, n)));
        self.step = match current {
            Some((current, node))
                if node.owner == leftover.owner && Some(&current.ballot) == leftover.ballot.as_ref() =>
            {
                MembershipStep::RemoveLeader { leftover, slot, version: node.version, decision }
            }
            _ if slot + 1 < core.config.policy.slots => {
                MembershipStep::LookAtLeader { leftover, slot: slot + 1, decision }
            }
            _ => MembershipStep::RemoveBallot { leftover },
        };
    }

    fn drew_ballot(&mut self, core: &mut Core, path: &str) {
        let name = path.rsplit('/').next().unwrap_or_default();
        match Ballot::new(name) {
            Ok(ballot) => self.step = MembershipStep::WriteNode(ballot),
            // The counter of the parent has wrapped. The drawn ballots are removed before another try.
            Err(error) => {
                let parent = core.config.paths.election();
                let text = format!(
                    "{error}; its numbers are used up: delete {parent} with all below it, and all members draw new ones"
                );
                core.note(Level::Warn, NoteKind::Trouble, text);
                self.step = MembershipStep::Sweep(AfterSweep::LookForNode);
                core.ops.retry(Part::Membership, core.now.time + USED_UP);
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

    /// A watch has read the own record, the own ballot, or the ballot before.
    pub(crate) fn saw(
        &mut self,
        core: &mut Core,
        leader: &mut OwnLeadership,
        path: &str,
        node: Option<&Node>,
    ) {
        let is_record = path == core.own_node();
        if self.step == MembershipStep::AwaitNode && is_record && node.is_none() {
            core.ops.retry_now(Part::Membership);
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
            Some(node) if is_record => self.own_record_seen(node),
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

    fn own_record_seen(&mut self, node: &Node) {
        let older = self.published.as_ref().is_some_and(|(_, version)| node.version < *version);
        if !older {
            let encoded = self.encoded.as_ref().map(|(_, data)| data).filter(|data| ***data == *node.data);
            let data = encoded.map_or_else(|| node.data.as_slice().into(), Arc::clone);
            self.published = Some((data, node.version));
        }
    }

    fn node_data(&mut self, core: &mut Core, ballot: &Ballot) -> Option<Arc<[u8]>> {
        let fingerprint = fingerprint(core, ballot);
        if let Some((_, data)) = self.encoded.as_ref().filter(|(of, _)| *of == fingerprint) {
            return Some(Arc::clone(data));
        }
        let path = core.own_node();
        let (profile, reports) = (&core.config.member, core.own.reports());
        let record = MemberRecord {
            v: VERSION,
            member: profile.member.clone(),
            site: profile.site.clone(),
            ballot: ballot.clone(),
            address: profile.address.clone(),
            http: profile.http.clone(),
            priority: profile.priority,
            attributes: core.attributes(),
            measured: reports.measured.keys().cloned().collect(),
            health: core.own.health.clone(),
            site_health: reports.site_health.clone(),
            policy: profile.policy.clone(),
            config: profile.overlay.clone(),
            software: profile.software.clone(),
            orders_format: Control::NEWEST,
            session_timeout_ms: ms(core.granted()),
            stop_budget_ms: ms(core.stop_budget()),
            joined_ms: core.own.joined_ms,
            gave_up: core.own.gave_up.as_deref().cloned(),
            withdrawn: core.own.wishes().withdrawn.clone(),
            leaving: core.own.leaving.is_asked(),
            prepared: reports.prepared_for,
            holds: core.own.wishes().holds.clone(),
            unreached: reports.reach.published(),
            round_trips: reports.round_trips.clone(),
            remembers: core.remembers(),
        };
        match record.encode(&path) {
            Ok(data) => {
                let data: Arc<[u8]> = data.into();
                self.encoded = Some((fingerprint, Arc::clone(&data)));
                Some(data)
            }
            Err(error) => {
                self.later(core, &error.to_string());
                None
            }
        }
    }

    /// The write that brings the own record up to date, if it differs from the record in ZooKeeper.
    fn outdated_node(&mut self, core: &mut Core) -> Option<ZkOp> {
        let ballot = core.own.ballot.name.clone()?;
        let data = self.node_data(core, &ballot)?;
        let (published, version) = self.published.as_ref()?;
        if *published == data {
            return None;
        }
        self.written = Some(Arc::clone(&data));
        Some(ZnodeWrite::set(core.own_node(), &*data, *version).into())
    }
}

/// Where an operator finds another incarnation of this member: its address, and that of its HTTP endpoints.
pub(super) fn whereabouts(address: &Option<String>, http: &Option<String>) -> Option<String> {
    match (address, http) {
        (Some(address), Some(http)) => Some(format!("{address} ({http})")),
        (one, other) => one.clone().or_else(|| other.clone()),
    }
}

/// Another incarnation of this member, at this address, holds this znode.
pub(super) fn held_by_other(path: &str, address: Option<&str>) -> String {
    let at = address.map(|address| format!(" at {address}")).unwrap_or_default();
    format!("{path} is held by another incarnation{at}; waiting for it to end")
}

/// How long to wait for the end of another incarnation of this member before it counts as a duplicate: a whole timeout, which may
/// be longer than that of this session, and the time that the ensemble may need to expire a session.
pub(super) fn patience(core: &Core, other: Duration) -> Duration {
    let granted = core.granted().max(other);
    granted + (granted / 4).max(Duration::from_secs(2))
}

/// Whether this incarnation wrote the own record on this session. A record that another program has spoiled counts as its
/// own: its path has the member's id.
fn is_own_record(core: &Core, node: &Node) -> bool {
    let record = MemberRecord::decode(&core.own_node(), &node.data);
    node.owner == core.session_id() && record.map_or(true, |record| core.is_own(&record.ballot))
}

/// A fingerprint of everything that can change in the own record.
fn fingerprint(core: &Core, ballot: &Ballot) -> u64 {
    let (own, mut hasher) = (&core.own, DefaultHasher::new());
    (ballot, core.granted(), core.stop_budget(), &own.health, own.reports(), own.joined_ms).hash(&mut hasher);
    (&own.gave_up, own.leaving, core.remembers()).hash(&mut hasher);
    let profile = &core.config.member;
    (&profile.attributes, profile.priority, &profile.policy, &profile.overlay).hash(&mut hasher);
    hasher.finish()
}
