//! Standing in the election: the ballot, the member's record, and the ballot
//! before one's own.
//!
//! The record under `nodes/<member>` is also what keeps two processes of one id
//! apart, so it is looked at before a ballot is drawn.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Engine,
    decision::ms,
    elector::predecessor,
    io::{Action, EndReason, Level, Node, NoteKind, OpId, Outcome, Request, Watched},
    rules::Rule,
};
use crate::{
    ids::Ballot,
    record::{Current, MemberRecord, Record, VERSION},
    time::Time,
};

/// What to do about what a former process of this member has left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leftovers {
    /// Wait until its session has expired; if it hasn't by then, the other one is
    /// alive, and this is a duplicate.
    #[default]
    Wait,
    /// Remove it: whoever set this has proof that no such process lives, nor any
    /// of its work (a lock that both held). In the recipe `single` it is waited for all the
    /// same, for there its place can't be told from the next leader's.
    Remove,
}

/// How far a member is with standing in the election.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Registration {
    step: Step,
    op: Option<OpId>,
    retry_at: Option<Time>,
    /// Drawn ballots in this session: a new one each time, so that a reply lost
    /// for one can't be taken for another's.
    drawn: u32,
    /// The record as it stands, with its version.
    pub(super) stands: Option<(Vec<u8>, i32)>,
    pub(super) predecessor: Option<Ballot>,
    /// The ballot before one's own has gone: who is before it now?
    look_again: bool,
    /// The own record is to be read without the watch.
    reads_record: bool,
    /// Whether the own ballot is still there, and the lowest, is to be read.
    lists_ballots: bool,
    /// When this member began to wait for another one of the same id.
    waiting_since: Option<Time>,
    /// The timeout that this other session was granted, as far as its record says.
    former_timeout: Duration,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Step {
    /// There is no session.
    #[default]
    Idle,
    /// Looking for ballots that this very session has left behind: one whose
    /// creation was answered by nobody, or one that was given up. A lowest ballot
    /// that nobody stands for would leave the election without an elector.
    Sweep(Then),
    DropStray(String, Then),
    LookForNode,
    /// Another session's record is in the way; it may expire.
    AwaitNode,
    /// The decision is read before the place: while that stands, nobody else's place
    /// can be there in the version of the left-over one.
    ReadElected {
        leftover: Leftover,
    },
    LookAtPlace {
        leftover: Leftover,
        slot: usize,
        decision: Option<i32>,
    },
    RemovePlace {
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
    /// Finding the ballot before one's own.
    Place(Ballot),
    Standing(Ballot),
    /// Leaving: the record goes first, then every ballot of this session.
    DropNode,
    Gone,
}

/// What follows once no stray ballot is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Then {
    LookForNode,
    Leave,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Leftover {
    ballot: Option<Ballot>,
    owner: i64,
}

/// How long to wait before an operation is tried again that could not be applied.
const RETRY: Duration = Duration::from_millis(500);

/// How long to wait where the numbers of ballots are used up, which an operator has to mend.
const USED_UP: Duration = Duration::from_secs(30);

impl Registration {
    /// The own ballot, once it stands in the election.
    pub(super) fn ballot(&self) -> Option<&Ballot> {
        match &self.step {
            Step::Standing(ballot) | Step::Place(ballot) => Some(ballot),
            _ => None,
        }
    }

    /// Whether this member has the lowest ballot.
    pub(super) fn is_lowest(&self) -> bool {
        matches!(self.step, Step::Standing(_)) && self.predecessor.is_none()
    }

    /// The ballot before the own one, if there is any.
    pub(super) fn before(&self) -> Option<&Ballot> {
        self.predecessor.as_ref().filter(|_| matches!(self.step, Step::Standing(_)))
    }

    /// Whether the own ballot is still there is to be read.
    pub(super) fn list_ballots(&mut self) {
        self.lists_ballots = true;
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.step, Step::Idle | Step::Gone)
    }

    /// When to go on, if nothing happens before. Nothing can be done while an
    /// operation is under way; its end is what is waited for then.
    pub(super) fn retry_at(&self) -> Option<Time> {
        self.retry_at.filter(|_| self.op.is_none())
    }

    /// The connection was lost and is back. Where that was a change of the
    /// ensemble's leader, every session's clock begins anew: so does the wait for
    /// another session's end.
    ///
    /// And the ensemble may have been restored from an older copy meanwhile, with an older record, and ballots
    /// that were gone.
    pub(super) fn session_resumed(&mut self, now: Time) {
        if self.waiting_since.is_some() {
            self.waiting_since = Some(now);
        }
        // What was removed on the way out is back with an older copy of the ensemble.
        let leaves = matches!(self.step, Step::Sweep(Then::Leave) | Step::DropStray(_, Then::Leave));
        if self.step == Step::Gone {
            self.step = Step::LookForNode;
        }
        self.reads_record = self.stands.is_some() || leaves;
        self.lists_ballots = self.is_lowest();
    }

    /// What must be watched for it: the own record and ballot, the ballot before.
    pub(super) fn watched(&self, engine: &Engine) -> Vec<Watched> {
        let node = Watched::Node(engine.own_node());
        match &self.step {
            Step::AwaitNode => vec![node],
            Step::Standing(ballot) | Step::Place(ballot) => {
                let mut watched = vec![node, Watched::Node(engine.config.paths.ballot(ballot))];
                if let Some(before) = &self.predecessor {
                    watched.push(Watched::Node(engine.config.paths.ballot(before)));
                }
                watched
            }
            _ => Vec::new(),
        }
    }
}

