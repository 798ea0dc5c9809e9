use std::{collections::BTreeMap, fmt, num::NonZeroU32};

use election_core::strategy::{MemberId, MemberRecord, Round, SiteId};

use serde::Deserialize;

use super::is_incumbent;
use crate::{
    meter::Publishing,
    needs::Needs,
    stage::{Comparison, Stage, Standing},
    steadiness::Steadiness,
    types::micros,
};

/// The nearest member goes first, by the round trips that the members have measured; after 'Latency-aware leader
/// election' (Santos, Hutle, Schiper, SAC 2009).
/// A missing round trip counts as infinite. The other members that count are the living members that any candidate has
/// measured. A member that has just joined and is not measured yet changes nothing among the others, and is last
/// itself.
/// All sites count alike; the members of a site share its weight. So a site that gains or loses a spare is not nearer
/// or farther.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Latency {
    by: Distance,
    #[serde(deserialize_with = "micros")]
    tolerance: u64,
    #[serde(deserialize_with = "micros")]
    margin: u64,
    /// Their weights, by [`Distance::Targets`].
    targets: BTreeMap<String, NonZeroU32>,
    /// The error of what is published.
    #[serde(skip)]
    percent: u32,
    #[serde(skip)]
    micros: u32,
}

/// The round trips that count, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Distance {
    /// The longest round trip to reach a majority of the members, itself included: the time until a majority confirms a
    /// write of the leader.
    #[default]
    Majority,
    /// The mean of the round trips to all members, itself included.
    Mean,
    /// The longest round trip to any other member.
    Worst,
    /// The round trip to ZooKeeper.
    ZooKeeper,
    /// The weighted mean of the round trips to some targets.
    Targets,
}

impl Stage for Latency {
    const NAME: &'static str = "latency";
}

impl Default for Latency {
    fn default() -> Self {
        Self::new(Distance::Majority, Steadiness::default())
    }
}

impl Latency {
    /// By this distance. The steadiness is in microseconds.
    pub fn new(by: Distance, Steadiness { tolerance, margin }: Steadiness) -> Self {
        Self { by, tolerance, margin, targets: BTreeMap::new(), percent: 0, micros: 0 }
    }

    /// By the round trips to these targets, with their weights. The steadiness is in microseconds.
    pub fn to_targets(
        targets: impl IntoIterator<Item = (String, NonZeroU32)>,
        steadiness: Steadiness,
    ) -> Self {
        Self { targets: targets.into_iter().collect(), ..Self::new(Distance::Targets, steadiness) }
    }

    /// For round trips that are published like this: the incumbent's can be wrong by as much, and a smaller margin
    /// could move leadership without a gain.
    #[must_use]
    pub fn published_by(self, publishing: &Publishing) -> Self {
        Self { percent: publishing.percent, micros: publishing.micros, ..self }
    }

    /// The difference by which another member must be nearer than the incumbent at this distance.
    fn margin(&self, distance: Option<u64>) -> u64 {
        let share = distance.map_or(0, |us| us.saturating_mul(u64::from(self.percent)) / 100);
        self.margin.max(u64::from(self.micros)).max(share)
    }

    pub(crate) fn needs(&self) -> Needs {
        let targets = self.targets.keys().cloned().collect();
        let peers = matches!(self.by, Distance::Majority | Distance::Mean | Distance::Worst);
        Needs { peers, zookeeper: self.by == Distance::ZooKeeper, targets, ..Needs::default() }
    }

    /// Whether there are targets where they count, and nowhere else.
    pub(crate) fn has_targets_to_count(&self) -> bool {
        (self.by == Distance::Targets) != self.targets.is_empty()
    }

    /// The distance of a candidate in microseconds, if known.
    fn distance(&self, candidate: &MemberRecord, round: &Round<'_>) -> Option<u64> {
        let trips = &candidate.round_trips;
        match self.by {
            Distance::Majority => majority(shares(candidate, round)),
            Distance::Mean => mean(&shares(candidate, round)),
            Distance::Worst => {
                shares(candidate, round).iter().try_fold(0, |worst, share| Some(share.trip?.max(worst)))
            }
            Distance::ZooKeeper => trips.zookeeper.map(u64::from),
            Distance::Targets => {
                let share = |(name, weight): (&String, &NonZeroU32)| MemberWeight {
                    weight: u64::from(weight.get()),
                    trip: trips.targets.get(name).copied().map(u64::from),
                };
                mean(&self.targets.iter().map(share).collect::<Vec<_>>())
            }
        }
    }

