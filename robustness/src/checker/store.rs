//! A store that checks tokens is linearizable, and keeps what it has acknowledged.
//!
//! A store holds a list of values and the highest token that it has seen. The last read has the whole list, so the order of
//! all writes is known, and the question is only whether each operation had an effect at some time between its first and its
//! last line, in this order. Each is placed as early as it can be: if one comes too late then, no order exists.

use std::collections::{BTreeMap, BTreeSet};

use super::violation::Findings;
use crate::history::{Answer, Call, Event, History, Operation, Outcome, STALE};

pub(super) fn check(history: &History) -> Findings {
    let mut findings = Findings::default();
    let mut stores: BTreeMap<&str, Vec<Operation<'_>>> = BTreeMap::new();
    for operation in history.operations() {
        let (Call::Claim { store, .. } | Call::Write { store, .. } | Call::Read { store }) = operation.call
        else {
            continue;
        };
        stores.entry(store).or_default().push(operation);
    }
    let members = members(history);
    for operations in stores.values() {
        one_member_each(&mut findings, history, operations, &members);
        let Some((values, last)) = operations.iter().rev().find_map(|read| match read.outcome {
            Outcome::Ok(Answer::Values { values }) => Some((values, read)),
            _ => None,
        }) else {
            continue;
        };
        findings.examined += operations.len();
        let before = findings.violations.len();
        let placed = contents(&mut findings, operations, values, last);
        // Otherwise there is no list in which anything has a place.
        if findings.violations.len() == before {
            order(&mut findings, operations, &placed);
        }
    }
    findings
}

/// Which member the writers of a history belong to: those that have led.
fn members(history: &History) -> BTreeMap<&str, &str> {
    let led = history.lines().iter().filter_map(|line| match &line.event {
        Event::Lead(leadership) | Event::Act(leadership) | Event::End(leadership) => {
            Some((line.by.as_str(), leadership.member.as_str()))
        }
        _ => None,
    });
    led.collect()
}

/// A store can't tell two members with one token apart.
fn one_member_each(
    findings: &mut Findings,
    history: &History,
    operations: &[Operation<'_>],
    members: &BTreeMap<&str, &str>,
) {
    let mut owners = BTreeMap::new();
    let mut shared = BTreeSet::new();
    for operation in operations {
        let (Call::Claim { token, .. } | Call::Write { token, .. }) = operation.call else { continue };
        let Some(member) = members.get(history.lines()[operation.line].by.as_str()) else { continue };
        let (owner, line) = *owners.entry(*token).or_insert((*member, operation.line));
        if owner != *member && shared.insert(*token) {
            let lines = [line].into_iter().chain(operation.lines()).collect();
            findings.found(format!("{owner} and {member} have used the token {token} of the store"), lines);
        }
    }
}

/// Compares the list with the writes. Returns the writes in its order.
fn contents<'a>(
    findings: &mut Findings,
    operations: &'a [Operation<'a>],
    values: &[(u64, u64)],
    last: &Operation<'_>,
) -> Vec<(u64, &'a Operation<'a>)> {
    let mut writes = BTreeMap::new();
    for operation in operations {
        if let Call::Write { token, value, .. } = operation.call {
            writes.insert((*token, *value), operation);
        }
    }
    let (mut placed, mut highest) = (Vec::new(), 0);
    for entry @ (token, value) in values {
        let Some(write) = writes.remove(entry) else {
            findings.found(
                format!("the store has the value {value} of token {token} twice, or nobody wrote it"),
                last.lines(),
            );
            continue;
        };
        if let Outcome::Fail(reason) = write.outcome {
            findings.found(
                format!("the value {value} was refused ({reason}), and the store has it"),
                write.lines(),
            );
        }
        if *token < highest {
            findings.found(
                format!("the value {value} of token {token} follows one of token {highest}"),
                write.lines(),
            );
        }
        highest = highest.max(*token);
        placed.push((*token, write));
    }
    for ((_, value), write) in writes {
        if matches!(write.outcome, Outcome::Ok(_)) && write.to < last.from {
            findings.found(
                format!("the value {value} was acknowledged, and the store does not have it"),
                write.lines(),
            );
        }
    }
    placed
}

