//! The limits of the numbers in records, for writers and readers.
//!
//! A number above its limit is not written, and a record that has one is refused as a whole: no program can have
//! written it, and each calculation with it would end at the type's own limit. Each field names its limit where it is
//! declared:
//!
//! ```
//! # use election_core::internals::record::limits;
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Seen {
//!     #[serde(with = "limits::token")]
//!     token: u64,
//! }
//! assert!(serde_json::from_str::<Seen>(r#"{"token":9223372036854775807}"#).is_ok());
//! assert!(serde_json::from_str::<Seen>(r#"{"token":9223372036854775808}"#).is_err());
//! ```

use std::{collections::BTreeMap, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

pub use crate::time::MAX_MS;

/// The largest fencing token, and the largest term, which is a token in an election without an elector: 2^63 - 1, the
/// largest number of a database's 64-bit integer.
pub const MAX_TOKEN: u64 = i64::MAX as u64;

/// The largest base of tokens: half of [`MAX_TOKEN`]. The other half is for the transaction ids that are added: as many as
/// 2^30 elections of ZooKeeper leaders begin, or 2^22 with 40 bits for the transactions of each.
pub const MAX_TOKEN_BASE: u64 = 1 << 62;

/// The largest term of a decision. Terms grow by one, so no election reaches it, and what is counted on from it is
/// still a term.
pub const MAX_TERM: u64 = 1 << 62;

/// The most of what is counted one by one, such as the versions of an overlay.
pub const MAX_COUNT: u64 = i32::MAX as u64;

/// The most slots that an election can have. Even with all lines of succession, the decision stays far below
/// [`MAX_RECORD`](super::MAX_RECORD).
pub const MAX_SLOTS: usize = 16;

/// A duration in milliseconds; [`MAX_MS`] for a longer one.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(MAX_MS).min(MAX_MS)
}

/// The numbers in a field.
pub trait Numbers: Serialize + DeserializeOwned {
    /// The largest of them; a negative one counts as too large.
    fn largest(&self) -> u64;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Numbers for $number {
            fn largest(&self) -> u64 {
                u64::try_from(*self).unwrap_or(u64::MAX)
            }
        }
    )*};
}

numbers!(i32, i64, u32, u64, usize);

impl<T: Numbers> Numbers for Option<T> {
    fn largest(&self) -> u64 {
        self.as_ref().map_or(0, T::largest)
    }
}

impl<T: Numbers> Numbers for Vec<T> {
    fn largest(&self) -> u64 {
        self.iter().map(T::largest).max().unwrap_or(0)
    }
}

impl<K: Ord + Serialize + DeserializeOwned, T: Numbers> Numbers for BTreeMap<K, T> {
    fn largest(&self) -> u64 {
        self.values().map(T::largest).max().unwrap_or(0)
    }
}

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident, $what:literal, $most:expr;)*) => {$(
        $(#[$doc])*
        pub mod $name {
            use serde::{Deserializer, Serializer, de, ser};

            fn excess(value: &impl super::Numbers) -> Option<String> {
                let (value, most) = (value.largest(), $most);
                (value > most).then(|| format!(concat!("it has ", $what, " that is not from 0 to {}"), most))
            }

            /// Writes it.
            ///
            /// # Errors
            /// When it is above the limit.
            pub fn serialize<T: super::Numbers, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
                match excess(value) {
                    None => value.serialize(to),
                    Some(why) => Err(ser::Error::custom(why)),
                }
            }

            /// Reads it.
            ///
            /// # Errors
            /// When it is above the limit.
            pub fn deserialize<'de, T: super::Numbers, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
                let value = T::deserialize(from)?;
                excess(&value).map_or(Ok(value), |why| Err(de::Error::custom(why)))
            }
        }
    )*};
}

limits! {
    /// A term.
    term, "a term", super::MAX_TOKEN;
    /// The term of a decision.
    decided, "a term", super::MAX_TERM;
    /// A fencing token.
    token, "a fencing token", super::MAX_TOKEN;
    /// A base of tokens, or a token that becomes one.
    base, "a base of tokens", super::MAX_TOKEN_BASE;
    /// A transaction id of ZooKeeper.
    zxid, "a transaction id", super::MAX_TOKEN;
    /// A time in milliseconds since the Unix epoch, or a duration in milliseconds.
    ms, "a time in milliseconds", super::MAX_MS;
    /// A count.
    count, "a count", super::MAX_COUNT;
    /// A slot.
    slot, "a slot", super::MAX_SLOTS as u64 - 1;
}
