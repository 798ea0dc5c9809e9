//! What an evacuation means for one job, by what is read of its election. Pure.

use std::collections::BTreeSet;

use election_core::{
    config::SiteId,
    internals::record::{
        Cause, Elected, Exclusion, MemberRecord, RequestRef, RequestState, Slot, Status, Target,
    },
};

use super::course::StepOutcome;
use crate::{
    commands::drill::checks::{State, check_move},
    config::DrillPlan,
    view::Candidate,
    znodes::{DrillMode, Evacuation, EvacuationLeader, EvacuationStep},
};

/// What is found of a job before an evacuation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SurveyedJob {
    /// It takes part, and its obstacles.
    Step(Box<EvacuationStep>, Vec<String>),
    /// It is left out, and why.
    LeftOut(String),
    /// The site is nothing to it.
    Elsewhere,
}

/// What is done about a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextMove {
    /// A request moves the job to this site.
    Move(SiteId),
    /// There is nothing to move, or no way.
    Settle(StepOutcome),
    /// A change of leadership is under way, and this is it.
    Wait(String),
}

/// What this evacuation, which has no step yet, means for a job. `is_known`: whether the policy has the site.
pub(crate) fn survey(plan: &Evacuation, state: &State, is_known: bool) -> SurveyedJob {
    let cluster = &state.cluster;
    let has_members = cluster.members.iter().any(|member| member.site == plan.site);
    let leader = leader(state).map(|(leader, _)| leader);
    if !is_known && !has_members && leader.as_ref().is_none_or(|leader| leader.site != plan.site) {
        return SurveyedJob::Elsewhere;
    }
    if cluster.members.is_empty() && leader.is_none() {
        return SurveyedJob::LeftOut("it has no member and no leader".to_owned());
    }
    if cluster.recipe != "elector" {
        return SurveyedJob::LeftOut(format!(
            "the recipe {:?} has no elector: stop its workers there",
            cluster.recipe
        ));
    }
    if cluster.slots.len() > 1 {
        let leaders = cluster.slots.len();
        return SurveyedJob::LeftOut(format!("it has {leaders} leaders: drain the site for it"));
    }
    let job = cluster.election.as_str();
    let mut step = Box::new(EvacuationStep::new(job, BTreeSet::new()));
    step.from.clone_from(&leader);
    if leader.is_some_and(|leader| leader.site != plan.site) {
        return SurveyedJob::Step(step, Vec::new());
    }
    let mut obstacles = Vec::new();
    match successor(plan, state) {
        Ok(next) => step.predicted = Some(next),
        Err(why) => obstacles.push(why),
    }
    if !plan.force {
        let to = plan.to_site.clone().map_or(Target::Any, Target::Site);
        let checks = check_move(state, &DrillPlan::unplanned(job.to_owned(), DrillMode::Switchover, to));
        let failed = checks.into_iter().filter(|check| !check.passed);
        obstacles.splice(0..0, failed.map(|check| check.sentence));
    }
    SurveyedJob::Step(step, obstacles)
}

/// What is done about a step that is due.
pub(crate) fn next(plan: &Evacuation, step: &EvacuationStep, state: &State) -> NextMove {
    let origin = step.from.as_ref().filter(|from| from.site == plan.site);
    if plan.undo && origin.is_none() {
        let leader = leader(state).map(|(leader, _)| leader);
        return NextMove::Settle(StepOutcome::Needless(leader, "it was not moved".to_owned()));
    }
    let is_there = |site: &SiteId| (*site == plan.site) == plan.undo;
    let is_coming = named(state).is_some_and(is_there);
    match leader(state) {
        Some((leader, true)) if is_there(&leader.site) => {
            let why = format!("{} of site {} leads already", leader.member, leader.site);
            NextMove::Settle(StepOutcome::Needless(Some(leader), why))
        }
        // A lost leader does not hand over.
        Some((leader, _)) if is_coming && !(plan.is_forced() && leader.site == plan.site) => {
            NextMove::Wait(format!("a handover of {} is under way", leader.member))
        }
        None if is_coming => NextMove::Wait("a takeover is under way".to_owned()),
        // No member of the site may lead before the site is open.
        _ if plan.undo && step.drained => NextMove::Move(plan.site.clone()),
        Some((leader, false)) if !plan.is_forced() => {
            NextMove::Wait(format!("{} is not READY", leader.member))
        }
        None if !plan.is_forced() => NextMove::Wait("no member leads".to_owned()),
        _ if plan.undo => NextMove::Move(plan.site.clone()),
        _ => match successor(plan, state) {
            Ok(next) => NextMove::Move(next.site),
            Err(why) => NextMove::Settle(StepOutcome::Failed(why)),
        },
    }
}

