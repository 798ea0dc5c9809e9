use std::{collections::BTreeMap, path::PathBuf};

use election_core::{
    MemberId, SiteId,
    text::{is_host, is_plain},
};

use job_guard::Check;
use strategies::published::RESERVED;

use super::{
    Sources,
    check::read_site_check,
    incomplete, layers,
    problem::Problems,
    reader::{Findings, Section},
};

/// `[node]`: this worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Its unique name among all workers.
    pub id: MemberId,
    /// Its site.
    pub site: SiteId,
    /// Its address for other nodes.
    pub address: String,
    /// The directory of the lock file and the records of running jobs.
    pub state_dir: PathBuf,
    /// Higher is preferred. A member with 0 or less leads only if an operator names it.
    pub priority: i64,
    /// Free attributes for policies and for readers of `list`.
    pub attributes: BTreeMap<String, String>,
    /// The check of the whole site, if there is one. After its failures this node reports that the site has failed.
    pub site_check: Option<Check>,
}

impl NodeConfig {
    /// Reads the id and the state directory of the node and the names of the configured jobs, and nothing else: a mistake
    /// elsewhere does not block a command about this node.
    ///
    /// # Errors
    /// All problems of these.
    pub(crate) fn load_local(sources: &Sources) -> Result<(MemberId, PathBuf, Vec<String>), Problems> {
        let mut findings = Findings::with(&sources.registry);
        let root = layers::merge(sources, &mut findings.problems);
        let (id, state_dir, jobs) = Section::read_root(&root, &mut findings, |root| {
            root.leave_rest();
            let (id, state_dir) = root.table("node", |node| {
                node.leave_rest();
                (read_id(node), read_state_dir(node))
            });
            let jobs = root.table("job", |jobs| {
                jobs.each_table(|name, section| {
                    section.leave_rest();
                    name.to_owned()
                })
            });
            (id, state_dir, jobs)
        });
        Problems::none_of(findings.problems).map_err(|problems| sources.explain(problems))?;
        Ok((id.ok_or_else(incomplete)?, state_dir, jobs))
    }

    /// The id alone, which a command needs less than the worker: `None` if it is not usable.
    pub(super) fn read_id_alone(section: &mut Section<'_>) -> Option<MemberId> {
        section.leave_rest();
        if section.has("id") { section.usable("id") } else { MemberId::new(host_name()?).ok() }
    }

    pub(super) fn read(section: &mut Section<'_>) -> Option<Self> {
        let id = read_id(section);
        let site = section.required("site", "the name of this node's site, such as \"east\"");
        let address = host_name().unwrap_or_else(|| "127.0.0.1".to_owned());
        let address = section.or("address", address);
        if !is_host(&address) {
            section.problem("address", format!("{address:?} is no name or address of a host"));
        }
        let state_dir = read_state_dir(section);
        let priority = section.or("priority", 1);
        let attributes: BTreeMap<String, String> = section.or("attributes", BTreeMap::new());
        for name in attributes.keys().filter(|name| name.starts_with(RESERVED)) {
            section.problem(
                "attributes",
                format!("{name:?} is not free: workers publish under names that begin with {RESERVED:?}; choose another"),
            );
        }
        for (name, value) in &attributes {
            if let Some(c) = name.chars().chain(value.chars()).find(|c| !is_plain(*c)) {
                section.problem(
                    "attributes",
                    format!("{name:?} has {c:?}, which is no character of a line of text"),
                );
            }
        }
        let site_check = section.table("site_check", read_site_check);
        Some(Self { id: id?, site: site?, address, state_dir, priority, attributes, site_check })
    }
}

fn read_id(section: &mut Section<'_>) -> Option<MemberId> {
    match host_name().and_then(|name| MemberId::new(name).ok()) {
        Some(host) => Some(section.or("id", host)),
        None => {
            section.required("id", "a name for this worker that no other has (this host has no usable name)")
        }
    }
}

fn read_state_dir(section: &mut Section<'_>) -> PathBuf {
    section.or("state_dir", PathBuf::from("/var/lib/dr-worker"))
}

/// The name of this host, if it has one.
pub(crate) fn host_name() -> Option<String> {
    let name = nix::sys::utsname::uname().ok()?;
    let name = name.nodename().to_str()?;
    (!name.is_empty() && name != "(none)").then(|| name.to_owned())
}
