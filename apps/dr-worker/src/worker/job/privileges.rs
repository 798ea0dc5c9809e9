//! What a worker may do to processes of other users.

use std::fs;

/// The bit of CAP_KILL in `/proc/PID/status`.
const CAP_KILL: u64 = 1 << 5;

/// Whether this process may send signals to those of any user.
pub(crate) fn may_kill_any_user() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or_default();
    u64::from_str_radix(effective.trim(), 16).is_ok_and(|set| set & CAP_KILL != 0)
}

/// Whether what is started may become another user: where nothing is set, only if that one could be killed.
pub(super) fn renounces_privileges(set: Option<bool>) -> bool {
    set.unwrap_or_else(|| !may_kill_any_user())
}
