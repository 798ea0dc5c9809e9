//! While leadership is held: what ends it, READY, and the history.

use std::time::Duration;

use super::{Entry, OwnLeadership, state::*};
use crate::{
    engine::{
        appointment::{Claim, moved_away},
        core::Core,
        elector::decided::is_removed,
        io::{Action, Level, Node, NoteKind, Outcome, StopReason, ZkOp},
        ops::{LeaderOp, Part, Pending},
        policy::OnPause,
        transaction::{Transaction, ZnodeWrite},
        znode::{Known, Znode},
    },
    record::{Cause, HistoryEntry, Phases, Record, Status, VERSION, limits},
    text::{self, Texts as _, is_plain},
};

/// Whether its session is active, and the decision and the leader znode were read since the last pause.
fn is_confirmed(core: &Core, held: &HeldLeadership, slot: usize) -> bool {
    let rereading = &core.reading.rereading;
    core.session_is_active()
        && core.session_epoch() == Some(held.epoch)
        && !held.doubted
        && !rereading.doubts_decision()
        && !rereading.doubts_leader_znode(slot)
}

impl OwnLeadership {
    /// Checks whether leadership may continue.
    pub(crate) fn check_held(&mut self, core: &mut Core) {
        let Some(held) = self.held() else { return };
        if core.own.leaving.is_asked() && !(held.leads() && core.hands_over()) {
            return self.stop(core, StopReason::Leaving);
        }
        if let Some(reason) = core.resigns_by_now() {
            self.record_giving_up(core, Cause::Resigned, &reason);
            return self.stop(core, StopReason::Resigned(reason));
        }
        if core.lease_until().is_none_or(|until| core.now.time + core.lease_end_budget() >= until) {
            return self.stop(core, StopReason::LeaseEnds);
        }
        if let Some(reason) = self.is_moved(core, held)
            && !self.waits_for_consent(core, &reason)
        {
            return self.stop(core, reason);
        }
        let Some(held) = self.held().filter(|_| !core.ops.waits(Part::Leader, core.now.time)) else { return };
        if held.doubted && !core.ops.has(&Pending::Leader(LeaderOp::Doubt)) {
            let request = ZkOp::Get(core.leader_znode_path(self.slot));
            core.perform(request, Pending::Leader(LeaderOp::Doubt));
        }
        self.repair_leader_znode(core);
    }

    /// Suspends the work while it is not known whether this member still leads, if the policy says so. Work that is being
    /// stopped is not continued.
    pub(crate) fn settle_suspension(&self, core: &mut Core) {
        let freezes = matches!(core.config.policy.on_pause, OnPause::Freeze { .. });
        let Some(held) = self.held().filter(|_| freezes) else {
            core.out.suspends = false;
            return;
        };
        // It continues only with a lease that leaves time for an orderly stop.
        let has_time = || core.lease_until().is_some_and(|until| core.now.time + core.stop_budget() < until);
        let suspends = !is_confirmed(core, held, self.slot) || (core.out.suspends && !has_time());
        if core.out.suspends != suspends {
            core.out.suspends = suspends;
            core.out.push(Action::Suspend(suspends));
        }
    }

    /// Why another member must lead now.
    pub(super) fn is_moved(&self, core: &Core, held: &HeldLeadership) -> Option<StopReason> {
        let claim = &held.claim;
        let orphaned = core.session_epoch() != Some(held.epoch);
        let other_ballot = core.own.ballot.name.as_ref().filter(|ballot| **ballot != claim.ballot);
        if !orphaned && other_ballot.is_some() {
            return Some(StopReason::BallotLost);
        }
        let elected = core.reading.view.elected.record()?;
        let slot = claim.appointment.slot;
        let mine = elected.named(slot).is_some_and(|n| n.ballot == claim.ballot);
        let moved = !mine || elected.term_of(slot) != claim.appointment.term;
        if moved && !core.works_on_for(elected) {
            if is_removed(elected, slot, &claim.ballot) {
                return Some(StopReason::Removed(moved_away(elected, slot)));
            }
            return Some(StopReason::NotNamed(moved_away(elected, slot)));
        }
        // It leads on from a session that is over, and has been given another slot on the new session: it can have
        // only one.
        let other = other_ballot.and_then(|ballot| elected.slot_of(ballot))?;
        Some(StopReason::NotNamed(moved_away(elected, other)))
    }

