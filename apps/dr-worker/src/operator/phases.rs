//! The phases of a move, as a command sees them that waits for its end.

use std::time::Duration;

use election_core::internals::record::{Current, Phases as Recorded, RequestState, Status};

use super::output::span;

/// How far a move has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MovePhase {
    Decided,
    Released,
    Acquired,
    Ready,
}

/// What has been seen of a move. A phase that was too short to be seen is reported together with the next one.
#[derive(Debug)]
pub(super) struct MovePhases {
    /// The leader before the move.
    old: Option<Current>,
    /// The leader znode, as it was read last; `None` before.
    leader: Option<Option<Current>>,
    /// The request's state.
    state: RequestState,
    reported: Option<MovePhase>,
}

impl MovePhases {
    /// Of a request that has just been filed.
    pub(super) const fn new(old: Option<Current>) -> Self {
        Self { old, leader: None, state: RequestState::Pending, reported: None }
    }

    /// The request was read. Returns the lines to print.
    pub(super) fn see_request(&mut self, state: &RequestState, after: Duration) -> Vec<String> {
        self.state = state.clone();
        self.report(after)
    }

    /// The leader znode was read. Returns the lines to print.
    pub(super) fn see_leader(&mut self, leader: Option<Current>, after: Duration) -> Vec<String> {
        self.leader = Some(leader);
        self.report(after)
    }

    fn report(&mut self, after: Duration) -> Vec<String> {
        let (term, done) = match &self.state {
            RequestState::Accepted { term } => (*term, None),
            RequestState::Done { term, leader, .. } => (*term, Some(leader.as_str())),
            _ => return Vec::new(),
        };
        let is_old =
            |c: &Current| self.old.as_ref().is_some_and(|old| (&old.ballot, old.term) == (&c.ballot, c.term));
        let new = self.leader.as_ref().and_then(Option::as_ref).filter(|c| !is_old(c) && c.term >= term);
        let reached = match (done, new, &self.leader) {
            (Some(_), ..) => MovePhase::Ready,
            (None, Some(new), _) if new.status == Status::Ready => MovePhase::Ready,
            (None, Some(_), _) => MovePhase::Acquired,
            (None, None, Some(None)) => MovePhase::Released,
            (None, None, _) => MovePhase::Decided,
        };
        let new = done.or_else(|| new.map(|c| c.member.as_str())).unwrap_or_default();
        let lines = [
            (MovePhase::Decided, Some(format!("decided, in term {term}"))),
            (MovePhase::Released, self.old.as_ref().map(|old| format!("released by {}", old.member))),
            (MovePhase::Acquired, Some(format!("acquired by {new}, which is taking over"))),
            (MovePhase::Ready, Some(format!("{new} is READY"))),
        ];
        let is_news = |phase: MovePhase| phase <= reached && self.reported.is_none_or(|last| phase > last);
        let news = lines.into_iter().filter(|(phase, _)| is_news(*phase)).filter_map(|(_, line)| line);
        let news = news.map(|line| format!("{:>9.3} s  {line}", after.as_secs_f64())).collect();
        self.reported = self.reported.max(Some(reached));
        news
    }
}

/// The duration of each phase, in one line.
pub(super) fn durations(of: &Recorded) -> String {
    let Recorded { decide_ms, release_ms, acquire_ms, takeover_ms, .. } = *of;
    let all =
        [("decide", decide_ms), ("release", release_ms), ("acquire", acquire_ms), ("takeover", takeover_ms)];
    all.map(|(phase, ms)| format!("{phase} {}", ms.map_or_else(|| "unknown".to_owned(), span))).join(", ")
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(in crate::operator) fn leader(member: &str, term: u64, status: &str) -> Current {
        serde_json::from_value(json!({
            "v": 1, "member": member, "ballot": format!("{member}-0000000001"), "site": "east", "term": term,
            "status": status, "since_ms": 0,
        }))
        .unwrap()
    }

    const fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn each_phase_is_reported_once_with_its_time() {
        let mut phases = MovePhases::new(Some(leader("a", 1, "READY")));
        assert!(phases.see_leader(Some(leader("a", 1, "READY")), at(1)).is_empty());
        let accepted = RequestState::Accepted { term: 2 };
        assert_eq!(phases.see_request(&accepted, at(20)), ["    0.020 s  decided, in term 2"]);
        assert_eq!(phases.see_leader(None, at(50)), ["    0.050 s  released by a"]);
        assert_eq!(
            phases.see_leader(Some(leader("b", 2, "PROGRESS")), at(60)),
            ["    0.060 s  acquired by b, which is taking over"]
        );
        assert_eq!(phases.see_leader(Some(leader("b", 2, "READY")), at(1_070)), ["    1.070 s  b is READY"]);
        let done = RequestState::Done { term: 2, leader: "b".parse().unwrap(), at_ms: 0 };
        assert!(phases.see_request(&done, at(1_080)).is_empty());
    }

    #[test]
    fn phases_that_were_not_seen_are_reported_with_the_next() {
        let mut phases = MovePhases::new(Some(leader("a", 1, "READY")));
        // Before the request is seen to be accepted.
        assert!(phases.see_leader(Some(leader("b", 2, "PROGRESS")), at(5)).is_empty());
        let lines = phases.see_request(&RequestState::Accepted { term: 2 }, at(10));
        assert_eq!(lines.len(), 3, "{lines:?}");
        let done = RequestState::Done { term: 2, leader: "b".parse().unwrap(), at_ms: 0 };
        assert_eq!(MovePhases::new(None).see_request(&done, at(10)).len(), 3, "no leader has released it");
    }

    #[test]
    fn a_leader_of_an_earlier_term_is_not_the_moves() {
        let mut phases = MovePhases::new(None);
        assert!(phases.see_leader(Some(leader("c", 2, "READY")), at(5)).is_empty());
        assert_eq!(phases.see_request(&RequestState::Accepted { term: 3 }, at(9)).len(), 1);
    }
}
