//! The deployment shapes of `docs/shapes.md`: the configuration files and the table in each section.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use toml::Table;
use zk_testkit::Ensemble;

use crate::driver::Driver;
use crate::setup::Setup;
use crate::shared_ensemble::own_ensemble;

/// The port in the addresses of the document.
const PORT: &str = ":2181";
/// The columns of a table of losses.
const COLUMNS: &str = "| lose | what serves | nothing serves for |";

/// A section with servers, workers and losses.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Its heading.
    pub name: String,
    /// The file of its picture.
    pub picture: PathBuf,
    /// The servers, in the order of their numbers.
    pub servers: Vec<Server>,
    /// The ids and sites of the workers.
    pub workers: Vec<(&'static str, &'static str)>,
    /// The rows of the table.
    pub losses: Vec<Loss>,
    /// What each request from a worker to a server takes longer.
    pub round_trip: Option<Duration>,
    /// The other lines of `zoo.cfg`.
    zoo: BTreeMap<String, String>,
    /// The configuration of all workers.
    common: String,
    /// What the workers of a site have besides.
    own: BTreeMap<String, String>,
}

/// A server of ZooKeeper in a section.
#[derive(Clone, Debug)]
pub struct Server {
    /// `zk-SITE-NUMBER`.
    pub host: String,
    /// Whether it has no vote.
    pub observes: bool,
}

/// A row: a part that is lost, and what follows.
#[derive(Clone, Debug)]
pub struct Loss {
    /// What is lost.
    pub part: Part,
    /// What follows.
    pub outcome: Outcome,
    /// The row in the document.
    pub row: String,
}

/// A part of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// All servers and workers of these sites.
    Sites(Vec<String>),
    /// All workers of these sites.
    Workers(Vec<String>),
    /// All connections between two sites.
    Link(String, String),
    /// One server.
    Server(String),
}

/// What follows a loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The leader leads on without a pause.
    ServesOn(String),
    /// A member of this site leads within this time.
    TakesOver(String, Duration),
    /// No member leads until the part returns, and one does within this time then.
    Nothing(Duration),
}

impl Server {
    /// Its site, by its name.
    pub fn site(&self) -> &str {
        self.host.split('-').nth(1).unwrap_or_default()
    }
}

impl Shape {
    /// All sections of the document with a table of losses.
    ///
    /// # Panics
    /// If a section lacks a part, or a part can't be read.
    pub fn all() -> Vec<Self> {
        let docs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs"));
        let text = fs::read_to_string(docs.join("shapes.md")).expect("docs/shapes.md");
        let sections = text.split("\n## ").filter(|section| section.contains(COLUMNS));
        sections.map(|section| Self::read(section, docs)).collect()
    }