impl Engine {
    pub(super) fn own_node(&self) -> String {
        self.config.paths.node(&self.config.member.member)
    }

    pub(super) fn begin_registration(&mut self) {
        self.registration = Registration { step: Step::LookForNode, ..Registration::default() };
    }

    pub(super) fn end_registration(&mut self) {
        self.registration = Registration::default();
    }

    /// Takes the next step, if none is under way.
    pub(super) fn advance_registration(&mut self) {
        if self.registration.op.is_some() || !self.session_is_active() {
            return;
        }
        if self.registration.retry_at.is_some_and(|at| self.now.time < at) {
            return;
        }
        self.registration.retry_at = None;
        if let (true, Step::Standing(ballot)) = (self.registration.look_again, &self.registration.step) {
            self.registration.step = Step::Place(ballot.clone());
        }
        if self.leaving.is_asked() && self.advance_leaving() {
            return;
        }
        let paths = self.config.paths.clone();
        let request = match self.registration.step.clone() {
            Step::Idle | Step::Gone => return,
            Step::Sweep(_) => Request::Children { path: paths.election() },
            Step::DropStray(name, _) => {
                Request::Delete { path: format!("{}/{name}", paths.election()), version: None }
            }
            Step::LookForNode => Request::Get { path: self.own_node() },
            Step::AwaitNode => {
                self.check_duplicate();
                return;
            }
            Step::LookAtPlace { slot, .. } => Request::Get { path: paths.place(slot) },
            Step::ReadElected { .. } => Request::Get { path: paths.elected() },
            Step::RemovePlace { leftover, slot, version, decision } => {
                let (path, unchanged) = (paths.place(slot), paths.elected());
                let request = match decision {
                    Some(unchanged_version) => {
                        Request::DeleteWhile { path, version, unchanged, unchanged_version }
                    }
                    None => Request::Delete { path, version: Some(version) },
                };
                // Versions begin anew where all was deleted. Its ballot, whose name never comes again, was deleted with it.
                match leftover.ballot {
                    Some(ballot) => {
                        Request::While { there: paths.ballot(&ballot), request: Box::new(request) }
                    }
                    None => request,
                }
            }
            Step::RemoveBallot { leftover } => match leftover.ballot {
                Some(ballot) => Request::Delete { path: paths.ballot(&ballot), version: None },
                None => {
                    self.registration.step = Step::RemoveNode;
                    return self.advance_registration();
                }
            },
            Step::RemoveNode => Request::Delete { path: self.own_node(), version: None },
            Step::DrawBallot => {
                self.registration.drawn += 1;
                let guid = format!("{}{}", self.guid_prefix(), self.registration.drawn);
                Request::CreateSequential {
                    prefix: paths.ballot_prefix(&guid),
                    data: self.config.member.member.as_str().into(),
                    ephemeral: true,
                    unique_prefix: true,
                }
            }
            Step::WriteNode(ballot) => match self.node_data(&ballot) {
                Some(data) => Request::Create { path: self.own_node(), data, ephemeral: true },
                None => return,
            },
            Step::Place(_) => {
                // Cleared before it is read: what vanishes meanwhile is looked at again.
                self.registration.look_again = false;
                Request::Children { path: paths.election() }
            }
            Step::Standing(_) if self.registration.lists_ballots => {
                Request::Children { path: paths.election() }
            }
            Step::Standing(_) if self.registration.reads_record => Request::Get { path: self.own_node() },
            Step::Standing(ballot) => match self.outdated_node(&ballot) {
                Some(request) => request,
                None => return,
            },
            Step::DropNode => Request::Delete { path: self.own_node(), version: None },
        };
        self.registration.op = self.perform(request);
    }

