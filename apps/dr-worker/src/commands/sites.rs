use std::collections::BTreeSet;

use election_admin::Snapshot;
use election_core::{config::SiteId, internals::record::Control};

use super::election::Operator;

/// Refuses a site that is neither configured nor has a member, nor is part of a standing order.
///
/// # Errors
/// With the site, and the known ones.
pub(crate) fn check_sites<'a>(
    operator: &Operator,
    job: &str,
    sites: impl IntoIterator<Item = &'a SiteId>,
    snapshot: &Snapshot,
    hint: &str,
) -> Result<(), String> {
    let Control { drained, failed_sites, preferred_site, site_order, .. } = &snapshot.control;
    let failed = failed_sites.iter().map(|failed| &failed.site);
    let ordered = drained.iter().chain(failed).chain(preferred_site).chain(site_order);
    let members = snapshot.members.iter().map(|member| &member.site);
    let policy = operator.config.policy_of(job);
    let known: BTreeSet<_> = policy.who.site_policy.sites.iter().chain(members).chain(ordered).collect();
    let unknown = sites.into_iter().find(|site| !known.contains(*site));
    let Some(unknown) = unknown else { return Ok(()) };
    let known: Vec<_> = known.iter().map(|site| site.as_str()).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(format!(
        "{job}: unknown site {unknown}: not in policy.sites and no member there{hint}; known: {known}"
    ))
}
