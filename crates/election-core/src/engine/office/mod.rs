//! The leader's side: from being named, or being next in line, through PROGRESS
//! and READY, to having let go.
//!
//! ```text
//!             named, or first in line and the leader vanished
//!   Standby ─────────────────────────────▶ Claiming ──▶ TakingOver ──▶ Announcing ──▶ Leading
//!      ▲                                      │             │              │             │
//!      │            place deleted             ▼             ▼              ▼             ▼
//!      └──────────────── Releasing ◀───── Stopping ◀── moved away · lease near its end · place
//!                                                       gone · session over · failed · leaving
//! ```
//! Whatever was begun is stopped, and confirmed to be stopped, before the place
//! is let go: work never outlives its leadership.

mod claim;
mod held;
mod tenure;

use std::time::Duration;

use super::{
    Engine,
    io::{
        Action, AppEvent, Epoch, Grant, Level, Node, Nomination, NoteKind, OpId, Outcome, Request, StopReason,
    },
    limit::{check_limit, job_failures},
    policy::OnPause,
    recipe::Recipe,
    rules::Rule,
    succession::succeed,
    tokens::fencing_token,
    view::{Known, Meta},
};
use crate::{
    ids::Ballot,
    record::{
        Cause, ContenderStatus, Current, Elected, GaveUp, HistoryEntry, Named, Phases, Record, Status,
        VERSION,
    },
    time::Time,
};
use tenure::Tenure;

/// How long to wait before an operation is tried again that could not be applied.
pub(super) const RETRY: Duration = Duration::from_millis(200);

/// The leader's side of a member.
#[derive(Clone, Debug, Default, Hash)]
pub(in crate::engine) struct Office {
    pub(in crate::engine) state: State,
    /// The slot that the state is about: a member has one at a time, and lets go of its
    /// place before it turns to another.
    pub(in crate::engine) slot: usize,
    /// By slot.
    tenures: Vec<Tenure>,
    pub(super) retry_at: Option<Time>,
    /// The latest term that this member has prepared for while the leader before worked on.
    pub(in crate::engine) prepared_for: Option<u64>,
}

#[derive(Clone, Debug, Default, Hash)]
pub(in crate::engine) enum State {
    /// Holding nothing, doing nothing.
    #[default]
    Standby,
    /// Holding nothing, and asking whether the place that stands there is a
    /// left-over of this very session.
    Cleaning(OpId),
    Claiming(Box<Claiming>),
    TakingOver(Box<Held>),
    Announcing(Box<Held>, OpId),
    Leading(Box<Held>),
    Stopping(Stopping),
    Releasing(Releasing),
}

