//! What stands in the znodes: JSON that an operator can read with any client.
//!
//! Every record carries its format version `v`, ignores fields it doesn't know,
//! is bounded in size, and refuses garbage with an error that names the path.

mod contender;
mod control;
mod current;
mod elected;
mod history;
mod member;
mod request;

use serde::{Serialize, de::DeserializeOwned};

pub use contender::{Contender, ContenderStatus};
pub use control::{Control, Mode};
pub use current::{Current, Status};
pub use elected::{Cause, Elected, Exclusion, Named, Previous};
pub use history::{HistoryEntry, Phases};
pub use member::{GaveUp, Health, MemberRecord, Unreached};
pub use request::{Request, RequestKind, RequestState, Target};

/// The largest record that is read or written, in bytes.
///
/// Far below ZooKeeper's limit of 1 MiB for a whole packet; a member's record has
/// a few hundred bytes.
pub const MAX_RECORD: usize = 64 * 1024;

/// The format version that this crate writes.
pub const VERSION: u32 = 1;

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
        if record.version() != VERSION {
            return Err(error(format!(
                "its format is version {}, and this program reads version {VERSION}",
                record.version()
            )));
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

fn version() -> u32 {
    VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