    // ---- the own leader znode ----

    /// A watch has read the leader znode of this slot.
    pub(crate) fn watch_told(&mut self, core: &mut Core, slot: usize, node: Option<&Node>) {
        core.reading.rereading.watch_told(Znode::Leader(slot), node);
        core.see_leader_znode(slot, node);
        self.saw_leader_znode(core, slot, node);
    }

    /// The leader znode was read. What was read may be older than an own write. A leader znode that seems lost
    /// is read again before anything is stopped.
    pub(crate) fn saw_leader_znode(&mut self, core: &mut Core, slot: usize, node: Option<&Node>) {
        if slot != self.slot {
            return;
        }
        let epoch = core.session_epoch();
        if let Some(held) = self.state.held_mut()
            && Some(held.epoch) == epoch
            && node.is_none_or(|n| n.czxid != held.znode.czxid)
        {
            held.doubted = true;
        }
        if let LeadershipState::Stopping(stopping) = &self.state
            && Some(stopping.epoch) == epoch
            && let LeftZnode::Znode(znode) = stopping.hold
            && node.is_none_or(|n| n.czxid > znode.czxid)
        {
            self.hasten(core, StopReason::LeaderZnodeLost);
        }
    }

    pub(super) fn doubt_done(&mut self, core: &mut Core, outcome: &Outcome) {
        let session = core.session_id();
        let Some(held) = self.state.held_mut() else { return };
        match outcome {
            Outcome::Got(Some(node)) if node.owner == session && node.czxid == held.znode.czxid => {
                held.doubted = false;
                held.znode.version = node.version;
                core.see_leader_znode(self.slot, Some(node));
            }
            Outcome::Got(node) => {
                core.see_leader_znode(self.slot, node.as_ref());
                self.stop(core, StopReason::LeaderZnodeLost);
            }
            _ => core.retry(Part::Leader),
        }
    }

    /// Writes the own record again if it was changed from outside, since the elector can't decide anything while the record
    /// can't be read, or if this member has another address.
    fn repair_leader_znode(&mut self, core: &mut Core) {
        let Some(held) = self.held().filter(|held| held.stage != HeldStage::Announcing) else { return };
        if core.ops.has(&Pending::Leader(LeaderOp::Repair)) {
            return;
        }
        let spoiled = self.is_spoiled_in(core, &held.znode, &held.claim);
        let Some(version) = spoiled.or_else(|| self.has_former_address(core, &held.znode)) else { return };
        let status = if held.ready_ms.is_some() { Status::Ready } else { Status::Progress };
        if let Some(data) = self.leader_record(core, &held.claim, status, held.ready_ms) {
            let request = ZnodeWrite::set(core.leader_znode_path(self.slot), data, version);
            core.perform(request, Pending::Leader(LeaderOp::Repair));
        }
    }

    /// Whether the own leader znode has another address than this member, and in which version.
    fn has_former_address(&self, core: &Core, znode: &HeldZnode) -> Option<i32> {
        let Known::Present(current, meta) = self.own_leader_znode(core) else { return None };
        // As it is read.
        let mut address = core.config.member.address.clone();
        address.make(is_plain, text::MAX);
        let is_former = core.config.recipe.is_native() && current.endpoint != address;
        (is_former && meta.czxid == znode.czxid).then_some(meta.version)
    }

    /// Whether the own leader znode has another content than it should, and in which version. The cause is a mistake
    /// of an administrator, or a late write of a leader that was removed by force.
    pub(super) fn is_spoiled_in(&self, core: &Core, znode: &HeldZnode, claim: &Claim) -> Option<i32> {
        let (spoiled, meta) = match self.own_leader_znode(core) {
            Known::Unreadable(_, meta) => (true, meta),
            // It holds only a name, in a foreign format.
            Known::Present(..) if !core.config.recipe.is_native() => return None,
            Known::Present(current, meta) => {
                let term = claim.appointment.term;
                (current.ballot != claim.ballot || current.term != term, meta)
            }
            Known::Unread | Known::Absent => return None,
        };
        (spoiled && meta.czxid == znode.czxid).then_some(meta.version)
    }

