//! Another incarnation of this member: a former process whose session has not expired yet, or a living process with the
//! same id.

use std::time::Duration;

use crate::engine::{
    core::Core,
    io::{Level, NoteKind},
};

/// Another incarnation, by its record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct OtherIncarnation {
    /// The timeout that its session was granted.
    timeout: Duration,
    /// Where an operator finds it: its address, and that of its HTTP endpoints.
    pub(super) address: Option<String>,
}

impl OtherIncarnation {
    pub(super) fn new(session_timeout_ms: u64, address: Option<String>, http: Option<String>) -> Self {
        let address = match (address, http) {
            (Some(address), Some(http)) => Some(format!("{address} ({http})")),
            (one, other) => one.or(other),
        };
        Self { timeout: Duration::from_millis(session_timeout_ms), address }
    }

    /// How long to wait for its end before it counts as a duplicate: a whole timeout, which may be longer than that of this
    /// session, and the time that the ensemble may need to expire a session.
    pub(super) fn patience(&self, core: &Core) -> Duration {
        let granted = core.granted().max(self.timeout);
        granted + (granted / 4).max(Duration::from_secs(2))
    }

    /// Reports that it holds this znode.
    pub(super) fn is_awaited(&self, core: &mut Core, path: &str) {
        let at = self.address.as_ref().map(|address| format!(" at {address}")).unwrap_or_default();
        let text = format!("{path} is held by another incarnation{at}; waiting for it to end");
        core.note(Level::Warn, NoteKind::Registration, text);
    }
}
