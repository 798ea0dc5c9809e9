//! A lease ends before the ensemble may expire its session, though clocks differ in rate by as much as the margin, 1 %.
//!
//! It depends on the rules of `zk-session/src/lease.rs`. The failure: a leader that trusts its connection while the ensemble has
//! expired its session (CURATOR-444).

use super::Verdict;
use crate::zookeeper::Millis;

/// The lease of `host` ends at `ends`, by true time, and its session may expire from `may_expire` on.
pub(crate) fn check(host: usize, ends: Millis, may_expire: Millis) -> Verdict {
    // Times are rounded up to a millisecond, twice.
    if ends <= may_expire + 2 {
        return Ok(());
    }
    let late = ends - may_expire;
    Err(format!("leases end first: the lease of host {host} lasts {late} ms longer than its session"))
}
