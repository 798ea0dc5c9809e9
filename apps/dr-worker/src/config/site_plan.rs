use std::{collections::BTreeMap, time::Duration};

use election_core::config::SiteId;

use super::{
    drill_plan::{DrillRules, Objectives},
    parse::{HOUR, MINUTE, SECOND},
    reader::Section,
    table::{flat, nested, optional, required, table, tables, value},
};

table! {
    /// `[plan.NAME]`: the plan for the loss of a site, which is practised.
    #[derive(Clone, Debug, PartialEq)]
    pub struct SitePlan {
        /// The site that is emptied.
        pub site: String = String::new() => required("the site that is emptied").example("\"east\"");
        /// The site to which everything moves. Default: the best one for each job.
        pub to_site: Option<SiteId> = None => optional().example("\"west\"");
        /// The jobs that move. Default: all that have members there.
        pub jobs: Vec<String> = Vec::new() => value().example("[\"db\", \"shop\"]");
        /// Jobs that move one after the other, beside what `after` says of them.
        pub order: Vec<String> = Vec::new() => value().example("[\"db\", \"shop\"]");
        /// Move the jobs back at the end of a drill.
        pub back: bool = true => value();
        /// What the whole must reach: rto is the time from the first move to the last READY leader, rpo holds of each job.
        pub objectives: Objectives = Objectives::default() => nested();
        /// What single jobs must reach, by the name of the job.
        pub each as job: BTreeMap<String, Objectives> = BTreeMap::new() => tables(Objectives::default()).name("db");
        /// When it may run, and what holds of each run.
        pub rules: DrillRules = DrillRules::default() => flat();
        /// How long a drill waits for the moves of one direction.
        pub limit: Duration = 15 * MINUTE => value().within(SECOND..=6 * HOUR);
    }
    check SitePlan::check;
}

impl SitePlan {
    /// The objectives of one job: its own, and for what it has not set those of the whole, without the time that is the whole's.
    pub fn objectives_of(&self, job: &str) -> Objectives {
        let own = self.each.get(job).cloned().unwrap_or_default();
        let Objectives { rpo, lag, .. } = self.objectives.clone();
        Objectives { rto: own.rto, rpo: own.rpo.or(rpo), lag: own.lag.or(lag) }
    }

    fn check(&mut self, section: &mut Section<'_>) {
        if let Err(wrong) = SiteId::new(self.site.clone()) {
            section.problem("site", wrong.to_string());
        }
        if self.to_site.as_ref().is_some_and(|to| to.as_str() == self.site) {
            section.problem("to_site", "it is the site that is emptied; name another one, or leave it out");
        }
        let jobs = &self.jobs;
        let is_other = |job: &&String| !jobs.is_empty() && !jobs.contains(*job);
        let others = [("order", self.order.iter().find(is_other)), ("job", self.each.keys().find(is_other))];
        for (key, job) in others.into_iter().filter_map(|(key, job)| Some((key, job?))) {
            let wrong = format!("{job:?} is not in jobs {jobs:?}; add it there, or remove it here");
            section.problem(key, wrong);
        }
    }
}
