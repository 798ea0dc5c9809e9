//! While the place is held, and how it is let go.

use super::*;

impl Engine {
    pub(in crate::engine) fn check_held(&mut self) {
        let Some(held) = self.office.held() else {
            return;
        };
        let orphaned = self.session_epoch() != Some(held.epoch);
        let own = self.registration.ballot();
        let leads = matches!(self.office.state, State::Leading(_));
        if self.leaving.is_asked() && !(leads && self.hands_over()) {
            return self.stop(StopReason::Leaving);
        }
        if let Some(reason) = self.resigns_by_now() {
            self.record_giving_up(Cause::Resigned, &reason);
            return self.stop(StopReason::Resigned(reason));
        }
        match self.lease_until() {
            Some(until) if self.now.time + self.stop_budget() < until => {}
            _ => return self.stop(StopReason::LeaseEnds),
        }
        if !orphaned && own.is_some_and(|b| *b != held.grant.ballot) {
            return self.stop(StopReason::BallotLost);
        }
        if let Some(elected) = self.view.elected.record() {
            let slot = held.grant.nomination.slot;
            let mine = elected.named(slot).is_some_and(|n| self.is_me(n, &held.grant.ballot));
            let term = if self.rules.keep(Rule::TermOfSlot) { elected.term_of(slot) } else { elected.term };
            let moved = !mine || term != held.grant.nomination.term;
            if moved && self.rules.keep(Rule::StandDown) && !self.works_on_for(elected) {
                return self.stop(StopReason::NotNamed(moved_away(elected, slot)));
            }
            // It leads on from a session that is over, and has been given another slot on
            // the new one: it can have only one.
            if let Some(other) = own.filter(|b| **b != held.grant.ballot).and_then(|b| elected.slot_of(b)) {
                return self.stop(StopReason::NotNamed(moved_away(elected, other)));
            }
        }
        let waits = self.office.retry_at.is_some_and(|at| self.now.time < at);
        if held.doubted && held.doubt.is_none() && !waits {
            let op = self.perform(Request::Get { path: self.place_path() });
            if let Some(held) = self.held_mut() {
                held.doubt = op;
            }
        }
        if !waits {
            self.repair_place();
        }
    }

    /// Writes the own record anew if somebody's hand has spoiled it: nobody could
    /// decide anything while it can't be read.
    fn repair_place(&mut self) {
        let (State::TakingOver(held) | State::Leading(held)) = &self.office.state else {
            return;
        };
        if held.repair.is_some() {
            return;
        }
        let grant = &held.grant;
        let Some(version) = self.place_is_spoiled(&held.place, &grant.ballot, grant.nomination.term) else {
            return;
        };
        let (nomination, ballot) = (held.grant.nomination.clone(), held.grant.ballot.clone());
        let ready_ms = held.ready_ms;
        let status = if ready_ms.is_some() { Status::Ready } else { Status::Progress };
        if let Some(data) = self.place_data(&nomination, &ballot, status, ready_ms) {
            let path = self.place_path();
            let op = self.perform(Request::Set { path, data, version });
            if let Some(held) = self.held_mut() {
                held.repair = op;
            }
        }
    }

    /// Whether the own place says something else than it should, because of a slip
    /// of somebody's hand, or a late write of a leader that was put out by force;
    /// and in which version.
    pub(super) fn place_is_spoiled(&self, place: &Place, ballot: &Ballot, term: u64) -> Option<i32> {
        let (spoiled, meta) = match self.own_place() {
            Known::Unreadable(_, meta) => (true, meta),
            // It says nothing but a name, and that in somebody else's format.
            Known::Present(..) if !self.announces() => return None,
            Known::Present(current, meta) => (current.ballot != *ballot || current.term != term, meta),
            Known::Unread | Known::Absent => return None,
        };
        (spoiled && meta.czxid == place.czxid).then_some(meta.version)
    }

