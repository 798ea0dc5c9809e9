use election_core::strategy::{MemberRecord, Round};

use super::is_incumbent;
use crate::{
    needs::Needs,
    published,
    stage::{Comparison, Stage, Standing},
};

/// Members with room for the job go before those without: the loads of all jobs that a member leads should not exceed
/// its capacity.
/// It uses what members publish ([`published`]), which is as old as their last write. The incumbent always has room:
/// otherwise several jobs of an overloaded member would all leave it at once. The stage ranks the next leader and moves
/// no running job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    load: u32,
}

impl Stage for Capacity {
    const NAME: &'static str = "capacity";
}

impl Capacity {
    /// The attribute with the load that a member can take: a whole number. Without it, or with another text, there is
    /// no limit.
    pub const ATTRIBUTE: &'static str = "capacity";

    /// For a job of this load.
    pub fn of(load: u32) -> Self {
        Self { load }
    }

    pub(crate) fn needs() -> Needs {
        Needs { load: true, ..Needs::default() }
    }

    /// The load that a member can take, if there is a limit.
    fn limit(candidate: &MemberRecord) -> Option<u64> {
        candidate.attributes.get(Self::ATTRIBUTE)?.trim().parse().ok()
    }

    fn has_room(self, candidate: &MemberRecord, round: &Round<'_>) -> bool {
        let needed = published::load(candidate).saturating_add(u64::from(self.load));
        let fits = Self::limit(candidate).is_none_or(|limit| needed <= limit);
        self.load == 0 || fits || is_incumbent(candidate, round)
    }
}

impl Comparison for Capacity {
    fn grade(&self, candidate: &MemberRecord, round: &Round<'_>) -> i64 {
        i64::from(!self.has_room(candidate, round))
    }

    fn reason(&self, candidate: &MemberRecord, _: Standing, round: &Round<'_>) -> String {
        let used = published::load(candidate);
        match Self::limit(candidate) {
            _ if is_incumbent(candidate, round) => "its load is counted already".to_owned(),
            None => "its capacity has no limit".to_owned(),
            Some(limit) => {
                let room = if self.has_room(candidate, round) { "room" } else { "no room" };
                format!("{room} for a load of {} with {used} of {limit} in use", self.load)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use election_core::strategy::Cause;

    use super::*;
    use crate::{
        Pipeline,
        testing::{View, ballot, order, with_attributes},
    };

    fn view() -> View {
        View::of([
            with_attributes("a", "east", 1, [("capacity", "4"), ("dr.load", "3")]),
            with_attributes("b", "east", 2, [("capacity", "4"), ("dr.load", "2")]),
            with_attributes("c", "east", 3, [("capacity", "4")]),
            with_attributes("d", "east", 4, [("dr.load", "90")]),
            with_attributes("e", "east", 5, [("capacity", "much"), ("dr.load", "x")]),
        ])
    }

    #[test]
    fn who_has_room_goes_first_and_how_much_is_of_no_account() {
        let two = Pipeline::new().compare(Capacity::of(2));
        assert_eq!(
            order(&two, &view()),
            [
                "b: room for a load of 2 with 2 of 4 in use; first by member id",
                "c: room for a load of 2 with 0 of 4 in use; second by member id",
                "d: its capacity has no limit; third by member id",
                "e: its capacity has no limit; fourth by member id",
                "a: no room for a load of 2 with 3 of 4 in use",
            ]
        );
        // Where none has room, or all have, others decide.
        for load in [0, 1] {
            assert_eq!(
                order(&Pipeline::new().compare(Capacity::of(load)), &view())[0],
                "a: first by member id"
            );
        }
    }

    #[test]
    fn the_incumbent_always_has_room() {
        for cause in Cause::ALL {
            let view = View { cause, incumbent: Some(ballot(1)), ..view() };
            let order = order(&Pipeline::new().compare(Capacity::of(2)), &view);
            assert_eq!(order[0], "a: first by member id", "{cause}");
        }
        let full = Pipeline::new().compare(Capacity::of(9));
        let view = View { incumbent: Some(ballot(1)), ..view() };
        assert_eq!(order(&full, &view)[0], "a: its load is counted already; first by member id");
    }
}
