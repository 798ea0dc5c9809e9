use serde_json::from_value;

use super::*;

const START: u64 = 1_700_000_000_000;

/// A leader znode, READY since this time.
fn leader(member: &str, term: u64, status: &str, ready_ms: u64) -> Current {
    from_value(json!({
        "v": 1, "member": member, "ballot": format!("{member}-0000000001"), "site": "east", "term": term,
        "status": status, "since_ms": ready_ms, "ready_ms": ready_ms, "fencing_token": term * 100,
    }))
    .unwrap()
}

/// A decision that names this member.
fn decision(term: u64, named: &str, cause: &str, previous: Option<&str>) -> Elected {
    let named_of =
        |member: &str| json!({ "member": member, "ballot": format!("{member}-0000000001"), "site": "east" });
    from_value(json!({
        "v": 1, "term": term, "decided_by": "x",
        "slots": [{
            "named": named_of(named),
            "given": {
                "term": term, "cause": cause, "sentence": format!("{named} leads"), "decided_at_ms": START + term,
                "previous": previous.map(named_of),
            },
        }],
    }))
    .unwrap()
}

fn seen(elected: &Elected, leader: Option<&Current>) -> SeenStatus {
    SeenStatus {
        elected: Some(elected.clone().into()),
        leaders: vec![leader.cloned().map(Into::into)],
        ..SeenStatus::default()
    }
}

/// The names and keys of the events between two looks.
fn found(before: Option<&SeenStatus>, now: &SeenStatus) -> Vec<(&'static str, String)> {
    let finder = Finder { before, now, since_ms: START };
    finder.find().into_iter().map(|event| (event.kind.as_str(), event.key)).collect()
}

fn one(name: &'static str, key: &str) -> (&'static str, String) {
    (name, key.to_owned())
}

#[test]
fn a_leader_is_reported_once_it_is_ready() {
    let first = decision(1, "a", "startup", None);
    let progress = seen(&first, Some(&leader("a", 1, "PROGRESS", START)));
    let ready = seen(&first, Some(&leader("a", 1, "READY", START)));
    assert_eq!(found(None, &progress), []);
    assert_eq!(found(Some(&progress), &ready), [one("leader-changed", "0/1")]);
    assert_eq!(found(Some(&ready), &ready), []);
    // A new sender reports what has just happened, and nothing that is older.
    assert_eq!(found(None, &ready), [one("leader-changed", "0/1")]);
    let old = seen(&first, Some(&leader("a", 1, "READY", START - 1)));
    assert_eq!(found(None, &old), []);
    let event = Finder { before: None, now: &ready, since_ms: START }.find().remove(0);
    assert_eq!(event.text, "a of site east leads in term 1: a leads");
    assert_eq!((&event.facts["fencing_token"], &event.facts["cause"]), (&json!(100), &json!("startup")));
}

#[test]
fn a_leader_that_becomes_ready_before_the_eyes_of_the_sender_is_news_whatever_its_clock_says() {
    let with_ballot = |ballot: &str, seen: SeenStatus| SeenStatus {
        ballot: Some(from_value(json!(format!("{ballot}-0000000009"))).unwrap()),
        ..seen
    };
    let (first, second) = (decision(1, "a", "startup", None), decision(2, "b", "leader-lost", Some("a")));
    let behind = START - 60_000;
    let ready = with_ballot("x", seen(&second, Some(&leader("b", 2, "READY", behind))));
    let is_news = |before: SeenStatus| {
        found(Some(&before), &ready)
            .iter()
            .any(|(name, key)| (*name, key.as_str()) == ("leader-changed", "0/2"))
    };
    assert!(is_news(with_ballot("x", seen(&second, Some(&leader("b", 2, "PROGRESS", behind))))));
    assert!(is_news(with_ballot("x", seen(&first, None))));
    // It may be that the leader is read for the first time.
    assert!(!is_news(with_ballot("x", seen(&second, None))));
    assert!(!is_news(with_ballot("y", seen(&first, Some(&leader("a", 1, "READY", START))))));
    assert!(!is_news(seen(&first, Some(&leader("a", 1, "READY", START)))));
    // So is a decision, by the clock of the member that has stepped in.
    let mut late = second.clone();
    late.slots[0].given.decided_at_ms = behind;
    let (before, now) = (with_ballot("x", seen(&first, None)), with_ballot("x", seen(&late, None)));
    assert_eq!(found(Some(&before), &now), [one("leader-lost", "0/a-0000000001")]);
    assert_eq!(found(Some(&with_ballot("y", seen(&first, None))), &now), []);
}