    pub(super) fn repaired(&mut self, outcome: &Outcome) {
        let Some(held) = self.held_mut() else { return };
        held.repair = None;
        match outcome {
            Outcome::Changed { version, .. } => held.place.version = *version,
            _ => held.doubted = true,
        }
        self.office.retry_at = Some(self.now.time + RETRY);
    }

    pub(in crate::engine) fn held_mut(&mut self) -> Option<&mut Held> {
        match &mut self.office.state {
            State::TakingOver(held) | State::Announcing(held, _) | State::Leading(held) => Some(held),
            _ => None,
        }
    }

    /// A watch has read the place. What it read may be older than an own write, so
    /// a place that seems lost is read once more before anything is stopped.
    pub(in crate::engine) fn office_saw_place(&mut self, slot: usize, node: Option<&Node>) {
        if slot != self.office.slot {
            return;
        }
        let epoch = self.session_epoch();
        if let Some(held) = self.held_mut()
            && Some(held.epoch) == epoch
            && node.is_none_or(|n| n.czxid != held.place.czxid)
        {
            held.doubted = true;
            if !self.rules.keep(Rule::DoubtedFirst) {
                self.stop(StopReason::PlaceLost);
            }
        }
        if let State::Stopping(stopping) = &self.office.state
            && Some(stopping.epoch) == epoch
            && let Hold::Place(place) = stopping.hold
            && node.is_none_or(|n| n.czxid > place.czxid)
            && !stopping.reason.is_urgent()
        {
            self.hasten(StopReason::PlaceLost);
        }
    }

    pub(in crate::engine) fn hasten(&mut self, reason: StopReason) {
        if let State::Stopping(stopping) = &mut self.office.state
            && !stopping.reason.is_urgent()
        {
            stopping.hold = Hold::Nothing;
            stopping.reason = reason.clone();
            self.actions.push_back(Action::Stop(reason));
        }
    }

    /// A stop that was begun at leisure has no leisure left once the lease is not
    /// renewed any more. The place stays this member's to delete.
    pub(in crate::engine) fn hasten_at_lease_end(&mut self) {
        let due = self.lease_ends_first().is_some_and(|until| self.now.time + self.stop_budget() >= until);
        if let State::Stopping(stopping) = &mut self.office.state
            && due
            && !stopping.reason.is_urgent()
        {
            stopping.reason = StopReason::LeaseEnds;
            self.actions.push_back(Action::Stop(StopReason::LeaseEnds));
        }
    }

    pub(in crate::engine) fn stop_for_lost_ballot(&mut self) {
        match &self.office.state {
            State::Claiming(_) => self.give_up_claim(StopReason::BallotLost),
            _ if self.office.held().is_some() => self.stop(StopReason::BallotLost),
            _ => {}
        }
    }

    pub(in crate::engine) fn stop(&mut self, reason: StopReason) {
        let Some(held) = self.office.held() else {
            return;
        };
        let hold = match reason {
            StopReason::PlaceLost | StopReason::SessionOver => Hold::Nothing,
            _ => Hold::Place(held.place),
        };
        let stopping = Stopping {
            reason: reason.clone(),
            epoch: held.epoch,
            hold,
            term: held.grant.nomination.term,
            token: Some(held.grant.fencing_token),
        };
        self.announce_later = false;
        if !self.rules.keep(Rule::WorkEndsFirst) {
            self.perform(Request::Delete { path: self.place_path(), version: None });
        }
        self.note(Level::Info, NoteKind::Office, format!("stops leading: {reason}"));
        self.office.state = State::Stopping(stopping);
        self.actions.push_back(Action::Stop(reason));
    }

    pub(in crate::engine) fn record_giving_up(&mut self, cause: Cause, reason: &str) {
        let term = match &self.office.state {
            State::Claiming(claiming) => claiming.nomination.term,
            _ => match self.office.held() {
                Some(held) => held.grant.nomination.term,
                None => return,
            },
        };
        let reason = reason.chars().take(500).collect();
        let cause = cause.in_format(self.config.member.format);
        self.gave_up = Some(GaveUp { term, cause, reason, at_ms: self.now.unix_ms });
    }

