//! What a process may do by its capabilities.

use crate::guard::tree::kernel_text;

/// The bits in `/proc/PID/status`.
const CAP_KILL: u64 = 1 << 5;
const CAP_SETGID: u64 = 1 << 6;
const CAP_SETUID: u64 = 1 << 7;
const CAP_IPC_LOCK: u64 = 1 << 14;

/// Whether this process may send signals to those of any user.
pub fn may_kill_any_user() -> bool {
    has("self", CAP_KILL)
}

/// Whether it may start a program as any user, and end it.
pub fn may_run_as_any_user() -> bool {
    has("self", CAP_SETUID | CAP_SETGID | CAP_KILL)
}

/// Whether what is started can't become another user. Where nothing is set it can't if it has a user of its own, who could
/// become root by a setuid program; or if this process could not kill the other user's processes.
pub fn renounces_privileges(set: Option<bool>, has_own_user: bool) -> bool {
    set.unwrap_or_else(|| has_own_user || !may_kill_any_user())
}

/// Whether the process with this name in `/proc` has no limit of locked memory.
pub fn may_lock_any_memory(process: &str) -> bool {
    has(process, CAP_IPC_LOCK)
}

fn has(process: &str, all: u64) -> bool {
    let status = kernel_text(&format!("/proc/{process}/status")).unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or_default();
    u64::from_str_radix(effective.trim(), 16).is_ok_and(|set| set & all == all)
}