    fn read(section: &str, docs: &Path) -> Self {
        let name = section.lines().next().unwrap_or_default().to_owned();
        let picture = between(section, "](", ".svg)").unwrap_or_else(|| panic!("{name}: it has no picture"));
        let mut zoo = BTreeMap::new();
        let mut servers = BTreeMap::new();
        let config = blocks(section, "properties").next().unwrap_or_else(|| panic!("{name}: no zoo.cfg"));
        for line in config.lines().filter(|line| !line.starts_with('#')) {
            let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("{name}: {line}"));
            let Some(number) = key.strip_prefix("server.") else {
                zoo.insert(key.to_owned(), value.to_owned());
                continue;
            };
            let host = value.split(':').next().unwrap_or_default().to_owned();
            let server = Server { host, observes: value.ends_with(":observer") };
            servers.insert(number.parse::<u32>().expect("the number of a server"), server);
        }
        let (mut common, mut own, mut workers) = (String::new(), BTreeMap::new(), Vec::new());
        for block in blocks(section, "toml") {
            let first = block.lines().next().unwrap_or_default();
            let Some((site, ids)) =
                first.strip_prefix("# Workers in ").and_then(|rest| rest.split_once(": "))
            else {
                assert!(first.starts_with("# Every worker"), "{name}: whose file is it? {first}");
                block.clone_into(&mut common);
                continue;
            };
            own.insert(site.to_owned(), block.to_owned());
            // A test has the names of its workers as long as it runs.
            let leaked = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
            workers.extend(ids.split(", ").map(|id| (leaked(id), leaked(site))));
        }
        let rows = section.lines().skip_while(|line| *line != COLUMNS).skip(2);
        let rows = rows.take_while(|line| line.starts_with('|'));
        let losses =
            rows.map(|row| Loss::read(row).unwrap_or_else(|| panic!("{name}: not understood: {row}")));
        let delay = section.split_once("every request by ").and_then(|(_, rest)| rest.split_once(" ms"));
        Self {
            round_trip: delay.map(|(millis, _)| Duration::from_millis(millis.parse().expect("a number"))),
            losses: losses.collect(),
            picture: docs.join(format!("{picture}.svg")),
            servers: servers.into_values().collect(),
            name,
            workers,
            zoo,
            common,
            own,
        }
    }

    /// The columns of its table.
    pub fn columns(&self) -> &'static str {
        COLUMNS
    }

    /// A number of `zoo.cfg`.
    ///
    /// # Panics
    /// If it has none of this name.
    pub fn zoo(&self, key: &str) -> u32 {
        let value = self.zoo.get(key).and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| panic!("{}: zoo.cfg has no number {key}", self.name))
    }

    /// How long a follower serves without contact to its leader.
    pub fn sync(&self) -> Duration {
        Duration::from_millis(self.zoo("tickTime").into()) * self.zoo("syncLimit")
    }

    /// `zookeeper.session_timeout`.
    ///
    /// # Panics
    /// If it is not in whole seconds.
    pub fn session_timeout(&self) -> Duration {
        let config = table(&self.common, &BTreeMap::new());
        let text = config["zookeeper"]["session_timeout"].as_str().expect("a text");
        Duration::from_secs(text.trim_end_matches('s').parse().expect("whole seconds"))
    }

    /// Starts its servers, each on its own host.
    pub async fn ensemble(&self) -> Arc<Ensemble> {
        let observers = self.servers.iter().filter(|server| server.observes).count();
        let settled = ["tickTime", "initLimit", "syncLimit"];
        let others = self.zoo.iter().filter(|(key, _)| !settled.contains(&key.as_str()));
        own_ensemble(|builder| {
            let builder = builder
                .servers(self.servers.len())
                .tick_time(Duration::from_millis(self.zoo("tickTime").into()))
                .sync_limit(self.zoo("syncLimit"))
                .in_namespaces(true)
                .with(|settings| {
                    (settings.observers, settings.init_limit) = (observers, self.zoo("initLimit"));
                });
            others.fold(builder, |builder, (key, value)| builder.setting(key, value))
        })
        .await
    }

    /// The configuration of the document, with these addresses of the servers: for operators, and for workers.
    pub fn setup(&self, servers: &[SocketAddr], for_workers: &[SocketAddr]) -> Setup {
        let of = |addresses: &[SocketAddr]| -> BTreeMap<String, String> {
            let hosts = self.servers.iter().map(|server| format!("{}{PORT}", server.host));
            hosts.zip(addresses.iter().map(ToString::to_string)).collect()
        };
        let (servers, for_workers) = (of(servers), of(for_workers));
        let setup = Setup::new(Driver::Native).workers(&self.workers).on_hosts();
        let setup = setup.with(&table(&self.common, &servers));
        self.workers.iter().fold(setup, |setup, (id, site)| {
            let reached = table(&self.common, &for_workers);
            let connect = reached["zookeeper"]["connect"].clone();
            setup
                .set_for(id, "zookeeper.connect", connect)
                .with_for(id, &table(&self.own[*site], &for_workers))
        })
    }

    /// The configuration of a worker of each site, as in the document: the common file, and that of the site.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.own.values().map(|own| (self.common.as_str(), own.as_str()))
    }
}

impl Loss {
    fn read(row: &str) -> Option<Self> {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [part, what, time] = cells.as_slice() else { return None };
        let within = || {
            let seconds = time.rsplit_once("up to ")?.1.strip_suffix(" s")?;
            Some(Duration::from_secs(seconds.parse().ok()?))
        };
        let outcome = match (what.strip_suffix(" serves on"), what.strip_suffix(" takes over")) {
            (Some(site), _) if *time == "0 s" => Outcome::ServesOn(site.to_owned()),
            (_, Some(site)) => Outcome::TakesOver(site.to_owned(), within()?),
            _ if *what == "nothing" && time.starts_with("until it returns, then up to ") => {
                Outcome::Nothing(within()?)
            }
            _ => return None,
        };
        Some(Self { part: Part::read(part)?, outcome, row: row.to_owned() })
    }
}

impl Part {
    fn read(text: &str) -> Option<Self> {
        let sites = |text: &str| text.split(" and ").map(str::to_owned).collect();
        if let Some(rest) = text.strip_prefix("the link between ") {
            let (one, other) = rest.split_once(" and ")?;
            return Some(Self::Link(one.to_owned(), other.to_owned()));
        }
        if let Some(rest) = text.strip_prefix("all workers in ") {
            return Some(Self::Workers(sites(rest)));
        }
        let (kind, rest) = text.split_once(' ')?;
        match kind {
            "server" => Some(Self::Server(rest.to_owned())),
            "site" | "sites" => Some(Self::Sites(sites(rest))),
            _ => None,
        }
    }
}

fn table(text: &str, addresses: &BTreeMap<String, String>) -> Table {
    let addressed = addresses.iter().fold(text.to_owned(), |text, (host, at)| text.replace(host, at));
    toml::from_str(&addressed).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn blocks<'a>(section: &'a str, language: &str) -> impl Iterator<Item = &'a str> {
    let fence = format!("```{language}\n");
    let starts: Vec<_> = section.match_indices(&fence).map(|(at, _)| at + fence.len()).collect();
    starts.into_iter().map(|at| section[at..].split("```").next().unwrap_or_default())
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    text.split_once(after)?.0.rsplit_once(before).map(|(_, found)| found)
}
