//! Who is named next: the strategy's ranking, the operator's wish, the exclusions,
//! and the limit on takeovers, made into the next term.

use crate::{
    engine::{
        policy::Policy,
        rules::{Rule, Rules},
    },
    ids::Ballot,
    record::{
        Cause, Control, Elected, Exclusion, MemberRecord, NEWEST, Named, Previous, Request, RequestKind,
        Target, VERSION,
    },
    strategy::{Ranking, Refused, Round, Strategy},
};

/// How many stand in the line of succession: more can hardly vanish at once, and
/// the record is read by every member.
const LINE: usize = 8;

/// What a decision is made from.
pub(super) struct Question<'a> {
    pub(super) unix_ms: u64,
    pub(super) noticed_at_ms: u64,
    pub(super) decider: &'a str,
    pub(super) policy: &'a Policy,
    pub(super) strategy: &'a dyn Strategy,
    pub(super) members: &'a [MemberRecord],
    pub(super) control: &'a Control,
    pub(super) elected: Option<&'a Elected>,
    /// Who holds `leader/current`.
    pub(super) holder: Option<&'a Ballot>,
    /// The newest format that whoever decides writes.
    pub(super) newest: u32,
    pub(super) rules: Rules,
}

/// Why nobody is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Undecided {
    /// No member may lead.
    Nobody(String),
    /// The operator's target may not lead, or is not there.
    TargetUnfit(String),
    /// Too many takeovers in the window: held until then.
    Held {
        /// The sentence.
        sentence: String,
        /// When the window has room again, in milliseconds since the Unix epoch.
        until_ms: u64,
    },
    /// Somebody better may be about to join.
    WorthWaiting(String),
}

/// An operator's request by its name.
pub(super) type Ordered<'a> = Option<(&'a str, &'a Request)>;

