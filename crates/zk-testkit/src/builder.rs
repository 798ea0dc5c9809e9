//! The settings of an ensemble, and how it is started.

use std::fmt::{Debug, Write as _};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::error::Context as _;
use crate::links::Links;
use crate::ports::{PortReservation, is_free};
use crate::reaper::Reaper;
use crate::server::{Launch, Ports, Server};
use crate::{Ensemble, Error, Host, Installation, Network};

/// Ports for each server: clients, the quorum, the election of its leader.
const PORTS_EACH: usize = 3;
/// How many sets of ports are tried before giving up.
const ATTEMPTS: usize = 5;
/// A server on a host of its own has ZooKeeper's usual ports.
const USUAL_PORTS: [u16; PORTS_EACH] = [2181, 2888, 3888];
/// That of the AdminServer.
const USUAL_ADMIN_PORT: u16 = 8080;
/// The keys of the client port in `zoo.cfg`, without TLS and with it.
const CLIENT_PORT: &str = "clientPort";
const SECURE_CLIENT_PORT: &str = "secureClientPort";
/// The second lets a session create ephemerals, by which it becomes one like any other.
const LOCAL_SESSIONS: [&str; 2] = ["localSessionsEnabled", "localSessionsUpgradingEnabled"];
/// The log level of the servers unless `ZK_TESTKIT_LOG` is set.
const LOG_LEVEL: &str = "warn";
/// For releases of ZooKeeper that log through logback, which would write
/// everything without a configuration.
const LOGBACK: &str = r#"<configuration>
  <appender name="stderr" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%d{HH:mm:ss.SSS} [%t] %-5p %c{1} - %m%n</pattern></encoder>
  </appender>
  <root level="LEVEL"><appender-ref ref="stderr"/></root>
</configuration>
"#;

/// Settings of an [`Ensemble`].
///
/// The defaults suit tests that should be quick: ticks of 500 ms, so sessions
/// from 1 s to 10 s (ZooKeeper grants 2 to 20 ticks), `syncLimit` 10 (5 s),
/// `initLimit` 20 (10 s), no `fsync` (killing a server loses nothing by that;
/// only a power cut would), files in a temporary directory that is removed.
///
/// The servers log warnings; the environment variable `ZK_TESTKIT_LOG` takes
/// another level (`info`, `debug`).
#[derive(Debug, Clone)]
#[must_use]
#[non_exhaustive]
pub struct EnsembleBuilder {
    /// The number of servers; 1 is a standalone server. Default 3.
    pub servers: usize,
    /// `tickTime`. Default 500 ms. Sessions are expired on multiples of it.
    pub tick_time: Duration,
    /// `initLimit`, in ticks. Default 20.
    pub init_limit: u32,
    /// `syncLimit`, in ticks: how long a follower without contact to its leader serves. Default 10.
    pub sync_limit: u32,
    /// The shortest and the longest session timeout that is granted. Default:
    /// ZooKeeper's own, 2 and 20 ticks.
    pub session_timeouts: Option<(Duration, Duration)>,
    /// Fixed ports: with `n` servers, clients connect to `base` .. `base + n - 1`,
    /// the servers use the `2 n` ports after those among themselves. Default:
    /// free ones.
    pub base_port: Option<u16>,
    /// The directory for all files; created if necessary, never removed. Existing data is used. Default: a
    /// temporary directory, removed at the end.
    pub dir: Option<PathBuf>,
    /// Keep the temporary directory after the end, to read the logs.
    pub keep: bool,
    /// Keep the servers running after this value and this process have ended, once they serve. Needs
    /// [`dir`](Self::dir); [`Ensemble::attach`] attaches to them again.
    pub detached: bool,
    /// How often containers without children and znodes past their time to live are removed. Default:
    /// ZooKeeper's own, 60 s.
    pub container_check: Option<Duration>,
    /// The number of observers among the servers, the last ones: they serve, and have no vote. At least two
    /// others are needed. Default 0.
    pub observers: usize,
    /// Run the AdminServer of each server: HTTP at [`Server::admin_address`], one port more for each server. Debian's
    /// package of ZooKeeper brings what it needs. Default false.
    pub admin_server: bool,
    /// Accept clients by TLS only: on the port of [`Ensemble::addresses`], and no other. The files are in a
    /// format of the servers, such as PEM: the server's key with its certificate, and the authorities of the
    /// accepted clients. Any `ssl.` line of `zoo.cfg` is a [`setting`](Self::setting), such as
    /// `ssl.clientAuth=none`.
    pub tls_only: Option<[PathBuf; 2]>,
    /// `enableEagerACLCheck`: the server of a client refuses what an access list forbids by itself, before it
    /// asks the ensemble's leader, and also when it can't ask. Default false.
    pub eager_acl_check: bool,
    /// `extendedTypesEnabled`: znodes may have a time to live. Default false, unlike that of
    /// [`TestServerBuilder::ttl_nodes`](crate::TestServerBuilder::ttl_nodes).
    pub ttl_nodes: bool,
    /// Only the server on which a session was made knows it, until it creates an ephemeral:
    /// `localSessionsEnabled` and `localSessionsUpgradingEnabled`. Default false.
    pub local_sessions: bool,
    /// `readonlymode.enabled`: a server without a quorum serves reads to clients that accept it, in
    /// [`Mode::ReadOnly`](crate::Mode::ReadOnly). It can make only local sessions for them, so this implies
    /// [`local_sessions`](Self::local_sessions). Default false.
    pub read_only_mode: bool,
    /// Let the servers reach each other through proxies, so that
    /// [`isolate`](crate::EnsembleFaults::isolate) can cut one off. The proxies work on the tokio runtime
    /// that starts the ensemble, and end with it. Default false.
    pub breakable_links: bool,
    /// Give each server a network namespace with an address of its own, so that
    /// [`isolate`](crate::EnsembleFaults::isolate) and [`unplug`](crate::EnsembleFaults::unplug) cut off any of
    /// them, the leader too, as a broken network does: packets are dropped silently. Clients in this process
    /// reach the servers by [`Ensemble::connect_string`] as always. Other programs get a host of that network
    /// by [`Ensemble::network`]. Default false.
    ///
    /// Needs root, `ip` and `iptables-restore`: see [`Network`].
    pub in_namespaces: bool,
    /// The time for starting. Default 60 s; an idle machine needs one or two.
    pub start_within: Duration,
    settings: Vec<(String, String)>,
    jvm_flags: Vec<String>,
}

