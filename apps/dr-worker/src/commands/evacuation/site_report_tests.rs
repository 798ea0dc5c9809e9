#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeSet;

use super::*;

/// When the drill began.
const BEGAN: u64 = 1_700_000_000_000;

fn leader(member: &str, site: &str) -> Option<EvacuationLeader> {
    Some(EvacuationLeader { member: member.parse().unwrap(), site: site.parse().unwrap() })
}

fn set(jobs: &[&str]) -> BTreeSet<String> {
    jobs.iter().map(|job| (*job).to_owned()).collect()
}

/// A job that was expected on west-1, and came to west-2. Times are those after the beginning.
fn step(job: &str, after: &[&str], begun: u64, ended: u64) -> EvacuationStep {
    EvacuationStep {
        state: EvacuationState::Done,
        tries: 1,
        from: leader("east-1", "east"),
        predicted: leader("west-1", "west"),
        leader: leader("west-2", "west"),
        begun_ms: Some(BEGAN + begun),
        ended_ms: Some(BEGAN + ended),
        ..EvacuationStep::new(job, set(after))
    }
}

fn led(member: &str, ready_ms: u64, took_ms: u64) -> HistoryEntry {
    serde_json::from_value(serde_json::json!({
        "v": 1, "term": 2, "member": member, "ballot": "c-0000000001", "site": "west", "fencing_token": 7,
        "cause": "switchover", "sentence": "", "ready_ms": ready_ms, "phases": { "release_ms": took_ms, "takeover_ms": 50 },
    }))
    .unwrap()
}

fn objectives_of(rto: Option<u64>, rpo: Option<u64>) -> Objectives {
    let seconds = |most: Option<u64>| most.map(Duration::from_secs);
    Objectives { rto: seconds(rto), rpo: seconds(rpo), lag: Some("lag".to_owned()) }
}

/// A database and a cache, and an application after both: after the database also while it runs.
pub(crate) fn sample() -> SiteDrillReport {
    let mut away = Evacuation::new("east".parse().unwrap(), "ann@desk", BEGAN);
    away.reason = Some("quarterly <practice>".to_owned());
    away.steps = vec![
        step("db", &[], 0, 2_000),
        step("cache", &[], 100, 600),
        step("app", &["db", "cache"], 2_000, 3_000),
        EvacuationStep {
            state: EvacuationState::Done,
            from: leader("west-1", "west"),
            leader: leader("west-1", "west"),
            ended_ms: Some(BEGAN + 90),
            why: Some("west-1 of site west leads already".to_owned()),
            ..EvacuationStep::new("batch", BTreeSet::new())
        },
    ];
    let mut back = away.clone();
    back.turn_back().unwrap();
    for (at, (begun, ended)) in [(8_000, 9_000), (8_000, 8_400), (9_000, 9_700)].into_iter().enumerate() {
        back.steps[at] = EvacuationStep {
            back: true,
            leader: leader("east-1", "east"),
            ..step(&away.steps[at].job, &[], begun, ended)
        };
    }
    (back.steps[3].state, back.steps[3].back) = (EvacuationState::Done, true);
    let evidence = |ready_ms, took_ms| JobEvidence {
        history: vec![
            led("west-2", BEGAN - 60_000, 850),
            led("west-2", BEGAN + ready_ms, took_ms),
            led("east-1", BEGAN + 8_600, 250),
        ],
        lags: [("west-2".parse().unwrap(), Duration::from_secs(3))].into(),
    };
    let evidence = [("db", 1_950, 1_500), ("cache", 590, 400), ("app", 2_990, 800)]
        .map(|(job, ready_ms, took_ms)| (job.to_owned(), evidence(ready_ms, took_ms)))
        .into();
    let plan = SitePlan {
        site: "east".to_owned(),
        objectives: objectives_of(Some(5), Some(4)),
        each: [
            ("db".to_owned(), objectives_of(Some(1), None)),
            ("cache".to_owned(), objectives_of(Some(1), Some(2))),
        ]
        .into(),
        ..SitePlan::default()
    };
    let drill = SiteDrill {
        name: "east-is-lost",
        plan: &plan,
        away: &away,
        back: Some(&back),
        cut_short: None,
        unix_ms: 0,
        stops_with: &[("app".to_owned(), set(&["db"]))].into(),
        evidence: &evidence,
        last_success_ms: Some(1),
    };
    let open = "a window is open, and today is not blocked".to_owned();
    let checks = vec![DrillCheck::new("calendar", Ok(open))];
    let left_out = vec![JobNote { job: "legacy".to_owned(), why: "it has 2 leaders".to_owned() }];
    assemble(&drill, checks, left_out)
}

