//! An operator's request is carried out at most once, and ends in a state that
//! stays.
//!
//! The failure: the tool says 'failed' while the move goes on, and the operator
//! repeats it (patroni/patroni#743).

use std::collections::{BTreeMap, BTreeSet};

use election_core::record::{Elected, Request, RequestState};

use super::Verdict;

/// Every request that was made.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Requests {
    decided: BTreeMap<String, BTreeSet<u64>>,
    ended: BTreeMap<String, RequestState>,
    /// There have been several slots.
    several: bool,
}

impl Requests {
    /// A decision stands.
    pub(crate) fn decision(&mut self, elected: &Elected) -> Verdict {
        self.several |= elected.slots.len() > 1;
        let Some(name) = &elected.request else {
            return Ok(());
        };
        let terms = self.decided.entry(name.clone()).or_default();
        terms.insert(elected.term);
        // Taking the place by force is a term of its own, and naming the next another;
        // between the two, only other slots are decided.
        let (first, last) = (terms.first().copied().unwrap_or(0), terms.last().copied().unwrap_or(0));
        if terms.len() > 2 || (last - first > 1 && !self.several) {
            return Err(format!("requests once: {name} was decided in the terms {terms:?}"));
        }
        Ok(())
    }

    /// A request was written.
    pub(crate) fn written(&mut self, name: &str, request: &Request) -> Verdict {
        if let Some(ended) = self.ended.get(name)
            && *ended != request.state
        {
            return Err(format!(
                "requests once: {name} had ended as {ended:?}, and now is {:?}",
                request.state
            ));
        }
        if request.state.is_final() {
            self.ended.insert(name.to_owned(), request.state.clone());
        }
        if let RequestState::Done { .. } = request.state
            && !self.decided.contains_key(name)
        {
            return Err(format!("requests once: {name} is done though no term ever carried it out"));
        }
        Ok(())
    }

    pub(crate) fn done(&self) -> usize {
        self.ended.values().filter(|state| matches!(state, RequestState::Done { .. })).count()
    }
}
