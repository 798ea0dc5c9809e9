//! The way of events to the task that owns an engine.

use futures_channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use crate::engine::{Config, Event, Resumption, Unrest};

/// Sends to one runner. Once the runner has ended, what is sent has no effect.
///
/// The one thing here that is small for memory's sake: a channel of tokio's keeps 1 kB of each idle election, this one 0.2 kB,
/// and thousands of elections share a process.
#[derive(Clone)]
pub(super) struct Events(UnboundedSender<Message>);

/// Receives what [`Events`] send.
pub(super) type Inbox = UnboundedReceiver<Message>;

/// What a runner receives.
pub(super) enum Message {
    /// For the engine.
    Event(Event),
    /// A change of the engine's settings.
    Reconfigure(Box<dyn FnOnce(&mut Config) + Send>),
    /// This call of the application panicked.
    Panicked(&'static str),
    /// The status is followed, or was looked at.
    Looked,
    /// To be answered at once.
    Ping(oneshot::Sender<()>),
    /// To be handed over to another process.
    HandOver(oneshot::Sender<Result<HandedOver, Unrest>>),
}

/// A member that is handed over to another process, from [`Election::hand_over`](super::Election::hand_over). While this
/// exists and [`is_held`](Self::is_held), the election does nothing. Dropped, the election continues here.
#[derive(Debug)]
#[must_use = "the election continues as soon as this is dropped"]
pub struct HandedOver {
    pub(super) resumption: Resumption,
    pub(super) held: oneshot::Sender<()>,
}

impl HandedOver {
    /// What the other process needs.
    pub fn resumption(&self) -> &Resumption {
        &self.resumption
    }

    /// Whether the election still does nothing. It continues by itself after an eighth of the session timeout, at most a
    /// second: then another process must not continue with this.
    pub fn is_held(&self) -> bool {
        !self.held.is_closed()
    }
}

impl Events {
    pub(super) fn channel() -> (Self, Inbox) {
        let (sender, inbox) = mpsc::unbounded();
        (Self(sender), inbox)
    }

    pub(super) fn put(&self, message: Message) {
        // An error: the runner has ended.
        let _ = self.0.unbounded_send(message);
    }

    pub(super) fn send(&self, event: Event) {
        self.put(Message::Event(event));
    }

    /// Waits for the runner's answer to a message, after all that was sent before; `None` if it has ended.
    pub(super) async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.put(message(answer));
        answered.await.ok()
    }

    /// To be held during a call of the application.
    pub(super) fn during(&self, call: &'static str) -> During {
        During { events: self.clone(), call }
    }
}

/// Reports the panic by which it is dropped.
pub(super) struct During {
    events: Events,
    call: &'static str,
}

impl During {
    /// The call has ended with this event.
    pub(super) fn ends(self, event: Event) {
        self.events.send(event);
    }
}

impl Drop for During {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.events.put(Message::Panicked(self.call));
        }
    }
}
