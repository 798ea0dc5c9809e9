//! At most one member acts as leader of a slot on a valid lease.
//!
//! Promised by the exclusive ephemeral and the lease rule, with `on_pause = stop`, while the leader znode of a living
//! leader is not deleted by force. The failure that it excludes: two leaders after a partition between servers
//! (apache/curator#964, #980, #1137).

use super::Verdict;

/// An acting member: the node, and the token.
pub(crate) type Acting = (usize, u64);

/// `now` acts; `others` is everyone else who does in the same
/// slot at this moment.
pub(crate) fn check(promised: bool, acts: Acting, mut others: impl Iterator<Item = Acting>) -> Verdict {
    match others.find(|_| promised) {
        None => Ok(()),
        Some((host, token)) => Err(format!(
            "at most one: host {} acts with token {} in a slot where host {host} still acts with token {token}",
            acts.0, acts.1
        )),
    }
}