    pub(super) fn repaired(&mut self, core: &mut Core, outcome: &Outcome) {
        let Some(held) = self.state.held_mut() else { return };
        match outcome {
            Outcome::Changed { version, .. } => held.znode.version = *version,
            _ => held.doubted = true,
        }
        core.retry(Part::Leader);
    }

    // ---- READY ----

    pub(super) fn announce(&mut self, core: &mut Core) {
        let takes_over = |held: &&mut HeldLeadership| held.stage == HeldStage::TakingOver;
        let Some(held) = self.state.held_mut().filter(takes_over) else { return };
        self.announce_later = true;
        // READY must not be written into another member's leader znode.
        let known = core.reading.view.leader(self.slot).meta();
        let other = held.doubted || known.is_none_or(|m| m.czxid != held.znode.czxid);
        if other {
            held.doubted = true;
            return;
        }
        if !core.config.recipe.is_native() {
            self.lead(core);
            return know_own_ready(core);
        }
        let (claim, znode) = (held.claim.clone(), held.znode);
        let entry = (!self.announces_alone).then(|| entry(core, held));
        let Some(data) = self.leader_record(core, &claim, Status::Ready, Some(core.now.unix_ms)) else {
            return;
        };
        let mut ready =
            Transaction::from(ZnodeWrite::set(core.leader_znode_path(self.slot), data, znode.version));
        if let Some(entry) = entry {
            let path = core.config.paths.history_entry(entry.fencing_token);
            if let Ok(data) = entry.encode(&path) {
                ready = ready.and(ZnodeWrite::create(path, data));
            }
        }
        if core.perform(ready, Pending::Leader(LeaderOp::Announce)) {
            self.announce_later = false;
            self.turn_to(core, HeldStage::Announcing);
        }
    }

    /// READY could not be written because the connection was lost: tries again.
    pub(crate) fn announce_again(&mut self, core: &mut Core) {
        if self.announce_later && core.session_is_active() && !core.ops.waits(Part::Leader, core.now.time) {
            self.announce(core);
        }
    }

    pub(super) fn announced(&mut self, core: &mut Core, outcome: &Outcome) {
        let Some(held) = self.state.held_mut() else { return };
        if let Outcome::Changed { version, .. } = outcome {
            held.znode.version = *version;
            return self.lead(core);
        }
        self.announces_alone = true;
        held.doubted |= *outcome != Outcome::Missing;
        self.turn_to(core, HeldStage::TakingOver);
        if *outcome == Outcome::Missing {
            return self.stop(core, StopReason::LeaderZnodeLost);
        }
        // Stale or unknown: it may have been written. The leader znode is read, and READY is written again over the
        // version found there.
        self.announce_later = true;
        core.retry(Part::Leader);
    }

    fn turn_to(&mut self, core: &mut Core, stage: HeldStage) {
        if let Some(held) = self.state.held_mut() {
            held.stage = stage;
        }
        self.report(core);
    }

    fn lead(&mut self, core: &mut Core) {
        let Some(held) = self.state.held_mut() else { return };
        self.announce_later = false;
        held.ready_ms = Some(core.now.unix_ms);
        let entry = entry(core, held);
        self.turn_to(core, HeldStage::Leading);
        core.out.push(Action::Lead);
        if std::mem::take(&mut self.calls_next) {
            core.call();
        }
        let (term, cause, phases) = (entry.term, entry.cause, entry.phases);
        let text = format!("leads in term {term} (READY, fencing token {})", entry.fencing_token);
        self.to_record = core.config.recipe.is_native().then(|| match self.announces_alone {
            true => Entry::Due(Box::new(entry)),
            false => Entry::Written { entries: entries_at_most(core, term) },
        });
        core.note(Level::Info, NoteKind::Ready { cause, phases }, text);
    }
}

