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
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use zk_session::SessionId;

/// How many begin at the same time on one session: enough to keep a distant ensemble with long round trips busy.
const AT_ONCE: usize = 256;

/// The starts on each session on which an election begins.
static SESSIONS: Mutex<BTreeMap<i64, Weak<Starts>>> = Mutex::new(BTreeMap::new());

type Permit = OwnedSemaphorePermit;

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
    Waits(Box<Waiting>),
    /// Until it is dropped.
    Has(Box<(SessionId, StartPermit)>),
}

/// The wait for a turn on a session.
pub(super) struct Waiting {
    session: SessionId,
    held: Pin<Box<dyn Future<Output = StartPermit> + Send>>,
}

/// The permit of one election, and what it has in common with the others.
pub(super) struct StartPermit {
    starts: Arc<Starts>,
    #[allow(dead_code, reason = "held, and dropped")]
    permit: Option<Permit>,
}

impl Turn {
    /// Whether an election may begin on that session. If not, [`poll_come`](Self::poll_come) is ready when it may.
    pub(super) fn take(&mut self, on: SessionId) -> bool {
        match self {
            Self::Has(held) if held.0 == on => return true,
            Self::Waits(waiting) if waiting.session == on => return false,
            _ => {}
        }
        let starts = starts(on);
        let permits = Arc::clone(&starts.permits);
        match Arc::clone(&permits).try_acquire_owned() {
            Ok(permit) => {
                *self = Self::Has(Box::new((on, StartPermit { starts, permit: Some(permit) })));
                true
            }
            Err(_) => {
                // Never closed.
                let held = async { StartPermit { starts, permit: permits.acquire_owned().await.ok() } };
                *self = Self::Waits(Box::new(Waiting { session: on, held: Box::pin(held) }));
                false
            }
        }
    }

    /// Whether it has become this election's turn.
    pub(super) fn poll_come(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self::Waits(waiting) = self else { return Poll::Pending };
        let held = ready!(waiting.held.as_mut().poll(cx));
        *self = Self::Has(Box::new((waiting.session, held)));
        Poll::Ready(())
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
            Self::Has(held) => Some(Arc::clone(&held.1.starts)),
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
    use std::{future::poll_fn, time::Duration};

    use tokio::time::timeout;

    use super::*;

    async fn come(turn: &mut Turn) {
        poll_fn(|cx| turn.poll_come(cx)).await;
    }

    const MOMENT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn so_many_begin_and_the_next_when_one_has_begun() {
        let (one, other) = (SessionId(-71), SessionId(-72));
        let mut begin: Vec<_> = (0..AT_ONCE).map(|_| Turn::default()).collect();
        assert!(begin.iter_mut().all(|turn| turn.take(one) && turn.has_come()));
        let mut next = Turn::default();
        assert!(!next.take(one) && !next.take(one) && !next.has_come());
        assert!(timeout(MOMENT, come(&mut next)).await.is_err());
        assert!(Turn::default().take(other), "another session's elections don't wait");
        begin[7].pass_on();
        come(&mut next).await;
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
        let _ = timeout(MOMENT, come(&mut gone)).await;
        let mut next = Turn::default();
        assert!(!next.take(session));
        drop(gone);
        begin.pop();
        come(&mut next).await;
    }
}
