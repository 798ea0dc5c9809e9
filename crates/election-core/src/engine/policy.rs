//! The settings of one election, and the timing rule that they must satisfy.

use std::time::Duration;

use crate::{calendar::Windows, record::most};

/// How an election behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// How many members lead at once, each in a slot of its own: 1 to
    /// [`MAX_SLOTS`](crate::record::MAX_SLOTS); anything else counts as the nearest of them.
    pub slots: usize,
    /// What a leader does when its connection is lost.
    pub on_pause: OnPause,
    /// How long the work may need to end, including a kill. A leader begins to stop this long before its lease ends.
    /// `None`: a tenth of the granted session timeout, at most 2 s.
    pub stop_budget: Option<Duration>,
    /// How much of the end of each lease is not used: work has ended this long before its lease ends.
    pub lease_reserve: Duration,
    /// How long PROGRESS may last before the candidate is excluded.
    pub takeover_timeout: Duration,
    /// How long the old leader may take to release leadership before that is reported.
    pub release_timeout: Duration,
    /// How long the named member may take to create its leader znode.
    pub acquire_timeout: Duration,
    /// How long a candidate that failed is excluded.
    pub exclusion: Duration,
    /// The longest exclusion: an exclusion doubles with each failure that is remembered.
    pub max_exclusion: Duration,
    /// How long the failures of a member are remembered; zero to remember none.
    pub penalty_window: Duration,
    /// How often a site may fail as a whole before leadership does not return to it.
    pub max_site_failures: SiteFailureLimit,
    /// How long a site must have been without any member, after its leader was lost, to count as failed. A site that
    /// is only restarted returns earlier.
    pub site_gone_after: Duration,
    /// How long a leader leads before a better member may follow, regardless of how it came to lead.
    pub min_tenure: Duration,
    /// How many decisions without an order may be taken for a slot within a window before that slot is put on hold.
    pub max_takeovers: TakeoverLimit,
    /// How long another member must have been better, without a break, before leadership moves to it by itself. The
    /// time doubles for each time but the first that its site lost a leader within
    /// [`penalty_window`](Self::penalty_window), up to that window.
    pub better_after: Duration,
    /// When leadership may move to another site by itself; at any time if there are none.
    pub failback_windows: Windows,
    /// Which of these moves wait for an operator's confirmation.
    pub confirm: Confirm,
    /// How long the very first decision waits when the strategy reports that a better candidate may be about to join.
    pub startup_wait: Duration,
    /// How many leaderships the history keeps.
    pub history_kept: usize,
    /// Whether the resource refuses a token that is older than the newest that it has seen. Only the job's owner can
    /// know that.
    pub fenced: bool,
    /// Whether a leader that enough members have lost is replaced before its session ends. Two leaders may act for a
    /// moment then, so it has no effect unless `fenced`.
    pub fast_failover: bool,
    /// How long a member must have been without an answer before a witness reports it.
    pub suspect_after: Duration,
}

impl Policy {
    /// This policy with a change: `Policy::default().with(|policy| policy.slots = 2)`.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The most failures of sites that an election remembers, of all sites together.
    pub const MOST_SITE_FAILURES: u32 = most::SITE_FAILURES as u32;

    /// The most takeovers of each slot that an election with this number of slots remembers.
    pub fn most_takeovers(slots: usize) -> u32 {
        u32::try_from(most::attempts(slots)).unwrap_or(u32::MAX)
    }

    /// Whether a leader can be deposed on the reports of other members.
    pub const fn may_suspect(&self) -> bool {
        self.fenced && self.fast_failover
    }

    /// [`stop_budget`](Self::stop_budget) on a session with this timeout.
    pub fn stop_budget(&self, granted: Duration) -> Duration {
        self.stop_budget.unwrap_or_else(|| (granted / 10).min(Duration::from_secs(2)))
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            slots: 1,
            on_pause: OnPause::Stop,
            stop_budget: None,
            lease_reserve: Duration::ZERO,
            takeover_timeout: Duration::from_secs(60),
            release_timeout: Duration::from_secs(30),
            acquire_timeout: Duration::from_secs(10),
            exclusion: Duration::from_secs(300),
            max_exclusion: Duration::from_secs(3600),
            penalty_window: Duration::from_secs(24 * 3600),
            max_site_failures: SiteFailureLimit { count: 2, within: Duration::from_secs(24 * 3600) },
            site_gone_after: Duration::from_secs(30),
            min_tenure: Duration::from_secs(60),
            max_takeovers: TakeoverLimit { count: 5, within: Duration::from_secs(600) },
            better_after: Duration::from_secs(1800),
            failback_windows: Windows::default(),
            confirm: Confirm::Never,
            startup_wait: Duration::from_secs(5),
            history_kept: 200,
            fenced: false,
            fast_failover: false,
            suspect_after: Duration::from_millis(500),
        }
    }
}

/// What a leader does when its connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnPause {
    /// At most one leader: continue the work until the lease nears its end, then stop.
    Stop,
    /// At most one leader, whose work rests during a pause: suspend the work, continue it once the session is active
    /// again and the leadership was read again, and stop it when the lease nears its end.
    Freeze {
        /// How long suspended work may need to end: it is stopped this long before its lease ends. Work that is not
        /// suspended has its whole [`stop_budget`](Policy::stop_budget).
        kill_budget: Duration,
    },
    /// At least one leader: continue the work until another leader is named, or for this long. Two may lead
    /// meanwhile.
    Keep {
        /// The longest pause; `None` for no limit.
        max_pause: Option<Duration>,
    },
}

/// Which moves to a better member wait for an operator's confirmation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Confirm {
    /// None.
    #[default]
    Never,
    /// Those to another site: each is proposed. It is made once
    /// [`Control::confirmed`](crate::record::Control::confirmed) names the site for the leader's term.
    CrossSite,
}

/// A number of takeovers within a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakeoverLimit {
    /// The number. More than [`Policy::most_takeovers`] count as that.
    pub count: u32,
    /// The time.
    pub within: Duration,
}

/// How often a site may fail within a time before leadership does not return to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteFailureLimit {
    /// At this number of failures leadership does not return to it; 0 for no limit, and no failure is remembered. A limit above
    /// [`Policy::MOST_SITE_FAILURES`] is never reached.
    pub count: u32,
    /// The time.
    pub within: Duration,
}
