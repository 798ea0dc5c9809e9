//! The bounds of the records that only operators use.

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
use super::{Breadcrumbs, Roster};

/// Each record with all of its fields.
fn kinds() -> [Kind; 2] {
    [
        Kind::new::<Breadcrumbs>(
            "breadcrumbs",
            r#"{"v":1,"leaderships":[{"member":"a","ballot":"x-0000000001","site":"s","address":"h","slot":1,"term":2,
        "fencing_token":3,"since_ms":4}]}"#,
        ),
        Kind::new::<Roster>(
            "roster",
            r#"{"v":1,"members":{"a":{"site":"s","absent":{"since_ms":1,"stopped":true}}}}"#,
        ),
    ]
}

#[test]
fn whatever_a_record_has_it_is_bounded_or_refused() {
    let (numbers, texts) = (bounds_checks::numbers(&kinds()), bounds_checks::texts(&kinds()));
    assert!(numbers >= 5 && texts >= 5, "{numbers} {texts}");
    bounds_checks::names(&kinds());
    let usable = bounds_checks::bytes(&kinds(), 1500);
    assert!(usable > 100, "{usable}");
}
