//! The leader's side: from being named, or being next in line, through PROGRESS and READY, to the release.
//!
//! ```text
//!             named, or about to name itself, or first in line and the leader vanished
//!   Idle    ─────────────────────────────▶ Acquiring ──▶ TakingOver ──▶ Announcing ──▶ Leading
//!      ▲                                      │             │              │             │
//!      │            znode deleted             ▼             ▼              ▼             ▼
//!      └──────────────── Releasing ◀───── Stopping ◀── moved away · lease near its end · znode
//!                                                       gone · session over · failed · leaving
//! ```
//! The application's work is stopped, and confirmed to be stopped, before the leader znode is deleted: work never
//! outlives its leadership.

mod acquire;
mod consent;
mod held;
mod release;
mod resume;
mod state;
mod wishes;

use super::{
    appointment::{By, Claim},
    core::Core,
    io::{AppEvent, Level, Node, NoteKind, Outcome, StopReason, ZkOp},
    ops::{LeaderOp, Part, Pending},
    policy::OnPause,
    znode::Known,
};
use crate::record::{Cause, ContenderStatus, Current, GaveUp, HistoryEntry, Record, Status, VERSION};
use state::{AcquireStep, Prepared, ReleaseStep, Releasing};
pub(crate) use state::{HeldLeadership, LeadershipState, Stage};

/// The leader's side of a member.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct OwnLeadership {
    state: LeadershipState,
    /// The slot of the state. A member has one at a time, and releases its leader znode before it turns to another.
    slot: usize,
    /// The application serves; READY must still be written.
    announce_later: bool,
    /// READY is written without the entry of the history: together they were refused, or the outcome is unknown.
    announces_alone: bool,
    /// It has stepped in: the next one in line is called once this member leads.
    calls_next: bool,
    /// A leadership that has been announced, for the history to take.
    pub(super) to_record: Option<Entry>,
}

/// The entry of a leadership that has been announced.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Entry {
    /// It must still be written.
    Due(Box<HistoryEntry>),
    /// It was written together with READY.
    Written {
        /// There are no more entries than that.
        entries: u64,
    },
}