    fn what(&self) -> String {
        match self.by {
            Distance::Majority => "to a majority".to_owned(),
            Distance::Mean => "to the members on average".to_owned(),
            Distance::Worst => "to the farthest".to_owned(),
            Distance::ZooKeeper => "to ZooKeeper".to_owned(),
            Distance::Targets => "to the targets".to_owned(),
        }
    }
}

/// The weight of one member or target, and its distance, if known.
struct MemberWeight {
    weight: u64,
    trip: Option<u64>,
}

/// The weight of a site. It can be divided by any number of members with almost no remainder.
const SITE: u64 = 720_720_000;

/// All members that count, the candidate itself included.
fn shares(candidate: &MemberRecord, round: &Round<'_>) -> Vec<MemberWeight> {
    let candidates = round.candidates.iter().map(|m| (&m.member, &m.site));
    let mut living: BTreeMap<&MemberId, &SiteId> =
        candidates.chain(round.others.iter().map(|o| (&o.member, &o.site))).collect();
    let is_measured = |id: &MemberId| round.candidates.iter().any(|m| m.round_trips.peers.contains_key(id));
    living.retain(|id, _| **id == candidate.member || is_measured(id));
    living.insert(&candidate.member, &candidate.site);
    let of_site = |site: &SiteId| living.values().filter(|other| **other == site).count();
    let trip = |id: &MemberId| match candidate.round_trips.peers.get(id) {
        _ if *id == candidate.member => Some(0),
        known => known.copied().map(u64::from),
    };
    let weight = |site: &SiteId| SITE / u64::try_from(of_site(site)).unwrap_or(u64::MAX).max(1);
    living.iter().map(|(id, site)| MemberWeight { weight: weight(site), trip: trip(id) }).collect()
}

/// The longest round trip that it takes to reach more than half of the weight.
fn majority(mut shares: Vec<MemberWeight>) -> Option<u64> {
    let all: u64 = shares.iter().map(|share| share.weight).sum();
    shares.sort_by_key(|share| share.trip.unwrap_or(u64::MAX));
    let mut reached = 0;
    let last = shares.into_iter().find(|share| {
        reached += share.weight;
        2 * reached > all
    });
    last.and_then(|share| share.trip)
}

fn mean(shares: &[MemberWeight]) -> Option<u64> {
    let all: u128 = shares.iter().map(|share| u128::from(share.weight)).sum();
    let each = shares.iter().map(|share| Some(u128::from(share.weight) * u128::from(share.trip?)));
    let sum = each.sum::<Option<u128>>()?;
    // Without any that counts, all are equally far.
    u64::try_from(sum.checked_div(all).unwrap_or(0)).ok()
}

/// Microseconds, for readers.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            us @ 0..1000 => write!(f, "{us} µs"),
            us => write!(f, "{}.{} ms", us / 1000, us % 1000 / 100),
        }
    }
}

