//! From being named, or stepping in, until leadership is entered.

use super::*;

impl Engine {
    pub(in crate::engine) fn claim(
        &mut self,
        nomination: Nomination,
        ballot: Ballot,
        claim: Claim,
        follows: Option<(u64, Ballot)>,
        text: String,
    ) {
        self.note(Level::Info, NoteKind::Office, text);
        self.office.slot = nomination.slot;
        self.office.state = State::Claiming(Box::new(Claiming {
            nomination,
            ballot,
            prepared: Prepared::No,
            claim,
            follows,
            written: None,
        }));
        self.advance_claim();
    }

    pub(in crate::engine) fn advance_claim(&mut self) {
        let State::Claiming(claiming) = &self.office.state else {
            return;
        };
        if self.leaving.is_asked() {
            return self.give_up_claim(StopReason::Leaving);
        }
        let entitled = self.claim_stands(claiming);
        if let Err(why) = entitled {
            return self.give_up_claim(StopReason::NotNamed(why));
        }
        if !self.session_is_active() {
            return;
        }
        if claiming.prepared == Prepared::No && claiming.follows.is_none() {
            let nomination = claiming.nomination.clone();
            self.actions.push_back(Action::Prepare(nomination));
            self.set_prepared(Prepared::Running);
        }
        let State::Claiming(claiming) = &self.office.state else {
            return;
        };
        let nomination = claiming.nomination.clone();
        let current = self.place_path();
        let elected_path = self.config.paths.elected();
        let ballot = claiming.ballot.clone();
        let (claim, request) = match claiming.claim.clone() {
            Claim::ReadElected(None) => {
                (Claim::ReadElected as fn(_) -> _, Request::Get { path: elected_path })
            }
            Claim::ReadPlace(None) => (Claim::ReadPlace as fn(_) -> _, Request::Get { path: current }),
            Claim::Looking(None) => (Claim::Looking as fn(_) -> _, Request::Get { path: current }),
            Claim::Waiting => {
                match self.own_place() {
                    Known::Absent => self.set_claim(Claim::Creating(None)),
                    known
                        if known.meta().is_some_and(|m| m.owner == self.session_id())
                            && self.rules.keep(Rule::AdoptOwnPlace) =>
                    {
                        self.set_claim(Claim::Looking(None));
                    }
                    _ => return,
                }
                return self.advance_claim();
            }
            Claim::Creating(None) => match self.place_data(&nomination, &ballot, Status::Progress, None) {
                Some(data) => {
                    (Claim::Creating as fn(_) -> _, Request::Create { path: current, data, ephemeral: true })
                }
                None => return,
            },
            Claim::Rereading(None, place) => {
                return self.issue(Request::Get { path: elected_path }, |op| Claim::Rereading(op, place));
            }
            Claim::Committing(None, place) => return self.commit(place),
            Claim::Restating(None, place) => {
                match self.place_data(&nomination, &ballot, Status::Progress, None) {
                    Some(data) => {
                        let request = Request::Set { path: current, data, version: place.version };
                        return self.issue(request, |op| Claim::Restating(op, place));
                    }
                    None => return,
                }
            }
            Claim::Entitled(place) => return self.enter(place),
            _ => return,
        };
        self.issue(request, claim);
    }

    pub(in crate::engine) fn issue(&mut self, request: Request, then: impl Fn(Option<OpId>) -> Claim) {
        let op = self.perform(request);
        self.set_claim(then(op));
    }

    /// Whether what is known of the decision still carries the claim.
    pub(in crate::engine) fn claim_stands(&self, claiming: &Claiming) -> Result<(), String> {
        if let Some(carries) = self.contest_carries(claiming) {
            return carries;
        }
        if self.registration.ballot() != Some(&claiming.ballot) {
            return Err("its ballot is gone".to_owned());
        }
        let Some(elected) = self.view.elected.record() else {
            return Ok(());
        };
        let slot = claiming.nomination.slot;
        let named = elected.named(slot).is_some_and(|n| self.is_me(n, &claiming.ballot));
        if named && elected.term_of(slot) == claiming.nomination.term {
            return Ok(());
        }
        if let Some((term, gone)) = &claiming.follows {
            // Named by the elector in this or another term while stepping in: the claim
            // goes on under that.
            if named {
                return Ok(());
            }
            // Nothing was decided of this slot yet, whatever was of others.
            let waits = elected.named(slot).is_some_and(|n| n.ballot == *gone);
            if waits && elected.term_of(slot) == *term && elected.slot_of(&claiming.ballot).is_none() {
                return Ok(());
            }
        }
        Err(moved_away(elected, slot))
    }