#[test]
fn a_failed_takeover_is_news_without_a_penalty_window_too() {
    let before = seen(&decision(1, "a", "startup", None), None);
    let failed = decision(2, "b", "takeover-failed", Some("a"));
    let news = [one("takeover-failed", &format!("a/{}", START + 2))];
    let now = seen(&failed, None);
    assert_eq!(found(Some(&before), &now), news);
    assert_eq!(found(None, &now), news);
    assert_eq!(found(Some(&now), &now), []);
    let event = Finder { before: Some(&before), now: &now, since_ms: START }.find().remove(0);
    assert_eq!(event.text, "the takeover of a in term 1 has failed");
    // With one the failure is kept: the same event, once.
    let mut kept = serde_json::to_value(&failed).unwrap();
    kept["failures"] = json!([{ "member": "a", "at_ms": START + 2, "cause": "takeover-failed", "term": 1 }]);
    assert_eq!(found(Some(&before), &seen(&from_value(kept).unwrap(), None)), news);
}

#[test]
fn a_loss_has_one_key_however_it_is_seen() {
    let before = seen(&decision(1, "a", "startup", None), Some(&leader("a", 1, "READY", START)));
    let lost = [one("leader-lost", "0/a-0000000001")];
    let gone = seen(&decision(1, "a", "startup", None), None);
    assert_eq!(found(Some(&before), &gone), lost);
    // The decision follows, or is seen at once, or by a new sender.
    let decided = seen(&decision(2, "b", "leader-lost", Some("a")), None);
    assert_eq!(found(Some(&gone), &decided), lost);
    assert_eq!(found(Some(&before), &decided), lost);
    assert_eq!(found(None, &decided), lost);
    let replaced = seen(&decision(2, "b", "leader-lost", Some("a")), Some(&leader("b", 2, "READY", START)));
    assert_eq!(found(Some(&before), &replaced), [lost[0].clone(), one("leader-changed", "0/2")]);
}

#[test]
fn a_loss_before_a_member_becomes_the_sender_is_sent_by_it() {
    const PATIENCE: u64 = 15_000;
    let first = decision(1, "a", "startup", None);
    let long_ready = leader("a", 1, "READY", START - PATIENCE - 1);
    let on_ballot = |ballot: &str| SeenStatus {
        ballot: Some(from_value(json!(format!("{ballot}-0000000009"))).unwrap()),
        ..seen(&first, None)
    };
    let after = |gone: SeenStatus, becomes_after: u64| -> Vec<_> {
        let mut looks = Looks::new(PATIENCE);
        let led = SeenStatus { leaders: vec![Some(long_ready.clone().into())], ..on_ballot("b") };
        assert_eq!(looks.look(|_| led, START, false), []);
        assert_eq!(looks.look(|_| gone.clone(), START, false), []);
        let sent = looks.look(|_| gone.clone(), START + becomes_after, true);
        assert_eq!(looks.look(|_| gone, START + becomes_after, true), []);
        sent.into_iter().map(|event| (event.kind.as_str(), event.key)).collect()
    };
    // No successor is named.
    assert_eq!(after(on_ballot("b"), PATIENCE), [one("leader-lost", "0/a-0000000001")]);
    // The sender before it had the time to send it.
    assert_eq!(after(on_ballot("b"), PATIENCE + 1), []);
    // On another session the leader is not read yet.
    assert_eq!(after(on_ballot("c"), PATIENCE), []);
}

#[test]
fn a_planned_move_is_no_loss_and_a_failure_of_the_job_is_one() {
    let before = seen(&decision(1, "a", "startup", None), Some(&leader("a", 1, "READY", START)));
    for cause in ["switchover", "leader-shutdown", "failover", "better-candidate"] {
        let named = seen(&decision(2, "b", cause, Some("a")), Some(&leader("a", 1, "READY", START)));
        assert_eq!(found(Some(&before), &named), [], "{cause}");
        let released = seen(&decision(2, "b", cause, Some("a")), None);
        assert_eq!(found(Some(&named), &released), [], "{cause}");
    }
    let failed = seen(&decision(2, "b", "work-failed", Some("a")), Some(&leader("a", 1, "READY", START)));
    assert_eq!(found(Some(&before), &failed), [one("leader-lost", "0/a-0000000001/2")]);
}

/// What the elector sees when it skips a decision for this reason; `None`: it has just decided.
fn skips(before: &SeenStatus, term: u64, acknowledged_at_ms: u64, reason: Option<Reason>) -> SeenStatus {
    let mut elected = decision(term, "a", "leader-lost", None);
    elected.acknowledged_at_ms = acknowledged_at_ms;
    let now = seen(&elected, None);
    let skipped = reason.map(|reason| Skipped { reason, sentence: "ON HOLD".to_owned() });
    SeenStatus { hold: Hold::after(before.hold.as_ref(), true, skipped.as_ref(), &now), ..now }
}

