//! The session and its handles.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
#[cfg(any(feature = "tls", feature = "sasl"))]
use std::{io, path::Path};

use tokio::sync::watch;
use tracing::Instrument as _;
use zk_proto::{Purpose, Ticket, WatchMode};

use crate::acl::{AccessList, Acl, AclEntry, Id};
#[cfg(any(feature = "tls", feature = "sasl"))]
use crate::driver;
use crate::driver::close::CloseOutcome;
use crate::driver_kind::DriverKind;
use crate::error::{Closed, ConnectError, OpError};
use crate::instruments::Instruments;
use crate::lease::Lease;
use crate::node::{Children, CreateMode, Created, Epoch, Node, Stat};
use crate::operations::Recovery;
use crate::operations::administration::{ReadOp, ReadResult, Reconfiguration};
use crate::operations::multi::{MultiOp, MultiResult};
use crate::path::check;
use crate::servers::hosts::{ConnectString, parse_preferred};
use crate::session::establish::{self, establish};
use crate::session::incarnation::{Bound, Incarnation, SessionPin};
use crate::session::shared::{CLOSE_WITHIN, LastHandle, Shared};
use crate::session::state::SessionState;
use crate::session::supervisor;
#[cfg(any(feature = "tls", feature = "sasl"))]
use crate::settings::ReadFile;
use crate::settings::secret::Auth;
use crate::settings::secret::Secret;
use crate::settings::{SaslDigest, SaslUser, Settings, TlsOptions};
use crate::time::{BootTime, within};
use crate::watch::held::HeldEphemeral;
use crate::watch::lasting::ChangeWatch;
use crate::watch::value::{ChildrenWatch, DataWatch};

/// Settings of a new session.
#[derive(Clone, Debug)]
#[must_use]
pub struct SessionBuilder {
    settings: Settings,
    resumed: Option<Ticket>,
}

