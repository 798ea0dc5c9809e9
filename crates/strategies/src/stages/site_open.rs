use election_core::strategy::{Ground, MemberRecord, Round};

use crate::stage::{Filter, Stage};

/// Refuses members of a site that operators have drained, and members that are being serviced.
#[derive(Clone, Copy, Debug, Default)]
pub struct SiteOpen;

impl Stage for SiteOpen {
    const NAME: &'static str = "site-open";
}

impl Filter for SiteOpen {
    fn refuse(&self, candidate: &MemberRecord, round: &Round<'_>) -> Option<String> {
        let site = &candidate.site;
        let drained = round.control.drained.contains(site);
        let serviced = || {
            round.control.serviced(&candidate.member).map(|order| match &order.ordered.reason {
                Some(reason) => format!("it is in maintenance: {reason}"),
                None => "it is in maintenance".to_owned(),
            })
        };
        drained.then(|| format!("site {site} is drained")).or_else(serviced)
    }

    fn ground(&self, _: &MemberRecord) -> Ground {
        Ground::Order
    }
}

#[cfg(test)]
mod tests {
    use election_core::strategy::{Maintenance, OrderedBy};

    use super::*;
    use crate::testing::{View, member, sites};

    #[test]
    fn a_drained_site_is_closed() {
        let cases = [
            (vec![], None),
            (sites(["west"]), None),
            (sites(["west", "east"]), Some("site east is drained")),
        ];
        for (drained, refusal) in cases {
            let mut view = View::default();
            view.control.drained = drained;
            let got = SiteOpen.refuse(&member("east-1", "east", 1), &view.round());
            assert_eq!(got.as_deref(), refusal, "{:?}", view.control);
        }
    }

    #[test]
    fn a_member_that_is_serviced_is_refused_alone() {
        let mut view = View::default();
        view.control.maintenance = vec![Maintenance {
            member: member("east-1", "east", 1).member,
            site: None,
            ordered: OrderedBy { reason: Some("new disk".to_owned()), ..OrderedBy::default() },
        }];
        let refuse = |id| SiteOpen.refuse(&member(id, "east", 1), &view.round());
        assert_eq!(refuse("east-1").as_deref(), Some("it is in maintenance: new disk"));
        assert_eq!(refuse("east-2"), None);
    }
}
