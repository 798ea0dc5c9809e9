//! The session and its handles.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::Instrument as _;
use zk_proto::{Purpose, Ticket, WatchMode};

use crate::acl::Acl;
use crate::driver::close::CloseOutcome;
use crate::error::{Closed, ConnectError, OpError};
use crate::handle::builder::SessionBuilder;
use crate::handle::lease_keeper::LeaseKeeper;
use crate::node::Epoch;
use crate::path::check;
use crate::servers::hosts::{ConnectString, parse_preferred};
use crate::session::establish::establish;
use crate::session::incarnation::{Bound, Incarnation, SessionPin};
use crate::session::scope::Scope;
use crate::session::shared::{CLOSE_WITHIN, Closing, LastHandle, Shared, View};
use crate::session::state::{Machine, SessionState};
use crate::session::supervisor::Supervisor;
use crate::time::{BootTime, within};
use crate::watch::held::HeldEphemeral;
use crate::watch::lasting::ChangeWatch;
use crate::watch::value::{ChildrenWatch, DataWatch};

impl SessionBuilder {
    /// Makes a session, and a new one whenever it ends, until it is closed or its last handle is dropped.
    ///
    /// It returns once a quorum has agreed to the session. Must be called in a tokio runtime with time and I/O
    /// enabled; the session lives on that runtime, and is closed when that ends.
    ///
    /// # Errors
    /// Within the connect timeout in any case. [`ConnectError::Unreachable`] names each host and its answer;
    /// [`ConnectError::Expired`] if the session to be resumed is over.
    ///
    /// # Cancel safety
    /// Cancel safe: connections and sessions that were begun are ended.
    pub async fn connect(self) -> Result<Session, ConnectError> {
        let Self { settings, resumed } = self;
        let shared = Arc::new(Shared::new(settings)?);
        let deadline = BootTime::now() + shared.settings.connect_timeout;
        let purpose = resumed.map_or(Purpose::New(shared.settings.session_timeout), Purpose::Resume);
        let establishing = establish(&shared, purpose, Epoch(1), deadline);
        let first = establishing.instrument(shared.span.clone()).await?;
        // Before the next await: if this future is dropped from here on, the session is closed with its last handle.
        let last_handle = Arc::new(LastHandle(Arc::clone(&shared)));
        let view = View { shared: Arc::clone(&shared), scope: Arc::clone(&shared.scope) };
        let session = Session { _last_handle: last_handle, bound: Bound::Default, view };
        let supervised = Supervisor { shared: Arc::clone(&shared) }.run(first);
        shared.tasks.spawn(supervised.instrument(shared.span.clone()));
        // The supervisor's first act. If the session ends at this moment, the supervisor makes the next one.
        let _ = within(deadline, shared.active()).await;
        Ok(session)
    }
}

/// A session with ZooKeeper that is replaced by a new one when it ends. Cheap to clone; all clones are the same session.
/// It has three kinds of methods. *Queries* (`state`, `incarnation`, `subscribe`) return at once. *Holders* (`pin`,
/// `keep_lease`, `watch_*`, `hold_ephemeral`) return a value that works until it is dropped. *Operations* act on the
/// present session. Use an [`Incarnation`] if several operations must happen on the same session or not at all.
#[derive(Clone, Debug)]
pub struct Session {
    pub(super) view: View,
    pub(super) bound: Bound,
    _last_handle: Arc<LastHandle>,
}

impl Session {
    /// Settings for a session with the servers of `connect`: `host:port,host:port`, optionally followed by a chroot
    /// (`host:port,host:port/my/app`). The default port is 2181.
    ///
    /// The chroot is put before each path that is sent, and removed from the paths in results, events of watches and
    /// errors. It need not exist: [`create_parents`](Self::create_parents) creates it, too.
    pub fn builder(connect: impl Into<String>) -> SessionBuilder {
        SessionBuilder::new(connect.into())
    }

