//! Where a member's status and its end are published.

use std::sync::Arc;

use tokio::sync::{SetOnce, watch};

use super::{ended::Ended, status::ElectionStatus};

/// Publishes what a member does. Dropped, also by a panic or with its runtime, it publishes the end.
pub(super) struct Publisher {
    /// `None` once the status is final.
    status: Option<watch::Sender<ElectionStatus>>,
    ended: Arc<SetOnce<Ended>>,
    how: Option<Ended>,
}

impl Publisher {
    pub(super) fn new(status: watch::Sender<ElectionStatus>, ended: Arc<SetOnce<Ended>>) -> Self {
        Self { status: Some(status), ended, how: None }
    }

    /// Whether the status is followed. The handle has one receiver.
    pub(super) fn is_followed(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.receiver_count() > 1)
    }

    pub(super) fn status(&self, status: ElectionStatus) {
        if let Some(known) = &self.status {
            known.send_if_modified(|known| {
                *known != status && {
                    *known = status;
                    true
                }
            });
        }
    }

    /// How the member's part ends: published when this is dropped, or by [`end`](Self::end). The first reason counts.
    pub(super) fn ends(&mut self, how: Ended) {
        self.how.get_or_insert(how);
    }

    /// Publishes the end.
    pub(super) fn end(&mut self) {
        let Some(status) = self.status.take() else { return };
        // A runner that did not end by itself may have led: from now on no work may begin.
        status.send_if_modified(|status| status.work_until.take().is_some());
        drop(status);
        let by_itself = if std::thread::panicking() { Ended::EnginePanicked } else { Ended::RuntimeEnded };
        // Published once.
        let _ = self.ended.set(self.how.take().unwrap_or(by_itself));
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.end();
    }
}