    /// Turns towards leaving once nothing is held any more.
    fn advance_leaving(&mut self) -> bool {
        // One that is named stays until another one is, so that the elector learns why it goes.
        if !self.office_is_idle() || self.hands_over() {
            return false;
        }
        match self.registration.step.clone() {
            Step::Standing(_) | Step::Place(_) => self.registration.step = Step::DropNode,
            Step::DropNode | Step::Sweep(Then::Leave) | Step::DropStray(_, Then::Leave) => {}
            Step::Gone => return true,
            // Not standing (any more, or yet). A record, and after a creation without an
            // answer a ballot, may still be there, and the session may live on for other
            // elections.
            Step::LookForNode if self.registration.drawn > 0 => {}
            _ if self.registration.drawn > 0 => self.registration.step = Step::LookForNode,
            _ => {
                self.registration.step = Step::Gone;
                return true;
            }
        }
        false
    }

    pub(super) fn registration_done(&mut self, op: OpId, outcome: &Outcome) -> bool {
        if self.registration.op != Some(op) {
            return false;
        }
        self.registration.op = None;
        let step = self.registration.step.clone();
        match (step, outcome) {
            (_, Outcome::NotApplied(why)) => self.retry_registration(why),
            (Step::Sweep(then), Outcome::Names(names)) => self.swept(then, names),
            (Step::DropStray(_, then), Outcome::Ok | Outcome::Missing) => {
                self.registration.step = Step::Sweep(then);
            }
            (Step::LookForNode, Outcome::Got(node)) => self.found_node(node.as_ref()),
            (Step::ReadElected { leftover }, Outcome::Got(node)) => {
                let decision = node.as_ref().map(|n| n.version);
                self.registration.step = Step::LookAtPlace { leftover, slot: 0, decision };
            }
            (Step::LookAtPlace { leftover, slot, decision }, Outcome::Got(node)) => {
                self.found_place(leftover, slot, decision, node.as_ref());
            }
            (Step::RemovePlace { leftover, .. }, Outcome::Ok | Outcome::Missing) => {
                self.registration.step = Step::RemoveBallot { leftover };
            }
            (Step::RemovePlace { leftover, .. }, _) => {
                self.registration.step = Step::ReadElected { leftover };
                self.retry_registration("what a former session left behind has changed");
            }
            (Step::RemoveBallot { .. }, Outcome::Ok | Outcome::Missing) => {
                self.registration.step = Step::RemoveNode
            }
            (Step::RemoveNode, Outcome::Ok | Outcome::Missing) => self.registration.step = Step::DrawBallot,
            (Step::DrawBallot, Outcome::Created { path, .. }) => self.drew_ballot(path),
            (Step::WriteNode(ballot), Outcome::Created { .. }) => {
                let data = self.node_data(&ballot).unwrap_or_default();
                self.registered_as = Some(self.session_id());
                self.registration.stands = Some((data, 0));
                self.note(
                    Level::Info,
                    NoteKind::Registration,
                    format!("stands in the election with ballot {ballot}"),
                );
                self.registration.step = Step::Place(ballot);
            }
            // Nobody knows which ballot, if any: away with it before another is drawn.
            (Step::DrawBallot, Outcome::Unknown(why)) => {
                self.registration.step = Step::Sweep(Then::LookForNode);
                self.retry_registration(why);
            }
            // Another process of this id was quicker, or a lost reply: look.
            (Step::WriteNode(_), Outcome::Exists | Outcome::Unknown(_)) => {
                self.registration.step = Step::Sweep(Then::LookForNode)
            }
            (Step::Place(ballot), Outcome::Names(names)) => {
                self.found_ballots(ballot, names);
                if let Step::Standing(ballot) = &self.registration.step {
                    self.memory.listed(ballot, self.registration.predecessor.is_none());
                }
            }
            (Step::Standing(_), Outcome::Changed { version, .. }) => {
                // A watch may have been quicker, and have told of what came after it already.
                if let (Some((_, known)), Some(written)) =
                    (&self.registration.stands, self.node_written.take())
                    && known < version
                {
                    self.registration.stands = Some((written, *version));
                }
            }
            (Step::Standing(ballot), Outcome::Names(names)) => {
                self.registration.lists_ballots = false;
                self.found_ballots(ballot, names);
            }
            (Step::Standing(_), Outcome::Got(node)) => {
                self.registration.reads_record = false;
                // Nothing was written meanwhile, so it counts even where the version went back.
                self.registration.stands = None;
                let path = self.own_node();
                self.registration_saw(&path, node.as_ref());
            }
            (Step::Standing(_), Outcome::Missing) => self.ballot_lost("the own record is gone"),
            // Somebody else wrote it, or a lost reply, or the ensemble went back to an older copy.
            (Step::Standing(_), Outcome::Stale | Outcome::Unknown(_)) => {
                self.registration.reads_record = true;
                self.retry_registration("the own record could not be written");
            }
            (Step::Standing(_), _) => self.retry_registration("the own record could not be written"),
            (Step::DropNode, Outcome::Ok | Outcome::Missing) => {
                self.registration.step = Step::Sweep(Then::Leave)
            }
            (step, outcome) => self.retry_registration(&format!("{step:?}: {outcome:?}")),
        }
        true
    }

