#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use crate::znodes::DrillOrder;
use election_core::internals::record::Health;
use serde_json::json;

use super::{super::report::tests::sample as report, *};
use crate::{
    commands::servers::Server,
    config::{Dates, OperatorConfig, Sources},
    view::{NOW_MS, sample},
};
use election_core::internals::calendar::Windows;

fn four() -> Snapshot {
    sample(&["east-1", "east-2", "west-1", "west-2"])
}

/// Members that publish this of their standbys.
fn with_standbys(all: &[(&str, &str)]) -> Snapshot {
    let mut snapshot = four();
    for (id, text) in all {
        let mut members = snapshot.members.iter_mut();
        let member = members.find(|member| member.member.as_str() == *id).unwrap();
        member.attributes.insert(STANDBY_ATTRIBUTE.to_owned(), (*text).to_owned());
    }
    snapshot
}

fn plan(mode: DrillMode, to: &str) -> DrillPlan {
    let to = match to {
        "" => Target::Any,
        to if to.contains('-') => Target::Member(to.parse().unwrap()),
        to => Target::Site(to.parse().unwrap()),
    };
    DrillPlan::unplanned("orders".to_owned(), mode, to)
}

pub(crate) fn state(snapshot: Snapshot, sets: &[&str]) -> State {
    let sets = [&["zookeeper.connect=zk1:2181", "policy.sites=[\"east\", \"west\"]"], sets].concat();
    let sets = sets.iter().map(|set| (*set).to_owned()).collect();
    let config = OperatorConfig::load(&Sources { sets, ..Sources::default() }).unwrap();
    State::new("orders", snapshot, Present::default(), &config, NOW_MS)
}

/// The sentences of the checks that have failed.
fn failed(state: &State, plan: &DrillPlan) -> Vec<String> {
    check(state, plan).into_iter().filter(|check| !check.passed).map(|check| check.sentence).collect()
}

const NONE: [&str; 0] = [];

#[test]
fn a_calm_election_passes_every_check_of_every_mode() {
    let state = state(with_standbys(&[("west-1", "not-ready 7"), ("west-2", "ready")]), &[]);
    for &mode in DrillMode::ALL {
        let plan = plan(mode, "west");
        assert_eq!(failed(&state, &plan), NONE, "{mode:?}");
        let names: Vec<_> = state.candidates(&plan).iter().map(|found| found.member.as_str()).collect();
        assert_eq!(names, ["west-1", "west-2"]);
        assert!(check(&state, &plan).len() >= 9);
    }
    let best = |mode| state.candidates(&plan(mode, ""))[0].member.to_string();
    assert_eq!(best(DrillMode::Switchover), "east-2");
    // The members of the site that is cut off can't.
    assert_eq!(best(DrillMode::CutSite), "west-1");
}

#[test]
fn each_reason_against_a_drill_is_a_sentence() {
    let switchover = plan(DrillMode::Switchover, "west");
    let with = |change: &dyn Fn(&mut Snapshot)| {
        let mut snapshot = four();
        change(&mut snapshot);
        failed(&state(snapshot, &[]), &switchover)
    };
    let order = |key: &str, value: serde_json::Value| {
        with(&|s: &mut Snapshot| s.control = serde_json::from_value(json!({ key: value })).unwrap())
    };
    let unhealthy = || Health::Unhealthy { reason: "the disk is full".to_owned() };
    let cases = [
        (order("mode", json!("manual")), "the mode is manual"),
        (
            order("drained", json!(["east"])),
            "site east is drained; `dr-worker drain east --off --job orders`",
        ),
        (order("stopped", json!({ "by": "ann@desk" })), "the job is stopped by ann@desk"),
        (order("maintenance", json!([{ "member": "west-2" }])), "west-2 is in maintenance"),
        (with(&|s| s.leader_znodes[0] = None), "no member leads at the moment"),
        (
            with(&|s| s.members[2..].iter_mut().for_each(|member| member.health = unhealthy())),
            "no member may take over, target site west: west-1: unhealthy: the disk is full; west-2",
        ),
        (
            with(&|s| s.leader_znodes[0].as_mut().unwrap().record.ready_ms = Some(NOW_MS - 1)),
            "a recent move; policy.min_tenure is 1m",
        ),
        (
            with(&|s| {
                let request = json!({ "v": 1, "id": "1", "kind": "restart", "by": "ann", "created_ms": 1,
                                      "state": { "state": "pending" } });
                s.requests = vec![election_core::internals::record::FiledRequest {
                    which: serde_json::from_value(json!({ "czxid": 9, "name": "r-0000000004" })).unwrap(),
                    request: serde_json::from_value(request).unwrap(),
                }];
            }),
            "request r-0000000004, a restart, is open",
        ),
    ];
    for (failed, expected) in cases {
        assert!(failed.iter().any(|sentence| sentence.contains(expected)), "{expected}: {failed:?}");
    }
    let to = |to: &str| failed(&state(four(), &[]), &plan(DrillMode::Switchover, to));
    assert_eq!(to("east"), ["the job is in site east already, on east-1"]);
    assert!(to("east-1").contains(&"east-1 leads already".to_owned()));
    // A rehearsal moves nothing.
    let mut moved = four();
    moved.leader_znodes[0].as_mut().unwrap().record.ready_ms = Some(NOW_MS - 1);
    assert_eq!(failed(&state(moved, &[]), &plan(DrillMode::Rehearse, "west")), NONE);
}

