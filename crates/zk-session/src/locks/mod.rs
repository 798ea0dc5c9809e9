//! Locks, locks for readers and writers, and semaphores: places in a queue, which end with the session.
//!
//! A contender is an ephemeral sequential znode below the path of the lock. Those with lower numbers are before it. It holds the lock
//! when fewer of those that block it are before it than the lock admits at once. A contender watches those that it waits for, and the
//! session checks that a quorum has them. For a lock that is one other alone, so a release wakes one waiter; for a semaphore it is
//! all holders.

mod queue;

use std::collections::BTreeMap;

use crate::error::{OpError, WatchError};
use crate::handle::session::Session;
use crate::node::{CreateMode, Stat};
use crate::operations::Recovery;
use crate::operations::multi::{MultiOp, MultiResult};
use crate::path::join;
use crate::session::incarnation::{Bound, Incarnation};
use crate::time::BootTime;
use crate::watch::value::DataWatch;
use futures_util::future::select_all;
use queue::{Access, Next, next};
use tracing::warn;

/// A lock of one holder at a time, in the order in which they have asked.
///
/// All who use the path must use this type, or all [`ReadWriteLock`], or all [`Semaphore`] of one size. The access list of its znode
/// must let them create, list and delete children: without the permission to delete, a lock is held until its session ends.
///
/// ```no_run
/// # use zk_session::{Lock, MultiOp, Session};
/// # async fn run(session: Session) -> Result<(), Box<dyn std::error::Error>> {
/// let lock = Lock::new(&session, "/locks/report");
/// let guard = lock.acquire().await?;
/// // Written only while this guard holds the lock.
/// guard.multi([MultiOp::set("/report", "done", None)]).await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Lock(LockPath);

/// A lock of several readers or of one writer at a time. No contender overtakes: a reader waits for a writer that has asked before.
#[derive(Clone, Debug)]
pub struct ReadWriteLock(LockPath);

/// A lock of a number of holders at a time. Each waiter watches all holders.
#[derive(Clone, Debug)]
pub struct Semaphore(LockPath, usize);

impl Lock {
    /// The lock at this path. Its znode and the parents are created when they are needed.
    pub fn new(session: &Session, path: impl Into<String>) -> Self {
        Self(LockPath::new(session, path))
    }

    /// Waits for the lock, also through lost connections and new sessions: then at the end of the queue.
    ///
    /// # Errors
    /// [`OpError::Unavailable`] or [`OpError::Unknown`] if there was no connection in time, [`OpError::NoAuth`],
    /// [`OpError::Invalid`]; [`OpError::SessionOver`] if the session was closed.
    ///
    /// # Cancel safety
    /// Dropped, it leaves the queue in the background.
    pub async fn acquire(&self) -> Result<LockGuard, OpError> {
        self.0.wait(Access::Write, 1).await
    }

    /// The lock if no contender holds it or waits for it. An operation like others: the timeout of the session or of the
    /// [handle](Session::with_timeout) bounds it, and it ends with the present session.
    ///
    /// # Errors
    /// [`OpError::Unavailable`] or [`OpError::Unknown`] if there was no active session or no connection in time,
    /// [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`], [`OpError::SessionOver`].
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, OpError> {
        self.0.once(Access::Write, 1).await
    }
}

impl ReadWriteLock {
    /// The lock at this path. Its znode and the parents are created when they are needed.
    pub fn new(session: &Session, path: impl Into<String>) -> Self {
        Self(LockPath::new(session, path))
    }

    /// Waits until no writer has the lock, or has asked for it before.
    ///
    /// # Errors
    /// As for [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn read(&self) -> Result<LockGuard, OpError> {
        self.0.wait(Access::Read, 1).await
    }

    /// Waits until no contender has the lock, or has asked for it before.
    ///
    /// # Errors
    /// As for [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn write(&self) -> Result<LockGuard, OpError> {
        self.0.wait(Access::Write, 1).await
    }

    /// [`read`](Self::read) if it need not wait.
    ///
    /// # Errors
    /// As for [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn try_read(&self) -> Result<Option<LockGuard>, OpError> {
        self.0.once(Access::Read, 1).await
    }

    /// [`write`](Self::write) if it need not wait.
    ///
    /// # Errors
    /// As for [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn try_write(&self) -> Result<Option<LockGuard>, OpError> {
        self.0.once(Access::Write, 1).await
    }
}

impl Semaphore {
    /// The semaphore at this path, for `permits` holders, at least one. All who use it must give the same number.
    pub fn new(session: &Session, path: impl Into<String>, permits: usize) -> Self {
        Self(LockPath::new(session, path), permits.max(1))
    }

    /// Waits until there are fewer holders, in the order of asking.
    ///
    /// # Errors
    /// As for [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn acquire(&self) -> Result<LockGuard, OpError> {
        self.0.wait(Access::Write, self.1).await
    }

    /// [`acquire`](Self::acquire) if it need not wait.
    ///
    /// # Errors
    /// As for [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, OpError> {
        self.0.once(Access::Write, self.1).await
    }
}

