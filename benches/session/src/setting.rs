//! The common settings of all clients.

use std::time::Duration;

/// The servers' tick, and the requested session timeout: a session sends its usual heartbeats meanwhile.
pub(crate) const TICK: Duration = Duration::from_millis(500);
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of bytes that are read and written.
pub(crate) const DATA: usize = 128;
