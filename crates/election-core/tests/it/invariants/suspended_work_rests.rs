//! With `on_pause = freeze` no work acts while the session of its leader is paused, once the worker knows it.

use election_core::config::{OnPause, Policy};

use super::Verdict;

/// Work acts that was not suspended; `excused` if its worker was frozen, or had ordered it to stop before.
pub(crate) fn acts(policy: &Policy, host: usize, is_paused: bool, excused: bool) -> Verdict {
    if !matches!(policy.on_pause, OnPause::Freeze { .. }) || !is_paused || excused {
        return Ok(());
    }
    Err(format!("suspended work rests: host {host} acts while its session is paused"))
}
