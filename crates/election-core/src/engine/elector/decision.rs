//! Who is named next: makes the next term from the strategy's ranking, the operator's request, the exclusions, and
//! the limit on takeovers.

use std::time::Duration;

use super::{
    decided::{Decided, NoSlot, Undecided, about, fits, no_candidate},
    limit::counts,
    pass::Question,
};
use crate::{
    ids::Ballot,
    record::{
        Cause, Current, Elected, Exclusion, Given, MemberRecord, Named, Previous, RequestKind, Slot, Target,
        VERSION, limits,
    },
    strategy::{Ranked, Ranking, Round, Trouble, choose},
};

impl Question<'_> {
    /// Names the next leader of the slot.
    pub(crate) fn decide(
        &self,
        what: &str,
        exclude: impl IntoIterator<Item = Exclusion>,
    ) -> Result<Decided, Undecided> {
        // An operator can make a request for any slot of the policy.
        if self.elected.is_none() && self.slot >= self.policy.slots {
            return Err(NoSlot::Unknown { slot: self.slot, slots: self.policy.slots }.into());
        }
        let mut exclusions = self.living_exclusions();
        let fresh: Vec<_> = exclude.into_iter().collect();
        exclusions.retain(|e| fresh.iter().all(|f| f.ballot != e.ballot));
        exclusions.extend(fresh.iter().cloned());
        // An operator moves leadership away from its holder.
        let leaving = self.ordered.and_then(|_| self.holder());
        let (ranking, exclusions, dropped) = self.rank(exclusions, fresh, leaving.as_ref());
        let wanted = self.ordered.map_or(Target::Any, |(_, request)| request.to.clone());
        self.note(self.slot, self.cause, &ranking, leaving.as_ref());
        let limited = self.ordered.is_none() && !self.is_vacated();
        let chosen = ranking.order.iter().find(|r| fits(&wanted, &r.named));
        let held = if limited { self.check_limit(chosen.map(|r| &r.named)).err() } else { None };
        let Some(chosen) = chosen else {
            if let Some(hold) = held {
                return Err(Undecided::Held(hold));
            }
            let mut refused = ranking.refused;
            refused.retain(|refused| fits(&wanted, &refused.named));
            return Err(match wanted {
                Target::Any => Undecided::NoCandidate(refused),
                wanted => Undecided::TargetUnfit(wanted, refused),
            });
        };
        if let (Cause::Startup, Some(better)) = (self.cause, &ranking.worth_waiting) {
            return Err(Undecided::WorthWaiting(better.clone()));
        }
        let mut sentence = format!("{what}: {}", leads(chosen));
        if let Some(dropped) = dropped {
            sentence.push_str(&format!("; {dropped}"));
        }
        let elected = Box::new(self.name(Some(&chosen.named), self.led_before(), sentence, exclusions));
        Ok(Decided { elected, held })
    }

    /// What an operator's request decides. With force, another holder of the leader znode than the named member is removed first:
    /// the first of three steps, each of which any elector can finish. Without force, a leader that lives releases its leader
    /// znode by itself.
    pub(crate) fn decide_ordered(
        &self,
        what: &str,
        holder: Option<&Current>,
    ) -> Result<Box<Elected>, Undecided> {
        let decided = self.decide(what, None)?.elected;
        let holder = holder.filter(|_| self.ordered.is_some_and(|(_, request)| request.force));
        match holder.filter(|c| decided.named(self.slot).is_some_and(|n| n.ballot != c.ballot)) {
            Some(holder) => Ok(Box::new(self.vacate(&holder.named()))),
            None => Ok(decided),
        }
    }

    /// Makes as many slots as the policy wants, and names leaders for all new ones at once: for the very first
    /// decision, and when the policy has changed.
    pub(crate) fn resize(&self, what: &str) -> Result<Decided, Undecided> {
        let exclusions = self.living_exclusions();
        let known = self.elected.map_or(0, |e| e.slots.len());
        let vacant = self.policy.slots.saturating_sub(known);
        let (candidates, others) = (self.candidates(None, None), self.others(None));
        let trouble = self.trouble();
        let round = Round {
            others: &others,
            exclusions: &exclusions,
            trouble: &trouble,
            control: self.control,
            ..Round::new(self.cause, self.now.unix_ms, &candidates)
        };
        let rankings = choose(self.strategy, &round, vacant);
        for (slot, ranking) in (known..).zip(&rankings) {
            self.note(slot, self.cause, ranking, None);
        }
        if let Some(ranking) = rankings.first().filter(|r| self.elected.is_none() && r.order.is_empty()) {
            return Err(Undecided::NoCandidate(ranking.refused.clone()));
        }
        let waits = rankings.iter().find_map(|r| r.worth_waiting.as_ref());
        if let (Cause::Startup, Some(better)) = (self.cause, waits) {
            return Err(Undecided::WorthWaiting(better.clone()));
        }
        let mut sentence = what.to_owned();
        for (slot, ranking) in (known..).zip(&rankings) {
            let who = ranking.first().map_or_else(|| no_candidate(&ranking.refused), leads);
            let separator = if slot == known { ':' } else { ';' };
            match self.policy.slots {
                1 => sentence = format!("{sentence}{separator} {who}"),
                _ => sentence = format!("{sentence}{separator} slot {slot}: {who}"),
            }
        }
        let mut next = self.next_term(exclusions);
        let given = Given { previous: None, ..self.given(&next, sentence) };
        next.slots.truncate(known.min(self.policy.slots));
        let new = rankings.iter().map(|ranking| ranking.first().map(|best| best.named.clone()));
        next.slots.extend(new.map(|named| Slot::new(named, given.clone())));
        Ok(Decided { elected: Box::new(self.with_lines(next)), held: None })
    }

    /// Takes the leader znode from a leader that does not release it: no member is named, and the
    /// leader's ballot is excluded.
    fn vacate(&self, holder: &Named) -> Elected {
        let mut exclusions = self.living_exclusions();
        exclusions.retain(|e| e.ballot != holder.ballot);
        let reason = "its leader znode was taken by force".to_owned();
        exclusions.push(self.exclusion_for(holder, reason, self.policy.exclusion));
        let sentence = format!("{} is removed from the leader znode by force", holder.member);
        let question = Question { cause: Cause::Failover, ..*self };
        question.name(None, Some(holder.as_previous()), sentence, exclusions)
    }

    /// Names another member than `holder`, which enough members have lost: at once if the leader znode is free, else
    /// after vacating it. Does nothing if that would leave no leader.
    pub(crate) fn depose(
        &self,
        holder: &Named,
        what: &str,
        suspects: &[Named],
        is_leading: bool,
    ) -> Result<Decided, Undecided> {
        let reason = || "enough members could not reach it".to_owned();
        let exclusions = suspects.iter().map(|named| self.penalty(named, &reason()));
        let decided = self.decide(what, exclusions)?;
        // The exclusions were dropped: the holder is the last member that may lead.
        let elected = &decided.elected;
        let stays = elected.named(self.slot) == Some(holder);
        if elected.excluded(&holder.ballot, self.now.unix_ms).is_none() || stays {
            return Err(decided.held.map_or(Undecided::NoOther, Undecided::Held));
        }
        if !is_leading {
            return Ok(decided);
        }
        let sentence = format!("{what}: it is removed from the leader znode");
        let exclusions = decided.elected.exclusions;
        let elected = self.name(None, Some(holder.as_previous()), sentence, exclusions);
        Ok(Decided { elected: Box::new(elected), held: decided.held })
    }

    /// Whether the named member was named by an operator's request. Whether the request named that member is not
    /// checked: a member that may lead without a request loses nothing by that.
    fn leads_by_order(&self) -> bool {
        let given = self.elected.and_then(|e| e.given(self.slot));
        given.is_some_and(|given| matches!(given.cause, Cause::Switchover | Cause::Failover))
    }

    /// Who would lead if an elective move were allowed.
    pub(crate) fn rank_elective(&self, incumbent: &Ballot) -> Ranking {
        let this = Question { cause: Cause::BetterCandidate, ..*self };
        let exclusions = self.living_exclusions();
        let candidates = self.candidates(Some(self.slot), None);
        let ranking = self.strategy.rank(&Round {
            incumbent: Some(incumbent),
            ordered: Some(incumbent).filter(|_| self.leads_by_order()),
            previous: self.led_before().as_ref(),
            others: &self.others(Some(self.slot)),
            exclusions: &exclusions,
            trouble: &this.trouble(),
            control: self.control,
            ..Round::new(this.cause, self.now.unix_ms, &candidates)
        });
        self.note(self.slot, this.cause, &ranking, None);
        ranking
    }

    /// The members that a planned switchover to any member would name now, and those that may not lead.
    pub(crate) fn rank_switchover(&self) -> Ranking {
        let this = Question { cause: Cause::Switchover, ..*self };
        this.rank(self.living_exclusions(), Vec::new(), self.holder().as_ref()).0
    }

    /// Names this candidate of a ranking for an elective move, since an order forbids the incumbent to lead.
    pub(crate) fn obey(&self, what: &str, chosen: &Ranked) -> Decided {
        let sentence = format!("{what}: {}", leads(chosen));
        let exclusions = self.living_exclusions();
        let elected = self.name(Some(&chosen.named), self.led_before(), sentence, exclusions);
        Decided { elected: Box::new(elected), held: self.check_obeyed().err() }
    }

    /// An exclusion of `named` from now on, for this duration.
    pub(crate) fn exclusion_for(&self, named: &Named, reason: String, span: Duration) -> Exclusion {
        Exclusion {
            member: named.member.clone(),
            ballot: named.ballot.clone(),
            since_ms: self.now.unix_ms,
            until_ms: self.now.unix_ms.saturating_add(limits::millis(span)),
            reason,
        }
    }

    /// The member that hands the slot over, if an operator moves leadership.
    fn holder(&self) -> Option<Ballot> {
        // The holder of the leader znode, not the member that is named: the named member may still be waiting for the
        // znode, and is then as good a target as any other.
        let holder = self.holders.get(self.slot).copied().flatten();
        holder.or_else(|| self.elected?.named(self.slot).map(|n| &n.ballot)).cloned()
    }

    /// The members that may be asked to lead `slot`, or a new one. A member has one slot at most, and releases the
    /// leader znode of one slot before it gets another.
    fn candidates(&self, slot: Option<usize>, leaving: Option<&Ballot>) -> Vec<MemberRecord> {
        let elsewhere = |ballot: &Ballot| self.slot_taken_by(ballot, slot).is_some();
        let free = |m: &&MemberRecord| Some(&m.ballot) != leaving && !elsewhere(&m.ballot);
        self.standing().filter(free).cloned().collect()
    }

    /// The living leaders of the slots other than `slot`.
    fn others(&self, slot: Option<usize>) -> Vec<Named> {
        let leaders = self.elected.into_iter().flat_map(Elected::leaders);
        let others = leaders.filter(|(other, n)| Some(*other) != slot && self.lives(n));
        others.map(|(_, n)| n.clone()).collect()
    }

    fn rank(
        &self,
        exclusions: Vec<Exclusion>,
        fresh: Vec<Exclusion>,
        leaving: Option<&Ballot>,
    ) -> (Ranking, Vec<Exclusion>, Option<&'static str>) {
        let (slot, cause) = (Some(self.slot), self.cause);
        let (candidates, others) = (self.candidates(slot, leaving), self.others(slot));
        let named = self.elected.and_then(|e| e.named(self.slot));
        let previous = self.led_before();
        let failed = previous.as_ref().filter(|_| cause.is_failure());
        let incumbent = named
            .filter(|n| !cause.is_failure() && candidates.iter().any(|m| m.ballot == n.ballot))
            .map(|n| n.ballot.clone());
        let target = match self.ordered.map(|(_, request)| &request.to) {
            Some(Target::Member(id)) => candidates.iter().find(|m| m.member == *id).map(|m| &m.ballot),
            Some(Target::Site(_) | Target::Any) | None => None,
        };
        let accepts_loss = self.ordered.is_some_and(|(_, request)| request.accept_loss);
        let mut known = self.trouble();
        if let Some((site, _)) = self.overruled() {
            let declared = self.control.failed_sites.iter().any(|failed| failed.site == site);
            known.failed_sites.retain(|failed| failed.site != site || declared);
        }
        let rank = |exclusions: &[Exclusion], trouble: &Trouble| {
            self.strategy.rank(&Round {
                incumbent: incumbent.as_ref(),
                ordered: target,
                accepts_loss,
                failed,
                previous: previous.as_ref(),
                others: &others,
                exclusions,
                trouble,
                control: self.control,
                ..Round::new(cause, self.now.unix_ms, &candidates)
            })
        };
        let mut ranking = rank(&exclusions, &known);
        ranking.refused.extend(self.withdrawn());
        if !ranking.order.is_empty() {
            return (ranking, exclusions, None);
        }
        let open = Trouble { barred_sites: Vec::new(), ..known.clone() };
        let older = "the older exclusions were dropped, because no other member was left";
        let dropped = "the exclusions were dropped, because no other member was left";
        let unbarred = "leadership returned to its site, because no other member was left";
        let attempts = [
            (fresh.clone(), &known, older),
            (Vec::new(), &known, dropped),
            (exclusions.clone(), &open, unbarred),
            (fresh, &open, older),
            (Vec::new(), &open, dropped),
        ];
        let attempts = attempts.into_iter().filter(|(kept, trouble, said)| {
            let drops = *kept != exclusions;
            let opens = **trouble != known;
            (drops || opens) && (*said != older || !kept.is_empty())
        });
        for (kept, trouble, said) in attempts {
            let without = rank(&kept, trouble);
            if !without.order.is_empty() {
                return (without, kept, Some(said));
            }
        }
        (ranking, exclusions, None)
    }

    /// The next term, in which this member is named for the slot, or none.
    fn name(
        &self,
        named: Option<&Named>,
        previous: Option<Previous>,
        sentence: String,
        exclusions: Vec<Exclusion>,
    ) -> Elected {
        let mut next = self.next_term(exclusions);
        let sentence = about(self.slot, next.slots.len(), sentence);
        let given = Given { previous, ..self.given(&next, sentence) };
        let slot = &mut next.slots[self.slot];
        (slot.named, slot.given) = (named.cloned(), given);
        self.with_lines(next)
    }

    /// The decision about this slot in the next term.
    pub(crate) fn given(&self, next: &Elected, sentence: String) -> Given {
        Given {
            noticed_at_ms: self.noticed_at_ms,
            request: self.ordered.map(|(which, _)| which.clone()),
            ..Given::at_once(next.term, self.cause, sentence, self.now.unix_ms, self.led_before())
        }
    }

    /// The next term. All slots are kept as they are, except for what is remembered of this one.
    pub(crate) fn next_term(&self, exclusions: Vec<Exclusion>) -> Elected {
        let mut attempts = self.recent_attempts();
        if counts(self.cause) && self.ordered.is_none() && !self.is_vacated() {
            attempts.push(self.now.unix_ms);
        }
        let obeyed = self.obeyed_after();
        let request = self.ordered.map(|(which, _)| which.czxid);
        let mut next = Elected {
            v: VERSION,
            term: self.elected.map(|e| e.term).or(self.latest.map(|r| r.term)).unwrap_or(0).saturating_add(1),
            slots: self.elected.map(|e| e.slots.clone()).unwrap_or_default(),
            exclusions,
            failures: self.failures_after(),
            site_failures: self.site_failures_after(),
            losses: self.losses_after(),
            acknowledged_at_ms: self.elected.map_or(0, |e| e.acknowledged_at_ms),
            youngest: self.members.iter().map(|m| &m.ballot).max().cloned(),
            token_base: self.elected.map(|e| e.token_base).or(self.latest.map(|r| r.token)).unwrap_or(0),
            decided_by: self.decider.to_owned(),
            // Another slot may have decided a later request meanwhile.
            last_request: request.max(self.decided_up_to),
            // Set when it is written.
            generation: 0,
        };
        // Slots without any information begin with this decision.
        let unknown = "nothing is known of it".to_owned();
        let unknown = Given { request: None, ..self.given(&next, unknown) };
        while next.slots.len() <= self.slot
            || (self.elected.is_none() && next.slots.len() < self.policy.slots)
        {
            next.slots.push(Slot::new(None, unknown.clone()));
        }
        let slot = &mut next.slots[self.slot];
        (slot.attempts, slot.obeyed) = (attempts, obeyed);
        next
    }
}

/// The cause of a decision that carries out such a move.
pub(crate) fn cause_of(kind: RequestKind) -> Cause {
    if kind == RequestKind::Failover { Cause::Failover } else { Cause::Switchover }
}

fn leads(chosen: &Ranked) -> String {
    let Ranked { named, reasons, .. } = chosen;
    match reasons[..] {
        [] => format!("{} of site {} leads", named.member, named.site),
        _ => format!("{} of site {} leads ({})", named.member, named.site, reasons.join("; ")),
    }
}
