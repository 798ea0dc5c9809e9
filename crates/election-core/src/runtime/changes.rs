//! A value that another task changes.

use tokio::sync::watch;

/// A value and its changes. Its methods return copies, so a caller does not hold a lock.
#[derive(Clone, Debug)]
pub struct Changes<T>(watch::Receiver<T>);

impl<T: Clone> Changes<T> {
    pub(crate) const fn new(receiver: watch::Receiver<T>) -> Self {
        Self(receiver)
    }

    /// The present value.
    pub fn now(&self) -> T {
        self.0.borrow().clone()
    }

    /// The next value that differs from the one seen last. Values in between may be omitted. `None` when the value is
    /// final.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn changed(&mut self) -> Option<T> {
        self.0.changed().await.ok()?;
        Some(self.0.borrow_and_update().clone())
    }

    /// Waits until `fits` holds for the value, now or after a change. `None` when the value is final and it does not
    /// hold.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait_for(&mut self, fits: impl FnMut(&T) -> bool) -> Option<T> {
        Some(self.0.wait_for(fits).await.ok()?.clone())
    }
}

/// For code that needs tokio's own type. Do not hold a `borrow()` of it for longer than a comparison: it blocks the
/// election.
impl<T> From<Changes<T>> for watch::Receiver<T> {
    fn from(changes: Changes<T>) -> Self {
        changes.0
    }
}