    /// A handle of the same session with another timeout for each operation that is called on it, to bound a single
    /// operation:
    ///
    /// ```no_run
    /// # async fn run(session: zk_session::Session) -> Result<(), zk_session::OpError> {
    /// let node = session.with_timeout(std::time::Duration::from_secs(1)).get("/config").await?;
    /// # drop(node);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The timeout covers the whole operation: waiting for an active session, repetitions, and the reads that find out the
    /// outcome of a write; of [`delete_recursive`](Self::delete_recursive) the whole tree. When it has passed, a write that
    /// was sent and whose outcome is not known fails with [`OpError::Unknown`]; any other operation fails with
    /// [`OpError::Unavailable`], without effect. The timeout may be shorter or longer than the operation timeout. It
    /// changes nothing but the operations of this handle and its clones: not the session, its watches or its held znodes,
    /// nor an [`Incarnation`] that the handle returns.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { bound: Bound::Within(timeout), ..self.clone() }
    }

    /// A handle of the same session with another access list for everything that is created on it: by its operations, as
    /// parents, as held ephemerals, and by locks made of it.
    ///
    /// ```no_run
    /// # use zk_session::{Acl, CreateMode, OpError, Session};
    /// # async fn run(session: Session) -> Result<(), OpError> {
    /// session.with_acl(&Acl::CreatorAll).create("/app/secret", "1234", CreateMode::Persistent).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Nothing is checked here. An access list that the servers do not accept, as one for the creator is without credentials,
    /// fails the create with [`OpError::Invalid`].
    #[must_use]
    pub fn with_acl(&self, acl: &Acl) -> Self {
        self.scoped(self.view.scope.with_acl(acl))
    }

    /// A handle of the same session that sees what is below `path` and nothing else, as if that were the chroot of its
    /// connect string: for a library that is to keep to a part of the znodes, for example. `path` is one of this handle, so
    /// chroots add up; `/` changes nothing. The znode need not exist.
    ///
    /// ```no_run
    /// # use zk_session::{CreateMode, Lock, OpError, Session};
    /// # async fn run(session: Session) -> Result<(), OpError> {
    /// let orders = session.chroot("/apps/orders")?;
    /// orders.create("/config", "{}", CreateMode::Persistent).await?; // the znode /apps/orders/config
    /// let lock = Lock::new(&orders, "/locks/report");
    /// # drop(lock);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It holds for all that is done with the handle: operations, watches, held ephemerals, locks, the [`Incarnation`]s and
    /// pins that it returns; paths in their results, events and errors are without the chroot. State, lease, ticket and
    /// servers are those of the one session, and [`close`](Self::close) closes it for all handles.
    ///
    /// # Errors
    /// [`OpError::Invalid`] if `path` is not a valid path.
    pub fn chroot(&self, path: &str) -> Result<Self, OpError> {
        check(path)?;
        Ok(self.scoped(self.view.scope.below(path)))
    }

    fn scoped(&self, scope: Scope) -> Self {
        let view = View { scope: Arc::new(scope), ..self.view.clone() };
        Self { view, ..self.clone() }
    }

    /// The present state.
    pub fn state(&self) -> SessionState {
        self.view.shared.live.state()
    }

    /// The state and its changes. A slow receiver may miss states between, but never the latest.
    pub fn subscribe(&self) -> watch::Receiver<SessionState> {
        self.view.shared.live.states()
    }

    /// The present session, active or paused; `None` between sessions.
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.view.living()
    }

    /// Waits until the session is active: for as long as no server answers, or the servers refuse the credentials. Only that
    /// and the end of the session end the wait.
    ///
    /// # Cancel safety
    /// Cancel safe.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn active(&self) -> Result<Incarnation, Closed> {
        self.view.active().await
    }

    /// Pins the present session: while the pin exists, no new session is made after that one has ended. `None` between
    /// sessions.
    pub fn pin(&self) -> Option<SessionPin> {
        // First the pin, then the look at the session: its end is published before its pins are counted.
        let pin = SessionPin::new(self.view.living()?);
        (!pin.incarnation().is_over()).then_some(pin)
    }

    /// Keeps a lease: makes this session and the following ones send quorum heartbeats as long as the keeper or a clone of
    /// it exists.
    pub fn keep_lease(&self) -> LeaseKeeper {
        LeaseKeeper::new(&self.view.shared)
    }

    /// A znode's data and its changes, across reconnects and new sessions.
    pub fn watch_data(&self, path: impl Into<Arc<str>>) -> DataWatch {
        DataWatch::of_values(self.view.clone(), path.into())
    }

    /// The names of a znode's children and their changes, across reconnects and new sessions.
    pub fn watch_children(&self, path: impl Into<Arc<str>>) -> ChildrenWatch {
        ChildrenWatch::of_values(self.view.clone(), path.into())
    }

    /// Creates an ephemeral znode with its parents, and again in each new session, until it is released or dropped. While
    /// this session holds `path` already, the status is [`HeldStatus::Conflict`](crate::HeldStatus::Conflict).
    ///
    /// # Errors
    /// [`OpError::Invalid`] if `path` is not a valid path.
    pub fn hold_ephemeral(
        &self,
        path: impl Into<String>,
        data: impl Into<Vec<u8>>,
    ) -> Result<HeldEphemeral, OpError> {
        let path = path.into();
        check(&path)?;
        Ok(HeldEphemeral::new(self.view.clone(), path, data.into()))
    }

    /// Does this on the runtime of the session, until it is closed.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.view.shared.spawn(task);
    }

    /// Each change of a znode and its children, across reconnects and new sessions.
    pub fn watch_each(&self, path: impl Into<Arc<str>>) -> ChangeWatch {
        ChangeWatch::lasting(self.view.clone(), path.into(), WatchMode::Persistent)
    }

    /// Each change of a znode and of everything below it, across reconnects and new sessions.
    pub fn watch_tree(&self, path: impl Into<Arc<str>>) -> ChangeWatch {
        ChangeWatch::lasting(self.view.clone(), path.into(), WatchMode::Recursive)
    }

    /// Replaces the servers, as `host:port,host:port`. The chroot stays. A session whose server is no longer in the list
    /// moves to one that is.
    ///
    /// # Errors
    /// [`ConnectError::InvalidConnectString`], also for another chroot.
    pub fn set_servers(&self, connect: &str) -> Result<(), ConnectError> {
        let given = ConnectString::parse(connect)?;
        if !given.chroot.is_empty() && given.chroot != self.view.shared.scope.root {
            let reason = "the chroot of a session can't be changed: leave it out".to_owned();
            return Err(ConnectError::InvalidConnectString { connect: connect.to_owned(), reason });
        }
        self.view.shared.resolver.set_servers(given.servers);
        self.view.shared.servers_changed();
        Ok(())
    }

    /// Replaces the preferred servers ([`SessionBuilder::prefer`]), `host:port,host:port` as in the connect string; an empty
    /// string prefers none. Others are used while no preferred server answers.
    ///
    /// A session whose server is worse than another one moves there, at once after this call. After it has lost a better
    /// server, it returns a session timeout or two later, if that answers by then.
    ///
    /// # Errors
    /// [`ConnectError::InvalidSetting`] if it is no list of servers. One that is not in the connect string has no effect.
    pub fn prefer(&self, servers: &str) -> Result<(), ConnectError> {
        let preferred = parse_preferred(servers)?;
        self.view.shared.change_preference(|preference| preference.preferred = preferred);
        Ok(())
    }

    /// Replaces the hosts whose servers are avoided, by their addresses: hosts that are likely to be lost together with
    /// something that this process has to notice. Such a server is used while no other one answers, preferred or not; if all
    /// are avoided, none is. A session with an avoided server moves to another one.
    pub fn avoid(&self, hosts: impl IntoIterator<Item = IpAddr>) {
        let mut avoided: Vec<IpAddr> = hosts.into_iter().map(|ip| ip.to_canonical()).collect();
        avoided.sort_unstable();
        avoided.dedup();
        self.view.shared.change_preference(|preference| preference.avoided = avoided);
    }

    /// Cuts the session off until then, as if its host had lost its network: the connection is dropped without closing the
    /// session, and no other one is made, also for a new session. An outage is practised with it. Afterwards the session
    /// returns by itself, or a new one is made; nothing has to be called for that. An earlier time ends a longer cut. Needs
    /// the feature `drill`.
    ///
    /// The servers expire the session if that lasts for longer than its timeout.
    #[cfg(feature = "drill")]
    pub fn isolate_until(&self, until: BootTime) {
        self.view.shared.resolver.isolate(until);
        self.view.shared.servers_changed();
    }

    #[cfg(not(feature = "drill"))]
    #[doc(hidden)]
    #[allow(missing_docs, private_bounds, reason = "it can't be called")]
    pub fn isolate_until<T: crate::features::NeedsDrill>(&self, _until: T) {}

    /// Hands the session over to another process: ends its tasks and sockets here without closing it, and returns the
    /// ticket for [`SessionBuilder::resume`]. `None` between sessions.
    ///
    /// Ephemerals stay, watches and leases end. Operations under way end as unknown. If it is not resumed within its
    /// timeout, the session expires. It returns within two seconds.
    ///
    /// # Cancel safety
    /// Once begun, the handover continues. If the future is dropped before it has returned, the session expires unless
    /// [`Incarnation::ticket`] was taken before.
    pub async fn hand_over(self) -> Option<Ticket> {
        let living = self.view.shared.living();
        let by = BootTime::now() + CLOSE_WITHIN;
        self.view.shared.begin_closing(Closing { by, hands_over: true });
        within(by, self.view.shared.tasks.wait()).await;
        living.map(|living| living.ticket())
    }

    /// Closes the session, and ends its tasks and its sockets, within that time. Its ephemerals are deleted.
    /// Every handle is closed with it, and everything that waits on one gets [`Closed`]. A second call waits for the first
    /// and returns the same.
    ///
    /// # Cancel safety
    /// Cancel safe: once begun, closing continues.
    pub async fn close(&self, within_time: Duration) -> CloseOutcome {
        let by = BootTime::now() + within_time;
        self.view.shared.begin_closing(Closing { by, hands_over: false });
        let closed = async {
            self.view.shared.tasks.wait().await;
            self.view.shared.live.wait_for(Machine::outcome).await
        };
        let outcome = within(by, closed).await.or_else(|| self.view.shared.live.ask(Machine::outcome));
        outcome.unwrap_or(CloseOutcome::Unknown)
    }
}
