//! Sites as a whole: which have failed, and which have failed too often for leadership to return.
//!
//! A site has failed when an operator declares it, or when most of its living members that know report it. Then no
//! member is named there, and a leader there hands over. A site has not failed if all sites report a failure, which
//! has a common cause, nor if an operator overrules its members. A site whose members are all gone has failed as
//! well, which only matters afterwards. Each failure is remembered in the decision. Leadership does not return to a
//! site that has failed too often within a window while a member may lead elsewhere, until an operator acknowledges
//! it.

use std::collections::BTreeMap;

use super::{
    next_step::Act,
    pass::{Pass, Question},
};
use crate::{
    engine::policy::Policy,
    ids::SiteId,
    record::{Cause, Control, Elected, Health, MemberRecord, OrderedBy, SiteFailure, Target, most},
    strategy::SiteTrouble,
    time::is_within,
};

/// Which sites have failed, and why: as declared by an operator, or as reported by most of their own living members
/// that know. A failure that every site reports counts for no site, since no other site is better. A site has not
/// failed either if its members report a failure and an operator has overruled them ([`SiteFailure::overruled`]).
pub fn failed_sites(
    members: &[MemberRecord],
    control: &Control,
    elected: Option<&Elected>,
) -> Vec<SiteTrouble> {
    let overruled = |site: &SiteId| {
        let mut open =
            elected.iter().flat_map(|e| &e.site_failures).filter(|failure| failure.over_at_ms.is_none());
        open.any(|failure| failure.site == *site && failure.overruled.is_some())
    };
    let closed = |site: &SiteId| {
        control.drained.contains(site) || control.failed_sites.iter().any(|declared| declared.site == *site)
    };
    let mut open = by_site(members).into_iter().filter(|(site, _)| !closed(site));
    let measured =
        if open.any(|(_, members)| is_refuge(&members)) { unwell_sites(members) } else { Vec::new() };
    let measured = measured.into_iter().filter(|unwell| !overruled(&unwell.site));
    let mut failed: BTreeMap<_, _> = measured.map(|unwell| (unwell.site, unwell.why)).collect();
    for declared in &control.failed_sites {
        let OrderedBy { reason, by, .. } = &declared.ordered;
        let by = if by.is_empty() { "an operator" } else { by };
        let why = match reason {
            Some(reason) => format!("declared by {by}: {reason}"),
            None => format!("declared by {by}"),
        };
        failed.insert(declared.site.clone(), why);
    }
    failed.into_iter().map(|(site, why)| SiteTrouble { site, why }).collect()
}

/// Which sites have failed by the reports of their own living members, and why.
pub fn unwell_sites(members: &[MemberRecord]) -> Vec<SiteTrouble> {
    let unwell = by_site(members).into_iter().filter_map(|(site, members)| {
        let why = why_unwell(&members)?;
        Some(SiteTrouble { site: site.clone(), why })
    });
    unwell.collect()
}

/// What the members of a site report about it, if they have a check.
fn said<'a>(members: &[&'a MemberRecord]) -> Vec<&'a Health> {
    members.iter().filter_map(|member| member.site_health.as_ref()).collect()
}

/// Why a site has failed, if most of its living members that know report that.
fn why_unwell(members: &[&MemberRecord]) -> Option<String> {
    let said = said(members);
    let reasons = said.iter().filter_map(|said| match said {
        Health::Unhealthy { reason } => Some(reason),
        Health::Healthy | Health::Unchecked | Health::Unknown => None,
    });
    let reasons: Vec<_> = reasons.collect();
    let know = said.iter().filter(|said| ***said != Health::Unknown).count();
    let reason = reasons.first().filter(|_| 2 * reasons.len() > know)?;
    let (unwell, all) = (reasons.len(), members.len());
    let who = if know == all { "its".to_owned() } else { format!("the {know} that know of its") };
    let say = if unwell == 1 { "says" } else { "say" };
    Some(format!("{unwell} of {who} {all} members {say} so: {reason}"))
}

/// Whether leadership could be better off in a site, as far as is known. A site in which no member has a check counts as
/// good; one whose members have no result yet does not.
fn is_refuge(members: &[&MemberRecord]) -> bool {
    let said = said(members);
    said.is_empty() || said.iter().any(|said| **said != Health::Unknown) && why_unwell(members).is_none()
}

fn by_site(members: &[MemberRecord]) -> BTreeMap<&SiteId, Vec<&MemberRecord>> {
    members.iter().fold(BTreeMap::new(), |mut sites, member| {
        sites.entry(&member.site).or_insert_with(Vec::new).push(member);
        sites
    })
}

