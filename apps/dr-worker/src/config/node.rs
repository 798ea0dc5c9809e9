use std::{collections::BTreeMap, path::PathBuf};

use election_core::{MemberId, SiteId};

use strategies::published::RESERVED;

use super::{check::read_site_check, reader::Section, spec::Check};

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
    /// Only its name, for an operator; `None` if it is not usable.
    pub(super) fn read_id(section: &mut Section<'_>) -> Option<MemberId> {
        section.leave_rest();
        if section.has("id") { section.usable("id") } else { MemberId::new(host_name()?).ok() }
    }

    pub(super) fn read(section: &mut Section<'_>) -> Option<Self> {
        let host = host_name();
        let id = match host.as_deref().and_then(|name| MemberId::new(name).ok()) {
            Some(host) => Some(section.or("id", host)),
            None => section
                .required("id", "a name for this worker that no other has (this host has no usable name)"),
        };
        let site = section.required("site", "the name of this node's site, such as \"east\"");
        let address = host.unwrap_or_else(|| "127.0.0.1".to_owned());
        let address = section.or("address", address);
        let state_dir = section.or("state_dir", PathBuf::from("/var/lib/dr-worker"));
        let priority = section.or("priority", 1);
        let attributes: BTreeMap<String, String> = section.or("attributes", BTreeMap::new());
        for name in attributes.keys().filter(|name| name.starts_with(RESERVED)) {
            section.problem(
                "attributes",
                format!("{name:?} is not free: workers publish under names that begin with {RESERVED:?}; choose another"),
            );
        }
        let site_check = section.table("site_check", read_site_check);
        Some(Self { id: id?, site: site?, address, state_dir, priority, attributes, site_check })
    }
}

fn host_name() -> Option<String> {
    let name = nix::sys::utsname::uname().ok()?;
    let name = name.nodename().to_str()?;
    (!name.is_empty() && name != "(none)").then(|| name.to_owned())
}
