use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::IpAddr,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use zk_session::{DriverKind, LeaseTiming, TlsOptions};

use super::{
    parse::{Mismatch, Parse, choice, unknown_word},
    reader::Section,
    tree::Node,
};
use crate::{checked, host_fault::HostFault};

/// `[zookeeper]`: the ensemble and the connection to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZooKeeperConfig {
    /// `host:port`, separated by commas.
    pub connect: String,
    /// The servers to be used first, as in `connect`; may be empty.
    pub prefer: String,
    /// The servers of each site, as in `connect`; may be empty.
    pub sites: BTreeMap<String, Vec<String>>,
    /// The addresses of the servers' AdminServers, in the order of `connect`; empty for the usual ones.
    pub admin: Vec<String>,
    /// The znode under which all elections lie.
    pub root: String,
    /// The session timeout to ask for. The one that the servers grant counts.
    pub session_timeout: Duration,
    /// How long the first connection may take.
    pub connect_timeout: Duration,
    /// The servers' tickTime.
    pub tick_time: Duration,
    /// The client.
    pub driver: DriverKind,
    /// Credentials, if the ensemble asks for them.
    pub auth: Option<Auth>,
    /// Certificates, if the ensemble speaks TLS.
    pub tls: Option<TlsOptions>,
    /// Access to the znodes that the worker and the commands create.
    pub acl: Access,
    /// What overlays may change.
    pub overlay: Overlays,
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
        has_credentials(self.auth.as_ref(), self.tls.as_ref())
    }
}

/// Whether a server, such as `[::1]:2181`, is on this host.
fn is_loopback(server: &str) -> bool {
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host).trim_matches(['[', ']']);
    host.parse().map_or(host == "localhost", |ip: IpAddr| ip.is_loopback())
}

fn has_credentials(auth: Option<&Auth>, tls: Option<&TlsOptions>) -> bool {
    auth.is_some() || tls.is_some_and(|tls| tls.cert_file.is_some())
}

choice! {
    /// Access to the znodes that the worker and the commands create.
    pub enum Access {
        /// Clients with the same credentials may do anything, others nothing.
        Creator = "creator",
        /// Every client may do anything.
        Open = "open",
    }
    later: []
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
    later: []
}

impl Parse for DriverKind {
    fn parse(node: &Node) -> Result<Self, Mismatch> {
        let word = String::parse(node)?;
        word.parse().map_err(|_| unknown_word(&word, &Self::ALL.map(|kind| kind.to_string()), &[]))
    }

    fn show(&self) -> String {
        self.to_string().show()
    }

    #[cfg(test)]
    fn schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "enum": Self::ALL.map(|kind| kind.to_string()) })
    }
}

/// `[zookeeper.auth]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auth {
    /// The scheme of the credentials.
    pub scheme: Scheme,
    /// The file that holds them; never the credentials themselves.
    pub credentials_file: PathBuf,
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
    later: ["x509", "ip"]
}

/// ZooKeeper's own default for tickTime.
const TICK: Duration = Duration::from_secs(2);

/// The key of [`Auth::credentials_file`].
pub(crate) const CREDENTIALS: &str = "zookeeper.auth.credentials_file";

