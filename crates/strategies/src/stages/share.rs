use election_core::strategy::{MemberRecord, Round};

use super::{Incumbent, keeps};
use crate::stage::{Comparison, Stage, Standing};

/// A lot that each member draws for each election. Each member gets its share of many elections by weight, although no
/// election knows of the others.
/// A member draws as many tickets as its weight, and the highest ticket counts. A ticket depends only on the names of
/// the election and the member ("rendezvous hashing", Thaler and Ravishankar 1998). So the elections of a member that
/// leaves are spread over all others, and a member that joins takes a few from each. The shares are even on average
/// only; a [`FairShare`](crate::FairShare) plan evens out the rest.
/// It starts no move: for a better candidate the incumbent goes first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    election: String,
}

/// The attribute with the weight of a member.
const WEIGHT: &str = "weight";

impl Stage for Share {
    const NAME: &'static str = "fair-share";
}

impl Share {
    /// The highest weight; a higher number counts as this one.
    pub const MAX_WEIGHT: u32 = 1000;

    /// The stage for the election of this name, unique among all.
    pub fn of(election: impl Into<String>) -> Self {
        Self { election: election.into() }
    }

    /// The weight of a member: its attribute `weight`, a whole number; 1 without it. A member of weight 0 leads only
    /// what no other member can lead. A text that is not such a number counts as 1, so that a typing error gives the
    /// member neither all elections nor none.
    pub fn weight(member: &MemberRecord) -> u32 {
        let weight = member.attributes.get(WEIGHT).and_then(|text| text.trim().parse::<u32>().ok());
        weight.unwrap_or(1).min(Self::MAX_WEIGHT)
    }

    /// The highest of its tickets; none with a weight of 0.
    fn ticket(&self, candidate: &MemberRecord) -> Option<u64> {
        let drawn = fnv(fnv(FNV_OFFSET, self.election.as_bytes()), &[0]);
        let drawn = fnv(drawn, candidate.member.as_str().as_bytes());
        (0..u64::from(Self::weight(candidate))).map(|number| mixed(drawn.wrapping_add(number))).max()
    }
}

impl Comparison for Share {
    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        if keeps(round) {
            return Incumbent.grade(candidate, round);
        }
        // The upper half of the bits fits. Two of them are equal once in a billion; then the next stage decides.
        self.ticket(candidate).map_or(i64::MAX, |ticket| -((ticket >> 1).cast_signed()))
    }

    fn reason(&self, candidate: &MemberRecord, standing: Standing, round: &Round<'_>) -> String {
        if keeps(round) {
            return Incumbent.reason(candidate, standing, round);
        }
        let weight = match Self::weight(candidate) {
            0 => return "its weight is 0".to_owned(),
            1 => String::new(),
            weight => format!(" with a weight of {weight}"),
        };
        match standing.is_best() {
            true => format!("drew the best lot for this election{weight}"),
            false => format!("drew a lower lot for this election{weight}"),
        }
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a: the same in every build, because electors of different builds must draw the same lots. (The standard
/// library's hashers can change with any release.)
fn fnv(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Spreads the similar upper bits of FNV (the final step of `SplitMix64`).
fn mixed(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use election_core::strategy::Cause;

    use super::*;
    use crate::{
        Pipeline,
        testing::{View, ballot, member, order},
    };

    const ELECTIONS: usize = 1000;

    fn nodes(weights: &[u32]) -> View {
        let record = |(number, weight): (usize, &u32)| {
            let mut record = member(&format!("n-{number}"), "east", number as u32 + 1);
            record.attributes.insert(WEIGHT.to_owned(), weight.to_string());
            record
        };
        View { cause: Cause::LeaderLost, ..View::of(weights.iter().enumerate().map(record)) }
    }

    /// Who leads each of the elections.
    fn leaders(view: &View) -> Vec<String> {
        let first = |election: usize| {
            let pipeline = Pipeline::new().compare(Share::of(format!("job-{election}")));
            order(&pipeline, view)[0].split(':').next().unwrap_or_default().to_owned()
        };
        (0..ELECTIONS).map(first).collect()
    }

    fn counts(leaders: &[String]) -> BTreeMap<&str, usize> {
        leaders.iter().fold(BTreeMap::new(), |mut counts, leader| {
            *counts.entry(leader.as_str()).or_default() += 1;
            counts
        })
    }

    #[test]
    fn everybody_gets_about_its_share() {
        // Four times the standard deviation of so many fair draws is 38.
        let even = leaders(&nodes(&[1; 10]));
        for (member, count) in counts(&even) {
            assert!((62..=138).contains(&count), "{member} leads {count} of {ELECTIONS}");
        }
        let heavy = leaders(&nodes(&[1, 3, 0]));
        let counts = counts(&heavy);
        assert_eq!(counts.get("n-2"), None, "its weight is 0");
        assert!((695..=805).contains(&counts["n-1"]), "three of four: {counts:?}");
    }

    #[test]
    fn who_goes_moves_its_own_elections_alone_and_these_to_everybody() {
        let mut view = nodes(&[1; 10]);
        let before = leaders(&view);
        view.members.remove(3);
        let after = leaders(&view);
        let moved: Vec<_> = before.iter().zip(&after).filter(|(before, after)| before != after).collect();
        assert!(moved.iter().all(|(before, _)| *before == "n-3"));
        assert_eq!(moved.len(), before.iter().filter(|leader| *leader == "n-3").count());
        let heirs: Vec<_> = moved.iter().map(|(_, after)| (*after).clone()).collect();
        assert_eq!(counts(&heirs).len(), 9, "{heirs:?}");
    }

    #[test]
    fn it_is_drawn_alike_for_ever() {
        // Whatever changes these makes electors of different versions disagree.
        let view = nodes(&[1, 1, 2]);
        let stage = Share::of("orders");
        let tickets: Vec<_> = view.members.iter().map(|member| stage.ticket(member)).collect();
        assert_eq!(tickets, [0x1748_c3ce_3385_85f2, 0xdfd2_ff15_ce40_ce6d, 0xe857_8c5f_8a20_ee92].map(Some));
    }

    #[test]
    fn it_moves_nobody_that_may_stay() {
        for cause in [Cause::BetterCandidate, Cause::TokensRaised] {
            let view = View { cause, incumbent: Some(ballot(2)), ..nodes(&[1, 0, 5]) };
            let order = order(&Pipeline::new().compare(Share::of("orders")), &view);
            assert_eq!(order[0], "n-1: incumbent");
        }
    }

    #[test]
    fn a_weight_that_is_no_number_counts_as_one() {
        let weight = |text: &str| {
            let mut record = member("n-1", "east", 1);
            record.attributes.insert(WEIGHT.to_owned(), text.to_owned());
            Share::weight(&record)
        };
        assert_eq!([weight("2"), weight(" 3 "), weight("0"), weight("9999")], [2, 3, 0, Share::MAX_WEIGHT]);
        assert_eq!([weight("much"), weight("-1"), weight("1.5"), weight("")], [1; 4]);
        assert_eq!(Share::weight(&member("n-1", "east", 1)), 1);
    }
}
