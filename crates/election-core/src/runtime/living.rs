//! The incarnations of members that this process runs. Each has one engine: two would lead with one token.

use std::{
    collections::HashSet,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

use crate::paths::Paths;

/// An election, and the number of an incarnation in it.
type Key = (Paths, u32);

static LIVING: LazyLock<Mutex<HashSet<Key>>> = LazyLock::new(Mutex::default);

fn living() -> MutexGuard<'static, HashSet<Key>> {
    // No code under this lock can panic.
    LIVING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right of one engine to be an incarnation, until it is dropped.
pub(super) struct Living {
    key: Key,
    is_held: bool,
}

impl Living {
    /// `None` if another engine of this process is this incarnation.
    pub(super) fn begin(paths: &Paths, number: u32) -> Option<Self> {
        let mut this = Self { key: (paths.clone(), number), is_held: false };
        this.resume().then_some(this)
    }

    /// Another engine may continue.
    pub(super) fn hand_over(&mut self) {
        if std::mem::take(&mut self.is_held) {
            living().remove(&self.key);
        }
    }

    /// Whether this engine may go on: no other one continues.
    pub(super) fn resume(&mut self) -> bool {
        self.is_held = self.is_held || living().insert(self.key.clone());
        self.is_held
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        self.hand_over();
    }
}