/// The setters of a builder: name, arguments and field.
macro_rules! setters {
    ($builder:ident: $($(#[$about:meta])* $name:ident($($value:ident: $kind:ty),+) { $($field:tt)+ })*) => {
        impl $builder {
            $(
                $(#[$about])*
                pub fn $name(mut self, $($value: $kind),+) -> Self {
                    self.$($field)+;
                    self
                }
            )*
        }
    };
}

setters! { SessionBuilder:

    /// The name of the session in logs and metrics, `default` by default. Give each session of a process its own.
    ///
    /// It is the field `session` of the `tracing` span `zookeeper_session`, in which the session logs, and the label `session`
    /// of its metrics.
    name(name: impl Into<String>) { settings.instruments = Instruments::new(name.into()) }

    /// The session timeout to ask for, 10 s by default. The server may grant another one:
    /// [`Incarnation::granted_timeout`].
    session_timeout(timeout: Duration) { settings.session_timeout = timeout }

    /// How long [`connect`](Self::connect), and later each attempt to make a new session, may take: 15 s by default.
    connect_timeout(timeout: Duration) { settings.connect_timeout = timeout }

    /// The servers' `tickTime`, 2 s by default, which is ZooKeeper's own default.
    ///
    /// Leases are computed with it: too large makes them shorter than necessary, **too small makes them unsafe**.
    tick_time(tick: Duration) { settings.tick_time = tick }

    /// How soon the session leaves a server that has become silent, where that must be known: by then it asks another server
    /// to take the session. At least 50 ms. By default that is after 0.3 of the session timeout at the latest.
    ///
    /// The server is checked four times within this time, by pings that cost it little; choose no less than twice the
    /// longest pause of a server (garbage collection). The connection is kept until another server has taken the session,
    /// and if no other server answers. Two kinds of servers are given longer: one that usually takes longer, and, while
    /// writes of the session are under way, one that may wait for a quorum. See 'Moving while connected' in the crate's
    /// documentation.
    suspect_after(time: Duration) { settings.suspect_after = Some(time) }

    /// The servers to be used first, `host:port,host:port` as in the connect string: those of the own site, for example. See
    /// [`Session::prefer`].
    prefer(servers: impl Into<String>) { settings.prefer = servers.into() }

    /// The client implementation: [`DriverKind::Native`] by default.
    driver(driver: DriverKind) { settings.driver = driver }

    /// Adds credentials, as ZooKeeper's `addauth scheme secret` does, to every session. May be called several times.
    ///
    /// If a server does not support the scheme, or refuses the secret, [`connect`](Self::connect) fails at once. The scheme
    /// `digest` (`user:password`) has no list of users on the server: it accepts any password, and a wrong one causes
    /// [`OpError::NoAuth`] where a znode's access list requires the right one.
    auth(scheme: impl Into<String>, secret: impl Into<Secret>) { settings.auth.push(Auth { scheme: scheme.into(), secret: secret.into() }) }

    /// Uses TLS. Needs the feature `tls`; [`ConnectError::Unsupported`] otherwise.
    ///
    /// If either side refuses the other's certificate, [`connect`](Self::connect) fails at once. The cryptography is that
    /// of `ring`, even if the process has installed another provider.
    tls(options: TlsOptions) { settings.tls = Some(options) }

    /// Authenticates each connection by SASL DIGEST-MD5. Needs the feature `sasl`; [`ConnectError::Unsupported`]
    /// otherwise.
    ///
    /// The password is never sent, but the mechanism is old and weak: use it with TLS. With a wrong password
    /// [`connect`](Self::connect) fails at once.
    sasl_digest(user: impl Into<String>, password: impl Into<Secret>) { settings.sasl = Some(SaslDigest::User(SaslUser { user: user.into(), password: password.into() })) }

    /// As [`sasl_digest`](Self::sasl_digest), with the user of a file that contains `user:password`.
    ///
    /// The file is read again for each connection, so a changed password is used from then on. A file that can't be used is
    /// logged, and the connection uses what was read last. If it was never of use, [`connect`](Self::connect) fails.
    sasl_digest_file(path: impl Into<PathBuf>) { settings.sasl = Some(SaslDigest::File(path.into())) }

    /// Reads the files of [`tls`](Self::tls) and [`sasl_digest_file`](Self::sasl_digest_file) by this function, for each
    /// connection: for a program that has the checked contents of the files. By default they are read from the disk. The
    /// function may block.
    #[cfg(any(feature = "tls", feature = "sasl"))]
    read_files_by(read: impl Fn(&Path) -> io::Result<Vec<u8>> + Send + Sync + 'static) { settings.read_file = ReadFile(Arc::new(read)) }

    /// The access list of everything that the session creates: [`Acl::Open`] by default.
    acl(acl: Acl) { settings.acl = acl }

    /// The maximum size of a request in bytes: the servers' `jute.maxbuffer`, 1,048,575 by default.
    ///
    /// A longer one is refused as [`OpError::Invalid`] before it is sent, because a server closes the connection over it,
    /// with all requests under way.
    max_request(bytes: usize) { settings.max_request = bytes }

    /// How long an operation may take, waiting for a connection and repetitions included: by default the
    /// [`session_timeout`](Self::session_timeout) that is asked for. An operation of a [`Session`] first waits up to the
    /// same time for an active session. [`Session::with_timeout`] sets another timeout for single operations.
    operation_timeout(timeout: Duration) { settings.operation_timeout = Some(timeout) }

    /// Resumes a session that another process has handed over, or left when it crashed. It keeps the timeout that was
    /// granted to it; later sessions ask for [`session_timeout`](Self::session_timeout).
    ///
    /// Another process that still uses the session loses its connection. Its requests that are under way are not known
    /// here: they may be applied until the first [`barrier`](Session::barrier) of the new process has returned.
    resume(ticket: Ticket) { resumed = Some(ticket) }
}

impl SessionBuilder {
    /// Checks the settings, and reads the files of TLS and SASL, as [`connect`](Self::connect) does before it connects. It
    /// blocks while it reads.
    ///
    /// # Errors
    /// [`ConnectError::InvalidSetting`], [`ConnectError::Unsupported`]; [`ConnectError::Tls`] and
    /// [`ConnectError::AuthFailed`] for files that can't be used.
    pub fn check(&self) -> Result<(), ConnectError> {
        self.settings.check()?;
        #[cfg(feature = "tls")]
        if let Some(options) = &self.settings.tls {
            driver::tls::config(options, &self.settings.read_file)
                .map_err(|reason| ConnectError::Tls { reason })?;
        }
        #[cfg(feature = "sasl")]
        if let Some(SaslDigest::File(path)) = &self.settings.sasl {
            driver::sasl::read(path, &self.settings.read_file)
                .map_err(|reason| ConnectError::AuthFailed { reason })?;
        }
        Ok(())
    }

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
        let session = Session { _last_handle: last_handle, bound: Bound::Default, shared };
        let supervised = supervisor::run(Arc::clone(&session.shared), first);
        session.shared.tasks.spawn(supervised.instrument(session.shared.span.clone()));
        // The supervisor's first act. If the session ends at this moment, the supervisor makes the next one.
        let _ = within(deadline, session.shared.active()).await;
        Ok(session)
    }

    /// Closes a session that a process has left behind when it died, so that no client waits for its timeout. The session is
    /// resumed for this request alone: no other one is made, and nothing else is done on it.
    ///
    /// **Only for a process that is certainly dead**, and whose work has ended: a living one loses the session. Servers,
    /// credentials and TLS are those of this builder; the driver does not matter.
    ///
    /// It tries to reach a server for `within_time`. [`CloseOutcome::Sent`] and [`CloseOutcome::Unknown`] are possible, as
    /// they are of [`Session::close`]: then the session ends by its timeout, if it was not closed.
    ///
    /// # Errors
    /// As [`connect`](Self::connect). [`ConnectError::Expired`] if the session is over already, or the password is wrong.
    ///
    /// # Cancel safety
    /// Cancel safe: the session may have been closed.
    pub async fn close_left_behind(
        self,
        ticket: Ticket,
        within_time: Duration,
    ) -> Result<CloseOutcome, ConnectError> {
        let shared = Shared::new(self.settings)?;
        let closing = establish::close(&shared, ticket, BootTime::now() + within_time);
        closing.instrument(shared.span.clone()).await
    }
}

/// A session with ZooKeeper that is replaced by a new one when it ends. Cheap to clone; all clones are the same session.
/// It has three kinds of methods. *Queries* (`state`, `incarnation`, `subscribe`) return at once. *Holders* (`pin`,
/// `keep_lease`, `watch_*`, `hold_ephemeral`) return a value that works until it is dropped. *Operations* act on the
/// present session. Use an [`Incarnation`] if several operations must happen on the same session or not at all.
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
    bound: Bound,
    _last_handle: Arc<LastHandle>,
}

impl Session {
    /// Settings for a session with the servers of `connect`: `host:port,host:port`, optionally followed by a chroot
    /// (`host:port,host:port/my/app`). The default port is 2181.
    ///
    /// The chroot is put before each path that is sent, and removed from the paths in results, events of watches and
    /// errors. It need not exist: [`create_parents`](Self::create_parents) creates it, too.
    pub fn builder(connect: impl Into<String>) -> SessionBuilder {
        SessionBuilder { settings: Settings::new(connect.into()), resumed: None }
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

    /// The present state.
    pub fn state(&self) -> SessionState {
        self.shared.state().clone()
    }

    /// The state and its changes. A slow receiver may miss states between, but never the latest.
    pub fn subscribe(&self) -> watch::Receiver<SessionState> {
        self.shared.subscribe_state()
    }

    /// The present session, active or paused; `None` between sessions.
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.shared.living()
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
        self.shared.active().await
    }

    /// Pins the present session: while the pin exists, no new session is made after that one has ended. `None` between
    /// sessions.
    pub fn pin(&self) -> Option<SessionPin> {
        // Under the lock that the end of a session takes: no pin is made once a new session may be made.
        let living = self.shared.incarnation.borrow();
        living.as_ref().filter(|living| !living.is_over()).map(|living| SessionPin::new(&living.inner))
    }

    /// Keeps a lease: makes this session and the following ones send quorum heartbeats as long as the keeper or a clone of
    /// it exists.
    pub fn keep_lease(&self) -> LeaseKeeper {
        LeaseKeeper::new(&self.shared)
    }

    /// A znode's data and its changes, across reconnects and new sessions.
    pub fn watch_data(&self, path: impl Into<Arc<str>>) -> DataWatch {
        DataWatch::new(Arc::clone(&self.shared), path.into())
    }

    /// The names of a znode's children and their changes, across reconnects and new sessions.
    pub fn watch_children(&self, path: impl Into<Arc<str>>) -> ChildrenWatch {
        ChildrenWatch::new(Arc::clone(&self.shared), path.into())
    }

    /// Creates an ephemeral znode with its parents, and again in each new session, until it is released or dropped.
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
        Ok(HeldEphemeral::new(&self.shared, path, data.into()))
    }

    /// Each change of a znode and its children, across reconnects and new sessions.
    pub fn watch_each(&self, path: impl Into<Arc<str>>) -> ChangeWatch {
        ChangeWatch::new(Arc::clone(&self.shared), path.into(), WatchMode::Persistent)
    }

    /// Each change of a znode and of everything below it, across reconnects and new sessions.
    pub fn watch_tree(&self, path: impl Into<Arc<str>>) -> ChangeWatch {
        ChangeWatch::new(Arc::clone(&self.shared), path.into(), WatchMode::Recursive)
    }

    /// Replaces the servers, as `host:port,host:port`. The chroot stays. A session whose server is no longer in the list
    /// moves to one that is.
    ///
    /// # Errors
    /// [`ConnectError::InvalidConnectString`], also for another chroot.
    pub fn set_servers(&self, connect: &str) -> Result<(), ConnectError> {
        let given = ConnectString::parse(connect)?;
        if !given.chroot.is_empty() && given.chroot != self.shared.chroot {
            let reason = "the chroot of a session can't be changed: leave it out".to_owned();
            return Err(ConnectError::InvalidConnectString { connect: connect.to_owned(), reason });
        }
        self.shared.resolver.set_servers(given.servers);
        if let Some(living) = self.shared.living() {
            living.inner.driver.servers_changed();
        }
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
        self.shared.change_preference(|preference| preference.preferred = preferred);
        Ok(())
    }

    /// Replaces the hosts whose servers are avoided, by their addresses: hosts that are likely to be lost together with
    /// something that this process has to notice. Such a server is used while no other one answers, preferred or not; if all
    /// are avoided, none is. A session with an avoided server moves to another one.
    pub fn avoid(&self, hosts: impl IntoIterator<Item = IpAddr>) {
        let mut avoided: Vec<IpAddr> = hosts.into_iter().map(|ip| ip.to_canonical()).collect();
        avoided.sort_unstable();
        avoided.dedup();
        self.shared.change_preference(|preference| preference.avoided = avoided);
    }

    /// Cuts the session off until then, as if its host had lost its network: the connection is dropped without closing the
    /// session, and no other one is made, also for a new session. An outage can be practised with it. Afterwards the session
    /// returns by itself, or a new one is made; nothing has to be called for that. An earlier time ends a longer cut.
    ///
    /// The servers expire the session if that lasts for longer than its timeout.
    pub fn isolate_until(&self, until: BootTime) {
        self.shared.resolver.isolate(until);
        if let Some(living) = self.shared.living() {
            // It looks at its connection.
            living.inner.driver.servers_changed();
        }
    }

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
        let living = self.shared.living();
        self.shared.hand_over();
        within(BootTime::now() + CLOSE_WITHIN, self.shared.tasks.wait()).await;
        living.map(|living| living.ticket())
    }

    /// Closes the session, and ends its tasks and its sockets, within that time. Its ephemerals are deleted.
    /// Every handle is closed with it, and everything that waits on one gets [`Closed`]. A second call waits for the first
    /// and returns the same.
    ///
    /// # Cancel safety
    /// Cancel safe: once begun, closing continues.
    pub async fn close(&self, within_time: Duration) -> CloseOutcome {
        let deadline = BootTime::now() + within_time;
        self.shared.begin_closing(deadline);
        let mut outcome = self.shared.outcome.subscribe();
        let closed = async {
            self.shared.tasks.wait().await;
            outcome.wait_for(Option::is_some).await.is_ok()
        };
        within(deadline, closed).await;
        self.shared.outcome.borrow().unwrap_or(CloseOutcome::Unknown)
    }
}

