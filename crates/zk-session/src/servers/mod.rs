//! Which servers there are, at which addresses, and in which order they are asked.

pub(crate) mod hosts;
pub(crate) mod known;
pub(crate) mod preference;
pub(crate) mod resolve;