    /// The successor's commit, by compare-and-set on the decision that it read.
    pub(in crate::engine) fn commit(&mut self, place: Place) {
        let State::Claiming(claiming) = &self.office.state else {
            return;
        };
        let Known::Present(elected, meta) = &self.view.elected else {
            return self.give_up_claim(StopReason::NotNamed("the decision can't be read".to_owned()));
        };
        let slot = claiming.nomination.slot;
        if elected.named(slot).is_some_and(|n| n.ballot == claiming.ballot) {
            // The elector was quicker, and names this member. As for everyone who is
            // named, the decision is read once more now that the place is held.
            return self.adopt_decision(Claim::Rereading(None, place));
        }
        let me = self.named(&claiming.ballot);
        let remark = match &self.config.recipe {
            Recipe::Elector(strategy) => strategy.remark(&self.attributes(), Cause::LeaderLost),
            _ => None,
        };
        let next = succeed(elected, slot, &me, remark, self.now.unix_ms, &self.config.policy);
        let path = self.config.paths.elected();
        let version = self.rules.version(meta.version);
        match next.encode(&path) {
            Ok(data) => {
                if let State::Claiming(claiming) = &mut self.office.state {
                    // Later than what the place says, if another slot was decided meanwhile.
                    claiming.nomination.term = next.term;
                    claiming.written = Some((Box::new(next), version));
                }
                let request = self.as_candidate(Request::Set { path, data, version });
                self.issue(request, |op| Claim::Committing(op, place));
            }
            Err(error) => self.give_up_claim(StopReason::NotNamed(error.to_string())),
        }
    }

    /// The decision names this member: it goes on under that decision.
    fn adopt_decision(&mut self, then: Claim) {
        let Some(elected) = self.view.elected.record() else {
            return;
        };
        let adopted = nomination(elected, self.office.slot);
        if let State::Claiming(claiming) = &mut self.office.state {
            claiming.claim = match then {
                Claim::Entitled(place) if place.term != adopted.term => Claim::Restating(None, place),
                then => then,
            };
            claiming.nomination = adopted;
            claiming.follows = None;
        }
        self.advance_claim();
    }

    /// Held, entitled and prepared: leadership is entered if the lease is good for the time that stopping needs and an
    /// eighth of the session timeout.
    pub(in crate::engine) fn enter(&mut self, place: Place) {
        let State::Claiming(claiming) = &self.office.state else {
            return;
        };
        // Spoiled by somebody's hand: it is made anew. In a contest it is the same place
        // after that, so it is only written anew, once it is entered.
        if !self.is_contest()
            && self.place_is_spoiled(&place, &claiming.ballot, claiming.nomination.term).is_some()
        {
            self.set_claim(Claim::Looking(None));
            return self.advance_claim();
        }
        if !self.is_sure() {
            return;
        }
        // Preparing may take long, or have no end: is the place still there?
        let other = match self.own_place() {
            Known::Unread => false,
            known => known.meta().is_none_or(|m| m.czxid != place.czxid),
        };
        if other && !self.is_contest() {
            self.set_claim(Claim::Looking(None));
            return self.advance_claim();
        }
        if claiming.prepared != Prepared::Yes {
            return;
        }
        let Some(work_until) = self.work_until() else {
            return;
        };
        // What begins so late would be stopped before it is of any use, unless the lease is renewed in time.
        if self.now.time + self.stop_budget() + self.granted() / 8 >= work_until {
            return;
        }
        // The token rests on the decision. One that can't be read (any more) is
        // waited for.
        let Some(token_base) = self.token_base() else {
            return;
        };
        if self.own_place().meta().is_none_or(|m| m.czxid != place.czxid) {
            self.set_claim(Claim::Looking(None));
            return self.advance_claim();
        }
        let grant = Grant {
            nomination: claiming.nomination.clone(),
            ballot: claiming.ballot.clone(),
            fencing_token: fencing_token(place.czxid, token_base),
            work_until,
        };
        self.memory.saw_token(Some(grant.fencing_token));
        let text = format!(
            "takes over in term {} with fencing token {}",
            grant.nomination.term, grant.fencing_token
        );
        self.note(Level::Info, NoteKind::Office, text);
        self.told_until = Some(work_until);
        self.actions.push_back(Action::WorkUntil(work_until));
        self.actions.push_back(Action::TakeOver(grant.clone()));
        let held = Held {
            grant,
            place,
            epoch: self.epoch(),
            doubt: None,
            doubted: false,
            repair: None,
            ready_ms: None,
        };
        self.office.state = State::TakingOver(Box::new(held));
    }

