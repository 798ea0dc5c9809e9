use std::{collections::BTreeSet, fmt};

use election_core::{
    MemberId,
    record::{MemberRecord, RoundTrips},
    strategy::Round,
};

use crate::{
    stage::{Comparison, Standing},
    steadiness::Steadiness,
};

/// Who is nearest goes first, by the round trips that the members have measured; after
/// 'Latency-aware leader election' (Santos, Hutle, Schiper, SAC 2009).
///
/// A round trip that is missing counts as infinite. The other members that count are those
/// who live and whom any candidate has measured: one that has just joined, and that nobody
/// has measured yet, changes nothing among the others, and comes last itself. Once it has
/// been measured it counts, and a majority is one of more members: the order of the others
/// can then be another one, for it is another question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latency {
    of: Distance,
    steadiness: Steadiness,
}

/// Which round trips count, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Distance {
    /// The longest one that it takes to reach a majority of the members, itself
    /// included: what a leader waits for that has its writes confirmed by one.
    Majority,
    /// The longest one that it takes to reach so many, itself included.
    Nearest(usize),
    /// The mean of those to all other members.
    Mean,
    /// The longest of those to all other members.
    Worst,
    /// That to ZooKeeper.
    ZooKeeper,
    /// The weighted mean of those to these targets.
    Targets(Vec<(String, u32)>),
}

impl Latency {
    /// The name of the stage.
    pub const NAME: &'static str = "latency";

    /// By this distance. The steadiness is counted in microseconds.
    pub fn new(of: Distance, steadiness: Steadiness) -> Self {
        Self { of, steadiness }
    }

    /// By which distance.
    pub(crate) fn distance_by(&self) -> &Distance {
        &self.of
    }

    /// The distance of a candidate in microseconds, if it is known.
    fn distance(&self, candidate: &MemberRecord, round: &Round<'_>) -> Option<u64> {
        let trips = &candidate.round_trips;
        match &self.of {
            Distance::Majority => {
                let trips = to_peers(candidate, round);
                let members = trips.len() + 1;
                let majority = members / 2 + 1;
                nearest(trips, majority)
            }
            Distance::Nearest(count) => nearest(to_peers(candidate, round), *count),
            Distance::Mean => {
                let trips = to_peers(candidate, round);
                let count = u64::try_from(trips.len()).unwrap_or(u64::MAX).max(1);
                let sum: Option<u64> = trips.into_iter().sum();
                sum.map(|sum| sum / count)
            }
            Distance::Worst => {
                let trips: Option<Vec<_>> = to_peers(candidate, round).into_iter().collect();
                trips.map(|trips| trips.into_iter().max().unwrap_or(0))
            }
            Distance::ZooKeeper => trips.zookeeper.map(u64::from),
            Distance::Targets(targets) => weighted(targets, trips),
        }
    }

    fn what(&self) -> String {
        match &self.of {
            Distance::Majority => "to a majority".to_owned(),
            Distance::Nearest(count) => format!("to reach {count}"),
            Distance::Mean => "to the others on average".to_owned(),
            Distance::Worst => "to the farthest".to_owned(),
            Distance::ZooKeeper => "to ZooKeeper".to_owned(),
            Distance::Targets(_) => "to the targets".to_owned(),
        }
    }

    fn is_incumbent(candidate: &MemberRecord, round: &Round<'_>) -> bool {
        round.incumbent == Some(&candidate.ballot)
    }
}

/// The round trips to all other members that count; none where it is not measured.
fn to_peers(candidate: &MemberRecord, round: &Round<'_>) -> Vec<Option<u64>> {
    let living = round.candidates.iter().map(|m| &m.member).chain(round.others.iter().map(|o| &o.member));
    let peers: BTreeSet<&MemberId> = living.filter(|id| **id != candidate.member).collect();
    let measured = |id: &MemberId| candidate.round_trips.peers.get(id).copied().map(u64::from);
    let counts = |id: &MemberId| round.candidates.iter().any(|m| m.round_trips.peers.contains_key(id));
    peers
        .into_iter()
        .map(|id| (id, measured(id)))
        .filter(|(id, trip)| trip.is_some() || counts(id))
        .map(|(_, trip)| trip)
        .collect()
}

/// The longest round trip to so many of them, oneself included, if there are so many.
fn nearest(trips: Vec<Option<u64>>, count: usize) -> Option<u64> {
    let mut known: Vec<u64> = trips.into_iter().flatten().collect();
    known.push(0);
    known.sort_unstable();
    known.get(count.max(1) - 1).copied()
}

fn weighted(targets: &[(String, u32)], trips: &RoundTrips) -> Option<u64> {
    let (mut sum, mut weights) = (0_u128, 0_u128);
    for (name, weight) in targets.iter().filter(|(_, weight)| *weight > 0) {
        sum += u128::from(*trips.targets.get(name)?) * u128::from(*weight);
        weights += u128::from(*weight);
    }
    // Without any that counts all are equally far.
    u64::try_from(sum.checked_div(weights).unwrap_or(0)).ok()
}

/// Microseconds as one reads them.
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
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        self.steadiness.grade(self.distance(candidate, round), Self::is_incumbent(candidate, round))
    }

    fn reason(&self, candidate: &MemberRecord, standing: Standing, round: &Round<'_>) -> String {
        let what = self.what();
        let margin = match self.steadiness.margin {
            0 => String::new(),
            _ if !Self::is_incumbent(candidate, round) => String::new(),
            margin => format!(" with {} less as the incumbent", Micros(margin)),
        };
        match self.distance(candidate, round) {
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
        support::{View, ballot, member, order},
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
        assert_eq!(first(Distance::Nearest(2)), "a: nearest: 900 µs to reach 2; first by member id");
        assert_eq!(first(Distance::Nearest(1)), "a: first by member id", "itself");
        assert_eq!(first(Distance::Mean), "a: nearest: 23.2 ms to the others on average");
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
            order(&by(Distance::Targets(vec![("db".to_owned(), db), ("shop".to_owned(), shop)])), &view)
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
        for of in [Distance::Majority, Distance::Mean, Distance::Worst, Distance::Nearest(3)] {
            let before = order(&by(of.clone()), &five());
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
}