/// Which sites have failed too often for leadership to return.
pub fn barred_sites(policy: &Policy, elected: Option<&Elected>, unix_ms: u64) -> Vec<SiteTrouble> {
    let limit = policy.max_site_failures;
    let living = living(policy, elected.map_or(&[], |e| &e.site_failures), unix_ms);
    let counted = living.iter().filter(|failure| failure.overruled.is_none());
    let counts = counted.fold(BTreeMap::<_, u32>::new(), |mut counts, failure| {
        *counts.entry(&failure.site).or_default() += 1;
        counts
    });
    let barred = counts.into_iter().filter(|(_, count)| limit.count > 0 && *count >= limit.count);
    let why = |count| format!("{count} times within {:?}, and not acknowledged since", limit.within);
    barred.map(|(site, count)| SiteTrouble { site: site.clone(), why: why(count) }).collect()
}

/// The failures that still count: one that continues, and one that began within the window.
fn living<'a>(policy: &Policy, all: &'a [SiteFailure], unix_ms: u64) -> Vec<&'a SiteFailure> {
    let window = policy.max_site_failures.within;
    all.iter().filter(|f| f.over_at_ms.is_none() || is_within(f.at_ms, window, unix_ms)).collect()
}

/// The failures that stay in the decision: one that continues, and one that has ended within the window.
fn remembered(policy: &Policy, mut all: Vec<SiteFailure>, unix_ms: u64) -> Vec<SiteFailure> {
    let window = policy.max_site_failures.within;
    all.retain(|f| f.over_at_ms.is_none_or(|over_at_ms| is_within(over_at_ms, window, unix_ms)));
    all
}

impl Question<'_> {
    /// The site to which a forced failover moves leadership although its own members report it as failed, and who
    /// requested that. The operator's judgement has precedence.
    pub(crate) fn overruled(&self) -> Option<(SiteId, String)> {
        let (_, request) = self.ordered.filter(|(_, request)| request.force)?;
        let site = match &request.to {
            Target::Any => return None,
            Target::Site(site) => site,
            Target::Member(id) => &self.members.iter().find(|member| member.member == *id)?.site,
        };
        Some((site.clone(), request.by.clone()))
    }

    /// The failures of sites after such a request has been decided.
    pub(crate) fn site_failures_after(&self) -> Vec<SiteFailure> {
        let known = self.elected.map(|e| e.site_failures.clone()).unwrap_or_default();
        match self.overruled() {
            Some((site, by)) => overrule(known, self.members, &site, &by, self.now.unix_ms),
            None => known,
        }
    }
}

