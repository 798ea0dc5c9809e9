//! Attempts to set a watch, with pauses between them.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tracing::warn;

use crate::backoff::Backoff;
use crate::driver::BoxFuture;
use crate::error::{Closed, OpError, WatchError};
use crate::path::check;
use crate::session::incarnation::Incarnation;
use crate::session::shared::View;
use crate::time::BootTime;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));

pub(super) type Attempt<T> = BoxFuture<'static, Result<Result<T, OpError>, Closed>>;

/// Attempts to set a watch, with pauses between them.
pub(crate) struct Tries<T> {
    pub(crate) view: View,
    pub(crate) path: Arc<str>,
    /// There after an attempt that has failed.
    failed: Option<Box<RetryDue>>,
    /// The attempt under way. The mutex makes it `Sync`; it is never locked. On the heap, because there is none while the
    /// watch is set.
    pub(super) attempt: Option<Box<Mutex<Attempt<T>>>>,
}

/// When the next attempt is due.
struct RetryDue {
    backoff: Backoff,
    not_before: BootTime,
}

impl<T: 'static> Tries<T> {
    pub(crate) fn new(view: View, path: Arc<str>) -> Self {
        Self { view, path, failed: None, attempt: None }
    }

    /// Waits until it is time for an attempt and there is a session, makes it, and repeats that until one succeeds or is
    /// refused.
    pub(crate) fn poll<F>(
        &mut self,
        cx: &mut Context<'_>,
        set: impl Fn(Incarnation, Arc<str>) -> F + Copy + Send + 'static,
    ) -> Poll<Result<T, WatchError>>
    where
        F: Future<Output = Result<T, OpError>> + Send + 'static,
    {
        loop {
            let attempt = self.attempt.get_or_insert_with(|| {
                let (view, path) = (self.view.clone(), Arc::clone(&self.path));
                let not_before = self.failed.as_ref().map(|failed| failed.not_before);
                Box::new(Mutex::new(Box::pin(async move {
                    if let Some(not_before) = not_before {
                        view.shared.sleep(not_before).await?;
                    }
                    if let Err(invalid) = check(&path) {
                        return Ok(Err(invalid));
                    }
                    let incarnation = view.active().await?;
                    // On the heap: the wait for a session may be long, and would otherwise be as large as this.
                    Ok(Box::pin(set(incarnation, path)).await)
                })))
            });
            let attempt = attempt.get_mut().unwrap_or_else(PoisonError::into_inner);
            let outcome = ready!(attempt.as_mut().poll(cx));
            self.attempt = None;
            match outcome? {
                Ok(taken) => {
                    self.failed = None;
                    return Poll::Ready(Ok(taken));
                }
                Err(error) => {
                    if self.failed.is_none() && !error.is_session_over() {
                        warn!(parent: &self.view.shared.span, path = %self.path, %error, "cannot set a watch");
                    }
                    let mut backoff = self.failed.take().map_or(BACKOFF, |failed| failed.backoff);
                    let not_before = BootTime::now() + backoff.next();
                    self.failed = Some(Box::new(RetryDue { backoff, not_before }));
                    if error.is_refused() {
                        return Poll::Ready(Err(WatchError::Refused(error)));
                    }
                }
            }
        }
    }
}
