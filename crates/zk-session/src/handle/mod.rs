//! What a program holds of a session.

pub(crate) mod builder;
pub(crate) mod lease_keeper;
mod operations;
pub(crate) mod session;
