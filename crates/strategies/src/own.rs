//! A stage and a strategy, from a policy or from code.

use std::sync::Arc;

use election_core::strategy::Strategy;

use crate::{
    needs::Needs,
    stage::{Comparison, Filter},
};

/// A stage of another crate: a filter, a comparison or both, and its needs.
#[derive(Clone, Debug)]
pub struct OwnStage {
    pub(crate) filter: Option<Arc<dyn Filter>>,
    pub(crate) comparison: Option<Arc<dyn Comparison>>,
    pub(crate) needs: Needs,
}

impl OwnStage {
    /// A stage that refuses candidates.
    pub fn filter(filter: impl Filter + 'static) -> Self {
        Self { filter: Some(Arc::new(filter)), comparison: None, needs: Needs::default() }
    }

    /// A stage that ranks candidates.
    pub fn comparison(comparison: impl Comparison + 'static) -> Self {
        Self { filter: None, comparison: Some(Arc::new(comparison)), needs: Needs::default() }
    }

    /// A stage that does both.
    pub fn both(stage: impl Filter + Comparison + Clone + 'static) -> Self {
        Self { filter: Some(Arc::new(stage.clone())), ..Self::comparison(stage) }
    }

    /// What members must measure or publish for it. They do so only if a policy needs it. A policy whose members do not
    /// publish it is refused.
    #[must_use]
    pub fn needing(self, needs: Needs) -> Self {
        Self { needs, ..self }
    }
}

/// A whole strategy of another crate, and its needs.
#[derive(Clone, Debug)]
pub struct OwnStrategy {
    pub(crate) strategy: Arc<dyn Strategy>,
    pub(crate) needs: Needs,
}

impl OwnStrategy {
    /// This strategy. It is asked only about candidates that pass all filters before it. If it refuses a candidate on
    /// [`Ground::Loss`](election_core::strategy::Ground::Loss), it must itself rank that candidate once the round
    /// accepts the loss.
    pub fn new(strategy: impl Strategy + 'static) -> Self {
        Self { strategy: Arc::new(strategy), needs: Needs::default() }
    }

    /// As [`OwnStage::needing`].
    #[must_use]
    pub fn needing(self, needs: Needs) -> Self {
        Self { needs, ..self }
    }
}
