//! How leadership ends: the work first, then the leader znode.
//!
//! A leader that gives up (its job failed, or it resigned) has not vanished. It reports that in its record, and keeps its
//! leader znode until the elector has named the next leader, for at most a second. Otherwise the first in line would take
//! over as after a crash: for another cause, so perhaps on another site, and without the exclusion.
//!
//! A leader znode is deleted only under the known decision. The versions of every znode begin at 0, so a late deletion by a
//! frozen elector or leader could remove the next leader's znode. Each removal needs a decision first, so the deletion checks
//! the version of the decision in the same transaction.

use std::time::Duration;

use super::{OwnLeadership, look_before_release, state::*};
use crate::{
    engine::{
        appointment::moved_away,
        core::Core,
        elector::decided::is_removed,
        io::{Action, Epoch, Level, NoteKind, Outcome, StopReason, ZkOp},
        ops::{LeaderOp, Pending},
        own::OwnBallot,
        transaction::ZnodeWrite,
        znode::Known,
    },
    record::Cause,
    time::Time,
};

const RELEASE: Pending = Pending::Leader(LeaderOp::Release);

/// How long a leader that gave up waits for the decision that names the next one. The elector needs one write for it.
const DECISION: Duration = Duration::from_secs(1);

impl OwnLeadership {
    // ---- the work ----

    /// Ends a leadership that is held.
    pub(crate) fn stop(&mut self, core: &mut Core, reason: StopReason) {
        self.report_overdue(core, &reason);
        let Some(held) = self.held() else { return };
        let hold = match reason {
            StopReason::LeaderZnodeLost | StopReason::SessionOver => LeftZnode::Nothing,
            _ => LeftZnode::Znode(held.znode),
        };
        let stopping = Box::new(Stopping {
            reason: reason.clone(),
            epoch: held.epoch,
            hold,
            term: held.claim.appointment.term,
            token: Some(held.fencing_token),
        });
        self.announce_later = false;
        // Before the leader znode is deleted.
        core.own.called_off = None;
        for op in [LeaderOp::Doubt, LeaderOp::Repair, LeaderOp::Announce] {
            core.ops.give_up(&Pending::Leader(op));
        }
        core.note(Level::Info, NoteKind::Leadership, format!("stops leading: {reason}"));
        self.turn(core, LeadershipState::Stopping(stopping));
        core.out.push(Action::Stop(reason));
    }

    /// Ends a leadership that is held, or is being acquired.
    pub(crate) fn end(&mut self, core: &mut Core, reason: StopReason) {
        if self.held().is_some() {
            self.stop(core, reason);
        } else {
            self.give_up_claim(core, reason);
        }
    }

    /// A takeover that ends because the elector did not wait for it any longer has failed. One that has failed by itself is
    /// reported by the member, and then not under way any more when the elector decides.
    pub(super) fn report_overdue(&self, core: &mut Core, reason: &StopReason) {
        let claim = match &self.state {
            LeadershipState::Acquiring(acquiring) => &acquiring.claim,
            LeadershipState::Held(held) if !held.leads() => &held.claim,
            _ => return,
        };
        let (slot, term) = (claim.appointment.slot, claim.appointment.term);
        let is_overdue = core.reading.view.elected.record().is_some_and(|elected| {
            let is_failure = elected
                .given(slot)
                .is_some_and(|given| given.cause == Cause::TakeoverFailed && elected.term_of(slot) > term);
            // Without another member it is named anew, and not excluded.
            let is_blamed = elected.exclusions.iter().any(|excluded| excluded.ballot == claim.ballot)
                || elected.named(slot).is_some_and(|named| named.ballot == claim.ballot);
            is_failure && is_blamed
        });
        if is_overdue && matches!(reason, StopReason::NotNamed(_)) {
            let text = format!("did not take over term {term} in time");
            core.note(Level::Warn, NoteKind::TakeoverFailed, text);
        }
    }

    /// A stop that is under way becomes urgent: another member may lead. Deleting the leader znode remains this member's task,
    /// if it exists.
    pub(super) fn hasten(&mut self, core: &mut Core, reason: StopReason) {
        if let LeadershipState::Stopping(stopping) = &mut self.state
            && !stopping.reason.is_urgent()
        {
            if let StopReason::LeaderZnodeLost | StopReason::SessionOver = reason {
                stopping.hold = LeftZnode::Nothing;
            }
            stopping.reason = reason.clone();
            core.out.push(Action::Stop(reason));
        }
    }

    /// A stop that is under way becomes urgent once leadership is taken by force. Deleting the leader znode remains this
    /// member's task, up to the end of the stop budget.
    pub(crate) fn hasten_if_removed(&mut self, core: &mut Core) {
        let LeadershipState::Stopping(stopping) = &self.state else { return };
        let Some(elected) = core.reading.view.elected.record() else { return };
        let ballot = core.own.ballot.name.as_ref().filter(|_| core.session_epoch() == Some(stopping.epoch));
        if ballot.is_some_and(|own| is_removed(elected, self.slot, own)) {
            let reason = StopReason::Removed(moved_away(elected, self.slot));
            self.hasten(core, reason);
        }
    }

