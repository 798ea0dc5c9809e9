//! A session from one value of the client to the next: what the client does at a lost connection by itself is done here,
//! in the order of `seek`, and the watches that are lost with it are told to have a gap.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use zookeeper_client::{EventType, OneshotWatcher};

use super::attach::{Attached, Left, Recipe};
use crate::driver::seek::{Patience, Refusal, Seeker, judge_grant};
use crate::driver::{DriverEvent, Host, WatchKind, WatchToken};
use crate::incarnation::lock;
use crate::time::{BootTime, within};

pub(super) struct Core {
    /// `None` while there is no connection.
    attached: Mutex<Option<Arc<Attached>>>,
    events: mpsc::UnboundedSender<DriverEvent>,
    /// Operations give up, and no other server is looked for.
    pub(super) closing: CancellationToken,
    watches: Mutex<HashMap<WatchToken, Armed>>,
}

/// A watch on the server.
struct Armed {
    path: String,
    task: AbortHandle,
}

impl Core {
    pub(super) fn new(attached: Arc<Attached>, events: mpsc::UnboundedSender<DriverEvent>) -> Self {
        Self {
            attached: Mutex::new(Some(attached)),
            events,
            closing: CancellationToken::new(),
            watches: Mutex::default(),
        }
    }

    pub(super) fn attached(&self) -> Option<Arc<Attached>> {
        lock(&self.attached).clone()
    }

    pub(super) fn abort(&self) {
        self.closing.cancel();
        if let Some(attached) = lock(&self.attached).take() {
            attached.abort();
        }
    }

    pub(super) fn say(&self, event: DriverEvent) {
        // With nobody to listen the driver is about to be dropped.
        let _ = self.events.send(event);
    }

    pub(super) fn forget(&self, token: WatchToken) {
        if let Some(armed) = lock(&self.watches).remove(&token) {
            armed.task.abort();
        }
    }

    /// Waits for the event of a watch in a task of its own.
    pub(super) fn await_watch(
        self: &Arc<Self>,
        attached: &Arc<Attached>,
        token: WatchToken,
        path: String,
        watcher: OneshotWatcher,
    ) {
        // Held until the watch is in the table, so that its task can't remove it before, nor the loss miss it.
        let mut watches = lock(&self.watches);
        if attached.gone.is_cancelled() {
            self.say(DriverEvent::Watch { token, kind: WatchKind::Gap, path });
            return;
        }
        let (core, gone) = (Arc::clone(self), attached.gone.clone());
        let task = async move {
            let event = tokio::select! {
                biased;
                () = gone.cancelled() => return,
                event = AssertUnwindSafe(watcher.changed()).catch_unwind() => event,
            };
            // A panic is the loss of the client's task, which is told otherwise.
            let Ok(event) = event else { return };
            let kind = match event.event_type {
                EventType::NodeCreated => WatchKind::Created,
                EventType::NodeDeleted => WatchKind::Deleted,
                EventType::NodeDataChanged => WatchKind::DataChanged,
                EventType::NodeChildrenChanged => WatchKind::ChildrenChanged,
                // The end of the session, which is told otherwise.
                EventType::Session => return,
            };
            // Told once: whoever removes it tells it.
            if lock(&core.watches).remove(&token).is_some() {
                core.say(DriverEvent::Watch { token, kind, path: event.path });
            }
        };
        watches.insert(token, Armed { path, task: tokio::spawn(task).abort_handle() });
    }

    /// The connection is lost: what is under way fails, and every watch has missed what happens from now on.
    async fn detach(&self, attached: &Attached) -> Left {
        *lock(&self.attached) = None;
        let watches = {
            let mut watches = lock(&self.watches);
            attached.gone.cancel();
            std::mem::take(&mut *watches)
        };
        for (token, Armed { path, task }) in watches {
            task.abort();
            self.say(DriverEvent::Watch { token, kind: WatchKind::Gap, path });
        }
        attached.end().await
    }

    /// Carries the session from server to server until it ends or is closed.
    pub(super) async fn keep(self: Arc<Self>, recipe: Recipe, seeker: Seeker, first: (Host, Arc<Attached>)) {
        let (mut host, mut attached) = first;
        let session_timeout = attached.granted;
        loop {
            let lost = tokio::select! {
                biased;
                () = self.closing.cancelled() => return,
                lost = attached.lost() => lost,
            };
            let reason = match lost {
                Ok(reason) => reason,
                Err(last) => return self.say(last),
            };
            self.say(DriverEvent::Suspended { reason });
            // By what was granted at first: it never changes.
            let left = Left { granted: session_timeout, ..self.detach(&attached).await };
            let give_up = BootTime::now() + session_timeout + session_timeout / 2;
            let attach = |host: Host, patience: Patience| {
                let (recipe, left) = (recipe.clone(), left.clone());
                async move {
                    let by = BootTime::now() + patience.total();
                    recipe.carry_on(&host, &left, by).await.map(|attached| (host, attached))
                }
            };
            // On the heap: every session has this task, which would otherwise be ten times as large for good.
            let seeking = Box::pin(seeker.clone().seek(host.address, session_timeout, attach));
            let found = tokio::select! {
                biased;
                () = self.closing.cancelled() => return,
                found = within(give_up, seeking) => found,
            };
            let dead = |reason| DriverEvent::Dead { reason };
            let found = match found {
                Some(Ok((_, found))) => found,
                Some(Err(Refusal::Expired)) => return self.say(DriverEvent::Expired),
                Some(Err(Refusal::AuthFailed(reason))) => {
                    return self.say(DriverEvent::AuthFailed { reason });
                }
                Some(Err(Refusal::Unavailable(reason))) => return self.say(dead(reason)),
                None => {
                    let waited = session_timeout + session_timeout / 2;
                    return self.say(dead(format!("no server has answered for {waited:?}")));
                }
            };
            if let Err(last) = judge_grant(found.0.address, session_timeout, found.1.granted) {
                return self.say(last);
            }
            (host, attached) = (found.0, Arc::new(found.1));
            {
                let mut current = lock(&self.attached);
                if self.closing.is_cancelled() {
                    return;
                }
                *current = Some(Arc::clone(&attached));
            }
            self.say(DriverEvent::Resumed);
        }
    }
}
