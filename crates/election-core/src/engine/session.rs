//! The session on which everything depends.

use std::time::Duration;

use super::io::Epoch;
use crate::time::Time;

/// What is known of the session.
#[derive(Clone, Debug, Hash)]
pub(in crate::engine) struct Session {
    pub(in crate::engine) epoch: Epoch,
    pub(in crate::engine) id: i64,
    pub(in crate::engine) granted: Duration,
    pub(in crate::engine) paused_since: Option<Time>,
    pub(in crate::engine) over: bool,
    pub(in crate::engine) lease: Option<Time>,
}
