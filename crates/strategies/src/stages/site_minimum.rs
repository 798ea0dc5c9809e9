use std::{collections::BTreeMap, fmt};

use election_core::strategy::{Cause, MemberRecord, Round, SiteId};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::{Healthy, NotExcluded, Priority, SiteOrder, failed};
use crate::stage::{Comparison, Filter, Stage, Standing};
use crate::types::{bounded, within};

/// The number of fit members of a site that is enough.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Minimum {
    /// The same number in all sites.
    All(u32),
    /// A number for each of these sites; 1 in the others.
    Each(BTreeMap<SiteId, u32>),
}

impl Default for Minimum {
    fn default() -> Self {
        Self::All(1)
    }
}

/// The largest number.
pub(crate) const MAX: u32 = 1000;

impl<'de> Deserialize<'de> for Minimum {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct NumberOrTable;

        impl<'de> Visitor<'de> for NumberOrTable {
            type Value = Minimum;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer, or a table such as { east = 2 }")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Minimum, E> {
                within(number, 1, MAX).map(Minimum::All)
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Minimum, A::Error> {
                #[derive(Deserialize)]
                struct Least(#[serde(deserialize_with = "bounded::<_, _, 1, MAX>")] u32);

                let sites = BTreeMap::<SiteId, Least>::deserialize(MapAccessDeserializer::new(table))?;
                Ok(Minimum::Each(sites.into_iter().map(|(site, least)| (site, least.0)).collect()))
            }
        }

        from.deserialize_any(NumberOrTable)
    }
}

impl Minimum {
    fn of(&self, site: &SiteId) -> u32 {
        match self {
            Self::All(least) => *least,
            Self::Each(sites) => sites.get(site).copied().unwrap_or(1),
        }
    }

    /// Whether one member is enough in all sites.
    pub fn is_none(&self) -> bool {
        match self {
            Self::All(least) => *least <= 1,
            Self::Each(sites) => sites.values().all(|least| *least <= 1),
        }
    }
}

/// As a comparison: sites with enough fit members go before those with too few. A site whose only member leads has no
/// other one to take over.
/// As a filter: it refuses the members of sites with too few. The incumbent passes, so a leader stays when another
/// member of its site fails.
///
/// Fit members are healthy, have a priority above 0 and no exclusion, or lead other slots. A closed site is not counted
/// differently: filters handle it. The incumbent counts like the others. A leader that hands over as planned counts
/// although it is no candidate; a leader that failed does not. The count does not depend on the leader: a move does not
/// change it.
/// A grade is enough or too few, not a count: one member more or less changes nothing while there are enough. It
/// depends on the other candidates: when one joins or leaves, whole sites can change their order.
#[derive(Clone, Debug)]
pub struct SiteMinimum {
    least: Minimum,
    order: SiteOrder,
}

impl Stage for SiteMinimum {
    const NAME: &'static str = "site-minimum";
}

impl SiteMinimum {
    /// This is enough. The first decision is worth waiting for while the first open site of `order` has members that can
    /// lead, but too few.
    pub fn new(least: Minimum, order: SiteOrder) -> Self {
        Self { least, order }
    }

    fn fit<'a>(site: &'a SiteId, round: &'a Round<'_>) -> impl Iterator<Item = ()> + 'a {
        let failed = failed(round).map(|failed| &failed.ballot);
        let candidates = round.candidates.iter().filter(move |candidate| {
            let filters: [&dyn Filter; 3] = [&Healthy, &Priority, &NotExcluded];
            candidate.site == *site
                && Some(&candidate.ballot) != failed
                && filters.iter().all(|filter| filter.refuse(candidate, round).is_none())
        });
        let others = round.others.iter().filter(move |other| other.site == *site);
        // It is healthy, and returns soon or continues as a standby.
        let is_planned = matches!(round.cause, Cause::LeaderShutdown | Cause::Switchover);
        let leaving = round.previous.filter(move |previous| {
            is_planned
                && previous.site == *site
                && !round.candidates.iter().any(|candidate| candidate.ballot == previous.ballot)
        });
        candidates.map(drop).chain(others.map(drop)).chain(leaving.into_iter().map(drop))
    }

    fn has_enough(&self, site: &SiteId, round: &Round<'_>) -> bool {
        let least = self.least.of(site) as usize;
        // Not further than needed: this runs for each candidate.
        Self::fit(site, round).take(least).count() == least
    }

    fn words(&self, site: &SiteId, round: &Round<'_>) -> String {
        let (count, least) = (Self::fit(site, round).count(), self.least.of(site));
        let members = if count == 1 { "member" } else { "members" };
        format!("site {site} has {count} fit {members} of at least {least}")
    }
}

