use election_core::strategy::{MemberRecord, Round, SiteId};

use super::is_closed;
use crate::{
    stage::{Comparison, Stage, Standing},
    words,
};

/// Sites in order of preference.
/// The site that operators prefer at run time
/// ([`Control::preferred_site`](election_core::strategy::Control::preferred_site)) goes before all others, listed or not.
/// An order of the operators ([`Control::site_order`](election_core::strategy::Control::site_order)) replaces this one.
/// Unlisted sites come last and are equal.
#[derive(Clone, Debug, Default)]
pub struct SiteOrder {
    sites: Vec<SiteId>,
    /// No member of these may lead: they are not worth waiting for.
    forbidden: Vec<SiteId>,
}

impl Stage for SiteOrder {
    const NAME: &'static str = "site-order";
}

impl SiteOrder {
    /// The most preferred site first. A site that is named twice counts at its first position.
    pub fn new(sites: impl IntoIterator<Item = SiteId>) -> Self {
        Self { sites: sites.into_iter().collect(), forbidden: Vec::new() }
    }

    /// The same order if no member of these sites may lead, whatever operators prefer.
    #[must_use]
    pub fn without(self, forbidden: impl IntoIterator<Item = SiteId>) -> Self {
        Self { forbidden: forbidden.into_iter().collect(), ..self }
    }

    /// The first site in which a member may be elected.
    pub(crate) fn first_open<'a>(&'a self, round: &Round<'a>) -> Option<&'a SiteId> {
        let all = round.control.preferred_site.iter().chain(self.sites(round));
        let mut open = all.filter(|site| !is_closed(site, round) && !self.forbidden.contains(site));
        open.next()
    }

    /// The order in force.
    fn sites<'a>(&'a self, round: &Round<'a>) -> &'a [SiteId] {
        if round.control.site_order.is_empty() { &self.sites } else { &round.control.site_order }
    }

    fn place(&self, site: &SiteId, round: &Round<'_>) -> Option<usize> {
        self.sites(round).iter().position(|listed| listed == site)
    }

    fn words(&self, site: &SiteId, round: &Round<'_>) -> String {
        let order = if round.control.site_order.is_empty() { "order" } else { "the operators' order" };
        match self.place(site, round) {
            _ if is_preferred(site, round) => format!("site {site} is preferred by a standing order"),
            Some(place) => format!("site {site} is {} in {order}", words::ordinal(place)),
            None => format!("site {site} is not in the order of sites"),
        }
    }
}

fn is_preferred(site: &SiteId, round: &Round<'_>) -> bool {
    round.control.preferred_site.as_ref() == Some(site)
}

impl Comparison for SiteOrder {
    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        match self.place(&candidate.site, round) {
            _ if is_preferred(&candidate.site, round) => -1,
            Some(place) => i64::try_from(place).unwrap_or(i64::MAX),
            None => i64::MAX,
        }
    }

    fn reason(&self, candidate: &MemberRecord, _: Standing, round: &Round<'_>) -> String {
        self.words(&candidate.site, round)
    }

    fn speaks_when_tied(&self, candidate: &MemberRecord, round: &Round<'_>) -> bool {
        // Without any order 'not in the order' would be noise.
        !self.sites(round).is_empty() || is_preferred(&candidate.site, round)
    }

    fn worth_waiting(&self, electable: &[&MemberRecord], round: &Round<'_>) -> Option<String> {
        let best = self.first_open(round)?;
        // With several slots, those that lead another one are candidates no more.
        let leads = round.others.iter().any(|other| other.site == *best);
        if leads || electable.iter().any(|candidate| candidate.site == *best) {
            return None;
        }
        let words = self.words(best, round);
        Some(format!("{words}, and none of its members can lead yet"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Pipeline,
        testing::{View, member, order, sites},
    };

    fn three_sites() -> View {
        View::of([
            member("n-1", "north", 1),
            member("w-1", "west", 2),
            member("e-1", "east", 3),
            member("s-1", "south", 4),
        ])
    }

    fn east_west() -> Pipeline {
        Pipeline::new().compare(SiteOrder::new(sites(["east", "west"])))
    }

    #[test]
    fn listed_sites_in_order_then_all_others_alike() {
        assert_eq!(
            order(&east_west(), &three_sites()),
            [
                "e-1: site east is first in order",
                "w-1: site west is second in order",
                "n-1: site north is not in the order of sites; first by member id",
                "s-1: site south is not in the order of sites; second by member id",
            ]
        );
    }

    #[test]
    fn the_preferred_site_goes_first_listed_or_not() {
        let mut view = three_sites();
        for (preferred, first) in [("west", "w-1"), ("south", "s-1")] {
            view.control.preferred_site = sites([preferred]).pop();
            let order = order(&east_west(), &view);
            let expected = format!("{first}: site {preferred} is preferred by a standing order");
            assert_eq!(order[0], expected);
            assert_eq!(order[1], "e-1: site east is first in order");
        }
        view.control.preferred_site = sites(["nowhere"]).pop();
        assert_eq!(order(&east_west(), &view), order(&east_west(), &three_sites()));
    }

    #[test]
    fn the_site_is_named_even_where_all_stand_in_it() {
        let view = View::of([member("w-1", "west", 2), member("w-2", "west", 3)]);
        assert_eq!(order(&east_west(), &view)[0], "w-1: site west is second in order; first by member id");
        let no_order = Pipeline::new().compare(SiteOrder::default());
        assert_eq!(order(&no_order, &view)[0], "w-1: first by member id");
    }

    #[test]
    fn a_first_decision_is_worth_waiting_for_the_first_open_site() {
        let west = [member("w-1", "west", 1)];
        let both = [member("w-1", "west", 1), member("e-1", "east", 2)];
        let waits = |members: &[MemberRecord], drained: &[&str], preferred: Option<&str>| {
            let mut view = View::of(members.iter().cloned());
            view.control.drained = sites(drained.iter().copied());
            view.control.preferred_site = preferred.and_then(|site| sites([site]).pop());
            let electable: Vec<_> = view.members.iter().collect();
            SiteOrder::new(sites(["east", "west"])).worth_waiting(&electable, &view.round())
        };
        let for_east = "site east is first in order, and none of its members can lead yet";
        assert_eq!(waits(&west, &[], None).as_deref(), Some(for_east));
        assert_eq!(waits(&both, &[], None), None);
        assert_eq!(waits(&west, &["east"], None), None);
        assert_eq!(waits(&west, &["east", "west"], None), None);
        assert_eq!(waits(&west, &[], Some("west")), None);
        assert_eq!(
            waits(&both, &[], Some("south")).as_deref(),
            Some("site south is preferred by a standing order, and none of its members can lead yet")
        );
        assert_eq!(waits(&west, &["south"], Some("south")).as_deref(), Some(for_east));
    }
}
