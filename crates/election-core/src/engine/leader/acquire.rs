//! From being named, or stepping in, until leadership is entered.
//!
//! Leader znode and decision belong together. A member that is named creates its leader znode only while the decision has
//! the version that names it. A successor is first in line and has seen the leader come and go; it creates the znode and
//! writes term + 1 that names itself, both or neither. So exactly one of elector and successor wins, a refused claim leaves
//! nothing behind, and a late reading costs a refused transaction at worst. An elector that names itself in the first
//! decision of an election creates both in one transaction too, and prepares afterwards. If that is refused, it reads what
//! there is, and writes the decision alone: its view of the leader znode may have been old.

use std::sync::Arc;

use super::{OwnLeadership, state::*};
use crate::{
    engine::{
        appointment::{By, Claim, appointment},
        core::Core,
        io::{Action, Appointment, Level, Node, NoteKind, Outcome, StopReason, ZkOp},
        ops::{LeaderOp, Part, Pending},
        tokens::fencing_token,
        transaction::{Transaction, ZnodeWrite},
        znode::{Known, Meta},
    },
    record::{Cause, Current, Elected, Record, Status},
};

const ACQUIRE: Pending = Pending::Leader(LeaderOp::Acquire);

impl OwnLeadership {
    /// Writes the first decision with the leader znode.
    pub(crate) fn claim_first(&mut self, core: &mut Core, first: Box<Elected>) {
        if let Some(claim) = core.first_claim(&first) {
            self.claim(core, claim, Some(first));
        }
    }

    /// Begins to acquire leadership, and writes the decision that is `written` with the leader znode.
    pub(crate) fn claim(&mut self, core: &mut Core, claim: Claim, written: Option<Box<Elected>>) {
        let Appointment { slot, term, sentence, .. } = &*claim.appointment;
        let (slot, term) = (*slot, *term);
        let (step, text) = match &claim.by {
            By::Decision => (AcquireStep::Waiting, format!("is named for term {term}: {sentence}")),
            By::Succession(_) => {
                let slots = core.reading.view.elected.record().map_or(1, |elected| elected.slots.len());
                let of_slot = if slots > 1 { format!(" of slot {slot}") } else { String::new() };
                let text = format!(
                    "steps in for term {term}: the leader znode{of_slot} is gone, and it is first in line"
                );
                (AcquireStep::Creating, text)
            }
            By::FirstDecision => (AcquireStep::Creating, format!("names itself for term {term}: {sentence}")),
            By::Contest => {
                let Some(own) = &core.own.contest.znode else { return };
                let znode = self.znode(core, own.node.czxid, own.node.version, term);
                (AcquireStep::Entitled(znode), format!("may lead: {sentence}"))
            }
        };
        core.note(Level::Info, NoteKind::Leadership, text);
        self.slot = slot;
        self.announces_alone = false;
        self.calls_next = matches!(claim.by, By::Succession(_));
        let acquiring = Acquiring { claim, prepared: Prepared::No, step, over: None, written, refused: 0 };
        self.turn(core, LeadershipState::Acquiring(Box::new(acquiring)));
        self.advance_claim(core);
    }

    pub(super) fn advance_claim(&mut self, core: &mut Core) {
        let LeadershipState::Acquiring(acquiring) = &self.state else { return };
        if core.own.leaving.is_asked() {
            return self.give_up_claim(core, StopReason::Leaving);
        }
        if let Err(why) = core.carries(&acquiring.claim) {
            return self.give_up_claim(core, StopReason::NotNamed(why));
        }
        if !core.session_is_active() {
            return;
        }
        if acquiring.prepared == Prepared::No && !acquiring.claim.is_uncommitted() {
            core.out.push(Action::Prepare(acquiring.claim.appointment.clone()));
            self.set_prepared(core, Prepared::Running);
        }
        if !core.ops.has(&ACQUIRE) {
            self.take_step(core);
        }
    }

    fn take_step(&mut self, core: &mut Core) {
        let LeadershipState::Acquiring(acquiring) = &self.state else { return };
        let request = match acquiring.step {
            AcquireStep::ReadElected | AcquireStep::Rereading(_) => ZkOp::Get(core.config.paths.elected()),
            AcquireStep::ReadGeneration => ZkOp::Get(core.config.paths.election()),
            AcquireStep::Looking => ZkOp::Get(core.leader_znode_path(self.slot)),
            AcquireStep::Waiting => {
                match self.own_leader_znode(core) {
                    Known::Absent => self.set_step(AcquireStep::Creating),
                    known if core.is_own_leader_znode(known) => {
                        self.set_step(AcquireStep::Looking);
                    }
                    _ => return,
                }
                return self.advance_claim(core);
            }
            AcquireStep::Creating => match self.creation(core) {
                Some(request) => request.into(),
                None => return,
            },
            AcquireStep::Entitled(znode) => return self.enter(core, znode),
        };
        core.perform(request, ACQUIRE);
    }

