//! A member that has left leaves no znode behind, even if its session continues for other elections.
//!
//! The failures: a leaked ephemeral locks a path (python-zk/kazoo#732), an orphan
//! blocks all (apache/curator#566), leadership that was dropped and never deleted
//! (apache/curator#723).

use super::Verdict;

/// `owned` are the ephemerals of the session of a member that left a while ago.
pub(crate) fn check(host: usize, owned: &[String]) -> Verdict {
    match owned {
        [] => Ok(()),
        owned => Err(format!("nothing left behind: host {host} has left, and {owned:?} still stand")),
    }
}
