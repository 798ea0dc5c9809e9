//! An operator's request is carried out at most once, and its final state does not change. A request does not begin
//! after its end, or after it was cancelled.
//!
//! The failure: the tool reports 'failed' while the move continues, and the operator repeats it (patroni/patroni#743).
//! Or the operator has stopped waiting, and the move is made later.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use election_core::internals::record::{AdminRequest, Elected, RequestRef, RequestState};

use super::Verdict;

/// Every request that was made.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Requests {
    decided: BTreeMap<RequestRef, BTreeSet<u64>>,
    ended: BTreeMap<RequestRef, RequestState>,
    /// There have been several slots.
    several: bool,
}

impl Requests {
    /// The ensemble was restored from a copy with these requests. Later decisions are no longer known.
    pub(crate) fn restored(all: impl Iterator<Item = (RequestRef, AdminRequest)>) -> Self {
        let ended: BTreeMap<_, _> =
            all.filter(|(_, r)| r.state.is_final()).map(|(which, request)| (which, request.state)).collect();
        let decided = ended.keys().map(|which| (which.clone(), BTreeSet::new())).collect();
        Self { decided, ended, ..Self::default() }
    }

    /// A decision of the copy, which begins no request.
    pub(crate) fn found(&mut self, elected: &Elected) {
        self.several |= elected.slots.len() > 1;
        self.carried(elected, |_| true);
    }

    /// Records the decisions about the slots in those terms.
    fn carried(&mut self, elected: &Elected, which_terms: impl Fn(u64) -> bool) {
        for given in elected.slots.iter().map(|slot| &slot.given).filter(|given| which_terms(given.term)) {
            if let Some(which) = &given.request {
                self.decided.entry(which.clone()).or_default().insert(given.term);
            }
        }
    }

    /// A decision was written.
    pub(crate) fn decision(&mut self, elected: &Elected) -> Verdict {
        self.several |= elected.slots.len() > 1;
        // A decision that is written again as it was remembered carries what was decided of each slot.
        self.carried(elected, |term| term < elected.term);
        // The first decision of several slots decides all of them.
        let now = elected.slots.iter().map(|slot| &slot.given).filter(|given| given.term == elected.term);
        let Some(which) = now.filter_map(|given| given.request.as_ref()).next() else {
            return Ok(());
        };
        let terms = self.decided.entry(which.clone()).or_default();
        // A decision that is written again, as it was remembered, has the term in which the request was done.
        let ended = self
            .ended
            .get(which)
            .filter(|ended| !matches!(ended, RequestState::Done { term, .. } if *term == elected.term));
        if let (true, Some(ended)) = (terms.is_empty(), ended) {
            return Err(format!(
                "requests once: {which:?} had ended as {ended:?}, and term {} begins it",
                elected.term
            ));
        }
        terms.insert(elected.term);
        // Deleting the leader znode by force is a term of its own, and naming the next leader is another; between the
        // two, only other slots are decided.
        let (first, last) = (terms.first().copied().unwrap_or(0), terms.last().copied().unwrap_or(0));
        if terms.len() > 2 || (last - first > 1 && !self.several) {
            return Err(format!("requests once: {which:?} was decided in the terms {terms:?}"));
        }
        Ok(())
    }

    /// A request was written.
    pub(crate) fn written(&mut self, which: &RequestRef, request: &AdminRequest) -> Verdict {
        if let Some(ended) = self.ended.get(which)
            && *ended != request.state
        {
            return Err(format!(
                "requests once: {which:?} had ended as {ended:?}, and now is {:?}",
                request.state
            ));
        }
        if request.state.is_final() {
            self.ended.insert(which.clone(), request.state.clone());
        }
        if let RequestState::Done { .. } = request.state
            && !self.decided.contains_key(which)
        {
            return Err(format!("requests once: {which:?} is done though no term ever carried it out"));
        }
        Ok(())
    }

    /// A process wants to begin a request, this long after it first read it.
    pub(crate) fn begins(which: &RequestRef, request: &AdminRequest, after: Duration) -> Verdict {
        let valid_for = request.valid_for();
        if after >= valid_for {
            return Err(format!(
                "requests once: {which:?} was valid for {valid_for:?}, and is begun after {after:?}"
            ));
        }
        Ok(())
    }

    pub(crate) fn done(&self) -> usize {
        self.count(|state| matches!(state, RequestState::Done { .. }))
    }

    pub(crate) fn expired(&self) -> usize {
        self.count(|state| matches!(state, RequestState::Expired { .. }))
    }

    pub(crate) fn cancelled(&self) -> usize {
        self.count(|state| matches!(state, RequestState::Cancelled { .. }))
    }

    fn count(&self, is: impl Fn(&RequestState) -> bool) -> usize {
        self.ended.values().filter(|state| is(state)).count()
    }
}