    /// The creation of the leader znode. It is applied only while the decision is the one that gives the claim; a
    /// successor replaces that decision in the same transaction, and an elector that names itself creates it. So nothing
    /// is left behind if it is refused, and the decision need not be read again afterwards.
    ///
    /// After a reconnect the known decision is read first: in an ensemble that was restored from a copy, another one can
    /// have its version.
    fn creation(&mut self, core: &mut Core) -> Option<Transaction> {
        if !core.is_sure(self.slot) {
            return None;
        }
        let LeadershipState::Acquiring(acquiring) = &mut self.state else { return None };
        let Acquiring { claim, over, written, .. } = &mut **acquiring;
        let is_first = claim.by == By::FirstDecision;
        match &core.reading.view.elected {
            Known::Absent if is_first => {}
            // Another member has decided, or the elector was quicker and names this member.
            Known::Present(elected, _) if is_first || names_successor(elected, claim) => {
                self.adopt_decision(core);
                return None;
            }
            Known::Present(elected, meta) => {
                let version = meta.version;
                *over = Some(version);
                if let By::Succession(_) = claim.by {
                    // It may have become unfit since it began: the creation is asked for again after a lost connection.
                    if let Some(why) = core.held_back() {
                        self.give_up_claim(core, StopReason::NotNamed(why));
                        return None;
                    }
                    let next = core.succession(elected, claim);
                    Arc::make_mut(&mut claim.appointment).term = next.term;
                    *written = Some(Box::new(next));
                }
            }
            // Until it is written again.
            Known::Unreadable(..) => return None,
            Known::Absent | Known::Unread => {
                self.set_step(AcquireStep::ReadElected);
                self.advance_claim(core);
                return None;
            }
        }
        let LeadershipState::Acquiring(acquiring) = &self.state else { return None };
        let Acquiring { claim, over, written, .. } = &**acquiring;
        let data = self.leader_record(core, claim, Status::Progress, None)?;
        let create = ZnodeWrite::create_ephemeral(core.leader_znode_path(self.slot), data);
        let (paths, generation) = (core.config.paths.clone(), core.reading.generation());
        let Some(mut next) = written.clone().filter(|_| claim.is_uncommitted()) else {
            let create = Transaction::from(create).only_while_decided(&paths, *over, generation);
            return Some(core.as_candidate(create));
        };
        match ZnodeWrite::decision(&paths, &mut next, *over, generation) {
            Ok(decision) => {
                if let LeadershipState::Acquiring(acquiring) = &mut self.state {
                    acquiring.written = Some(next);
                }
                Some(core.as_candidate(decision.answered_by(create)))
            }
            Err(error) => {
                self.give_up_claim(core, StopReason::NotNamed(error.to_string()));
                None
            }
        }
    }

    /// The decision names this member: the claim continues under that decision.
    fn adopt_decision(&mut self, core: &mut Core) {
        let adopted = core.reading.view.elected.record().and_then(|elected| appointment(elected, self.slot));
        if let (LeadershipState::Acquiring(acquiring), Some(adopted)) = (&mut self.state, adopted) {
            acquiring.claim.appointment = adopted.into();
            acquiring.claim.by = By::Decision;
        }
        self.report(core);
        self.advance_claim(core);
    }

