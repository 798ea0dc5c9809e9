//! Limits how many elections of one session begin at the same time.
//!
//! Thousands of elections that share a session begin together: when they are opened, and with each new session. If all
//! began at once, each step of one would wait for a step of all others, until the first requests time out. With turns,
//! an election that has begun also completes its start, and only the turn is waited for.
//!
//! Thousands of elections that begin together are mostly all new, or all exist. What the latest one was is expected of the
//! next, which spares a new one the refusal by which it learns that its directories are missing.

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use zk_session::SessionId;

/// How many begin at the same time on one session: enough to keep a distant ensemble with long round trips busy.
const AT_ONCE: usize = 256;

/// The starts on each session on which an election begins.
static SESSIONS: Mutex<BTreeMap<i64, Weak<Starts>>> = Mutex::new(BTreeMap::new());

/// The elections that begin on one session.
#[derive(Debug)]
pub(super) struct Starts {
    permits: Arc<Semaphore>,
    latest_was_new: AtomicBool,
}

impl Starts {
    /// Whether the next election probably does not exist yet.
    pub(super) fn expects_new(&self) -> bool {
        self.latest_was_new.load(Ordering::Relaxed)
    }

    pub(super) fn began(&self, is_new: bool) {
        self.latest_was_new.store(is_new, Ordering::Relaxed);
    }
}

/// The turn of one election.
#[derive(Default)]
pub(super) enum Turn {
    /// It has begun, or there is no session to begin on.
    #[default]
    Over,
    /// On the session, in the order of the waits.
    Waits(SessionId, BoxFuture<'static, StartPermit>),
    /// Until it is dropped.
    Has(SessionId, StartPermit),
}

/// The permit of one election, and what it has in common with the others.
pub(super) struct StartPermit {
    starts: Arc<Starts>,
    #[allow(dead_code, reason = "held, and dropped")]
    permit: Option<OwnedSemaphorePermit>,
}

impl Turn {
    /// Whether an election may begin on that session. If not, [`come`](Self::come) waits until it may.
    pub(super) fn take(&mut self, on: SessionId) -> bool {
        match self {
            Self::Has(session, _) if *session == on => return true,
            Self::Waits(session, _) if *session == on => return false,
            _ => {}
        }
        let starts = starts(on);
        let permits = Arc::clone(&starts.permits);
        match Arc::clone(&permits).try_acquire_owned() {
            Ok(permit) => {
                *self = Self::Has(on, StartPermit { starts, permit: Some(permit) });
                true
            }
            Err(_) => {
                // Never closed.
                let comes = async { StartPermit { starts, permit: permits.acquire_owned().await.ok() } };
                *self = Self::Waits(on, Box::pin(comes));
                false
            }
        }
    }

    /// Waits until it becomes this election's turn. Cancel safe: it keeps its place.
    pub(super) async fn come(&mut self) {
        match self {
            Self::Waits(session, comes) => *self = Self::Has(*session, comes.await),
            Self::Over | Self::Has(..) => pending().await,
        }
    }

    /// Ends this election's turn.
    pub(super) fn pass_on(&mut self) {
        *self = Self::Over;
    }

    pub(super) fn has_come(&self) -> bool {
        matches!(self, Self::Has(..))
    }

    /// What this election has in common with the others that begin, while it has its turn.
    pub(super) fn starts(&self) -> Option<Arc<Starts>> {
        match self {
            Self::Has(_, permit) => Some(Arc::clone(&permit.starts)),
            _ => None,
        }
    }
}

fn starts(session: SessionId) -> Arc<Starts> {
    // No code under this lock can panic.
    let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(starts) = sessions.get(&session.0).and_then(Weak::upgrade) {
        return starts;
    }
    sessions.retain(|_, starts| starts.strong_count() > 0);
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let starts = Arc::new(Starts { permits, latest_was_new: AtomicBool::new(false) });
    sessions.insert(session.0, Arc::downgrade(&starts));
    starts
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const MOMENT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn so_many_begin_and_the_next_when_one_has_begun() {
        let (one, other) = (SessionId(-71), SessionId(-72));
        let mut begin: Vec<_> = (0..AT_ONCE).map(|_| Turn::default()).collect();
        assert!(begin.iter_mut().all(|turn| turn.take(one) && turn.has_come()));
        let mut next = Turn::default();
        assert!(!next.take(one) && !next.take(one) && !next.has_come());
        assert!(timeout(MOMENT, next.come()).await.is_err());
        assert!(Turn::default().take(other), "another session's elections don't wait");
        begin[7].pass_on();
        next.come().await;
        assert!(next.has_come() && next.take(one));
        assert!(!Turn::default().take(one));
        assert!(next.take(other), "whose session is over begins on the next one");
        assert!(Turn::default().take(one));
    }

    #[tokio::test]
    async fn a_dropped_turn_takes_no_permit() {
        let session = SessionId(-73);
        let mut begin: Vec<_> = (0..AT_ONCE).map(|_| Turn::default()).collect();
        assert!(begin.iter_mut().all(|turn| turn.take(session)));
        let mut gone = Turn::default();
        assert!(!gone.take(session));
        let _ = timeout(MOMENT, gone.come()).await;
        let mut next = Turn::default();
        assert!(!next.take(session));
        drop(gone);
        begin.pop();
        next.come().await;
    }
}