/// Named, or stepping in: until the place is held and the application prepared.
#[derive(Clone, Debug, Hash)]
pub(in crate::engine) struct Claiming {
    pub(super) nomination: Nomination,
    pub(super) ballot: Ballot,
    pub(super) prepared: Prepared,
    pub(super) claim: Claim,
    /// It steps in and has not committed yet: for the leader with this ballot, named
    /// for the slot in this term, that vanished.
    pub(super) follows: Option<(u64, Ballot)>,
    /// What the commit under way writes, and over which version.
    pub(super) written: Option<(Box<Elected>, i32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Prepared {
    No,
    Running,
    Yes,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Claim {
    /// A successor reads the decision, then the place, both anew.
    ReadElected(Option<OpId>),
    ReadPlace(Option<OpId>),
    /// The place is another's.
    Waiting,
    Creating(Option<OpId>),
    /// After a lost reply: is it there, and whose?
    Looking(Option<OpId>),
    /// It is held. Does the decision still say so, read on this session?
    Rereading(Option<OpId>, Place),
    /// A successor makes it the decision before it acts.
    Committing(Option<OpId>, Place),
    /// It is held, and says another term than the decision, since another slot was
    /// decided while this member stepped in: it is written anew.
    Restating(Option<OpId>, Place),
    /// Held and entitled.
    Entitled(Place),
}

/// The own znode in office.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Place {
    pub(super) czxid: i64,
    pub(super) version: i32,
    /// The term that it says.
    pub(super) term: u64,
    /// When it was seen to be free, and when it was created, in milliseconds since
    /// the Unix epoch.
    pub(super) free_ms: u64,
    pub(super) created_ms: u64,
}

/// Leadership that has been entered.
#[derive(Clone, Debug, Hash)]
pub(in crate::engine) struct Held {
    pub(in crate::engine) grant: Grant,
    pub(super) place: Place,
    pub(super) epoch: Epoch,
    /// A watch says that the place is not this one any more; being verified.
    pub(super) doubt: Option<OpId>,
    pub(super) doubted: bool,
    /// The record in the place was spoiled by somebody's hand; being written anew.
    pub(super) repair: Option<OpId>,
    /// When it became READY, in milliseconds since the Unix epoch.
    pub(super) ready_ms: Option<u64>,
}

/// What an application can take its time for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) enum Stage {
    Preparing,
    TakingOver,
}

impl Held {
    pub(in crate::engine) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(in crate::engine) fn created_ms(&self) -> u64 {
        self.place.created_ms
    }
}

#[derive(Clone, Debug, Hash)]
pub(in crate::engine) struct Stopping {
    pub(super) reason: StopReason,
    /// The session that it led on, and what is held there.
    pub(super) epoch: Epoch,
    pub(super) hold: Hold,
    pub(in crate::engine) term: u64,
    pub(in crate::engine) token: Option<u64>,
}

/// What may stand in the place when a claim or a leadership is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Hold {
    Nothing,
    Place(Place),
    /// Its creation is under way.
    Creating(OpId),
    /// The outcome of its creation is unknown.
    Unsure,
}

#[derive(Clone, Debug, Hash)]
pub(in crate::engine) struct Releasing {
    pub(super) epoch: Epoch,
    pub(super) step: ReleaseStep,
}

#[derive(Clone, Debug, Hash)]
pub(super) enum ReleaseStep {
    /// Its creation is under way: what is not there yet can't be deleted.
    AwaitCreation(OpId),
    /// In this version, and while the decision has that one, if there is any.
    Delete(Option<OpId>, i32, Option<i32>),
    /// The decision is read before the place, so that the place is known to be the own
    /// one in every decision up to that.
    ReadElected(Option<OpId>),
    Look(Option<OpId>, Option<i32>),
}

impl Office {
    pub(in crate::engine) fn retry_at(&self) -> Option<Time> {
        self.retry_at
    }

    /// Whether anything of the application runs.
    pub(in crate::engine) fn is_working(&self) -> bool {
        match &self.state {
            State::TakingOver(_) | State::Announcing(..) | State::Leading(_) | State::Stopping(_) => true,
            State::Claiming(claiming) => claiming.prepared != Prepared::No,
            State::Standby | State::Cleaning(_) | State::Releasing(_) => false,
        }
    }

    /// Whether this member is on its way to lead, or leads.
    pub(in crate::engine) fn wants_lease(&self) -> bool {
        !matches!(self.state, State::Standby | State::Cleaning(_) | State::Releasing(_))
    }

    /// Whether the end of the lease changes what is to be done.
    pub(in crate::engine) fn heeds_lease_end(&self) -> bool {
        match &self.state {
            State::Stopping(stopping) => !stopping.reason.is_urgent(),
            _ => self.held().is_some(),
        }
    }

    /// What the application is being waited for.
    pub(in crate::engine) fn stage(&self) -> Option<Stage> {
        match &self.state {
            State::Claiming(claiming) if claiming.prepared == Prepared::Running => Some(Stage::Preparing),
            State::TakingOver(_) => Some(Stage::TakingOver),
            _ => None,
        }
    }

