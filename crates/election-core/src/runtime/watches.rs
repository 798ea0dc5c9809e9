//! The engine's watches: of the elector one for its whole election, otherwise one for each znode.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::StreamExt;
use tokio::time::{Sleep, sleep};
use zk_session::{DataWatch, OpError, Session};

use super::{base_watch::BaseWatch, to_node};
use crate::{
    engine::{Event, OpId, Outcome, Watched, ZkOp},
    mirror::Write,
};

/// The longest delay before a passive member reads a change. The shortest is half of it. A change of leadership changes
/// the decision and the leader znode several times within moments. One read at the end costs each of many members two
/// small reads, and spreads the reads of all members over time.
const COALESCED: Duration = Duration::from_millis(250);

/// When a change of the decision or of a leader znode is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    AtOnce,
    /// A moment later, several at once.
    Coalesced,
    /// Not now.
    Later,
    /// Nothing else is read now either: a takeover comes first. A deletion is known without a read.
    AfterTakeover,
}

/// The watches that are armed now, all for one session.
///
/// The session's watches survive a new session by themselves. They are begun again nevertheless, so that the engine
/// does not miss a read from before it knew of the new session.
#[derive(Default)]
pub(super) struct Watches {
    epoch: u64,
    armed: Armed,
}

#[derive(Default)]
enum Armed {
    #[default]
    Nothing,
    /// While the children of any znode are watched.
    Whole(Box<BaseWatch>),
    Single(Vec<SingleWatch>),
}

impl Watches {
    /// The next result, or what ZooKeeper refuses, which is asked for again after a pause. Changes are read at this pace, those of the leaders later; those that are pending are read at once as soon
    /// as it is [`Pace::AtOnce`].
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>, pace: Pace) -> Poll<Result<Event, OpError>> {
        match &mut self.armed {
            Armed::Nothing => Poll::Pending,
            Armed::Whole(whole) => whole.poll_next(cx, pace != Pace::AfterTakeover),
            Armed::Single(all) => {
                let ready = all.iter_mut().find_map(|single| match single.poll_next(cx, pace) {
                    Poll::Ready(event) => Some(event),
                    Poll::Pending => None,
                });
                ready.map_or(Poll::Pending, Poll::Ready)
            }
        }
    }

    /// Watches exactly this set, of the election at `base`. While a member that `looks_for_its_rank` may turn out to be the elector, single watches
    /// would be in vain. `reports_leaders` selects the watches whose reads may be [coalesced](Self::poll_next).
    pub(super) fn set(
        &mut self,
        session: &Session,
        epoch: u64,
        set: &[Watched],
        base: &str,
        looks_for_its_rank: bool,
        reports_leaders: impl Fn(&Watched) -> bool,
    ) {
        if epoch != self.epoch {
            self.armed = Armed::Nothing;
            self.epoch = epoch;
        }
        if set.iter().any(|watched| matches!(watched, Watched::Tree(_))) {
            if let Armed::Whole(whole) = &mut self.armed {
                return whole.want(set);
            }
            let mut whole = BaseWatch::new(session.clone(), epoch, base);
            whole.want(set);
            self.armed = Armed::Whole(Box::new(whole));
            return;
        }
        if !matches!(self.armed, Armed::Single(_)) {
            self.armed = match looks_for_its_rank {
                true => Armed::Nothing,
                false => Armed::Single(Vec::new()),
            };
        }
        if let Armed::Single(all) = &mut self.armed {
            all.retain(|single| set.iter().any(|watched| single.is_of(watched)));
            if !looks_for_its_rank {
                for watched in set {
                    if let Watched::Node(path) = watched
                        && !all.iter().any(|single| single.is_of(watched))
                    {
                        let watch = session.watch_data(Arc::clone(path));
                        // Thousands of elections have one or a few.
                        all.reserve_exact(1);
                        let single = SingleWatch::new(watch, reports_leaders(watched));
                        // What says who leads comes first, if several have changed.
                        let at = if single.may_wait { 0 } else { all.len() };
                        all.insert(at, single);
                    }
                }
            }
        }
    }

    /// This request is about to be made: the changes that it causes need not be read.
    pub(super) fn begins(&mut self, op: OpId, request: &ZkOp, session: i64) {
        if let Armed::Whole(whole) = &mut self.armed {
            for write in Write::all_of(request, session) {
                whole.begins(op, write);
            }
        }
    }

    /// A request has ended.
    pub(super) fn ended(&mut self, op: OpId, outcome: &Outcome) {
        if let Armed::Whole(whole) = &mut self.armed {
            whole.ended(op, outcome);
        }
    }
}

/// The watch of one znode.
struct SingleWatch {
    watch: DataWatch,
    /// Whether its reads may be coalesced.
    may_wait: bool,
    /// A change is read after it.
    pause: Option<Pin<Box<Sleep>>>,
}

impl SingleWatch {
    fn new(watch: DataWatch, may_wait: bool) -> Self {
        Self { watch, may_wait, pause: None }
    }

    fn is_of(&self, watched: &Watched) -> bool {
        matches!(watched, Watched::Node(path) if **path == *self.watch.path())
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, pace: Pace) -> Poll<Result<Event, OpError>> {
        let may_read = pace != Pace::AfterTakeover;
        if may_read && pace != Pace::AtOnce && self.may_wait && !self.watch.is_reading() {
            if self.pause.is_none() {
                ready!(self.watch.poll_changed(cx));
                if pace == Pace::Later {
                    return Poll::Pending;
                }
            }
            let pause = self
                .pause
                .get_or_insert_with(|| Box::pin(sleep(COALESCED.mul_f64(0.5 + fastrand::f64() / 2.0))));
            ready!(pause.as_mut().poll(cx));
        }
        let seen = match may_read {
            true => {
                self.pause = None;
                ready!(self.watch.poll_next_unpin(cx))
            }
            false => ready!(self.watch.poll_known(cx)),
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
