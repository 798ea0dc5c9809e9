#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use crate::znodes::{DrillAnswer, DrillOrder};
use election_core::{internals::record::Cause, status::Ballot};

use super::*;

const STARTED: u64 = 1_000_000;

pub(in crate::operator::drill) fn id(name: &str) -> MemberId {
    name.parse().unwrap()
}

pub(in crate::operator::drill) fn leader(name: &str, term: u64, is_ready: bool) -> Leader {
    let site = name.split('-').next().unwrap().parse().unwrap();
    let ballot = Ballot::new(format!("{name}-{term:010}")).unwrap();
    Leader { who: Who { member: id(name), site }, ballot, term, is_ready }
}

fn script(mode: DrillMode, to: &str, carriers: &[&str], back: bool) -> Script {
    Script {
        job: "orders".to_owned(),
        mode,
        to: if to.is_empty() { Target::Any } else { Target::Site(to.parse().unwrap()) },
        from: leader("east-1", 1, true),
        carriers: carriers.iter().map(|name| id(name)).collect(),
        back,
        stay: secs(5),
        limit: secs(60),
        agree_within: secs(10),
        baseline: secs(1),
        started_ms: STARTED,
    }
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn calm() -> Seen {
    Seen {
        leader: Some(leader("east-1", 1, true)),
        members: ["east-1", "east-2", "west-1", "west-2"].map(id).into_iter().collect(),
        is_conducted: true,
        is_ordered: true,
        ..Seen::default()
    }
}

fn answered(name: &str, steps: &[(DrillState, u64)]) -> DrillAnswer {
    let order = DrillOrder::new("d-1", DrillMode::Rehearse, Vec::new(), "ann", STARTED, secs(60));
    let mut answer = DrillAnswer::new(&order, id(name), "east".parse().unwrap(), "0.1.0", STARTED);
    for (state, at) in steps {
        let reason =
            (*state == DrillState::Failed || *state == DrillState::Refused).then(|| "no room".to_owned());
        answer.add(*state, *at, reason);
    }
    answer
}

const ACCEPTED: (DrillState, u64) = (DrillState::Accepted, 100);

fn done(term: u64, member: &str) -> RequestState {
    RequestState::Done { term, leader: id(member), at_ms: 0 }
}

fn member(name: &str) -> Act {
    Act::Move(Target::Member(id(name)))
}

fn result(course: &Course) -> (&'static str, &str) {
    let (outcome, sentence) = course.result().expect("it is over");
    (outcome.as_str(), sentence)
}

#[test]
fn a_switchover_moves_stays_and_moves_back() {
    let mut course = Course::new(script(DrillMode::Switchover, "west", &["east-1"], true));
    let mut seen = calm();
    assert_eq!(course.see(&seen, secs(0)), None);
    seen.answers = vec![answered("east-1", &[ACCEPTED])];
    assert_eq!(course.see(&seen, Duration::from_millis(900)), None);
    assert_eq!(course.see(&seen, secs(1)), Some(Act::Move(Target::Site("west".parse().unwrap()))));
    seen.request = Some(RequestState::Pending);
    assert_eq!(course.see(&seen, secs(1)), None);
    (seen.request, seen.leader) = (Some(RequestState::Accepted { term: 2 }), None);
    seen.decision = Some(Decided {
        term: 2,
        cause: Cause::Switchover,
        sentence: "west-1 follows".to_owned(),
        by: "east-2".to_owned(),
        noticed_at_ms: STARTED,
    });
    assert_eq!(course.see(&seen, secs(2)), None);
    seen.leader = Some(leader("west-1", 2, false));
    assert_eq!(course.see(&seen, secs(2)), None);
    (seen.request, seen.leader) = (Some(done(2, "west-1")), Some(leader("west-1", 2, true)));
    assert_eq!(course.see(&seen, secs(3)), None);
    // It serves for a while.
    assert_eq!(course.see(&seen, secs(7)), None);
    assert_eq!(course.see(&seen, secs(8)), Some(member("east-1")));
    (seen.request, seen.leader) = (Some(done(3, "east-1")), Some(leader("east-1", 3, true)));
    assert_eq!(course.see(&seen, secs(9)), None);
    assert!(course.result().is_none(), "the probes are to see it");
    assert_eq!(course.see(&seen, secs(14)), None);
    let sentence = "west-1 of site west took over from east-1 of site east, and the job was moved back";
    assert_eq!(result(&course), ("passed", sentence));
    let [out, back] = &course.changes[..] else { panic!("{:?}", course.changes) };
    assert_eq!((out.at, out.ready_at, out.term, out.is_back), (secs(1), secs(3), 2, false));
    assert_eq!((back.at, back.ready_at, back.term, back.is_back), (secs(8), secs(9), 3, true));
    assert_eq!(out.decided.as_ref().unwrap().sentence, "west-1 follows");
    let events: Vec<_> = course.events.iter().map(|e| format!("{} {}: {}", e.at_ms, e.who, e.what)).collect();
    assert_eq!(
        events,
        [
            "0 drill: began: switchover, target site west",
            "100 east-1: agrees",
            "1000 drill: requests a switchover to site west",
            "1000 election: the switchover is pending: no elector has begun it yet",
            "2000 election: the switchover is begun in term 2; the new leader is not ready yet",
            "2000 east-1: does not lead any more",
            "2000 west-1: takes over in term 2",
            "3000 election: the switchover is done in term 2: west-1 leads",
            "3000 west-1: is READY in term 2",
            "8000 drill: requests the switchover back to east-1",
            "9000 election: the switchover is done in term 3: east-1 leads",
            "9000 east-1: is READY in term 3",
            &format!("14000 drill: passed: {sentence}"),
        ]
    );
}

#[test]
fn a_rehearsal_ends_with_the_answer_of_the_standby() {
    let run = |steps: &[(DrillState, u64)]| {
        let mut course = Course::new(script(DrillMode::Rehearse, "west", &["west-1"], false));
        let mut seen = calm();
        seen.answers = vec![answered("west-1", &[ACCEPTED])];
        assert_eq!(course.see(&seen, secs(1)), Some(Act::Go));
        seen.answers = vec![answered("west-1", steps)];
        assert_eq!(course.see(&seen, secs(3)), None);
        assert!(course.changes.is_empty());
        course
    };
    let (started, ended) = ((DrillState::Started, 200), (DrillState::Ended, 1_900));
    let course = run(&[ACCEPTED, started, (DrillState::Ready, 1_400), ended]);
    let sentence = "west-1 started the job without a token; it was ready after 1.2s, and was stopped";
    assert_eq!(result(&course), ("passed", sentence));
    assert_eq!(
        result(&run(&[ACCEPTED, started, ended])),
        ("failed", "west-1 started the job, but it was not ready")
    );
    assert_eq!(
        result(&run(&[ACCEPTED, started, (DrillState::Failed, 300)])).1,
        "west-1 fails: no room; nothing was moved"
    );
    assert!(run(&[ACCEPTED, started, (DrillState::Ready, 1_400)]).result().is_none());
}

#[test]
fn a_killed_job_is_restarted_by_its_leader_or_moves() {
    let mut course = Course::new(script(DrillMode::KillJob, "", &["east-1"], false));
    let mut seen = calm();
    let killed = [ACCEPTED, (DrillState::Started, 1_500)];
    seen.answers = vec![answered("east-1", &killed[..1])];
    assert_eq!(course.see(&seen, secs(1)), Some(Act::Go));
    seen.answers = vec![answered("east-1", &killed)];
    course.see(&seen, secs(2));
    let ready = [killed[0], killed[1], (DrillState::Ready, 9_000), (DrillState::Ended, 9_001)];
    seen.answers = vec![answered("east-1", &ready)];
    course.see(&seen, secs(10));
    assert!(course.result().is_none(), "it serves for a while");
    course.see(&seen, secs(15));
    assert_eq!(result(&course), ("passed", "east-1 of site east restarted the job, and leads on"));

    // Whatever else is known of the member, its job is not ready before it says so.
    let mut course = Course::new(script(DrillMode::KillJob, "", &["east-1"], false));
    for steps in [&killed[..1], &killed, &[killed[0], killed[1], (DrillState::Ended, 1_510)]] {
        seen.answers = vec![answered("east-1", steps)];
        course.see(&seen, secs(59));
    }
    course.see(&seen, secs(60));
    assert!(result(&course).1.starts_with("it was not over within 1m: the job was not ready again; "));

    let mut course = Course::new(script(DrillMode::KillJob, "", &["east-1"], false));
    seen.answers = vec![answered("east-1", &[ACCEPTED, (DrillState::Started, 500)])];
    course.see(&seen, secs(1));
    seen.leader = Some(leader("east-2", 2, true));
    course.see(&seen, secs(2));
    course.see(&seen, secs(9));
    assert_eq!(result(&course), ("passed", "east-2 of site east took over from east-1 of site east"));
    // The fault is when the member reports it.
    assert_eq!(course.changes[0].at, Duration::from_millis(500));
}

#[test]
fn a_cut_site_comes_back_before_the_job_does() {
    let mut course = Course::new(script(DrillMode::CutSite, "west", &["east-1", "east-2"], true));
    let mut seen = calm();
    let begun = [ACCEPTED, (DrillState::Started, 1_000)];
    seen.answers = vec![answered("east-1", &[ACCEPTED])];
    assert_eq!(course.see(&seen, secs(1)), None);
    seen.answers.push(answered("east-2", &[ACCEPTED]));
    assert_eq!(course.see(&seen, secs(2)), Some(Act::Go));
    seen.answers = vec![answered("east-1", &begun), answered("east-2", &begun)];
    seen.leader = None;
    seen.members = ["west-1", "west-2"].map(id).into_iter().collect();
    course.see(&seen, secs(9));
    seen.leader = Some(leader("west-2", 2, true));
    course.see(&seen, secs(12));
    assert_eq!(course.see(&seen, secs(20)), None);
    let whole = [begun[0], begun[1], (DrillState::Ended, 31_000)];
    seen.answers = vec![answered("east-1", &whole), answered("east-2", &begun)];
    seen.members = calm().members;
    assert_eq!(course.see(&seen, secs(32)), None);
    seen.answers = vec![answered("east-1", &whole), answered("east-2", &whole)];
    assert_eq!(course.see(&seen, secs(33)), Some(member("east-1")));
    (seen.request, seen.leader) = (Some(done(3, "east-1")), Some(leader("east-1", 3, true)));
    course.see(&seen, secs(34));
    course.see(&seen, secs(39));
    assert_eq!(result(&course).0, "passed");
}

#[test]
fn a_killed_worker_that_does_not_come_back_is_reported() {
    let mut course = Course::new(script(DrillMode::KillWorker, "", &["east-1"], true));
    let mut seen = calm();
    seen.answers = vec![answered("east-1", &[ACCEPTED, (DrillState::Started, 800)])];
    course.see(&seen, secs(1));
    seen.leader = Some(leader("east-2", 2, true));
    seen.members.remove("east-1");
    course.see(&seen, secs(8));
    assert_eq!(course.see(&seen, secs(59)), None);
    course.see(&seen, secs(60));
    let (outcome, sentence) = result(&course);
    assert_eq!(outcome, "aborted");
    assert_eq!(
        sentence,
        "it was not over within 1m: east-1 did not come back; east-2 of site east leads; `dr-worker switchover --job \
         orders --to east-1` moves the job back"
    );
}

/// A switchover drill with `back`, whose new leader is READY.
fn moved() -> (Course, Seen) {
    let mut course = Course::new(script(DrillMode::Switchover, "west", &["east-1"], true));
    let mut seen = calm();
    seen.answers = vec![answered("east-1", &[ACCEPTED])];
    course.see(&seen, secs(1));
    (seen.request, seen.leader) = (Some(done(2, "west-1")), Some(leader("west-1", 2, true)));
    assert_eq!(course.see(&seen, secs(3)), None);
    (course, seen)
}

#[test]
fn a_drill_whose_time_is_over_says_what_it_was_waiting_for() {
    let is_said = |course: &Course, what: &str| {
        let why = format!("aborts: it was not over within 8s: {what}");
        assert!(course.events.iter().any(|event| event.what == why), "{:#?}", course.events);
    };
    let (mut course, seen) = moved();
    course.script.limit = secs(8);
    course.script.stay = secs(6);
    course.see(&seen, secs(8));
    is_said(&course, "west-1 of site west had not led for 6s yet");
    let (mut course, mut seen) = moved();
    course.script.limit = secs(8);
    course.script.stay = secs(3);
    assert_eq!(course.see(&seen, secs(6)), Some(member("east-1")));
    (seen.request, seen.leader) = (Some(done(3, "east-1")), Some(leader("east-1", 3, true)));
    course.see(&seen, secs(7));
    course.see(&seen, secs(8));
    is_said(&course, "east-1 of site east had not led again for 3s yet");
}

#[test]
fn what_leaves_the_plan_ends_the_drill_and_moves_the_job_back() {
    type Happens<'a> = (&'a dyn Fn(&mut Seen), &'a str);
    let cases: [Happens<'_>; 4] = [
        (&|seen| seen.signals = vec!["SIGINT"], "the command received SIGINT"),
        (&|seen| seen.is_ordered = false, "another command has withdrawn the order"),
        (&|seen| seen.leader = Some(leader("west-2", 3, true)), "west-2 of site west leads in term 3"),
        (
            &|seen| seen.answers = vec![answered("east-1", &[ACCEPTED, (DrillState::Failed, 200)])],
            "east-1 fails: no room",
        ),
    ];
    for (change, why) in cases {
        let (mut course, mut seen) = moved();
        change(&mut seen);
        assert_eq!(course.see(&seen, secs(4)), Some(member("east-1")), "{why}");
        seen.request = Some(RequestState::Accepted { term: 4 });
        assert_eq!(course.see(&seen, secs(5)), None);
        (seen.request, seen.leader) = (Some(done(4, "east-1")), Some(leader("east-1", 4, true)));
        assert_eq!(course.see(&seen, secs(6)), None);
        assert_eq!(result(&course), ("aborted", format!("{why}; east-1 leads again").as_str()));
    }
}

#[test]
fn an_interruption_that_comes_with_the_new_leader_reports_that_the_job_was_moved_back() {
    let mut course = Course::new(script(DrillMode::Switchover, "west", &["east-1"], true));
    let mut seen = calm();
    seen.answers = vec![answered("east-1", &[ACCEPTED])];
    course.see(&seen, secs(1));
    (seen.request, seen.leader) = (Some(done(2, "west-1")), Some(leader("west-1", 2, true)));
    seen.signals = vec!["SIGINT"];
    assert_eq!(course.see(&seen, secs(3)), Some(member("east-1")));
    (seen.request, seen.leader) = (Some(done(3, "east-1")), Some(leader("east-1", 3, true)));
    assert_eq!(course.see(&seen, secs(4)), None);
    assert_eq!(result(&course).1, "the command received SIGINT; east-1 leads again");
}

#[test]
fn the_job_is_not_moved_back_where_that_is_not_safe() {
    let back =
        "west-1 of site west leads; `dr-worker switchover --job orders --to east-1` moves the job back";
    // A hold or a pause.
    let (mut course, mut seen) = moved();
    seen.obstacle = Some("the mode is manual".to_owned());
    assert_eq!(course.see(&seen, secs(4)), None);
    assert_eq!(result(&course).1, format!("the mode is manual; {back}"));
    // The former leader is gone.
    let (mut course, mut seen) = moved();
    seen.signals = vec!["SIGTERM"];
    seen.members.remove("east-1");
    assert_eq!(course.see(&seen, secs(4)), None);
    assert_eq!(result(&course).1, format!("the command received SIGTERM; {back}"));
    // Another command may conduct a drill: whatever else is seen is no longer this one's.
    let (mut course, mut seen) = moved();
    (seen.is_conducted, seen.is_ordered) = (false, false);
    assert_eq!(course.see(&seen, secs(4)), None);
    let ended = "the session of this command has ended, so another drill may begin";
    assert_eq!(result(&course).1, format!("{ended}; {back}"));
    // An operator who is in a hurry.
    let (mut course, mut seen) = moved();
    seen.signals = vec!["SIGINT", "SIGINT"];
    assert_eq!(course.see(&seen, secs(4)), None);
    assert_eq!(result(&course).1, format!("the command received SIGINT; {back}"));
}

#[test]
fn a_switchover_that_is_not_begun_is_withdrawn() {
    let mut course = Course::new(script(DrillMode::Switchover, "west", &["east-1"], true));
    let mut seen = calm();
    seen.answers = vec![answered("east-1", &[ACCEPTED])];
    course.see(&seen, secs(1));
    seen.request = Some(RequestState::Pending);
    seen.signals = vec!["SIGINT"];
    assert_eq!(course.see(&seen, secs(2)), Some(Act::Withdraw));
    seen.request = Some(RequestState::Cancelled { reason: "by ann".to_owned(), at_ms: 0 });
    assert_eq!(course.see(&seen, secs(3)), None);
    assert_eq!(result(&course), ("aborted", "the command received SIGINT; nothing was moved"));
}

#[test]
fn members_that_do_not_answer_or_refuse_end_it_before_anything_happens() {
    let mut course = Course::new(script(DrillMode::KillWorker, "", &["east-1"], false));
    assert_eq!(course.see(&calm(), secs(9)), None);
    assert_eq!(course.see(&calm(), secs(10)), None);
    let silent =
        "east-1 did not answer within 10s; the log of its worker may have the reason; nothing was moved";
    assert_eq!(result(&course), ("aborted", silent));

    // One of two has agreed: it is not let begin.
    let mut course = Course::new(script(DrillMode::CutSite, "west", &["east-1", "east-2"], true));
    let mut seen = calm();
    seen.answers = vec![answered("east-1", &[ACCEPTED])];
    for at in [1, 5, 9, 10] {
        assert_eq!(course.see(&seen, secs(at)), None);
    }
    assert_eq!((result(&course).1, course.has_begun), (&*silent.replace("east-1", "east-2"), false));

    let mut course = Course::new(script(DrillMode::Rehearse, "", &["west-1"], false));
    let mut seen = calm();
    seen.answers = vec![answered("west-1", &[(DrillState::Refused, 5)])];
    course.see(&seen, secs(1));
    assert_eq!(result(&course), ("aborted", "west-1 refuses: no room; nothing was moved"));
}

#[test]
fn a_drill_that_ends_right_after_the_members_were_let_begin_does_not_say_that_nothing_happened() {
    let mut course = Course::new(script(DrillMode::CutSite, "west", &["east-1"], true));
    let mut seen = calm();
    seen.answers = vec![answered("east-1", &[ACCEPTED])];
    // It has answered at the last moment.
    assert_eq!(course.see(&seen, secs(10)), Some(Act::Go));
    seen.signals = vec!["SIGINT"];
    assert_eq!(course.see(&seen, secs(11)), None);
    let sentence = "the command received SIGINT; east-1 still leads, and the members may have begun";
    assert_eq!((result(&course), course.has_begun), (("aborted", sentence), true));
}

#[test]
fn another_leader_than_planned_ends_it() {
    let mut course = Course::new(script(DrillMode::KillWorker, "west", &["east-1"], false));
    let mut seen = calm();
    seen.answers = vec![answered("east-1", &[ACCEPTED, (DrillState::Started, 800)])];
    course.see(&seen, secs(1));
    seen.leader = Some(leader("east-2", 2, true));
    course.see(&seen, secs(8));
    let (outcome, sentence) = result(&course);
    assert_eq!(outcome, "aborted");
    assert!(sentence.starts_with("east-2 of site east leads in term 2, not site west; "), "{sentence}");
}