    /// Leadership that is held, entitled and prepared. It is entered if the lease covers the time that stopping needs
    /// and an eighth of the session timeout.
    fn enter(&mut self, core: &mut Core, znode: HeldZnode) {
        let LeadershipState::Acquiring(acquiring) = &self.state else { return };
        let claim = &acquiring.claim;
        let known = self.own_leader_znode(core).meta();
        let is_other = known.is_none_or(|m| m.czxid != znode.czxid);
        // In a contest the znode is this member's candidacy, and is not created again: its record is only written
        // again, after leadership is entered.
        if claim.by != By::Contest {
            // Its record was changed from outside: the leader znode is created again.
            let spoiled = self.is_spoiled_in(core, &znode, claim);
            // Preparing may take long, or have no end: check whether the znode still exists.
            let gone = core.is_sure(self.slot) && is_other && *self.own_leader_znode(core) != Known::Unread;
            if spoiled.is_some() || gone {
                self.set_step(AcquireStep::Looking);
                return self.advance_claim(core);
            }
        }
        if !core.is_sure(self.slot) || acquiring.prepared != Prepared::Yes {
            return;
        }
        let Some(work_until) = core.work_until() else { return };
        // Leadership that begins so late would be stopped before it is of any use, unless the lease is renewed in
        // time.
        if core.now.time + core.stop_budget() + core.granted() / 8 >= work_until {
            return;
        }
        // The token depends on the decision. If the decision can't be read (any more), this waits for it.
        let Some(token_base) = core.token_base() else { return };
        if is_other {
            self.set_step(AcquireStep::Looking);
            return self.advance_claim(core);
        }
        let Some(fencing_token) = fencing_token(znode.czxid, token_base) else {
            let text = format!("no fencing token is left: transaction {:#x} above {token_base}", znode.czxid);
            return core.trouble(text);
        };
        let held = HeldLeadership {
            claim: claim.clone(),
            fencing_token,
            znode,
            stage: HeldStage::TakingOver,
            epoch: core.epoch(),
            doubted: false,
            asks: false,
            ready_ms: None,
        };
        core.reading.memory.saw_token(Some(fencing_token));
        let text = format!("takes over in term {} with fencing token {fencing_token}", held.term());
        core.note(Level::Info, NoteKind::Leadership, text);
        core.out.told_until = Some(work_until);
        core.out.push(Action::WorkUntil(work_until));
        core.out.push(Action::TakeOver(held.entered(work_until)));
        self.turn(core, LeadershipState::Held(Box::new(held)));
    }

    fn set_step(&mut self, step: AcquireStep) {
        if let LeadershipState::Acquiring(acquiring) = &mut self.state {
            acquiring.step = step;
        }
    }

    pub(super) fn set_prepared(&mut self, core: &mut Core, prepared: Prepared) {
        if let LeadershipState::Acquiring(acquiring) = &mut self.state {
            acquiring.prepared = prepared;
            let Appointment { term, cause, .. } = *acquiring.claim.appointment;
            if (prepared, cause) == (Prepared::Yes, Cause::LeaderShutdown) {
                core.own.reports.prepared_for = Some(term);
            }
        }
        self.report(core);
    }

    pub(crate) fn give_up_claim(&mut self, core: &mut Core, reason: StopReason) {
        self.report_overdue(core, &reason);
        let LeadershipState::Acquiring(acquiring) = &self.state else { return };
        let hold = match acquiring.step {
            AcquireStep::Rereading(znode) | AcquireStep::Entitled(znode) => LeftZnode::Znode(znode),
            AcquireStep::Creating if core.ops.has(&ACQUIRE) => {
                core.ops.replace(&ACQUIRE, &Pending::Leader(LeaderOp::LateCreation));
                LeftZnode::Creating
            }
            AcquireStep::Looking => LeftZnode::Unsure,
            AcquireStep::Creating
            | AcquireStep::Waiting
            | AcquireStep::ReadElected
            | AcquireStep::ReadGeneration => LeftZnode::Nothing,
        };
        core.ops.give_up(&ACQUIRE);
        let (term, began) = (acquiring.term(), acquiring.prepared != Prepared::No);
        let epoch = core.epoch();
        core.note(Level::Info, NoteKind::Leadership, format!("does not take over term {term}: {reason}"));
        if began {
            let stopping = Stopping { reason: reason.clone(), epoch, hold, term, token: None };
            self.turn(core, LeadershipState::Stopping(Box::new(stopping)));
            // The preparation touches nothing that only a leader may touch, so it has its whole budget, even before
            // there is a lease.
            let budget = core.now.time + core.stop_budget();
            let until = core.work_until().map_or(budget, |lease| lease.max(budget));
            core.out.told_until = Some(until);
            core.out.push(Action::WorkUntil(until));
            core.out.push(Action::Stop(reason));
        } else {
            self.let_go(core, epoch, hold, term);
            // There may be no other event for a long time.
            self.advance_release(core);
        }
    }

