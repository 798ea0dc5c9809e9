#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use crate::znodes::DrillOrder;
use election_core::internals::record::{Cause, Target};
use serde_json::{Value, json};

use super::{
    super::{
        course::tests::{id, leader},
        script::Script,
        seen::{Decided, Seen},
    },
    *,
};
use crate::commands::drill::report::tests::sample;

const STARTED: u64 = 1_795_659_300_000;

fn answered(name: &str, steps: &[(DrillState, u64)], outages: &[Value]) -> DrillAnswer {
    let order =
        DrillOrder::new("d-1", DrillMode::Switchover, Vec::new(), "ann", STARTED, Duration::from_secs(60));
    let site = name.split('-').next().unwrap().parse().unwrap();
    let mut answer = DrillAnswer::new(&order, id(name), site, "0.1.0", STARTED + 50);
    for (state, at) in steps {
        answer.add(*state, *at, None);
    }
    answer.probes = Some(
        serde_json::from_value(json!({
            "target": "tcp:1", "interval_ms": 100, "first_ms": 0, "last_ms": 9_000, "count": 90, "failed": 10,
            "longest_gap_ms": 1_300, "outages": outages, "last_success_ms": 9_000,
        }))
        .unwrap(),
    );
    answer
}

fn outage(first: u64, served: Option<u64>) -> Value {
    json!({ "served_until_ms": first - 100, "first_ms": first, "last_ms": first + 900, "served_from_ms": served,
            "count": 10, "reason": "refused" })
}

/// A switchover that has passed, with what its probes saw.
fn switched(answers: Vec<DrillAnswer>, objectives: Objectives, lags: &[(&str, u64)]) -> DrillReport {
    let phases = json!({ "decide_ms": 30, "release_ms": 400, "acquire_ms": 20, "takeover_ms": 780 });
    recorded(0, &phases, answers, objectives, lags)
}

/// The same, recorded with these phases by members whose clocks are ahead.
fn recorded(
    ahead_ms: u64,
    phases: &Value,
    answers: Vec<DrillAnswer>,
    objectives: Objectives,
    lags: &[(&str, u64)],
) -> DrillReport {
    let plan = DrillPlan {
        objectives,
        ..DrillPlan::unplanned("orders".to_owned(), DrillMode::Switchover, Target::Any)
    };
    let mut course = Course::new(Script {
        job: plan.job.clone(),
        mode: plan.mode,
        to: Target::Any,
        from: leader("east-1", 3, true),
        carriers: vec![id("east-1")],
        back: false,
        stay: Duration::ZERO,
        limit: Duration::from_secs(60),
        agree_within: Duration::from_secs(10),
        baseline: Duration::ZERO,
        started_ms: STARTED,
    });
    let agreed = answered("east-1", &[(DrillState::Accepted, 10)], &[]);
    let mut seen = Seen {
        leader: Some(leader("east-1", 3, true)),
        is_conducted: true,
        is_ordered: true,
        answers: vec![agreed],
        members: [id("east-1")].into_iter().collect(),
        lags: lags.iter().map(|(name, s)| (id(name), Duration::from_secs(*s))).collect(),
        ..Seen::default()
    };
    course.see(&seen, Duration::from_secs(1));
    // Without a leader to follow it grows, while the former one may still be seen.
    seen.lags = [(id("west-1"), Duration::from_secs(100))].into_iter().collect();
    course.see(&seen, Duration::from_millis(1_100));
    seen.leader = Some(leader("west-1", 4, true));
    seen.decision = Some(Decided {
        term: 4,
        cause: Cause::Switchover,
        sentence: "west-1 follows east-1".to_owned(),
        by: "east-2".to_owned(),
        noticed_at_ms: STARTED + 1_020 + ahead_ms,
    });
    course.see(&seen, Duration::from_millis(2_300));
    let history = serde_json::from_value(json!({
        "v": 1, "term": 4, "member": "west-1", "ballot": "west-1-0000000004", "site": "west", "fencing_token": 9,
        "cause": "switchover", "sentence": "west-1 follows east-1", "ready_ms": STARTED + 2_250 + ahead_ms,
        "phases": phases,
    }));
    let evidence = Evidence { answers, history: vec![history.unwrap()] };
    let begun = DrillReport {
        outcome: DrillOutcome::Running,
        to: None,
        moves: Vec::new(),
        probes: Vec::new(),
        objectives: Vec::new(),
        ..sample()
    };
    assemble(begun, &course, &evidence, &plan, STARTED + 9_000)
}

