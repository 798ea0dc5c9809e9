//! The servers: their four-letter words, and what their AdminServers report.

use election_core::internals::text::shown;
use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, SystemTime},
};

use futures_util::future::{join, join_all};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{Clock, Server, ServerAnswer, clock};
use crate::{client, config::ZooKeeperConfig};

/// How long a server may take to answer one question.
const WITHIN: Duration = Duration::from_secs(3);
/// The first answer of an AdminServer takes it longer.
const ADMIN_WITHIN: Duration = Duration::from_secs(5);
/// The longest answer, in bytes.
const LONGEST: u64 = 1 << 20;
/// The AdminServer's usual port.
const ADMIN_PORT: u16 = 8080;

/// Asks all servers of `zookeeper.connect`, in that order.
pub(crate) async fn ask(config: &ZooKeeperConfig) -> Vec<Server> {
    let servers = config.servers().enumerate().map(|(index, name)| {
        let (host, port) = name.rsplit_once(':').unwrap_or((name, ""));
        let admin = config.admin.get(index).cloned().unwrap_or_else(|| format!("{host}:{ADMIN_PORT}"));
        let site = config.sites.iter().find(|(_, servers)| servers.iter().any(|s| s == name));
        let site = site.map(|(site, _)| site.clone());
        examine(name, port, admin, site, config.tls.is_some())
    });
    join_all(servers).await
}

async fn examine(name: &str, port: &str, admin: String, site: Option<String>, by_tls: bool) -> Server {
    let mut server = Server { name: name.to_owned(), site, ..Server::default() };
    let (reached, admin) = join(timeout(WITHIN, TcpStream::connect(name)), Admin::ask(&admin, port)).await;
    server.addresses = addresses(name).await;
    match reached {
        Err(_) => server.unreachable = Some(format!("no answer within {WITHIN:?}")),
        Ok(Err(error)) => server.unreachable = Some(error.to_string()),
        Ok(Ok(_)) => {}
    }
    if server.unreachable.is_none() && !by_tls {
        let ask = |word| word_of(name, word);
        let (stats, (settings, metrics)) = join(ask("srvr"), join(ask("conf"), ask("mntr"))).await;
        server.stats = parsed(stats, ": ");
        server.settings = parsed(settings, "=");
        server.metrics = parsed(metrics, "\t");
    } else {
        let why = if by_tls { "the port expects TLS" } else { "it can't be reached" };
        (server.stats, server.settings, server.metrics) =
            (ServerAnswer::none(why), ServerAnswer::none(why), ServerAnswer::none(why));
    }
    server.take(admin);
    server
}

impl Server {
    /// What the four-letter words do not report is taken from the AdminServer.
    fn take(&mut self, admin: Result<Admin, String>) {
        let admin = match admin {
            Ok(admin) => admin,
            Err(why) => {
                self.properties = ServerAnswer::none(why.clone());
                for answer in [&mut self.settings, &mut self.metrics] {
                    if let Some(missing) = &mut answer.missing {
                        missing.push_str(&format!("; {why}"));
                    }
                }
                return;
            }
        };
        self.properties = ServerAnswer { values: admin.properties, missing: None };
        self.clock = admin.clock;
        if self.settings.missing.is_some() {
            self.settings = ServerAnswer { values: admin.settings, missing: None };
        }
        if self.metrics.missing.is_some() {
            self.metrics = ServerAnswer { values: admin.metrics, missing: None };
        }
        // Its role and version are among the metrics.
        self.stats.missing = None;
    }
}

