//! Which members have lost another member: see [`suspicion`](super::elector::suspicion).

use std::collections::BTreeSet;

use crate::{
    ids::{Ballot, SiteId},
    record::MemberRecord,
};

/// The members that have lost `suspect`, if they are enough to depose it.
pub(crate) fn witnesses<'a>(
    members: &'a [MemberRecord],
    suspect: &Ballot,
    site: &SiteId,
) -> Option<Vec<&'a MemberRecord>> {
    let mut others = 0;
    let mut sites = BTreeSet::from([site]);
    let mut lost = Vec::new();
    for member in members.iter().filter(|m| m.ballot != *suspect) {
        others += 1;
        sites.insert(&member.site);
        if member.unreached.iter().any(|u| u.ballot == *suspect) {
            lost.push(member);
        }
    }
    let seen_from: BTreeSet<_> = lost.iter().map(|m| &m.site).collect();
    let of_two_sites = sites.len() == 1 || seen_from.len() > 1;
    let enough = lost.len() >= 2 && 2 * lost.len() > others && of_two_sites;
    enough.then_some(lost)
}
