//! The elector's watch: one lasting watch of its whole election, and reads of many znodes at a time.

use std::{future::Future, pin::Pin, time::Duration};

use futures_util::{FutureExt as _, StreamExt};
use tokio::time::{Instant, sleep_until};
use tracing::warn;
use zk_session::{Change, ChangeKind, ChangeWatch, OpError, Session};

use super::operations;
use crate::{
    engine::{Event, OpId, Outcome, Watched},
    mirror::{Answer, Mirror, Read, Write},
};

/// How long to wait before a read is repeated that has failed.
const RETRY: Duration = Duration::from_secs(1);

/// How long the change that an own write causes may come after the outcome of the write.
const LATE: Duration = Duration::from_millis(50);

type Reading = Pin<Box<dyn Future<Output = Result<Vec<(Read, Answer)>, OpError>> + Send>>;

/// The watched znodes of one election and their changes, on one session and across its reconnects. States in between
/// may be skipped; the newest is never missed.
pub(super) struct BaseWatch {
    session: Session,
    epoch: u64,
    base: String,
    changes: ChangeWatch,
    mirror: Mirror,
    reading: Option<Reading>,
    /// The last read has failed, and is repeated then, also if nothing changes.
    retry_at: Option<Instant>,
    has_failed: bool,
    /// Until when the changes of own writes are awaited.
    late_until: Option<Instant>,
}

impl BaseWatch {
    pub(super) fn new(session: Session, epoch: u64, base: String) -> Self {
        let changes = session.watch_tree(base.clone());
        Self {
            session,
            epoch,
            base,
            changes,
            mirror: Mirror::default(),
            reading: None,
            retry_at: None,
            has_failed: false,
            late_until: None,
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

    /// The next result. Cancel safe.
    pub(super) async fn next(&mut self) -> Event {
        loop {
            self.note_changes();
            if self.reading.is_none()
                && let Some(event) = self.mirror.take(self.epoch)
            {
                return event;
            }
            if self.reading.is_none() && self.retry_at.is_none() {
                self.reading = self.mirror.to_read().map(|reads| self.read(reads));
            }
            match &mut self.reading {
                Some(reading) => {
                    let done = reading.await;
                    self.reading = None;
                    self.has_read(done);
                }
                None => self.wait().await,
            }
        }
    }

    fn read(&self, reads: Vec<Read>) -> Reading {
        let (session, epoch) = (self.session.clone(), self.epoch);
        Box::pin(async move {
            match session.active().await {
                Ok(active) if active.epoch().0 == epoch => operations::read_all(&active, reads).await,
                _ => Err(OpError::SessionOver),
            }
        })
    }

    fn has_read(&mut self, done: Result<Vec<(Read, Answer)>, OpError>) {
        match done {
            Ok(answers) => {
                self.has_failed = false;
                self.mirror.has_read(answers);
            }
            Err(error) => {
                if !self.has_failed && !error.is_session_over() {
                    warn!(path = %self.base, %error, "cannot read the election, retrying");
                }
                self.has_failed = true;
                self.retry_at = Some(Instant::now() + RETRY);
            }
        }
    }

    /// Waits for a change, or until something is due. As a stream: the request that sets the watch continues when this
    /// wait is cancelled.
    async fn wait(&mut self) {
        let due = [self.retry_at, self.late_until].into_iter().flatten().min();
        let due = async {
            match due {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            change = StreamExt::next(&mut self.changes) => match change {
                Some(change) => self.note(&change),
                // The session is closed.
                None => std::future::pending().await,
            },
            () = due => {
                let now = Instant::now();
                self.retry_at = self.retry_at.filter(|at| now < *at);
                if self.late_until.is_some_and(|until| until <= now) {
                    self.late_until = None;
                    self.mirror.stop_awaiting();
                }
            }
        }
    }

    /// Notes all changes that have come, so that one read covers them; not while one is under way, see [`Mirror`].
    fn note_changes(&mut self) {
        while self.reading.is_none() {
            match StreamExt::next(&mut self.changes).now_or_never() {
                Some(Some(change)) => self.note(&change),
                _ => return,
            }
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
            self.mirror.changed(&change.path, change.kind == ChangeKind::Deleted);
        }
    }
}
