//! The way of events to the task that owns an engine, and of its end to those who wait for it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::{Context, Poll, Waker},
};

use tokio::sync::{Notify, oneshot};

use super::election::Ended;
use crate::engine::{Config, Event, Resumption, Unrest};

/// Sends to one runner.
#[derive(Clone, Debug)]
pub(super) struct Events(Arc<Mailbox>);

/// Receives what [`Events`] send. What is sent after it was dropped has no effect.
pub(super) struct Inbox(Arc<Mailbox>);

/// A channel that is small while it is empty: there may be thousands of quiet elections.
#[derive(Debug, Default)]
struct Mailbox {
    mail: Mutex<Mail>,
    /// On the heap: an election that runs needs no room for it.
    ended: OnceLock<Box<Ended>>,
    has_ended: Notify,
}

#[derive(Debug, Default)]
struct Mail {
    waiting: VecDeque<Message>,
    receiver: Option<Waker>,
    is_closed: bool,
}

impl Mailbox {
    fn mail(&self) -> MutexGuard<'_, Mail> {
        // No code under this lock can panic.
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, message: Message) {
        let mut mail = self.mail();
        // A message is dropped without the lock.
        if mail.is_closed {
            return drop(mail);
        }
        mail.waiting.push_back(message);
        let receiver = mail.receiver.take();
        drop(mail);
        if let Some(receiver) = receiver {
            receiver.wake();
        }
    }
}

impl Inbox {
    /// The next message.
    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Message> {
        let mut mail = self.0.mail();
        match mail.take() {
            Some(message) => Poll::Ready(message),
            None => {
                mail.receiver = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The next message, if there is one.
    pub(super) fn try_receive(&mut self) -> Option<Message> {
        self.0.mail().take()
    }
}

impl Mail {
    fn take(&mut self) -> Option<Message> {
        let message = self.waiting.pop_front();
        if self.waiting.is_empty() {
            // A quiet election holds no memory for it.
            self.waiting = VecDeque::new();
        }
        message
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let mut mail = self.0.mail();
        mail.is_closed = true;
        let left = std::mem::take(&mut mail.waiting);
        drop(mail);
        drop(left);
    }
}

/// What a runner receives.
#[derive(Debug)]
pub(super) enum Message {
    /// For the engine.
    Event(Event),
    /// New settings for the engine.
    Reconfigure(Box<Config>),
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
        let mailbox = Arc::<Mailbox>::default();
        (Self(Arc::clone(&mailbox)), Inbox(mailbox))
    }

    /// The runner has ended. The first reason counts.
    pub(super) fn end(&self, reason: Ended) {
        let _ = self.0.ended.set(Box::new(reason));
        self.0.has_ended.notify_waiters();
    }

    /// Waits until the runner has ended. Cancel safe.
    pub(super) async fn ended(&self) -> Ended {
        loop {
            let notified = self.0.has_ended.notified();
            if let Some(reason) = self.0.ended.get() {
                return Ended::clone(reason);
            }
            notified.await;
        }
    }

    /// Once the election has ended, an event has no effect.
    pub(super) fn send(&self, event: Event) {
        self.0.put(Message::Event(event));
    }

    /// As [`send`](Self::send), for new settings.
    pub(super) fn reconfigure(&self, config: Config) {
        self.0.put(Message::Reconfigure(Box::new(config)));
    }

    /// The status is followed, or was looked at.
    pub(super) fn looked(&self) {
        self.0.put(Message::Looked);
    }

    /// Waits until the runner has received all that was sent before, or has ended.
    pub(super) async fn received(&self) {
        let (answer, answered) = oneshot::channel();
        self.0.put(Message::Ping(answer));
        // A runner that has ended drops it.
        let _ = answered.await;
    }

    /// Asks the runner to hand over; `None` if it has ended.
    pub(super) async fn hand_over(&self) -> Option<Result<HandedOver, Unrest>> {
        let (answer, answered) = oneshot::channel();
        self.0.put(Message::HandOver(answer));
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
            self.events.0.put(Message::Panicked(self.call));
        }
    }
}
