use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use zk_session::{DriverKind, LeaseTiming};

use super::{
    parse::{HOUR, MILLISECOND, MINUTE, SECOND, Words, choice},
    reader::Section,
    table::{derived, optional, optional_nested, required, table, value},
};
use crate::{checked, host_fault::HostFault, private_file, tls::WITHOUT_TLS};

table! {
    /// `[zookeeper]`: the ensemble and the connection to it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ZooKeeperConfig {
        /// All servers of the ensemble, as host:port, separated by commas. Put one server in a third site:
        /// with two sites, the loss of the site that holds the majority stops all decisions.
        pub connect: String = String::new() => required(
            "the ensemble's servers, such as \"zk1:2181,zk2:2181,zk3:2181\""
        ).applied().set("\"127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183\"").check(|connect: &String| wrong_host(connect));
        /// The servers of `connect` to be used first: those of the own site. Set it in the site's file.
        pub prefer: String = String::new() => derived().applied().example("\"127.0.0.1:2181\"").check(|prefer: &String| wrong_host(prefer));
        /// The servers of each site, written as in `connect`. `dr-worker doctor` and `dr-worker drill check` report whether the
        /// loss of a site loses the majority. A site that has servers but no workers needs a name too.
        pub sites: BTreeMap<String, Vec<String>> = BTreeMap::new() => value().applied().example(
            "{ east = [\"127.0.0.1:2181\"], west = [\"127.0.0.1:2182\"], third = [\"127.0.0.1:2183\"] }"
        );
        /// The AdminServers (HTTP) of the servers, in the order of `connect`, for `dr-worker doctor`.
        /// Default: port 8080 on the hosts of `connect`.
        pub admin: Vec<String> = Vec::new() => value().applied().example(
            "[\"127.0.0.1:8080\", \"127.0.0.1:8081\", \"127.0.0.1:8082\"]"
        );
        /// Parent znode of all elections: /dr/orders, ...
        pub root: String = "/dr".to_owned() => value().worker("the elections of this worker are there").fixed().check(|root: &String| {
            election_core::Paths::new(root, "x").err().map(|wrong| wrong.to_string())
        });
        // Below 1.5 s a session cannot be kept over one lost packet's repetition.
        /// Session timeout. A lost host is replaced after this time, a dead worker on a living host earlier. It must leave
        /// room to stop the job: `config check` reports what is missing.
        pub session_timeout: Duration = 10 * SECOND => value().within(1500 * MILLISECOND..=10 * MINUTE);
        /// How long `run` tries to connect before it exits with code 69. Later connection losses never end it.
        pub connect_timeout: Duration = 15 * SECOND => value().within(100 * MILLISECOND..=HOUR);
        /// tickTime in the servers' zoo.cfg. A value that is too small makes the lease unsafe.
        pub tick_time: Duration = 2 * SECOND => value().within(10 * MILLISECOND..=MINUTE);
        /// Client: "native", the driver of zk-session, or "zookeeper-async", the crate of that name.
        pub driver: DriverKind = DriverKind::default() => value();
        /// Credentials.
        pub auth: Option<Auth> = None => optional_nested(Auth::default());
        /// TLS to the servers. All files are PEM, and are read again for each connection; the last good ones stay in use while
        /// they can't be read.
        pub tls: Option<ZooKeeperTls> = None => optional_nested(ZooKeeperTls::default());
        /// Access to the znodes that this program creates: "creator" (the same credentials) or "open".
        /// Default: "creator" with credentials or a client certificate, else "open". Existing znodes keep their access lists.
        pub acl: ZooKeeperAccess = ZooKeeperAccess::Open => derived().example("\"creator\"");
        /// What `dr-worker config push` may change on this node. It writes to ZooKeeper, and so may everyone who has access to the
        /// znodes. "safe": the policy, load, restart, exit_codes.not_here, stop_timeout, planned_stop_timeout and limits of a job;
        /// "all": also exit_codes.stay_down, and what makes the node run a program, such as command, env, hooks and checks; "off":
        /// nothing. See docs/configuration.md.
        pub overlay: Overlays = Overlays::Safe => value().handover();
    }
    check ZooKeeperConfig::check;
}

impl ZooKeeperConfig {
    /// The timing of leases, if the servers grant what is asked for.
    pub fn lease(&self) -> LeaseTiming {
        LeaseTiming { session_timeout: self.session_timeout, tick_time: self.tick_time }
    }

