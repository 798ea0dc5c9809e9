//! Sites as a whole: which have failed, and which have failed too often to be gone back to.
//!
//! A site has failed when an operator says so, or when most of its living members say so of
//! it: then nobody is named there, and a leader there makes room. A site whose members are
//! all gone has failed as well, which only matters afterwards: each failure is remembered in the
//! decision, and a site that has failed too often within a window is not gone back to while
//! somebody may lead elsewhere, until an operator says that it may be.

use std::{collections::BTreeMap, time::Duration};

use super::{
    decision::Question,
    elector::{Facts, Verdict},
    policy::Policy,
    view::Meta,
    watchdog::Watchdog,
};
use crate::{
    ids::SiteId,
    record::{Control, Elected, Health, MemberRecord, SiteFailure, most},
    strategy::SiteTrouble,
    time::is_within,
};

/// Which sites have failed, and why: by an operator's word, or by that of most of their own
/// living members.
pub fn failed_sites(members: &[MemberRecord], control: &Control) -> Vec<SiteTrouble> {
    let mut failed = BTreeMap::new();
    for (site, all) in by_site(members) {
        let reasons: Vec<_> = all.iter().filter_map(|member| unwell(member)).collect();
        if let Some(reason) = reasons.first().filter(|_| 2 * reasons.len() > all.len()) {
            let why = format!("{} of its {} members say so: {reason}", reasons.len(), all.len());
            failed.insert(site.clone(), why);
        }
    }
    for declared in &control.failed_sites {
        let by = if declared.by.is_empty() { "an operator" } else { &declared.by };
        let why = match &declared.reason {
            Some(reason) => format!("declared by {by}: {reason}"),
            None => format!("declared by {by}"),
        };
        failed.insert(declared.site.clone(), why);
    }
    failed.into_iter().map(|(site, why)| SiteTrouble { site, why }).collect()
}

fn by_site(members: &[MemberRecord]) -> BTreeMap<&SiteId, Vec<&MemberRecord>> {
    members.iter().fold(BTreeMap::new(), |mut sites, member| {
        sites.entry(&member.site).or_insert_with(Vec::new).push(member);
        sites
    })
}

fn unwell(member: &MemberRecord) -> Option<&str> {
    match &member.site_health {
        Some(Health::Unhealthy { reason }) => Some(reason),
        Some(Health::Healthy) | None => None,
    }
}

/// Which sites have failed too often to be gone back to.
pub fn barred_sites(policy: &Policy, elected: Option<&Elected>, unix_ms: u64) -> Vec<SiteTrouble> {
    let limit = policy.max_site_failures;
    let living = living(policy, elected.map_or(&[], |e| &e.site_failures), unix_ms);
    let counts = living.iter().fold(BTreeMap::<_, u32>::new(), |mut counts, failure| {
        *counts.entry(&failure.site).or_default() += 1;
        counts
    });
    let barred = counts.into_iter().filter(|(_, count)| limit.count > 0 && *count >= limit.count);
    let why = |count| format!("{count} times within {:?}, and nobody has said `ack` since", limit.within);
    barred.map(|(site, count)| SiteTrouble { site: site.clone(), why: why(count) }).collect()
}

/// Those of these failures that count still: one that goes on, and one that began within the window.
fn living<'a>(policy: &Policy, all: &'a [SiteFailure], unix_ms: u64) -> Vec<&'a SiteFailure> {
    let window = policy.max_site_failures.within;
    all.iter().filter(|f| !f.over || is_within(f.at_ms, window, unix_ms)).collect()
}

impl Question<'_> {
    /// Which sites have failed.
    pub(super) fn failed_sites(&self) -> Vec<SiteTrouble> {
        failed_sites(self.members, self.control)
    }

    /// Which sites have failed too often to be gone back to.
    pub(super) fn barred_sites(&self) -> Vec<SiteTrouble> {
        barred_sites(self.policy, self.elected, self.unix_ms)
    }
}

