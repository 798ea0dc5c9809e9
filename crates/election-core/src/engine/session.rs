//! The session on which everything depends.

use std::{
    hash::{Hash, Hasher},
    time::Duration,
};

use super::io::Epoch;
use crate::time::Time;

/// What is known of the session.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Session {
    pub(crate) epoch: Epoch,
    pub(crate) id: i64,
    pub(crate) granted: Duration,
    pub(crate) paused_since: Option<Time>,
    pub(crate) over: bool,
    pub(crate) lease: Option<Time>,
    pub(crate) created: Created,
}

/// The leader znodes that this engine is known to have created on the session, by czxid: its own even if another program
/// has changed the record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Created(Vec<i64>);

/// One of an older copy of the ensemble is one of these.
const KEPT: usize = 8;

impl Created {
    pub(crate) fn add(&mut self, czxid: i64) {
        if !self.has(czxid) {
            self.0.drain(..(self.0.len() + 1).saturating_sub(KEPT));
            self.0.push(czxid);
        }
    }

    pub(crate) fn has(&self, czxid: i64) -> bool {
        self.0.contains(&czxid)
    }
}

impl Hash for Created {
    /// Only a record that was changed from outside makes a difference, which no checker that merges states does.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
