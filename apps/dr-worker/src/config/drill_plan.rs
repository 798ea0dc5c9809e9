use std::time::Duration;

use crate::znodes::DrillMode;
use election_core::{
    config::{MemberId, SiteId},
    internals::{calendar::Windows, record::Target, text::Text},
    strategy::in_words,
};

use super::{
    dates::Dates,
    parse::{DAY, HOUR, MINUTE, SECOND},
    reader::Section,
    table::{flat, flat_as, nested, optional, required, table, value},
};

table! {
    /// `[drill.NAME]`: a plan of a practised failover.
    #[derive(Clone, Debug, PartialEq)]
    pub struct DrillPlan {
        /// The job.
        pub job: String = String::new() => required("the job whose failover is practised").example("\"orders\"");
        /// What is practised: "rehearse" and "kill-standby" (move nothing), "switchover", "kill-job", "kill-worker" or
        /// "cut-site". Default: "rehearse".
        pub mode: DrillMode = DrillMode::Rehearse => value().example("\"switchover\"");
        /// Who takes over, or carries it out.
        pub to: Target = Target::Any => flat_as(DrillTargetKeys::default());
        /// Move the job back at the end.
        pub back: bool = false => value();
        /// What the drill must reach.
        pub objectives: Objectives = Objectives::default() => nested();
        /// When it may run, and what holds of each run.
        pub rules: DrillRules = DrillRules::default() => flat();
        /// How long a site is cut off, with the mode "cut-site".
        pub cut_for: Duration = 30 * SECOND => value().within(SECOND..=6 * HOUR);
        /// How long the drill may take, without the cut. Then it is aborted.
        pub limit: Duration = 5 * MINUTE => value().within(SECOND..=6 * HOUR);
    }
    check DrillPlan::check;
}

table! {
    /// When a drill by a plan may run, and what holds of each run: of a job or of a site.
    #[derive(Clone, Debug, PartialEq)]
    pub struct DrillRules {
        /// Reason, for the records.
        pub reason: Option<String> = None => optional().example("\"quarterly disaster practice\"").check(|reason: &String| {
            Text::new(reason.as_str()).err().map(|why| why.to_string())
        });
        /// When a drill may run: hours of the week, as failback_windows. Default: at any time.
        pub windows: Windows = Windows::default() => value().example("[\"Sun 02:00-04:00\"]");
        /// Days in UTC on which no drill may run: 2026-12-24, 12-24 for each year, or from one day to another.
        pub blocked_dates: Dates = Dates::default() => value().example("[\"12-20..01-06\"]");
        /// Whether an operator must approve each drill: by --yes, or by typing the name of the job or of the site.
        pub approval: bool = false => value();
        /// How often a worker evaluates the plan: that which leads the job, or the first job of the site. "0s": never.
        pub check_every: Duration = 5 * MINUTE => value().within(Duration::ZERO..=30 * DAY);
        /// How long the new leaders serve before the drill goes on.
        pub stay: Duration = 5 * SECOND => value().within(Duration::ZERO..=6 * HOUR);
    }
}

table! {
    struct DrillTargetKeys {
        /// The member that takes over, rehearses, or kills its standby. Default: as the policy decides.
        to: Option<MemberId> = None => optional();
        /// The site that it is in. Default: as the policy decides.
        to_site: Option<SiteId> = None => optional().example("\"west\"");
    }
    check DrillTargetKeys::check;
}

impl DrillTargetKeys {
    fn check(&mut self, section: &mut Section<'_>) {
        if self.to.is_some() && self.to_site.is_some() {
            section.problem("to_site", "to is set too; leave one of them out");
        }
    }
}

impl From<DrillTargetKeys> for Target {
    fn from(DrillTargetKeys { to, to_site }: DrillTargetKeys) -> Self {
        to.map(Target::Member).or(to_site.map(Target::Site)).unwrap_or(Target::Any)
    }
}

table! {
    /// What a drill must reach.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Objectives {
        /// The longest outage.
        pub rto: Option<Duration> = None => optional().within(Duration::ZERO..=365 * DAY).example("\"30s\"");
        /// The longest period whose data may be lost, by the attribute `lag` of members.
        pub rpo: Option<Duration> = None => optional().within(Duration::ZERO..=365 * DAY).example("\"5s\"");
        /// The attribute of members that has the period whose data would be lost now, in seconds.
        pub lag: Option<String> = None => optional().example("\"lag_seconds\"");
    }
    check Objectives::check;
}

impl Objectives {
    fn check(&mut self, section: &mut Section<'_>) {
        if self.rpo.is_some() && self.lag.is_none() {
            section.problem("rpo", "it is measured by an attribute of the members: set lag to its name");
        }
    }
}

impl DrillPlan {
    /// The plan of a drill without one.
    pub fn unplanned(job: String, mode: DrillMode, to: Target) -> Self {
        let rules = DrillRules { check_every: Duration::ZERO, ..DrillRules::default() };
        Self { job, mode, to, rules, ..Self::default() }
    }

    /// How long a drill by this plan takes at most.
    pub fn longest(&self) -> Duration {
        self.limit + if self.mode == DrillMode::CutSite { self.cut_for } else { Duration::ZERO }
    }

    fn check(&mut self, section: &mut Section<'_>) {
        if self.back && self.mode.spares_leader() {
            section.problem("back", "this mode moves nothing, so there is nothing to move back");
        }
        let serves = self.rules.stay * if self.back { 2 } else { 1 };
        if !self.mode.spares_leader() && serves >= self.longest() {
            let (stay, limit) = (in_words(self.rules.stay), in_words(self.limit));
            let each = if self.back { "each of two leaders serves" } else { "a new leader serves" };
            let message = format!("{each} for stay, {stay}: the drill can't end within limit, {limit}");
            section.problem("limit", message);
        }
    }
}