/// The file with the flags of the Java runtime, one a line, for [`Ensemble::attach`].
const JVM_FLAGS: &str = "jvm-flags";
/// Names the file of an archive of the servers' classes.
const CLASSES: &str = "ZK_TESTKIT_CLASSES";

impl Ensemble {
    /// Starts that many servers with the defaults of [`EnsembleBuilder`] and waits until
    /// each of them serves.
    ///
    /// # Errors
    /// What is missing on this machine, or which server did not start and the end of its log.
    ///
    /// # Cancel safety
    /// Dropping the future ends the servers that were started.
    pub async fn start(servers: usize) -> Result<Self, Error> {
        Self::builder().servers(servers).start().await
    }

    /// Everything that can be chosen.
    pub fn builder() -> EnsembleBuilder {
        EnsembleBuilder::new()
    }

    /// Takes over an ensemble that was started [`detached`](EnsembleBuilder::detached),
    /// by its directory. Dropping the value leaves the servers alone; see
    /// [`end`](Self::end). A server that is started again has the settings of its first start.
    ///
    /// # Errors
    /// [`Error::NoEnsemble`] if the directory holds none; the errors of
    /// [`Installation::find`](crate::Installation::find).
    pub fn attach(dir: impl AsRef<Path>) -> Result<Self, Error> {
        EnsembleBuilder::new().attach(dir.as_ref())
    }
}

impl EnsembleBuilder {
    fn new() -> Self {
        Self {
            servers: 3,
            tick_time: Duration::from_millis(500),
            init_limit: 20,
            sync_limit: 10,
            session_timeouts: None,
            base_port: None,
            dir: None,
            keep: false,
            detached: false,
            container_check: None,
            observers: 0,
            admin_server: false,
            tls_only: None,
            eager_acl_check: false,
            ttl_nodes: false,
            local_sessions: false,
            read_only_mode: false,
            breakable_links: false,
            in_namespaces: false,
            start_within: Duration::from_secs(60),
            settings: Vec::new(),
            jvm_flags: Vec::new(),
        }
    }

