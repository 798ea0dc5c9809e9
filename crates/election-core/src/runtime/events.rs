//! The way of events to the task that owns an engine, and of its end to those who wait for it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::{Context, Poll, Waker},
};

use tokio::sync::{Notify, oneshot};

use super::{
    changes::{Changes, Source},
    ended::Ended,
    lazy::Lazy,
    status::ElectionStatus,
};
use crate::engine::{Config, Event, Resumption, Unrest};

/// Sends to one runner.
#[derive(Clone, Debug)]
pub(super) struct Events(Arc<Mailbox>);

/// Receives what [`Events`] send. What is sent after it was dropped has no effect.
pub(super) struct Inbox(Arc<Mailbox>);

/// What the task and the handles of one election share: a channel that is small while it is empty, for there may be thousands
/// of quiet elections, and the member's status.
#[derive(Debug)]
struct Mailbox {
    mail: Mutex<Mail>,
    status: Lazy<ElectionStatus>,
    /// On the heap: an election that runs needs no room for it.
    ended: OnceLock<Box<Ended>>,
    /// Made for the first who waits for the end.
    has_ended: OnceLock<Box<Notify>>,
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

impl Source for Mailbox {
    fn unsubscribe(&self) {
        self.status.unsubscribe();
    }
}

impl Inbox {
    /// The member's status.
    pub(super) fn status(&self) -> &Lazy<ElectionStatus> {
        &self.0.status
    }

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
    pub(super) fn channel(status: ElectionStatus) -> (Self, Inbox) {
        let mailbox = Arc::new(Mailbox {
            mail: Mutex::default(),
            status: Lazy::new(status),
            ended: OnceLock::new(),
            has_ended: OnceLock::new(),
        });
        (Self(Arc::clone(&mailbox)), Inbox(mailbox))
    }

    /// The member's status.
    pub(super) fn status(&self) -> &Lazy<ElectionStatus> {
        &self.0.status
    }

    /// The member's status and its changes.
    pub(super) fn follow_status(&self) -> Changes<ElectionStatus> {
        Changes::of(self.0.status.subscribe(), Arc::clone(&self.0) as Arc<dyn Source>)
    }

    /// The runner has ended. The first reason counts.
    pub(super) fn end(&self, reason: Ended) {
        // A runner that did not end by itself may have led: from now on no work may begin.
        if self.0.status.with(|status| status.work_until.is_some()) {
            self.0.status.set(ElectionStatus { work_until: None, ..self.0.status.get() });
        }
        self.0.status.end();
        let _ = self.0.ended.set(Box::new(reason));
        if let Some(has_ended) = self.0.has_ended.get() {
            has_ended.notify_waiters();
        }
    }

    /// Waits until the runner has ended. Cancel safe.
    pub(super) async fn ended(&self) -> Ended {
        let has_ended = self.0.has_ended.get_or_init(Box::default);
        loop {
            let notified = has_ended.notified();
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

/// Reports how a member's part has ended once it is dropped, also by a panic or with its runtime.
pub(super) struct End(Events);

impl End {
    pub(super) fn new(events: Events) -> Self {
        Self(events)
    }

    pub(super) fn report(&self, reason: Ended) {
        self.0.end(reason);
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // The first reason counts.
        self.report(if std::thread::panicking() { Ended::EnginePanicked } else { Ended::RuntimeEnded });
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