impl Filter for SiteMinimum {
    fn refuse(&self, candidate: &MemberRecord, round: &Round<'_>) -> Option<String> {
        let passes = round.incumbent == Some(&candidate.ballot) || self.has_enough(&candidate.site, round);
        (!passes).then(|| format!("{} (below_site_minimum)", self.words(&candidate.site, round)))
    }
}

impl Comparison for SiteMinimum {
    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        i64::from(!self.has_enough(&candidate.site, round))
    }

    fn reason(&self, candidate: &MemberRecord, _: Standing, round: &Round<'_>) -> String {
        self.words(&candidate.site, round)
    }

    fn speaks_when_tied(&self, candidate: &MemberRecord, round: &Round<'_>) -> bool {
        !self.has_enough(&candidate.site, round)
    }

    fn worth_waiting(&self, electable: &[&MemberRecord], round: &Round<'_>) -> Option<String> {
        let site = self.order.first_open(round)?;
        let short = !self.has_enough(site, round) && electable.iter().any(|member| member.site == *site);
        short.then(|| self.words(site, round))
    }
}

#[cfg(test)]
mod tests {
    use election_core::strategy::Strategy as _;

    use super::*;
    use crate::{
        Pipeline,
        testing::{
            View, ballot, exclusion, member, order, previous, refused, sites, unhealthy, with_priority,
        },
    };

    fn stage(least: Minimum) -> SiteMinimum {
        SiteMinimum::new(least, SiteOrder::new(sites(["east", "west"])))
    }

    fn two() -> Pipeline {
        Pipeline::new().compare(stage(Minimum::All(2)))
    }

    fn required(least: Minimum) -> Pipeline {
        Pipeline::new().filter(stage(least.clone())).compare(stage(least))
    }

    fn west(also: impl IntoIterator<Item = MemberRecord>) -> View {
        let west = [member("w-1", "west", 11), member("w-2", "west", 12)];
        View::of(west.into_iter().chain(also))
    }

    /// The number of fit members of east, from the reason for `east`.
    fn count(view: &View) -> usize {
        SiteMinimum::fit(&"east".parse().unwrap(), &view.round()).count()
    }

    #[test]
    fn a_site_with_too_few_goes_behind_and_is_led_from_where_there_is_no_other() {
        let mut view = west([member("a-1", "east", 1)]);
        assert_eq!(
            order(&two(), &view),
            [
                "w-1: site west has 2 fit members of at least 2; first by member id",
                "w-2: site west has 2 fit members of at least 2; second by member id",
                "a-1: site east has 1 fit member of at least 2",
            ]
        );
        view.members.retain(|member| member.site.as_str() == "east");
        assert_eq!(
            order(&two(), &view),
            ["a-1: the only candidate; site east has 1 fit member of at least 2"]
        );
        let enough = View::of([member("a-1", "east", 1), member("a-2", "east", 2)]);
        assert_eq!(order(&two(), &enough), ["a-1: first by member id", "a-2: second by member id"]);
    }

    #[test]
    fn enough_is_enough() {
        let three = ["e-1", "e-2", "e-3"].map(|id| member(id, "east", 3));
        assert_eq!(order(&two(), &west(three))[0], "e-1: first by member id", "three are no better than two");
    }

    #[test]
    fn only_who_is_fit_counts() {
        let mut view = west([
            member("e-1", "east", 1),
            unhealthy("e-2", "east", 2, "full"),
            with_priority("e-3", "east", 3, 0),
        ]);
        assert_eq!(count(&view), 1);
        view.exclusions = vec![exclusion(1, view.unix_ms + 1)];
        assert_eq!(count(&view), 0);
        // Problems of the whole site are reported by other stages.
        view.exclusions.clear();
        view.control.drained = sites(["east"]);
        assert_eq!(count(&view), 1);
    }

