//! Which leaderships the servers' log must have.

use std::collections::BTreeMap;

use crate::history::{Event, History};

/// By job, the term of the first decision that the servers' log has. It has the leader znodes of all later terms: a log can
/// begin long after the election, and then it lacks those of earlier ones.
pub(super) fn first_terms(history: &History) -> BTreeMap<&str, u64> {
    let mut first: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for line in history.lines() {
        let Event::Decided { job, term, .. } = &line.event else { continue };
        let (at, highest) = first.entry(job).or_insert((line.at, *term));
        // One decision is about all slots.
        if *at == line.at {
            *highest = (*highest).max(*term);
        }
    }
    first.into_iter().map(|(job, (_, term))| (job, term)).collect()
}