    fn retry_registration(&mut self, why: &str) {
        self.note(Level::Warn, NoteKind::Trouble, format!("standing in the election is delayed: {why}"));
        self.registration.retry_at = Some(self.now.time + RETRY);
    }

    fn found_node(&mut self, node: Option<&Node>) {
        // Nothing needs a ballot any more, though a leader znode may still have to be removed.
        if self.leaving.is_asked() && !self.office.wants_lease() {
            let mine = node.is_some_and(|n| n.owner == self.session_id());
            self.registration.step = if mine { Step::DropNode } else { Step::Sweep(Then::Leave) };
            return;
        }
        let Some(node) = node else {
            self.registration.waiting_since = None;
            self.registration.step = Step::DrawBallot;
            return;
        };
        let record = MemberRecord::decode(&self.own_node(), &node.data).ok();
        let former = record.as_ref().map_or(0, |record| record.session_timeout_ms);
        self.registration.former_timeout = Duration::from_millis(former);
        let ballot = record.map(|r| r.ballot);
        if node.owner == self.session_id() {
            // Written by this session for a ballot that is given up: begin anew.
            self.registration.step = Step::RemoveBallot { leftover: Leftover { ballot, owner: node.owner } };
        } else if self.config.leftovers == Leftovers::Remove || self.is_of_former_session(node) {
            let text = "removing what a former session of this member left behind".to_owned();
            self.note(Level::Info, NoteKind::Registration, text);
            self.registration.step = Step::ReadElected { leftover: Leftover { ballot, owner: node.owner } };
        } else {
            if self.registration.waiting_since.is_none() {
                self.registration.waiting_since = Some(self.now.time);
                let text =
                    format!("{} is held by another session; waiting for it to expire", self.own_node());
                self.note(Level::Warn, NoteKind::Registration, text);
            }
            self.registration.step = Step::AwaitNode;
        }
    }

