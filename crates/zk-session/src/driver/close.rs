//! How a session was closed.

use std::fmt;

/// The outcome of closing a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseOutcome {
    /// The server has closed it: its ephemerals are gone.
    Acknowledged,
    /// The request was sent; its answer did not come in time.
    Sent,
    /// Unknown: it may live until its timeout has passed.
    Unknown,
    /// It was handed over to another process: [`Session::hand_over`](crate::Session::hand_over).
    HandedOver,
}

impl fmt::Display for CloseOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Acknowledged => "closed",
            Self::Sent => "asked to close",
            Self::Unknown => "may live until its timeout",
            Self::HandedOver => "handed over",
        })
    }
}
