//! A value whose channel is made for its first subscriber.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// A value that one task sets and others read. A channel needs several hundred bytes, and most values of most elections
/// have no subscriber.
#[derive(Debug)]
pub(super) struct Lazy<T>(Mutex<Content<T>>);

#[derive(Debug)]
struct Content<T> {
    value: T,
    channel: Option<watch::Sender<T>>,
    is_final: bool,
}

impl<T: Clone> Lazy<T> {
    pub(super) const fn new(value: T) -> Self {
        Self(Mutex::new(Content { value, channel: None, is_final: false }))
    }

    pub(super) fn get(&self) -> T {
        self.state().value.clone()
    }

    /// Reads the value without a copy of it. No other thread reads or sets it meanwhile.
    pub(super) fn with<O>(&self, read: impl FnOnce(&T) -> O) -> O {
        read(&self.state().value)
    }

    pub(super) fn set(&self, value: T) {
        let mut state = self.state();
        state.free(0);
        if let Some(channel) = &state.channel {
            channel.send_replace(value.clone());
        }
        state.value = value;
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<T> {
        let mut state = self.state();
        match &state.channel {
            Some(channel) => channel.subscribe(),
            None => {
                let (sender, receiver) = watch::channel(state.value.clone());
                state.channel = Some(sender).filter(|_| !state.is_final);
                receiver
            }
        }
    }
}

impl<T> Lazy<T> {
    /// The value does not change any more.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.is_final = true;
        state.channel = None;
    }

    /// Whether it has subscribers.
    pub(super) fn is_followed(&self) -> bool {
        self.state().channel.as_ref().is_some_and(|channel| channel.receiver_count() > 0)
    }

    /// A subscriber is about to go.
    pub(super) fn unsubscribe(&self) {
        self.state().free(1);
    }

    fn state(&self) -> MutexGuard<'_, Content<T>> {
        // No code under this lock can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Content<T> {
    /// Frees the channel if it has no more subscribers than that.
    fn free(&mut self, subscribers: usize) {
        if self.channel.as_ref().is_some_and(|channel| channel.receiver_count() <= subscribers) {
            self.channel = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::runtime::{Changes, changes::Source};

    impl Source for Lazy<i32> {
        fn unsubscribe(&self) {
            Lazy::unsubscribe(self);
        }
    }

    fn changes_of(value: &Arc<Lazy<i32>>) -> Changes<i32> {
        Changes::of(value.subscribe(), Arc::clone(value) as Arc<dyn Source>)
    }

    #[tokio::test]
    async fn subscribers_see_each_value_and_the_end() {
        let value = Arc::new(Lazy::new(1));
        value.set(2);
        let mut early = changes_of(&value);
        assert_eq!((value.get(), early.now()), (2, 2));
        value.set(3);
        let mut late = changes_of(&value);
        assert_eq!((early.changed().await, late.now()), (Some(3), 3));
        value.end();
        assert_eq!((early.changed().await, late.changed().await), (None, None));
        let mut last = changes_of(&value);
        assert_eq!((value.get(), last.now(), last.changed().await), (3, 3, None));
    }

    #[tokio::test]
    async fn the_channel_ends_with_its_last_subscriber_and_no_earlier() {
        let has_channel = |value: &Lazy<i32>| value.state().channel.is_some();
        let value = Arc::new(Lazy::new(1));
        let (one, other) = (changes_of(&value), changes_of(&value));
        drop(one);
        assert!(has_channel(&value));
        let mut receiver = watch::Receiver::from(other);
        assert!(has_channel(&value));
        value.set(2);
        assert!(receiver.changed().await.is_ok() && *receiver.borrow() == 2);
        drop(receiver);
        value.set(3);
        assert!(!has_channel(&value));
        let changes = changes_of(&value);
        assert_eq!((has_channel(&value), changes.now()), (true, 3));
        drop(changes);
        assert!(!has_channel(&value));
    }
}
