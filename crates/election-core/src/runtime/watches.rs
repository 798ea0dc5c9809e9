//! The engine's watches: of the elector one for its whole election, otherwise one for each znode.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt};
use tokio::time::{Sleep, sleep};
use zk_session::{DataWatch, OpError, Session};

use super::{base_watch::BaseWatch, to_node};
use crate::{
    engine::{Engine, Event, OpId, Outcome, Watched, ZkOp},
    mirror::Write,
};

/// The longest delay before a passive member reads a change. The shortest is half of it. A change of leadership changes
/// the decision and the leader znode several times within moments. One read at the end costs each of many members two
/// small reads, and spreads the reads of all members over time.
const COALESCED: Duration = Duration::from_millis(250);

/// When a change is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    AtOnce,
    /// Of the decision or of a leader znode a moment later, several at once, and only while the status is followed.
    WhenFollowed,
    /// Not now: a takeover comes first. A deletion is known without a read.
    AfterTakeover,
}

/// The watches that are armed now, all for one session.
///
/// The session's watches survive a new session by themselves. They are begun again nevertheless, so that the engine
/// does not miss a read from before it knew of the new session.
#[derive(Default)]
pub(super) struct Watches {
    epoch: u64,
    /// While the children of any znode are watched.
    whole: Option<Box<BaseWatch>>,
    /// None beside the watch of the whole election.
    single: Vec<SingleWatch>,
}

impl Watches {
    /// Waits for the next result, or what ZooKeeper refuses, which is asked for again after a pause. Cancel safe.
    pub(super) async fn next(
        &mut self,
        pace: Pace,
        is_followed: impl Fn() -> bool,
    ) -> Result<Event, OpError> {
        if let Some(whole) = &mut self.whole {
            // On the heap: other elections need no room for it, 0.3 kB.
            return Box::pin(whole.next(pace != Pace::AfterTakeover)).await;
        }
        poll_fn(|cx| {
            let next = self.single.iter_mut().find_map(|single| {
                let next = single.poll_next(cx, pace, &is_followed);
                next.is_ready().then_some(next)
            });
            next.unwrap_or(Poll::Pending)
        })
        .await
    }

    /// Reads what has changed because the status was read, even if no receiver follows it.
    pub(super) fn look(&mut self) {
        self.single.iter_mut().for_each(SingleWatch::look);
    }

    /// Watches exactly this set. While a member may turn out to be the elector, single watches would be in vain. The reads
    /// of those that report who leads may [wait](Pace::WhenFollowed).
    pub(super) fn set(&mut self, session: &Session, epoch: u64, set: &[Watched], engine: &Engine) {
        if epoch != self.epoch {
            *self = Self { epoch, ..Self::default() };
        }
        if set.iter().any(|watched| matches!(watched, Watched::Tree(_))) {
            let new = || Box::new(BaseWatch::new(session.clone(), epoch, engine.config().paths.base()));
            self.whole.get_or_insert_with(new).want(set);
            self.single = Vec::new();
            return;
        }
        self.whole = None;
        let all = &mut self.single;
        all.retain(|single| set.iter().any(|watched| single.is_of(watched)));
        for watched in set.iter().filter(|_| !engine.looks_for_its_rank()) {
            if let Watched::Node(path) = watched
                && !all.iter().any(|single| single.is_of(watched))
            {
                let watch = session.watch_data(Arc::clone(path));
                let single = SingleWatch { watch, may_wait: engine.reports_leaders(watched), pause: None };
                // What says who leads comes first, if several have changed.
                let at = if single.may_wait { 0 } else { all.len() };
                all.insert(at, single);
            }
        }
    }

    /// This request is about to be made: the changes that it causes need not be read.
    pub(super) fn begins(&mut self, op: OpId, request: &ZkOp, session: i64) {
        if let Some(whole) = &mut self.whole {
            for write in Write::all_of(request, session) {
                whole.begins(op, write);
            }
        }
    }

    /// A request has ended.
    pub(super) fn ended(&mut self, op: OpId, outcome: &Outcome) {
        if let Some(whole) = &mut self.whole {
            whole.ended(op, outcome);
        }
    }
}

/// The watch of one znode.
struct SingleWatch {
    watch: DataWatch,
    /// Whether its reads may be coalesced.
    may_wait: bool,
    /// The change that has come is read after it.
    pause: Option<Pin<Box<Sleep>>>,
}

impl SingleWatch {
    fn is_of(&self, watched: &Watched) -> bool {
        matches!(watched, Watched::Node(path) if **path == *self.watch.path())
    }

    fn pause(&mut self) -> &mut Pin<Box<Sleep>> {
        self.pause.get_or_insert_with(|| Box::pin(sleep(COALESCED.mul_f64(0.5 + fastrand::f64() / 2.0))))
    }

    fn look(&mut self) {
        if self.may_wait && self.watch.changed().now_or_never() == Some(true) {
            self.pause();
        }
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        pace: Pace,
        is_followed: &impl Fn() -> bool,
    ) -> Poll<Result<Event, OpError>> {
        if pace == Pace::WhenFollowed && self.may_wait {
            if self.pause.is_none() && ready!(pin!(self.watch.changed()).poll(cx)) {
                if !is_followed() {
                    return Poll::Pending;
                }
                self.pause();
            }
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
            }
        }
        let seen = match pace {
            Pace::AfterTakeover => ready!(pin!(self.watch.next_known()).poll(cx)),
            Pace::AtOnce | Pace::WhenFollowed => {
                self.pause = None;
                ready!(self.watch.poll_next_unpin(cx))
            }
        };
        match seen {
            Some(seen) => Poll::Ready(seen.map(|seen| {
                let (path, node) = (self.watch.path().to_owned(), seen.value.map(to_node));
                Event::Seen { epoch: seen.epoch.0, path, node }
            })),
            // The session is closed.
            None => Poll::Pending,
        }
    }
}
