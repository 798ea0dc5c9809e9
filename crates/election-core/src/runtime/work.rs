//! The application's calls, one at a time, each in a task of its own.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{sync::watch, task::JoinHandle};
use zk_session::BootTime;

use super::{
    events::Events,
    handler::{Handler, Leadership, StopOrder, Terms},
    to_boot,
};
use crate::{
    engine::{AppEvent, Appointment, EnteredLeadership, Event, StopReason},
    record::Current,
};

/// Drives one application.
pub(super) struct Work<H> {
    pub(super) handler: Arc<H>,
    events: Events,
    /// The call in progress.
    call: Option<JoinHandle<()>>,
    /// The question whether leadership may move, beside `lead`.
    question: Option<JoinHandle<()>>,
    /// It has begun just now.
    begun: bool,
    work_until: BootTime,
    term: u64,
    terms: Option<Arc<Terms>>,
    /// From the takeover, or the order to stop, until all has stopped.
    sends: Option<TermsSender>,
    /// If the application follows who leads: the leaders, and the task that notifies it.
    leaders: Option<(watch::Sender<LeadersBySlot>, JoinHandle<()>)>,
}

/// Changes the terms of a leadership. When it is dropped they are final.
struct TermsSender {
    work_until: watch::Sender<BootTime>,
    suspended: watch::Sender<bool>,
    stop: watch::Sender<Option<StopReason>>,
}

impl TermsSender {
    fn new(work_until: BootTime) -> Self {
        Self {
            work_until: watch::Sender::new(work_until),
            suspended: watch::Sender::new(false),
            stop: watch::Sender::new(None),
        }
    }
}

/// The leaders with their slots.
type LeadersBySlot = BTreeMap<usize, Option<Arc<Current>>>;

impl<H: Handler> Work<H> {
    pub(super) fn new(handler: H, events: Events) -> Self {
        let handler = Arc::new(handler);
        let leaders = handler.follows_leaders().then(|| {
            let leaders = watch::Sender::default();
            let tell = tell(Arc::clone(&handler), leaders.subscribe(), events.clone());
            (leaders, tokio::spawn(tell))
        });
        Self {
            handler,
            events,
            call: None,
            question: None,
            begun: false,
            work_until: BootTime::from_duration(Duration::ZERO),
            term: 0,
            terms: None,
            sends: None,
            leaders,
        }
    }

    pub(super) fn prepare(&mut self, appointment: Arc<Appointment>) {
        self.term = appointment.term;
        let handler = Arc::clone(&self.handler);
        self.begin("prepare", async move {
            match handler.prepare(&appointment).await {
                Ok(()) => AppEvent::Prepared,
                Err(why) if why.is_declined() => AppEvent::Declined(why.to_string()),
                Err(why) => AppEvent::PrepareFailed(why.to_string()),
            }
        });
    }

    pub(super) fn take_over(&mut self, entered: EnteredLeadership) {
        let leadership = self.enter(entered);
        let handler = Arc::clone(&self.handler);
        self.begin("takeover", async move {
            match handler.takeover(&leadership).await {
                Ok(()) => {
                    let remark =
                        leadership.terms.remark.lock().unwrap_or_else(PoisonError::into_inner).take();
                    remark.map_or(AppEvent::TakenOver, AppEvent::TakenOverWith)
                }
                Err(why) if why.is_declined() => AppEvent::Declined(why.to_string()),
                Err(why) => AppEvent::TakeoverFailed(why.to_string()),
            }
        });
    }

    /// Leads on, after another process of this member.
    pub(super) fn resume(&mut self, entered: EnteredLeadership) {
        self.work_until(to_boot(entered.work_until));
        self.enter(entered);
        self.lead();
    }

    fn enter(&mut self, entered: EnteredLeadership) -> Leadership {
        self.term = entered.appointment.term;
        let sends = self.sends.insert(TermsSender::new(self.work_until));
        let terms = Arc::new(Terms {
            appointment: entered.appointment,
            fencing_token: entered.fencing_token,
            work_until: sends.work_until.subscribe(),
            suspended: sends.suspended.subscribe(),
            stop: sends.stop.subscribe(),
            remark: Mutex::default(),
        });
        self.terms = Some(Arc::clone(&terms));
        Leadership::new(terms)
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

    pub(super) fn before_move(&mut self, reason: StopReason) {
        let Some(terms) = &self.terms else { return };
        let leadership = Leadership::new(Arc::clone(terms));
        let (handler, during) = (Arc::clone(&self.handler), self.events.during("before_move"));
        self.question = Some(tokio::spawn(async move {
            let answer = match handler.before_move(&leadership, &reason).await {
                Ok(()) => AppEvent::MoveAccepted,
                Err(why) => AppEvent::MoveDeclined(why.to_string()),
            };
            during.ends(Event::App(answer));
        }));
        self.begun = true;
    }

    pub(super) fn follows_leaders(&self) -> bool {
        self.leaders.is_some()
    }

    pub(super) fn work_until(&mut self, until: BootTime) {
        self.work_until = until;
        if let Some(sends) = &self.sends {
            sends.work_until.send_replace(until);
        }
    }

    pub(super) fn suspend(&self, suspended: bool) {
        if let Some(sends) = &self.sends {
            sends.suspended.send_replace(suspended);
        }
    }

    /// Stops the work. A repeated call makes the stop more urgent.
    pub(super) fn stop(&mut self, reason: StopReason) {
        let sends = self.sends.get_or_insert_with(|| TermsSender::new(self.work_until));
        if sends.stop.send_replace(Some(reason)).is_some() {
            return;
        }
        let order = StopOrder {
            term: self.term,
            reason: sends.stop.subscribe(),
            deadline: sends.work_until.subscribe(),
        };
        let running = [self.call.take(), self.question.take()];
        let handler = Arc::clone(&self.handler);
        self.begin("stop", async move {
            for running in running.into_iter().flatten() {
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
        self.sends = None;
        self.terms = None;
    }

    pub(super) fn leader_changed(&self, slot: usize, leader: Option<Arc<Current>>) {
        if let Some((leaders, _)) = &self.leaders {
            leaders.send_modify(|leaders| drop(leaders.insert(slot, leader)));
        }
    }

    /// Whether a call has begun since this was asked last.
    pub(super) fn has_begun(&mut self) -> bool {
        std::mem::take(&mut self.begun)
    }

    fn begin(&mut self, name: &'static str, call: impl Future<Output = AppEvent> + Send + 'static) {
        let during = self.events.during(name);
        self.call = Some(tokio::spawn(call.map(|answer| during.ends(Event::App(answer)))));
        self.begun = true;
    }
}

impl<H> Drop for Work<H> {
    fn drop(&mut self) {
        let telling = self.leaders.iter().map(|(_, task)| task);
        self.call.iter().chain(&self.question).chain(telling).for_each(JoinHandle::abort);
    }
}

/// Notifies the application of each slot whose leader differs from the one that it was notified of.
async fn tell<H: Handler>(handler: Arc<H>, mut leaders: watch::Receiver<LeadersBySlot>, events: Events) {
    let during = events.during("leader_changed");
    let mut told = LeadersBySlot::new();
    while leaders.changed().await.is_ok() {
        let present = leaders.borrow_and_update().clone();
        for (slot, leader) in present.iter().filter(|(slot, leader)| told.get(slot) != Some(leader)) {
            handler.leader_changed(*slot, leader.as_deref()).await;
        }
        told = present;
    }
    drop(during);
}