    /// The same with other settings.
    pub fn with(mut self, set: impl FnOnce(&mut Self)) -> Self {
        set(&mut self);
        self
    }

    /// Sets the number of [`servers`](field@Self::servers).
    pub fn servers(self, servers: usize) -> Self {
        Self { servers, ..self }
    }

    /// Sets the [`tick_time`](field@Self::tick_time).
    pub fn tick_time(self, tick_time: Duration) -> Self {
        Self { tick_time, ..self }
    }

    /// Sets the [`sync_limit`](field@Self::sync_limit).
    pub fn sync_limit(self, sync_limit: u32) -> Self {
        Self { sync_limit, ..self }
    }

    /// Sets the [`session_timeouts`](field@Self::session_timeouts).
    pub fn session_timeouts(self, min: Duration, max: Duration) -> Self {
        Self { session_timeouts: Some((min, max)), ..self }
    }

    /// Sets [`in_namespaces`](field@Self::in_namespaces).
    pub fn in_namespaces(self, in_namespaces: bool) -> Self {
        Self { in_namespaces, ..self }
    }

    /// Any other line of `zoo.cfg`; it comes last and takes precedence.
    pub fn setting(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((key.into(), value.into()));
        self
    }

    /// Any other flag for the Java runtime, such as `-Dzookeeper.snapCount=100`; it comes last and takes
    /// precedence. `-Dzookeeper.forceSync=yes` forces transactions to the disk, as in production.
    pub fn jvm_flag(mut self, flag: impl Into<String>) -> Self {
        self.jvm_flags.push(flag.into());
        self
    }