    /// Whether this very process wrote it, on a session that is over. Nothing of that leads any more.
    fn is_of_former_session(&self, node: &Node) -> bool {
        self.registered_as == Some(node.owner) && self.office_is_idle()
    }

    /// Another session holds this member's record: has it had time to expire?
    fn check_duplicate(&mut self) {
        let Some(since) = self.registration.waiting_since else {
            return;
        };
        // It may have been granted more than this one.
        let granted = self.granted().max(self.registration.former_timeout);
        // Its work has ended before it says that its part is over.
        if !self.office_is_idle() {
            return;
        }
        // A whole timeout, and what the ensemble may need to expire it.
        let due = since + granted + (granted / 4).max(Duration::from_secs(2));
        if self.now.time < due {
            self.registration.retry_at = Some(due);
            return;
        }
        let member = self.config.member.member.clone();
        let path = self.own_node();
        self.end(EndReason::DuplicateMember { member, path });
    }

    fn found_place(&mut self, leftover: Leftover, slot: usize, decision: Option<i32>, node: Option<&Node>) {
        let path = self.config.paths.place(slot);
        let current = node.and_then(|n| Current::decode(&path, &n.data).ok().map(|c| (c, n)));
        self.registration.step = match current {
            Some((current, node))
                if node.owner == leftover.owner && Some(&current.ballot) == leftover.ballot.as_ref() =>
            {
                Step::RemovePlace { leftover, slot, version: node.version, decision }
            }
            _ if slot + 1 < self.config.policy.slots => {
                Step::LookAtPlace { leftover, slot: slot + 1, decision }
            }
            _ => Step::RemoveBallot { leftover },
        };
    }

    fn drew_ballot(&mut self, path: &str) {
        let name = path.rsplit('/').next().unwrap_or_default();
        match Ballot::new(name) {
            Ok(ballot) => self.registration.step = Step::WriteNode(ballot),
            // The counter of the parent has wrapped. What was drawn is swept away, before another try.
            Err(error) => {
                let parent = self.config.paths.election();
                let text = format!(
                    "{error}; its numbers are used up: delete {parent} with all below it, and all members draw new ones"
                );
                self.note(Level::Warn, NoteKind::Trouble, text);
                self.registration.step = Step::Sweep(Then::LookForNode);
                self.registration.retry_at = Some(self.now.time + USED_UP);
            }
        }
    }

    fn found_ballots(&mut self, mine: Ballot, names: &[String]) {
        let ballots: Vec<Ballot> = names.iter().filter_map(|name| Ballot::new(name.clone()).ok()).collect();
        if !ballots.contains(&mine) {
            return self.ballot_lost("the own ballot is gone");
        }
        // Seen only now: the creation of this one's own came after theirs.
        if self.strays(names).iter().any(|stray| *stray != mine.as_str()) {
            return self.ballot_lost("a former ballot of this session still stands");
        }
        let before = predecessor(&ballots, &mine);
        if before.is_none() && !self.registration.is_lowest() {
            self.note(
                Level::Info,
                NoteKind::Registration,
                "is the elector: its ballot is the lowest".to_owned(),
            );
        }
        self.registration.predecessor = before;
        self.registration.step = Step::Standing(mine);
    }

    /// How every ballot of this session begins.
    fn guid_prefix(&self) -> String {
        format!("s{:016x}.", self.session_id())
    }

