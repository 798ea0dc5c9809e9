//! Each way to spoil a history, and the check that must name it.
#![allow(clippy::ptr_arg, reason = "some spoils add or remove lines")]

use std::fmt::Write as _;

use fastrand::Rng;
use robustness::checker::Report;
use robustness::history::{Answer, Call, Event, Excuse, History, Leadership, Line, RequestState};

use crate::good::{self, TIMEOUT_MS};

const SEEDS: u64 = 50;
const MS: u64 = 1_000_000;

/// Spoils a history; `None` if it has nothing to spoil.
type Spoil = fn(&mut Vec<Line>, &mut Rng) -> Option<()>;

const SPOILS: [(&str, &str, Spoil); 34] = [
    ("one-actor", "a leader begins before its predecessor has ended", begins_early),
    ("one-actor", "two act, and another member was frozen", begins_early_beside_a_fault),
    ("one-actor", "two act long after a command by force", begins_early_after_a_command),
    ("one-actor", "two act for long after a command by force", act_for_long),
    ("ends-with-its-znode", "a leader acts once more after its znode is gone", acts_late),
    ("tokens-grow", "two leaderships have one token", one_token),
    ("tokens-grow", "a token is lower than the one before it", token_goes_back),
    ("tokens-grow", "a token is not that of the znode", another_token),
    ("store-is-fenced", "an acknowledged write is lost", write_lost),
    ("store-is-fenced", "a write is there twice", write_twice),
    ("store-is-fenced", "a value that nobody wrote", value_of_nobody),
    ("store-is-fenced", "two writes in the wrong order", writes_swapped),
    ("store-is-fenced", "a refused write is there", refused_is_there),
    ("store-is-fenced", "an older token is accepted", older_token),
    ("store-is-fenced", "a read sees less than what was acknowledged", stale_read),
    ("store-is-fenced", "a read sees what was not written yet", early_read),
    ("store-is-fenced", "the newest token is refused", newest_refused),
    ("store-is-fenced", "an older token is claimed after a newer one", claims_late),
    ("store-is-fenced", "two members use one token", one_token_of_two),
    ("requests-once", "a request begins twice", begins_twice),
    ("requests-once", "a withdrawn request begins", begins_withdrawn),
    ("requests-once", "the operator is told of another outcome", told_wrong),
    ("requests-once", "a command fails, and its request is done", fails_wrongly),
    ("requests-once", "it is done by a member that has not led", done_by_nobody),
    ("one-answers-200", "an older leader answers 200 again", answers_again),
    ("leader-in-time", "nobody leads for a while", nobody_leads),
    ("leader-in-time", "nobody leads at the end", nobody_leads_at_the_end),
    (
        "leader-in-time",
        "there is no leader while the machine stalls every five seconds",
        nobody_leads_and_it_stalls,
    ),
    ("moves-have-causes", "a move without a fault", no_fault),
    ("moves-have-causes", "a move that short stalls do not explain", no_fault_but_stalls),
    ("moves-have-causes", "a move long after the last fault was repaired", moved_long_after),
    ("moves-have-causes", "a switchover that nobody has ordered", not_ordered),
    ("nothing-left", "a process is left", process_left),
    ("no-crash", "a worker panics", worker_panics),
];

#[test]
fn good_histories_hold() {
    for seed in 0..SEEDS {
        let history = good::history(seed);
        let report = Report::of(&history);
        assert!(report.held(), "seed {seed}:\n{}", report.text(&history));
        assert_eq!(report.idle().next(), None, "seed {seed}: a check had nothing to look at");
    }
}