#[test]
fn a_hold_is_reported_when_it_begins_and_ends() {
    let now = seen(&decision(3, "a", "leader-lost", None), None);
    let held = skips(&now, 3, 0, Some(Reason::Held));
    assert_eq!(found(Some(&now), &held), [one("hold-set", "3/0")]);
    assert_eq!(found(Some(&held), &held), []);
    // The same one, after a decision about another slot.
    let decided = skips(&held, 4, 0, None);
    let still = skips(&decided, 4, 0, Some(Reason::Backoff));
    assert_eq!((found(Some(&held), &decided), found(Some(&decided), &still)), (vec![], vec![]));
    let leads = skips(&still, 4, 0, Some(Reason::Confirm));
    assert_eq!(found(Some(&still), &leads), [one("hold-ended", "3/0")]);
}

#[test]
fn a_hold_lasts_while_the_elector_does_not_know_of_it() {
    let held = skips(&SeenStatus::default(), 3, 0, Some(Reason::Held));
    for reason in [Reason::Manual, Reason::Observe, Reason::Reading, Reason::Unreadable, Reason::Nobody] {
        let unknown = skips(&held, 3, 0, Some(reason));
        assert_eq!(found(Some(&held), &unknown), [], "{reason}");
        assert_eq!(found(Some(&unknown), &skips(&unknown, 3, 0, Some(Reason::Held))), [], "{reason}");
        // An operator has moved the leader, or acknowledged.
        for (term, acknowledged_at_ms) in [(4, 0), (3, 7)] {
            let over = skips(&unknown, term, acknowledged_at_ms, Some(reason));
            assert_eq!(found(Some(&unknown), &over), [one("hold-ended", "3/0")], "{reason}");
        }
    }
}

#[test]
fn exclusions_failures_and_sites_are_news_once() {
    let before = decision(1, "a", "startup", None);
    let mut now = serde_json::to_value(&before).unwrap();
    now["exclusions"] = json!([{
        "member": "b", "ballot": "b-0000000001", "since_ms": START, "until_ms": START + 1000, "reason": "no READY",
    }]);
    now["failures"] = json!([
        { "member": "b", "at_ms": START, "cause": "takeover-failed", "term": 1 },
        { "member": "a", "at_ms": START, "cause": "leader-lost", "term": 1 },
    ]);
    now["site_failures"] = json!([{ "site": "east", "at_ms": START, "why": "power" }]);
    let failed: Elected = from_value(now.clone()).unwrap();
    now["site_failures"][0]["over_at_ms"] = json!(START + 1);
    let returned: Elected = from_value(now).unwrap();
    let [before, failed, returned] = [before, failed, returned].map(|elected| seen(&elected, None));
    let is_over = [one("site-returned", &format!("east/{START}"))];
    let news = [
        one("takeover-failed", &format!("b/{START}")),
        one("member-excluded", &format!("b-0000000001/{START}")),
        one("site-failed", &format!("east/{START}")),
    ];
    assert_eq!(found(Some(&before), &failed), news);
    assert_eq!(found(None, &failed), news);
    assert_eq!(found(Some(&failed), &failed), []);
    assert_eq!(found(Some(&failed), &returned), is_over);
    assert_eq!(found(Some(&returned), &returned), []);
    // The sender before this one may have sent neither.
    assert_eq!(found(None, &returned), [news.to_vec(), is_over.to_vec()].concat());
    let since = |since_ms| Finder { before: None, now: &returned, since_ms }.find();
    assert_eq!(
        since(START + 1).into_iter().map(|event| event.key).collect::<Vec<_>>(),
        is_over.map(|(_, key)| key)
    );
    assert_eq!(since(START + 2), []);
}

#[test]
fn a_request_is_reported_if_it_has_failed_or_expired() {
    let request = |state: Value| -> FiledRequest {
        let request = json!({
            "v": 1, "id": "1", "kind": "switchover", "by": "ann@desk", "created_ms": START, "state": state,
        });
        let which = from_value(json!({ "czxid": 7, "name": "r-0000000003" })).unwrap();
        FiledRequest { which, request: from_value(request).unwrap() }
    };
    let failed = json!({ "state": "failed", "reason": "b is not fit", "at_ms": START });
    let (at_ms, event) = of_request(&request(failed)).unwrap();
    assert_eq!((at_ms, event.key.as_str()), (START, "r-0000000003/7"));
    assert_eq!(event.text, "request r-0000000003, a switchover asked for by ann@desk, failed: b is not fit");
    assert!(of_request(&request(json!({ "state": "expired", "reason": "late", "at_ms": START }))).is_some());
    assert!(
        of_request(&request(json!({ "state": "cancelled", "reason": "by ann", "at_ms": START }))).is_none()
    );
    assert!(of_request(&request(json!({ "state": "pending" }))).is_none());
}
