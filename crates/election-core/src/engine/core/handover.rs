//! How a member leaves while it leads: a planned move, and no failure.
//!
//! ```text
//!   leader                       elector                          the next leader
//!   asked to leave ── record ──▶ names another in the next term ─▶ prepares
//!   leads on       ◀────────────────────── record ──────────────── has prepared
//!   stops its work, releases ────────────────────────────────────▶ takes over
//!   leaves
//! ```
//! The job is down only from its end on this member to its takeover on the next. Each wait has a limit: a member that
//! is asked to leave finally leaves, with or without a successor.

use std::time::Duration;

use super::Core;
use crate::{
    engine::{
        ops::Pending,
        own::{HeldSummary, Leaving},
        znode::Known,
    },
    ids::Ballot,
    record::{Cause, Elected, MemberRecord, Mode, Named},
    time::Time,
};

/// How long a leader that is asked to leave waits for the decision that names another member. The elector needs one
/// write for it.
const DECISION: Duration = Duration::from_secs(2);

impl Core {
    pub(crate) fn leave(&mut self, hand_over: bool) {
        self.own.leaving = match (hand_over, self.own.leaving) {
            (true, Leaving::No) => Leaving::HandingOver(self.now.time),
            (true, already) => already,
            (false, _) => Leaving::AtOnce,
        };
    }

    /// Whether to wait for the next leader still: to be named, or to have prepared.
    pub(crate) fn hands_over(&self) -> bool {
        self.hands_over_until().is_some_and(|until| self.now.time < until)
    }

    /// Until when it waits without an event.
    pub(crate) fn hands_over_until(&self) -> Option<Time> {
        let Leaving::HandingOver(since) = self.own.leaving else { return None };
        if !self.session_is_active() || self.expects_no_successor() {
            return None;
        }
        let elected = self.reading.view.elected.record()?;
        let ballot = self.own.ballot.name.as_ref()?;
        let decided = since + DECISION;
        let Some(held) = &self.own.duty.held else { return elected.slot_of(ballot).map(|_| decided) };
        if elected.named(held.slot).is_some_and(|named| named.ballot == *ballot) {
            return Some(decided);
        }
        let next = self.next_leader(held, elected)?;
        let prepared = self.reading.view.prepared.as_deref();
        let is_ready =
            prepared.is_some_and(|(who, term)| *who == next.ballot && *term == elected.term_of(held.slot));
        (!is_ready).then(|| decided + self.config.policy.acquire_timeout)
    }

    /// Whether this member, which leads and is to leave, continues its work though another member is named.
    pub(crate) fn works_on_for(&self, elected: &Elected) -> bool {
        let Some(held) = self.leads() else { return false };
        self.next_leader(held, elected).is_some() && self.hands_over()
    }

    /// The leadership that this member has entered and announced.
    fn leads(&self) -> Option<&HeldSummary> {
        self.own.duty.held.as_ref().filter(|held| held.leads)
    }

    /// The member that is named because this leader leaves.
    fn next_leader<'a>(&self, held: &HeldSummary, elected: &'a Elected) -> Option<&'a Named> {
        let slot = held.slot;
        let given = elected.given(slot)?;
        let follows = given.previous.as_ref().is_some_and(|previous| previous.ballot == held.ballot);
        elected.named(slot).filter(|_| follows && given.cause == Cause::LeaderShutdown)
    }

    /// The record in which the next leader reports that it has prepared, while this member waits for that.
    pub(crate) fn record_of_next_leader(&self) -> Option<String> {
        let elected = self.reading.view.elected.record()?;
        let held = self.leads()?;
        let next = self.next_leader(held, elected).filter(|_| self.own.leaving.is_asked())?;
        Some(self.config.paths.node(&next.member))
    }

    pub(crate) fn saw_next_leader(&mut self, record: &MemberRecord) {
        self.reading.view.prepared = record.prepared.map(|term| Box::new((record.ballot.clone(), term)));
    }

    /// The own record and ballot, if this member leaves the election with its leadership: the decision names another
    /// member already, so its record has no more to tell.
    pub(crate) fn leaves_with_release(&self) -> Option<Vec<String>> {
        let own = &self.own.ballot;
        let ballot = own.name.as_ref().filter(|_| own.is_ranked && self.own.leaving.is_asked())?;
        let elected = self.reading.view.elected.record()?;
        (elected.slot_of(ballot).is_none() && !self.ops.has(&Pending::Candidacy))
            .then(|| vec![self.own_node(), self.config.paths.ballot(ballot)])
    }

    /// As far as this member knows: a member that is not the elector knows that there is another one.
    fn expects_no_successor(&self) -> bool {
        let (true, Some(members)) = (self.own.ballot.is_lowest(), &self.reading.view.electors().members)
        else {
            return false;
        };
        let decides = match &self.reading.view.electors().control {
            Known::Present(control, _) => control.mode == Mode::Auto,
            _ => true,
        };
        let is_candidate = |member: &MemberRecord| member.withdrawn.is_none() && !member.leaving;
        let is_other = |ballot: &Ballot| self.own.ballot.name.as_ref() != Some(ballot);
        !decides || !members.iter().any(|member| is_candidate(member) && is_other(&member.ballot))
    }
}
