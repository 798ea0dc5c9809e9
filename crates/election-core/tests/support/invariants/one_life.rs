//! A process has one life at a time: no new session while anything of the former
//! one runs, and what runs ends within the stop budget once the session is over.
//!
//! The failure: a frozen process wakes, makes a new session and stands again while
//! its program still runs; a client that reconnects adopts its old node
//! (apache/curator#1211).

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
