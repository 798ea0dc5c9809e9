//! Work never outlives its lease: the worker gets the order to end it a whole stop budget before. So the guard has to
//! end it only if the worker itself was frozen.
//!
//! The failure: expiry is noticed, and the holder is not interrupted
//! (apache/curator#727, kubernetes/kubernetes#23731).

use super::Verdict;

/// The guard had to end work without an order to stop.
pub(crate) fn killed(host: usize, worker_was_frozen: bool) -> Verdict {
    if worker_was_frozen {
        return Ok(());
    }
    Err(format!("work ends in time: host {host} was still at work when its lease ended"))
}

/// An urgent stop was asked for when `left` of the time until the deadline was
/// left, in milliseconds.
pub(crate) fn asked(host: usize, left: u64, budget: u64, worker_was_frozen: bool) -> Verdict {
    // A millisecond of rounding between the two clocks.
    if left + 2 >= budget || worker_was_frozen {
        return Ok(());
    }
    Err(format!(
        "work ends in time: host {host} was asked to stop {left} ms before its lease ended, not {budget} ms"
    ))
}