#[test]
fn each_spoiling_is_named_by_its_check_alone() {
    let mut wrong = String::new();
    for (number, (check, what, spoil)) in SPOILS.iter().enumerate() {
        let mut times = 0;
        for seed in 0..SEEDS {
            let mut lines = good::history(seed).lines().to_vec();
            let mut rng = Rng::with_seed(seed * 100 + number as u64);
            if spoil(&mut lines, &mut rng).is_none() {
                continue;
            }
            times += 1;
            let history = History::of(lines);
            let report = Report::of(&history);
            if report.broken().collect::<Vec<_>>() != [*check] {
                let _ =
                    writeln!(wrong, "{what}: seed {seed}: not by {check} alone:\n{}", report.text(&history));
                break;
            }
        }
        assert!(
            times > SEEDS / 4 || !wrong.is_empty(),
            "{what}: only {times} of {SEEDS} histories could be spoiled"
        );
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_history_survives_its_text() {
    let history = good::history(1);
    let text: String =
        history.lines().iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
    assert_eq!(History::of(History::parse(&text).unwrap()), history);
    assert_eq!(History::of(History::parse(text.trim_end()).unwrap()), history);
    let cut = &text[..text.len() - 5];
    assert_eq!(History::parse(cut).unwrap().len(), history.lines().len() - 1, "who wrote it was killed");
    assert!(History::parse("{\"at\":1}\n").is_err());
}

/// The number of a random line that is wanted.
pub(crate) fn any(lines: &[Line], rng: &mut Rng, wanted: impl Fn(&Event) -> bool) -> Option<usize> {
    let found: Vec<_> = (0..lines.len()).filter(|number| wanted(&lines[*number].event)).collect();
    (!found.is_empty()).then(|| found[rng.usize(..found.len())])
}

fn last(lines: &[Line], wanted: impl Fn(&Event) -> bool) -> Option<usize> {
    lines.iter().rposition(|line| wanted(&line.event))
}

/// The line of a random first act that follows another leadership.
pub(crate) fn second_lead(lines: &[Line], rng: &mut Rng) -> Option<usize> {
    any(lines, rng, |event| matches!(event, Event::Lead(leadership) if leadership.term > 1))
}

pub(crate) fn leadership(line: &Line) -> Leadership {
    match &line.event {
        Event::Lead(leadership)
        | Event::Act(leadership)
        | Event::End(leadership)
        | Event::Acquired(leadership) => leadership.clone(),
        other => panic!("{other:?} is about no leadership"),
    }
}

pub(crate) fn acts_of(lines: &[Line], term: u64) -> Vec<usize> {
    let is_of = |event: &Event| matches!(event, Event::Act(leadership) if leadership.term == term);
    (0..lines.len()).filter(|number| is_of(&lines[*number].event)).collect()
}

fn begins_early(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    let lead = second_lead(lines, rng)?;
    let before = *acts_of(lines, leadership(&lines[lead]).term - 1).last()?;
    lines[lead].at = lines[before].at - 1;
    Some(())
}

/// A command that the documents promise less after.
pub(crate) fn forced(at: u64) -> Line {
    let excuses = vec![Excuse::Overlap];
    let call = Call::Operator { verb: "failover".into(), arguments: vec!["--force".into()], excuses };
    Line { at, by: "operator".into(), event: Event::Invoke { op: u64::MAX, call } }
}

fn begins_early_beside_a_fault(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    begins_early(lines, rng)?;
    let (member, excuses) = (Some("elsewhere".to_owned()), vec![Excuse::Overlap]);
    let event = Event::Fault { fault: 99, what: "elsewhere: all frozen".into(), member, excuses };
    lines.push(Line { at: lines[0].at + 1, by: "test".into(), event });
    Some(())
}

fn begins_early_after_a_command(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    let lead = second_lead(lines, rng)?;
    let [first, second, .., last] = acts_of(lines, leadership(&lines[lead]).term - 1)[..] else {
        return None;
    };
    lines.push(forced(lines[first].at + 1));
    calm_before(lines, lines[second].at, 20 * TIMEOUT_MS)?;
    lines[lead].at = lines[last].at - 1;
    Some(())
}

fn act_for_long(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    let lead = second_lead(lines, rng)?;
    let before = *acts_of(lines, leadership(&lines[lead]).term - 1).last()?;
    let (at, event) = (lines[lead].at, lines[before].event.clone());
    lines.push(forced(at - 1));
    lines.push(Line { at: at + (TIMEOUT_MS + 1000) * MS, by: "late".into(), event });
    lines.retain(|line| !matches!(line.event, Event::Released(_)));
    Some(())
}

/// Puts so many milliseconds before this time, in which the leader acts. Faults that had begun are repaired as early as before.
pub(crate) fn calm_before(lines: &mut Vec<Line>, at: u64, ms: u64) -> Option<()> {
    let is_act = |line: &&Line| line.at < at && matches!(line.event, Event::Act(_));
    let leader = lines.iter().filter(is_act).max_by_key(|line| line.at)?.clone();
    let begun: Vec<_> = lines.iter().filter(|line| line.at < at).filter_map(fault).collect();
    for line in lines.iter_mut().filter(|line| line.at >= at) {
        if !matches!(line.event, Event::Healed { fault } if begun.contains(&fault)) {
            line.at += ms * MS;
        }
    }
    lines.extend((0..ms / 1000).map(|second| Line { at: at + second * 1000 * MS, ..leader.clone() }));
    Some(())
}

/// The number of the fault that begins.
fn fault(line: &Line) -> Option<u64> {
    match line.event {
        Event::Fault { fault, .. } => Some(fault),
        _ => None,
    }
}

/// Removes a fault, and gives the time at which it had begun.
pub(crate) fn without_fault(lines: &mut Vec<Line>, removed: u64) -> Option<u64> {
    let at = lines.iter().find(|line| fault(line) == Some(removed))?.at;
    lines.retain(|line| {
        fault(line) != Some(removed) && !matches!(line.event, Event::Healed { fault } if fault == removed)
    });
    Some(at)
}

fn acts_late(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    let lead = second_lead(lines, rng)?;
    let before = *acts_of(lines, leadership(&lines[lead]).term - 1).last()?;
    let (at, event) = (lines[lead].at - 1, lines[before].event.clone());
    lines.push(Line { at, by: "late".into(), event });
    Some(())
}

/// Gives all acts of a leadership another token.
fn retoken(lines: &mut [Line], term: u64, token: u64) {
    for line in lines {
        if let Event::Lead(of) | Event::Act(of) | Event::End(of) = &mut line.event
            && of.term == term
        {
            of.token = token;
        }
    }
}

fn one_token(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    let lead = leadership(&lines[second_lead(lines, rng)?]);
    let before = leadership(&lines[acts_of(lines, lead.term - 1)[0]]);
    retoken(lines, lead.term, before.token);
    Some(())
}

fn token_goes_back(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    let lead = leadership(&lines[second_lead(lines, rng)?]);
    let before = leadership(&lines[acts_of(lines, lead.term - 1)[0]]);
    lines.retain(|line| {
        !matches!(line.event, Event::Acquired(_) | Event::Released(_) | Event::Request { .. })
    });
    retoken(lines, lead.term, before.token - 1);
    Some(())
}

fn another_token(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    let lead = leadership(&lines[second_lead(lines, rng)?]);
    retoken(lines, lead.term, lead.token + 1000);
    Some(())
}

/// The list of the last read.
fn values(lines: &mut [Line]) -> Option<&mut Vec<(u64, u64)>> {
    lines.iter_mut().rev().find_map(|line| match &mut line.event {
        Event::Ok { answer: Answer::Values { values }, .. } => Some(values),
        _ => None,
    })
}

/// Without the reads, which would see another list.
fn without_counts(lines: &mut Vec<Line>) {
    lines.retain(|line| !matches!(line.event, Event::Ok { answer: Answer::Count { .. }, .. }));
}

fn write_lost(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    without_counts(lines);
    let known = lines.clone();
    let values = values(lines)?;
    let at = rng.usize(..values.len());
    let (_, lost) = values.remove(at);
    // One of unknown outcome may be missing.
    let op = known.iter().find_map(|line| match &line.event {
        Event::Invoke { op, call: Call::Write { value, .. } } if *value == lost => Some(*op),
        _ => None,
    })?;
    known.iter().any(|line| matches!(line.event, Event::Ok { op: other, .. } if other == op)).then_some(())
}

fn write_twice(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    without_counts(lines);
    let values = values(lines)?;
    let at = rng.usize(..values.len());
    values.insert(at, values[at]);
    Some(())
}

fn value_of_nobody(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    without_counts(lines);
    let values = values(lines)?;
    let at = rng.usize(..values.len());
    let token = values[at].0;
    values.insert(at, (token, rng.u64(..)));
    Some(())
}

fn writes_swapped(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    let values = values(lines)?;
    let at = rng.usize(..values.len() - 1);
    values.swap(at, at + 1);
    Some(())
}

/// The number of the operation that was refused last, with what it asked.
fn refused(lines: &[Line]) -> Option<(u64, u64, u64)> {
    let number = last(lines, |event| matches!(event, Event::Fail { .. }))?;
    let Event::Fail { op: refused, .. } = lines[number].event else { return None };
    lines.iter().find_map(|line| match &line.event {
        Event::Invoke { op, call: Call::Write { token, value, .. } } if *op == refused => {
            Some((*op, *token, *value))
        }
        _ => None,
    })
}

fn refused_is_there(lines: &mut Vec<Line>, _: &mut Rng) -> Option<()> {
    without_counts(lines);
    let (_, token, value) = refused(lines)?;
    let values = values(lines)?;
    let at = values.iter().rposition(|(other, _)| *other == token)?;
    values.insert(at + 1, (token, value));
    Some(())
}

fn older_token(lines: &mut Vec<Line>, _: &mut Rng) -> Option<()> {
    without_counts(lines);
    let (refused, token, value) = refused(lines)?;
    for line in lines.iter_mut() {
        if matches!(line.event, Event::Fail { op, .. } if op == refused) {
            line.event = Event::Ok { op: refused, answer: Answer::Done };
        }
    }
    let values = values(lines)?;
    values.push((token, value));
    Some(())
}

/// Changes what a random read has seen.
fn read_sees(lines: &mut [Line], rng: &mut Rng, more: i64) -> Option<()> {
    let is_count =
        |event: &Event| matches!(event, Event::Ok { answer: Answer::Count { count }, .. } if *count > 0);
    let number = any(lines, rng, is_count)?;
    if let Event::Ok { answer: Answer::Count { count }, .. } = &mut lines[number].event {
        *count = count.saturating_add_signed(more);
    }
    Some(())
}

fn stale_read(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    // The last value could be one of unknown outcome.
    read_sees(lines, rng, -2)
}

fn early_read(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    read_sees(lines, rng, 2)
}

fn newest_refused(lines: &mut Vec<Line>, _: &mut Rng) -> Option<()> {
    let newest = leadership(&lines[last(lines, |event| matches!(event, Event::Lead(_)))?]);
    let end = lines[last(lines, |event| matches!(event, Event::Act(_)))?].at;
    let call = Call::Write { store: good::STORE.into(), token: newest.token, value: 1 };
    lines.push(Line { at: end + 1, by: "refused".into(), event: Event::Invoke { op: 1, call } });
    let reason = robustness::history::STALE.to_owned();
    lines.push(Line { at: end + 2, by: "refused".into(), event: Event::Fail { op: 1, reason } });
    Some(())
}

fn claims_late(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    let lead = leadership(&lines[second_lead(lines, rng)?]);
    let before = leadership(&lines[acts_of(lines, lead.term - 1)[0]]);
    let at = lines[*acts_of(lines, lead.term).last()?].at;
    let call = Call::Claim { store: good::STORE.into(), token: before.token };
    lines.push(Line { at: at + 1, by: "late".into(), event: Event::Invoke { op: 1, call } });
    lines.push(Line { at: at + 2, by: "late".into(), event: Event::Ok { op: 1, answer: Answer::Done } });
    Some(())
}

fn one_token_of_two(lines: &mut Vec<Line>, _: &mut Rng) -> Option<()> {
    let newest = leadership(&lines[last(lines, |event| matches!(event, Event::Lead(_)))?]);
    let is_other = |event: &Event| matches!(event, Event::Lead(of) if of.member != newest.member);
    let by = lines[last(lines, is_other)?].by.clone();
    let end = lines[last(lines, |event| matches!(event, Event::Act(_)))?].at;
    let (op, token, value) = (u64::MAX, newest.token, 1);
    let call = Call::Write { store: good::STORE.into(), token, value };
    // After the last of its own.
    lines.push(Line { at: end + 50 * MS, by: by.clone(), event: Event::Invoke { op, call } });
    lines.push(Line { at: end + 51 * MS, by, event: Event::Ok { op, answer: Answer::Done } });
    values(lines)?.push((token, value));
    Some(())
}

fn request_line(lines: &[Line], rng: &mut Rng, wanted: fn(&RequestState) -> bool) -> Option<usize> {
    any(lines, rng, |event| matches!(event, Event::Request { state, .. } if wanted(state)))
}

fn begins_twice(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    let begun = request_line(lines, rng, |state| matches!(state, RequestState::Accepted { .. }))?;
    let mut again = lines[begun].clone();
    if let Event::Request { state: RequestState::Accepted { term }, .. } = &mut again.event {
        *term += 100;
    }
    again.at += 1;
    lines.push(again);
    Some(())
}

fn begins_withdrawn(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    let begun = request_line(lines, rng, |state| matches!(state, RequestState::Accepted { .. }))?;
    let mut withdrawn = lines[begun].clone();
    if let Event::Request { state, .. } = &mut withdrawn.event {
        *state = RequestState::Cancelled;
    }
    withdrawn.at -= 1;
    lines.push(withdrawn);
    Some(())
}

fn told_wrong(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    let told = any(lines, rng, |event| matches!(event, Event::Ok { answer: Answer::Told { .. }, .. }))?;
    if let Event::Ok { answer: Answer::Told { state, .. }, .. } = &mut lines[told].event {
        *state = Some(RequestState::Failed);
    }
    Some(())
}

fn fails_wrongly(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    let told = any(lines, rng, |event| matches!(event, Event::Ok { answer: Answer::Told { .. }, .. }))?;
    if let Event::Ok { answer: Answer::Told { code, state, .. }, .. } = &mut lines[told].event {
        (*code, *state) = (1, None);
    }
    Some(())
}

fn done_by_nobody(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    let done = request_line(lines, rng, |state| matches!(state, RequestState::Done { .. }))?;
    let nobody = |state: &mut RequestState| {
        if let RequestState::Done { leader, .. } = state {
            *leader = "nobody".to_owned();
        }
    };
    let Event::Request { request: id, state, .. } = &mut lines[done].event else { return None };
    nobody(state);
    let id = id.clone();
    for line in lines {
        let Event::Ok { answer: Answer::Told { request: Some(request), state: Some(state), .. }, .. } =
            &mut line.event
        else {
            continue;
        };
        if *request == id {
            nobody(state);
        }
    }
    Some(())
}

fn answers_again(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    let is_200 = |event: &Event| matches!(event, Event::Ok { answer: Answer::Status { code: 200, .. }, .. });
    let number = any(lines, rng, is_200)?;
    let again = lines[number].event.clone();
    let Event::Ok { answer: Answer::Status { leadership: Some(old), .. }, .. } = &again else { return None };
    let is_newer = |event: &Event| matches!(event, Event::Ok { answer: Answer::Status { leadership: Some(other), .. }, .. } if other.token > old.token);
    let newer = lines.iter().position(|line| is_newer(&line.event))?;
    let (at, call) = (lines[newer].at, Call::Leader { member: old.member.clone(), job: old.job.clone() });
    let Event::Ok { answer, .. } = again else { return None };
    lines.push(Line { at: at + 1, by: "again".into(), event: Event::Invoke { op: 1, call } });
    lines.push(Line { at: at + 2, by: "again".into(), event: Event::Ok { op: 1, answer } });
    Some(())
}

fn nobody_leads(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    let act = any(lines, rng, |event| matches!(event, Event::Act(_)))?;
    let since = lines[act].at;
    for line in lines.iter_mut().filter(|line| line.at > since) {
        line.at += 6 * TIMEOUT_MS * MS;
    }
    Some(())
}

fn nobody_leads_and_it_stalls(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    let act = any(lines, rng, |event| matches!(event, Event::Act(_)))?;
    let since = lines[act].at;
    for line in lines.iter_mut().filter(|line| line.at > since) {
        line.at += 6 * TIMEOUT_MS * MS;
    }
    let stall = |second: u64| stall(since + second * 1000 * MS, 400);
    lines.extend((5..35).step_by(5).map(stall));
    Some(())
}

pub(crate) fn stall(at: u64, ms: u64) -> Line {
    Line { at, by: "test".into(), event: Event::Stall { ms } }
}

/// The same before each decision.
pub(crate) fn stalls(lines: &mut Vec<Line>, ms: u64) {
    let decided: Vec<_> =
        lines.iter().filter(|line| matches!(line.event, Event::Decided { .. })).map(|line| line.at).collect();
    lines.extend(decided.into_iter().map(|at| stall(at - 1, ms)));
}

fn nobody_leads_at_the_end(lines: &mut Vec<Line>, _: &mut Rng) -> Option<()> {
    let end = last(lines, |event| matches!(event, Event::Finished))?;
    lines[end].at += 6 * TIMEOUT_MS * MS;
    Some(())
}

pub(crate) fn no_fault(lines: &mut Vec<Line>, _: &mut Rng) -> Option<()> {
    lines.retain(|line| !matches!(line.event, Event::Fault { .. } | Event::Healed { .. }));
    // An operator's commands would explain it too.
    lines.retain(|line| line.by != "operator" && !matches!(&line.event, Event::Request { .. }));
    lines.retain(|line| !matches!(&line.event, Event::Decided { cause, .. } if cause == "switchover"));
    Some(())
}

fn no_fault_but_stalls(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    no_fault(lines, rng)?;
    stalls(lines, 400);
    Some(())
}

fn moved_long_after(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    let number = any(lines, rng, |event| matches!(event, Event::Fault { .. }))?;
    let removed = fault(&lines[number])?;
    let at = without_fault(lines, removed)?;
    calm_before(lines, at, 7 * TIMEOUT_MS)
}

fn not_ordered(lines: &mut Vec<Line>, rng: &mut Rng) -> Option<()> {
    lines.retain(|line| line.by != "operator");
    any(lines, rng, |event| matches!(event, Event::Decided { cause, .. } if cause == "switchover")).map(drop)
}

fn process_left(lines: &mut Vec<Line>, _: &mut Rng) -> Option<()> {
    let at = lines.last()?.at;
    lines.push(Line { at, by: "test".into(), event: Event::Left { pid: 77, command: "ledger run".into() } });
    Some(())
}

fn worker_panics(lines: &mut Vec<Line>, _: &mut Rng) -> Option<()> {
    let end = last(lines, |event| matches!(event, Event::Act(_)))?;
    let (at, member) = (lines[end].at, leadership(&lines[end]).member);
    let event = Event::Ended { member, code: Some(101), asked: false };
    lines.push(Line { at, by: "test".into(), event });
    Some(())
}
