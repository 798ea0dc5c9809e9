//! What an evacuation means for one job, by what is read of its election. Pure.

use std::{collections::BTreeSet, time::Duration};

use election_core::{
    config::SiteId,
    internals::record::{
        Cause, Elected, Exclusion, MemberRecord, Named, RequestRef, RequestState, Slot, Status, Target,
    },
    strategy::in_words,
};

use super::course::{SLACK_MS, StepOutcome};
use crate::{
    commands::drill::checks::{State, check_move},
    config::DrillPlan,
    view::{Candidate, Member},
    znodes::{DrillMode, Evacuation, EvacuationLeader, EvacuationStep, Halted, HaltedProgram},
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

/// What is done about a step that is due. `is_known`: whether the view of the election is by the policy of its members. If not,
/// the job goes where it was expected to go, while that member is there.
pub(crate) fn next(plan: &Evacuation, step: &EvacuationStep, state: &State, is_known: bool) -> NextMove {
    let origin = step.from.as_ref().filter(|from| from.site == plan.site);
    if plan.undo && origin.is_none() {
        let leader = leader(state).map(|(leader, _)| leader);
        return NextMove::Settle(StepOutcome::Needless(leader, "it was not moved".to_owned()));
    }
    let is_there = |site: &SiteId| (*site == plan.site) == plan.undo;
    let coming = named(state).filter(|site| is_there(site));
    let is_coming = coming.is_some();
    let takes_part = |next: &&EvacuationLeader| {
        let is_it = |member: &Member| member.member == next.member && member.site == next.site;
        state.cluster.members.iter().any(is_it)
    };
    let expected = step.predicted.as_ref().filter(|_| !is_known).filter(takes_part).map(|next| &next.site);
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
        // It has followed another job, and the lost leader has not given its place up.
        _ => match coming
            .or(expected)
            .cloned()
            .map_or_else(|| successor(plan, state).map(|next| next.site), Ok)
        {
            Ok(site) => NextMove::Move(site),
            // A member whose session has just ended joins again.
            Err(why) if state.cluster.members.iter().all(|member| member.site == plan.site) => {
                NextMove::Wait(why)
            }
            Err(why) => NextMove::Settle(StepOutcome::Failed(why)),
        },
    }
}

/// The outcome of a step whose request has ended, or is gone: by who leads, whatever became of the request. `None` while a
/// change of leadership to where it should be is under way, or the program there has not started. `program`: what the leader's
/// does.
pub(crate) fn arrived(
    plan: &Evacuation,
    step: &EvacuationStep,
    state: &State,
    members: &[MemberRecord],
    program: Option<&Halted>,
    why_not: &str,
) -> Option<StepOutcome> {
    let is_there = |site: &SiteId| (*site == plan.site) == step.back;
    let excluded = excluded_since(state, members, step.begun_ms);
    // One that is lost takes part until its session has ended, and one that lives says that it has given up. The servers round
    // the end of a session up to their next tick, and the least timeout is two ticks.
    let lives = |(exclusion, member): &(&Exclusion, &MemberRecord)| {
        let has_said = member.gave_up.as_ref().is_some_and(|gave_up| Some(gave_up.term) > step.term);
        let patience_ms = (member.session_timeout_ms.saturating_mul(3) / 2).saturating_add(SLACK_MS);
        has_said || exclusion.since_ms.saturating_add(patience_ms) <= state.unix_ms
    };
    match leader(state) {
        Some((leader, true)) if is_there(&leader.site) => {
            (!is_without_program(state, program)).then_some(StepOutcome::Leads(leader))
        }
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
            is_lost && Some(given.decided_in()) > step.term
        }) =>
        {
            Some(StepOutcome::Returned(why_not.to_owned()))
        }
        _ => Some(StepOutcome::Failed(why_not.to_owned())),
    }
}

/// The outcome of a step that has not [arrived] in time.
pub(crate) fn late(
    plan: &Evacuation,
    step: &EvacuationStep,
    state: &State,
    within: Duration,
    why_not: &str,
) -> StepOutcome {
    let is_there = |site: &SiteId| (*site == plan.site) == step.back;
    let (named, within) = (decision(state).and_then(|slot| slot.named.as_ref()), in_words(within));
    let is_ready = leader(state).is_some_and(|(leader, is_settled)| is_settled && is_there(&leader.site));
    StepOutcome::Failed(match named.filter(|named| is_there(&named.site)) {
        Some(Named { member, site, .. }) if is_ready => {
            format!("{member} of site {site} leads, and its program has not started within {within}")
        }
        Some(Named { member, site, .. }) => format!("{member} of site {site} is not READY within {within}"),
        None => why_not.to_owned(),
    })
}