    /// The servers, as in `connect`.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.connect.split(',').map(str::trim)
    }

    /// What is wrong with credentials that cross the network as they are; `None` if none do.
    pub(crate) fn plain_password(&self) -> Option<&'static str> {
        let is_sent = self.auth.as_ref().is_some_and(|auth| auth.scheme == Scheme::Digest);
        (is_sent && self.tls.is_none() && !self.servers().all(is_loopback)).then_some(
            "the password of zookeeper.auth is sent in plain text; set zookeeper.tls, or the scheme \"sasl\", which does \
             not send it",
        )
    }

    /// Whether this worker authenticates itself to the servers.
    pub fn has_credentials(&self) -> bool {
        self.auth.is_some() || self.tls.as_ref().is_some_and(|tls| tls.cert_file.is_some())
    }
}

/// Whether a server, such as `[::1]:2181`, is on this host.
fn is_loopback(server: &str) -> bool {
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host).trim_matches(['[', ']']);
    host.parse().map_or(host == "localhost", |ip: IpAddr| ip.is_loopback())
}

choice! {
    /// Access to the znodes that the worker and the commands create.
    pub enum ZooKeeperAccess {
        /// Clients with the same credentials may do anything, others nothing.
        Creator = "creator",
        /// Every client may do anything.
        Open = "open",
    }
}

choice! {
    /// What overlays may change on this node.
    pub enum Overlays {
        /// Nothing.
        Off = "off",
        /// What can't make the node run another program.
        Safe = "safe",
        /// Also the program, its environment, hooks and checks.
        All = "all",
    }
}

impl Words for DriverKind {
    const WORDS: &[(&str, Self)] = &[("native", Self::Native), ("zookeeper-async", Self::ZookeeperAsync)];
}

table! {
    /// `[zookeeper.auth]`.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Auth {
        /// "digest", or "sasl" (DIGEST-MD5, which does not send the password, and reads the file for each connection).
        pub scheme: Scheme = Scheme::Digest => value();
        /// A file that holds user:password, readable by its owner, and by its group if you allow that.
        pub credentials_file: PathBuf = PathBuf::new() => required(
            "the path of a file that holds \"user:password\""
        ).example("\"/etc/dr-worker/zookeeper.credentials\"");
    }
}

table! {
    /// `[zookeeper.tls]`.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ZooKeeperTls {
        /// The certificates of the authorities that sign the servers' certificates.
        pub ca_file: PathBuf = PathBuf::new() => required(
            "the certificates of those that may sign the servers', as PEM"
        ).example("\"/etc/dr-worker/ca.pem\"");
        /// The client certificate, where the servers ask for one.
        pub cert_file: Option<PathBuf> = None => optional().example("\"/etc/dr-worker/client.pem\"");
        /// Its key.
        pub key_file: Option<PathBuf> = None => optional().example("\"/etc/dr-worker/client.key\"");
    }
    check check_pair;
}

fn check_pair(tls: &mut ZooKeeperTls, section: &mut Section<'_>) {
    if tls.cert_file.is_some() != tls.key_file.is_some() {
        let (there, missing) =
            if tls.cert_file.is_some() { ("cert_file", "key_file") } else { ("key_file", "cert_file") };
        section.problem(there, format!("{missing} is missing: a certificate and its key belong together"));
    }
}

choice! {
    /// A scheme of credentials.
    #[derive(Serialize, Deserialize)]
    pub enum Scheme {
        /// `user:password`, in the file as plain text.
        Digest = "digest",
        /// The same, by SASL DIGEST-MD5: the password is not sent.
        Sasl = "sasl",
    }
}

/// The key of [`Auth::credentials_file`].
pub(crate) const CREDENTIALS: &str = "zookeeper.auth.credentials_file";

impl Auth {
    /// User and password, as the file is now.
    ///
    /// # Errors
    /// Why it can't be used, without its contents.
    pub(crate) fn read(&self) -> Result<(String, String), HostFault> {
        let (file, path) = (&self.credentials_file, self.credentials_file.display());
        if fs::metadata(file).is_ok_and(|metadata| private_file::is_open(&metadata)) {
            tracing::warn!(
                "{CREDENTIALS}: other users can use {path}; give it the worker's group, and run chmod 640 on it"
            );
        }
        let text =
            String::from_utf8(content(file)?).map_err(|_| format!("{path} must contain user:password"))?;
        let text = text.trim_end_matches(['\r', '\n']);
        // The content of the file must not be shown.
        match text.split_once(':') {
            Some((user, password)) if !user.is_empty() && !password.is_empty() => {
                Ok((user.to_owned(), password.to_owned()))
            }
            _ => Err(format!("{path} must contain user:password").into()),
        }
    }
}