    /// Whether all that a claim, or a release, rests on was read since the connection was lost. The lease can be back before, and the
    /// ensemble can be a copy in which somebody else is named, or holds the leader znode.
    pub(super) fn is_sure(&self) -> bool {
        let doubts = self.verification.doubts_decision() || self.verification.doubts_place(self.office.slot);
        !doubts && self.contest_is_sure()
    }

    /// What is added to the czxid; there is none where nothing is decided.
    fn token_base(&self) -> Option<u64> {
        if self.is_contest() {
            return Some(0);
        }
        self.view.elected.record().map(|e| e.token_base)
    }

    pub(in crate::engine) fn set_claim(&mut self, claim: Claim) {
        if let State::Claiming(claiming) = &mut self.office.state {
            claiming.claim = claim;
        }
    }

    pub(in crate::engine) fn set_prepared(&mut self, prepared: Prepared) {
        if let State::Claiming(claiming) = &mut self.office.state {
            claiming.prepared = prepared;
            let Nomination { term, cause, .. } = claiming.nomination;
            if (prepared, cause) == (Prepared::Yes, Cause::LeaderShutdown) {
                self.office.prepared_for = Some(term);
            }
        }
    }

    pub(in crate::engine) fn give_up_claim(&mut self, reason: StopReason) {
        let State::Claiming(claiming) = &self.office.state else {
            return;
        };
        let hold = match &claiming.claim {
            Claim::Rereading(_, place)
            | Claim::Committing(_, place)
            | Claim::Restating(_, place)
            | Claim::Entitled(place) => Hold::Place(*place),
            Claim::Creating(Some(op)) => Hold::Creating(*op),
            Claim::Looking(_) => Hold::Unsure,
            Claim::Creating(None) | Claim::Waiting | Claim::ReadElected(_) | Claim::ReadPlace(_) => {
                Hold::Nothing
            }
        };
        let (term, began) = (claiming.nomination.term, claiming.prepared != Prepared::No);
        let epoch = self.epoch();
        self.note(Level::Info, NoteKind::Office, format!("does not take over term {term}: {reason}"));
        if began {
            self.office.state =
                State::Stopping(Stopping { reason: reason.clone(), epoch, hold, term, token: None });
            // What was prepared touches nothing that only a leader may touch, so it has
            // its whole budget, even before there is a lease.
            let budget = self.now.time + self.stop_budget();
            let until = self.work_until().map_or(budget, |lease| lease.max(budget));
            self.told_until = Some(until);
            self.actions.push_back(Action::WorkUntil(until));
            self.actions.push_back(Action::Stop(reason));
        } else {
            self.let_go(epoch, hold, term);
            // Nothing else may happen for long.
            self.advance_release();
        }
    }