    /// The ballots of this session among `names`.
    fn strays<'n>(&self, names: &'n [String]) -> Vec<&'n str> {
        if !self.rules.keep(Rule::SweepBallots) {
            return Vec::new();
        }
        let prefix = self.guid_prefix();
        names.iter().map(String::as_str).filter(|name| name.starts_with(&prefix)).collect()
    }

    fn swept(&mut self, then: Then, names: &[String]) {
        self.registration.step = match (self.strays(names).into_iter().next(), then) {
            (Some(stray), then) => Step::DropStray(stray.to_owned(), then),
            (None, Then::LookForNode) => Step::LookForNode,
            // What was removed may be back with an older copy of the ensemble.
            (None, Then::Leave) if std::mem::take(&mut self.registration.reads_record) => Step::LookForNode,
            (None, Then::Leave) => Step::Gone,
        };
    }

    /// Stands with a new ballot, once nothing is held under the old one.
    fn ballot_lost(&mut self, why: &str) {
        self.note(Level::Warn, NoteKind::Registration, format!("{why}; standing anew"));
        self.stop_for_lost_ballot();
        let drawn = self.registration.drawn;
        let step = Step::Sweep(Then::LookForNode);
        self.registration = Registration { step, drawn, ..Registration::default() };
    }

    /// What a watch says of the own record, the own ballot, or the one before.
    pub(super) fn registration_saw(&mut self, path: &str, node: Option<&Node>) -> bool {
        let own_node = self.own_node();
        match &self.registration.step {
            Step::AwaitNode if path == own_node => {
                if node.is_none() {
                    self.registration.retry_at = None;
                    self.registration.step = Step::LookForNode;
                }
            }
            Step::Standing(ballot) | Step::Place(ballot) => {
                let own = self.config.paths.ballot(ballot);
                let before = self.registration.predecessor.as_ref().map(|b| self.config.paths.ballot(b));
                if path == own_node {
                    match node {
                        // Gone, or somebody else's: the ballot alone makes no member.
                        None => self.ballot_lost("the own record is gone"),
                        Some(node) if node.owner != self.session_id() => {
                            self.ballot_lost("the own record is another's")
                        }
                        Some(node) => self.own_record_seen(node),
                    }
                } else if path == own {
                    if node.is_none() {
                        self.ballot_lost("the own ballot is gone");
                    }
                } else if Some(path) == before.as_deref() {
                    if node.is_none() {
                        self.registration.look_again = true;
                    }
                } else {
                    return false;
                }
            }
            _ => return path == own_node,
        }
        true
    }

    fn own_record_seen(&mut self, node: &Node) {
        let older = self.registration.stands.as_ref().is_some_and(|(_, version)| node.version < *version);
        if !older {
            self.registration.stands = Some((node.data.clone(), node.version));
        }
    }

    fn node_data(&mut self, ballot: &Ballot) -> Option<Vec<u8>> {
        let path = self.own_node();
        let profile = &self.config.member;
        let record = MemberRecord {
            v: VERSION,
            member: profile.member.clone(),
            site: profile.site.clone(),
            ballot: ballot.clone(),
            address: profile.address.clone(),
            http: profile.http.clone(),
            priority: profile.priority,
            attributes: self.attributes(),
            measured: self.measured.keys().cloned().collect(),
            health: self.health.clone(),
            site_health: self.site_health.clone(),
            reads: profile.format,
            policy: profile.policy.clone(),
            software: profile.software.clone(),
            session_timeout_ms: ms(self.granted()),
            joined_ms: self.joined_ms,
            gave_up: self.gave_up.clone(),
            withdrawn: self.standing.withdrawn.clone(),
            leaving: self.leaving.is_asked(),
            prepared: self.office.prepared_for,
            holds: self.standing.holds.clone(),
            unreached: self.reach.published(),
            round_trips: self.round_trips.clone(),
            remembers: self.remembers(),
        };
        match record.encode(&path) {
            Ok(data) => Some(data),
            Err(error) => {
                self.retry_registration(&error.to_string());
                None
            }
        }
    }

    /// What is configured, and what is measured before it.
    pub(super) fn attributes(&self) -> BTreeMap<String, String> {
        let mut all = self.config.member.attributes.clone();
        all.extend(self.measured.clone());
        all
    }

    /// The record says something else than what stands there.
    fn outdated_node(&mut self, ballot: &Ballot) -> Option<Request> {
        let data = self.node_data(ballot)?;
        let (stands, version) = self.registration.stands.clone()?;
        if stands == data {
            return None;
        }
        self.node_written = Some(data.clone());
        Some(Request::Set { path: self.own_node(), data, version })
    }

    pub(super) fn end(&mut self, reason: EndReason) {
        if !self.ended {
            self.ended = true;
            self.actions.push_back(Action::End(reason));
        }
    }
}
