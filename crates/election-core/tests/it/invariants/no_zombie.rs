//! A member whose job has ended does not stay the leader: it releases leadership, and reports why.
//!
//! The failures: a leader that does not resign (marathon#2509); a leader that continues to work without its node, or
//! the opposite (apache/curator PR 195).

use super::Verdict;
use crate::zookeeper::Millis;

/// How long the worker may take to hear of it.
pub(crate) const NOTICED_WITHIN: Millis = 500;

/// The job of `host` has ended `NOTICED_WITHIN` ago; has its stop been asked for?
pub(crate) fn check(host: usize, asked: bool) -> Verdict {
    if asked {
        return Ok(());
    }
    Err(format!("no zombie: the job of host {host} has ended, and the member leads on"))
}
