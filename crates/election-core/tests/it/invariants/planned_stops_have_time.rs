//! A leader that stops as planned has the time that its work needs: its lease goes on being renewed, so the end of the lease does
//! not cut the stop short. The elector reports it after `release_timeout`, and not before.
//!
//! The failure: a database that writes its last checkpoint for minutes is killed, or is reported as hung, and an operator takes
//! leadership from it by force.

use super::Verdict;

/// The stop of `host` becomes urgent, for its lease ends; does it still ask for a lease?
pub(crate) fn hastened(host: usize, keeps_lease: bool) -> Verdict {
    if keeps_lease {
        return Ok(());
    }
    Err(format!("planned stops have time: host {host} does not renew its lease while it stops"))
}

/// An elector reports a leader that has not released leadership for this time, in milliseconds.
pub(crate) fn reported(waited: u64, release_timeout: u64) -> Verdict {
    // The elector's own clock may run faster.
    if waited + waited / 50 + 2 >= release_timeout {
        return Ok(());
    }
    Err(format!("planned stops have time: a release is reported after {waited} ms, not {release_timeout} ms"))
}