/// The latest of the earliest places so far, and the line of the operation that is there.
#[derive(Clone, Copy, Default)]
struct Place {
    at: u64,
    line: usize,
}

impl Place {
    /// Places an operation after this.
    fn then(self, findings: &mut Findings, operation: &Operation<'_>, what: &str) -> Self {
        if self.at > operation.to {
            let lines = operation.lines().into_iter().chain([self.line]).collect();
            findings.found(
                format!("{what} had ended before that which the store had to do first had begun"),
                lines,
            );
        }
        self.max(Self { at: operation.from, line: operation.line })
    }

    fn max(self, other: Self) -> Self {
        if other.at > self.at { other } else { self }
    }
}

/// Places the writes in the order of the list, the claims in that of their tokens, and the reads by what they have seen.
fn order(findings: &mut Findings, operations: &[Operation<'_>], written: &[(u64, &Operation<'_>)]) {
    let mut reads = BTreeMap::<usize, Vec<_>>::new();
    // The tokens that the store may have seen, each with the earliest time.
    let mut raised = Vec::new();
    // Of equal tokens claims first: they are free among the writes.
    let mut in_order: Vec<_> = written.iter().map(|(token, write)| (*token, true, *write)).collect();
    for operation in operations {
        match (operation.call, operation.outcome) {
            (Call::Claim { token, .. }, Outcome::Ok(_)) => in_order.push((*token, false, operation)),
            (Call::Claim { token, .. } | Call::Write { token, .. }, Outcome::Unknown) => {
                raised.push((*token, operation.from));
            }
            (Call::Read { .. }, Outcome::Ok(answer)) => {
                let seen = match answer {
                    Answer::Count { count } => usize::try_from(*count).unwrap_or(usize::MAX),
                    Answer::Values { values } => values.len(),
                    _ => continue,
                };
                reads.entry(seen).or_default().push(operation);
            }
            _ => {}
        }
    }
    in_order.sort_by_key(|(token, is_write, _)| (*token, *is_write));
    // Where all claims and writes of lower tokens are, where the last of each is, and where the last write or read is.
    let (mut lower, mut latest, mut list) = (Place::default(), Place::default(), Place::default());
    let mut read = |findings: &mut Findings, mut list: Place, seen: usize| {
        for operation in reads.remove(&seen).unwrap_or_default() {
            list = list.then(findings, operation, &format!("a read that saw {seen} values"));
        }
        list
    };
    list = read(findings, list, 0);
    let (mut highest, mut length) = (0, 0);
    for (token, is_write, operation) in in_order {
        if token > highest {
            (highest, lower) = (token, latest);
        }
        if is_write {
            list = list.max(lower).then(findings, operation, &format!("a write with token {token}"));
            raised.push((token, list.at));
            latest = latest.max(list);
            length += 1;
            list = read(findings, list, length);
        } else {
            let place = lower.then(findings, operation, &format!("a claim of token {token}"));
            raised.push((token, place.at));
            latest = latest.max(place);
        }
    }
    for (seen, operations) in reads {
        let lines = operations.iter().flat_map(|operation| operation.lines()).collect();
        findings.found(format!("a read saw {seen} values, and the store has {length} at its end"), lines);
    }
    for operation in operations {
        let (Call::Claim { token, .. } | Call::Write { token, .. }) = operation.call else { continue };
        let is_newer = |(other, at): &(u64, u64)| other > token && *at <= operation.to;
        if operation.outcome == Outcome::Fail(STALE) && !raised.iter().any(is_newer) {
            findings.found(
                format!("token {token} was refused as too old, and nobody had used a newer one"),
                operation.lines(),
            );
        }
    }
}
