//! The settings of one election, and the timing rule that they must fit.

use std::time::Duration;

use crate::calendar::Windows;

/// How an election behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// How many members lead at once, each in a slot of its own: 1 to
    /// [`MAX_SLOTS`](crate::record::MAX_SLOTS); anything else counts as the nearest of them.
    pub slots: usize,
    /// What a leader does when its connection is lost.
    pub on_pause: OnPause,
    /// How long the work may need to end, killing included. A leader begins to
    /// stop this long before its lease ends. `None`: a tenth of the session timeout that
    /// was granted, 2 s at most.
    pub stop_budget: Option<Duration>,
    /// How long PROGRESS may last before the candidate is excluded.
    pub takeover_timeout: Duration,
    /// How long the old leader may take to let go before that is reported.
    pub release_timeout: Duration,
    /// How long the one who is named may take to create its place.
    pub acquire_timeout: Duration,
    /// How long a candidate that failed is excluded.
    pub exclusion: Duration,
    /// The longest exclusion: it doubles with each failure that is remembered.
    pub max_exclusion: Duration,
    /// How long the failures of a member are remembered; zero for not at all.
    pub penalty_window: Duration,
    /// How often a site may fail as a whole before it is not gone back to.
    pub max_site_failures: SiteFailureLimit,
    /// How long a site must have been without any member, after its leader was lost, to count as failed: one that is
    /// merely restarted is back before.
    pub site_gone_after: Duration,
    /// How long a leader leads before a better member may follow, however it came to lead.
    pub min_tenure: Duration,
    /// How many decisions that nobody ordered may be taken for a slot in a window before that
    /// slot holds still.
    pub max_takeovers: TakeoverLimit,
    /// How long another member must have been better, without a break, before leadership moves to it by itself.
    /// Twice as long for each time but the first that its site lost a leader within
    /// [`penalty_window`](Self::penalty_window), up to that.
    pub better_after: Duration,
    /// When leadership may move by itself to another site; at any time if there are none.
    pub failback_windows: Windows,
    /// What of that waits for an operator's word.
    pub confirm: Confirm,
    /// How long the very first decision waits when the strategy says that
    /// somebody better may be about to join.
    pub startup_wait: Duration,
    /// How many leaderships the history keeps.
    pub history_kept: usize,
    /// Whether the resource refuses whoever comes with an older token than the newest
    /// that it has seen. Only the job's owner can know that.
    pub fenced: bool,
    /// Whether a leader that enough members have lost makes room before its session
    /// ends. Two may act for a moment then, so it does nothing unless `fenced`.
    pub fast_failover: bool,
    /// How long a member must have gone unanswered before a witness says so.
    pub suspect_after: Duration,
}

impl Policy {
    /// This policy with a change: `Policy::default().with(|policy| policy.slots = 2)`.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Whether a leader can be put out of office on what its peers say.
    pub const fn may_suspect(&self) -> bool {
        self.fenced && self.fast_failover
    }

    /// [`stop_budget`](Self::stop_budget) on a session of that timeout.
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
    /// At most one leader: work on until the lease nears its end, then stop.
    Stop,
    /// At least one leader: work on until another one is named, or for this long.
    /// Two may lead meanwhile.
    Keep {
        /// The longest pause, or none.
        max_pause: Option<Duration>,
    },
}

/// Which moves to a better member wait for an operator's word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confirm {
    /// None.
    #[default]
    Never,
    /// Those to another site: each is proposed, and made once [`Control::confirmed`](crate::record::Control::confirmed)
    /// names the site for the term that the leader has.
    CrossSite,
}

/// How many takeovers within which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakeoverLimit {
    /// So many.
    pub count: u32,
    /// Within so long.
    pub within: Duration,
}

/// How often a site may fail within which time, before it is not gone back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteFailureLimit {
    /// With so many failures it is not gone back to; 0 for no limit, and nothing is remembered.
    pub count: u32,
    /// Within so long.
    pub within: Duration,
}