impl Question<'_> {
    /// Names the next leader.
    pub(super) fn decide(
        &self,
        cause: Cause,
        what: &str,
        exclude: impl IntoIterator<Item = Exclusion>,
        ordered: Ordered<'_>,
    ) -> Result<Elected, Undecided> {
        if ordered.is_none() && !self.is_vacated() {
            self.check_limit(cause)?;
        }
        let mut exclusions = self.living_exclusions();
        let kept = exclude.into_iter().filter(|_| self.rules.keep(Rule::ExclusionsInDecision));
        for exclusion in kept {
            exclusions.retain(|e| e.ballot != exclusion.ballot);
            exclusions.push(exclusion);
        }
        let (ranking, exclusions, dropped) = self.rank(cause, exclusions, self.leaving(ordered).as_ref());
        let wanted = ordered.map_or(Target::Any, |(_, request)| request.to.clone());
        let chosen = ranking.order.iter().find(|r| fits(&wanted, &r.named));
        let Some(chosen) = chosen else {
            return Err(match wanted {
                Target::Any => Undecided::Nobody(nobody(&ranking)),
                wanted => Undecided::TargetUnfit(unfit(&wanted, &ranking)),
            });
        };
        if let (Cause::Startup, Some(better)) = (cause, &ranking.worth_waiting) {
            return Err(Undecided::WorthWaiting(better.clone()));
        }
        let mut sentence = format!("{what}: {} of site {} leads", chosen.named.member, chosen.named.site);
        if !chosen.reasons.is_empty() {
            sentence = format!("{sentence} ({})", chosen.reasons.join("; "));
        }
        if dropped {
            sentence.push_str("; the exclusions were dropped, for nobody else was left");
        }
        Ok(self.name(cause, sentence, &chosen.named, exclusions, ordered))
    }

    /// Takes the place from a leader that won't let go: nobody is named, and the
    /// leader's ballot is excluded.
    pub(super) fn vacate(&self, holder: &Named, ordered: Ordered<'_>) -> Elected {
        let mut exclusions = self.living_exclusions();
        exclusions.retain(|e| e.ballot != holder.ballot);
        let reason = "its place was taken by force".to_owned();
        exclusions.push(self.exclusion(holder, reason));
        let sentence = format!("{} is put out of office by force", holder.member);
        self.vacated(Cause::Failover, sentence, holder, exclusions, ordered)
    }

    /// Names another one than `holder`, whom enough members have lost: at once if the
    /// place is free, else by vacating it first. Not if that would leave nobody.
    pub(super) fn depose(
        &self,
        holder: &Named,
        what: &str,
        suspects: &[Named],
        in_office: bool,
    ) -> Result<Elected, Undecided> {
        let reason = || "enough members could not reach it".to_owned();
        let exclusions = suspects.iter().map(|named| self.exclusion(named, reason()));
        let decided = self.decide(Cause::Suspected, what, exclusions, None)?;
        // The exclusions were dropped: it is the last who may lead.
        if decided.excluded(&holder.ballot, self.unix_ms).is_none() || decided.named() == Some(holder) {
            return Err(Undecided::Nobody("nobody else may lead".to_owned()));
        }
        if !in_office {
            return Ok(decided);
        }
        let sentence = format!("{what}: it is put out of office");
        Ok(self.vacated(Cause::Suspected, sentence, holder, decided.exclusions, None))
    }

    fn vacated(
        &self,
        cause: Cause,
        sentence: String,
        holder: &Named,
        exclusions: Vec<Exclusion>,
        ordered: Ordered<'_>,
    ) -> Elected {
        let mut elected = self.next_term(cause, sentence, exclusions, ordered);
        elected.previous = Some(holder.as_previous());
        elected
    }

    /// The place is being vacated: naming the next belongs to the takeover that began
    /// with that, so it is neither limited nor counted again.
    fn is_vacated(&self) -> bool {
        self.elected.is_some_and(|e| e.named().is_none())
    }

    /// Names the successor that already stands in office.
    pub(super) fn confirm(&self, successor: &Named) -> Elected {
        let sentence =
            format!("the leader vanished: {} was in line and stands in office already", successor.member);
        self.name(Cause::LeaderLost, sentence, successor, self.living_exclusions(), None)
    }

    /// The same term with the line of succession and the exclusions as they should
    /// be now, if they differ.
    pub(super) fn refresh(&self, elected: &Elected) -> Option<Elected> {
        let leader = elected.named()?;
        let mut exclusions = self.living_exclusions();
        for member in self.members {
            let known = member.gave_up.as_ref().filter(|_| self.rules.keep(Rule::ExclusionsInDecision));
            let Some(gave_up) = known else {
                continue;
            };
            let until_ms = gave_up.at_ms.saturating_add(ms(self.policy.exclusion));
            // Dropped exclusions of the one who is named now must not come back.
            let stands =
                until_ms > self.unix_ms && member.ballot != leader.ballot && gave_up.term < elected.term;
            if stands && !exclusions.iter().any(|e| e.ballot == member.ballot) {
                exclusions.push(Exclusion {
                    member: member.member.clone(),
                    ballot: member.ballot.clone(),
                    until_ms,
                    reason: format!("{}: {}", gave_up.cause, gave_up.reason),
                });
            }
        }
        let succession = self.line(leader, &exclusions);
        // An exclusion that has merely run out goes with the next decision.
        let news = exclusions.iter().any(|e| !elected.exclusions.contains(e));
        if succession == elected.succession && !news {
            return None;
        }
        Some(Elected { succession, exclusions, ..elected.clone() })
    }

    /// Who would lead if an elective move were allowed.
    pub(super) fn rank_elective(&self, incumbent: &Ballot) -> Ranking {
        let exclusions = self.living_exclusions();
        self.strategy.rank(&Round {
            cause: Cause::BetterCandidate,
            unix_ms: self.unix_ms,
            candidates: &self.standing().cloned().collect::<Vec<_>>(),
            incumbent: Some(incumbent),
            failed: None,
            exclusions: &exclusions,
            control: self.control,
        })
    }

    /// An exclusion of `named` from now on.
    pub(super) fn exclusion(&self, named: &Named, reason: String) -> Exclusion {
        Exclusion {
            member: named.member.clone(),
            ballot: named.ballot.clone(),
            until_ms: match self.rules.keep(Rule::ExclusionsEnd) {
                true => self.unix_ms.saturating_add(ms(self.policy.exclusion)),
                false => u64::MAX,
            },
            reason,
        }
    }

    fn living_exclusions(&self) -> Vec<Exclusion> {
        let all = self.elected.map(|e| e.exclusions.as_slice()).unwrap_or_default();
        all.iter().filter(|e| e.until_ms > self.unix_ms).cloned().collect()
    }

    /// Who is to be left out because an operator moves leadership away from it.
    fn leaving(&self, ordered: Ordered<'_>) -> Option<Ballot> {
        ordered?;
        // Who holds the place, not who is named: the one who is named may still be
        // waiting for it, and is then as good a target as anyone.
        self.holder.cloned().or_else(|| self.elected?.named().map(|n| n.ballot.clone()))
    }

    fn rank(
        &self,
        cause: Cause,
        exclusions: Vec<Exclusion>,
        leaving: Option<&Ballot>,
    ) -> (Ranking, Vec<Exclusion>, bool) {
        let candidates: Vec<_> = self.standing().filter(|m| Some(&m.ballot) != leaving).cloned().collect();
        let named = self.elected.and_then(Elected::named);
        let failed = if cause.is_failure() { self.failed() } else { None };
        let incumbent = named
            .filter(|n| !cause.is_failure() && candidates.iter().any(|m| m.ballot == n.ballot))
            .map(|n| n.ballot.clone());
        let rank = |exclusions: &[Exclusion]| {
            self.strategy.rank(&Round {
                cause,
                unix_ms: self.unix_ms,
                candidates: &candidates,
                incumbent: incumbent.as_ref(),
                failed: failed.as_ref(),
                exclusions,
                control: self.control,
            })
        };
        let mut ranking = rank(&exclusions);
        ranking.refused.extend(self.withdrawn());
        let drops = self.rules.keep(Rule::LastCandidate);
        if ranking.order.is_empty() && !exclusions.is_empty() && drops {
            let without = rank(&[]);
            if !without.order.is_empty() {
                return (without, Vec::new(), true);
            }
        }
        (ranking, exclusions, false)
    }

    /// The newest format that all members read.
    pub(super) fn format(&self) -> u32 {
        let all = self.members.iter().map(|m| m.reads);
        all.chain([self.newest]).min().unwrap_or(NEWEST).max(VERSION)
    }

    /// Everyone who may be asked at all.
    fn standing(&self) -> impl Iterator<Item = &MemberRecord> {
        self.members.iter().filter(|m| m.withdrawn.is_none())
    }

    /// Who does not stand, and why.
    fn withdrawn(&self) -> impl Iterator<Item = Refused> {
        self.members.iter().filter_map(|m| {
            let reason = m.withdrawn.as_ref().map(|why| format!("it does not stand: {why}"))?;
            Some(Refused { named: m.named(), stage: "stands".to_owned(), reason })
        })
    }

    fn failed(&self) -> Option<Previous> {
        let elected = self.elected?;
        elected.named().map(Named::as_previous).or_else(|| elected.previous.clone())
    }

    fn name(
        &self,
        cause: Cause,
        sentence: String,
        chosen: &Named,
        exclusions: Vec<Exclusion>,
        ordered: Ordered<'_>,
    ) -> Elected {
        let succession = self.line(chosen, &exclusions);
        let mut next = self.next_term(cause, sentence, exclusions, ordered);
        next.slots = vec![Some(chosen.clone())];
        next.succession = succession;
        next
    }

    fn next_term(
        &self,
        cause: Cause,
        sentence: String,
        exclusions: Vec<Exclusion>,
        ordered: Ordered<'_>,
    ) -> Elected {
        let mut attempts = self.recent_attempts();
        if counts(cause) && ordered.is_none() && !self.is_vacated() {
            attempts.push(self.unix_ms);
        }
        let request = ordered.map(|(name, _)| name.to_owned());
        Elected {
            v: self.format(),
            term: self.elected.map_or(0, |e| e.term) + 1,
            slots: vec![None],
            succession: Vec::new(),
            exclusions,
            attempts,
            token_base: self
                .elected
                .filter(|_| self.rules.keep(Rule::TokenBaseKept))
                .map_or(0, |e| e.token_base),
            cause: cause.in_format(self.format()),
            sentence,
            decided_by: self.decider.to_owned(),
            decided_at_ms: self.unix_ms,
            noticed_at_ms: self.noticed_at_ms,
            last_request: request.clone().or_else(|| self.elected.and_then(|e| e.last_request.clone())),
            request,
            previous: self.failed(),
        }
    }

    /// Who follows if `leader` vanishes, ranked under that assumption.
    fn line(&self, leader: &Named, exclusions: &[Exclusion]) -> Vec<Named> {
        if self.control.mode != crate::record::Mode::Auto {
            return Vec::new();
        }
        let others: Vec<_> = self.standing().filter(|m| m.ballot != leader.ballot).cloned().collect();
        let ranking = self.strategy.rank(&Round {
            cause: Cause::LeaderLost,
            unix_ms: self.unix_ms,
            candidates: &others,
            incumbent: None,
            failed: Some(&leader.as_previous()),
            exclusions,
            control: self.control,
        });
        ranking.order.into_iter().map(|r| r.named).take(LINE).collect()
    }

    fn recent_attempts(&self) -> Vec<u64> {
        let window = ms(self.policy.max_takeovers.within);
        let all = self.elected.map(|e| e.attempts.as_slice()).unwrap_or_default();
        all.iter().copied().filter(|at| at.saturating_add(window) > self.unix_ms).collect()
    }

    fn check_limit(&self, cause: Cause) -> Result<(), Undecided> {
        if !counts(cause) {
            return Ok(());
        }
        check_limit(self.policy, self.elected, self.unix_ms)
    }
}

