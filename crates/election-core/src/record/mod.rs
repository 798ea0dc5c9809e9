//! The contents of the znodes: JSON that an operator can read with any client.
//!
//! Every record contains its format version `v`. A reader ignores unknown fields, limits the size, and rejects invalid
//! records with an error that names the path.
//!
//! There is one format, but for one order in [`Control`]. A field that an older program can ignore does not need a new format: programs of both versions
//! work in one election, and can be replaced one after the other. This program can't use a record of a later format.
//! Its election then does not change until a newer program decides.

mod applied;
mod cause;
mod contender;
mod control;
mod current;
mod elected;
mod format;
mod history;
pub mod limits;
mod member;
mod named;
mod request;
mod slot;
mod tokens;

pub use applied::{AppliedOverlay, RefusedOverlay};
pub use cause::Cause;
pub use contender::{Contender, ContenderStatus};
pub use control::{
    Confirmed, Control, FailedSite, Maintenance, Mode, Move, OrderedBy, Place, StoppedJob, StoppedStandby,
};
pub use current::{Current, Status};
pub use elected::{Elected, Exclusion, MemberFailure, SiteFailure};
pub(crate) use elected::{keep_newest, most};
pub use format::{MAX_RECORD, Record, RecordError, VERSION, is_default};
pub use history::{HistoryEntry, Phases};
pub use limits::MAX_SLOTS;
pub use member::{CalledOff, GaveUp, Health, MemberRecord, Remembered, RoundTrips, Unreached};
pub use named::{Named, Previous};
pub use request::{
    AdminRequest, FiledRequest, Outgoing, PlanPhase, RequestKind, RequestRef, RequestState, Target,
};
pub use slot::{Given, Slot};
pub use tokens::TokenBase;

macro_rules! records {
    ($($name:ident $(: $mended:literal)?),* $(,)?) => {$(
        impl Record for $name {
            $(const MENDED_BY: &str = $mended;)?

            fn version(&self) -> u32 {
                self.v
            }
        }
    )*};
}

records! {
    Contender: "its member writes it again",
    Current: "delete it, or restart the worker of its leader; a leader that knows the znode as its own writes it again",
    HistoryEntry,
    MemberRecord: "its member writes it again",
    TokenBase: "raise the tokens above the newest one that the resource has seen, which replaces it",
}

impl Record for AdminRequest {
    fn version(&self) -> u32 {
        self.v
    }

    fn check_name(name: &str) -> Result<(), String> {
        if RequestRef::is_name(name) { Ok(()) } else { Err("its name is not that of a request".to_owned()) }
    }
}

impl Record for Control {
    const NEWEST: u32 = Self::WITH_STOP;
    const MENDED_BY: &str = "delete it, and give the standing orders again";

    fn version(&self) -> u32 {
        self.v
    }
}

/// Records that grow: other crates change a copy, which they can't build field by field.
macro_rules! with {
    ($($record:ty),*) => {$(
        impl $record {
            /// This record with a change.
            #[must_use]
            pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
                change(&mut self);
                self
            }
        }
    )*};
}

with!(Control, MemberRecord, AdminRequest, RoundTrips);

#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_that_nothing_checks_is_left_out() {
        let text = r#"{"v":1,"member":"east-1","site":"east","ballot":"0-0000000007"}"#;
        let mut member = MemberRecord::decode("/n", text.as_bytes()).unwrap();
        assert!(member.health.is_unchecked() && member.health.is_fit());
        assert!(!String::from_utf8_lossy(&member.encode("/n").unwrap()).contains("health"));
        member.health = Health::Unhealthy { reason: "  ".to_owned() };
        assert!(!member.health.is_fit());
        assert_eq!(member.health.to_string(), "unhealthy");
    }

    #[test]
    fn garbage_is_refused_with_its_path() {
        let error = Elected::decode("/dr/orders/leader/elected", b"not json").unwrap_err();
        assert!(error.to_string().contains("/dr/orders/leader/elected"), "{error}");
        let error = Control::decode("/c", br#"{"v":9}"#).unwrap_err();
        assert!(error.to_string().contains("version 9"), "{error}");
        assert!(Control::decode("/c", &vec![b' '; MAX_RECORD + 1]).is_err());
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let control = Control::decode("/c", br#"{"v":1,"from_the_future":[1,2]}"#).unwrap();
        assert_eq!(control, Control::default());
    }

    #[test]
    fn an_election_that_moves_is_closed_until_it_is_open_at_the_new_place() {
        let moved = |done| Move {
            place: Place { servers: "zk:1".to_owned(), path: "/dr/a".to_owned(), czxid: 7, created_ms: 8 },
            done,
            ordered: OrderedBy::default(),
        };
        let closed = |moves_to, moved_from| Control { moves_to, moved_from, ..Control::NONE }.closed();
        assert_eq!(closed(None, None), None);
        assert_eq!(closed(None, Some(moved(true))), None);
        for (to, from, why) in [
            (Some(moved(false)), None, "moves to /dr/a at zk:1"),
            (Some(moved(true)), None, "has moved to /dr/a at zk:1"),
            (None, Some(moved(false)), "not open yet"),
            // It moves on.
            (Some(moved(false)), Some(moved(true)), "moves to"),
        ] {
            assert!(closed(to, from).unwrap().contains(why), "{why}");
        }
        let named = |servers: &str| Place { servers: servers.to_owned(), ..moved(false).place };
        assert!(named("zk:2,zk:1").is_same(&named("zk:1")));
        assert!(!named("zk:1").is_same(&Place { czxid: 9, ..named("zk:1") }));
    }

    #[test]
    fn an_order_has_its_author_reason_and_time_beside_its_subject() {
        let text = concat!(
            r#"{"v":1,"mode":"auto","failed_sites":[{"site":"east","reason":"flood","by":"ann","at_ms":5}],"#,
            r#""maintenance":[{"member":"west-1","site":"west","by":"ann","at_ms":6}],"#,
            r#""stopped":{"reason":"audit","by":"bob","at_ms":7}}"#
        );
        let control = Control::decode("/c", text.as_bytes()).unwrap();
        assert_eq!(control.encode("/c").unwrap(), text.as_bytes());
        let ordered = &control.stopped.unwrap().ordered;
        assert_eq!(
            (ordered.reason.as_deref(), ordered.by.as_str(), ordered.at_ms),
            (Some("audit"), "bob", 7)
        );
        let least = br#"{"failed_sites":[{"site":"east"}],"maintenance":[{"member":"west-1","later":1}]}"#;
        let control = Control::decode("/c", least).unwrap();
        assert_eq!(control.failed_sites[0].ordered, control.maintenance[0].ordered);
        assert_eq!(control.maintenance[0].ordered, OrderedBy::default());
    }
}
