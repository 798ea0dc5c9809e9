//! How the leader is found.

use std::sync::Arc;

use crate::strategy::Strategy;

/// How the leader is found. All members of an election must use the same.
#[derive(Clone, Debug)]
pub enum Recipe {
    /// The member with the lowest ballot asks the strategy, and writes the decision.
    Elector(Arc<dyn Strategy>),
}
