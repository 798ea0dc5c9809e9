//! The application's calls, one at a time, each in a task of its own.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinHandle},
};
use zk_session::{BootTime, OpError};

use super::{
    events::Events,
    handler::{ElectionEvent, Handler, Leadership, StopOrder, Terms},
    lazy::Lazy,
    to_boot,
};
use crate::{
    engine::{AppEvent, Event, Grant, Nomination, StopReason},
    record::Current,
};

/// Drives one application.
pub(super) struct Work<H> {
    handler: Arc<H>,
    events: Events,
    /// The call in progress.
    call: Option<JoinHandle<()>>,
    /// It has begun just now.
    begun: bool,
    /// The order in progress.
    stop: Option<Stop>,
    work_until: BootTime,
    terms: Option<Arc<Terms>>,
    term: u64,
    /// If the application follows who leads.
    telling: Option<Arc<Mutex<Telling>>>,
}

struct Stop {
    reason: watch::Sender<StopReason>,
    deadline: watch::Sender<BootTime>,
}

impl<H: Handler> Work<H> {
    pub(super) fn new(handler: H, events: Events) -> Self {
        let telling = handler.follows_leaders().then(Arc::default);
        Self {
            handler: Arc::new(handler),
            events,
            call: None,
            begun: false,
            stop: None,
            work_until: BootTime::from_duration(Duration::ZERO),
            terms: None,
            term: 0,
            telling,
        }
    }

    pub(super) fn prepare(&mut self, nomination: Arc<Nomination>) {
        self.term = nomination.term;
        let handler = Arc::clone(&self.handler);
        self.begin("prepare", async move {
            match handler.prepare(&nomination).await {
                Ok(()) => AppEvent::Prepared,
                Err(why) if why.is_declined() => AppEvent::Declined(why.to_string()),
                Err(why) => AppEvent::PrepareFailed(why.to_string()),
            }
        });
    }

    pub(super) fn take_over(&mut self, grant: Grant) {
        let leadership = self.enter(grant);
        let handler = Arc::clone(&self.handler);
        self.begin("takeover", async move {
            match handler.takeover(&leadership).await {
                Ok(()) => {
                    let remark =
                        leadership.terms.remark.lock().unwrap_or_else(PoisonError::into_inner).take();
                    remark.map_or(AppEvent::TakenOver, |remark| AppEvent::TakenOverWith(remark.into()))
                }
                Err(why) if why.is_declined() => AppEvent::Declined(why.to_string()),
                Err(why) => AppEvent::TakeoverFailed(why.to_string()),
            }
        });
    }

    /// Leads on, after another process of this member.
    pub(super) fn resume(&mut self, grant: Grant) {
        self.work_until(to_boot(grant.work_until));
        self.enter(grant);
        self.lead();
    }

    fn enter(&mut self, grant: Grant) -> Leadership {
        self.end_terms();
        self.term = grant.nomination.term;
        let terms = Arc::new(Terms {
            nomination: grant.nomination,
            fencing_token: grant.fencing_token,
            work_until: Lazy::new(self.work_until),
            suspended: Lazy::new(false),
            stop: Lazy::new(None),
            remark: Mutex::default(),
        });
        self.terms = Some(Arc::clone(&terms));
        Leadership::new(terms)
    }

    fn end_terms(&mut self) {
        if let Some(terms) = self.terms.take() {
            terms.end();
        }
    }

    pub(super) fn lead(&mut self) {
        let Some(terms) = &self.terms else { return };
        let leadership = Leadership::new(Arc::clone(terms));
        let handler = Arc::clone(&self.handler);
        self.begin("lead", async move {
            match handler.lead(&leadership).await {
                Ok(()) => AppEvent::WorkFinished,
                Err(why) => AppEvent::WorkFailed(why.to_string()),
            }
        });
    }

    pub(super) fn follows_leaders(&self) -> bool {
        self.telling.is_some()
    }

    pub(super) fn observe(&self, event: ElectionEvent) {
        self.handler.observe(event);
    }

    pub(super) fn refused(&self, error: &OpError) {
        self.handler.refused(error);
    }