    #[test]
    fn who_leads_elsewhere_or_hands_over_as_planned_counts_and_who_failed_does_not() {
        let mut view = west([member("e-1", "east", 1)]);
        view.others = vec![member("e-9", "east", 9).named()];
        assert_eq!(count(&view), 2);
        view.others.clear();
        for cause in Cause::ALL {
            view.cause = cause;
            let planned = matches!(cause, Cause::LeaderShutdown | Cause::Switchover);
            view.previous = Some(previous("e-8", "east", 8));
            assert_eq!(count(&view), 1 + usize::from(planned), "{cause}");
            // It is counted once.
            view.previous = Some(previous("e-1", "east", 1));
            view.incumbent = Some(ballot(1));
            assert_eq!(count(&view), 1, "{cause}");
            view.failed = view.previous.clone();
            assert_eq!(count(&view), usize::from(!cause.is_failure()), "{cause}");
            view.failed = None;
        }
    }

    #[test]
    fn each_site_can_have_a_number_of_its_own() {
        let each = |east| Minimum::Each([(sites(["east"]).remove(0), east)].into());
        let view = west([member("a-1", "east", 1)]);
        assert_eq!(
            order(&Pipeline::new().compare(stage(each(2))), &view)[2],
            "a-1: site east has 1 fit member of at least 2"
        );
        assert!(order(&Pipeline::new().compare(stage(each(1))), &view)[0].starts_with("a-1"));
        assert!(each(1).is_none() && Minimum::All(1).is_none());
        assert!(!each(2).is_none() && !Minimum::All(2).is_none());
    }

    #[test]
    fn where_it_is_required_no_member_of_a_short_site_is_chosen() {
        let mut view = west([member("a-1", "east", 1)]);
        let why = "a-1 (site-minimum): site east has 1 fit member of at least 2 (below_site_minimum)";
        for cause in Cause::ALL {
            view.cause = cause;
            assert_eq!(refused(&required(Minimum::All(2)), &view), [why], "{cause}");
        }
        // No site has enough: no member is chosen, not even one that an operator names.
        view.members.retain(|member| member.site.as_str() == "east");
        view.ordered = Some(ballot(1));
        assert_eq!(order(&required(Minimum::All(2)), &view), [""; 0]);
        assert_eq!(refused(&required(Minimum::All(2)), &view), [why]);
    }

    #[test]
    fn where_it_is_required_a_leader_stays_when_its_spare_fails_and_has_no_successor_there() {
        let view = west([member("a-1", "east", 1), unhealthy("a-2", "east", 2, "full")]);
        let leading = View { incumbent: Some(ballot(1)), ..view }.because(Cause::BetterCandidate);
        let ranking = required(Minimum::All(2)).rank(&leading.round());
        assert!(ranking.refusal(&ballot(1)).is_none(), "{ranking:?}");
        // With auto_moves = "all" the move to a better site waits as any such move.
        assert_eq!(ranking.first().unwrap().named.site.as_str(), "west");

        // It is lost while its spare is there again: the failed leader does not count.
        let view = west([member("a-1", "east", 1), member("a-2", "east", 2)]).after_loss_of("a-1");
        let successors = order(&required(Minimum::All(2)), &view);
        assert!(successors.iter().all(|line| line.starts_with("w-")), "{successors:?}");
        // A leader that hands over as planned counts: a restart does not change the site.
        let planned = view.because(Cause::LeaderShutdown);
        assert!(order(&required(Minimum::All(2)), &planned).iter().any(|line| line.starts_with("a-2")));
    }

    #[test]
    fn a_first_decision_is_worth_waiting_for_more_of_the_first_site_alone() {
        let waits = |view: &View| two().rank(&view.round()).worth_waiting;
        let short = "site east has 1 fit member of at least 2";
        assert_eq!(waits(&west([member("e-1", "east", 1)])).as_deref(), Some(short));
        assert_eq!(waits(&west([member("e-1", "east", 1), member("e-2", "east", 2)])), None);
        let last = View::of([member("e-1", "east", 1), member("e-2", "east", 2), member("w-1", "west", 3)]);
        assert_eq!(waits(&last), None);
        let mut drained = west([member("e-1", "east", 1)]);
        drained.control.drained = sites(["east"]);
        assert_eq!(waits(&drained), None);
    }
}