    pub(in crate::engine) fn claim_done(&mut self, claim: Claim, outcome: &Outcome) {
        let session = self.session_id();
        let next = match (claim, outcome) {
            (Claim::ReadElected(_), Outcome::Got(node)) => {
                self.see_elected(node.as_ref());
                Claim::ReadPlace(None)
            }
            (Claim::ReadPlace(_), Outcome::Got(node)) => {
                self.see_place(self.office.slot, node.as_ref());
                if node.is_some() {
                    return self.give_up_claim(StopReason::NotNamed("somebody holds the place".to_owned()));
                }
                Claim::Creating(None)
            }
            (Claim::Creating(_), Outcome::Created { czxid, .. }) => {
                let place = self.place(*czxid, 0, self.claimed_term());
                self.know_own_place(*czxid, 0, *czxid);
                self.held_place(place)
            }
            (Claim::Creating(_), Outcome::Exists | Outcome::Unknown(_)) => Claim::Looking(None),
            (Claim::Looking(_), Outcome::Got(node)) if self.is_contest() => {
                return self.contest_looked(node.as_ref());
            }
            (Claim::Looking(_), Outcome::Got(node)) => {
                self.see_place(self.office.slot, node.as_ref());
                match node {
                    None => Claim::Creating(None),
                    Some(node) if self.may_adopt(node, session) => match self.found_own_place(node) {
                        Some(next) => next,
                        None => return,
                    },
                    Some(_) if self.claim_is_uncommitted() => {
                        let why = "somebody else was quicker".to_owned();
                        return self.give_up_claim(StopReason::NotNamed(why));
                    }
                    Some(_) => Claim::Waiting,
                }
            }
            (Claim::Rereading(_, place), Outcome::Got(node)) => {
                self.see_elected(node.as_ref());
                if self.was_refused_over_the_same() {
                    self.registration.list_ballots();
                    self.office.retry_at = Some(self.now.time + RETRY);
                }
                if node.is_none() {
                    let why = "there is no decision any more".to_owned();
                    return self.give_up_claim(StopReason::NotNamed(why));
                }
                // The view has been brought up to date: `claim_stands` judges it.
                if self.claim_is_uncommitted() {
                    Claim::Committing(None, place)
                } else if place.term != self.claimed_term() {
                    Claim::Restating(None, place)
                } else {
                    Claim::Entitled(place)
                }
            }
            (Claim::Committing(_, place), Outcome::Changed { version, mzxid }) => {
                return self.committed(place, *version, *mzxid);
            }
            // Lost the race, or an unknown outcome: what does the decision say?
            (Claim::Committing(_, place), Outcome::Stale | Outcome::Missing | Outcome::Unknown(_)) => {
                if let State::Claiming(claiming) = &mut self.office.state {
                    claiming.written.take_if(|_| *outcome != Outcome::Stale);
                }
                Claim::Rereading(None, place)
            }
            (Claim::Restating(_, place), Outcome::Changed { version, mzxid }) => {
                self.know_own_place(place.czxid, *version, *mzxid);
                Claim::Entitled(Place { version: *version, term: self.claimed_term(), ..place })
            }
            (Claim::Restating(..), Outcome::Stale | Outcome::Missing | Outcome::Unknown(_)) => {
                Claim::Looking(None)
            }
            (claim, Outcome::NotApplied(_) | Outcome::Unknown(_)) => claim.anew(),
            (claim, _) => {
                self.office.retry_at = Some(self.now.time + RETRY);
                claim.anew()
            }
        };
        self.set_claim(next);
        self.advance_office();
    }

    /// Whether the commit was refused over a decision that has not changed: the own ballot may be gone.
    fn was_refused_over_the_same(&self) -> bool {
        let State::Claiming(claiming) = &self.office.state else { return false };
        let over = claiming.written.as_ref().map(|(_, version)| *version);
        over.is_some() && over == self.view.elected.meta().map(|known| known.version)
    }

    pub(in crate::engine) fn claim_is_uncommitted(&self) -> bool {
        matches!(&self.office.state, State::Claiming(c) if c.follows.is_some())
    }