#[test]
fn a_report_has_the_chain_the_predictions_and_what_was_missed() {
    let report = sample();
    assert_eq!(report.longest_chain, ["db", "app"]);
    assert_eq!((report.took_ms, report.back_ms), (3_000, Some(1_700)));
    assert_eq!(report.predicted_ms, Some(2 * 900), "the database, then the application");
    let outages: Vec<_> = report
        .jobs
        .iter()
        .map(|job| (job.job.as_str(), job.outage_ms, job.predicted_outage_ms, job.back_outage_ms))
        .collect();
    let expected = [
        ("db", Some(1_550), Some(900), Some(300)),
        ("cache", Some(450), Some(900), Some(300)),
        // It does not run while the database moves.
        ("app", Some(3_000), Some(1_800), Some(1_700)),
        ("batch", None, None, None),
    ];
    assert_eq!(outages, expected);
    assert_eq!(report.longest_outage_ms, Some(3_000));
    assert_eq!(report.jobs[2].waited_ms, Some(2_000));
    assert_eq!(report.outcome, DrillOutcome::Failed);
    assert_eq!(
        report.sentence,
        "rto of db missed: it was 1.6s, and 1s is allowed; rpo of cache missed: it was 3s, and 2s is allowed"
    );
    let kept: SiteDrillReport = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
    assert_eq!(kept, report);
}

/// Of a drill that is over 900 s after it began.
fn report_of(away: &Evacuation, cut_short: Option<&str>) -> SiteDrillReport {
    report_with_lags(away, cut_short, None)
}

/// The same with an objective, where this is the lag of the new leader of one job.
fn report_with_lags(
    away: &Evacuation,
    cut_short: Option<&str>,
    lag: Option<(&str, Duration)>,
) -> SiteDrillReport {
    let evidence = lag.map(|(job, lag)| {
        let lags = [("west-2".parse().unwrap(), lag)].into();
        (job.to_owned(), JobEvidence { lags, ..JobEvidence::default() })
    });
    let drill = SiteDrill {
        name: "lost",
        plan: &SitePlan {
            site: "east".to_owned(),
            objectives: objectives_of(None, lag.map(|_| 4)),
            ..SitePlan::default()
        },
        away,
        back: None,
        cut_short: cut_short.map(str::to_owned),
        unix_ms: BEGAN + 900_000,
        stops_with: &Follows::new(),
        evidence: &evidence.into_iter().collect(),
        last_success_ms: Some(1),
    };
    assemble(&drill, Vec::new(), Vec::new())
}

#[test]
fn what_failed_and_what_did_not_return_are_named() {
    let mut away = Evacuation::new("east".parse().unwrap(), "ann", BEGAN);
    let failed = EvacuationStep {
        state: EvacuationState::Failed,
        leader: None,
        why: Some("west-1 was lost".to_owned()),
        ..step("db", &[], 0, 500)
    };
    away.steps = vec![failed, EvacuationStep::new("app", set(&["db"]))];
    let report = report_of(&away, None);
    assert_eq!(report.sentence, "db: failed: west-1 was lost; app: waiting for db");
    assert_eq!((report.outcome, report.longest_outage_ms), (DrillOutcome::Failed, None));
    assert_eq!(report.predicted_ms, None, "nothing is known of the last move");
}

#[test]
fn what_one_job_has_lost_must_be_known_for_the_whole_to_be() {
    let mut away = Evacuation::new("east".parse().unwrap(), "ann", BEGAN);
    away.steps = vec![step("db", &[], 0, 500), step("app", &[], 0, 500)];
    let lag = Some(("db", Duration::from_secs(1)));
    let report = report_with_lags(&away, None, lag);
    assert_eq!(
        (report.objectives[0].measured_ms, report.outcome, report.proved_ms()),
        (None, DrillOutcome::Failed, Some(1))
    );
    away.steps.truncate(1);
    let report = report_with_lags(&away, None, lag);
    assert_eq!((report.objectives[0].measured_ms, report.outcome), (Some(1_000), DrillOutcome::Passed));
    assert_eq!(report.proved_ms(), Some(BEGAN + 500));
}

#[test]
fn what_goes_on_after_the_limit_has_failed_and_took_all_of_it() {
    let mut away = Evacuation::new("east".parse().unwrap(), "ann", BEGAN);
    away.steps = vec![step("db", &[], 0, 500), EvacuationStep::new("app", set(&["db"]))];
    let report = report_of(&away, Some("it is not done yet"));
    assert_eq!(report.sentence, "app: waiting for db; it is not done yet");
    assert_eq!((report.outcome, report.took_ms), (DrillOutcome::Failed, 900_000));

    away.steps.truncate(1);
    assert_eq!(report_of(&away, None).outcome, DrillOutcome::Passed);
    let report = report_of(&away, Some("it is undone already"));
    assert_eq!((report.outcome, report.took_ms), (DrillOutcome::Failed, 500), "it could not move back");
}