/// The first of these files that can't be read, with its key.
pub(crate) fn unreadable(tls: &ZooKeeperTls) -> Option<(&'static str, HostFault)> {
    let files = [
        ("zookeeper.tls.ca_file", Some(&tls.ca_file)),
        ("zookeeper.tls.cert_file", tls.cert_file.as_ref()),
        ("zookeeper.tls.key_file", tls.key_file.as_ref()),
    ];
    files.into_iter().find_map(|(key, path)| Some((key, content(path?).err()?)))
}

/// The content of a file that a key names.
///
/// # Errors
/// Why it can't be read.
pub(super) fn content(path: &Path) -> Result<Vec<u8>, HostFault> {
    checked::read(path, || fs::read(path)).map_err(|error| HostFault::io(path, " can't be read", &error))
}

impl ZooKeeperConfig {
    fn check(&mut self, section: &mut Section<'_>) {
        if cfg!(not(feature = "tls")) && section.has("tls") {
            section.problem("tls", WITHOUT_TLS);
        }
        if section.has("connect") && section.is_sound("connect") {
            let connect = &self.connect;
            let prefer = Some(&self.prefer).filter(|prefer| !prefer.is_empty());
            let all = [
                ("prefer", prefer.and_then(|prefer| not_among(prefer, connect))),
                ("sites", wrong_sites(&self.sites, connect)),
                ("admin", wrong_admin(&self.admin, connect)),
            ];
            for (key, wrong) in all.into_iter().filter_map(|(key, wrong)| Some((key, wrong?))) {
                section.problem(key, wrong);
            }
        }
        let has_credentials = self.has_credentials();
        if !section.has("acl") {
            self.acl = if has_credentials { ZooKeeperAccess::Creator } else { ZooKeeperAccess::Open };
        }
        section.show_unless_set("acl", &self.acl);
        if self.acl == ZooKeeperAccess::Creator && !has_credentials {
            section.problem(
                "acl",
                "\"creator\" needs credentials that identify the creator to the servers: set [zookeeper.auth], or \
                 cert_file and key_file in [zookeeper.tls]; or choose \"open\"",
            );
        }
    }
}

/// The problem of preferred servers that are not in the list of all servers, if there is one.
fn not_among(prefer: &str, connect: &str) -> Option<String> {
    let is_known = |server: &str| connect.split(',').any(|known| known.trim() == server);
    let unknown = prefer.split(',').map(str::trim).find(|server| !is_known(server))?;
    Some(format!("{unknown:?} is not in zookeeper.connect; write it as it is there"))
}

/// The problem of the servers of sites, if there is one.
fn wrong_sites(sites: &BTreeMap<String, Vec<String>>, connect: &str) -> Option<String> {
    let mut seen = BTreeSet::new();
    for (site, servers) in sites {
        if let Err(wrong) = election_core::config::SiteId::new(site.as_str()) {
            return Some(format!("{site:?}: {wrong}"));
        }
        for server in servers {
            if let Some(wrong) = not_among(server, connect) {
                return Some(wrong);
            }
            if !seen.insert(server) {
                return Some(format!("{server:?} is listed twice; a server belongs to one site"));
            }
        }
    }
    None
}

/// The problem of a list of AdminServers, if there is one.
fn wrong_admin(admin: &[String], connect: &str) -> Option<String> {
    let (servers, given) = (connect.split(',').count(), admin.len());
    if given != 0 && given != servers {
        return Some(format!(
            "it has {given} addresses, and connect has {servers} servers; give one for each, in that order"
        ));
    }
    admin.iter().find_map(|address| wrong_host(address))
}

/// The problem of a list of servers, if there is one.
fn wrong_host(connect: &str) -> Option<String> {
    if connect.contains('/') {
        return Some(format!(
            "{connect:?} contains a path; list servers only, and put the path into zookeeper.root"
        ));
    }
    connect.split(',').map(str::trim).find_map(|server| {
        let port = server.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        match port {
            None => Some(format!("{server:?} is not a host:port, such as \"zk1:2181\"")),
            Some((_, port)) if port.parse::<u16>().is_ok_and(|port| port > 0) => {
                zk_session::check_connect(server).err().map(|wrong| wrong.to_string())
            }
            Some((_, port)) => Some(format!("{port:?} in {server:?} is not a port; 1 to 65535 is valid")),
        }
    })
}
