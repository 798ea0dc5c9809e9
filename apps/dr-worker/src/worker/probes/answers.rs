//! When other members last answered, to find out how long a failure was not noticed.

use std::{collections::BTreeMap, time::Duration};

use election_core::status::Ballot;
use parking_lot::Mutex;
use zk_session::BootTime;

/// How long a member is remembered after its ballot has gone.
const REMEMBERED: Duration = Duration::from_secs(10 * 60);

/// When each member last answered a probe of this one.
#[derive(Debug, Default)]
pub(in crate::worker) struct PeerAnswers(Mutex<BTreeMap<Ballot, LastAnswer>>);

#[derive(Clone, Copy, Debug)]
struct LastAnswer {
    /// When the last probe was sent that it answered.
    at: BootTime,
    /// Whether it has not answered a later one.
    is_silent: bool,
}

impl PeerAnswers {
    /// Records a round of probes that were `sent`: whom they went to, and whether that member has answered.
    pub(super) fn record<'a>(&self, sent: BootTime, round: impl Iterator<Item = (&'a Ballot, bool)>) {
        let mut known = self.0.lock();
        for (ballot, has_answered) in round {
            if has_answered {
                known.insert(ballot.clone(), LastAnswer { at: sent, is_silent: false });
            } else if let Some(answer) = known.get_mut(ballot) {
                answer.is_silent = true;
            }
        }
        known.retain(|_, answer| sent < answer.at + REMEMBERED);
    }

    /// The time of the last probe that this member answered, if it has not answered the next ones.
    pub(in crate::worker) fn silent_since(&self, ballot: &Ballot) -> Option<BootTime> {
        let known = self.0.lock();
        known.get(ballot).filter(|answer| answer.is_silent).map(|answer| answer.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_member_that_has_answered_and_then_did_not_is_silent() {
        let (answers, start) = (PeerAnswers::default(), BootTime::now());
        let [a, b] = ["a-0000000001", "b-0000000002"].map(|name| Ballot::new(name).expect("a ballot"));
        let at = |seconds| start + Duration::from_secs(seconds);
        let round = |seconds, has_answered: [bool; 2]| {
            answers.record(at(seconds), [&a, &b].into_iter().zip(has_answered));
            [&a, &b].map(|ballot| answers.silent_since(ballot))
        };
        // The second one has never answered: nothing is known of when it failed.
        assert_eq!(round(0, [true, false]), [None, None]);
        assert_eq!(round(1, [true, false]), [None, None]);
        assert_eq!(round(2, [false, true]), [Some(at(1)), None]);
        assert_eq!(round(3, [false, false]), [Some(at(1)), Some(at(2))]);
        // It is back, so it was not that what ended its leadership.
        assert_eq!(round(4, [true, false]), [None, Some(at(2))]);
        // Ballots that are gone are not probed any more.
        answers.record(at(5), std::iter::empty());
        assert_eq!(answers.silent_since(&b), Some(at(2)));
        answers.record(at(700), std::iter::empty());
        assert_eq!(answers.silent_since(&b), None);
    }
}