impl Pass<'_> {
    /// Which sites have failed.
    pub(crate) fn failed_sites(&self) -> Vec<SiteTrouble> {
        failed_sites(self.members, self.control, self.elected)
    }

    /// Why the site has failed, if it has.
    pub(crate) fn site_failed(&self, site: &SiteId) -> Option<String> {
        self.failed_sites().into_iter().find(|failed| failed.site == *site).map(|failed| failed.why)
    }

    /// The decision with what to remember of sites, if that is new. It waits until nothing else is to be done, since
    /// it only matters for later decisions.
    pub(crate) fn remember_sites(&self, elected: &Elected) -> Option<Act> {
        let gone = self.gone(elected);
        let mut failed = self.failed_sites();
        failed.extend(
            gone.into_iter().map(|site| SiteTrouble { site, why: "all of its members are gone".to_owned() }),
        );
        let mut next = elected.site_failures.clone();
        let unwell = unwell_sites(self.members);
        let is = |site: &SiteId, of: &[SiteTrouble]| of.iter().any(|trouble| trouble.site == *site);
        let has_member = |site: &SiteId| self.members.iter().any(|member| member.site == *site);
        for open in next.iter_mut().filter(|failure| failure.over_at_ms.is_none()) {
            let is_over = has_member(&open.site) && !is(&open.site, &failed) && !is(&open.site, &unwell);
            open.over_at_ms = is_over.then_some(self.now.unix_ms);
        }
        let remembers = self.policy.max_site_failures.count > 0;
        next.retain(|failure| remembers || failure.over_at_ms.is_none());
        for SiteTrouble { site, why } in failed.into_iter().filter(|_| remembers) {
            let open = next.iter().filter(|known| known.over_at_ms.is_none()).count();
            if open < most::SITE_FAILURES
                && next.iter().all(|known| known.over_at_ms.is_some() || known.site != site)
            {
                let at_ms = self.now.unix_ms;
                next.push(SiteFailure { site, at_ms, why, over_at_ms: None, overruled: None });
            }
        }
        if next == elected.site_failures {
            return None;
        }
        let mut next = remembered(self.policy, next, self.now.unix_ms);
        // An open failure that was left out would be recorded again and again.
        while next.len() > most::SITE_FAILURES {
            let oldest = next.iter().position(|failure| failure.over_at_ms.is_some()).unwrap_or(0);
            next.remove(oldest);
        }
        let elected = Elected { site_failures: next, ..elected.clone() }.bounded();
        Some(Act::Write(Box::new(elected), self.version()))
    }

    /// The sites from which a failure moved leadership away, and which have had no member for a while. A site that
    /// was drained or has a member in maintenance, or that handed over as planned before its members ended, has not
    /// failed. Nor has one that members leave because the election moves to another place.
    fn gone(&self, elected: &Elected) -> Vec<SiteId> {
        let given = elected.slots.iter().map(|slot| &slot.given);
        let lost = given.filter(|given| given.cause.is_failure() && given.cause != Cause::Failover);
        let mut sites: Vec<_> =
            lost.filter_map(|given| given.previous.as_ref().map(|led| led.site.clone())).collect();
        sites.sort();
        sites.dedup();
        sites.retain(|site| {
            let is_empty = self.members.iter().all(|member| member.site != *site);
            let serviced = self.control.maintenance.iter().any(|order| order.site.as_ref() == Some(site));
            is_empty && !serviced && !self.control.drained.contains(site) && !self.control.is_closed()
        });
        let patience = self.policy.site_gone_after;
        let gone = self.timers.borrow_mut().gone(sites, self.now);
        gone.into_iter()
            .filter_map(|(site, since)| {
                let so_far = self.now.time.since(since);
                if so_far < patience {
                    self.wake_at(self.now.time + (patience - so_far));
                    return None;
                }
                Some(site)
            })
            .collect()
    }
}

/// These failures, after an operator overrules the members of this site: until the members agree, their reports do
/// not count. Unchanged if they report nothing.
pub(crate) fn overrule(
    mut failures: Vec<SiteFailure>,
    members: &[MemberRecord],
    site: &SiteId,
    by: &str,
    unix_ms: u64,
) -> Vec<SiteFailure> {
    let unwell = unwell_sites(members).into_iter().find(|unwell| unwell.site == *site);
    let open = failures.iter_mut().find(|failure| failure.over_at_ms.is_none() && failure.site == *site);
    match (unwell, open) {
        (Some(_), Some(open)) => open.overruled = Some(by.to_owned()),
        (Some(SiteTrouble { site, why }), None) => {
            failures.push(SiteFailure {
                site,
                at_ms: unix_ms,
                why,
                over_at_ms: None,
                overruled: Some(by.to_owned()),
            });
        }
        (None, _) => {}
    }
    failures
}

