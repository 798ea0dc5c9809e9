//! An operator has acknowledged the failures: what was remembered of them is forgotten.

use std::collections::BTreeMap;

use crate::{
    ids::SiteId,
    record::{Elected, MemberFailure, SiteFailure},
};

/// What an acknowledgement forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgotten {
    /// What keeps the election on hold: takeovers, moves for standing orders, the pauses of a job that keeps failing.
    pub hold: bool,
    /// The failures of members, which lengthen their exclusions.
    pub failures: bool,
    /// The failures of sites and the leaders that they lost, which prevent or delay the return of leadership.
    pub sites: bool,
}

impl Forgotten {
    /// What ends a hold, and nothing else.
    pub const HOLD: Self = Self { hold: true, failures: false, sites: false };
    /// Everything that is remembered.
    pub const ALL: Self = Self { hold: true, failures: true, sites: true };
}

/// What an acknowledgement has forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Released {
    /// When takeovers that were not ordered happened recently, in milliseconds since the Unix epoch.
    pub takeovers: Vec<u64>,
    /// When leadership recently moved for standing orders.
    pub obeyed: Vec<u64>,
    /// When the job recently failed. A failure remains remembered against the member unless its failures are forgotten
    /// as well.
    pub pauses: Vec<u64>,
    /// The failures of members.
    pub failures: Vec<MemberFailure>,
    /// The failures of sites; a failure that continues is noticed again.
    pub site_failures: Vec<SiteFailure>,
    /// When each site lost a leader.
    pub losses: BTreeMap<SiteId, Vec<u64>>,
}

/// The decision without what is forgotten, and what that was; `None` if nothing of it is remembered.
///
/// The term stays the same, and the leader continues to lead. Exclusions that are in force expire by themselves: an
/// exclusion can be part of removing a leader znode by force.
pub fn acknowledge(elected: &Elected, what: Forgotten) -> Option<(Elected, Released)> {
    let (mut next, mut released) = (elected.clone(), Released::default());
    if what.hold {
        released.takeovers = elected.all_attempts().collect();
        for slot in &mut next.slots {
            slot.attempts.clear();
            released.obeyed.append(&mut slot.obeyed);
        }
        let pauses = elected.failures.iter().filter(|failure| failure.holds_up(elected));
        released.pauses = pauses.map(|failure| failure.at_ms).collect();
        next.acknowledged_at_ms = released.pauses.iter().copied().fold(elected.acknowledged_at_ms, u64::max);
    }
    if what.failures {
        released.failures = std::mem::take(&mut next.failures);
    }
    if what.sites {
        released.site_failures = std::mem::take(&mut next.site_failures);
        released.losses = std::mem::take(&mut next.losses);
    }
    (released != Released::default()).then_some((next, released))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record as _;

    fn elected() -> Elected {
        let slot = |more: &str| {
            format!(
                r#"{{"named":null,"given":{{"term":4,"cause":"startup","sentence":"","decided_at_ms":0}},{more}}}"#
            )
        };
        let slots = [slot(r#""attempts":[5],"obeyed":[7]"#), slot(r#""attempts":[6]"#)].join(",");
        let rest = r#""failures":[{"member":"a","at_ms":8,"cause":"work-failed"},{"member":"b","at_ms":9,"cause":"unhealthy"}],
            "site_failures":[{"site":"east","at_ms":3,"why":"flood"}],"losses":{"east":[4]},"decided_by":"e"}"#;
        let decision = format!(r#"{{"v":1,"term":4,"slots":[{slots}],{rest}"#);
        Elected::decode("/elected", decision.as_bytes()).unwrap()
    }

    #[test]
    fn a_hold_ends_and_what_is_known_of_members_and_sites_stays() {
        let before = elected();
        let (next, released) = acknowledge(&before, Forgotten::HOLD).unwrap();
        assert_eq!((released.takeovers, released.obeyed, released.pauses), (vec![5, 6], vec![7], vec![8]));
        assert_eq!((&next.failures, &next.site_failures), (&before.failures, &before.site_failures));
        assert_eq!((&next.losses, next.term, next.acknowledged_at_ms), (&before.losses, 4, 8));
        assert_eq!(acknowledge(&next, Forgotten::HOLD), None, "there is nothing to end");
    }

    #[test]
    fn each_part_is_forgotten_by_itself() {
        let failures = Forgotten { hold: false, failures: true, sites: false };
        let (next, released) = acknowledge(&elected(), failures).unwrap();
        assert_eq!((released.failures.len(), released.takeovers.len(), next.losses.len()), (2, 0, 1));
        let sites = Forgotten { hold: false, failures: false, sites: true };
        let (next, released) = acknowledge(&next, sites).unwrap();
        assert_eq!((released.site_failures.len(), released.losses.len()), (1, 1));
        let (next, _) = acknowledge(&next, Forgotten::ALL).unwrap();
        assert_eq!(acknowledge(&next, Forgotten::ALL), None);
    }
}
