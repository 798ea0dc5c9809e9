use std::time::Duration;

use super::reader::Section;

/// Where the balancer's own election lies under the root; so no job that is balanced can have this name.
pub(crate) const BALANCING: &str = "balancing";

/// `[balance]`: how the leaderships of jobs with `policy.balance` are spread over the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalanceConfig {
    /// The time between two looks at all elections.
    pub interval: Duration,
    /// The highest number of moves at once.
    pub at_most: usize,
}

impl BalanceConfig {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let limits = Duration::from_millis(100)..=Duration::from_secs(24 * 3600);
        let interval = section.duration("interval", Duration::from_secs(30), limits);
        let at_most: u32 = section.or("at_most", 2);
        if at_most == 0 {
            section.problem(
                "at_most",
                "0 would never move a leadership; 1 or more is valid, or leave policy.balance out",
            );
        }
        Self { interval, at_most: at_most as usize }
    }
}