/// The outcome of a step whose request has ended, or is gone: by who leads, whatever became of the request. `None` while a
/// change of leadership to where it should be is under way.
pub(crate) fn arrived(
    plan: &Evacuation,
    step: &EvacuationStep,
    state: &State,
    members: &[MemberRecord],
    why_not: &str,
) -> Option<StepOutcome> {
    let is_there = |site: &SiteId| (*site == plan.site) == step.back;
    let excluded = excluded_since(state, members, step.begun_ms);
    // One that is lost takes part until its session has ended, and one that lives says that it has given up. The servers round
    // the end of a session up to their next tick, and the least timeout is two ticks.
    let lives = |(exclusion, member): &(&Exclusion, &MemberRecord)| {
        let has_said = member.gave_up.as_ref().is_some_and(|gave_up| Some(gave_up.at_ms) >= step.begun_ms);
        let patience_ms = member.session_timeout_ms.saturating_mul(3) / 2;
        has_said || exclusion.since_ms.saturating_add(patience_ms) <= state.unix_ms
    };
    match leader(state) {
        Some((leader, true)) if is_there(&leader.site) => Some(StepOutcome::Leads(leader)),
        _ if named(state).is_some_and(is_there) => None,
        _ if !excluded.iter().all(lives) => None,
        // It was lost, before it took over or after; while all servers were silent, for example. That may have been before the
        // site was drained for the job. One that could not take over and lives would not do so the next time either.
        _ if decision(state).is_some_and(|Slot { given, .. }| {
            let is_lost = match given.cause {
                Cause::LeaderLost => true,
                Cause::TakeoverFailed => excluded.is_empty(),
                _ => false,
            };
            is_lost && Some(given.decided_at_ms) >= step.begun_ms
        }) =>
        {
            Some(StepOutcome::Returned(why_not.to_owned()))
        }
        _ => Some(StepOutcome::Failed(why_not.to_owned())),
    }
}

/// Whether a failover is to be decided without an elector: nothing has begun it, or what has begun it was interrupted before a
/// next leader was named.
pub(crate) fn is_to_decide(state: &RequestState, which: &RequestRef, elected: Option<&Elected>) -> bool {
    let slot = elected.and_then(|elected| elected.slots.get(elected.slot_for(which)?));
    match state {
        RequestState::Pending => true,
        RequestState::Accepted { .. } => slot.is_some_and(|slot| slot.named.is_none()),
        _ => false,
    }
}

/// The members that take part and are excluded since this time or later.
fn excluded_since<'a>(
    state: &'a State,
    members: &'a [MemberRecord],
    since_ms: Option<u64>,
) -> Vec<(&'a Exclusion, &'a MemberRecord)> {
    let recent = state.cluster.exclusions.iter().filter(|one| Some(one.since_ms) >= since_ms);
    recent.filter_map(|one| Some((one, members.iter().find(|member| member.ballot == one.ballot)?))).collect()
}

fn decision(state: &State) -> Option<&Slot> {
    state.cluster.slots.first()?.decision.as_ref()
}

/// The site that is to lead by the decision.
fn named(state: &State) -> Option<&SiteId> {
    decision(state)?.named.as_ref().map(|named| &named.site)
}

