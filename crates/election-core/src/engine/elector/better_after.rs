//! Sites that lose their leaders. Each loss is remembered in the decision for a while. The more losses a site has,
//! the longer one of its members must have been the better one before leadership moves to it by itself. So a link
//! that flaps moves leadership away from its site each time, but not back.
//!
//! Modelled on Pacemaker's failure counts, which make a node less attractive and expire; here the required time grows
//! instead.

use std::{collections::BTreeMap, time::Duration};

use super::{decided::doubled, pass::Question};
use crate::{engine::policy::Policy, ids::SiteId, record::Elected, time::is_within};

/// Losses of one site within this time have one cause, such as those of several slots, and count once. No longer than
/// the time that the site needs to lead again.
const ONE_CAUSE: Duration = Duration::from_secs(60);

/// When each site lost a leader recently, in milliseconds since the Unix epoch.
pub(crate) type Losses = BTreeMap<SiteId, Vec<u64>>;

impl Question<'_> {
    /// The losses that count once a decision of this cause is taken.
    pub(crate) fn losses_after(&self) -> Losses {
        let known = self.elected.map(|e| &e.losses);
        // An operator's request says nothing about the site. The rest of a takeover that began with vacating the
        // leader znode is not another loss.
        let is_loss = self.cause.is_failure() && self.ordered.is_none() && !self.is_vacated();
        let led = self.elected.and_then(|e| e.led_before(self.slot)).filter(|_| is_loss);
        with_loss(known.cloned().unwrap_or_default(), led.map(|led| led.site), self.policy, self.now.unix_ms)
    }
}

/// The losses that still count, and one more of this site.
pub(crate) fn with_loss(mut losses: Losses, of: Option<SiteId>, policy: &Policy, unix_ms: u64) -> Losses {
    losses.values_mut().for_each(|times| times.retain(|at| is_within(*at, policy.penalty_window, unix_ms)));
    if let Some(site) = of.filter(|_| !policy.penalty_window.is_zero()) {
        let times = losses.entry(site).or_default();
        let one_cause = ONE_CAUSE.min(policy.better_after);
        if times.iter().all(|at| !is_within(*at, one_cause, unix_ms)) {
            times.push(unix_ms);
        }
    }
    losses.retain(|_, times| !times.is_empty());
    losses
}

/// How often this site lost a leader recently.
pub(crate) fn losses_of(policy: &Policy, elected: &Elected, site: &SiteId, unix_ms: u64) -> usize {
    let all = elected.losses.get(site).map_or(&[] as &[u64], Vec::as_slice);
    all.iter().filter(|at| is_within(**at, policy.penalty_window, unix_ms)).count()
}

/// How long a member of this site must have been the better one: twice as long for each loss but the first, and no
/// longer than losses are remembered.
pub(crate) fn patience(policy: &Policy, elected: &Elected, site: &SiteId, unix_ms: u64) -> Duration {
    let again = losses_of(policy, elected, site, unix_ms).saturating_sub(1);
    doubled(policy.better_after, again).min(policy.penalty_window).max(policy.better_after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record as _;

    const MINUTE: u64 = 60_000;

    fn elected(losses: Losses) -> Elected {
        let json = r#"{"v":1,"term":1,"slots":[],"decided_by":"e"}"#;
        Elected { losses, ..Elected::decode("/elected", json.as_bytes()).unwrap() }
    }

    /// The number of losses of east that happened at these minutes, and the required time at the last of them.
    fn lost_at(minutes: &[u64]) -> (usize, Duration) {
        let (policy, east) = (Policy::default(), SiteId::new("east").unwrap());
        let lose = |losses, at: &u64| with_loss(losses, Some(east.clone()), &policy, *at * MINUTE);
        let (elected, now) = (elected(minutes.iter().fold(Losses::new(), lose)), minutes[minutes.len() - 1]);
        let west = SiteId::new("west").unwrap();
        assert_eq!(patience(&policy, &elected, &west, now * MINUTE), policy.better_after);
        let losses = losses_of(&policy, &elected, &east, now * MINUTE);
        (losses, patience(&policy, &elected, &east, now * MINUTE))
    }

    #[test]
    fn patience_grows_with_each_loss_and_shrinks_as_they_are_forgotten() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert_eq!(lost_at(&[1000]), (1, minutes(30)));
        assert_eq!(lost_at(&[1000, 1045]), (2, minutes(60)));
        assert_eq!(lost_at(&[1000, 1045, 1090]), (3, minutes(120)));
        // A day later the first two are forgotten.
        assert_eq!(lost_at(&[1000, 1045, 1090, 2500]), (2, minutes(60)));
        // Never longer than losses are remembered.
        let often: Vec<u64> = (0..20_u64).map(|n| 1000 + 15 * n).collect();
        assert_eq!(lost_at(&often).1, Policy::default().penalty_window);
    }

    #[test]
    fn what_many_slots_lose_at_once_is_one_loss() {
        assert_eq!(lost_at(&[1000, 1000, 1000]).0, 1);
    }

    #[test]
    fn nothing_is_remembered_where_failures_are_not() {
        let policy = Policy { penalty_window: Duration::ZERO, ..Policy::default() };
        let east = SiteId::new("east").unwrap();
        assert_eq!(with_loss(Losses::new(), Some(east.clone()), &policy, 5), Losses::new());
        assert_eq!(patience(&policy, &elected(Losses::new()), &east, 5), policy.better_after);
    }
}
