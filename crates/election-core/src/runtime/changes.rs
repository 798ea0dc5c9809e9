//! A value that another task changes.

use tokio::sync::watch;

/// A value and its changes. What it returns is a copy: nothing is locked while a caller looks at it.
#[derive(Clone, Debug)]
pub struct Changes<T>(watch::Receiver<T>);

impl<T: Clone> Changes<T> {
    pub(crate) const fn new(receiver: watch::Receiver<T>) -> Self {
        Self(receiver)
    }

    /// The value now.
    pub fn now(&self) -> T {
        self.0.borrow().clone()
    }

    /// The next value that differs from the one seen last; values in between may be left out. `None` when there
    /// will be no other one.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn changed(&mut self) -> Option<T> {
        self.0.changed().await.ok()?;
        Some(self.0.borrow_and_update().clone())
    }

    /// Waits until `fits` holds for the value, now or after a change. `None` when it never will.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait_for(&mut self, fits: impl FnMut(&T) -> bool) -> Option<T> {
        Some(self.0.wait_for(fits).await.ok()?.clone())
    }
}

/// For code that selects over tokio's own. Hold no `borrow()` of it for longer than a comparison: it blocks the election.
impl<T> From<Changes<T>> for watch::Receiver<T> {
    fn from(changes: Changes<T>) -> Self {
        changes.0
    }
}
