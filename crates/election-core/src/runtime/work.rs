//! The application's calls, one at a time, each in a task of its own.

use std::{
    future::Future,
    sync::{Arc, PoisonError},
};

use tokio::{
    sync::watch,
    task::{AbortHandle, JoinHandle},
};
use zk_session::BootTime;

use super::{
    events::{During, Events},
    handler::{ElectionEvent, Handler, Leadership, StopOrder},
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
    stop: Option<watch::Sender<StopReason>>,
    work_until: watch::Sender<BootTime>,
    /// Whether the work of the leadership is to rest.
    suspended: watch::Sender<bool>,
    /// Notifies the leadership of its end.
    lost: watch::Sender<Option<StopReason>>,
    leadership: Option<Leadership>,
    term: u64,
    leaders: watch::Sender<Leaders>,
    telling: AbortHandle,
}

impl<H: Handler> Work<H> {
    pub(super) fn new(handler: H, events: Events) -> Self {
        let handler = Arc::new(handler);
        let (leaders, changes) = watch::channel(Leaders::new());
        let during = events.during("leader_changed");
        let telling = tokio::spawn(tell(Arc::clone(&handler), changes, during)).abort_handle();
        let (work_until, _) = watch::channel(BootTime::from_duration(std::time::Duration::ZERO));
        Self {
            handler,
            events,
            call: None,
            stop: None,
            work_until,
            suspended: watch::Sender::new(false),
            lost: watch::Sender::new(None),
            leadership: None,
            term: 0,
            leaders,
            telling,
        }
    }

    pub(super) fn prepare(&mut self, nomination: Nomination) {
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
                    let remark = leadership.remark.lock().unwrap_or_else(PoisonError::into_inner).take();
                    remark.map_or(AppEvent::TakenOver, AppEvent::TakenOverWith)
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
        self.term = grant.nomination.term;
        self.lost = watch::Sender::new(None);
        self.suspended = watch::Sender::new(false);
        let leadership = Leadership {
            nomination: grant.nomination,
            fencing_token: grant.fencing_token,
            work_until: self.work_until.subscribe(),
            suspended: self.suspended.subscribe(),
            stop: self.lost.subscribe(),
            remark: Arc::default(),
            hold: None,
        };
        self.leadership = Some(leadership.lent());
        leadership
    }

    pub(super) fn lead(&mut self) {
        let Some(leadership) = self.leadership.as_ref().map(Leadership::lent) else { return };
        let handler = Arc::clone(&self.handler);
        self.begin("lead", async move {
            match handler.lead(&leadership).await {
                Ok(()) => AppEvent::WorkFinished,
                Err(why) => AppEvent::WorkFailed(why.to_string()),
            }
        });
    }

    pub(super) fn observe(&self, event: ElectionEvent) {
        self.handler.observe(event);
    }

    pub(super) fn work_until(&self, until: BootTime) {
        self.work_until.send_replace(until);
    }

    pub(super) fn suspend(&self, suspended: bool) {
        self.suspended.send_replace(suspended);
    }

    /// Stops the work. A repeated call makes the stop more urgent.
    pub(super) fn stop(&mut self, reason: StopReason) {
        self.lost.send_replace(Some(reason.clone()));
        if let Some(stop) = &self.stop {
            stop.send_replace(reason);
            return;
        }
        let (sender, receiver) = watch::channel(reason);
        self.stop = Some(sender);
        let order = StopOrder { term: self.term, reason: receiver, deadline: self.work_until.subscribe() };
        let running = self.call.take();
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
        self.leadership = None;
    }

    pub(super) fn leader_changed(&self, slot: usize, leader: Option<Current>) {
        self.leaders.send_modify(|leaders| match leaders.iter_mut().find(|(known, _)| *known == slot) {
            Some((_, known)) => *known = leader,
            None => {
                // A leader takes much room, and most elections have one slot.
                leaders.reserve_exact(1);
                leaders.push((slot, leader));
            }
        });
    }

    fn begin(&mut self, name: &'static str, call: impl Future<Output = AppEvent> + Send + 'static) {
        let during = self.events.during(name);
        self.call = Some(tokio::spawn(async move {
            let answer = call.await;
            during.ends(Event::App(answer));
        }));
    }
}

impl<H> Drop for Work<H> {
    fn drop(&mut self) {
        self.telling.abort();
        if let Some(call) = &self.call {
            call.abort();
        }
    }
}

/// The leaders with their slots.
type Leaders = Vec<(usize, Option<Current>)>;

/// Notifies the application of each slot whose leader differs from the one that it was notified of.
async fn tell<H: Handler>(handler: Arc<H>, mut changes: watch::Receiver<Leaders>, during: During) {
    let mut told = Leaders::new();
    while changes.changed().await.is_ok() {
        let leaders = changes.borrow_and_update().clone();
        for slot_and_leader in &leaders {
            if !told.contains(slot_and_leader) {
                let (slot, leader) = slot_and_leader;
                handler.leader_changed(*slot, leader.as_ref()).await;
            }
        }
        told = leaders;
    }
    drop(during);
}
