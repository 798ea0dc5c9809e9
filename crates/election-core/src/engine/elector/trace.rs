//! What an elector asks of the strategy in a pass, recorded for `explain`. An elector itself records nothing.

use std::cell::RefCell;

use crate::{record::Cause, strategy::Ranking};

/// One question that was asked of the strategy.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) slot: usize,
    pub(crate) cause: Cause,
    /// The answer. Members that were not asked about are listed among the refused ones.
    pub(crate) ranking: Ranking,
}

/// The questions of one pass, in the order in which they were asked.
pub(crate) type DecisionTrace = RefCell<Vec<Asked>>;