/// Whether a takeover that nobody ordered may happen at all.
pub(super) fn check_limit(policy: &Policy, elected: Option<&Elected>, unix_ms: u64) -> Result<(), Undecided> {
    let limit = policy.max_takeovers;
    let window = ms(limit.within);
    let all = elected.map(|e| e.attempts.as_slice()).unwrap_or_default();
    let recent = all.iter().filter(|at| at.saturating_add(window) > unix_ms);
    let (count, oldest) = recent.fold((0u32, u64::MAX), |(n, oldest), at| (n + 1, oldest.min(*at)));
    if count < limit.count {
        return Ok(());
    }
    let until_ms = oldest.saturating_add(window);
    Err(Undecided::Held {
        sentence: format!(
            "held: {count} takeovers within {:?}, and max_takeovers allows {}; an operator's failover goes on at once, \
             otherwise the next is in {} s",
            limit.within,
            limit.count,
            until_ms.saturating_sub(unix_ms).div_ceil(1000)
        ),
        until_ms,
    })
}

/// Commits a succession: what a successor writes before it acts.
pub(super) fn succeed(elected: &Elected, me: &Named, unix_ms: u64, policy: &Policy) -> Elected {
    let gone = elected.named();
    let window = ms(policy.max_takeovers.within);
    let mut attempts = elected.attempts.clone();
    attempts.retain(|at| at.saturating_add(window) > unix_ms);
    attempts.push(unix_ms);
    let whom = gone.map_or("the leader".to_owned(), |n| n.member.to_string());
    Elected {
        term: elected.term + 1,
        slots: vec![Some(me.clone())],
        succession: elected.succession.iter().filter(|n| n.ballot != me.ballot).cloned().collect(),
        exclusions: elected.exclusions.iter().filter(|e| e.until_ms > unix_ms).cloned().collect(),
        attempts,
        cause: Cause::LeaderLost,
        sentence: format!("{whom} vanished: {} of site {} leads, being first in line", me.member, me.site),
        decided_by: me.member.to_string(),
        decided_at_ms: unix_ms,
        noticed_at_ms: unix_ms,
        request: None,
        previous: gone.map(Named::as_previous),
        ..elected.clone()
    }
}

