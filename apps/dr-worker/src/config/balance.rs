use std::time::Duration;

use super::{
    parse::{DAY, MILLISECOND, SECOND},
    table::{table, value},
};

/// Where the balancer's own election lies under the root; so no job that is balanced can have this name.
pub(crate) const BALANCING: &str = "balancing";

table! {
    /// `[balance]`: how the leaderships of jobs with `policy.balance` are spread over the nodes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct BalanceConfig {
        /// Time between two rounds, each of which reads all elections.
        pub interval: Duration = 30 * SECOND => value().within(100 * MILLISECOND..=DAY);
        /// Switchovers under way at most.
        pub at_most: usize = 2 => value().check(|most: &usize| {
            let wrong = "0 would never move a leadership; 1 or more is valid, or leave policy.balance out";
            (*most == 0).then(|| wrong.to_owned())
        });
    }
}