    pub(super) fn acquire_done(&mut self, core: &mut Core, outcome: &Outcome) {
        let LeadershipState::Acquiring(acquiring) = &mut self.state else { return };
        let (step, term, over) = (acquiring.step, acquiring.term(), acquiring.over);
        let is_first = acquiring.claim.by == By::FirstDecision;
        let is_uncommitted = acquiring.claim.is_uncommitted();
        let again = match is_uncommitted {
            true => AcquireStep::Creating,
            false => AcquireStep::Waiting,
        };
        let next = match (step, outcome) {
            // The elector makes another pass: by then it may decide otherwise.
            (AcquireStep::Creating, Outcome::NotApplied(why)) if is_first => {
                return self.give_up_claim(core, not_written(why));
            }
            (AcquireStep::Creating, Outcome::Exists | Outcome::Stale | Outcome::Missing) if is_first => {
                core.own.ballot.must_be_listed |= *outcome == Outcome::Stale;
                AcquireStep::Looking
            }
            (AcquireStep::ReadElected, Outcome::Got(node)) if is_first => {
                core.see_elected(node.as_ref());
                return self.give_up_claim(core, not_written("nothing was applied"));
            }
            (AcquireStep::Creating, Outcome::Created { czxid, version, .. }) => {
                core.has_created(*czxid);
                let znode = self.znode(core, *czxid, *version, term);
                self.know_own_leader_znode(core, &znode);
                if is_uncommitted {
                    return self.committed(core, znode);
                }
                AcquireStep::Entitled(znode)
            }
            (AcquireStep::Creating, Outcome::Exists) => {
                acquiring.refused = acquiring.refused.saturating_add(1).min(2);
                AcquireStep::Looking
            }
            (AcquireStep::Creating, Outcome::Unknown(_)) => AcquireStep::Looking,
            (AcquireStep::Creating, Outcome::Stale | Outcome::Missing) => {
                core.reading.generation_read = None;
                AcquireStep::ReadElected
            }
            (AcquireStep::ReadElected, Outcome::Got(node)) => {
                core.see_elected(node.as_ref());
                // It was refused although the decision has not changed: it may be another one of this version, or the own ballot
                // may be gone.
                let is_the_same = over == core.reading.view.elected.meta().map(|known| known.version);
                match node {
                    None => return self.give_up_claim(core, no_decision()),
                    Some(_) if over.is_some() && is_the_same => {
                        core.own.ballot.must_be_listed = true;
                        AcquireStep::ReadGeneration
                    }
                    Some(_) => again,
                }
            }
            (AcquireStep::ReadGeneration, Outcome::Got(parent)) => {
                if !core.learn_generation(parent.as_ref()) {
                    core.retry(Part::Leader);
                }
                again
            }
            (AcquireStep::Looking, Outcome::Got(node)) => match self.looked(core, node.as_ref()) {
                Ok(next) => next,
                Err(reason) => return self.give_up_claim(core, reason),
            },
            (AcquireStep::Rereading(znode), Outcome::Got(node)) => {
                core.see_elected(node.as_ref());
                if node.is_none() {
                    return self.give_up_claim(core, no_decision());
                }
                return self.confirmed(core, znode);
            }
            (step, Outcome::NotApplied(_) | Outcome::Unknown(_)) => step,
            (step, _) => {
                core.retry(Part::Leader);
                step
            }
        };
        self.set_step(next);
        self.advance(core);
    }

    /// The leader znode was read after a lost reply, or after a watch reported another one: determines the next step.
    fn looked(&mut self, core: &mut Core, node: Option<&Node>) -> Result<AcquireStep, StopReason> {
        core.see_leader_znode(self.slot, node);
        let LeadershipState::Acquiring(acquiring) = &mut self.state else { return Ok(AcquireStep::Waiting) };
        if node.is_some() {
            acquiring.refused = 0;
        }
        let (refused, by) = (acquiring.refused, &acquiring.claim.by);
        let (is_first, is_uncommitted) = (*by == By::FirstDecision, acquiring.claim.is_uncommitted());
        if core.is_contest() {
            let own = core.own.contest.znode.as_ref();
            let own = own.zip(node).filter(|(own, n)| (n.czxid, n.owner) == (own.node.czxid, own.node.owner));
            let (own, node) = own.ok_or(StopReason::LeaderZnodeLost)?;
            return Ok(AcquireStep::Entitled(self.znode(core, node.czxid, node.version, own.term())));
        }
        match node {
            None if is_first => Ok(AcquireStep::ReadElected),
            None => {
                // The server of the session may not have it, though the quorum has.
                if refused > 1 {
                    core.contradicted(Part::Leader, &core.leader_znode_path(self.slot));
                }
                Ok(AcquireStep::Creating)
            }
            Some(node) if self.is_own(core, node) => self.found_own_leader_znode(core, node),
            Some(_) if is_uncommitted => Err(StopReason::NotNamed("somebody else was quicker".to_owned())),
            Some(_) => Ok(AcquireStep::Waiting),
        }
    }

    pub(super) fn znode(&self, core: &Core, czxid: i64, version: i32, term: u64) -> HeldZnode {
        let created_ms = core.now.unix_ms;
        let free_ms = core.reading.free_since_ms(self.slot).unwrap_or(created_ms);
        HeldZnode { czxid, version, term, free_ms, created_ms, created: Reported(core.now.time) }
    }