/// The decision after an operator overrules the members of this site; `None` if they report no failure. The term
/// stays the same.
pub fn overrule_site(
    elected: &Elected,
    members: &[MemberRecord],
    site: &SiteId,
    by: &str,
    unix_ms: u64,
) -> Option<Elected> {
    let site_failures = overrule(elected.site_failures.clone(), members, site, by, unix_ms);
    let next = Elected { site_failures, ..elected.clone() }.bounded();
    (next.site_failures != elected.site_failures).then_some(next)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::policy::SiteFailureLimit;
    use crate::record::{FailedSite, Record as _};

    fn member(id: &str, site: &str, says: &str) -> MemberRecord {
        let says = match says {
            "" => String::new(),
            "well" => r#","site_health":{"state":"healthy"}"#.to_owned(),
            "unknown" => r#","site_health":{"state":"unknown"}"#.to_owned(),
            why => format!(r#","site_health":{{"state":"unhealthy","reason":"{why}"}}"#),
        };
        let json = format!(r#"{{"v":1,"member":"{id}","site":"{site}","ballot":"{id}-0000000001"{says}}}"#);
        MemberRecord::decode("/n", json.as_bytes()).unwrap()
    }

    fn elected() -> Elected {
        let json = r#"{"v":1,"term":1,"slots":[],"decided_by":"e"}"#;
        Elected::decode("/elected", json.as_bytes()).unwrap()
    }

    fn told(members: &[MemberRecord], control: &Control) -> Vec<String> {
        failed_sites(members, control, None).iter().map(|f| format!("{}: {}", f.site, f.why)).collect()
    }

    /// The failed sites, given these members of east and one of west that has no check.
    fn of_east(says: &[&str]) -> Vec<String> {
        let east = says.iter().map(|says| member("e", "east", says));
        let members: Vec<_> = east.chain([member("w-1", "west", "")]).collect();
        told(&members, &Control::default())
    }

    #[test]
    fn most_of_its_living_members_that_know_have_to_say_so() {
        assert_eq!(of_east(&["", "", ""]), [""; 0]);
        assert_eq!(of_east(&["no power", "well", ""]), [""; 0]);
        assert_eq!(of_east(&["no power", "well", "unknown"]), [""; 0]);
        let two = of_east(&["no power", "no power", "well"]);
        assert_eq!(two, ["east: 2 of its 3 members say so: no power"]);
        // A member that does not know is no witness that all is well.
        let one = of_east(&["no power", "", "unknown"]);
        assert_eq!(one, ["east: 1 of the 1 that know of its 3 members says so: no power"]);
    }

    #[test]
    fn what_fails_everywhere_is_no_sites_fault() {
        let both = |west: &str| {
            let members = [member("e-1", "east", "no power"), member("w-1", "west", west)];
            told(&members, &Control::default()).len()
        };
        assert_eq!(both("no power"), 0, "nowhere better to be");
        assert_eq!(both("unknown"), 0, "it may be as bad there");
        assert_eq!(both("well"), 1);
        assert_eq!(both(""), 1, "nobody wants to know of it there");
        assert_eq!(told(&[member("e-1", "east", "no power")], &Control::default()), [""; 0], "the only site");
        let drained = Control { drained: vec![SiteId::new("west").unwrap()], ..Control::default() };
        let members = [member("e-1", "east", "no power"), member("w-1", "west", "well")];
        assert_eq!(told(&members, &drained), [""; 0], "nobody may be there");
    }

    #[test]
    fn an_operator_can_say_that_it_is_well() {
        let members = [member("e-1", "east", "no power"), member("w-1", "west", "well")];
        let east = SiteId::new("east").unwrap();
        let failed = |elected: &Elected| failed_sites(&members, &Control::default(), Some(elected)).len();
        let before = elected();
        assert_eq!(failed(&before), 1);
        let next = overrule_site(&before, &members, &east, "ann", 7).unwrap();
        assert_eq!(failed(&next), 0);
        assert_eq!(overrule_site(&next, &members, &east, "ann", 8), None);
        assert_eq!(overrule_site(&before, &members, &SiteId::new("west").unwrap(), "ann", 7), None);
        // The next failure is a separate one.
        let mut over = next;
        over.site_failures[0].over_at_ms = Some(9);
        assert_eq!(failed(&over), 1);
    }

    #[test]
    fn an_operators_word_is_enough() {
        let site = |reason: Option<&str>| FailedSite {
            site: SiteId::new("east").unwrap(),
            ordered: OrderedBy { reason: reason.map(str::to_owned), by: "ann@desk".to_owned(), at_ms: 5 },
        };
        let control = |reason| Control { failed_sites: vec![site(reason)], ..Control::default() };
        assert_eq!(told(&[], &control(None)), ["east: declared by ann@desk"]);
        assert_eq!(told(&[], &control(Some("flood"))), ["east: declared by ann@desk: flood"]);
    }

    #[test]
    fn a_failure_counts_while_it_goes_on_and_within_the_window() {
        let site = SiteId::new("east").unwrap();
        let failure = |at_ms, over: bool| SiteFailure {
            site: site.clone(),
            at_ms,
            why: String::new(),
            over_at_ms: over.then_some(at_ms + 1),
            overruled: None,
        };
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
        let overruled = SiteFailure { overruled: Some("ann".to_owned()), ..failure(55, true) };
        assert_eq!(barred(2, &[failure(50, true), overruled], 60), 0);
        assert_eq!(barred(0, &[failure(50, true), failure(55, true)], 60), 0);
        // A long one does not count when it is over, but its end is remembered.
        let long = SiteFailure { over_at_ms: Some(150), ..failure(5, false) };
        assert_eq!(barred(1, std::slice::from_ref(&long), 150), 0);
        assert_eq!(remembered(&policy(1), vec![long.clone(), failure(5, false)], 150).len(), 2);
        assert_eq!(remembered(&policy(1), vec![long, failure(5, false)], 250).len(), 1);
    }
}
