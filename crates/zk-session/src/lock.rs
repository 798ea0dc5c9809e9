//! Locks that panics do not poison.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic elsewhere leaves these small tables consistent, so a poisoned lock is usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
