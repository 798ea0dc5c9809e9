//! What a program holds of a session.

pub(crate) mod session;
