//! `drain` and `fail-site`.

use clap::Args;
use election_core::{
    config::SiteId,
    internals::record::{Control, FailedSite, MemberRecord},
};

use crate::{
    commands::{
        operation::{Ask, Election, Operation, Order, OrderChange, Question},
        sites::check_sites,
        standing::StandingOrders,
    },
    error::Error,
};

/// Close a site: leaders hand over, no member there is elected.
///
/// If no member of another site can lead, it asks for confirmation. A script then needs --yes.
#[derive(Debug, Args)]
pub(super) struct Drain {
    #[command(flatten)]
    closed: ClosedSite,
}

/// Mark a site as failed: its leaders are replaced.
///
/// They are replaced as after a failure.
/// A leader there that does not stop is replaced only by `failover --force`.
#[derive(Debug, Args)]
pub(super) struct FailSite {
    #[command(flatten)]
    closed: ClosedSite,
}

/// A site that is closed, or open again.
#[derive(Debug, Args)]
struct ClosedSite {
    /// Site.
    #[arg(value_name = "SITE")]
    site: SiteId,
    /// Withdraw the order.
    #[arg(long)]
    off: bool,
    /// Accept an unknown site.
    ///
    /// One that is not configured and has no member.
    #[arg(long)]
    unknown: bool,
}

impl Operation for Drain {
    type Outcome = StandingOrders;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, StandingOrders>, Error> {
        let site = &self.closed.site;
        let change = move |control: &mut Control, off| {
            if off {
                control.drained.retain(|drained| drained != site);
            } else if !control.drained.contains(site) {
                control.drained.push(site.clone());
            }
        };
        self.closed.order(of, false, change, |control| control.drained.contains(site)).await
    }
}

impl Operation for FailSite {
    type Outcome = StandingOrders;

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, StandingOrders>, Error> {
        let (site, ordered) = (&self.closed.site, of.author.ordered_now());
        let is_marked = |control: &Control| control.failed_sites.iter().any(|failed| failed.site == *site);
        let change = move |control: &mut Control, off| {
            if off {
                control.failed_sites.retain(|failed| failed.site != *site);
            } else if !is_marked(control) {
                // The first operator and reason are kept.
                control.failed_sites.push(FailedSite { site: site.clone(), ordered: ordered.clone() });
            }
        };
        match self.closed.order(of, true, change, is_marked).await? {
            // Withdrawn, it overrules the members that report it.
            Ask::Order(order) if self.closed.off => Ok(Ask::Order(Order { overrules: Some(site), ..order })),
            ask => Ok(ask),
        }
    }
}

impl ClosedSite {
    /// The order that changes the orders so. `fails`: whether it marks the site as failed.
    async fn order<'a>(
        &'a self,
        of: &'a Election<'a>,
        fails: bool,
        change: impl Fn(&mut Control, bool) + Send + 'a,
        is_given: impl Fn(&Control) -> bool + Send + 'a,
    ) -> Result<Ask<'a, StandingOrders>, Error> {
        let Self { site, off, unknown } = self;
        let verb = if fails { "fail-site" } else { "drain" };
        let what = if *off { format!("{verb} {site} --off") } else { format!("{verb} {site}") };
        let snapshot = of.snapshot().await?;
        let sites = Some(site).filter(|_| !unknown);
        check_sites(of.operator, of.job, sites, &snapshot, " (--unknown to override)")
            .map_err(Error::Usage)?;
        let was_last = is_last(site, &snapshot.members, &snapshot.control);
        // An order that is given already changes nothing.
        let question = match *off || is_given(&snapshot.control) {
            true => None,
            false => question(of.job, site, fails, was_last),
        };
        let change: OrderChange<'a> = Box::new(move |control| {
            if !off && is_overtaken(site, was_last, &snapshot.members, control) {
                return Err(Error::NotNow(format!(
                    "{}: another order has meanwhile closed the other sites; nothing was changed there",
                    of.job
                )));
            }
            change(control, *off);
            Ok(())
        });
        Ok(Ask::Order(Order { question, ..StandingOrders::order(of, what, change) }))
    }
}

/// Whether no member of another site can lead under these orders.
fn is_last(site: &SiteId, members: &[MemberRecord], control: &Control) -> bool {
    let is_open = |other: &SiteId| {
        other != site
            && !control.drained.contains(other)
            && control.failed_sites.iter().all(|failed| failed.site != *other)
    };
    let is_fit = |member: &MemberRecord| {
        member.health.is_fit() && member.priority > 0 && control.serviced(&member.member).is_none()
    };
    members.iter().any(|member| member.site == *site)
        && !members.iter().any(|member| is_open(&member.site) && is_fit(member))
}

/// Whether the orders in force, which the order is about to change, make it dangerous as it was not when the operator was
/// asked.
fn is_overtaken(site: &SiteId, was_last: bool, members: &[MemberRecord], control: &Control) -> bool {
    !was_last && is_last(site, members, control)
}

/// A mark as failed is always dangerous; a drain is if no other site is left.
fn question(job: &str, site: &SiteId, fails: bool, is_last: bool) -> Option<Question> {
    let last = if is_last { "; no member of another site can lead" } else { "" };
    let (what, needs_yes) = match (fails, is_last) {
        (true, _) => {
            (format!("mark site {site} as failed: its leaders are replaced as after a failure"), false)
        }
        (false, true) => (format!("drain site {site}"), true),
        (false, false) => return None,
    };
    Some(Question { what: format!("{job}: {what}{last}"), needs_yes })
}

#[cfg(test)]
mod tests {
    use election_core::internals::record::Record as _;
    use serde_json::json;

    use super::*;

    fn member(name: &str, site: &str) -> MemberRecord {
        let record = json!({ "v": 1, "member": name, "ballot": "s1.1-0000000001", "site": site });
        MemberRecord::decode("/nodes/x", record.to_string().as_bytes()).unwrap()
    }

    /// Two operators drain the two sites, and each has looked before the other one's order.
    #[test]
    fn a_drain_that_was_harmless_when_it_was_asked_about_is_refused() {
        let (east, west): (SiteId, SiteId) = ("east".parse().unwrap(), "west".parse().unwrap());
        let members = vec![member("east-1", "east"), member("west-1", "west")];
        let is_overtaken = |was_last, control: &Control| is_overtaken(&west, was_last, &members, control);
        let drained = |sites: &[&SiteId]| {
            let mut control = Control::default();
            control.drained = sites.iter().copied().cloned().collect();
            control
        };
        assert!(!is_overtaken(false, &drained(&[])));
        assert!(!is_overtaken(false, &drained(&[&west])));
        assert!(is_overtaken(false, &drained(&[&east])));
        // The operator has said yes to that.
        assert!(!is_overtaken(true, &drained(&[&east])));
    }
}
