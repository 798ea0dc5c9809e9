//! What an elector asks of the strategy in a pass, and what it waits for, noted down for
//! whoever wants to know why: an elector itself keeps no notes.

use std::{cell::RefCell, time::Duration};

use crate::{
    record::Cause,
    strategy::{Ranking, Refused},
};

/// One question that was asked of the strategy.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Asked {
    pub(in crate::engine) slot: usize,
    pub(in crate::engine) cause: Cause,
    /// The answer, with everyone who was not asked about among those who are refused.
    pub(in crate::engine) ranking: Ranking,
}

/// The notes of one pass.
#[derive(Debug, Default)]
pub(in crate::engine) struct Notebook {
    asked: RefCell<Vec<Asked>>,
    waits: RefCell<Vec<(&'static str, Duration)>>,
}

impl Notebook {
    pub(super) fn asked(&self, slot: usize, cause: Cause, ranking: &Ranking, aside: Vec<Refused>) {
        let mut ranking = ranking.clone();
        ranking.refused.extend(aside);
        self.asked.borrow_mut().push(Asked { slot, cause, ranking });
    }

    /// Somebody else is better, and for how long each reason to wait lasts.
    pub(in crate::engine) fn waits(&self, waits: impl IntoIterator<Item = (&'static str, Duration)>) {
        self.waits.borrow_mut().extend(waits.into_iter().filter(|(_, wait)| !wait.is_zero()));
    }

    /// All that was asked, in the order in which it was.
    pub(in crate::engine) fn take_asked(&self) -> Vec<Asked> {
        self.asked.take()
    }

    /// All that is waited for.
    pub(in crate::engine) fn take_waits(&self) -> Vec<(&'static str, Duration)> {
        self.waits.take()
    }
}