    /// The place was created: the decision is read again, on the same session,
    /// before anything else. A successor has read it and commits.
    pub(in crate::engine) fn held_place(&mut self, place: Place) -> Claim {
        let rule = if self.claim_is_uncommitted() { Rule::Commit } else { Rule::Reread };
        match rule {
            rule if !self.rules.keep(rule) => Claim::Entitled(place),
            Rule::Commit => Claim::Committing(None, place),
            _ => Claim::Rereading(None, place),
        }
    }

    /// The term that is being claimed.
    fn claimed_term(&self) -> u64 {
        match &self.office.state {
            State::Claiming(claiming) => claiming.nomination.term,
            _ => 0,
        }
    }

    pub(in crate::engine) fn place(&self, czxid: i64, version: i32, term: u64) -> Place {
        let created_ms = self.now.unix_ms;
        Place { czxid, version, term, free_ms: self.free_since_ms().unwrap_or(created_ms), created_ms }
    }

    /// What was just written is known before a watch tells it.
    fn know_own_place(&mut self, czxid: i64, version: i32, mzxid: i64) {
        let State::Claiming(claiming) = &self.office.state else {
            return;
        };
        let (nomination, ballot) = (claiming.nomination.clone(), claiming.ballot.clone());
        if let Some(data) = self.place_data(&nomination, &ballot, Status::Progress, None) {
            let owner = self.session_id();
            self.see_place(
                self.office.slot,
                Some(&Node { version, mzxid, ..Node::created(data, czxid, owner) }),
            );
        }
    }

    /// Whether a place that stands there after a lost reply may be this claim's own.
    fn may_adopt(&self, node: &Node, session: i64) -> bool {
        let path = self.place_path();
        let says_so =
            || Current::decode(&path, &node.data).is_ok_and(|c| c.member == self.config.member.member);
        let own = node.owner == session || (!self.rules.keep(Rule::OwnerChecked) && says_so());
        own && self.rules.keep(Rule::AdoptOwnPlace)
    }

    /// A place of this session after a lost reply: the creation was applied. One of
    /// an earlier claim is never adopted, for that claim has ended.
    fn found_own_place(&mut self, node: &Node) -> Option<Claim> {
        let of_term = Current::decode(&self.place_path(), &node.data).ok().map(|c| c.term);
        let claimed = self.claimed_term();
        let place = self.place(node.czxid, node.version, claimed);
        if of_term == Some(claimed) {
            return Some(self.held_place(place));
        }
        self.set_claim(Claim::Entitled(place));
        self.give_up_claim(StopReason::NotNamed("its place is one of an earlier claim".to_owned()));
        None
    }

    fn committed(&mut self, place: Place, version: i32, mzxid: i64) {
        let State::Claiming(claiming) = &mut self.office.state else {
            return;
        };
        // A watch may have been quicker, and have read what came after it already.
        if let (Some((written, _)), Known::Present(_, meta)) = (claiming.written.take(), &self.view.elected)
            && meta.mzxid < mzxid
        {
            let meta = Meta { version, mzxid, ..*meta };
            let text = format!("term {}: {}", written.term, written.sentence);
            self.know_elected(Known::Present(*written, meta));
            self.note(Level::Info, NoteKind::Decided, text);
        }
        let stands = match &self.office.state {
            State::Claiming(claiming) => self.claim_stands(claiming),
            _ => return,
        };
        match stands {
            // Deleted since: what there is now is read.
            Ok(()) if self.view.elected.record().is_none() => {
                self.set_claim(Claim::Rereading(None, place));
                self.advance_claim();
            }
            Ok(()) => self.adopt_decision(Claim::Entitled(place)),
            Err(why) => self.give_up_claim(StopReason::NotNamed(why)),
        }
    }
}

impl Claim {
    /// The same step, to be tried again.
    fn anew(self) -> Self {
        match self {
            Self::ReadElected(_) => Self::ReadElected(None),
            Self::ReadPlace(_) => Self::ReadPlace(None),
            Self::Creating(_) => Self::Creating(None),
            Self::Looking(_) => Self::Looking(None),
            Self::Rereading(_, place) => Self::Rereading(None, place),
            Self::Committing(_, place) => Self::Committing(None, place),
            Self::Restating(_, place) => Self::Restating(None, place),
            other => other,
        }
    }
}