    /// When the leader became READY, in milliseconds since the Unix epoch.
    pub(in crate::engine) fn ready_ms(&self) -> Option<u64> {
        self.held()?.ready_ms
    }

    pub(in crate::engine) fn held(&self) -> Option<&Held> {
        match &self.state {
            State::TakingOver(held) | State::Announcing(held, _) | State::Leading(held) => Some(held),
            _ => None,
        }
    }
}

impl Engine {
    pub(in crate::engine) fn office_is_idle(&self) -> bool {
        matches!(self.office.state, State::Standby)
    }

    /// What was read there last.
    fn own_place(&self) -> &Known<Current> {
        self.view.place(self.office.slot)
    }

    pub(in crate::engine) fn advance_office(&mut self) {
        if self.office.retry_at.is_some_and(|at| self.now.time < at) {
            // Deadlines don't wait for a retry.
            self.check_held();
            return;
        }
        self.office.retry_at = None;
        match &self.office.state {
            State::Standby => self.advance_standby(),
            State::Claiming(_) => self.advance_claim(),
            State::TakingOver(_) | State::Announcing(..) | State::Leading(_) => self.check_held(),
            State::Releasing(_) => self.advance_release(),
            State::Cleaning(_) | State::Stopping(_) => {}
        }
    }

    pub(in crate::engine) fn advance_standby(&mut self) {
        if !self.session_is_active() || self.is_contest() {
            return;
        }
        // A left-over of this very session must go, and never be adopted: its
        // leadership has ended.
        let session = self.session_id();
        let owned = |(_, known): &(usize, &Known<Current>)| known.meta().is_some_and(|m| m.owner == session);
        let leftover = self.view.places().find(owned).map(|(slot, _)| slot);
        if let Some(slot) = leftover {
            if let Some(op) = self.perform(Request::Get { path: self.config.paths.place(slot) }) {
                self.office.slot = slot;
                self.office.state = State::Cleaning(op);
            }
            return;
        }
        if self.leaving.is_asked() || self.standing.withdrawn.is_some() {
            return;
        }
        let Some(ballot) = self.registration.ballot().cloned() else {
            return;
        };
        let Some(elected) = self.view.elected.record() else {
            return;
        };
        if let Some(slot) = self.slot_of(elected, &ballot) {
            let nomination = nomination(elected, slot);
            if self.gave_up.as_ref().is_some_and(|g| g.term == nomination.term) {
                return;
            }
            let text = format!("is named for term {}: {}", nomination.term, nomination.sentence);
            self.claim(nomination, ballot, Claim::Waiting, None, text);
        } else if let Some((slot, named)) = self.lost_slot(elected, &ballot) {
            let nomination = Nomination {
                slot,
                term: elected.term + 1,
                cause: Cause::LeaderLost,
                sentence: String::new(),
                previous: Some(named.as_previous()),
            };
            let text = format!(
                "steps in for term {}: the leader znode{} is gone, and it is first in line",
                nomination.term,
                if elected.slots.len() > 1 { format!(" of slot {slot}") } else { String::new() },
            );
            let follows = Some((elected.term_of(slot), named.ballot.clone()));
            let first = match self.rules.keep(Rule::SuccessorReads) {
                true => Claim::ReadElected(None),
                false => Claim::Creating(None),
            };
            self.claim(nomination, ballot, first, follows, text);
        }
    }

