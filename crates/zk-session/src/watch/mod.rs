//! What outlasts a connection and a session: watches, and znodes that are held.

pub(crate) mod held;
pub(crate) mod lasting;
pub(crate) mod stream;
mod tries;
pub(crate) mod value;
