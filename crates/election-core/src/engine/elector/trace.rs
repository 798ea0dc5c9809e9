//! What an elector asks of the strategy in a pass, recorded for `explain`. An elector itself records nothing.

use std::cell::RefCell;

use crate::{
    record::Cause,
    strategy::{Ranking, Refused},
};

/// One question that was asked of the strategy.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) slot: usize,
    pub(crate) cause: Cause,
    /// The answer. Members that were not asked about are listed among the refused ones.
    pub(crate) ranking: Ranking,
}

/// The records of one pass.
#[derive(Debug, Default)]
pub(crate) struct DecisionTrace {
    asked: RefCell<Vec<Asked>>,
}

impl DecisionTrace {
    pub(super) fn asked(&self, slot: usize, cause: Cause, ranking: &Ranking, aside: Vec<Refused>) {
        let mut ranking = ranking.clone();
        ranking.refused.extend(aside);
        self.asked.borrow_mut().push(Asked { slot, cause, ranking });
    }

    /// All questions, in the order in which they were asked.
    pub(crate) fn take_asked(&self) -> Vec<Asked> {
        self.asked.take()
    }
}