    pub(super) fn work_until(&mut self, until: BootTime) {
        self.work_until = until;
        if let Some(terms) = &self.terms {
            terms.work_until.set(until);
        }
        if let Some(stop) = &self.stop {
            stop.deadline.send_replace(until);
        }
    }

    pub(super) fn suspend(&self, suspended: bool) {
        if let Some(terms) = &self.terms {
            terms.suspended.set(suspended);
        }
    }

    /// Stops the work. A repeated call makes the stop more urgent.
    pub(super) fn stop(&mut self, reason: StopReason) {
        if let Some(terms) = &self.terms {
            terms.stop.set(Some(reason.clone()));
        }
        if let Some(stop) = &self.stop {
            stop.reason.send_replace(reason);
            return;
        }
        let running = self.call.take();
        let stop = Stop { reason: watch::Sender::new(reason), deadline: watch::Sender::new(self.work_until) };
        let order = StopOrder {
            term: self.term,
            reason: stop.reason.subscribe(),
            deadline: stop.deadline.subscribe(),
        };
        self.stop = Some(stop);
        let handler = Arc::clone(&self.handler);
        self.begin("stop", async move {
            if let Some(running) = running {
                running.abort();
                // The call in progress is dropped before anything is stopped.
                let _ = running.await;
            }
            handler.stop(&order).await;
            AppEvent::Stopped
        });
    }

    /// The engine knows that all work has stopped.
    pub(super) fn stopped(&mut self) {
        self.stop = None;
        self.end_terms();
    }

    /// Notifies the application, by a task that ends when it has nothing more to tell.
    pub(super) fn leader_changed(&self, slot: usize, leader: Option<Arc<Current>>) {
        let Some(shared) = &self.telling else { return };
        let mut telling = lock(shared);
        match telling.leaders.iter_mut().find(|(known, _)| *known == slot) {
            Some((_, known)) => *known = leader,
            None => {
                // Most elections have one slot.
                telling.leaders.reserve_exact(1);
                telling.leaders.push((slot, leader));
            }
        }
        if telling.task.is_none() {
            let task = tell(Arc::clone(&self.handler), Arc::clone(shared), self.events.clone());
            telling.task = Some(tokio::spawn(task).abort_handle());
        }
    }

    /// Whether a call has begun since this was asked last.
    pub(super) fn has_begun(&mut self) -> bool {
        std::mem::take(&mut self.begun)
    }

    fn begin(&mut self, name: &'static str, call: impl Future<Output = AppEvent> + Send + 'static) {
        let during = self.events.during(name);
        // On the heap, because an allocator wastes room around large tasks; and mapped, because an `async` block would have
        // room for the call twice.
        self.call = Some(tokio::spawn(Box::pin(call.map(|answer| during.ends(Event::App(answer))))));
        self.begun = true;
    }
}

impl<H> Drop for Work<H> {
    fn drop(&mut self) {
        if let Some(task) = self.telling.as_ref().and_then(|telling| lock(telling).task.take()) {
            task.abort();
        }
        if let Some(call) = &self.call {
            call.abort();
        }
        if let Some(terms) = &self.terms {
            terms.end();
        }
    }
}

/// The leaders with their slots.
type LeadersBySlot = Vec<(usize, Option<Arc<Current>>)>;

/// What the application is to know, and what it was notified of.
#[derive(Default)]
struct Telling {
    leaders: LeadersBySlot,
    told: LeadersBySlot,
    /// While there is something to tell.
    task: Option<AbortHandle>,
}

fn lock(telling: &Mutex<Telling>) -> MutexGuard<'_, Telling> {
    // No code under this lock can panic.
    telling.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notifies the application of each slot whose leader differs from the one that it was notified of.
async fn tell<H: Handler>(handler: Arc<H>, telling: Arc<Mutex<Telling>>, events: Events) {
    let during = events.during("leader_changed");
    loop {
        let news = {
            let mut telling = lock(&telling);
            let Telling { leaders, told, task } = &mut *telling;
            let news: LeadersBySlot =
                leaders.iter().filter(|leader| !told.contains(leader)).cloned().collect();
            if news.is_empty() {
                *task = None;
                break;
            }
            told.clone_from(leaders);
            news
        };
        for (slot, leader) in &news {
            handler.leader_changed(*slot, leader.as_deref()).await;
        }
    }
    drop(during);
}
