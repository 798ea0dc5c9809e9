//! What waits to be sent, or is being sent. It is in memory, and ends with this program.

use std::{
    ops::Deref,
    sync::atomic::{AtomicUsize, Ordering},
};

/// How many notifications there are, for all receivers.
pub(super) static NOTIFICATIONS: AtomicUsize = AtomicUsize::new(0);

/// How many traces there are.
pub(super) static TRACES: AtomicUsize = AtomicUsize::new(0);

/// One that is counted until it is dropped.
#[derive(Debug)]
pub(super) struct Unsent<T> {
    what: T,
    among: &'static AtomicUsize,
}

impl<T> Unsent<T> {
    pub(super) fn new(what: T, among: &'static AtomicUsize) -> Self {
        among.fetch_add(1, Ordering::Relaxed);
        Self { what, among }
    }
}

impl<T> Deref for Unsent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.what
    }
}

impl<T> Drop for Unsent<T> {
    fn drop(&mut self) {
        self.among.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Warns of what would be lost if this process executed another program now.
pub(super) fn warn_of_loss() {
    let [notifications, traces] = [&NOTIFICATIONS, &TRACES].map(|number| number.load(Ordering::Relaxed));
    if notifications + traces > 0 {
        tracing::warn!(
            notifications,
            traces,
            "notifications and traces that wait to be sent are lost when the process executes the next program"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_counted_until_it_is_dropped() {
        static HERE: AtomicUsize = AtomicUsize::new(0);
        let both = ["a", "b"].map(|what| Unsent::new(what, &HERE));
        assert_eq!((*both[1], HERE.load(Ordering::Relaxed)), ("b", 2));
        drop(both);
        assert_eq!(HERE.load(Ordering::Relaxed), 0);
    }
}
