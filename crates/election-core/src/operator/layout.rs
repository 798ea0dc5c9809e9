//! The recipe of an election, as its znodes show it.

/// By which recipe an election is held, as its znodes show it: the members are told by
/// their configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// The lowest ballot decides.
    #[default]
    Elector,
    /// The first in the queue leads.
    Queue,
    /// Whoever has created the only znode leads; those who wait have none.
    Single,
}

impl Layout {
    /// The recipe's word in configuration and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Elector => "elector",
            Self::Queue => "queue",
            Self::Single => "single",
        }
    }
}