    /// A stop that is under way becomes urgent once the lease is not renewed any more.
    pub(crate) fn hasten_at_lease_end(&mut self, core: &mut Core) {
        if core.lease_ends_first().is_some_and(|until| core.now.time + core.stop_budget() >= until) {
            self.hasten(core, StopReason::LeaseEnds);
        }
    }

    pub(super) fn stopped(&mut self, core: &mut Core) {
        let LeadershipState::Stopping(stopping) = &self.state else { return };
        let (epoch, hold, term) = (stopping.epoch, stopping.hold, stopping.term);
        core.note(Level::Info, NoteKind::Leadership, format!("has stopped what it did for term {term}"));
        self.let_go(core, epoch, hold, term);
    }

    // ---- the leader znode ----

    /// Nothing runs any more: removes what may be left of the own leader znode.
    pub(super) fn let_go(&mut self, core: &mut Core, epoch: Epoch, hold: LeftZnode, term: u64) {
        core.own.wishes.deadline = None;
        let step = match hold {
            _ if core.session_epoch() != Some(epoch) => None,
            LeftZnode::Nothing => None,
            LeftZnode::Creating => Some(ReleaseStep::AwaitCreation),
            LeftZnode::Unsure => Some(look_before_release(core)),
            LeftZnode::Znode(znode) if self.awaits_decision(core, term) => {
                let until = core.now.time + DECISION;
                Some(ReleaseStep::AwaitDecision { znode, term, until })
            }
            LeftZnode::Znode(znode) => Some(self.delete_or_look(core, znode, term)),
        };
        self.turn(core, step.map_or(LeadershipState::Idle, |step| Releasing::state(epoch, step)));
    }

    /// Whether this member gave up the leadership of term `term`, and the elector has not decided about it yet, while a
    /// successor would step in as soon as the leader znode is free.
    fn awaits_decision(&self, core: &Core, term: u64) -> bool {
        let gave_up = core.own.gave_up.as_ref().is_some_and(|gave_up| gave_up.term == term);
        let is_undecided = core.reading.view.elected.record().is_some_and(|elected| {
            elected.term_of(self.slot) == term && !elected.line_of(self.slot).is_empty()
        });
        gave_up && is_undecided && !core.is_contest() && !core.own.leaving.is_asked()
    }

    /// When a wait for the decision ends.
    pub(crate) fn wake(&self) -> Option<Time> {
        let LeadershipState::Releasing(release) = &self.state else { return None };
        match release.step {
            ReleaseStep::AwaitDecision { until, .. } => Some(until),
            _ => None,
        }
    }

    fn delete_or_look(&self, core: &Core, znode: HeldZnode, term: u64) -> ReleaseStep {
        // The versions of every znode begin at 0, so the version alone does not distinguish the own leader znode from
        // the next leader's. Nor does what was known before a reconnect: in an older copy of the ensemble, all
        // numbers are given out again.
        let known = self.own_leader_znode(core).meta().is_some_and(|m| m.czxid == znode.czxid)
            && core.is_sure(self.slot);
        let version = znode.version;
        match self.decision_that_took_nothing(core, term) {
            _ if known && core.is_contest() => {
                ReleaseStep::Delete { version, unchanged: core.creation_count() }
            }
            Some(decision) if known => ReleaseStep::Delete { version, unchanged: Some(decision) },
            _ => look_before_release(core),
        }
    }

    /// The version of the known decision, if the own leader znode of term `term` can't have been removed by force up
    /// to that decision: force begins with a term that names no leader.
    fn decision_that_took_nothing(&self, core: &Core, term: u64) -> Option<i32> {
        let Known::Present(elected, meta) = &core.reading.view.elected else { return None };
        let slot = self.slot;
        let next = elected.term.checked_sub(1) == Some(term) && elected.named(slot).is_some();
        (elected.term_of(slot) == term || next).then_some(meta.version)
    }

    /// The creation that was under way when the claim was given up has ended.
    pub(super) fn creation_done(&mut self, core: &mut Core, outcome: &Outcome) {
        let left = match outcome {
            Outcome::Created { czxid, version, .. } => {
                core.has_created(*czxid);
                LeftZnode::Znode(self.znode(core, *czxid, *version, 0))
            }
            Outcome::Exists | Outcome::Unknown(_) => LeftZnode::Unsure,
            _ => LeftZnode::Nothing,
        };
        match &mut self.state {
            LeadershipState::Stopping(stopping) if stopping.hold == LeftZnode::Creating => {
                stopping.hold = left
            }
            LeadershipState::Releasing(release) if release.step == ReleaseStep::AwaitCreation => {
                if left == LeftZnode::Nothing {
                    self.turn(core, LeadershipState::Idle);
                } else {
                    release.step = look_before_release(core);
                }
                self.advance(core);
            }
            _ => {}
        }
    }

