//! What stands in the znodes: JSON that an operator can read with any client.
//!
//! Every record carries its format version `v`, ignores fields it doesn't know,
//! is bounded in size, and refuses garbage with an error that names the path.
//!
//! # Formats
//! A field that an older program can do without needs no new format. The
//! [decision](Elected) has one, for what it says must be understood by all:
//!
//! | format | adds |
//! |---|---|
//! | 1 | |
//! | 2 | the causes `suspected`, `tokens-raised` and `slots-changed`; several slots, each with the decision that it rests on |
//! | 3 | the cause `standing-order` |
//!
//! Each member says in its record, which any program reads, up to which format it
//! [reads](MemberRecord::reads); the elector writes the newest one that all members
//! read, and does nothing that would need a newer one. So the programs of a fleet are
//! replaced one after the other while the election goes on, in any order. The other way
//! round goes as well while one of the newer members lives to write the older format.

mod contender;
mod control;
mod current;
mod elected;
mod history;
mod member;
mod request;
mod slot;

use serde::{Serialize, de::DeserializeOwned};

pub use contender::{Contender, ContenderStatus};
pub use control::{Confirmed, Control, FailedSite, Mode};
pub use current::{Current, Status};
pub(crate) use elected::most;
pub use elected::{Cause, Elected, Exclusion, Failure, Named, Previous, SiteFailure};
pub use history::{HistoryEntry, Phases};
pub use member::{GaveUp, Health, MemberRecord, Remembered, RoundTrips, Unreached};
pub use request::{FiledRequest, Outgoing, Request, RequestKind, RequestRef, RequestState, Target};
pub use slot::{Given, MAX_SLOTS, Slot};

/// The largest record that is read or written, in bytes.
///
/// Far below ZooKeeper's limit of 1 MiB for a whole packet; a member's record has
/// a few hundred bytes.
pub const MAX_RECORD: usize = 64 * 1024;

/// The format that records are written in which any program must be able to read.
pub const VERSION: u32 = 1;

/// The newest format that this crate reads and writes. It reads all since [`VERSION`].
pub const NEWEST: u32 = 3;

#[allow(clippy::trivially_copy_pass_by_ref)] // serde wants it so
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Since when leaders are deposed because others can't reach them.
pub(crate) const WITH_SUSPICION: u32 = 2;

/// Since when an election can have several slots, each with a term of its own.
pub(crate) const WITH_SLOTS: u32 = 2;

/// A record that can't be used. It takes its znode out of account and never
/// stops a process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Hash)]
#[error("the record at {path} can't be used: {why}")]
pub struct RecordError {
    /// The znode.
    pub path: String,
    /// What is wrong with it.
    pub why: String,
}

/// A record in a znode.
pub trait Record: Serialize + DeserializeOwned {
    /// The format version that the record says it has.
    fn version(&self) -> u32;

    /// Reads a record.
    ///
    /// # Errors
    /// When it is too large, no such JSON, or of a format that this crate can't read.
    fn decode(path: &str, data: &[u8]) -> Result<Self, RecordError> {
        let error = |why: String| RecordError { path: path.to_owned(), why };
        if data.len() > MAX_RECORD {
            return Err(error(format!("it has {} bytes, more than {MAX_RECORD}", data.len())));
        }
        let record: Self = serde_json::from_slice(data).map_err(|e| error(e.to_string()))?;
        if !(VERSION..=NEWEST).contains(&record.version()) {
            return Err(error(unknown_format(record.version(), NEWEST)));
        }
        Ok(record)
    }

    /// Writes a record.
    ///
    /// # Errors
    /// When it would be too large.
    fn encode(&self, path: &str) -> Result<Vec<u8>, RecordError> {
        let error = |why: String| RecordError { path: path.to_owned(), why };
        let data = serde_json::to_vec(self).map_err(|e| error(e.to_string()))?;
        if data.len() > MAX_RECORD {
            return Err(error(format!("it would have {} bytes, more than {MAX_RECORD}", data.len())));
        }
        Ok(data)
    }
}

macro_rules! record {
    ($($name:ty),*) => {$(
        impl Record for $name {
            fn version(&self) -> u32 {
                self.v
            }
        }
    )*};
}

record!(Contender, Control, Current, Elected, HistoryEntry, MemberRecord, Request);

/// Cuts a text for people to so many bytes. What would take more bytes in JSON than here is left out.
pub(crate) fn shorten(text: &mut String, most: usize) {
    text.retain(|c| !c.is_control());
    if text.len() > most {
        let end = (0..=most - '…'.len_utf8()).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}

pub(crate) fn unknown_format(version: u32, newest: u32) -> String {
    format!("its format is version {version}, and this program reads versions {VERSION} to {newest}")
}

fn version() -> u32 {
    VERSION
}

/// The first slot is the only one of most elections: it goes without saying.
#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_first(slot: &usize) -> bool {
    *slot == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
const fn is_false(flag: &bool) -> bool {
    !*flag
}

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

    /// As a program wrote them that knew format 1 alone, and nothing of what has been
    /// added since.
    #[test]
    fn records_of_the_previous_format_are_read() {
        let member = br#"{"v":1,"member":"east-1","site":"east","ballot":"a-0000000001","priority":2,
            "health":{"state":"healthy"},"joined_ms":5}"#;
        let member = MemberRecord::decode("/n", member).unwrap();
        assert_eq!((member.reads, member.priority, member.withdrawn), (1, 2, None));
        let elected =
            br#"{"v":1,"term":7,"slots":[{"member":"east-1","ballot":"a-0000000001","site":"east"}],
            "succession":[],"cause":"leader-lost","sentence":"s","decided_by":"west-1","decided_at_ms":9}"#;
        let elected = Elected::decode("/e", elected).unwrap();
        assert_eq!((elected.v, elected.term, elected.token_base), (1, 7, 0));
        let current = br#"{"v":1,"member":"east-1","ballot":"a-0000000001","site":"east","term":7,
            "status":"READY","since_ms":3}"#;
        assert_eq!(Current::decode("/c", current).unwrap().fencing_token, None);
        let entry = br#"{"v":1,"term":7,"member":"east-1","ballot":"a-0000000001","site":"east",
            "fencing_token":12,"cause":"startup","sentence":"s","ready_ms":3}"#;
        assert_eq!(HistoryEntry::decode("/h", entry).unwrap().fencing_token, 12);
        let request =
            br#"{"v":1,"id":"1","kind":"failover","by":"ann","created_ms":1,"state":{"state":"pending"}}"#;
        assert_eq!(Request::decode("/r", request).unwrap().kind, RequestKind::Failover);
    }

    /// What an older program reads must not change under it.
    #[test]
    fn what_a_format_can_not_say_is_said_otherwise() {
        const ADDED: [Cause; 5] = [
            Cause::SiteFailed,
            Cause::Suspected,
            Cause::TokensRaised,
            Cause::SlotsChanged,
            Cause::StandingOrder,
        ];
        for cause in Cause::ALL {
            assert_eq!(cause.in_format(NEWEST), cause);
            let older = cause.in_format(VERSION);
            assert_eq!(older.in_format(VERSION), older);
            assert!(!ADDED.contains(&older), "{cause}");
        }
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let control = Control::decode("/c", br#"{"v":1,"from_the_future":[1,2]}"#).unwrap();
        assert_eq!(control, Control::default());
    }
}