impl Facts<'_> {
    /// Why the site of whoever is named has failed, if it has.
    pub(super) fn site_failed(&self, site: &SiteId) -> Option<String> {
        failed_sites(self.members, self.control)
            .into_iter()
            .find(|failed| failed.site == *site)
            .map(|f| f.why)
    }

    /// The decision with what is to be remembered of sites, if that is news. It waits until
    /// nothing else is to be done: what it says is about later decisions.
    pub(super) fn remember_sites(
        &self,
        elected: &Elected,
        meta: Meta,
        watchdog: &mut Watchdog,
    ) -> Option<Verdict> {
        if self.policy.max_site_failures.count == 0 {
            return None;
        }
        let gone = self.gone(elected, watchdog);
        let mut failed = failed_sites(self.members, self.control);
        failed.extend(
            gone.into_iter().map(|site| SiteTrouble { site, why: "all of its members are gone".to_owned() }),
        );
        let mut next = elected.site_failures.clone();
        let stands = |site: &SiteId| self.members.iter().any(|member| member.site == *site);
        for open in next.iter_mut().filter(|failure| !failure.over) {
            open.over = stands(&open.site) && failed.iter().all(|f| f.site != open.site);
        }
        for SiteTrouble { site, why } in failed {
            let open = next.iter().filter(|known| !known.over).count();
            if open < most::SITE_FAILURES && next.iter().all(|known| known.over || known.site != site) {
                next.push(SiteFailure { site, at_ms: self.now.unix_ms, why, over: false });
            }
        }
        if next == elected.site_failures {
            return None;
        }
        let mut next: Vec<_> = living(self.policy, &next, self.now.unix_ms).into_iter().cloned().collect();
        // An open one that was left out would be noted again and again.
        while next.len() > most::SITE_FAILURES {
            let oldest = next.iter().position(|failure| failure.over).unwrap_or(0);
            next.remove(oldest);
        }
        let elected = Elected { site_failures: next, ..elected.clone() }.bounded();
        Some(Verdict::Write(Box::new(elected), Some(meta.version)))
    }

    /// The sites of those who lead or led before that have had no member for a while. A worker that
    /// is merely restarted is back before.
    fn gone(&self, elected: &Elected, watchdog: &mut Watchdog) -> Vec<SiteId> {
        let named = elected.leaders().map(|(_, named)| &named.site);
        let before = (0..elected.slots.len()).filter_map(|slot| elected.given(slot).previous.map(|p| p.site));
        let mut sites: Vec<_> = named.cloned().chain(before).collect();
        sites.sort();
        sites.dedup();
        sites.retain(|site| self.members.iter().all(|member| member.site != *site));
        let patience = self.policy.cooldown;
        watchdog
            .gone(sites, self.now)
            .into_iter()
            .filter_map(|(site, since)| {
                let so_far = self.now.time.since(since);
                if so_far < patience {
                    watchdog.wake_at(self.now.time + (patience - so_far));
                    return None;
                }
                Some(site)
            })
            .collect()
    }
}

/// How often a site may fail within which time, before it is not gone back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteFailureLimit {
    /// With so many failures it is not gone back to; 0 for no limit, and nothing is remembered.
    pub count: u32,
    /// Within so long.
    pub within: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{FailedSite, Record as _};

    fn member(id: &str, site: &str, says: &str) -> MemberRecord {
        let says = match says {
            "" => String::new(),
            "well" => r#","site_health":{"state":"healthy"}"#.to_owned(),
            why => format!(r#","site_health":{{"state":"unhealthy","reason":"{why}"}}"#),
        };
        let json = format!(r#"{{"v":1,"member":"{id}","site":"{site}","ballot":"{id}-0000000001"{says}}}"#);
        MemberRecord::decode("/n", json.as_bytes()).unwrap()
    }

    fn elected() -> Elected {
        let json = r#"{"v":1,"term":1,"slots":[],"cause":"startup","sentence":"","decided_by":"e","decided_at_ms":0}"#;
        Elected::decode("/elected", json.as_bytes()).unwrap()
    }

    fn told(members: &[MemberRecord], control: &Control) -> Vec<String> {
        failed_sites(members, control).iter().map(|f| format!("{}: {}", f.site, f.why)).collect()
    }

    #[test]
    fn most_of_its_living_members_have_to_say_so() {
        let none = Control::default();
        let all = |says: [&str; 3]| says.map(|says| member("e", "east", says)).to_vec();
        assert_eq!(told(&all(["", "", ""]), &none), [""; 0]);
        assert_eq!(told(&all(["no power", "well", ""]), &none), [""; 0]);
        let two = told(&all(["no power", "no power", "well"]), &none);
        assert_eq!(two, ["east: 2 of its 3 members say so: no power"]);
        // Half of them are not most.
        let half = [member("e-1", "east", "no power"), member("e-2", "east", "")];
        assert_eq!(told(&half, &none), [""; 0]);
        // Nobody speaks of another site than its own.
        let mut split = half.to_vec();
        split.push(member("w-1", "west", "no power"));
        assert_eq!(told(&split, &none), ["west: 1 of its 1 members say so: no power"]);
    }

    #[test]
    fn an_operators_word_is_enough() {
        let site = |reason: Option<&str>| FailedSite {
            site: SiteId::new("east").unwrap(),
            reason: reason.map(str::to_owned),
            by: "ann@desk".to_owned(),
            at_ms: 5,
        };
        let control = |reason| Control { failed_sites: vec![site(reason)], ..Control::default() };
        assert_eq!(told(&[], &control(None)), ["east: declared by ann@desk"]);
        assert_eq!(told(&[], &control(Some("flood"))), ["east: declared by ann@desk: flood"]);
    }

    #[test]
    fn a_failure_counts_while_it_goes_on_and_within_the_window() {
        let failure =
            |at_ms, over| SiteFailure { site: SiteId::new("east").unwrap(), at_ms, why: String::new(), over };
        let within = Duration::from_millis(100);
        let policy =
            |count| Policy { max_site_failures: SiteFailureLimit { count, within }, ..Policy::default() };
        let barred = |count, failures: &[SiteFailure], now| {
            let elected = Elected { site_failures: failures.to_vec(), ..elected() };
            barred_sites(&policy(count), Some(&elected), now).len()
        };
        assert_eq!(barred(2, &[failure(50, true)], 60), 0);
        assert_eq!(barred(2, &[failure(50, true), failure(55, true)], 60), 1);
        assert_eq!(barred(2, &[failure(50, true), failure(55, true)], 150), 0);
        assert_eq!(barred(2, &[failure(50, true), failure(5, false)], 149), 1);
        assert_eq!(barred(0, &[failure(50, true), failure(55, true)], 60), 0);
    }
}
