//! The steps that an operator's command plans by itself, with the engine's own rules.

pub(in crate::engine) mod acknowledge;
pub(in crate::engine) mod force;