/// The cause that a request stands for.
pub(super) const fn cause_of(kind: RequestKind) -> Cause {
    match kind {
        RequestKind::Switchover => Cause::Switchover,
        RequestKind::Failover => Cause::Failover,
    }
}

/// Whether a decision counts against the limit on takeovers: those that nobody ordered.
const fn counts(cause: Cause) -> bool {
    !matches!(
        cause,
        Cause::Startup | Cause::MemberJoined | Cause::Switchover | Cause::Failover | Cause::TokensRaised
    )
}

fn fits(wanted: &Target, named: &Named) -> bool {
    match wanted {
        Target::Any => true,
        Target::Member(member) => named.member == *member,
        Target::Site(site) => named.site == *site,
    }
}

fn nobody(ranking: &Ranking) -> String {
    if ranking.refused.is_empty() {
        return "no member is there to lead".to_owned();
    }
    let all: Vec<_> = ranking.refused.iter().map(|r| format!("{}: {}", r.named.member, r.reason)).collect();
    format!("no member may lead ({})", all.join("; "))
}

fn unfit(wanted: &Target, ranking: &Ranking) -> String {
    let refused: Vec<_> = ranking
        .refused
        .iter()
        .filter(|r| fits(wanted, &r.named))
        .map(|r| format!("{}: {}", r.named.member, r.reason))
        .collect();
    let what = match wanted {
        Target::Any => "anyone".to_owned(),
        Target::Member(member) => format!("member {member}"),
        Target::Site(site) => format!("site {site}"),
    };
    if refused.is_empty() {
        format!("{what} has nobody who could take over: not there, or leading already")
    } else {
        format!("{what} has nobody who could take over ({})", refused.join("; "))
    }
}

fn ms(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
