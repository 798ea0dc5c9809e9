//! Names that can't be mixed up: members, sites, ballots. A copy of one shares its text.

use std::{borrow::Borrow, cmp::Ordering, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::text::{cut, is_plain};

/// The longest name of a member or a site, in bytes.
pub(crate) const MAX_NAME: usize = 128;

/// Why a name, or the path of an election, was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name:?} is not usable: {why}")]
pub struct InvalidName {
    kind: &'static str,
    name: String,
    why: &'static str,
}

impl InvalidName {
    pub(crate) fn new(kind: &'static str, name: &str, why: &'static str) -> Self {
        let mut name = name.to_owned();
        cut(&mut name, MAX_NAME + 1);
        Self { kind, name, why }
    }
}

/// A name that reaches commands, patterns and the arguments of programs.
pub(crate) fn check_id(kind: &'static str, name: &str) -> Result<(), InvalidName> {
    check(kind, name)?;
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let why = if name.starts_with(['-', '.']) {
        "it begins with '-' or '.'"
    } else if !name.chars().all(is_allowed) {
        "it has another character than letters (A to z), digits, '.', '_' and '-'"
    } else {
        return Ok(());
    };
    Err(InvalidName::new(kind, name, why))
}

/// A part of a path in ZooKeeper.
pub(crate) fn check(kind: &'static str, name: &str) -> Result<(), InvalidName> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > MAX_NAME {
        "it is longer than 128 bytes"
    } else if name.contains('/') {
        "it contains '/', which separates znodes"
    } else if name == "." || name == ".." {
        "ZooKeeper reserves it"
    } else if name.chars().any(|c| !is_plain(c) || c.is_whitespace()) {
        "it contains white space or a control character"
    } else {
        return Ok(());
    };
    Err(InvalidName::new(kind, name, why))
}

/// A name that was read shares the text of a known one that is the same.
pub(crate) fn share<T: Clone + PartialEq>(read: &mut T, known: &T) {
    if read == known {
        read.clone_from(known);
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// A name of 1 to 128 letters, digits, `.`, `_` and `-` that begins with neither `-` nor `.`: what reads it
            /// in a path, a pattern or the arguments of a program reads the same name.
            ///
            /// # Errors
            /// When it is empty or too long, contains another character, or begins with `-` or `.`.
            pub fn new(name: impl Into<String>) -> Result<Self, InvalidName> {
                let name = name.into();
                check_id($kind, &name)?;
                Ok(Self(name.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidName;

            fn from_str(name: &str) -> Result<Self, InvalidName> {
                Self::new(name)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(from)?).map_err(de::Error::custom)
            }
        }
    };
}

name! {
    /// The unique id of a member. A restart keeps it.
    MemberId, "the member id"
}
name! {
    /// The site of a member: where it runs.
    SiteId, "the site"
}

/// The site of members that configure none: `default`.
impl Default for SiteId {
    fn default() -> Self {
        Self("default".into())
    }
}

/// A member's ballot: the name of its ephemeral sequential znode.
///
/// It names one incarnation of a member: a restarted process has the same [`MemberId`] and another ballot. Ballots are
/// ordered by their sequence number. The member with the lowest living ballot is the elector.
#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Ballot(Arc<str>);

impl Ballot {
    /// Accepts the name of a sequential znode: any text that does not end in a digit, then ten digits.
    ///
    /// # Errors
    /// When the name doesn't end in the digits that ZooKeeper appends.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidName> {
        let name = name.into();
        check("the ballot", &name)?;
        if Self::sequence_of(&name).is_none() {
            return Err(InvalidName::new(
                "the ballot",
                &name,
                "it doesn't end in the ten digits of a sequential znode, from 0 to 2147483647, after something that is no digit",
            ));
        }
        Ok(Self(name.into()))
    }

    /// `None` if the counter has wrapped, after 2^31 znodes: a negative number begins with a minus sign.
    fn sequence_of(name: &str) -> Option<i64> {
        let digits = name.get(name.len().checked_sub(10)?..)?;
        let before = &name[..name.len() - 10];
        let stem_ends = before.bytes().last().is_some_and(|b| !b.is_ascii_digit());
        let wrapped = before.ends_with("--") || before.ends_with("__-");
        if !stem_ends || wrapped || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        digits.parse::<i32>().ok().map(i64::from)
    }

    /// The name of the znode.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number that ZooKeeper appended.
    pub fn sequence(&self) -> i64 {
        Self::sequence_of(&self.0).unwrap_or(i64::MAX)
    }
}

impl Ord for Ballot {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sequence().cmp(&other.sequence()).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for Ballot {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<'de> Deserialize<'de> for Ballot {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(from)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballots_are_ordered_by_sequence_not_by_guid() {
        let low = Ballot::new("zzz-0000000002").unwrap();
        let high = Ballot::new("aaa-0000000010").unwrap();
        assert!(low < high);
        assert_eq!(high.sequence(), 10);
    }

    #[test]
    fn names_that_mean_something_else_to_a_path_a_pattern_or_a_program_are_refused() {
        for bad in [
            "",
            "a/b",
            "..",
            "a b",
            "a\0b",
            ".a",
            "-oProxyCommand=x",
            "*",
            "a?",
            "a,b",
            "`id`",
            "$(id)",
            "a\"b",
            "a\u{202e}b",
            "ä",
        ] {
            assert!(MemberId::new(bad).is_err() && SiteId::new(bad).is_err(), "{bad:?}");
        }
        for good in ["east-1", "db.example.com", "_1", "A-.", "0"] {
            assert!(MemberId::new(good).is_ok(), "{good:?}");
        }
        assert!(MemberId::new("x".repeat(1 << 16)).unwrap_err().to_string().len() < 300);
        assert!(Ballot::new("guid-123").is_err());
        assert!(Ballot::new("0000000001").is_err());
        // The names that ZooKeeper writes after its counter has wrapped.
        for wrapped in
            ["g--2147483648", "g--2000000000", "g--000000001", "g__lock__-2000000000", "g-2147483648"]
        {
            assert!(Ballot::new(wrapped).is_err(), "{wrapped:?}");
        }
        assert_eq!(Ballot::new("g-2147483647").unwrap().sequence(), 2_147_483_647);
        assert!(serde_json::from_str::<SiteId>("\"a/b\"").is_err());
    }
}