    pub(super) fn advance_release(&mut self, core: &mut Core) {
        let LeadershipState::Releasing(release) = &self.state else { return };
        if core.session_epoch() != Some(release.epoch) {
            return self.turn(core, LeadershipState::Idle);
        }
        if core.ops.has(&RELEASE) {
            return;
        }
        if let ReleaseStep::AwaitDecision { znode, term, until } = release.step {
            if core.now.time < until && self.awaits_decision(core, term) {
                return;
            }
            let step = self.delete_or_look(core, znode, term);
            let LeadershipState::Releasing(release) = &mut self.state else { return };
            release.step = step;
        }
        let LeadershipState::Releasing(release) = &mut self.state else { return };
        let path = core.leader_znode_path(self.slot);
        let mut clears = false;
        let paths = &core.config.paths;
        let creation = core.own.contest.znode.as_ref().and_then(|own| own.creation.as_ref());
        let request = match release.step {
            ReleaseStep::AwaitCreation | ReleaseStep::AwaitDecision { .. } | ReleaseStep::RenewElected => {
                return;
            }
            ReleaseStep::Delete { version, unchanged: Some(decision) } => {
                let delete = match creation {
                    Some(creation) => creation.undo(paths, version),
                    None => ZnodeWrite::delete(path, version).only_while(paths.elected(), decision),
                };
                let others = core.leaves_with_release();
                clears = others.is_some();
                delete.then_delete(others.into_iter().flatten()).into()
            }
            ReleaseStep::Delete { version, unchanged: None } => ZnodeWrite::delete(path, version).into(),
            ReleaseStep::ReadElected => ZkOp::Get(core.config.paths.elected()),
            ReleaseStep::Look { .. } => ZkOp::Get(path),
        };
        let sent = core.perform(request, RELEASE);
        if sent && clears {
            core.own.ballot = OwnBallot { is_clearing: true, ..OwnBallot::default() };
        }
        // The state can change before the connection returns.
        if !sent && matches!(release.step, ReleaseStep::Delete { .. }) {
            release.step = look_before_release(core);
        }
    }

    pub(super) fn release_done(&mut self, core: &mut Core, outcome: &Outcome) {
        let look = look_before_release(core);
        let found_own = matches!(outcome, Outcome::Got(Some(node)) if self.is_own(core, node));
        let is_seen = core.is_own_leader_znode(self.own_leader_znode(core));
        let LeadershipState::Releasing(release) = &mut self.state else { return };
        let is_done = *outcome == Outcome::Ok;
        core.own.ballot.is_clearing &= is_done;
        core.own.contest.is_released &= is_done;
        match (release.step, outcome) {
            (ReleaseStep::Delete { .. }, Outcome::Ok | Outcome::Missing) => {
                core.note(Level::Info, NoteKind::Leadership, "has released leadership".to_owned());
                core.own.contest.is_released |= core.is_contest() && is_done;
                // A watch may have been quicker, and have reported the next leader znode already.
                if is_seen {
                    core.see_leader_znode(self.slot, None);
                }
                self.turn(core, LeadershipState::Idle);
            }
            // The leader znode is not the one that was held: the ensemble returned to an older copy. The contest
            // searches for what this incarnation has left behind, and removes it.
            (ReleaseStep::Delete { unchanged: Some(_), .. }, Outcome::Stale) if core.is_contest() => {
                self.turn(core, LeadershipState::Idle);
            }
            (ReleaseStep::Delete { unchanged, .. }, Outcome::Unknown(_)) if !core.is_contest() => {
                release.unsure = unchanged;
                release.step = look;
            }
            (ReleaseStep::Delete { .. }, _) => release.step = look,
            (ReleaseStep::ReadElected, Outcome::Got(node)) => {
                let version = node.as_ref().map(|n| n.version);
                release.unsure = release.unsure.filter(|_| release.unsure == version);
                release.step = ReleaseStep::Look { unchanged: version };
                // Of two deletions under one decision, the first could free the leader znode for the member that this
                // decision names, and the second could find its version in the leader znode of that member.
                if let (Some(node), Some(_)) = (node, release.unsure) {
                    let renewed = ZnodeWrite::set(core.config.paths.elected(), &*node.data, node.version);
                    let sent = core.perform(ZkOp::from(renewed), RELEASE);
                    release.step = if sent { ReleaseStep::RenewElected } else { look };
                }
                core.see_elected(node.as_ref());
            }
            (ReleaseStep::RenewElected, Outcome::Changed { version, .. }) => {
                release.unsure = None;
                release.step = ReleaseStep::Look { unchanged: Some(*version) };
            }
            (ReleaseStep::Look { unchanged }, Outcome::Got(Some(node))) if found_own => {
                release.step = ReleaseStep::Delete { version: node.version, unchanged };
            }
            (ReleaseStep::Look { .. }, Outcome::Got(node)) => {
                core.see_leader_znode(self.slot, node.as_ref());
                self.turn(core, LeadershipState::Idle);
            }
            (ReleaseStep::Look { .. } | ReleaseStep::ReadElected | ReleaseStep::RenewElected, _) => {
                release.step = look;
            }
            (ReleaseStep::AwaitCreation | ReleaseStep::AwaitDecision { .. }, _) => {}
        }
        self.advance(core);
    }
}
