use std::{collections::BTreeMap, path::PathBuf};

use election_core::{
    config::{MemberId, SiteId},
    internals::text::{is_host, is_plain},
};

use job_guard::Check;
use strategies::published::RESERVED;

use super::{
    Config, Sources,
    check::CheckKeys,
    problem::Problems,
    reader::Section,
    table::{derived, nested_as, required, table, value},
};

/// Why the keys of a member's identity need a restart.
const IDENTITY: &str = "other members know this one by it";

table! {
    /// `[node]`: this worker.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct NodeConfig {
        /// Unique id of this worker: at most 128 letters (A to z), digits, '.', '_' and '-', not beginning with '.' or '-'; so are
        /// the names of sites and jobs. A second worker with the same id exits with code 75 while the first one lives. Default:
        /// the host name.
        pub id: MemberId = MemberId::new("unset").expect("it is a name") => derived().worker(IDENTITY).fixed().example("\"east-1\"");
        /// Site of this worker. See east.toml and west.toml.
        pub site: SiteId = SiteId::new("unset").expect("it is a name") => required(
            "the name of this node's site, such as \"east\""
        ).worker(IDENTITY).example("\"east\"");
        /// Address of this node for other nodes; shown by `list`. Default: the host name.
        pub address: String = "127.0.0.1".to_owned() => derived().worker(IDENTITY).example("\"10.0.0.1\"").check(|address: &String| {
            (!is_host(address)).then(|| format!("{address:?} is not the name or address of a host"))
        });
        /// Directory for locks and the records of running jobs. It must be on a local disk.
        pub state_dir: PathBuf = "/var/lib/dr-worker".into() => value().worker("it has the lock and the records of what runs").fixed();
        /// Tie-breaker between members that are equal otherwise: the higher value leads. A member with 0 or less leads only when
        /// an operator names it.
        pub priority: i64 = 1 => value().applied();
        /// Free attributes for policies and for readers of `list`. Two have a meaning: `weight` (for balance.interval) and
        /// `capacity` (for job.NAME.load). Names that begin with "dr." are reserved.
        pub attributes: BTreeMap<String, String> = BTreeMap::new() => value().applied().example(
            "{ rack = \"r7\", weight = \"2\", capacity = \"8\" }"
        );
        /// Check of the whole site: its uplink, its storage. After its failures this node reports that the site has failed. See
        /// docs/configuration.md.
        pub site_check: Option<Check> = None => nested_as(CheckKeys::default()).applied().example(
            "{ kind = \"tcp\", address = \"10.0.0.254:443\", interval = \"500ms\", timeout = \"2s\", failures = 3 }"
        ).shows("that the site works");
    }
    check NodeConfig::check;
}

impl NodeConfig {
    /// Reads the id and the state directory of the node and the names of the configured jobs, and nothing else: a mistake
    /// elsewhere does not block a command about this node.
    ///
    /// # Errors
    /// All problems of these.
    pub(crate) fn load_local(sources: &Sources) -> Result<(MemberId, PathBuf, Vec<String>), Problems> {
        let matters = |key: Option<&str>| key.is_none_or(|key| ["node.id", "node.state_dir"].contains(&key));
        let (config, problems) = Config::read_leniently(sources, matters);
        Problems::none_of(problems).map_err(|problems| sources.explain(problems))?;
        let jobs = config.jobs.iter().map(|job| job.name().to_owned()).collect();
        Ok((config.node.id, config.node.state_dir, jobs))
    }

    fn check(&mut self, section: &mut Section<'_>) {
        let host = host_name();
        if let Some(host) = host.clone().filter(|_| !section.has("address")) {
            self.address = host;
        }
        section.show_unless_set("address", &self.address);
        match host.and_then(|host| MemberId::new(host).ok()) {
            Some(host) if !section.has("id") => self.id = host,
            None if !section.has("id") => {
                let why = "a name for this worker that no other has (this host has no usable name)";
                section.missing::<()>("id", why);
            }
            _ => {}
        }
        section.show_unless_set("id", &self.id);
        for name in self.attributes.keys().filter(|name| name.starts_with(RESERVED)) {
            section.problem(
                "attributes",
                format!("{name:?} is reserved: workers publish under names that begin with {RESERVED:?}; choose another"),
            );
        }
        for (name, value) in &self.attributes {
            if let Some(c) = name.chars().chain(value.chars()).find(|c| !is_plain(*c)) {
                section.problem(
                    "attributes",
                    format!("{name:?} has {c:?}, which is not allowed in a line of text"),
                );
            }
        }
    }
}

/// The name of this host, if it has one.
pub(crate) fn host_name() -> Option<String> {
    let name = nix::sys::utsname::uname().ok()?;
    let name = name.nodename().to_str()?;
    (!name.is_empty() && name != "(none)").then(|| name.to_owned())
}
