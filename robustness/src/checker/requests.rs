//! A request of an operator is begun at most once, and what the operator was told of it is true.

use std::collections::{BTreeMap, BTreeSet};

use super::violation::Findings;
use super::witnessed::first_terms;
use crate::history::{Answer, Call, Event, History, Outcome, RequestState};

/// The requests about a standby, which the leader does not carry out.
const ABOUT_STANDBY: [&str; 3] = ["restart-standby", "stop-standby", "start-standby"];

/// The commands that file a request, and end as it does.
const FOLLOWED: [&str; 5] = ["switchover", "failover", "restart", "stop", "start"];

/// What the servers know of a request: its states in their order, with their lines.
type States<'a> = BTreeMap<&'a str, Vec<(&'a RequestState, usize)>>;

pub(super) fn check(history: &History) -> Findings {
    let mut findings = Findings::default();
    let mut requests = States::new();
    let mut acquired = BTreeMap::new();
    let mut about_standby = BTreeSet::new();
    let first_term = first_terms(history).into_values().max().unwrap_or(u64::MAX);
    // A failover by force takes two decisions: the first one only vacates the slot.
    let mut vacating = BTreeSet::new();
    for (number, line) in history.lines().iter().enumerate() {
        match &line.event {
            Event::Acquired(leadership) => {
                acquired.insert((leadership.term, &leadership.member), number);
            }
            Event::Decided { term, member: None, .. } => {
                vacating.insert(*term);
            }
            Event::Request { request, kind, state } => {
                requests.entry(request).or_default().push((state, number));
                if kind.as_ref().is_some_and(|kind| ABOUT_STANDBY.contains(&kind.as_str())) {
                    about_standby.insert(request.as_str());
                } else if let RequestState::Done { term, leader } = state
                    && *term > first_term
                    && !acquired.contains_key(&(*term, leader))
                {
                    findings.found(
                        format!(
                            "{request} is said to be done by {leader} in term {term}, which has not led in it"
                        ),
                        vec![number],
                    );
                }
            }
            _ => {}
        }
    }
    for (request, states) in &requests {
        findings.examined += 1;
        if !about_standby.contains(request) {
            begins_once(&mut findings, request, states, &vacating);
        }
        stays_over(&mut findings, request, states);
    }
    for operation in history.operations() {
        let Call::Operator { verb, arguments, .. } = operation.call else { continue };
        let Outcome::Ok(Answer::Told { code, request, state }) = operation.outcome else { continue };
        findings.examined += 1;
        // What `cancel` has withdrawn is its argument.
        let (request, told) = match (verb.as_str(), code) {
            ("cancel", 0) => (arguments.first(), Some(&RequestState::Cancelled)),
            _ => (request.as_ref(), state.as_ref()),
        };
        let Some(request) = request else { continue };
        // Old ones are trimmed, and the servers' log may begin later.
        let Some((last, number)) = requests.get(request.as_str()).and_then(|states| states.last()) else {
            continue;
        };
        let is_done = matches!(last, RequestState::Done { .. });
        let code = Some(*code).filter(|_| FOLLOWED.contains(&verb.as_str()));
        let wrong = match (told, code) {
            (Some(told), _) if is_over(told) && told != *last => Some(name(told)),
            // Codes of commands: 1 if the request has failed, 0 of one that has waited if it is done.
            (_, Some(1)) if is_done || !is_over(last) => Some("failed (exit code 1)".to_owned()),
            (_, Some(0)) if arguments.iter().any(|word| word == "--wait") && !is_done => {
                Some("done (exit code 0)".to_owned())
            }
            _ => None,
        };
        if let Some(told) = wrong {
            let lines = operation.lines().into_iter().chain([*number]).collect();
            findings.found(
                format!("an operator was told that {request} is {told}, and it is {}", name(last)),
                lines,
            );
        }
    }
    findings
}

/// It begins in one term.
fn begins_once(
    findings: &mut Findings,
    request: &str,
    states: &[(&RequestState, usize)],
    vacating: &BTreeSet<u64>,
) {
    let mut begun = None;
    for (state, line) in states {
        if let RequestState::Accepted { term } | RequestState::Done { term, .. } = state
            && !vacating.contains(term)
        {
            match begun {
                Some((other, first)) if other != *term => {
                    findings.found(
                        format!("{request} was begun in term {other} and in term {term}"),
                        vec![first, *line],
                    );
                    return;
                }
                _ => begun = Some((*term, *line)),
            }
        }
    }
}

/// What is over stays so.
fn stays_over(findings: &mut Findings, request: &str, states: &[(&RequestState, usize)]) {
    for pair in states.windows(2) {
        let ((before, first), (after, second)) = (pair[0], pair[1]);
        if is_over(before) && before != after {
            findings.found(
                format!("{request} was {}, and became {}", name(before), name(after)),
                vec![first, second],
            );
            return;
        }
    }
}

fn is_over(state: &RequestState) -> bool {
    !matches!(state, RequestState::Planned | RequestState::Pending | RequestState::Accepted { .. })
}

fn name(state: &RequestState) -> String {
    match state {
        RequestState::Planned => "planned".to_owned(),
        RequestState::Pending => "pending".to_owned(),
        RequestState::Accepted { term } => format!("accepted in term {term}"),
        RequestState::Done { term, leader } => format!("done by {leader} in term {term}"),
        RequestState::Failed => "failed".to_owned(),
        RequestState::Expired => "expired".to_owned(),
        RequestState::Cancelled => "cancelled".to_owned(),
    }
}
