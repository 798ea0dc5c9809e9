//! What `/events` reports about a job, and what differs between two looks at it.

use election_core::{
    internals::record::{Current, Elected},
    status::ElectionStatus,
};
use job_guard::ProcessStatus;
use serde_json::{Value, json};

/// The name of an event, and its data.
pub(super) type EventPart = (&'static str, Value);

/// All parts of a job. Leaders are the last ones, because their number can change.
pub(super) fn parts(status: &ElectionStatus, process: &ProcessStatus) -> Vec<EventPart> {
    let decision = status.elected.as_deref().map_or(Value::Null, decision);
    let role = json!({ "role": status.role.as_str(), "slot": status.slot, "term": status.term });
    let mut parts = vec![("role", role), ("process", json!(process)), ("decision", decision)];
    parts.extend(
        status.leaders.iter().enumerate().map(|(slot, current)| ("leader", leader(slot, current.as_deref()))),
    );
    parts
}

fn decision(elected: &Elected) -> Value {
    let slots = elected.slots.iter().map(|slot| {
        let named = slot.named.as_ref().map(|named| &named.member);
        json!({ "named": named, "term": slot.given.term, "cause": slot.given.cause, "sentence": slot.given.sentence })
    });
    json!({ "term": elected.term, "slots": slots.collect::<Vec<_>>() })
}

fn leader(slot: usize, current: Option<&Current>) -> Value {
    let Some(current) = current else { return json!({ "slot": slot, "leader": null }) };
    let Current { member, site, status, term, .. } = current;
    json!({ "slot": slot, "leader": member, "site": site, "status": status, "term": term })
}

/// The parts that differ.
pub(super) fn changed<'a>(
    before: &[EventPart],
    after: &'a [EventPart],
) -> impl Iterator<Item = &'a EventPart> {
    let before = before.to_vec();
    after.iter().enumerate().filter(move |(at, part)| before.get(*at) != Some(part)).map(|(_, part)| part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_an_event() {
        let part = |name, value: u64| (name, json!(value));
        let names = |before: &[EventPart], after: &[EventPart]| -> Vec<_> {
            changed(before, after).map(|(name, value)| (*name, value.clone())).collect()
        };
        let one = [part("role", 1), part("process", 1), part("leader", 1)];
        assert_eq!(names(&one, &one), []);
        assert_eq!(names(&[], &one), one);
        let more = [part("role", 1), part("process", 2), part("leader", 1), part("leader", 2)];
        assert_eq!(names(&one, &more), [part("process", 2), part("leader", 2)]);
        assert_eq!(names(&more, &one), [part("process", 1)]);
    }
}