/// A four-letter word, and the answer.
async fn word_of(server: &str, word: &str) -> Result<String, String> {
    let asked = async {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(word.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(LONGEST).read_to_end(&mut answer).await?;
        std::io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    match timeout(WITHIN, asked).await {
        Ok(Ok(answer)) if answer.contains("not in the whitelist") => {
            Err("not in 4lw.commands.whitelist".to_owned())
        }
        Ok(Ok(answer)) if answer.trim().is_empty() => Err("an empty answer".to_owned()),
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {WITHIN:?}")),
    }
}

/// The lines of an answer that have a name and a value.
fn parsed(answer: Result<String, String>, between: &str) -> ServerAnswer {
    match answer {
        Err(why) => ServerAnswer::none(why),
        Ok(text) => {
            let pairs = text.lines().filter_map(|line| line.split_once(between));
            let values = pairs
                .map(|(name, value)| (shown(name.trim()).into_owned(), shown(value.trim()).into_owned()));
            ServerAnswer { values: values.collect(), missing: None }
        }
    }
}

/// What an AdminServer reports, under the names that the four-letter words use.
struct Admin {
    settings: BTreeMap<String, String>,
    metrics: BTreeMap<String, String>,
    properties: BTreeMap<String, String>,
    clock: Option<Clock>,
}

impl Admin {
    async fn ask(address: &str, client_port: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("its AdminServer {address}: {what}");
        let client =
            client::plain().timeout(ADMIN_WITHIN).build().map_err(|error| wrong(&error.to_string()))?;
        let ask = async |command: &str| {
            let sent = SystemTime::now();
            let url = format!("http://{address}/commands/{command}");
            let answer = client.get(url).send().await.map_err(|error| wrong(&client::cause(&error)))?;
            let date = answer.headers().get("date").and_then(|date| date.to_str().ok());
            let clock = date.and_then(|date| clock::compare(date, sent, SystemTime::now()));
            if !answer.status().is_success() {
                return Err(wrong(&format!("{command}: {}", answer.status())));
            }
            let body: Value = answer.json().await.map_err(|error| wrong(&client::cause(&error)))?;
            Ok((body, clock))
        };
        let (settings, clock) = ask("configuration").await?;
        // Something else may listen there.
        let ports = ["client_port", "secure_client_port"].map(|key| settings[key].to_string());
        if !ports.iter().any(|port| port == client_port) {
            return Err(wrong(&format!("it does not belong to the server at port {client_port}")));
        }
        let (properties, _) = ask("system_properties").await?;
        let (metrics, _) = ask("monitor").await?;
        Ok(Self {
            settings: flat(&settings, camel),
            metrics: flat(&metrics, |name| {
                if name == "version" { "zk_version".to_owned() } else { format!("zk_{name}") }
            }),
            properties: flat(&properties, str::to_owned),
            clock,
        })
    }
}

fn flat(object: &Value, name: impl Fn(&str) -> String) -> BTreeMap<String, String> {
    let fields = object.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    fields.map(|(key, value)| (name(&shown(key)), shown(&text(value)).into_owned())).collect()
}

/// `min_session_timeout` is `minSessionTimeout`.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let mut all = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
        all.push_str(&first.to_ascii_uppercase());
        all.push_str(rest);
    }
    all
}

/// The addresses of a host and port; none if its name is not known.
pub(crate) async fn addresses(host: &str) -> std::collections::BTreeSet<IpAddr> {
    let found = timeout(WITHIN, tokio::net::lookup_host(host)).await;
    found.ok().and_then(Result::ok).into_iter().flatten().map(|address| address.ip()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_in_all_their_forms() {
        let conf = "clientPort=2181\nminSessionTimeout=1000\nmembership: \nserver.1=zk1:2888:3888:participant\nversion=0";
        let conf = parsed(Ok(conf.to_owned()), "=");
        assert_eq!(conf.get("server.1"), Some("zk1:2888:3888:participant"));
        let srvr = parsed(Ok("Zookeeper version: 3.8.0-x, built on then\nMode: follower\n".to_owned()), ": ");
        let server = Server { stats: srvr, settings: conf, ..Server::default() };
        assert_eq!((server.role(), server.version()), (Some("follower"), Some("3.8.0")));
        assert_eq!(server.membership(), BTreeMap::from([("1", true)]));
        assert_eq!(camel("min_session_timeout"), "minSessionTimeout");
        let monitor = serde_json::json!({ "server_state": "leader", "watch_count": 7, "error": null });
        let flat = flat(&monitor, |name| format!("zk_{name}"));
        assert_eq!(flat["zk_watch_count"], "7");
        assert!(!flat.contains_key("zk_error"));
        assert_eq!(parsed(Err("why".to_owned()), "=").missing.as_deref(), Some("why"));
    }
}