impl Auth {
    /// User and password, as the file is now.
    ///
    /// # Errors
    /// Why it can't be used, without its contents.
    pub(crate) fn read(&self) -> Result<(String, String), HostFault> {
        let (file, path) = (&self.credentials_file, self.credentials_file.display());
        let unreadable = |error: io::Error| HostFault::io(file, " can't be read", &error);
        if fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0) {
            tracing::warn!("{CREDENTIALS}: {path} is readable by other users; run chmod 600 on it");
        }
        let text = checked::read(file, || fs::read(file)).map_err(unreadable)?;
        let text = String::from_utf8(text).map_err(|_| format!("{path} must contain user:password"))?;
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
pub(crate) fn unreadable(tls: &TlsOptions) -> Option<(&'static str, HostFault)> {
    let files = [
        ("zookeeper.tls.ca_file", Some(&tls.ca_file)),
        ("zookeeper.tls.cert_file", tls.cert_file.as_ref()),
        ("zookeeper.tls.key_file", tls.key_file.as_ref()),
    ];
    let fault = |path: &PathBuf| {
        checked::read(path, || fs::read(path))
            .err()
            .map(|error| HostFault::io(path, " can't be read", &error))
    };
    files.into_iter().find_map(|(key, path)| Some((key, fault(path?)?)))
}

impl ZooKeeperConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Option<Self> {
        let connect: Option<String> =
            section.required("connect", "the ensemble's servers, such as \"zk1:2181,zk2:2181,zk3:2181\"");
        if let Some(wrong) = connect.as_deref().and_then(wrong_host) {
            section.problem("connect", wrong);
        }
        let prefer: String = section.optional("prefer").unwrap_or_default();
        if !prefer.is_empty()
            && let Some(wrong) = wrong_host(&prefer).or_else(|| not_among(&prefer, connect.as_deref()?))
        {
            section.problem("prefer", wrong);
        }
        let sites: BTreeMap<String, Vec<String>> = section.or("sites", BTreeMap::new());
        if let Some(wrong) = connect.as_deref().and_then(|connect| wrong_sites(&sites, connect)) {
            section.problem("sites", wrong);
        }
        let admin: Vec<String> = section.or("admin", Vec::new());
        if let Some(wrong) = connect.as_deref().and_then(|connect| wrong_admin(&admin, connect)) {
            section.problem("admin", wrong);
        }
        let root = section.or("root", "/dr".to_owned());
        if let Err(wrong) = election_core::Paths::new(&root, "x") {
            section.problem("root", wrong.to_string());
        }
        // Below 1.5 s a session cannot be kept over one lost packet's repetition.
        let session_timeout = section.duration(
            "session_timeout",
            Duration::from_secs(10),
            Duration::from_millis(1500)..=Duration::from_secs(600),
        );
        let connect_timeout = section.duration(
            "connect_timeout",
            Duration::from_secs(15),
            Duration::from_millis(100)..=Duration::from_secs(3600),
        );
        let tick_time =
            section.duration("tick_time", TICK, Duration::from_millis(10)..=Duration::from_secs(60));
        let driver = section.or("driver", DriverKind::default());
        let auth = section.optional_table("auth", |section| {
            let scheme = section.or("scheme", Scheme::Digest);
            let credentials_file =
                section.required("credentials_file", "the path of a file that holds \"user:password\"");
            Some(Auth { scheme, credentials_file: credentials_file? })
        });
        let tls = section.optional_table("tls", |section| {
            let ca_file =
                section.required("ca_file", "the certificates of those that may sign the servers', as PEM");
            let (cert_file, key_file) = (section.optional("cert_file"), section.optional("key_file"));
            if cert_file.is_some() != key_file.is_some() {
                let (there, missing) =
                    if cert_file.is_some() { ("cert_file", "key_file") } else { ("key_file", "cert_file") };
                section.problem(
                    there,
                    format!("{missing} is missing: a certificate and its key belong together"),
                );
            }
            Some(TlsOptions { ca_file: ca_file?, cert_file, key_file })
        });
        let (auth, tls) = (auth.flatten(), tls.flatten());
        let has_credentials = has_credentials(auth.as_ref(), tls.as_ref());
        let acl = section.or("acl", if has_credentials { Access::Creator } else { Access::Open });
        if acl == Access::Creator && !has_credentials {
            section.problem(
                "acl",
                "\"creator\" takes credentials by which the servers know the creator: set [zookeeper.auth], or cert_file \
                 and key_file in [zookeeper.tls]; or choose \"open\"",
            );
        }
        let overlay = section.or("overlay", Overlays::Safe);
        Some(Self {
            connect: connect?,
            prefer,
            sites,
            admin,
            root,
            session_timeout,
            connect_timeout,
            tick_time,
            driver,
            auth,
            tls,
            acl,
            overlay,
        })
    }
}

/// The problem of preferred servers that are not in the list of all servers, if there is one.
fn not_among(prefer: &str, connect: &str) -> Option<String> {
    let is_known = |server: &str| connect.split(',').any(|known| known.trim() == server);
    let unknown = prefer.split(',').map(str::trim).find(|server| !is_known(server))?;
    Some(format!("{unknown:?} is not in zookeeper.connect; write it as there"))
}

/// The problem of the servers of sites, if there is one.
fn wrong_sites(sites: &BTreeMap<String, Vec<String>>, connect: &str) -> Option<String> {
    let mut seen = BTreeSet::new();
    for (site, servers) in sites {
        if let Err(wrong) = election_core::SiteId::new(site.as_str()) {
            return Some(format!("{site:?}: {wrong}"));
        }
        for server in servers {
            if let Some(wrong) = not_among(server, connect) {
                return Some(wrong);
            }
            if !seen.insert(server) {
                return Some(format!("{server:?} is there twice; a server is in one site"));
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