#[test]
fn a_fault_needs_a_standby_that_is_ready_if_the_job_has_standbys() {
    use DrillMode::{KillJob, KillStandby, KillWorker, Rehearse, Switchover};
    let sentence = |all: &[(&str, &str)], mode| {
        let checks = check(&state(with_standbys(all), &[]), &plan(mode, "west"));
        let found = checks.into_iter().find(|check| check.name == "standbys");
        found.map(|check| (check.passed, check.sentence))
    };
    let (lost, ready) = ([("east-2", "ready"), ("west-1", "not-ready 7")], [("west-2", "ready")]);
    for mode in [KillStandby, KillJob, KillWorker] {
        assert_eq!(sentence(&ready, mode), Some((true, "the standby of west-2 is ready".to_owned())));
        assert_eq!(sentence(&lost, mode), Some((false, "no standby is ready, target site west".to_owned())));
    }
    assert_eq!(
        (sentence(&[], KillJob), sentence(&lost, Switchover), sentence(&lost, Rehearse)),
        (None, None, None)
    );
    assert!(sentence(&[], KillStandby).is_some_and(|(passed, _)| !passed), "the job has none");
    let state = state(with_standbys(&ready), &[]);
    let ready = state.ready_standbys(&plan(KillStandby, ""));
    assert_eq!(ready.into_iter().map(MemberId::as_str).collect::<Vec<_>>(), ["west-2"]);
}

#[test]
fn a_lag_above_its_limit_or_the_objective_is_a_reason() {
    let lagging = |lag: &str, sets: &[&str]| {
        let mut snapshot = four();
        for member in &mut snapshot.members[2..] {
            member.attributes.insert("lag".to_owned(), lag.to_owned());
        }
        let mut plan = plan(DrillMode::Switchover, "west");
        plan.objectives =
            Objectives { rto: None, rpo: Some(Duration::from_secs(5)), lag: Some("lag".to_owned()) };
        failed(&state(snapshot, sets), &plan)
    };
    assert_eq!(lagging("4.5", &[]), NONE);
    assert_eq!(lagging("6", &[]), ["lag of west-1 is 6s, above the objective of 5s"]);
    assert_eq!(lagging("many", &[]), ["west-1 has no attribute lag with a number of seconds"]);
    let limit =
        "policy.pipeline=[{ stage = \"limit\", attribute = \"lag\", at_most = 3 }, \"oldest-ballot\"]";
    let both = lagging("6", &[limit]);
    assert!(
        both.iter().any(|sentence| sentence.starts_with("west-1 is above its limit: lag is 6")),
        "{both:?}"
    );
}

#[test]
fn a_drill_waits_for_its_window_and_for_another_drill() {
    let mut state = state(four(), &[]);
    let mut planned = plan(DrillMode::Rehearse, "");
    planned.rules.windows = Windows::read(&["Sun 02:00-04:00"]).unwrap();
    assert_eq!(failed(&state, &planned), ["no window is open; the next one opens at 2026-11-08T02:00:00Z"]);
    planned.rules.windows = Windows::read(&["Thu 14:00-15:00"]).unwrap();
    assert_eq!(failed(&state, &planned), NONE);
    planned.rules.blocked_dates = Dates::read(&["11-01..11-10"]).unwrap();
    assert_eq!(failed(&state, &planned), ["today is one of the blocked dates (11-01..11-10)"]);
    planned.rules.blocked_dates = Dates::default();
    let run = report().run;
    let order =
        DrillOrder::new(&run, DrillMode::Rehearse, Vec::new(), "ann", NOW_MS, Duration::from_secs(60));
    state.present.order = Some(order);
    let interrupted = format!("drill {run} was interrupted; the next `dr-worker drill --job orders` ends it");
    assert_eq!(failed(&state, &planned), [interrupted]);
    state.present.conducted = Some(run.clone());
    assert_eq!(failed(&state, &planned), [format!("drill {run} is under way")]);
    state.evacuated = Some("north".parse().unwrap());
    assert_eq!(failed(&state, &planned), ["the evacuation of site north is under way"]);
}

