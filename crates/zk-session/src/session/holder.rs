//! Those who hold something of a session, counted.

use tokio::sync::watch;

/// One of those who hold it, and so is each clone.
#[derive(Debug)]
pub(crate) struct Holder(watch::Sender<usize>);

impl Holder {
    pub(crate) fn new(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Clone for Holder {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