fn both(rto: u64, rpo: u64) -> Objectives {
    let rpo = Some(Duration::from_secs(rpo));
    Objectives { rto: Some(Duration::from_secs(rto)), rpo, lag: Some("lag".to_owned()) }
}

#[test]
fn phases_come_from_the_history_and_the_last_one_from_the_probes() {
    let answers = vec![
        answered("west-2", &[], &[outage(1_100, Some(2_400))]),
        answered("east-2", &[], &[outage(1_050, Some(2_210))]),
    ];
    let report = switched(answers, Objectives::default(), &[]);
    let phases: Vec<_> = report.phases.all().into_iter().filter_map(|(_, ms)| ms).collect();
    // 50 ms + 2.4 s of west-2, after 2.25 s.
    assert_eq!(phases, [20, 30, 400, 20, 780, 200]);
}

#[test]
fn objectives_are_judged_by_what_was_measured() {
    let one = || vec![answered("west-2", &[], &[outage(1_100, Some(2_400))])];
    let report = switched(one(), both(30, 5), &[("west-1", 2)]);
    assert_eq!(report.phases.ready_ms, Some(200));
    assert_eq!((report.outcome, report.outage_ms), (DrillOutcome::Passed, Some(1_400)));
    let sentences: Vec<_> = report.objectives.iter().map(|objective| objective.sentence.as_str()).collect();
    assert_eq!(
        sentences,
        [
            "the longest outage that a site saw was 1.4s, and 30s is allowed",
            "lag of west-1 was 2s before, and 5s is allowed"
        ]
    );
    assert_eq!(report.to.as_ref().unwrap().member, id("west-1"));
    assert_eq!(report.moves[0].decided_by, "east-2");

    let missed = switched(one(), both(1, 1), &[("west-1", 2)]);
    assert_eq!(missed.outcome, DrillOutcome::Failed);
    let sentence = "west-1 of site west took over from east-1 of site east; rto missed: the longest outage that a site saw \
                    was 1.4s, and 1s is allowed; rpo missed: lag of west-1 was 2s before, and 1s is allowed";
    assert_eq!(missed.sentence, sentence);
    let unknown = switched(one(), both(30, 5), &[]);
    assert!(unknown.sentence.ends_with("rpo missed: west-1 had no attribute lag with a number of seconds"));
}

#[test]
fn a_site_without_an_answer_at_the_end_is_a_failure() {
    let report = switched(vec![answered("west-2", &[], &[outage(1_100, None)])], Objectives::default(), &[]);
    assert_eq!(report.outcome, DrillOutcome::Failed);
    assert!(
        report.sentence.ends_with("the probes of west-2 of site west got no answer at the end"),
        "{}",
        report.sentence
    );
    let mut never = answered("west-2", &[], &[outage(1_100, None)]);
    never.probes.as_mut().unwrap().last_success_ms = None;
    let report = switched(vec![never], Objectives::default(), &[]);
    assert!(report.sentence.contains("never got an answer from tcp:1"), "{}", report.sentence);
}

#[test]
fn without_probes_the_records_tell_the_outage() {
    let report = switched(Vec::new(), both(30, 5), &[("west-1", 0)]);
    // The old leader works until it is decided.
    assert_eq!((report.outage_ms, report.phases.ready_ms), (Some(1_200), None));
    assert!(report.objectives[0].sentence.starts_with("in the election's records the outage was 1.2s"));
}

#[test]
fn what_clocks_that_do_not_agree_say_is_not_counted() {
    const DAY: u64 = 86_400_000;
    let phases = json!({ "decide_ms": 30, "takeover_ms": 780 });
    let report = recorded(DAY, &phases, Vec::new(), both(30, 5), &[("west-1", 0)]);
    let known: Vec<_> = report.phases.all().into_iter().filter_map(|(name, ms)| Some((name, ms?))).collect();
    assert_eq!(known, [("decide", 30), ("takeover", 780)]);
    // By what this command has seen itself, from the request until the new leader was READY.
    assert_eq!(report.outage_ms, Some(1_300));
    let answers = vec![answered("west-2", &[], &[outage(1_100, Some(2_400))])];
    let probed = recorded(DAY, &phases, answers, Objectives::default(), &[]);
    assert_eq!(probed.phases.ready_ms, Some(150), "from when it was seen READY");
}
