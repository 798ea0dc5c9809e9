//! The loads of the clients, and their results.

use std::fmt;
use std::str::FromStr;

/// The number of concurrent operations in the wide loads.
pub(crate) const WIDTH: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// One after the other.
    Reads,
    Writes,
    /// Many at a time.
    WideReads,
    WideWrites,
}

impl Load {
    pub(crate) const ALL: [Self; 4] = [Self::Reads, Self::Writes, Self::WideReads, Self::WideWrites];

    /// Its name in an order to a child.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Reads => "read",
            Self::Writes => "write",
            Self::WideReads => "wide-read",
            Self::WideWrites => "wide-write",
        }
    }

    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Writes | Self::WideWrites)
    }

    pub(crate) fn width(self) -> usize {
        match self {
            Self::Reads | Self::Writes => 1,
            Self::WideReads | Self::WideWrites => WIDTH,
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reads => "reads, one after the other",
            Self::Writes => "writes, one after the other",
            Self::WideReads => "reads, 64 at a time",
            Self::WideWrites => "writes, 64 at a time",
        })
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|load| load.word() == word).ok_or_else(|| format!("no such load: {word}"))
    }
}

/// One client under one load for one slice of time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) per_second: f64,
    /// Microseconds of one operation.
    pub(crate) median: f64,
    pub(crate) p99: f64,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.per_second, self.median, self.p99)
    }
}

impl FromStr for Sample {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let fields: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
        match fields.as_deref() {
            Ok(&[per_second, median, p99]) => Ok(Self { per_second, median, p99 }),
            _ => Err(format!("not three numbers: {line:?}")),
        }
    }
}