    /// The slot to step in for: first in its line by ballot, its place free, and the
    /// one who is named for it seen there in this very term.
    ///
    /// Where several leaders vanish at once, one member can be first in line for each
    /// of them. It takes the lowest slot; once that is committed it stands in no line
    /// any more, and the second in line is the first for the next slot.
    fn lost_slot<'a>(&self, elected: &'a Elected, ballot: &Ballot) -> Option<(usize, &'a Named)> {
        let unix_ms = self.now.unix_ms;
        if elected.excluded(ballot, unix_ms).is_some() {
            return None;
        }
        elected.leaders().find(|(slot, _)| {
            elected.place_in_line(*slot, ballot) == Some(0)
                && self.has_vanished(elected, *slot)
                && check_limit(&self.config.policy, Some(elected), *slot, Cause::LeaderLost, unix_ms).is_ok()
                // Whether the job failed once more, and is to pause, only the elector knows.
                && job_failures(&self.config.policy, elected, unix_ms) == 0
        })
    }

    /// The session is over, and the place with it.
    pub(in crate::engine) fn office_session_over(&mut self) {
        self.forget_tenures();
        self.office.retry_at = None;
        let keep = matches!(self.config.policy.on_pause, OnPause::Keep { .. });
        match &self.office.state {
            State::Leading(_) if keep => {}
            State::TakingOver(_) | State::Announcing(..) | State::Leading(_) => {
                self.stop(StopReason::SessionOver)
            }
            State::Claiming(_) => {
                if let State::Claiming(claiming) = &mut self.office.state {
                    claiming.claim = Claim::Waiting;
                }
                self.give_up_claim(StopReason::SessionOver);
            }
            State::Stopping(_) => self.hasten(StopReason::SessionOver),
            State::Standby | State::Cleaning(_) | State::Releasing(_) => self.office.state = State::Standby,
        }
    }

    pub(in crate::engine) fn office_app(&mut self, event: AppEvent) {
        match (event, &self.office.state) {
            (AppEvent::Prepared, State::Claiming(_)) => self.set_prepared(Prepared::Yes),
            (AppEvent::PrepareFailed(why), State::Claiming(_)) => {
                self.record_giving_up(Cause::TakeoverFailed, &why);
                self.note(Level::Warn, NoteKind::TakeoverFailed, format!("preparing failed: {why}"));
                self.give_up_claim(StopReason::TakeoverFailed(why));
            }
            (AppEvent::TakenOver, State::TakingOver(_)) => self.announce(),
            (AppEvent::TakeoverFailed(why), State::TakingOver(_)) => {
                self.record_giving_up(Cause::TakeoverFailed, &why);
                self.note(Level::Warn, NoteKind::TakeoverFailed, format!("taking over failed: {why}"));
                self.stop(StopReason::TakeoverFailed(why));
            }
            // Also before READY is written: that may have to wait for the connection.
            (AppEvent::WorkFailed(why), State::Leading(_) | State::Announcing(..) | State::TakingOver(_)) => {
                self.record_giving_up(Cause::WorkFailed, &why);
                self.note(Level::Warn, NoteKind::Office, format!("gives up leadership: {why}"));
                self.stop(StopReason::WorkFailed(why));
            }
            (AppEvent::WorkFinished, State::Leading(_) | State::Announcing(..) | State::TakingOver(_)) => {
                self.record_giving_up(Cause::Resigned, "its work is finished");
                self.stop(StopReason::WorkFinished);
            }
            (AppEvent::Stopped, State::Stopping(_)) => self.stopped(),
            // An answer to something that was given up meanwhile.
            _ => {}
        }
        self.advance_office();
    }

    pub(in crate::engine) fn office_done(&mut self, op: OpId, outcome: &Outcome) -> bool {
        let ours = match &self.office.state {
            State::Cleaning(known) => *known == op,
            State::Claiming(claiming) => match &claiming.claim {
                Claim::ReadElected(known)
                | Claim::ReadPlace(known)
                | Claim::Creating(known)
                | Claim::Looking(known) => *known == Some(op),
                Claim::Rereading(known, _) | Claim::Committing(known, _) | Claim::Restating(known, _) => {
                    *known == Some(op)
                }
                Claim::Waiting | Claim::Entitled(_) => false,
            },
            State::Announcing(_, known) if *known == op => true,
            State::Stopping(stopping) => stopping.hold == Hold::Creating(op),
            State::Releasing(release) => match &release.step {
                ReleaseStep::AwaitCreation(known) => *known == op,
                ReleaseStep::Delete(known, ..)
                | ReleaseStep::ReadElected(known)
                | ReleaseStep::Look(known, _) => *known == Some(op),
            },
            _ => self.office.held().is_some_and(|held| held.doubt == Some(op) || held.repair == Some(op)),
        };
        if !ours {
            return false;
        }
        if let Outcome::NotApplied(_) = outcome {
            self.office.retry_at = Some(self.now.time + RETRY);
        }
        match &self.office.state {
            State::Cleaning(_) => self.cleaning_done(outcome),
            State::Claiming(claiming) => {
                let claim = claiming.claim.clone();
                self.claim_done(claim, outcome);
            }
            State::Announcing(_, known) if *known == op => self.announced(outcome),
            State::Stopping(_) => self.creation_done(outcome),
            State::Releasing(_) => self.release_done(outcome),
            _ if self.office.held().is_some_and(|held| held.repair == Some(op)) => self.repaired(outcome),
            _ => self.doubt_done(outcome),
        }
        true
    }

    pub(in crate::engine) fn cleaning_done(&mut self, outcome: &Outcome) {
        self.office.state = State::Standby;
        if let Outcome::Got(node) = outcome {
            self.see_place(self.office.slot, node.as_ref());
            if node.as_ref().is_some_and(|n| n.owner == self.session_id()) {
                let step = self.look_before_release();
                self.office.state = State::Releasing(Releasing { epoch: self.epoch(), step });
            }
        }
    }

    pub(in crate::engine) fn place_data(
        &mut self,
        nomination: &Nomination,
        ballot: &Ballot,
        status: Status,
        ready_ms: Option<u64>,
    ) -> Option<Vec<u8>> {
        if self.is_contest() {
            let since_ms = self.office.held().map_or(self.now.unix_ms, Held::created_ms);
            let status = match status {
                Status::Progress => ContenderStatus::Progress,
                Status::Ready => ContenderStatus::Ready,
            };
            return self.contender_data(status, since_ms, ready_ms);
        }
        let path = self.place_path();
        let since_ms = self.office.held().map_or(self.now.unix_ms, |held| held.place.created_ms);
        let record = Current {
            v: VERSION,
            member: self.config.member.member.clone(),
            ballot: ballot.clone(),
            site: self.config.member.site.clone(),
            slot: nomination.slot,
            term: nomination.term,
            status,
            endpoint: self.config.member.address.clone(),
            fencing_token: self.office.held().map(|held| held.grant.fencing_token),
            since_ms,
            ready_ms,
        };
        match record.encode(&path) {
            Ok(data) => Some(data),
            Err(error) => {
                self.note(Level::Warn, NoteKind::Trouble, error.to_string());
                self.office.retry_at = Some(self.now.time + RETRY);
                None
            }
        }
    }

    /// The slot that this member with `ballot` is named for.
    fn slot_of(&self, elected: &Elected, ballot: &Ballot) -> Option<usize> {
        elected.leaders().find(|(_, named)| self.is_me(named, ballot)).map(|(slot, _)| slot)
    }

    /// Whether `named` is this member with `ballot`.
    fn is_me(&self, named: &Named, ballot: &Ballot) -> bool {
        self.rules.same(named, &self.config.member.member, ballot)
    }

    pub(in crate::engine) fn named(&self, ballot: &Ballot) -> Named {
        let member = &self.config.member;
        Named { member: member.member.clone(), ballot: ballot.clone(), site: member.site.clone() }
    }
}

pub(super) fn nomination(elected: &Elected, slot: usize) -> Nomination {
    let given = elected.given(slot);
    Nomination {
        slot,
        term: given.term,
        cause: given.cause,
        sentence: given.sentence,
        previous: given.previous,
    }
}

pub(super) fn moved_away(elected: &Elected, slot: usize) -> String {
    let given = elected.given(slot);
    format!("term {} has begun: {}", given.term, given.sentence)
}