#[test]
fn a_site_is_cut_off_for_longer_than_its_sessions_last() {
    let mut state = state(four(), &[]);
    let mut planned = plan(DrillMode::CutSite, "");
    state.session_timeout = Some(planned.cut_for);
    let why = "no session ends by a cut of 30s: the session timeout there is 30s; raise cut_for above it";
    assert_eq!(failed(&state, &planned), [why]);
    planned.cut_for += Duration::from_millis(1);
    assert_eq!(failed(&state, &planned), NONE);
    assert_eq!(failed(&state, &plan(DrillMode::KillWorker, "")), NONE);
}

#[test]
fn a_site_is_not_cut_off_if_the_quorum_would_be_lost_with_it() {
    let server = |name: &str, site: &str, is_up: bool| Server {
        name: name.to_owned(),
        site: Some(site.to_owned()),
        unreachable: (!is_up).then(|| "refused".to_owned()),
        ..Server::default()
    };
    let quorum = |sites: [&str; 3], last_is_up: bool| {
        let [one, two, three] = sites;
        let servers = [server("zk1", one, true), server("zk2", two, true), server("zk3", three, last_is_up)];
        Quorum::of(&servers)
    };
    let said = |quorum: Option<Quorum>, mode| {
        let state = State { quorum, ..state(four(), &[]) };
        let checks = check(&state, &plan(mode, "west"));
        let found = checks.into_iter().find(|check| check.name == "quorum").unwrap();
        (found.passed, found.sentence)
    };
    let expect = |quorum: Option<Quorum>, mode, passes: bool, part: &str| {
        let (passed, sentence) = said(quorum, mode);
        assert!(passed == passes && sentence.contains(part), "{mode:?}: {passed} {sentence}");
    };
    let lost =
        "the loss of site east loses the quorum: 1 of 3 voting servers would be left, and 2 are needed";
    for &mode in DrillMode::ALL {
        expect(None, mode, true, "zookeeper.sites does not name");
        expect(
            Some(quorum(["east", "west", "third"], true)),
            mode,
            true,
            "it survives the loss of any one site; 3 servers have a vote",
        );
        // The leader is in the east.
        let is_cut = mode == DrillMode::CutSite;
        expect(Some(quorum(["east", "east", "west"], true)), mode, !is_cut, lost);
        expect(Some(quorum(["west", "west", "east"], true)), mode, true, "this drill does not show that");
        let is_rehearsal = mode.spares_leader();
        expect(Some(quorum(["east", "west", "third"], false)), mode, is_rehearsal, "while zk3 is down");
    }
    let unknown = Quorum { voters: 3, elsewhere: 1, lost: Vec::new() };
    expect(Some(unknown), DrillMode::CutSite, true, "zookeeper.sites does not name 1 of 3 voting servers");
}

#[test]
fn a_fault_must_lead_to_the_target() {
    let mut state = state(four(), &[]);
    let who = |member: &str, site: &str| Who { member: member.parse().unwrap(), site: site.parse().unwrap() };
    let sentence = "east-1 is gone: it would lead".to_owned();
    state.predicted = Some(Predicted { leads: Some(who("west-1", "west")), sentence: sentence.clone() });
    assert_eq!(failed(&state, &plan(DrillMode::KillWorker, "west")), NONE);
    state.predicted = Some(Predicted { leads: Some(who("east-2", "east")), sentence: sentence.clone() });
    let outside = "by the policy east-2 of site east would take over, outside of site west";
    assert_eq!(failed(&state, &plan(DrillMode::KillWorker, "west")), [format!("{outside}: {sentence}")]);
    state.predicted = Some(Predicted { leads: None, sentence });
    assert!(
        failed(&state, &plan(DrillMode::KillWorker, ""))[0].starts_with("by the policy no member would lead")
    );
}
