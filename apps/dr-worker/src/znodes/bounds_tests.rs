//! The bounds of the records of overlays and drills.

#[path = "bounds_checks.rs"]
mod bounds_checks;

/// What the checks need of election-core.
mod election_core_records {
    pub(super) use election_core::internals::{
        record::{Record, limits::*},
        text,
    };
}

use self::bounds_checks::Kind;
use super::{DrillAnswer, DrillOrder, Evacuation, Halted, Overlay};

/// Each record with all of its fields.
fn kinds() -> [Kind; 5] {
    [
        Kind::new::<DrillAnswer>(
            "drill answer",
            r#"{"v":1,"run":"r","member":"a","site":"s","version":"w","seen_ms":1,"steps":[{"state":"accepted","after_ms":2,
        "reason":"r"}],"probes":{"target":"t","interval_ms":3,"first_ms":4,"last_ms":5,"count":6,"failed":7,
        "longest_gap_ms":8,"outages":[{"served_until_ms":9,"first_ms":10,"last_ms":11,"served_from_ms":12,"count":13,
        "reason":"r"}],"omitted":14,"last_success_ms":15},"closed":true}"#,
        ),
        Kind::new::<DrillOrder>(
            "drill order",
            r#"{"v":1,"run":"r","by":"b","reason":"r","at_ms":1,"until_ms":2,"mode":"cut-site","members":["a"],"go":true,
        "cut_ms":4,"probe":true}"#,
        ),
        Kind::new::<Evacuation>(
            "evacuation",
            r#"{"v":1,"site":"s","to_site":"t","force":true,"now":true,"undo":true,"abandoned":true,"by":"b","reason":"r",
        "at_ms":1,"steps":[{"job":"j","after":["k"],"from":{"member":"a","site":"s"},"predicted":{"member":"b","site":"t"},
        "longest_ms":5,"state":"failed","back":true,"drained":true,"tries":2,"tries_before":1,"request":"r-1","begun_ms":3,
        "ended_ms":4,"leader":{"member":"c","site":"t"},"why":"w"}]}"#,
        ),
        Kind::new::<Halted>("halted", r#"{"v":1,"term":2,"program":"stopping"}"#),
        Kind::new::<Overlay>(
            "overlay",
            r#"{"v":1,"version":2,"text":"t","by":"b","at_ms":3,"reason":"r","restores":1}"#,
        ),
    ]
}

#[test]
fn whatever_a_record_has_it_is_bounded_or_refused() {
    let (numbers, texts) = (bounds_checks::numbers(&kinds()), bounds_checks::texts(&kinds()));
    assert!(numbers >= 20 && texts > 20, "{numbers} {texts}");
    bounds_checks::names(&kinds());
    let usable = bounds_checks::bytes(&kinds(), 1500);
    assert!(usable > 100, "{usable}");
}