    /// Starts the servers and waits until each of them serves.
    /// Ports that another process takes at the last moment are replaced by others, unless they were fixed by
    /// [`base_port`](Self::base_port).
    ///
    /// # Errors
    /// What is missing on this machine, which setting is invalid, which port is taken, or which server did not
    /// start and the end of its log.
    ///
    /// # Cancel safety
    /// Dropping the future ends the servers that were started.
    pub async fn start(self) -> Result<Ensemble, Error> {
        self.check()?;
        let installation = Installation::find()?;
        let mut attempt = 1;
        loop {
            let mut ensemble = self.assemble(installation.clone()).await?;
            ensemble.spawn_all()?;
            match ensemble.wait_serving(self.start_within).await {
                Ok(()) => {
                    if self.detached {
                        ensemble.leave_running();
                    }
                    return Ok(ensemble);
                }
                // Another process took a port between the check and the start.
                Err(_) if attempt < ATTEMPTS && self.lost_port(&ensemble) => {
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Attaches to an earlier ensemble, by its files.
    fn attach(self, dir: &Path) -> Result<Ensemble, Error> {
        let dir = dir
            .canonicalize()
            .map_err(|error| Error::NoEnsemble { dir: dir.to_path_buf(), reason: error.to_string() })?;
        let mut servers = Vec::new();
        loop {
            let config = dir.join(format!("server-{}/zoo.cfg", servers.len()));
            let Ok(text) = std::fs::read_to_string(&config) else { break };
            let ports = ports_in(&text, servers.len()).ok_or_else(|| Error::NoEnsemble {
                dir: dir.clone(),
                reason: format!("no ports in {}", config.display()),
            })?;
            let server = Server::new(servers.len(), &dir, ports, None);
            server.adopt();
            servers.push(server);
        }
        if servers.is_empty() {
            return Err(Error::NoEnsemble { reason: "there is no server-0/zoo.cfg".to_owned(), dir });
        }
        let mut launch = self.launch(Installation::find()?, &dir)?;
        // An earlier release of this crate has not written them.
        if let Ok(flags) = std::fs::read_to_string(dir.join(JVM_FLAGS)) {
            launch.jvm_flags = flags.lines().map(str::to_owned).collect();
        }
        Ok(Ensemble {
            servers,
            launch,
            start_within: self.start_within,
            ends_servers: false,
            _reaper: None,
            dir,
            links: None,
            _temporary: None,
            _ports: None,
            network: None,
        })
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |what: &str| Err(Error::Settings(what.to_owned()));
        check_common(self.servers, self.tick_time, self.session_timeouts, self.base_port, self.ports_each())?;
        check_range("init_limit", self.init_limit, 1..=MOST_TICKS)?;
        check_range("sync_limit", self.sync_limit, 1..=MOST_TICKS)?;
        check_range("start_within", self.start_within, LEAST..=MOST)?;
        if let Some(every) = self.container_check {
            check_range("container_check", every, LEAST..=MOST)?;
        }
        if self.detached && self.breakable_links {
            return refuse(
                "detached can't be combined with breakable_links: the servers would outlive their proxies",
            );
        }
        if self.in_namespaces && (self.detached || self.breakable_links || self.base_port.is_some()) {
            return refuse(
                "in_namespaces can't be combined with detached (the namespaces end with this process), \
                 breakable_links (the links are breakable anyway) or base_port (each server has its own address)",
            );
        }
        if self.detached && self.dir.is_none() {
            return refuse("detached needs dir, to find the servers again");
        }
        if self.detached && self.tls_only.is_some() {
            return refuse("detached can't be combined with tls_only: the servers are checked in plain text");
        }
        if self.observers > 0 && self.servers < self.observers.saturating_add(2) {
            return refuse("observers need at least two servers that are not observers");
        }
        Ok(())
    }

    fn ports_each(&self) -> usize {
        PORTS_EACH + usize::from(self.admin_server)
    }

    async fn assemble(&self, installation: Installation) -> Result<Ensemble, Error> {
        let (dir, temporary) = self.directory()?;
        self.refuse_running(&dir)?;
        let network = if self.in_namespaces { Some(Network::new()?) } else { None };
        let mut hosts = Vec::new();
        for _ in 0..self.servers {
            hosts.push(network.as_ref().map(Network::host).transpose()?);
        }
        let (ports, reservation) = match &network {
            Some(_) => {
                (hosts.iter().flatten().map(|host| usual_ports(host, self.admin_server)).collect(), None)
            }
            None => self.choose_ports()?,
        };
        let servers: Vec<Server> = hosts
            .into_iter()
            .zip(&ports)
            .enumerate()
            .map(|(index, (host, ports))| Server::new(index, &dir, *ports, host))
            .collect();
        let launch = self.launch(installation, &dir)?;
        let flags = dir.join(JVM_FLAGS);
        std::fs::write(&flags, launch.jvm_flags.join("\n"))
            .context(|| format!("cannot write {}", flags.display()))?;
        let links = if self.breakable_links { Some(Links::between(&ports).await?) } else { None };
        for server in &servers {
            server.write_config(&self.config(server, &ports, links.as_ref()))?;
        }
        forget_others(&dir, servers.len())?;
        // A kept directory stays, and so does the caller's own.
        let keep_files = self.keep || temporary.is_none();
        let reaper = if self.detached { None } else { Some(Reaper::start(&dir, keep_files)?) };
        Ok(Ensemble {
            servers,
            launch,
            start_within: self.start_within,
            ends_servers: true,
            _reaper: reaper,
            dir,
            links,
            _temporary: temporary,
            _ports: reservation,
            network,
        })
    }

    /// Before the ports are checked, which those servers would occupy.
    fn refuse_running(&self, dir: &Path) -> Result<(), Error> {
        for index in 0..self.servers {
            let server = Server::new(index, dir, Ports::NONE, None);
            server.adopt();
            if let Some(pid) = server.pid() {
                return Err(Error::AlreadyRunning { server: index, pid });
            }
        }
        Ok(())
    }

    fn directory(&self) -> Result<(PathBuf, Option<TempDir>), Error> {
        if let Some(dir) = &self.dir {
            std::fs::create_dir_all(dir).context(|| format!("cannot create {}", dir.display()))?;
            return Ok((absolute(dir)?, None));
        }
        let temporary = tempfile::Builder::new()
            .prefix("zk-testkit-")
            .disable_cleanup(self.keep)
            .tempdir()
            .context(|| "cannot create a temporary directory".to_owned())?;
        Ok((absolute(temporary.path())?, Some(temporary)))
    }

    fn choose_ports(&self) -> Result<(Vec<Ports>, Option<PortReservation>), Error> {
        let count = self.ports_each() * self.servers;
        if let Some(base) = self.base_port {
            let ports: Vec<u16> = (base..=u16::MAX).take(count).collect();
            if let Some(taken) = ports.iter().find(|port| !is_free(**port)) {
                return Err(Error::Ports(format!(
                    "port {taken} on 127.0.0.1 is in use; with base port {base}, {} servers need \
                     {base} to {}: end the process that listens there, or use another base port",
                    self.servers,
                    usize::from(base) + count - 1
                )));
            }
            return Ok((self.lay_out(&ports), None));
        }
        let reservation = PortReservation::take(count)?;
        Ok((self.lay_out(reservation.ports()), Some(reservation)))
    }

    fn lay_out(&self, ports: &[u16]) -> Vec<Ports> {
        let n = self.servers;
        (0..n)
            .map(|index| Ports {
                ip: Ipv4Addr::LOCALHOST,
                client: ports[index],
                quorum: ports[n + 2 * index],
                election: ports[n + 2 * index + 1],
                admin: if self.admin_server { ports[PORTS_EACH * n + index] } else { 0 },
            })
            .collect()
    }

    /// Whether a server failed because its port was taken, and other ports may work.
    fn lost_port(&self, ensemble: &Ensemble) -> bool {
        self.base_port.is_none()
            && ensemble.servers().iter().any(|server| {
                let log = std::fs::read(server.log()).unwrap_or_default();
                let log = String::from_utf8_lossy(&log);
                log.contains("BindException") || log.contains("Address already in use")
            })
    }

    fn launch(&self, installation: Installation, dir: &Path) -> Result<Launch, Error> {
        let log_level = std::env::var("ZK_TESTKIT_LOG").unwrap_or_else(|_| LOG_LEVEL.to_owned());
        let logback = dir.join("logback.xml");
        std::fs::write(&logback, LOGBACK.replace("LEVEL", &log_level))
            .context(|| format!("cannot write {}", logback.display()))?;
        let tls = self.tls_only.is_some().then(|| {
            let of_tls = self.tls_settings().into_iter().chain(self.settings.clone());
            of_tls.filter(|(key, _)| key.starts_with("ssl.")).collect()
        });
        let check = self.container_check.map(|every| every.as_millis());
        let check = check.map(|every| format!("-Dznode.container.checkIntervalMs={every}"));
        let switches = [
            (self.eager_acl_check, "-Dzookeeper.enableEagerACLCheck=true"),
            (self.ttl_nodes, "-Dzookeeper.extendedTypesEnabled=true"),
            (self.read_only_mode, "-Dreadonlymode.enabled=true"),
        ];
        let on = switches.into_iter().filter(|(is_on, _)| *is_on).map(|(_, flag)| flag.to_owned());
        // Java does without an archive that is not of these classes, or of its version.
        let classes = std::env::var(CLASSES).ok().map(|file| format!("-XX:SharedArchiveFile={file}"));
        let flags = check.into_iter().chain(on).chain(classes);
        let jvm_flags = flags.chain(self.jvm_flags.iter().cloned()).collect();
        Ok(Launch { installation, jvm_flags, log_level, logback, tls })
    }

    fn tls_settings(&self) -> Vec<(String, String)> {
        let Some([key_store, trust_store]) = &self.tls_only else { return Vec::new() };
        let line = |key: &str, value: String| (key.to_owned(), value);
        vec![
            line("serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned()),
            line("ssl.keyStore.location", key_store.display().to_string()),
            line("ssl.trustStore.location", trust_store.display().to_string()),
        ]
    }

    fn config(&self, server: &Server, all: &[Ports], links: Option<&Links>) -> String {
        let mut text = String::new();
        let mut line = |key: &str, value: &dyn std::fmt::Display| {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{key}={value}");
        };
        line("tickTime", &self.tick_time.as_millis());
        line("initLimit", &self.init_limit);
        line("syncLimit", &self.sync_limit);
        line("dataDir", &server.dir().join("data").display());
        let client_port = if self.tls_only.is_some() { SECURE_CLIENT_PORT } else { CLIENT_PORT };
        line(client_port, &server.ports().client);
        line(&format!("{client_port}Address"), &server.ports().ip);
        line("maxClientCnxns", &0);
        if let Some(admin) = server.admin_address() {
            line("admin.enableServer", &true);
            line("admin.serverAddress", &admin.ip());
            line("admin.serverPort", &admin.port());
        }
        if let Some((min, max)) = self.session_timeouts {
            line("minSessionTimeout", &min.as_millis());
            line("maxSessionTimeout", &max.as_millis());
        }
        if all.len() > 1 {
            for (index, ports) in all.iter().enumerate() {
                let detour = links.and_then(|links| links.port(server.index(), index));
                let quorum = detour.unwrap_or(ports.quorum);
                let key = format!("server.{}", index + 1);
                let observes = index + self.observers >= all.len();
                let role = if observes { ":observer" } else { "" };
                line(&key, &format!("{}:{quorum}:{}{role}", ports.ip, ports.election));
                if observes && index == server.index() {
                    line("peerType", &"observer");
                }
            }
        }
        if self.local_sessions || self.read_only_mode {
            LOCAL_SESSIONS.iter().for_each(|key| line(key, &true));
        }
        for (key, value) in self.tls_settings().iter().chain(&self.settings) {
            line(key, value);
        }
        text
    }
}

/// No duration of a server is shorter: it counts milliseconds.
pub(crate) const LEAST: Duration = Duration::from_millis(1);
/// No test takes longer, and a server counts milliseconds in 31 bits.
pub(crate) const MOST: Duration = Duration::from_secs(24 * 60 * 60);
/// So many ticks are no longer than that. ZooKeeper's longest session timeout is 20 ticks.
const MOST_TICK: Duration = Duration::from_secs(60);
pub(crate) const MOST_TICKS: u32 = 1440;

/// Checks a setting.
pub(crate) fn check_range<T: PartialOrd + Debug>(
    name: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), Error> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    Err(Error::Settings(format!("{name} is {value:?}: it must be from {least:?} to {most:?}")))
}

/// Checks the settings that both kinds of servers have.
pub(crate) fn check_common(
    servers: usize,
    tick: Duration,
    session_timeouts: Option<(Duration, Duration)>,
    base_port: Option<u16>,
    ports_each: usize,
) -> Result<(), Error> {
    let refuse = |what: String| Err(Error::Settings(what));
    check_range("servers", servers, 1..=9)?;
    check_range("tick_time", tick, 2 * LEAST..=MOST_TICK)?;
    if let Some((min, max)) = session_timeouts {
        check_range("the shortest of session_timeouts", min, LEAST..=MOST)?;
        check_range("the longest of session_timeouts", max, min..=MOST)?;
    }
    let ports = ports_each * servers;
    if let Some(base) = base_port
        && (base == 0 || usize::from(base) + ports > 65_536)
    {
        return refuse(format!(
            "base_port {base}: {servers} servers need {ports} ports from there on, within 1..65535"
        ));
    }
    Ok(())
}

fn usual_ports(host: &Host, with_admin: bool) -> Ports {
    let [client, quorum, election] = USUAL_PORTS;
    Ports { ip: host.ip(), client, quorum, election, admin: if with_admin { USUAL_ADMIN_PORT } else { 0 } }
}

/// An earlier ensemble in the same directory may have had more servers.
fn forget_others(dir: &Path, servers: usize) -> Result<(), Error> {
    for index in servers.. {
        let config = dir.join(format!("server-{index}/zoo.cfg"));
        if !config.exists() {
            break;
        }
        std::fs::remove_file(&config).context(|| format!("cannot remove {}", config.display()))?;
    }
    Ok(())
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    path.canonicalize().context(|| format!("cannot resolve {}", path.display()))
}

/// Reads a server's ports back from its configuration.
fn ports_in(config: &str, index: usize) -> Option<Ports> {
    let value = |key: &str| {
        config.lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            (name == key).then_some(value)
        })
    };
    let client = value("clientPort")?.parse().ok()?;
    let ip = value("clientPortAddress")?.parse().ok()?;
    let admin = value("admin.serverPort").and_then(|port| port.parse().ok()).unwrap_or(0);
    let Some(peer) = value(&format!("server.{}", index + 1)) else {
        return Some(Ports { ip, client, quorum: 0, election: 0, admin });
    };
    let mut parts = peer.split(':').skip(1);
    let (quorum, election) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(Ports { ip, client, quorum, election, admin })
}
