//! The elector's watch: one lasting watch of its whole election, and reads of many znodes at a time.
//!
//! A recursive watch reports which znode has changed. All that have changed are read by one request, and a new elector reads
//! 128 members' records by each. A watch and a read for each member would be a thousand requests for five hundred members at
//! each change of the elector. Deletions, and the elector's own writes of the decision and the leader znode, need no read.
//! It needs servers from 3.6 on.
//!
//! A takeover comes before reads. From the request that creates the leader znode until READY is announced a member sends
//! nothing that it does not need for that: its watches are set again, and ballots listed, after READY, or after 50 ms if the
//! application starts slowly. The elector reads what the new leader has written 10 ms after the leader znode was created, by
//! one request. A deletion is known without a read, and acted upon at once.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{FutureExt, StreamExt, future::BoxFuture};
use tokio::time::{Instant, sleep_until};
use tracing::warn;
use zk_session::{Change, ChangeKind, ChangeWatch, OpError, ReliedOn, Session, SessionId};

use super::operations;
use crate::{
    engine::{Event, OpId, Outcome, Watched},
    mirror::{Answer, Mirror, Read, Write},
};

/// How long to wait before a read is repeated that has failed.
const RETRY: Duration = Duration::from_secs(1);

/// How long the elector waits with its reads once a leader znode is created: a quick takeover is over by then, and on few cores
/// the elector would be in its way.
const TAKEOVER: Duration = Duration::from_millis(10);

/// How long the change that an own write causes may come after the outcome of the write.
const LATE: Duration = Duration::from_millis(50);

type PendingReads = BoxFuture<'static, Result<Vec<(Read, Answer)>, OpError>>;

/// The watched znodes of one election and their changes, on one session and across its reconnects. States in between
/// may be skipped; the newest is never missed.
pub(super) struct BaseWatch {
    session: Session,
    epoch: u64,
    changes: ChangeWatch,
    mirror: Mirror,
    reading: Option<PendingReads>,
    /// The last read has failed, and is repeated then, also if nothing changes.
    retry_at: Option<Instant>,
    has_failed: bool,
    /// Until when the changes of own writes are awaited.
    late_until: Option<Instant>,
    /// Another member takes over. What it writes until then is read by one request.
    taken_over_by: Option<Instant>,
    /// The single znodes of other members, by path: the elector waits for their changes.
    relied_on: BTreeMap<String, ReliedOn>,
}

impl BaseWatch {
    pub(super) fn new(session: Session, epoch: u64, base: &str) -> Self {
        let changes = session.watch_tree(base);
        Self {
            session,
            epoch,
            changes,
            mirror: Mirror::default(),
            reading: None,
            retry_at: None,
            has_failed: false,
            late_until: None,
            taken_over_by: None,
            relied_on: BTreeMap::new(),
        }
    }

    /// What the engine watches from now on. A read from before is not the first result of a new watch.
    pub(super) fn want(&mut self, set: &[Watched]) {
        if self.mirror.want(set) {
            self.reading = None;
        }
    }

    /// A request of this member's own is about to write this znode.
    pub(super) fn begins(&mut self, op: OpId, write: Write) {
        self.mirror.begins(op, write);
    }

    /// A request has ended, which perhaps wrote something.
    pub(super) fn ended(&mut self, op: OpId, outcome: &Outcome) {
        self.mirror.ended(op, outcome);
        if self.mirror.awaits_change() && self.late_until.is_none() {
            self.late_until = Some(Instant::now() + LATE);
        }
    }

    /// Waits for the next result, or what ZooKeeper refuses, which is asked for again after a pause. No read is begun unless
    /// it `may_read`. Cancel safe.
    pub(super) async fn next(&mut self, may_read: bool) -> Result<Event, OpError> {
        loop {
            // No change is noted while a read is under way, see [`Mirror`].
            if let Some(reading) = &mut self.reading {
                let done = reading.await;
                self.reading = None;
                self.has_read(done)?;
            }
            // As a stream: the request that sets the watch continues.
            while let Some(Some(change)) = StreamExt::next(&mut self.changes).now_or_never() {
                self.note(&change?);
            }
            if let Some(event) = self.mirror.take(self.epoch) {
                self.rely_on(&event);
                return Ok(event);
            }
            if may_read && self.retry_at.is_none() && self.taken_over_by.is_none() {
                self.reading = self.mirror.to_read().map(|reads| self.read(reads));
            }
            if self.reading.is_some() {
                continue;
            }
            let due = [self.retry_at, self.late_until, self.taken_over_by].into_iter().flatten().min();
            tokio::select! {
                biased;
                Some(change) = StreamExt::next(&mut self.changes) => self.note(&change?),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.is_due(),
                // The session is closed.
                else => std::future::pending().await,
            }
        }
    }

    /// Has the session check what the elector now knows of a leader znode: one that only this server has would never go.
    fn rely_on(&mut self, event: &Event) {
        let Event::Seen { path, node, .. } = event else { return };
        self.relied_on.remove(path);
        if let (Some(node), Some(session)) = (node, self.session.incarnation())
            && session.epoch().0 == self.epoch
        {
            let relied_on = session.rely_on(path, SessionId(node.owner), node.version);
            self.relied_on.extend(relied_on.map(|relied_on| (path.clone(), relied_on)));
        }
    }

    fn read(&self, reads: Vec<Read>) -> PendingReads {
        let (session, epoch) = (self.session.clone(), self.epoch);
        Box::pin(async move {
            match session.active().await {
                Ok(active) if active.epoch().0 == epoch => operations::read_all(&active, reads).await,
                _ => Err(OpError::SessionOver),
            }
        })
    }

    fn has_read(&mut self, done: Result<Vec<(Read, Answer)>, OpError>) -> Result<(), OpError> {
        match done {
            Ok(answers) => {
                self.has_failed = false;
                self.mirror.has_read(answers);
            }
            Err(error) => {
                if !self.has_failed && !error.is_session_over() {
                    warn!(path = self.changes.path(), %error, "cannot read the election, retrying");
                }
                self.has_failed = true;
                self.retry_at = Some(Instant::now() + RETRY);
                if error.is_refused() {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// The first of the times for which it waits has come.
    fn is_due(&mut self) {
        let now = Instant::now();
        self.retry_at = self.retry_at.filter(|at| now < *at);
        self.taken_over_by = self.taken_over_by.filter(|at| now < *at);
        if self.late_until.is_some_and(|until| until <= now) {
            self.late_until = None;
            self.mirror.stop_awaiting();
        }
    }

    fn note(&mut self, change: &Change) {
        // On a new session the engine begins its watches anew.
        if change.epoch.0 != self.epoch {
            return;
        }
        if change.kind == ChangeKind::Gap {
            self.retry_at = None;
            self.mirror.gap();
        } else {
            if change.kind == ChangeKind::Created && self.is_leader_znode(&change.path) {
                self.taken_over_by = Some(Instant::now() + TAKEOVER);
            }
            self.mirror.changed(&change.path, change.kind == ChangeKind::Deleted);
        }
    }

    fn is_leader_znode(&self, path: &str) -> bool {
        path.strip_prefix(self.changes.path()).is_some_and(|rest| rest.starts_with("/leader/current"))
    }
}