/// A lock that is held, until it is released or dropped, or its session ends.
///
/// **It does not stop your work when it is lost.** Write through [`multi`](Self::multi), which ZooKeeper refuses then; give
/// other stores the [fencing token](Self::fencing_token), and have them refuse lower ones.
#[derive(Debug)]
pub struct LockGuard {
    contender: Contender,
}

impl LockGuard {
    /// The znode of this holder.
    pub fn path(&self) -> &str {
        &self.contender.path
    }

    /// The session that holds the lock.
    pub fn incarnation(&self) -> &Incarnation {
        &self.contender.incarnation
    }

    /// A number that is higher for each later holder of a lock with one holder at a time: the transaction by which this one
    /// has joined the queue.
    pub fn fencing_token(&self) -> i64 {
        self.contender.token
    }

    /// Changes znodes in one transaction, while the lock is held: ZooKeeper carries it out only if the znode of this holder
    /// exists. Returns the results of `ops`.
    ///
    /// # Errors
    /// [`OpError::NoNode`] with the [path](Self::path) of the guard or [`OpError::SessionOver`] if the lock is lost; otherwise as
    /// [`Incarnation::multi`].
    ///
    /// # Cancel safety
    /// Dropped before it has answered, its outcome is unknown.
    pub async fn multi(&self, ops: impl IntoIterator<Item = MultiOp>) -> Result<Vec<MultiResult>, OpError> {
        let holds = MultiOp::check(self.path(), 0);
        let mut results = self.incarnation().multi([holds].into_iter().chain(ops)).await?;
        if !results.is_empty() {
            results.remove(0);
        }
        Ok(results)
    }

    /// Replaces the data of a znode while the lock is held. The stat is `None` where the answer was lost and the znode has
    /// changed since.
    ///
    /// # Errors
    /// As for [`multi`](Self::multi).
    ///
    /// # Cancel safety
    /// As for [`multi`](Self::multi).
    pub async fn set(&self, path: &str, data: impl AsRef<[u8]>) -> Result<Option<Stat>, OpError> {
        let results = self.multi([MultiOp::set(path, data.as_ref(), None)]).await?;
        Ok(results.into_iter().find_map(|result| match result {
            MultiResult::Set { stat } => stat,
            _ => None,
        }))
    }

    /// Whether the session that holds the lock is known to be over. While there is no connection this can be false although
    /// another one has the lock: [`multi`](Self::multi) is refused then.
    pub fn is_lost(&self) -> bool {
        self.incarnation().is_over()
    }

    /// Waits until the lock is lost: the session is over, or another client has deleted the znode of this holder.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) {
        let mut watch = self.contender.queue.session.watch_data(self.path());
        tokio::select! {
            () = self.incarnation().over() => {}
            gone = until_gone(&mut watch) => if gone.is_err() { self.incarnation().over().await },
        }
    }

    /// Releases the lock. The next one in the queue has it then.
    ///
    /// # Errors
    /// [`OpError::Unavailable`] or [`OpError::Unknown`] if there was no connection in time: it is released in the background.
    /// [`OpError::NoAuth`] if the access list of the queue does not permit that: it is held until its session ends.
    /// No error if it was lost.
    ///
    /// # Cancel safety
    /// Dropped, it is released in the background.
    pub async fn release(mut self) -> Result<(), OpError> {
        self.contender.leave().await
    }
}

/// A path for a queue.
#[derive(Clone, Debug)]
struct LockPath {
    session: Session,
    path: String,
}

impl LockPath {
    fn new(session: &Session, path: impl Into<String>) -> Self {
        let mut path = path.into();
        // The root stays.
        path.truncate(path.trim_end_matches('/').len().max(1));
        Self { session: session.clone(), path }
    }