/// The leader, and whether it is READY and named.
fn leader(state: &State) -> Option<(EvacuationLeader, bool)> {
    let slot = state.cluster.slots.first()?;
    let leader = slot.leader.as_ref()?;
    let named = slot.decision.as_ref().and_then(|decision| decision.named.as_ref());
    let is_settled =
        leader.status == Status::Ready && named.is_some_and(|named| named.ballot == leader.ballot);
    Some((EvacuationLeader { member: leader.member.clone(), site: leader.site.clone() }, is_settled))
}

/// Who would lead then.
fn successor(plan: &Evacuation, state: &State) -> Result<EvacuationLeader, String> {
    let Some(slot) = state.explained.slots.first() else { return Err("no member takes part".to_owned()) };
    let others = match plan.force {
        true if slot.if_lost.is_empty() => &slot.candidates,
        true => &slot.if_lost,
        false if slot.switchover.is_empty() => &slot.if_lost,
        false => &slot.switchover,
    };
    let is_target = |candidate: &&Candidate| {
        candidate.site != plan.site && plan.to_site.as_ref().is_none_or(|to| candidate.site == *to)
    };
    let mut why_not = Vec::new();
    for candidate in others.iter().filter(is_target) {
        if candidate.rank.is_some() {
            return Ok(EvacuationLeader { member: candidate.member.clone(), site: candidate.site.clone() });
        }
        let reason = candidate.reasons.first().map_or("", String::as_str);
        why_not.push(format!("{}: {reason}", candidate.member));
    }
    let place = plan.to_site.as_ref().map_or("another site".to_owned(), |to| format!("site {to}"));
    let why_not = if why_not.is_empty() { "none is there".to_owned() } else { why_not.join("; ") };
    Err(format!("no member of {place} may take over: {why_not}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

    use election_core::strategy::Ballot;

    use super::*;
    use crate::{
        commands::drill::checks::tests::state,
        view::{NOW_MS, sample},
    };

    fn outcome(named: &str, cause: Cause, decided_at_ms: u64) -> Option<StepOutcome> {
        outcome_without(named, cause, decided_at_ms, None)
    }

    /// The outcome for a job with this decision, in the middle of its move. east-1 leads, READY. One may be excluded since then, and
    /// may have said then that it has given up.
    fn outcome_without(
        named: &str,
        cause: Cause,
        decided_at_ms: u64,
        excluded: Option<(&str, u64, Option<u64>)>,
    ) -> Option<StepOutcome> {
        let mut plan = Evacuation::new("east".parse().unwrap(), "ann", NOW_MS - 70_000);
        plan.steps = vec![EvacuationStep::new("orders", BTreeSet::new())];
        plan.begin(0, NOW_MS - 60_000);
        let mut snapshot = sample(&["east-1", "west-1"]);
        let member = snapshot.members.iter().find(|member| member.member.as_str() == named).unwrap().named();
        let record = &mut snapshot.elected.as_mut().unwrap().record;
        record.exclusions = excluded
            .map(|(ballot, since_ms, _)| {
                let ballot = Ballot::new(ballot).unwrap();
                let until_ms = NOW_MS + 60_000;
                let mut one = Exclusion::new("west-1".parse().unwrap(), ballot, until_ms, String::new());
                one.since_ms = since_ms;
                one
            })
            .into_iter()
            .collect();
        let slot = &mut record.slots[0];
        slot.named = Some(member);
        (slot.given.cause, slot.given.decided_at_ms) = (cause, decided_at_ms);
        for member in &mut snapshot.members {
            member.session_timeout_ms = 12_000;
            let at_ms = excluded.and_then(|(.., gave_up_ms)| gave_up_ms);
            member.gave_up = at_ms.filter(|_| member.member.as_str() == "west-1").map(|at_ms| {
                let said =
                    serde_json::json!({ "term": 3, "cause": "takeover-failed", "reason": "", "at_ms": at_ms });
                serde_json::from_value(said).unwrap()
            });
        }
        let members = snapshot.members.clone();
        arrived(&plan, &plan.steps[0], &state(snapshot, &[]), &members, "why not")
    }

    #[test]
    fn a_job_that_returns_because_its_next_leader_was_lost_is_told_from_one_that_stays() {
        let why = || "why not".to_owned();
        assert_eq!(outcome("west-1", Cause::Switchover, NOW_MS), None);
        // Whether it was lost before its session ended, and whether it led, is the same.
        for cause in [Cause::LeaderLost, Cause::TakeoverFailed] {
            assert_eq!(outcome("east-1", cause, NOW_MS), Some(StepOutcome::Returned(why())));
        }
        let failed = |ballot, since_ms, gave_up_ms| {
            let excluded = Some((ballot, since_ms, gave_up_ms));
            outcome_without("east-1", Cause::TakeoverFailed, NOW_MS, excluded)
        };
        let (west, lives) = ("x-0000000002", Some(StepOutcome::Failed(why())));
        for since_ms in [NOW_MS, NOW_MS - 17_999] {
            assert_eq!(failed(west, since_ms, None), None, "its session may not have ended yet");
        }
        assert_eq!(failed(west, NOW_MS, Some(NOW_MS - 65_000)), None, "it gave up another leadership before");
        assert_eq!(failed(west, NOW_MS, Some(NOW_MS)), lives, "it says so");
        assert_eq!(failed(west, NOW_MS - 18_000, None), lives, "its session would have ended");
        for (other, since_ms) in [("x-0000000009", NOW_MS), (west, NOW_MS - 65_000)] {
            let outcome = failed(other, since_ms, None);
            assert_eq!(outcome, Some(StepOutcome::Returned(why())), "it is gone, or another matter");
        }
        for (cause, at_ms) in [(Cause::LeaderLost, NOW_MS - 65_000), (Cause::CalledOff, NOW_MS)] {
            assert_eq!(outcome("east-1", cause, at_ms), Some(StepOutcome::Failed(why())));
        }
    }

    #[test]
    fn a_job_that_nobody_runs_is_left_out() {
        let plan = Evacuation::new("east".parse().unwrap(), "ann", NOW_MS);
        let mut snapshot = sample(&["east-1"]);
        snapshot.members.clear();
        assert!(matches!(survey(&plan, &state(snapshot.clone(), &[]), true), SurveyedJob::Step(..)), "it is led");
        snapshot.leader_znodes = vec![None];
        let left_out = SurveyedJob::LeftOut("it has no member and no leader".to_owned());
        assert_eq!(survey(&plan, &state(snapshot, &[]), true), left_out);
    }

    #[test]
    fn a_failover_that_was_interrupted_before_it_named_a_leader_is_decided() {
        let which = RequestRef { czxid: 7, name: "r-1".to_owned() };
        let mut elected = sample(&["east-1", "west-1"]).elected.unwrap().record;
        let accepted = RequestState::Accepted { term: elected.term };
        assert!(is_to_decide(&RequestState::Pending, &which, None));
        elected.slots[0].named = None;
        assert!(!is_to_decide(&accepted, &which, Some(&elected)), "a later decision");
        elected.slots[0].given.request = Some(which.clone());
        assert!(is_to_decide(&accepted, &which, Some(&elected)));
        elected.slots[0].named = Some(sample(&["west-1"]).members[0].named());
        assert!(!is_to_decide(&accepted, &which, Some(&elected)));
    }

    #[test]
    fn a_site_is_opened_first_for_a_job_that_nobody_may_lead() {
        let mut plan = Evacuation::new("east".parse().unwrap(), "ann", NOW_MS);
        let mut step = EvacuationStep::new("orders", BTreeSet::new());
        step.from = Some(EvacuationLeader { member: "east-1".parse().unwrap(), site: plan.site.clone() });
        (plan.undo, step.drained) = (true, true);
        let mut snapshot = sample(&["east-1"]);
        snapshot.leader_znodes = vec![None];
        snapshot.elected.as_mut().unwrap().record.slots[0].named = None;
        let state = state(snapshot, &[]);
        assert_eq!(next(&plan, &step, &state), NextMove::Move(plan.site.clone()));
        step.drained = false;
        assert_eq!(next(&plan, &step, &state), NextMove::Wait("no member leads".to_owned()));
    }
}
