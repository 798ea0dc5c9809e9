//! Notifications that wait for a receiver: a bounded number, the oldest is dropped.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// A bounded queue with one reader.
#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: Mutex<VecDeque<Arc<T>>>,
    most: usize,
    news: Notify,
}

impl<T> Queue<T> {
    pub(super) fn new(most: usize) -> Self {
        Self { waiting: Mutex::default(), most: most.max(1), news: Notify::new() }
    }

    /// Adds one. Returns the oldest if there was no room for it any more.
    #[must_use]
    pub(super) fn push(&self, item: Arc<T>) -> Option<Arc<T>> {
        let mut waiting = self.lock();
        let dropped = if waiting.len() >= self.most { waiting.pop_front() } else { None };
        waiting.push_back(item);
        self.news.notify_one();
        dropped
    }

    /// Takes the oldest, once there is one.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&self) -> Arc<T> {
        loop {
            if let Some(item) = self.lock().pop_front() {
                return item;
            }
            self.news.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<T>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_drops_the_oldest() {
        let queue = Queue::new(2);
        let dropped: Vec<_> =
            (1..=4).filter_map(|number| queue.push(Arc::new(number))).map(|item| *item).collect();
        assert_eq!(dropped, [1, 2]);
        assert_eq!((*queue.next().await, *queue.next().await), (3, 4));
        let (next, _) = tokio::join!(queue.next(), async { queue.push(Arc::new(5)) });
        assert_eq!(*next, 5);
    }
}