/// The operations of [`Incarnation`] on the present session, each with its documentation and its own errors.
macro_rules! delegate {
    ($(
        $(#[$about:meta])*
        $kind:ident $name:ident($($argument:ident: $type:ty),*) -> $output:ty, at $path:expr $(, or $errors:literal)?;
    )*) => {
        /// Operations on the present session. Each waits for it to be active no longer than the operation timeout, and is
        /// then the operation of the same name of that [`Incarnation`], which has the details.
        impl Session {
            $(
                $(#[$about])*
                ///
                /// # Errors
                $(#[doc = concat!($errors, ".")]
                ///
                )?
                /// [`OpError::Unavailable`] if there was no active session or no connection in time,
                /// [`OpError::SessionOver`], [`OpError::NoAuth`], [`OpError::AuthFailed`], [`OpError::Invalid`].
                ///
                /// # Cancel safety
                #[doc = delegate!(@$kind)]
                pub async fn $name(&self, $($argument: $type),*) -> Result<$output, OpError> {
                    self.shared.current(stringify!($name), $path, self.bound).await?.$name($($argument),*).await
                }
            )*
        }
    };
    (@read) => { "Cancel safe." };
    (@write) => {
        "Dropped before it has answered, its outcome is unknown: it was done once or not at all, and nothing repeats it."
    };
    (@steps) => { "Dropped before it has answered, some of it may have been done; calling it again continues." };
}

delegate! {
    /// Reads a znode, `None` if there is none. The server that answers may lag behind the others; after a
    /// [`barrier`](Self::barrier) it is up to date.
    read get(path: &str) -> Option<Node>, at path;
    /// The metadata of a znode, `None` if there is none.
    read exists(path: &str) -> Option<Stat>, at path;
    /// Reads the names of a znode's children, `None` if the znode does not exist.
    read children(path: &str) -> Option<Children>, at path;
    /// Creates a znode with the access list of the session ([`SessionBuilder::acl`]). Its parent must exist.
    write create(path: &str, data: impl AsRef<[u8]>, mode: CreateMode) -> Created, at path,
        or "[`OpError::NodeExists`] with the owner, [`OpError::NoNode`] if the parent is missing, [`OpError::Unknown`]";
    /// Creates a znode whose name is the last element of `prefix` and a number that grows with each one created under the
    /// same parent. After a lost answer the znode is found again by `recovery`.
    write create_sequential(
        prefix: &str,
        data: impl AsRef<[u8]>,
        mode: CreateMode,
        recovery: Recovery
    ) -> Created, at prefix, or "[`OpError::NoNode`] if the parent is missing, [`OpError::Unknown`]";
    /// Creates the persistent znodes above `path`, each that is missing, with no data. `path` itself is not created.
    steps create_parents(path: &str) -> (), at path, or "[`OpError::Unknown`]";
    /// Replaces the data of a znode; with `version`, only if the data still has that version.
    write set(path: &str, data: impl AsRef<[u8]>, version: Option<i32>) -> Stat, at path,
        or "[`OpError::NoNode`], [`OpError::BadVersion`], [`OpError::Unknown`]";
    /// Deletes a znode without children; with `version`, only if its data still has that version.
    write delete(path: &str, version: Option<i32>) -> (), at path,
        or "[`OpError::NoNode`], [`OpError::BadVersion`], [`OpError::NotEmpty`], [`OpError::Unknown`]";
    /// Deletes a znode and everything below it, znode by znode. Each step is bounded by the operation timeout, a
    /// [`timeout`](Self::with_timeout) of the caller bounds the whole.
    steps delete_recursive(path: &str) -> (), at path,
        or "[`OpError::NoNode`], [`OpError::NotEmpty`] if others create znodes as fast as these are deleted, [`OpError::Unknown`]";
    /// Does all of the operations or none, in this order, as one change of ZooKeeper.
    write multi(ops: impl IntoIterator<Item = MultiOp>) -> Vec<MultiResult>, at "/",
        or "Of the operation that was refused, with its path: [`OpError::NodeExists`], [`OpError::NoNode`], \
            [`OpError::BadVersion`], [`OpError::NotEmpty`]; [`OpError::Unknown`]";
    /// Several reads by one request, of one moment (servers from 3.6 on). A znode that does not exist is no error.
    read multi_read(reads: impl IntoIterator<Item = ReadOp>) -> Vec<ReadResult>, at "/";
    /// The access list of a znode.
    read acl(path: &str) -> AccessList, at path, or "[`OpError::NoNode`]";
    /// Replaces the access list of a znode; with `version`, only if the list still has that version.
    write set_acl(path: &str, entries: &[AclEntry], version: Option<i32>) -> Stat, at path,
        or "[`OpError::NoNode`], [`OpError::BadVersion`], [`OpError::Unknown`]";
    /// The paths of this session's ephemerals that begin with `prefix` (servers from 3.6 on).
    read ephemerals(prefix: &str) -> Vec<String>, at prefix;
    /// How many znodes there are below one, at any depth (servers from 3.6 on).
    read count_below(path: &str) -> u32, at path, or "[`OpError::NoNode`]";
    /// The identities that the servers have verified for this session (servers from 3.7 on).
    read whoami() -> Vec<Id>, at "/";
    /// Makes the server that answers catch up with the ensemble's leader. It is no quorum round trip;
    /// [`barrier`](Self::barrier) is one.
    read sync(path: &str) -> (), at path;
    /// Changes the members of the ensemble, and returns the new configuration. It is sent once.
    write reconfig(change: &Reconfiguration) -> Node, at "/zookeeper/config",
        or "[`OpError::BadVersion`], [`OpError::Unknown`]";
    /// A quorum round trip, and how long it took: when it returns, everything that was written before it was sent can be
    /// read. It writes nothing.
    read barrier() -> Duration, at "/";
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("state", &*self.shared.state()).finish_non_exhaustive()
    }
}

/// Keeps a lease while it, or a clone of it, exists: the session sends four quorum heartbeats in a session timeout. From
/// [`Session::keep_lease`].
#[derive(Debug)]
pub struct LeaseKeeper {
    shared: Arc<Shared>,
}

impl LeaseKeeper {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.keepers.send_modify(|count| *count += 1);
        Self { shared: Arc::clone(shared) }
    }

    /// The present lease: `None` until one is proved, and after the session has ended. It may have run out: compare it with
    /// the clock.
    pub fn lease(&self) -> Option<Lease> {
        let lease = self.shared.lease()?;
        self.shared.living().filter(|living| living.epoch() == lease.epoch).map(|_| lease)
    }

    /// The lease and its changes. It only grows until its session ends; running out is no change.
    pub fn subscribe(&self) -> watch::Receiver<Option<Lease>> {
        self.shared.subscribe_lease()
    }
}

impl Clone for LeaseKeeper {
    fn clone(&self) -> Self {
        Self::new(&self.shared)
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        self.shared.keepers.send_modify(|count| *count = count.saturating_sub(1));
    }
}
