//! What all clients have in common.

use std::time::Duration;

/// The servers' tick, and what sessions ask for: a session does its usual work of keeping itself alive meanwhile.
pub(crate) const TICK: Duration = Duration::from_millis(500);
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// Of what is read and written.
pub(crate) const DATA: usize = 128;
