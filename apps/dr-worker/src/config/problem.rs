//! All problems of a configuration at once.

use std::fmt;

use super::tree::Origin;
use crate::{host_fault::HostFault, mask::mask};

/// One problem. Passwords in URLs are masked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where: `file:line:column`, a variable, a `--set`.
    pub at: Option<String>,
    /// The key, in full.
    pub key: Option<String>,
    /// What is wrong and what would be valid.
    pub message: String,
    /// Whether it is about this host, and may be healed without another configuration.
    pub may_pass: bool,
}

impl Problem {
    /// A problem with a source as a whole.
    pub(super) fn with_source(at: impl fmt::Display, message: impl Into<String>) -> Self {
        Self {
            at: Some(mask(&at.to_string()).into_owned()),
            key: None,
            message: mask(&message.into()).into_owned(),
            may_pass: false,
        }
    }

    /// A problem with a key.
    pub(super) fn with_key(origin: &Origin, key: impl Into<String>, message: impl Into<String>) -> Self {
        let at = match origin {
            Origin::BuiltIn | Origin::Inherited(_) => None,
            set => Some(set.to_string()),
        };
        Self { at, key: Some(key.into()), message: mask(&message.into()).into_owned(), may_pass: false }
    }

    /// A problem with what a key names on this host.
    pub(super) fn on_host(origin: &Origin, key: impl Into<String>, fault: &HostFault) -> Self {
        Self { may_pass: fault.may_pass, ..Self::with_key(origin, key, fault.why.as_str()) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = &self.at {
            write!(f, "{at}: ")?;
        }
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// All problems of a configuration; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// `Err` with the problems, if there are any.
    pub(super) fn none_of(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self(problems)) }
    }

    /// The same with one more.
    pub(super) fn and(mut self, problem: Problem) -> Self {
        self.0.push(problem);
        self
    }

    /// Whether all may be healed without another configuration.
    pub fn may_pass(&self) -> bool {
        self.0.iter().all(|problem| problem.may_pass)
    }

    /// One by one.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => write!(f, "the configuration cannot be used: {one}"),
            all => {
                write!(f, "the configuration cannot be used, {} problems:", all.len())?;
                for problem in all {
                    write!(f, "\n  {problem}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Problems {}