impl OwnLeadership {
    pub(crate) fn state(&self) -> &LeadershipState {
        &self.state
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, LeadershipState::Idle)
    }

    pub(crate) fn is_taking_over(&self) -> bool {
        match &self.state {
            LeadershipState::Acquiring(acquiring) => acquiring.step == AcquireStep::Creating,
            state => state.held().is_some_and(|held| !held.leads()),
        }
    }

    pub(crate) fn held(&self) -> Option<&HeldLeadership> {
        self.state.held()
    }

    /// The fencing token of the leadership that is held, or is being given up.
    pub(crate) fn fencing_token(&self) -> Option<u64> {
        match &self.state {
            LeadershipState::Stopping(stopping) => stopping.token,
            _ => self.held().map(|held| held.fencing_token),
        }
    }

    // ---- what happens ----

    pub(crate) fn app(&mut self, core: &mut Core, event: AppEvent) {
        let takes_over = self.state.stage() == Some(Stage::TakingOver);
        match (event, &self.state) {
            (AppEvent::Prepared, LeadershipState::Acquiring(_)) => self.set_prepared(core, Prepared::Yes),
            (AppEvent::PrepareFailed(why), LeadershipState::Acquiring(_)) => {
                self.fail(core, format!("preparing failed: {why}"), why);
            }
            (AppEvent::TakenOver, _) if takes_over => self.announce(core),
            (AppEvent::TakenOverWith(remark), _) if takes_over => {
                self.remark(&remark);
                self.announce(core);
            }
            (AppEvent::TakeoverFailed(why), _) if takes_over => {
                self.fail(core, format!("taking over failed: {why}"), why);
            }
            (AppEvent::Declined(why), state)
                if takes_over || matches!(state, LeadershipState::Acquiring(_)) =>
            {
                core.note(Level::Info, NoteKind::Leadership, format!("declines leadership: {why}"));
                self.resign(core, why);
            }
            // Also before READY is written: that write may have to wait for the connection.
            (AppEvent::WorkFailed(why), LeadershipState::Held(_)) => {
                self.record_giving_up(core, Cause::WorkFailed, &why);
                core.note(Level::Warn, NoteKind::Leadership, format!("gives up leadership: {why}"));
                self.stop(core, StopReason::WorkFailed(why));
            }
            (AppEvent::WorkFinished, LeadershipState::Held(_)) => {
                self.record_giving_up(core, Cause::Resigned, "its work is finished");
                self.stop(core, StopReason::WorkFinished);
            }
            (AppEvent::MoveAccepted, LeadershipState::Held(_)) => self.may_move(core, None),
            (AppEvent::MoveDeclined(why), LeadershipState::Held(_)) => self.may_move(core, Some(why)),
            (AppEvent::Stopped, LeadershipState::Stopping(_)) => self.stopped(core),
            // A reply to a step that was given up meanwhile.
            _ => {}
        }
        self.advance(core);
    }

    /// A takeover has failed, for this reason.
    pub(crate) fn fail(&mut self, core: &mut Core, text: String, why: String) {
        self.record_giving_up(core, Cause::TakeoverFailed, &why);
        core.note(Level::Warn, NoteKind::TakeoverFailed, text);
        self.end(core, StopReason::TakeoverFailed(why));
    }

    /// The session is over, and the leader znode with it.
    pub(crate) fn session_over(&mut self, core: &mut Core) {
        core.reading.forget_tenures();
        let keep = matches!(core.config.policy.on_pause, OnPause::Keep { .. });
        match &mut self.state {
            LeadershipState::Held(held) if keep && held.leads() => {}
            LeadershipState::Held(_) => self.stop(core, StopReason::SessionOver),
            LeadershipState::Acquiring(acquiring) => {
                acquiring.step = AcquireStep::Waiting;
                self.give_up_claim(core, StopReason::SessionOver);
            }
            LeadershipState::Stopping(_) => self.hasten(core, StopReason::SessionOver),
            LeadershipState::Idle | LeadershipState::Cleaning | LeadershipState::Releasing(_) => {
                self.turn(core, LeadershipState::Idle)
            }
        }
    }

    pub(crate) fn done(&mut self, core: &mut Core, op: LeaderOp, outcome: &Outcome) {
        if let Outcome::NotApplied(_) = outcome {
            core.retry(Part::Leader);
        }
        match op {
            LeaderOp::Clean => self.cleaned(core, outcome),
            LeaderOp::Acquire => self.acquire_done(core, outcome),
            LeaderOp::LateCreation => self.creation_done(core, outcome),
            LeaderOp::Announce => self.announced(core, outcome),
            LeaderOp::Doubt => self.doubt_done(core, outcome),
            LeaderOp::Repair => self.repaired(core, outcome),
            LeaderOp::Release => self.release_done(core, outcome),
        }
    }

    // ---- taking the next steps ----

    pub(crate) fn advance(&mut self, core: &mut Core) {
        if core.ops.waits(Part::Leader, core.now.time) {
            // Deadlines do not wait for a retry.
            self.check_held(core);
            return;
        }
        core.ops.retry_now(Part::Leader);
        match &self.state {
            LeadershipState::Idle => self.advance_idle(core),
            LeadershipState::Acquiring(_) => self.advance_claim(core),
            LeadershipState::Held(_) => self.check_held(core),
            LeadershipState::Releasing(_) => self.advance_release(core),
            LeadershipState::Stopping(_) => self.hasten_if_removed(core),
            LeadershipState::Cleaning => {}
        }
    }

    fn advance_idle(&mut self, core: &mut Core) {
        if !core.session_is_active() || core.is_contest() {
            return;
        }
        // A left-over of its own must be deleted, and never be adopted: its leadership has ended.
        let owned = |(_, known): &(usize, &Known<Current>)| core.is_own_leader_znode(known);
        let leftover = core.reading.view.leaders().find(owned).map(|(slot, _)| slot);
        if let Some(slot) = leftover {
            let request = ZkOp::Get(core.config.paths.leader_znode(slot));
            if core.perform(request, Pending::Leader(LeaderOp::Clean)) {
                self.slot = slot;
                self.turn(core, LeadershipState::Cleaning);
            }
        } else if let Some(claim) = core.decided_claim() {
            self.claim(core, claim, None);
        }
    }

    /// Changes to another state.
    fn turn(&mut self, core: &mut Core, state: LeadershipState) {
        self.state = state;
        self.report(core);
    }

    fn report(&self, core: &mut Core) {
        core.own.duty = self.state.duty(self.slot);
    }

    fn cleaned(&mut self, core: &mut Core, outcome: &Outcome) {
        self.turn(core, LeadershipState::Idle);
        if let Outcome::Got(node) = outcome {
            core.see_leader_znode(self.slot, node.as_ref());
            if node.as_ref().is_some_and(|n| self.is_own(core, n)) {
                let step = look_before_release(core);
                self.turn(core, Releasing::state(core.epoch(), step));
            }
        }
    }

    // ---- what is written ----

    /// The last read state of the own leader znode.
    fn own_leader_znode<'a>(&self, core: &'a Core) -> &'a Known<Current> {
        core.reading.view.leader(self.slot)
    }

    /// Whether this incarnation has created this leader znode.
    fn is_own(&self, core: &Core, node: &Node) -> bool {
        core.is_own_leader_znode(&core.read_leader_record(&core.leader_znode_path(self.slot), Some(node)))
    }

    /// The content of the own leader znode; `None` if it is too large, which is retried.
    fn leader_record(
        &self,
        core: &mut Core,
        claim: &Claim,
        status: Status,
        ready_ms: Option<u64>,
    ) -> Option<Vec<u8>> {
        let path = core.leader_znode_path(self.slot);
        let since_ms = self.held().map_or(core.now.unix_ms, |held| held.znode.created_ms);
        let member = &core.config.member;
        let data = match claim.by {
            By::Contest => {
                let status = match status {
                    Status::Progress => ContenderStatus::Progress,
                    Status::Ready => ContenderStatus::Ready,
                };
                let base = core.own.contest.znode.as_ref().map_or(0, |own| own.base);
                core.config.contender(status, &claim.ballot, core.granted(), since_ms, ready_ms, base)
            }
            By::Decision | By::Succession(_) | By::FirstDecision => Current {
                v: VERSION,
                member: member.member.clone(),
                ballot: claim.ballot.clone(),
                site: member.site.clone(),
                slot: claim.appointment.slot,
                term: claim.appointment.term,
                status,
                endpoint: member.address.clone(),
                fencing_token: self.held().map(|held| held.fencing_token),
                since_ms,
                ready_ms,
            }
            .encode(&path),
        };
        match data {
            Ok(data) => Some(data),
            Err(error) => {
                core.trouble(error);
                core.retry(Part::Leader);
                None
            }
        }
    }

    /// Reports in the own record that leadership is given up.
    pub(crate) fn record_giving_up(&self, core: &mut Core, cause: Cause, reason: &str) {
        let term = match &self.state {
            LeadershipState::Acquiring(acquiring) => acquiring.term(),
            LeadershipState::Held(held) => held.term(),
            _ => return,
        };
        let reason = reason.chars().take(500).collect();
        core.own.gave_up = Some(Box::new(GaveUp { term, cause, reason, at_ms: core.now.unix_ms }));
    }
}

/// The first step of a release if it is not known what is left.
fn look_before_release(core: &Core) -> ReleaseStep {
    match core.is_contest() {
        true => ReleaseStep::Look { unchanged: core.creation_count() },
        false => ReleaseStep::ReadElected,
    }
}
