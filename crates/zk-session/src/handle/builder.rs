//! The settings of a session.

use std::io;
use std::net::SocketAddr;
#[cfg(any(feature = "tls", feature = "sasl"))]
use std::path::Path;
#[cfg(feature = "sasl")]
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tracing::Instrument as _;
use zk_proto::Ticket;

use crate::acl::Acl;
use crate::driver::close::CloseOutcome;
use crate::driver_kind::DriverKind;
use crate::error::ConnectError;
use crate::instruments::Instruments;
use crate::session::establish;
use crate::session::shared::Shared;
use crate::settings::Settings;
use crate::settings::dial::{Dial, Duplex};
use crate::settings::secret::{Auth, Secret};
#[cfg(feature = "tls")]
use crate::settings::tls::{Tls, TlsOptions};
#[cfg(feature = "sasl")]
use crate::settings::{SaslDigest, SaslUser};
use crate::time::BootTime;

/// Settings of a new session.
#[derive(Clone, Debug)]
#[must_use]
pub struct SessionBuilder {
    pub(super) settings: Settings,
    pub(super) resumed: Option<Ticket>,
}

impl SessionBuilder {
    pub(crate) fn new(connect: String) -> Self {
        Self { settings: Settings::new(connect), resumed: None }
    }

    /// The name of the session in logs and metrics, `default` by default. Give each session of a process its own.
    ///
    /// It is the field `session` of the `tracing` span `zookeeper_session`, in which the session logs, and the label `session`
    /// of its metrics.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.instruments = Instruments::new(name.into());
        self
    }

    /// The session timeout to ask for, 10 s by default. The server may grant another one:
    /// [`Incarnation::granted_timeout`](crate::Incarnation::granted_timeout).
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.settings.session_timeout = timeout;
        self
    }

    /// How long [`connect`](Self::connect), and later each attempt to make a new session, may take: 15 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// The servers' `tickTime`, 2 s by default, which is ZooKeeper's own default.
    ///
    /// Leases are computed with it: too large makes them shorter than necessary, **too small makes them unsafe**.
    pub fn tick_time(mut self, tick: Duration) -> Self {
        self.settings.tick_time = tick;
        self
    }

    /// How soon the session leaves a server that has become silent, where that must be known: by then it asks another server
    /// to take the session. At least 50 ms. By default that is after 0.3 of the session timeout at the latest.
    ///
    /// The server is checked four times within this time, by pings that cost it little; choose no less than twice the
    /// longest pause of a server (garbage collection). The connection is kept until another server has taken the session,
    /// and if no other server answers. Two kinds of servers are given longer: one that usually takes longer, and, while
    /// writes of the session are under way, one that may wait for a quorum. See 'Moving while connected' in the crate's
    /// documentation.
    pub fn suspect_after(mut self, time: Duration) -> Self {
        self.settings.suspect_after = Some(time);
        self
    }

    /// The servers to be used first, `host:port,host:port` as in the connect string: those of the own site, for example. See
    /// [`Session::prefer`](crate::Session::prefer).
    pub fn prefer(mut self, servers: impl Into<String>) -> Self {
        self.settings.prefer = servers.into();
        self
    }

    /// The client implementation: [`DriverKind::Native`] by default.
    pub fn driver(mut self, driver: DriverKind) -> Self {
        self.settings.driver = driver;
        self
    }

    /// Adds credentials, as ZooKeeper's `addauth scheme secret` does, to every session. May be called several times.
    ///
    /// If a server does not support the scheme, or refuses the secret, [`connect`](Self::connect) fails at once. The scheme
    /// `digest` (`user:password`) has no list of users on the server: it accepts any password, and a wrong one causes
    /// [`OpError::NoAuth`](crate::OpError::NoAuth) where a znode's access list requires the right one.
    pub fn auth(mut self, scheme: impl Into<String>, secret: impl Into<Secret>) -> Self {
        self.settings.auth.push(Auth { scheme: scheme.into(), secret: secret.into() });
        self
    }

    /// Uses TLS. Needs the feature `tls`.
    ///
    /// If either side refuses the other's certificate, [`connect`](Self::connect) fails at once. The cryptography is that
    /// of `ring`, even if the process has installed another provider.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, options: TlsOptions) -> Self {
        self.settings.tls = Some(Tls::Options(options));
        self
    }

    /// Uses TLS as the caller has configured it, with a type of [`rustls`](crate::rustls): with a verifier, a key or
    /// cryptography of its own. Needs the feature `tls`.
    ///
    /// Whatever it verifies is all that is verified.
    #[cfg(feature = "tls")]
    pub fn tls_config(mut self, config: Arc<rustls::ClientConfig>) -> Self {
        self.settings.tls = Some(Tls::Config(config));
        self
    }

    /// Authenticates each connection by SASL DIGEST-MD5. Needs the feature `sasl`.
    ///
    /// The password is never sent, but the mechanism is old and weak: use it with TLS. With a wrong password
    /// [`connect`](Self::connect) fails at once.
    #[cfg(feature = "sasl")]
    pub fn sasl_digest(mut self, user: impl Into<String>, password: impl Into<Secret>) -> Self {
        self.settings.sasl =
            Some(SaslDigest::User(SaslUser { user: user.into(), password: password.into() }));
        self
    }

    /// As [`sasl_digest`](Self::sasl_digest), with the user of a file that contains `user:password`.
    ///
    /// The file is read again for each connection, so a changed password is used from then on. A file that can't be used is
    /// logged, and the connection uses what was read last. If it was never of use, [`connect`](Self::connect) fails.
    #[cfg(feature = "sasl")]
    pub fn sasl_digest_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.sasl = Some(SaslDigest::File(path.into()));
        self
    }

    /// Reads the files of [`tls`](Self::tls) and [`sasl_digest_file`](Self::sasl_digest_file) by this function, for each
    /// connection: for a program that has the checked contents of the files. By default they are read from the disk. The
    /// function may block.
    #[cfg(any(feature = "tls", feature = "sasl"))]
    pub fn read_files_by(
        mut self,
        read: impl Fn(&Path) -> io::Result<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        self.settings.read_file = crate::settings::ReadFile(Arc::new(read));
        self
    }

    /// Opens connections to servers by this function instead of TCP: through a proxy, or in memory for a test. It gets the
    /// address of a server. TLS is added to what it returns, if it is set.
    pub fn dial_by<S, F>(mut self, dial: impl Fn(SocketAddr) -> F + Send + Sync + 'static) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
    {
        self.settings.dial = Dial(Some(Arc::new(move |server| {
            let dialed = dial(server);
            Box::pin(async move { Ok(Box::new(dialed.await?) as Box<dyn Duplex>) })
        })));
        self
    }

    /// The access list of everything that the session creates: [`Acl::Open`] by default.
    /// [`Session::with_acl`](crate::Session::with_acl) gives another one to single znodes.
    pub fn acl(mut self, acl: Acl) -> Self {
        self.settings.acl = acl;
        self
    }

    /// The maximum size of a request in bytes: the servers' `jute.maxbuffer`, 1,048,575 by default.
    ///
    /// A longer one is refused as [`OpError::Invalid`](crate::OpError::Invalid) before it is sent, because a server closes the connection over it,
    /// with all requests under way.
    pub fn max_request(mut self, bytes: usize) -> Self {
        self.settings.max_request = bytes;
        self
    }

    /// How long an operation may take, waiting for a connection and repetitions included: by default the
    /// [`session_timeout`](Self::session_timeout) that is asked for. An operation of a [`Session`](crate::Session) first waits up to the
    /// same time for an active session. [`Session::with_timeout`](crate::Session::with_timeout) sets another timeout for single operations.
    pub fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.settings.operation_timeout = Some(timeout);
        self
    }

    /// Resumes a session that another process has handed over, or left when it crashed. It keeps the timeout that was
    /// granted to it; later sessions ask for [`session_timeout`](Self::session_timeout).
    ///
    /// Another process that still uses the session loses its connection. Its requests that are under way are not known
    /// here: they may be applied until the first [`barrier`](crate::Session::barrier) of the new process has returned.
    pub fn resume(mut self, ticket: Ticket) -> Self {
        self.resumed = Some(ticket);
        self
    }

    /// Checks the settings, and reads the files of TLS and SASL, as [`connect`](Self::connect) does before it connects. It
    /// blocks while it reads.
    ///
    /// # Errors
    /// [`ConnectError::InvalidSetting`]; [`ConnectError::Tls`] and [`ConnectError::AuthFailed`] for files that can't be used.
    pub fn check(&self) -> Result<(), ConnectError> {
        self.settings.check()?;
        #[cfg(feature = "tls")]
        if let Some(Tls::Options(options)) = &self.settings.tls {
            crate::driver::tls::config(options, &self.settings.read_file)
                .map_err(|reason| ConnectError::Tls { reason })?;
        }
        #[cfg(feature = "sasl")]
        if let Some(SaslDigest::File(path)) = &self.settings.sasl {
            crate::driver::sasl::read(path, &self.settings.read_file)
                .map_err(|reason| ConnectError::AuthFailed { reason })?;
        }
        Ok(())
    }

    /// Closes a session that a process has left behind when it died, so that no client waits for its timeout. The session is
    /// resumed for this request alone: no other one is made, and nothing else is done on it.
    ///
    /// **Only for a process that is certainly dead**, and whose work has ended: a living one loses the session. Servers,
    /// credentials and TLS are those of this builder; the driver does not matter.
    ///
    /// It tries to reach a server for `within_time`. [`CloseOutcome::Sent`] and [`CloseOutcome::Unknown`] are possible, as
    /// they are of [`Session::close`](crate::Session::close): then the session ends by its timeout, if it was not closed.
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

/// What is not compiled in: the compiler names the feature.
#[cfg(not(all(feature = "tls", feature = "sasl")))]
#[doc(hidden)]
#[allow(missing_docs, private_bounds, reason = "they can't be called")]
impl SessionBuilder {
    #[cfg(not(feature = "tls"))]
    pub fn tls_config<T: crate::features::NeedsTls>(self, _config: T) -> Self {
        self
    }

    /// ```compile_fail,E0277
    /// zk_session::Session::builder("zk1").sasl_digest("operator", "hunter2");
    /// ```
    #[cfg(not(feature = "sasl"))]
    pub fn sasl_digest<T: crate::features::NeedsSasl>(self, _user: T, _password: impl Into<Secret>) -> Self {
        self
    }

    #[cfg(not(feature = "sasl"))]
    pub fn sasl_digest_file<T: crate::features::NeedsSasl>(self, _path: T) -> Self {
        self
    }

    #[cfg(not(any(feature = "tls", feature = "sasl")))]
    pub fn read_files_by<T: crate::features::NeedsFiles>(self, _read: T) -> Self {
        self
    }
}
