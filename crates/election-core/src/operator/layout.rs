//! The recipe of an election, as its znodes show it.

/// The recipe of an election, as its znodes show it. The members have it from their configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// The member with the lowest ballot decides.
    #[default]
    Elector,
    /// The first in the queue leads.
    Queue,
    /// The member that created the only znode leads. Waiting members have no znode.
    Single,
}

impl Layout {
    /// The recipe's name in configuration and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Elector => "elector",
            Self::Queue => "queue",
            Self::Single => "single",
        }
    }
}