    /// Says that it won't take over in this term.
    pub(in crate::engine) fn refuse(&mut self, term: u64, reason: String) {
        let at_ms = self.now.unix_ms;
        self.gave_up = Some(GaveUp { term, cause: Cause::Resigned, reason, at_ms });
    }

    pub(in crate::engine) fn stopped(&mut self) {
        let State::Stopping(stopping) = &self.office.state else {
            return;
        };
        self.note(
            Level::Info,
            NoteKind::Office,
            format!("has stopped what it did for term {}", stopping.term),
        );
        let State::Stopping(stopping) = &self.office.state else {
            return;
        };
        let (epoch, hold, term) = (stopping.epoch, stopping.hold, stopping.term);
        self.let_go(epoch, hold, term);
        self.advance_office();
    }

    /// Nothing runs any more: whatever may stand in `leader/current` is removed.
    pub(super) fn let_go(&mut self, epoch: Epoch, hold: Hold, term: u64) {
        self.standing.leadership_ended();
        let step = match hold {
            _ if self.session_epoch() != Some(epoch) => None,
            Hold::Nothing => None,
            Hold::Creating(op) => Some(ReleaseStep::AwaitCreation(op)),
            Hold::Unsure => Some(self.look_before_release()),
            Hold::Place(place) => {
                // Every znode's versions begin at 0, so the version alone doesn't tell
                // the own place from the next one's. Nor does what was known before a reconnect: in an older copy of
                // the ensemble all numbers are given out again.
                let known = self.own_place().meta().is_some_and(|m| m.czxid == place.czxid) && self.is_sure();
                Some(match self.decision_that_took_nothing(term) {
                    _ if !self.rules.keep(Rule::DeleteOwnOnly) => {
                        ReleaseStep::Delete(None, place.version, None)
                    }
                    _ if known && self.is_contest() => {
                        ReleaseStep::Delete(None, place.version, self.place_count())
                    }
                    Some(decision) if known => ReleaseStep::Delete(None, place.version, Some(decision)),
                    _ => self.look_before_release(),
                })
            }
        };
        self.office.state = step.map_or(State::Standby, |step| State::Releasing(Releasing { epoch, step }));
    }

    /// The version of the decision as it is known, if the own place of term `term` can't
    /// have been taken by force up to that: it takes a term that names nobody.
    fn decision_that_took_nothing(&self, term: u64) -> Option<i32> {
        let Known::Present(elected, meta) = &self.view.elected else {
            return None;
        };
        let slot = self.office.slot;
        let next = elected.term == term + 1 && elected.named(slot).is_some();
        (elected.term_of(slot) == term || next).then_some(meta.version)
    }

    pub(super) fn look_before_release(&self) -> ReleaseStep {
        match self.is_contest() {
            true => ReleaseStep::Look(None, self.place_count()),
            false => ReleaseStep::ReadElected(None),
        }
    }

    /// The creation that was under way when the claim was given up has ended.
    pub(super) fn creation_done(&mut self, outcome: &Outcome) {
        let hold = match outcome {
            Outcome::Created { czxid, .. } => Hold::Place(self.place(*czxid, 0, 0)),
            Outcome::Exists | Outcome::Unknown(_) => Hold::Unsure,
            _ => Hold::Nothing,
        };
        if let State::Stopping(stopping) = &mut self.office.state {
            stopping.hold = hold;
        }
    }