impl Comparison for Latency {
    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        let distance = self.distance(candidate, round);
        let steadiness = Steadiness { margin: self.margin(distance), tolerance: self.tolerance };
        steadiness.grade(distance, is_incumbent(candidate, round))
    }

    fn reason(&self, candidate: &MemberRecord, standing: Standing, round: &Round<'_>) -> String {
        let what = self.what();
        let distance = self.distance(candidate, round);
        let margin = match self.margin(distance) {
            0 => String::new(),
            _ if !is_incumbent(candidate, round) => String::new(),
            margin => format!(" with {} less as the incumbent", Micros(margin)),
        };
        match distance {
            None => format!("no round trip {what} is known{margin}"),
            Some(us) if standing.is_best() => format!("nearest: {} {what}{margin}", Micros(us)),
            Some(us) => format!("{} {what}{margin}", Micros(us)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Pipeline,
        testing::{View, ballot, member, order},
    };

    /// A member with its round trips to others, in microseconds.
    fn at(id: &str, sequence: u32, peers: &[(&str, u32)]) -> MemberRecord {
        let mut member = member(id, "east", sequence);
        let trip = |(id, us): &(&str, u32)| (MemberId::new(*id).unwrap(), *us);
        member.round_trips.peers = peers.iter().map(trip).collect();
        member
    }

    /// Three near each other, and two far away from them and from each other.
    fn five() -> View {
        View::of([
            at("far-1", 1, &[("far-2", 90_000), ("a", 40_000), ("b", 41_000), ("c", 42_000)]),
            at("far-2", 2, &[("far-1", 90_000), ("a", 50_000), ("b", 51_000), ("c", 52_000)]),
            at("a", 3, &[("far-1", 40_000), ("far-2", 50_000), ("b", 900), ("c", 2_000)]),
            at("b", 4, &[("far-1", 41_000), ("far-2", 51_000), ("a", 900), ("c", 1_500)]),
            at("c", 5, &[("far-1", 42_000), ("far-2", 52_000), ("a", 2_000), ("b", 1_500)]),
        ])
    }

    fn by(of: Distance) -> Pipeline {
        Pipeline::new().compare(Latency::new(of, Steadiness::default()))
    }

    #[test]
    fn who_reaches_a_majority_soonest_goes_first() {
        assert_eq!(
            order(&by(Distance::Majority), &five()),
            [
                "b: nearest: 1.5 ms to a majority",
                "a: 2.0 ms to a majority; first by member id",
                "c: 2.0 ms to a majority; second by member id",
                "far-1: 41.0 ms to a majority",
                "far-2: 51.0 ms to a majority",
            ]
        );
    }

    #[test]
    fn each_distance_counts_what_it_says() {
        let first = |of: Distance| order(&by(of), &five())[0].clone();
        assert_eq!(first(Distance::Mean), "a: nearest: 18.5 ms to the members on average");
        assert_eq!(first(Distance::Worst), "a: nearest: 50.0 ms to the farthest");

        let mut view = five();
        view.members[0].round_trips.zookeeper = Some(700);
        view.members[4].round_trips.zookeeper = Some(300);
        let zookeeper = order(&by(Distance::ZooKeeper), &view);
        assert_eq!(zookeeper[0], "c: nearest: 300 µs to ZooKeeper");
        assert!(zookeeper[4].contains("no round trip to ZooKeeper is known"), "{zookeeper:?}");
    }

    #[test]
    fn targets_count_by_weight_and_one_that_is_missing_is_infinitely_far() {
        let mut view = five();
        let trips = [("far-1", 4000, Some(1000)), ("a", 1000, Some(4000)), ("b", 1, None)];
        for (id, db, shop) in trips {
            let member = view.members.iter_mut().find(|m| m.member.as_str() == id).unwrap();
            member.round_trips.targets.insert("db".to_owned(), db);
            member.round_trips.targets.extend(shop.map(|shop| ("shop".to_owned(), shop)));
        }
        let targets = |db, shop| {
            let weights = [("db", db), ("shop", shop)];
            let targets = weights
                .into_iter()
                .filter_map(|(name, weight)| Some((name.to_owned(), NonZeroU32::new(weight)?)));
            let latency = Latency::to_targets(targets, Steadiness::default());
            order(&Pipeline::new().compare(latency), &view)
        };
        assert_eq!(targets(2, 1)[0], "a: nearest: 2.0 ms to the targets");
        assert_eq!(targets(1, 2)[0], "far-1: nearest: 2.0 ms to the targets");
        assert_eq!(targets(1, 0)[0], "b: nearest: 1 µs to the targets");
        assert!(targets(2, 1)[2].contains("no round trip to the targets is known"));
    }

    #[test]
    fn what_is_missing_counts_as_infinite() {
        let mut view = five();
        view.members[3].round_trips.peers.remove("c");
        view.members[3].round_trips.peers.remove("far-1");
        assert_eq!(
            order(&by(Distance::Majority), &view)[2..4],
            ["far-1: 41.0 ms to a majority", "b: 51.0 ms to a majority; first by member id"]
        );
        let worst = order(&by(Distance::Worst), &view);
        assert!(worst[4].starts_with("b: no round trip to the farthest is known"), "{worst:?}");
        view.members[3].round_trips.peers.clear();
        let last = &order(&by(Distance::Majority), &view)[4];
        assert!(last.starts_with("b: no round trip to a majority is known"), "{last}");
    }

    #[test]
    fn a_newcomer_that_nobody_has_measured_comes_last_and_changes_nothing() {
        for of in [Distance::Majority, Distance::Mean, Distance::Worst] {
            let before = order(&by(of), &five());
            let mut view = five();
            view.members.push(member("0-new", "east", 9));
            let after = order(&by(of), &view);
            assert_eq!(after[..5], before);
            assert!(after[5].starts_with("0-new: no round trip"), "{after:?}");
        }
    }

    #[test]
    fn who_has_gone_does_not_count() {
        let mut view = five();
        view.members.retain(|m| !m.member.as_str().starts_with("far"));
        assert_eq!(order(&by(Distance::Worst), &view)[0], "b: nearest: 1.5 ms to the farthest");
        assert_eq!(
            order(&by(Distance::Majority), &view)[0],
            "a: nearest: 900 µs to a majority; first by member id"
        );
    }

    #[test]
    fn leadership_moves_only_for_a_gain_above_the_margin() {
        let with = |margin| {
            let steadiness = Steadiness { margin, tolerance: 0 };
            let view = View { incumbent: Some(ballot(5)), ..five() };
            order(&Pipeline::new().compare(Latency::new(Distance::Majority, steadiness)), &view)[0].clone()
        };
        assert_eq!(with(499), "b: nearest: 1.5 ms to a majority");
        assert_eq!(with(500), "c: nearest: 2.0 ms to a majority with 500 µs less as the incumbent");
    }

    /// Two sites of two, 30 ms apart.
    fn two_sites() -> View {
        let mut view = View::of([
            at("e-1", 1, &[("e-2", 1000), ("w-1", 30_000), ("w-2", 30_000)]),
            at("e-2", 2, &[("e-1", 1000), ("w-1", 30_000), ("w-2", 30_000)]),
            at("w-1", 3, &[("w-2", 1000), ("e-1", 30_000), ("e-2", 30_000)]),
            at("w-2", 4, &[("w-1", 1000), ("e-1", 30_000), ("e-2", 30_000)]),
        ]);
        view.members[2..].iter_mut().for_each(|m| m.site = SiteId::new("west").unwrap());
        view
    }

    #[test]
    fn a_site_that_loses_a_spare_is_no_farther_away() {
        let grades = |view: &View, of: Distance| -> Vec<_> {
            let stage = Latency::new(of, Steadiness { margin: 1000, tolerance: 0 });
            view.members.iter().map(|m| stage.grade(m, &view.round())).collect()
        };
        for of in [Distance::Majority, Distance::Worst] {
            let before = grades(&two_sites(), of);
            assert!(before.iter().all(|grade| *grade == before[0]), "{of:?} {before:?}");
            let mut view = two_sites();
            view.members.pop();
            assert_eq!(grades(&view, of), before[..3], "{of:?}");
        }
        // The mean of the one that is left grows by what its spare was away, and that is all.
        let mut view = View { incumbent: Some(ballot(3)), ..two_sites() };
        view.members.pop();
        let steadiness = Steadiness { margin: 1000, tolerance: 0 };
        let first = &order(&Pipeline::new().compare(Latency::new(Distance::Mean, steadiness)), &view)[0];
        assert!(first.starts_with("w-1: "), "{first}");
    }

    #[test]
    fn a_margin_is_never_below_what_is_published() {
        let publishing = Publishing { percent: 20, micros: 500, ..Publishing::default() };
        let first = |margin, incumbent| {
            let latency = Latency::new(Distance::Majority, Steadiness { margin, tolerance: 0 });
            let view = View { incumbent: Some(ballot(incumbent)), ..five() };
            order(&Pipeline::new().compare(latency.published_by(&publishing)), &view)[0].clone()
        };
        assert_eq!(first(0, 5), "c: nearest: 2.0 ms to a majority with 500 µs less as the incumbent");
        // A fifth of 51 ms is 10.2 ms; far more is to be gained.
        assert_eq!(first(0, 2), "b: nearest: 1.5 ms to a majority");
        assert_eq!(
            first(60_000, 2),
            "far-2: nearest: 51.0 ms to a majority with 60.0 ms less as the incumbent"
        );
    }
}
