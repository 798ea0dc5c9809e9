//! The bounds of the records of an election.

#[path = "bounds_checks.rs"]
mod bounds_checks;

/// What the checks need of this crate.
mod election_core_records {
    pub(super) use crate::{
        record::{Record, limits::*},
        text,
    };
}

use serde_json::Value;

use self::bounds_checks::Kind;
use super::{limits::MAX_SLOTS, *};

const STATES: [&str; 7] = [
    r#"{"state":"pending"}"#,
    r#"{"state":"planned","at_ms":1}"#,
    r#"{"state":"accepted","term":2}"#,
    r#"{"state":"done","term":3,"leader":"a","at_ms":4}"#,
    r#"{"state":"failed","reason":"r","at_ms":5}"#,
    r#"{"state":"expired","reason":"r","at_ms":6}"#,
    r#"{"state":"cancelled","reason":"r","at_ms":7}"#,
];

/// Each record with all of its fields.
fn kinds() -> Vec<Kind> {
    let mut kinds = vec![
        Kind::new::<Contender>(
            "contender",
            r#"{"v":1,"member":"a","site":"s","status":"READY","address":"h","http":"u","token_base":3,"software":"w","since_ms":1,
        "ready_ms":2}"#,
        ),
        Kind::new::<Control>(
            "control",
            r#"{"v":2,"mode":"auto","drained":["s"],"failed_sites":[{"site":"s","reason":"r","by":"b","at_ms":1}],
        "maintenance":[{"member":"a","site":"s","by":"b","at_ms":2}],"preferred_site":"s","site_order":["s"],
        "paused_in":"manual","stay":[3],"confirmed":[{"term":4,"site":"s","by":"b"}],
        "stopped":{"reason":"r","by":"b","at_ms":5},"moves_to":{"place":{"servers":"s","path":"/p","czxid":7,"created_ms":8},
        "done":true,"by":"b","at_ms":9},"moved_from":{"place":{"servers":"s","path":"/p","czxid":10,"created_ms":11},
        "reason":"r","by":"b","at_ms":12},"changed_by":"b","changed_at_ms":6,
        "changed_reason":"r"}"#,
        ),
        Kind::new::<Current>(
            "current",
            r#"{"v":1,"member":"a","ballot":"x-0000000001","site":"s","slot":1,"term":2,"status":"READY","endpoint":"h",
        "fencing_token":3,"since_ms":4,"ready_ms":5}"#,
        ),
        Kind::new::<Elected>(
            "elected",
            r#"{"v":1,"term":9,"slots":[{"named":{"member":"a","ballot":"x-0000000001","site":"s"},"given":{"term":8,
        "cause":"startup","sentence":"s","decided_at_ms":1,"noticed_at_ms":2,"request":{"czxid":3,"name":"r"},
        "previous":{"member":"a","ballot":"x-0000000001","site":"s"}},"succession":[{"member":"a","ballot":"x-0000000001",
        "site":"s"}],"attempts":[4],"obeyed":[5]}],"exclusions":[{"member":"a","ballot":"x-0000000001","since_ms":6,
        "until_ms":7,"reason":"r"}],"failures":[{"member":"a","at_ms":8,"cause":"c","term":9}],"site_failures":[{"site":"s",
        "at_ms":10,"why":"w","over_at_ms":11,"overruled":"b"}],"losses":{"s":[11]},"acknowledged_at_ms":12,
        "youngest":"x-0000000001","token_base":13,"decided_by":"b","last_request":14}"#,
        ),
        Kind::new::<HistoryEntry>(
            "history",
            r#"{"v":1,"term":1,"member":"a","ballot":"x-0000000001","site":"s","slot":1,"fencing_token":2,"cause":"startup",
        "sentence":"s","previous":{"member":"a","ballot":"x-0000000001","site":"s"},"ready_ms":3,"phases":{"decide_ms":4,
        "release_ms":5,"acquire_ms":6,"takeover_ms":7}}"#,
        ),
        Kind::new::<MemberRecord>(
            "member",
            r#"{"v":1,"member":"a","site":"s","ballot":"x-0000000001","address":"h","http":"u","priority":1,"attributes":{"k":"v"},
        "measured":["k"],"health":{"state":"unhealthy","reason":"r"},"site_health":{"state":"healthy"},"policy":"p",
        "config":{"version":1,"refused":{"version":2,"reason":"r"}},"software":"w","orders_format":2,
        "session_timeout_ms":3,"joined_ms":4,"gave_up":{"term":5,"cause":"resigned","reason":"r","at_ms":6},
        "called_off":{"term":6,"reason":"r"},"withdrawn":"w","leaving":true,"prepared":7,"holds":"h","unreached":[{"ballot":"x-0000000001","since_ms":8}],
        "round_trips":{"peers":{"a":9},"zookeeper":10,"targets":{"t":11}},
        "remembers":{"term":12,"mzxid":13,"token":14,"token_base":15,"last_request":16}}"#,
        ),
        Kind::new::<TokenBase>("tokens", r#"{"v":1,"token_base":1,"by":"b","at_ms":2}"#),
    ];
    kinds.extend(STATES.map(|state| {
        let text = r#"{"v":1,"id":"i","kind":"switchover","to":{"member":"a"},"from":{"slot":1},"force":true,
            "now":true,"accept_loss":true,"reason":"r","by":"b","created_ms":1,"valid_for_ms":2,"state":"#;
        Kind::new::<AdminRequest>("request", &format!("{text}{state}}}"))
    }));
    kinds
}

#[test]
fn each_number_has_a_limit_that_is_kept() {
    let numbers = bounds_checks::numbers(&kinds());
    assert!(numbers > 60, "{numbers}");
}

#[test]
fn each_text_is_read_as_a_line_or_refused() {
    let texts = bounds_checks::texts(&kinds());
    assert!(texts > 120, "{texts}");
}

#[test]
fn names_that_are_too_long_and_counts_that_are_too_high_are_refused() {
    bounds_checks::names(&kinds());
    let kinds = kinds();
    let elected = kinds.iter().find(|kind| kind.sample.contains("decided_by")).unwrap();
    let sample: Value = serde_json::from_str(&elected.sample).unwrap();
    for (list, most) in [
        ("/slots", MAX_SLOTS),
        ("/exclusions", most::EXCLUSIONS),
        ("/site_failures", most::SITE_FAILURES),
        ("/slots/0/succession", most::LINE),
        ("/slots/0/attempts", most::attempts(1)),
        ("/slots/0/obeyed", most::obeyed(1)),
    ] {
        let with = |count: usize| {
            let mut changed = sample.clone();
            let items = changed.pointer_mut(list).unwrap().as_array_mut().unwrap();
            *items = vec![items[0].clone(); count];
            elected.is_usable(changed.to_string().as_bytes())
        };
        assert!(with(1) && (list == "/slots" || with(most)) && !with(most + 1), "{list}");
    }
}

/// The error names what mends it, unless a newer program does.
#[test]
fn a_refused_decision_is_mended_by_its_deletion() {
    let refused = |text: &str| Elected::decode("/e", text.as_bytes()).unwrap_err().to_string();
    assert!(
        refused(r#"{"v":1,"term":18446744073709551615,"slots":[],"decided_by":""}"#).contains("delete it")
    );
    assert!(!refused(r#"{"v":7,"term":1,"slots":[],"decided_by":""}"#).contains("delete it"));
}

#[test]
fn whatever_the_bytes_are_a_record_encodes_to_itself() {
    let usable = bounds_checks::bytes(&kinds(), 4000);
    assert!(usable > 400, "{usable}");
}
