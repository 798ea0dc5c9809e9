//! The way of events to the task that owns an engine.

use tokio::sync::mpsc;

use crate::engine::Event;

/// Sends events to one engine. They are boxed: a channel keeps room for 32 messages, and there may be thousands of quiet
/// elections.
#[derive(Clone, Debug)]
pub(super) struct Events(mpsc::UnboundedSender<Box<Event>>);

/// Receives what [`Events`] send.
pub(super) type Inbox = mpsc::UnboundedReceiver<Box<Event>>;

impl Events {
    pub(super) fn channel() -> (Self, Inbox) {
        let (sender, inbox) = mpsc::unbounded_channel();
        (Self(sender), inbox)
    }

    /// Once the election has ended, an event has no effect.
    pub(super) fn send(&self, event: Event) {
        let _ = self.0.send(Box::new(event));
    }
}
