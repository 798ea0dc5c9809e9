//! What every watch is: a stream, and the same by calls.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::error::{Closed, OpError, WatchError};

/// What changes, across reconnects and new sessions: a [`DataWatch`](crate::DataWatch), a
/// [`ChildrenWatch`](crate::ChildrenWatch) or a [`ChangeWatch`](crate::ChangeWatch).
///
/// As a [`Stream`] it yields what [`next`](Self::next) returns, and ends when the session is closed. An error does not end
/// it: polled again, it asks again after a pause.
///
/// # Cancel safety
/// Nothing is lost when the future of `next` or of `StreamExt::next` is dropped. A request that is under way is abandoned
/// with the future of `next`, and repeated by the next call. The stream keeps it. Drop a stream that is no longer polled:
/// its request may occupy one of the session's 512 requests.
pub struct Watch<S> {
    pub(super) source: S,
}

impl<S: Source> Watch<S> {
    /// The path that is watched.
    pub fn path(&self) -> &str {
        self.source.path()
    }

    /// The next item. It waits for as long as nothing changes, and while there is no session or no connection.
    ///
    /// # Errors
    /// [`WatchError::Refused`] at once if the path is invalid, or ZooKeeper refuses the watch, for example for lack of
    /// permission. [`WatchError::Closed`] when the session is closed.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn next(&mut self) -> Result<S::Item, WatchError> {
        let next = AbandonedOnDrop(&mut self.source);
        poll_fn(|cx| next.0.poll_next(cx)).await
    }

    /// [`next`](Self::next) for a program that waits until what refuses the watch is corrected: asks again, with pauses of
    /// seconds, until there is an item. The first refusal is logged.
    ///
    /// # Errors
    /// [`Closed`].
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn next_allowed(&mut self) -> Result<S::Item, Closed> {
        loop {
            match self.next().await {
                Ok(value) => return Ok(value),
                // The next attempt has a pause before it.
                Err(WatchError::Refused(_)) => {}
                Err(WatchError::Closed(closed)) => return Err(closed),
            }
        }
    }
}

impl<S: Source + Unpin> Stream for Watch<S> {
    type Item = Result<S::Item, OpError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.source.poll_next(cx).map(item)
    }
}

impl<S: Source> fmt::Debug for Watch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("path", &self.path()).finish_non_exhaustive()
    }
}

/// What a watch returns. Only this crate has sources.
pub trait Source {
    /// What changes.
    type Item;

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::Item, WatchError>>;

    fn path(&self) -> &str;

    /// Drops the attempt under way, if any. The next poll begins another one.
    fn abandon(&mut self);
}

/// An item of a stream, which ends when the session is closed.
pub(super) fn item<T>(next: Result<T, WatchError>) -> Option<Result<T, OpError>> {
    match next {
        Ok(value) => Some(Ok(value)),
        Err(WatchError::Refused(error)) => Some(Err(error)),
        Err(WatchError::Closed(Closed)) => None,
    }
}

/// A watch whose attempt under way is dropped with this, so no attempt stays unpolled.
struct AbandonedOnDrop<'a, S: Source>(&'a mut S);

impl<S: Source> Drop for AbandonedOnDrop<'_, S> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