    pub(in crate::engine) fn advance_release(&mut self) {
        let State::Releasing(release) = &self.office.state else {
            return;
        };
        if self.session_epoch() != Some(release.epoch) {
            self.office.state = State::Standby;
            return;
        }
        let path = self.place_path();
        let step = match release.step {
            ReleaseStep::Delete(None, version, decision) => {
                let request = match decision {
                    Some(unchanged_version) => {
                        let paths = &self.config.paths;
                        let unchanged = if self.is_contest() { paths.leader() } else { paths.elected() };
                        Request::DeleteWhile { path, version, unchanged, unchanged_version }
                    }
                    None => Request::Delete { path, version: Some(version) },
                };
                match self.perform(request) {
                    Some(op) => ReleaseStep::Delete(Some(op), version, decision),
                    // Much can happen until the connection is back.
                    None if self.rules.keep(Rule::DeleteOwnOnly) => self.look_before_release(),
                    None => ReleaseStep::Delete(None, version, decision),
                }
            }
            ReleaseStep::ReadElected(None) => {
                ReleaseStep::ReadElected(self.perform(Request::Get { path: self.config.paths.elected() }))
            }
            ReleaseStep::Look(None, decision) => {
                ReleaseStep::Look(self.perform(Request::Get { path }), decision)
            }
            _ => return,
        };
        if let State::Releasing(release) = &mut self.office.state {
            release.step = step;
        }
    }

    pub(in crate::engine) fn announce(&mut self) {
        let State::TakingOver(held) = &self.office.state else {
            return;
        };
        let mut held = held.clone();
        self.announce_later = true;
        // READY must not be written onto another's place.
        let other = held.doubted || self.own_place().meta().is_none_or(|m| m.czxid != held.place.czxid);
        if other && self.rules.keep(Rule::ReadyOnOwnPlace) {
            held.doubted = true;
            self.office.state = State::TakingOver(held);
            return;
        }
        if !self.announces() {
            self.announce_later = false;
            held.ready_ms = Some(self.now.unix_ms);
            self.lead(held);
            return self.know_own_ready();
        }
        let ready = Some(self.now.unix_ms);
        let nomination = held.grant.nomination.clone();
        let Some(data) = self.place_data(&nomination, &held.grant.ballot, Status::Ready, ready) else {
            return;
        };
        let version = if self.rules.keep(Rule::ReadyOnOwnPlace) { held.place.version } else { -1 };
        let request = Request::Set { path: self.place_path(), data, version };
        if let Some(op) = self.perform(request) {
            self.announce_later = false;
            self.office.state = State::Announcing(held, op);
        }
    }

    /// READY could not be written, as the connection was lost: once more.
    pub(in crate::engine) fn announce_again(&mut self) {
        if self.announce_later
            && self.session_is_active()
            && self.office.retry_at.is_none_or(|at| at <= self.now.time)
        {
            self.announce();
        }
    }

    pub(in crate::engine) fn announced(&mut self, outcome: &Outcome) {
        let State::Announcing(held, _) = &self.office.state else {
            return;
        };
        let mut held = held.clone();
        match outcome {
            Outcome::Changed { version, .. } => {
                held.place.version = *version;
                held.ready_ms = Some(self.now.unix_ms);
                self.lead(held);
            }
            Outcome::Missing => {
                self.office.state = State::TakingOver(held);
                self.stop(StopReason::PlaceLost);
            }
            // Stale or unknown: it may have been written. The place is read, and READY
            // written again on top of whatever version stands.
            _ => {
                held.doubted = true;
                self.office.state = State::TakingOver(held);
                self.announce_later = true;
                self.office.retry_at = Some(self.now.time + RETRY);
            }
        }
    }

    fn lead(&mut self, held: Box<Held>) {
        self.office.state = State::Leading(held);
        self.actions.push_back(Action::Lead);
        self.write_history();
    }

    pub(in crate::engine) fn doubt_done(&mut self, outcome: &Outcome) {
        let session = self.session_id();
        let Some(held) = self.held_mut() else { return };
        held.doubt = None;
        match outcome {
            Outcome::Got(Some(node)) if node.owner == session && node.czxid == held.place.czxid => {
                held.doubted = false;
                held.place.version = node.version;
                let node = node.clone();
                self.see_place(self.office.slot, Some(&node));
            }
            Outcome::Got(node) => {
                let node = node.clone();
                self.see_place(self.office.slot, node.as_ref());
                self.stop(StopReason::PlaceLost);
            }
            _ => self.office.retry_at = Some(self.now.time + RETRY),
        }
    }