/// Whether the leader's program waits for a job that it comes after. One that an operator has stopped waits for nothing.
fn is_without_program(state: &State, program: Option<&Halted>) -> bool {
    let leader = state.cluster.slots.first().and_then(|slot| slot.leader.as_ref());
    let program = program.filter(|program| leader.is_some_and(|leader| leader.term == program.term));
    let waits =
        |program: &Halted| matches!(program.program, HaltedProgram::Starting | HaltedProgram::Stopped);
    state.cluster.stopped.is_none() && program.is_some_and(waits)
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

/// The members that take part and are excluded since this time or later. The elector has noted it by another clock.
fn excluded_since<'a>(
    state: &'a State,
    members: &'a [MemberRecord],
    since_ms: Option<u64>,
) -> Vec<(&'a Exclusion, &'a MemberRecord)> {
    let is_recent = |one: &&Exclusion| Some(one.since_ms.saturating_add(SLACK_MS)) >= since_ms;
    let recent = state.cluster.exclusions.iter().filter(is_recent);
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

    /// The term of the decision when the move began.
    const TERM: u64 = 4;

    fn outcome(named: &str, cause: Cause, term: u64) -> Option<StepOutcome> {
        outcome_without(named, cause, term, None)
    }

    /// The outcome for a job with this decision, in the middle of its move. east-1 leads, READY. One may be excluded since then, and
    /// may have said then that it has given up.
    fn outcome_without(
        named: &str,
        cause: Cause,
        term: u64,
        excluded: Option<(&str, u64, Option<u64>)>,
    ) -> Option<StepOutcome> {
        let mut plan = Evacuation::new("east".parse().unwrap(), "ann", NOW_MS - 70_000);
        plan.steps = vec![EvacuationStep::new("orders", BTreeSet::new())];
        plan.begin(0, Some(TERM), NOW_MS - 60_000);
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
        // By a clock that is far behind.
        (slot.given.cause, slot.given.term, slot.given.decided_at_ms) = (cause, term, 1);
        for member in &mut snapshot.members {
            member.session_timeout_ms = 12_000;
            let term = excluded.and_then(|(.., gave_up)| gave_up);
            member.gave_up = term.filter(|_| member.member.as_str() == "west-1").map(|term| {
                let said =
                    serde_json::json!({ "term": term, "cause": "takeover-failed", "reason": "", "at_ms": 1 });
                serde_json::from_value(said).unwrap()
            });
        }
        let members = snapshot.members.clone();
        arrived(&plan, &plan.steps[0], &state(snapshot, &[]), &members, None, "why not")
    }

    #[test]
    fn a_job_that_returns_because_its_next_leader_was_lost_is_told_from_one_that_stays() {
        let why = || "why not".to_owned();
        assert_eq!(outcome("west-1", Cause::Switchover, TERM + 1), None);
        // Whether it was lost before its session ended, and whether it led, is the same.
        for cause in [Cause::LeaderLost, Cause::TakeoverFailed] {
            assert_eq!(outcome("east-1", cause, TERM + 2), Some(StepOutcome::Returned(why())));
        }
        let failed = |ballot, since_ms, gave_up| {
            outcome_without("east-1", Cause::TakeoverFailed, TERM + 2, Some((ballot, since_ms, gave_up)))
        };
        let (west, lives) = ("x-0000000002", Some(StepOutcome::Failed(why())));
        for since_ms in [NOW_MS, NOW_MS - 18_999] {
            assert_eq!(failed(west, since_ms, None), None, "its session may not have ended yet");
        }
        assert_eq!(failed(west, NOW_MS, Some(TERM)), None, "it gave up another leadership before");
        assert_eq!(failed(west, NOW_MS, Some(TERM + 1)), lives, "it says so");
        assert_eq!(failed(west, NOW_MS - 19_000, None), lives, "its session would have ended");
        assert_eq!(failed(west, NOW_MS - 60_900, None), lives, "the elector's clock may be behind");
        for (other, since_ms) in [("x-0000000009", NOW_MS), (west, NOW_MS - 65_000)] {
            let outcome = failed(other, since_ms, None);
            assert_eq!(outcome, Some(StepOutcome::Returned(why())), "it is gone, or another matter");
        }
        for (cause, term) in [(Cause::LeaderLost, TERM), (Cause::CalledOff, TERM + 2)] {
            assert_eq!(outcome("east-1", cause, term), Some(StepOutcome::Failed(why())));
        }
    }

    #[test]
    fn a_leader_whose_program_waits_has_not_arrived() {
        let plan = Evacuation::new("west".parse().unwrap(), "ann", NOW_MS);
        let step = EvacuationStep::new("orders", BTreeSet::new());
        let snapshot = sample(&["east-1", "west-1"]);
        let term = snapshot.leader_znodes[0].as_ref().unwrap().record.term;
        let mut state = state(snapshot, &[]);
        let arrives = |state: &State, term, program| {
            arrived(&plan, &step, state, &[], Some(&Halted::new(term, program)), "why not").is_some()
        };
        for (program, has_arrived) in [
            (HaltedProgram::Starting, false),
            (HaltedProgram::Stopped, false),
            (HaltedProgram::Stopping, true),
            (HaltedProgram::Runs, true),
        ] {
            assert_eq!(arrives(&state, term, program), has_arrived, "{program:?}");
            assert!(arrives(&state, term + 1, program), "of another term");
        }
        let within = Duration::from_secs(90);
        let why = |state: &State, plan| late(plan, &step, state, within, "why not");
        let failed = |why: &str| StepOutcome::Failed(why.to_owned());
        let unstarted = "east-1 of site east leads, and its program has not started within 1m 30s";
        assert_eq!(why(&state, &plan), failed(unstarted));
        let back = Evacuation { site: "east".parse().unwrap(), ..plan.clone() };
        assert_eq!(why(&state, &back), failed("why not"), "it leads where it did");
        state.cluster.slots[0].leader.as_mut().unwrap().status = Status::Progress;
        assert_eq!(why(&state, &plan), failed("east-1 of site east is not READY within 1m 30s"));
        state.cluster.slots[0].leader.as_mut().unwrap().status = Status::Ready;
        state.cluster.stopped = serde_json::from_str(r#"{"by":"ann","at_ms":1}"#).unwrap();
        assert!(arrives(&state, term, HaltedProgram::Stopped), "an operator has stopped it");
    }

    #[test]
    fn a_job_that_nobody_runs_is_left_out() {
        let plan = Evacuation::new("east".parse().unwrap(), "ann", NOW_MS);
        let mut snapshot = sample(&["east-1"]);
        snapshot.members.clear();
        assert!(
            matches!(survey(&plan, &state(snapshot.clone(), &[]), true), SurveyedJob::Step(..)),
            "it is led"
        );
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
    fn a_lost_leader_is_forced_out_where_the_next_one_is_named_already() {
        let mut plan = Evacuation::new("east".parse().unwrap(), "ann", NOW_MS);
        let step = EvacuationStep::new("orders", BTreeSet::new());
        // west-1 is named, and east-1 has the leader znode.
        let mut snapshot = sample(&["east-1", "west-1"]);
        let named = snapshot.members[1].named();
        snapshot.elected.as_mut().unwrap().record.slots[0].named = Some(named);
        let state = state(snapshot, &[]);
        assert!(matches!(next(&plan, &step, &state, true), NextMove::Wait(_)));
        plan.force = true;
        assert_eq!(next(&plan, &step, &state, true), NextMove::Move("west".parse().unwrap()));
    }

    #[test]
    fn without_the_policy_of_a_job_it_goes_where_it_was_expected_to_go() {
        let plan = Evacuation::new("east".parse().unwrap(), "ann", NOW_MS);
        let mut step = EvacuationStep::new("orders", BTreeSet::new());
        let state = state(sample(&["east-1", "west-1", "north-1"]), &[]);
        let mut to = |expected: Option<(&str, &str)>, is_known| {
            step.predicted = expected.map(|(member, site)| EvacuationLeader {
                member: member.parse().unwrap(),
                site: site.parse().unwrap(),
            });
            match next(&plan, &step, &state, is_known) {
                NextMove::Move(site) => site.to_string(),
                other => panic!("{other:?}"),
            }
        };
        let by_policy = to(None, true);
        let other = if by_policy == "west" { ("north-1", "north") } else { ("west-1", "west") };
        assert_eq!(to(Some(other), true), by_policy);
        assert_eq!(to(Some(other), false), other.1);
        assert_eq!(to(Some(("north-2", "north")), false), by_policy, "it is gone");
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
        assert_eq!(next(&plan, &step, &state, true), NextMove::Move(plan.site.clone()));
        step.drained = false;
        assert_eq!(next(&plan, &step, &state, true), NextMove::Wait("no member leads".to_owned()));
    }
}