/// How many leaderships there have been at most. A term has one for each slot, unless the decision was lost; in a contest
/// there is no more than one for each znode that was created.
fn entries_at_most(core: &Core, term: u64) -> u64 {
    let policy = &core.config.policy;
    match &core.own.contest.znode {
        None => term.saturating_mul(policy.slots as u64),
        Some(own) => {
            let number = || own.name().rsplit('-').next()?.parse::<u64>().ok();
            let created =
                own.creation.as_ref().and_then(|creation| u64::try_from(creation.count).ok()).or_else(number);
            created.map_or(u64::MAX, |created| created.saturating_add(1))
        }
    }
}

/// By how much the clock of the elector may be ahead of the leader's before their times are not compared, in milliseconds.
const SKEW_MS: u64 = 1000;

/// How long the release and the acquisition took, by the times of the decision, from when on the leader znode was free, and of
/// its creation. The first one is from the elector's clock. The elector intervenes after `most`, so it is not known if that is
/// longer: the clocks do not agree, or one has jumped.
fn until_created(decided_at: u64, free_at: u64, created_at: u64, most: Duration) -> Option<(u64, u64)> {
    if decided_at > created_at.saturating_add(SKEW_MS) {
        return None;
    }
    let whole = created_at.saturating_sub(decided_at);
    let acquire = created_at.saturating_sub(free_at).min(whole);
    (whole <= limits::millis(most)).then(|| (whole - acquire, acquire))
}

/// The entry of a leadership that becomes READY now.
fn entry(core: &Core, held: &HeldLeadership) -> HistoryEntry {
    let appointment = &held.claim.appointment;
    let (slot, ready_ms) = (appointment.slot, core.now.unix_ms);
    let elected = core.reading.view.elected.record().filter(|e| e.term_of(slot) == appointment.term);
    let decision = elected.and_then(|e| e.given(slot));
    let decided_at = decision.map_or(held.znode.created_ms, |e| e.decided_at_ms);
    let noticed_at = decision.map(|e| e.noticed_at_ms).filter(|at| *at > 0).unwrap_or(decided_at);
    let policy = &core.config.policy;
    let most = policy.release_timeout.saturating_add(policy.acquire_timeout);
    let to_created = until_created(decided_at, held.znode.free_ms, held.znode.created_ms, most).unzip();
    let phases = Phases {
        decide_ms: decided_at.checked_sub(noticed_at),
        release_ms: to_created.0,
        acquire_ms: to_created.1,
        takeover_ms: Some(limits::millis(core.now.time.since(held.znode.created.0))),
    };
    HistoryEntry {
        v: VERSION,
        term: appointment.term,
        member: core.config.member.member.clone(),
        ballot: held.claim.ballot.clone(),
        site: core.config.member.site.clone(),
        slot,
        fencing_token: held.fencing_token,
        cause: appointment.cause,
        sentence: appointment.sentence.clone().into_owned(),
        previous: appointment.previous.as_deref().cloned(),
        ready_ms,
        phases,
    }
}

/// If READY is not written: records what other members would have read.
fn know_own_ready(core: &mut Core) {
    let Some(own) = core.own.contest.znode.clone() else { return };
    let known = core.read_leader_record(&own.path, Some(&own.node));
    if let Known::Present(current, meta) = known {
        core.reading.view.see_leader_znode(0, Known::Present(current.clone(), meta), Some(&own.node));
        core.tell_leader(0, Some(current));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_longer_than_the_elector_waits_was_not_measured_by_one_clock() {
        const AT: u64 = 1_800_000_000_000;
        const DAY: u64 = 86_400_000;
        let took = |decided_at, free_at| until_created(decided_at, free_at, AT, Duration::from_secs(40));
        assert_eq!(took(AT - 500, AT - 100), Some((400, 100)));
        assert_eq!(took(AT - 500, AT - DAY), Some((0, 500)), "it was free before");
        assert_eq!(took(AT + 900, AT - 100), Some((0, 0)), "one clock is a little behind");
        // The clock of the elector is a day behind, or ahead, or it jumped after the decision.
        for decided_at in [AT - DAY - 25, AT + DAY, AT - 40_001] {
            assert_eq!(took(decided_at, AT - 100), None, "{decided_at}");
        }
    }
}
