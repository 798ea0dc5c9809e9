//! What the documents permit is named by no check.

use fastrand::Rng;
use robustness::checker::Report;
use robustness::history::{Answer, Call, Event, Excuse, History, Leadership, Line, RequestState};

use crate::good;
use crate::spoiled::{
    acts_of, any, calm_before, forced, leadership, no_fault, second_lead, stalls, without_fault,
};

const MS: u64 = 1_000_000;

/// Changes some good histories, which must still hold; `None` if one has nothing to change.
fn still_hold(change: fn(&mut Vec<Line>, &mut Rng) -> Option<()>) {
    let mut times = 0;
    for seed in 0..50 {
        let mut lines = good::history(seed).lines().to_vec();
        if change(&mut lines, &mut Rng::with_seed(seed)).is_some() {
            times += 1;
            let history = History::of(lines);
            let report = Report::of(&history);
            assert!(report.held(), "seed {seed}:\n{}", report.text(&history));
        }
    }
    assert!(times > 10, "only {times} histories could be changed");
}

/// The former leader acts, and answers 200, for half a second after the first act of its successor. Returns when that was, and
/// the former leader.
fn acts_on(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<(u64, Leadership)> {
    let lead = second_lead(lines, rng)?;
    let (at, next) = (lines[lead].at, leadership(&lines[lead]));
    let before = leadership(&lines[acts_of(lines, next.term - 1)[0]]);
    lines.push(Line { at: at + 500 * MS, by: "late".into(), event: Event::Act(before.clone()) });
    for (op, of, since) in [(1, &next, 100), (2, &before, 300)] {
        let call = Call::Leader { member: of.member.clone(), job: of.job.clone() };
        let answer = Answer::Status { code: 200, leadership: Some(of.clone()) };
        let events = [Event::Invoke { op, call }, Event::Ok { op, answer }];
        let by = "asking".to_owned();
        lines.extend((since..).zip(events).map(|(ms, event)| Line {
            at: at + ms * MS,
            by: by.clone(),
            event,
        }));
    }
    Some((at, before))
}

#[test]
fn a_frozen_leader_that_continues_acts_for_a_moment() {
    still_hold(|lines, rng| {
        let (at, before) = acts_on(lines, rng)?;
        let what = format!("{}: all frozen", before.member);
        let (member, excuses) = (Some(before.member), vec![Excuse::Overlap]);
        let event = Event::Fault { fault: 99, what, member, excuses };
        lines.push(Line { at: at - 500 * MS, by: "test".into(), event });
        let event = Event::Healed { fault: 99 };
        lines.push(Line { at: at + 50 * MS, by: "test".into(), event });
        Some(())
    });
}

#[test]
fn a_leader_that_is_forced_out_acts_for_a_moment() {
    still_hold(|lines, rng| {
        let (at, _) = acts_on(lines, rng)?;
        lines.push(forced(at - 500 * MS));
        Some(())
    });
}

#[test]
fn a_stall_as_long_as_a_lease_explains_a_move() {
    still_hold(|lines, rng| {
        no_fault(lines, rng)?;
        // So long a stall can be before the first decision.
        lines.iter_mut().for_each(|line| line.at += good::TIMEOUT_MS * MS);
        stalls(lines, good::TIMEOUT_MS);
        Some(())
    });
}

#[test]
fn a_return_comes_when_the_policy_allows_it() {
    still_hold(|lines, _| {
        // Not the first move: nothing has brought the leader there.
        let at = (1..5).find_map(|fault| without_fault(lines, fault))?;
        let is_move = |line: &&mut Line| line.at > at && matches!(line.event, Event::Decided { .. });
        if let Event::Decided { cause, .. } = &mut lines.iter_mut().find(is_move)?.event {
            "better-candidate".clone_into(cause);
        }
        calm_before(lines, at, 600_000)
    });
}

#[test]
fn a_switchover_can_be_ordered_long_before() {
    still_hold(|lines, rng| {
        let is_switchover =
            |event: &Event| matches!(event, Event::Decided { cause, .. } if cause == "switchover");
        let decided = any(lines, rng, is_switchover)?;
        let at = lines[decided].at;
        calm_before(lines, at, 600_000)
    });
}

/// ZooKeeper purges its logs.
#[test]
fn the_log_of_the_servers_can_begin_late() {
    still_hold(|lines, rng| {
        let lead = second_lead(lines, rng)?;
        let at = lines[lead].at;
        lines.retain(|line| line.by != "zookeeper" || line.at > at);
        Some(())
    });
}

#[test]
fn a_history_can_have_jobs_that_the_log_was_not_read_for() {
    still_hold(|lines, _| {
        let end = lines.iter().rfind(|line| matches!(line.event, Event::Finished))?.at;
        let (job, member) = ("ledger".to_owned(), "east-1".to_owned());
        let event = Event::Lead(Leadership { job, slot: 0, member, term: 900, token: 900 });
        lines.push(Line { at: end - MS, by: "ledger".into(), event });
        Some(())
    });
}

#[test]
fn a_standby_is_restarted_by_its_own_member() {
    still_hold(|lines, rng| {
        let lead = second_lead(lines, rng)?;
        let (at, term) = (lines[lead].at, leadership(&lines[lead]).term);
        let leader = "a member with a standby".to_owned();
        for state in [RequestState::Accepted { term: term - 1 }, RequestState::Done { term, leader }] {
            let (request, kind) = ("r-0000000099".to_owned(), Some("restart-standby".to_owned()));
            lines.push(Line { at, by: "zookeeper".into(), event: Event::Request { request, kind, state } });
        }
        Some(())
    });
}

#[test]
fn leadership_moves_when_the_workers_are_ended() {
    still_hold(|lines, _| {
        let end = lines.iter().rfind(|line| matches!(line.event, Event::Finished))?.at;
        calm_before(lines, end, 60_000)?;
        let (job, member, cause) = ("orders".to_owned(), None, "leader-shutdown".to_owned());
        let event = Event::Decided { job, slot: 0, term: 900, member, cause };
        lines.push(Line { at: end + 60_001 * MS, by: "zookeeper".into(), event });
        Some(())
    });
}

/// A planned move that the leader calls off does not hide what explains the next one.
#[test]
fn a_return_that_was_called_off_is_tried_again() {
    still_hold(|lines, _| {
        let at = (1..5).find_map(|fault| without_fault(lines, fault))?;
        let decided =
            lines.iter().position(|line| line.at > at && matches!(line.event, Event::Decided { .. }))?;
        if let Event::Decided { cause, .. } = &mut lines[decided].event {
            "better-candidate".clone_into(cause);
        }
        let attempt = lines[decided].event.clone();
        let mut called_off = attempt.clone();
        if let Event::Decided { cause, .. } = &mut called_off {
            "called-off".clone_into(cause);
        }
        calm_before(lines, at, 600_000)?;
        for (ms, event) in [(100_000, attempt), (110_000, called_off)] {
            lines.push(Line { at: at + ms * MS, by: "zookeeper".into(), event });
        }
        Some(())
    });
}