    pub(in crate::engine) fn release_done(&mut self, outcome: &Outcome) {
        let session = self.session_id();
        let look = self.look_before_release();
        let delete_anyway = !self.rules.keep(Rule::DeleteOwnOnly);
        let is_contest = self.is_contest();
        let State::Releasing(release) = &mut self.office.state else {
            return;
        };
        match (&release.step, outcome) {
            (
                ReleaseStep::AwaitCreation(_),
                Outcome::Created { .. } | Outcome::Exists | Outcome::Unknown(_),
            ) => {
                release.step = look;
            }
            (ReleaseStep::AwaitCreation(_), _) => self.office.state = State::Standby,
            (ReleaseStep::Delete(..), Outcome::Ok | Outcome::Missing) => {
                self.note(Level::Info, NoteKind::Office, "has let go of leadership".to_owned());
                // A watch may have been quicker, and tell of the next one already.
                if self.own_place().meta().is_some_and(|m| m.owner == session) {
                    self.see_place(self.office.slot, None);
                }
                self.office.state = State::Standby;
            }
            // The place is another one than was held: the ensemble went back to an older copy. The contest looks for
            // what this session has left behind, and removes it.
            (ReleaseStep::Delete(_, _, Some(_)), Outcome::Stale) if is_contest => {
                self.office.state = State::Standby;
            }
            (ReleaseStep::Delete(_, version, _), _) => {
                release.step = if delete_anyway { ReleaseStep::Delete(None, *version, None) } else { look };
            }
            (ReleaseStep::ReadElected(_), Outcome::Got(node)) => {
                release.step = ReleaseStep::Look(None, node.as_ref().map(|n| n.version));
                self.see_elected(node.as_ref());
            }
            (ReleaseStep::Look(_, decision), Outcome::Got(Some(node))) if node.owner == session => {
                release.step = ReleaseStep::Delete(None, node.version, *decision);
            }
            (ReleaseStep::Look(..), Outcome::Got(node)) => {
                let node = node.clone();
                self.see_place(self.office.slot, node.as_ref());
                self.office.state = State::Standby;
            }
            (ReleaseStep::Look(..) | ReleaseStep::ReadElected(_), _) => release.step = look,
        }
        self.advance_office();
    }

    pub(in crate::engine) fn write_history(&mut self) {
        let State::Leading(held) = &self.office.state else {
            return;
        };
        let grant = &held.grant;
        let ready_ms = self.now.unix_ms;
        let slot = grant.nomination.slot;
        let elected = self.view.elected.record().filter(|e| e.term_of(slot) == grant.nomination.term);
        let decision = elected.map(|e| e.given(slot));
        let decided_at = decision.as_ref().map_or(held.place.created_ms, |e| e.decided_at_ms);
        let noticed_at = decision.map(|e| e.noticed_at_ms).filter(|at| *at > 0).unwrap_or(decided_at);
        let free_at = held.place.free_ms.max(decided_at);
        let phases = Phases {
            decide_ms: decided_at.saturating_sub(noticed_at),
            release_ms: free_at.saturating_sub(decided_at),
            acquire_ms: held.place.created_ms.saturating_sub(free_at),
            takeover_ms: ready_ms.saturating_sub(held.place.created_ms),
        };
        let entry = HistoryEntry {
            v: VERSION,
            term: grant.nomination.term,
            member: self.config.member.member.clone(),
            ballot: grant.ballot.clone(),
            site: self.config.member.site.clone(),
            slot,
            fencing_token: grant.fencing_token,
            cause: grant.nomination.cause,
            sentence: grant.nomination.sentence.clone(),
            previous: grant.nomination.previous.clone(),
            ready_ms,
            phases,
        };
        let text = format!("leads in term {} (READY, fencing token {})", entry.term, entry.fencing_token);
        let cause = entry.cause;
        if self.announces() {
            self.history.push(entry);
        }
        self.note(Level::Info, NoteKind::Ready { cause, phases }, text);
    }
}
