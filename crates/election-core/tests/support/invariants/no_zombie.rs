//! Nobody stays in office whose job has ended: the member gives up leadership, and
//! says why.
//!
//! The failures: a leader that does not abdicate (marathon#2509), one whose node is
//! gone and that works on, or the other way round (apache/curator PR 195).

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
