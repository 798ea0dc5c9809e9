//! A process acts under one session at a time: no new session while work of the former one runs, and that work ends
//! within the stop budget after the session is over.
//!
//! The failure: a frozen process wakes, creates a new session and is a candidate again while its program still runs; a
//! client that reconnects adopts its old node (apache/curator#1211).

use super::Verdict;
use crate::zookeeper::Millis;

/// A session is about to be made.
pub(crate) fn begins(host: usize, clear: bool, acts: bool, keeps: bool) -> Verdict {
    if !clear || (acts && !keeps) {
        return Err(format!("one life: host {host} begins a session while its job runs"));
    }
    Ok(())
}

/// The session is over since `since`, and something still runs.
pub(crate) fn waits(host: usize, since: Millis, now: Millis, budget: Millis) -> Verdict {
    if now - since > budget {
        return Err(format!("one life: host {host} has not become clear within {} ms", now - since));
    }
    Ok(())
}