    async fn wait(&self, access: Access, permits: usize) -> Result<LockGuard, OpError> {
        loop {
            let incarnation = self.session.active().await.map_err(|_| OpError::SessionOver)?;
            match self.join(incarnation, access, permits, true).await {
                Ok((contender, true)) => return Ok(LockGuard { contender }),
                // Its znode is gone, with its session or by another client: again, at the end of the queue.
                Ok((_, false)) => {}
                Err(error) if error.is_session_over() => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn once(&self, access: Access, permits: usize) -> Result<Option<LockGuard>, OpError> {
        let started = BootTime::now();
        let mut incarnation = self.session.on("lock", &self.path).await?;
        // Of all steps together.
        incarnation.bound = Bound::By(incarnation.bound.deadline(started, &incarnation.inner.settings));
        let (mut contender, holds) = self.join(incarnation, access, permits, false).await?;
        if !holds {
            return contender.leave().await.map(|()| None);
        }
        contender.unbind();
        Ok(Some(LockGuard { contender }))
    }

    /// A place in the queue, on that session, and whether the lock is held by it.
    async fn join(
        &self,
        incarnation: Incarnation,
        access: Access,
        permits: usize,
        may_wait: bool,
    ) -> Result<(Contender, bool), OpError> {
        let contender = Contender::enter(self, incarnation, access).await?;
        let holds = contender.hold(access, permits, may_wait).await?;
        Ok((contender, holds))
    }
}

/// A place in a queue. Dropped, it is left in the background.
#[derive(Debug)]
struct Contender {
    queue: LockPath,
    incarnation: Incarnation,
    /// Unique: a znode whose answer was lost is found by it.
    prefix: String,
    /// Its znode; the prefix until that is known.
    path: String,
    token: i64,
    has_left: bool,
}

impl Contender {
    /// At the end of the queue.
    async fn enter(queue: &LockPath, incarnation: Incarnation, access: Access) -> Result<Self, OpError> {
        let prefix = join(&queue.path, &format!("{}-{:032x}-", access.word(), fastrand::u128(..)));
        let mut contender = Self {
            queue: queue.clone(),
            incarnation: incarnation.clone(),
            path: prefix.clone(),
            prefix,
            token: 0,
            has_left: false,
        };
        let (mode, by_name) = (CreateMode::Ephemeral, Recovery::Name);
        let create = || incarnation.create_sequential(&contender.prefix, "", mode, by_name);
        let created = match create().await {
            Err(OpError::NoNode { .. }) => {
                incarnation.create_parents(&contender.prefix).await?;
                create().await?
            }
            created => created?,
        };
        (contender.path, contender.token) = (created.path, created.stat.czxid);
        Ok(contender)
    }

    /// Whether it holds the lock, once it does; not if its znode is gone, or if it would have to wait and may not.
    async fn hold(&self, access: Access, permits: usize, may_wait: bool) -> Result<bool, OpError> {
        let mut watches = BTreeMap::<String, DataWatch>::new();
        loop {
            let children = self.incarnation.children(&self.queue.path).await?;
            let names = children.map(|children| children.names).unwrap_or_default();
            let own = self.path.rsplit('/').next().unwrap_or_default();
            let ahead = match next(own, &names, access, permits) {
                Next::Gone => return Ok(false),
                Next::Holds => return Ok(true),
                Next::After(_) if !may_wait => return Ok(false),
                Next::After(ahead) => ahead,
            };
            watches.retain(|name, _| ahead.contains(name));
            for name in ahead {
                let path = join(&self.queue.path, &name);
                watches.entry(name).or_insert_with(|| self.queue.session.watch_data(path));
            }
            let gone = select_all(watches.values_mut().map(|watch| Box::pin(until_gone(watch))));
            tokio::select! {
                () = self.incarnation.over() => return Err(OpError::SessionOver),
                (gone, ..) = gone => gone?,
            }
        }
    }

    async fn leave(&mut self) -> Result<(), OpError> {
        remove(&self.incarnation, &self.queue.path, &self.prefix, &self.path).await?;
        self.has_left = true;
        Ok(())
    }

    /// What follows is no part of an operation with a time limit.
    fn unbind(&mut self) {
        self.incarnation.bound = Bound::Default;
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        if self.has_left || self.incarnation.is_over() {
            return;
        }
        self.unbind();
        let incarnation = self.incarnation.clone();
        let (parent, prefix, path) = (self.queue.path.clone(), self.prefix.clone(), self.path.clone());
        self.queue.session.spawn(async move {
            // Until it is done, or the session is over and the znode with it.
            while let Err(error) = remove(&incarnation, &parent, &prefix, &path).await {
                if error.is_refused() {
                    warn!(%path, %error, "cannot release a lock: it is held until its session ends");
                    return;
                }
            }
        });
    }
}

/// Deletes the znode of a contender, if it exists.
async fn remove(incarnation: &Incarnation, parent: &str, prefix: &str, path: &str) -> Result<(), OpError> {
    let found = if path == prefix {
        // The outcome of its creation is unknown until what was sent before is carried out.
        let looked = async {
            incarnation.barrier().await?;
            incarnation.children(parent).await
        };
        let names = match looked.await {
            Ok(children) => children.map(|children| children.names).unwrap_or_default(),
            Err(error) if error.is_session_over() => return Ok(()),
            Err(error) => return Err(error),
        };
        names.into_iter().map(|name| join(parent, &name)).find(|found| found.starts_with(prefix))
    } else {
        Some(path.to_owned())
    };
    let Some(path) = found else { return Ok(()) };
    match incarnation.delete(&path, None).await {
        Err(error) if !error.is_session_over() && !matches!(error, OpError::NoNode { .. }) => Err(error),
        _ => Ok(()),
    }
}

/// Waits until there is no such znode.
async fn until_gone(watch: &mut DataWatch) -> Result<(), OpError> {
    loop {
        match watch.next().await {
            Ok(observed) if observed.value.is_none() => return Ok(()),
            Ok(_) => {}
            Err(WatchError::Refused(error)) => return Err(error),
            Err(WatchError::Closed(_)) => return Err(OpError::SessionOver),
        }
    }
}
