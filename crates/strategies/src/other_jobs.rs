//! Where other jobs are led, for the stage [`WithJob`](crate::stages::WithJob): data that the program reads from the other
//! elections. Elections stay apart, so a strategy is made anew when it changes
//! ([`PolicySpec::seeing`](crate::PolicySpec::seeing)).

use std::collections::BTreeMap;

use election_core::{
    internals::record::{Current, Elected, Status},
    strategy::{Control, MemberId, Mode, Named, SiteId},
};

/// The other jobs that a policy depends on, by name. A job that is not in here is not known.
pub type OtherJobs = BTreeMap<String, OtherJob>;

/// The leaders of another job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OtherJob {
    /// These members lead it, READY, as decided.
    Led(Vec<LedBy>),
    /// These members are to lead it, and no leader moves for its sake meanwhile: why.
    Unsettled(Vec<LedBy>, String),
    /// It has no leader, or that can't be read: why.
    Unknown(String),
}

/// A leader of another job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedBy {
    /// The member.
    pub member: MemberId,
    /// Its site.
    pub site: SiteId,
}

impl LedBy {
    /// The member that is named.
    pub fn new(named: &Named) -> Self {
        Self { member: named.member.clone(), site: named.site.clone() }
    }
}

impl OtherJob {
    /// What the records of its election show: the standing orders (`None`: they can't be read), the decision, and the leader
    /// znodes.
    pub fn of<'a>(
        control: Option<&Control>,
        elected: Option<&Elected>,
        leaders: impl IntoIterator<Item = &'a Current>,
    ) -> Self {
        let Some(control) = control else { return Self::Unknown("its election can't be read".to_owned()) };
        let leaders = leaders.into_iter().filter(|leader| leader.status == Status::Ready);
        let ready: Vec<Named> = leaders.map(named).collect();
        let decided = elected.iter().flat_map(|elected| &elected.slots).filter_map(|slot| slot.named.clone());
        // A recipe without an elector decides by its leader znode.
        let named = if elected.is_some() { decided.collect() } else { ready.clone() };
        let is_settled = named.len() == ready.len() && named.iter().all(|named| ready.contains(named));
        let by: Vec<_> = named.iter().map(LedBy::new).collect();
        if by.is_empty() {
            return Self::Unknown("it has no leader".to_owned());
        }
        match control.mode {
            Mode::Auto if is_settled => Self::Led(by),
            Mode::Auto => Self::Unsettled(by, "its leader is changing".to_owned()),
            mode => Self::Unsettled(by, format!("its mode is {}", mode.as_str())),
        }
    }

    /// The members that lead it or are to lead it.
    pub fn led_by(&self) -> &[LedBy] {
        match self {
            Self::Led(by) | Self::Unsettled(by, _) => by,
            Self::Unknown(_) => &[],
        }
    }

    /// The same without some leaders, which are assumed lost.
    #[must_use]
    pub fn without(self, is_lost: impl Fn(&LedBy) -> bool) -> Self {
        let left = |by: Vec<LedBy>| by.into_iter().filter(|by| !is_lost(by)).collect::<Vec<_>>();
        match self {
            Self::Led(by) => match left(by) {
                none if none.is_empty() => Self::Unknown("it would have lost its leader".to_owned()),
                by => Self::Led(by),
            },
            Self::Unsettled(by, why) => Self::Unsettled(left(by), why),
            unknown @ Self::Unknown(_) => unknown,
        }
    }
}

fn named(leader: &Current) -> Named {
    let Current { member, ballot, site, .. } = leader;
    Named { member: member.clone(), ballot: ballot.clone(), site: site.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::member;

    fn elected(named: &[(&str, &str, u32)]) -> Elected {
        let slots: Vec<_> = named
            .iter()
            .map(|(id, site, ballot)| {
                let named = member(id, site, *ballot).named();
                serde_json::json!({
                    "named": named,
                    "given": { "term": 3, "cause": "startup", "sentence": "s", "decided_at_ms": 1 },
                })
            })
            .collect();
        serde_json::from_value(serde_json::json!({ "v": 1, "term": 3, "slots": slots, "decided_by": "e" }))
            .unwrap()
    }

    fn leader(id: &str, site: &str, ballot: u32, status: &str) -> Current {
        let ballot = crate::testing::ballot(ballot);
        serde_json::from_value(serde_json::json!({
            "v": 1, "member": id, "ballot": ballot, "site": site, "slot": 0, "term": 3, "status": status, "since_ms": 0,
        }))
        .unwrap()
    }

    #[test]
    fn a_job_is_led_where_decision_and_leader_agree() {
        let control = Control::default();
        let decided = elected(&[("west-1", "west", 3)]);
        let west = LedBy::new(&member("west-1", "west", 3).named());
        let of = |leaders: &[Current]| OtherJob::of(Some(&control), Some(&decided), leaders);
        assert_eq!(of(&[leader("west-1", "west", 3, "READY")]), OtherJob::Led(vec![west.clone()]));
        let changing = OtherJob::Unsettled(vec![west.clone()], "its leader is changing".to_owned());
        for leaders in [
            &[][..],
            &[leader("west-1", "west", 3, "PROGRESS")],
            &[leader("east-1", "east", 1, "READY")],
            // An earlier life of the member.
            &[leader("west-1", "west", 2, "READY")],
        ] {
            assert_eq!(of(leaders), changing);
        }
        let paused = Control::default().with(|control| control.mode = Mode::Manual);
        let ready = [leader("west-1", "west", 3, "READY")];
        let state = OtherJob::of(Some(&paused), Some(&decided), &ready);
        assert_eq!(state, OtherJob::Unsettled(vec![west], "its mode is manual".to_owned()));
    }

    #[test]
    fn without_a_decision_or_an_election_it_is_not_known() {
        let none = OtherJob::Unknown("it has no leader".to_owned());
        assert_eq!(OtherJob::of(Some(&Control::default()), None, &[]), none);
        assert_eq!(OtherJob::of(Some(&Control::default()), Some(&elected(&[])), &[]), none);
        let decided = elected(&[("west-1", "west", 3)]);
        let unreadable = OtherJob::Unknown("its election can't be read".to_owned());
        assert_eq!(OtherJob::of(None, Some(&decided), &[]), unreadable);
        let led = OtherJob::Led(vec![LedBy::new(&member("west-1", "west", 3).named())]);
        let lost = led.clone().without(|by| by.site.as_str() == "west");
        assert_eq!(lost, OtherJob::Unknown("it would have lost its leader".to_owned()));
        assert_eq!(led.clone().without(|_| false), led);
    }
}
