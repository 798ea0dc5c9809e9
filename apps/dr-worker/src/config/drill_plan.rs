use std::{collections::BTreeMap, time::Duration};

use election_core::{
    calendar::Windows,
    record::{DrillMode, Target},
    text::Text,
};

use super::{dates::Dates, reader::Section};

/// `[drill.NAME]`: a plan of a practised failover.
#[derive(Clone, Debug, PartialEq)]
pub struct DrillPlan {
    /// The job.
    pub job: String,
    /// What is practised.
    pub mode: DrillMode,
    /// Who takes over, or rehearses.
    pub to: Target,
    /// Whether the job is moved back to the member that led before.
    pub back: bool,
    /// The reason, for the records.
    pub reason: Option<String>,
    /// What the drill must reach.
    pub objectives: Objectives,
    /// When it may run.
    pub windows: Windows,
    /// Days on which it may not run.
    pub blocked_dates: Dates,
    /// Whether an operator must approve each run.
    pub approval: bool,
    /// How often the worker that leads evaluates the plan; zero: never.
    pub check_every: Duration,
    /// How long the new leader serves before the drill goes on.
    pub stay: Duration,
    /// How long a site is cut off.
    pub cut_for: Duration,
    /// How long the drill may take, without the time of the cut.
    pub limit: Duration,
}

/// What a drill must reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objectives {
    /// The longest outage.
    pub rto: Option<Duration>,
    /// The longest time whose data may be lost.
    pub rpo: Option<Duration>,
    /// The attribute of members that has the time whose data would be lost now, in seconds.
    pub lag: Option<String>,
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

impl DrillPlan {
    /// The plan of a drill without one.
    pub fn unplanned(job: String, mode: DrillMode, to: Target) -> Self {
        Self {
            job,
            mode,
            to,
            back: false,
            reason: None,
            objectives: Objectives::default(),
            windows: Windows::default(),
            blocked_dates: Dates::default(),
            approval: false,
            check_every: Duration::ZERO,
            stay: 5 * SECOND,
            cut_for: 30 * SECOND,
            limit: 5 * MINUTE,
        }
    }

    /// How long a drill by this plan takes at most.
    pub fn longest(&self) -> Duration {
        self.limit + if self.mode == DrillMode::CutSite { self.cut_for } else { Duration::ZERO }
    }

    /// All plans, by name.
    pub(super) fn read_all(section: &mut Section<'_>) -> BTreeMap<String, Self> {
        let plans = section.each_table(|name, section| Some((name.to_owned(), Self::read(section)?)));
        plans.into_iter().flatten().collect()
    }

    fn read(section: &mut Section<'_>) -> Option<Self> {
        let job: Option<String> = section.required("job", "the job whose failover is practised");
        let mode = section.or("mode", DrillMode::Rehearse);
        let (member, site) = (section.optional("to"), section.optional("to_site"));
        let to = match (member, site) {
            (Some(_), Some(_)) => {
                section.problem("to_site", "to is set too; leave one of them out");
                Target::Any
            }
            (Some(member), None) => Target::Member(member),
            (None, Some(site)) => Target::Site(site),
            (None, None) => Target::Any,
        };
        let usual = Self::unplanned(String::new(), mode, Target::Any);
        let back = section.or("back", false);
        if back && mode == DrillMode::Rehearse {
            section.problem("back", "a rehearsal moves nothing, so there is nothing to move back");
        }
        let reason: Option<String> = section.optional("reason");
        if let Some(Err(why)) = reason.as_ref().map(|reason| Text::new(reason.as_str())) {
            section.problem("reason", why.to_string());
        }
        let objectives = section.table("objectives", |section| {
            let (rto, rpo, lag) = (section.optional("rto"), section.optional("rpo"), section.optional("lag"));
            if rpo.is_some() && lag.is_none() {
                section.problem("rpo", "it is measured by an attribute of the members: name it as lag");
            }
            Objectives { rto, rpo, lag }
        });
        let windows = Windows::read(&section.or("windows", Vec::<String>::new()));
        let blocked_dates = Dates::read(section.or("blocked_dates", Vec::new()));
        Some(Self {
            back,
            reason,
            objectives,
            windows: windows.unwrap_or_else(|error| {
                section.problem("windows", error.to_string());
                Windows::default()
            }),
            blocked_dates: blocked_dates.unwrap_or_else(|error| {
                section.problem("blocked_dates", error);
                Dates::default()
            }),
            approval: section.or("approval", false),
            check_every: section.duration("check_every", 5 * MINUTE, Duration::ZERO..=30 * DAY),
            stay: section.duration("stay", usual.stay, Duration::ZERO..=DAY / 4),
            cut_for: section.duration("cut_for", usual.cut_for, SECOND..=DAY / 4),
            limit: section.duration("limit", usual.limit, SECOND..=DAY / 4),
            to,
            ..Self::unplanned(job?, mode, Target::Any)
        })
    }
}
