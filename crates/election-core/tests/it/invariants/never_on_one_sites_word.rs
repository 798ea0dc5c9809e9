//! No leadership is ended on the report of a single witness, nor of a single site if there are members in more than
//! one.
//!
//! A witness, or a whole site, that can't reach the leader may itself be cut off. A site that returns must not disturb
//! the leader of the other site (patroni/patroni#3314, #3359).

use std::collections::BTreeSet;

use election_core::{config::SiteId, status::Ballot};

use super::Verdict;

/// A node whose recent probes of the suspect had no answer.
#[derive(Debug)]
pub(crate) struct Witness {
    pub(crate) host: usize,
    pub(crate) site: SiteId,
}

/// The leadership of `suspect` is ended. `sites` are those with members.
pub(crate) fn check(suspect: &Ballot, witnesses: &[Witness], sites: &BTreeSet<SiteId>) -> Verdict {
    let hosts: Vec<_> = witnesses.iter().map(|w| w.host).collect();
    let from: BTreeSet<_> = witnesses.iter().map(|w| &w.site).collect();
    if hosts.len() < 2 {
        return Err(format!("never on one word: {suspect} is deposed, and only {hosts:?} have lost it"));
    }
    if sites.len() > 1 && from.len() < 2 {
        return Err(format!("never on one site's word: {suspect} is deposed, and only {from:?} has lost it"));
    }
    Ok(())
}
