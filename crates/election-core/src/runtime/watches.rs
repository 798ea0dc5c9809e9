//! The engine's watches: of the elector one for its whole election, otherwise one task for each, which reports what it
//! reads.

use std::{collections::HashMap, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    task::{AbortHandle, JoinSet},
    time::timeout,
};
use zk_session::Session;

use super::{base_watch::BaseWatch, operations::to_node};
use crate::{
    engine::{Event, OpId, Outcome, Request, Watched},
    mirror::Write,
};

/// The longest delay before a passive member reads a change. The shortest is half of it. A change of leadership changes
/// the decision and the leader znode several times within moments. One read at the end costs each of many members two
/// small reads, and spreads the reads of all members over time.
const COALESCED: Duration = Duration::from_millis(250);

/// The watches that are armed now, all for one session.
///
/// The session's watches survive a new session by themselves. They are begun again nevertheless, so that the engine
/// does not miss a read from before it knew of the new session.
pub(super) struct Watches {
    session: Session,
    epoch: u64,
    /// The election's path.
    base: String,
    armed: Armed,
}

enum Armed {
    Nothing,
    /// While the children of any znode are watched.
    Whole(Box<BaseWatch>),
    Single(Box<SingleWatches>),
}

impl Watches {
    pub(super) fn new(session: Session, base: String) -> Self {
        Self { session, epoch: 0, base, armed: Armed::Nothing }
    }

    /// The next result. Cancel safe.
    pub(super) async fn next(&mut self) -> Box<Event> {
        match &mut self.armed {
            Armed::Nothing => std::future::pending().await,
            Armed::Whole(whole) => Box::new(whole.next().await),
            Armed::Single(single) => single.next().await,
        }
    }

    /// Whether changes of the leaders are read a moment later, several at once. When this ends, pending changes are
    /// read at once.
    pub(super) fn coalesce(&self, coalesced: bool) {
        if let Armed::Single(single) = &self.armed {
            single.coalesced.send_if_modified(|known| std::mem::replace(known, coalesced) != coalesced);
        }
    }

    /// Watches exactly this set. While a member that `looks_for_its_seat` may turn out to be the elector, single watches
    /// would be in vain. `reports_leaders` selects the watches whose reads may be [coalesced](Self::coalesce).
    pub(super) fn set(
        &mut self,
        epoch: u64,
        set: &[Watched],
        looks_for_its_seat: bool,
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
            let mut whole = BaseWatch::new(self.session.clone(), epoch, self.base.clone());
            whole.want(set);
            self.armed = Armed::Whole(Box::new(whole));
            return;
        }
        if !matches!(self.armed, Armed::Single(_)) {
            self.armed = match looks_for_its_seat {
                true => Armed::Nothing,
                false => Armed::Single(Box::new(SingleWatches::new(self.session.clone()))),
            };
        }
        if let Armed::Single(single) = &mut self.armed {
            single.retain(set);
            if !looks_for_its_seat {
                single.arm(set, reports_leaders);
            }
        }
    }

    /// This request is about to be made: the changes that it causes need not be read.
    pub(super) fn begins(&mut self, op: OpId, request: &Request, session: i64) {
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

/// A task for each watch.
struct SingleWatches {
    session: Session,
    armed: HashMap<Watched, SingleWatch>,
    /// How many have been armed so far.
    count: u64,
    /// The results, each with the number of its watch.
    sender: mpsc::UnboundedSender<(u64, Box<Event>)>,
    read: mpsc::UnboundedReceiver<(u64, Box<Event>)>,
    tasks: JoinSet<()>,
    /// Whether reads of the decision and the leader znodes are coalesced.
    coalesced: watch::Sender<bool>,
}

struct SingleWatch {
    number: u64,
    task: AbortHandle,
}

impl SingleWatches {
    fn new(session: Session) -> Self {
        let coalesced = watch::Sender::new(false);
        let (sender, read) = mpsc::unbounded_channel();
        let (armed, tasks) = (HashMap::new(), JoinSet::new());
        Self { session, armed, count: 0, sender, read, tasks, coalesced }
    }

    /// The next result. Results of a watch that was removed meanwhile are omitted: the engine no longer relies on them,
    /// and arms a new watch when it does.
    async fn next(&mut self) -> Box<Event> {
        loop {
            let Some((number, event)) = self.read.recv().await else { return std::future::pending().await };
            if self.armed.values().any(|armed| armed.number == number) {
                return event;
            }
        }
    }

    /// Removes the watches that are not in this set.
    fn retain(&mut self, set: &[Watched]) {
        self.armed.retain(|watched, armed| {
            let keep = set.contains(watched);
            if !keep {
                armed.task.abort();
            }
            keep
        });
        while self.tasks.try_join_next().is_some() {}
    }

    /// Arms the watches of this set that are not armed.
    fn arm(&mut self, set: &[Watched], reports_leaders: impl Fn(&Watched) -> bool) {
        for watched in set {
            if let Watched::Node(path) = watched
                && !self.armed.contains_key(watched)
            {
                self.count += 1;
                let reader = Reader { number: self.count, sender: self.sender.clone() };
                let coalesced = reports_leaders(watched).then(|| self.coalesced.subscribe());
                let task = self.tasks.spawn(node(self.session.clone(), path.clone(), reader, coalesced));
                self.armed.insert(watched.clone(), SingleWatch { number: self.count, task });
            }
        }
    }
}

/// The receiver of a watch's results.
struct Reader {
    number: u64,
    sender: mpsc::UnboundedSender<(u64, Box<Event>)>,
}

impl Reader {
    /// Reports a result. Returns whether the watch is still wanted.
    fn has_read(&self, event: Event) -> bool {
        self.sender.send((self.number, Box::new(event))).is_ok()
    }
}

async fn node(session: Session, path: String, reader: Reader, mut coalesced: Option<watch::Receiver<bool>>) {
    let mut watch = session.watch_data(path.clone());
    loop {
        let seen = match &mut coalesced {
            None => watch.next().await,
            Some(coalesced) if *coalesced.borrow() => {
                let is_changed = tokio::select! {
                    () = watch.changed() => true,
                    ended = coalesced.wait_for(|now| !now) => ended.is_err(),
                };
                if !is_changed {
                    continue;
                }
                let pause = COALESCED.mul_f64(0.5 + fastrand::f64() / 2.0);
                let _ = timeout(pause, coalesced.wait_for(|now| !now)).await;
                watch.next().await
            }
            Some(coalesced) => tokio::select! {
                seen = watch.next() => seen,
                begun = coalesced.wait_for(|now| *now) => match begun {
                    Ok(_) => continue,
                    Err(_) => return,
                },
            },
        };
        let Ok(seen) = seen else { return };
        let node = seen.value.map(to_node);
        if !reader.has_read(Event::Seen { epoch: seen.epoch.0, path: path.clone(), node }) {
            return;
        }
    }
}
