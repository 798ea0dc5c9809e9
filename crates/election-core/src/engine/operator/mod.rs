//! The steps that an operator's command plans by itself, with the engine's own rules.

pub(crate) mod acknowledge;
pub(crate) mod force;
pub(crate) mod moves;