    /// A write of this member is known before a watch reports it.
    fn know_own_leader_znode(&self, core: &mut Core, znode: &HeldZnode) {
        let LeadershipState::Acquiring(acquiring) = &self.state else { return };
        if let Some(data) = self.leader_record(core, &acquiring.claim, Status::Progress, None) {
            let owner = core.session_id();
            let node = Node { version: znode.version, ..Node::created(data, znode.czxid, owner) };
            core.see_leader_znode(self.slot, Some(&node));
        }
    }

    /// A leader znode of its own after a lost reply: the creation was applied. A leader znode of an earlier
    /// claim is never adopted, since that claim has ended. One that is READY is of an earlier claim too, also of this
    /// term: it has returned with an older copy of the ensemble, and the elector does not act while it exists.
    fn found_own_leader_znode(&mut self, core: &mut Core, node: &Node) -> Result<AcquireStep, StopReason> {
        let found = Current::decode(&core.leader_znode_path(self.slot), &node.data).ok();
        let LeadershipState::Acquiring(acquiring) = &self.state else { return Ok(AcquireStep::Waiting) };
        let claimed = acquiring.term();
        core.has_created(node.czxid);
        let znode = self.znode(core, node.czxid, node.version, claimed);
        let is_claimed = |found: &Current| {
            (found.term, found.status) == (claimed, Status::Progress)
                && found.ballot == acquiring.claim.ballot
        };
        if found.as_ref().is_some_and(is_claimed) {
            return Ok(AcquireStep::Rereading(znode));
        }
        self.set_step(AcquireStep::Entitled(znode));
        Err(StopReason::NotNamed("its leader znode is one of an earlier claim".to_owned()))
    }

    /// The leader znode and the decision that names this member were written, in one transaction.
    fn committed(&mut self, core: &mut Core, znode: HeldZnode) {
        let LeadershipState::Acquiring(acquiring) = &mut self.state else { return };
        let (written, mzxid) = (acquiring.written.take(), znode.czxid);
        // A watch may have been quicker, and have read a later state already.
        let meta = match (acquiring.over, &core.reading.view.elected) {
            (Some(over), Known::Present(_, meta)) if meta.mzxid < mzxid => {
                Some(Meta { version: over.saturating_add(1), mzxid, ..*meta })
            }
            (None, Known::Absent) => Some(Meta { version: 0, czxid: mzxid, mzxid, owner: 0 }),
            _ => None,
        };
        if let (Some(written), Some(meta)) = (written, meta) {
            let text = format!("term {}: {}", written.term, written.sentence());
            let was_deleted = acquiring.over.is_none() && core.reading.memory.decision.is_some();
            core.know_elected(Known::Present(written.into(), meta));
            core.note(Level::Info, NoteKind::Decided, text);
            if was_deleted {
                core.call();
            }
        }
        // Deleted since: the present state is read.
        if core.reading.view.elected.record().is_none() {
            self.set_step(AcquireStep::Rereading(znode));
            return self.advance_claim(core);
        }
        self.confirmed(core, znode);
    }

    /// The leader znode is held. Checks that the known decision names this member in the term of the leader znode.
    fn confirmed(&mut self, core: &mut Core, znode: HeldZnode) {
        self.set_step(AcquireStep::Entitled(znode));
        let LeadershipState::Acquiring(acquiring) = &self.state else { return };
        let names = core.reading.view.elected.record().is_some_and(|elected| {
            let named = elected.named(self.slot).is_some_and(|n| n.ballot == acquiring.claim.ballot);
            named && elected.term_of(self.slot) == znode.term
        });
        match core.carries(&acquiring.claim) {
            Ok(()) if names => self.adopt_decision(core),
            Ok(()) => {
                let why = format!("the decision does not name it in term {}", znode.term);
                self.give_up_claim(core, StopReason::NotNamed(why));
            }
            Err(why) => self.give_up_claim(core, StopReason::NotNamed(why)),
        }
    }
}

/// Whether the decision names the member already that steps in.
fn names_successor(elected: &Elected, claim: &Claim) -> bool {
    let named = elected.named(claim.appointment.slot);
    matches!(claim.by, By::Succession(_)) && named.is_some_and(|n| n.ballot == claim.ballot)
}

fn not_written(why: &str) -> StopReason {
    StopReason::NotNamed(format!("the first decision was not written: {why}"))
}

fn no_decision() -> StopReason {
    StopReason::NotNamed("there is no decision any more".to_owned())
}
