//! `evacuate`.

use std::collections::BTreeMap;

use clap::Args;
use election_core::config::SiteId;

use crate::{
    commands::{
        evacuation::{gather::prepare, shown::Evacuated, store},
        operation::{Ask, Election, Operation, Question, Report},
    },
    config::PolicyConfig,
    error::Error,
    typed::Typed,
    znodes::Evacuation,
};

/// Move all jobs out of a site, in their order, and drain it.
///
/// Workers carry it out: it goes on if this command ends.
/// It stops at the first move that fails; --resume tries again, --undo moves back, --abandon leaves it as it is.
#[derive(Debug, Args)]
pub(super) struct Evacuate {
    /// Site.
    #[arg(value_name = "SITE")]
    site: SiteId,
    /// Job that moves; repeatable [default: all].
    #[arg(long = "job", value_name = "JOB")]
    jobs: Vec<String>,
    /// Site to move to [default: the best for each job].
    #[arg(long, value_name = "SITE")]
    to_site: Option<SiteId>,
    /// Move by forced failovers: the site is lost.
    ///
    /// Leaders there are asked to stop, and are replaced if they do not. What fails does not hold up what does not follow it.
    #[arg(long)]
    force: bool,
    /// With --force: do not wait for leaders to stop.
    ///
    /// Two act until a leader has stopped.
    #[arg(long, requires = "force")]
    now: bool,
    /// Only show what would move, and the obstacles.
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Try again what has failed.
    #[arg(long, conflicts_with_all = ["undo", "jobs", "to_site", "force", "dry_run"])]
    resume: bool,
    /// Move back what was moved, and open the site.
    #[arg(long, conflicts_with_all = ["jobs", "to_site", "force", "dry_run"])]
    undo: bool,
    /// Give up what is left, and the move back.
    ///
    /// Everything stays where it is.
    #[arg(long, conflicts_with_all = ["resume", "undo", "jobs", "to_site", "force", "dry_run"])]
    abandon: bool,
}

impl Evacuate {
    fn plan(&self, of: &Election<'_>) -> Evacuation {
        let mut plan = store::new(&self.site, of.author.by, of.author.reason);
        (plan.force, plan.now) = (self.force, self.now);
        plan.to_site.clone_from(&self.to_site);
        plan
    }

    /// Of one that has begun.
    async fn change(&self, of: &Election<'_>) -> Result<Report<Evacuated>, Error> {
        let alter = match (self.resume, self.abandon) {
            (true, _) => Evacuation::resume,
            (_, true) => Evacuation::abandon,
            _ => Evacuation::turn_back,
        };
        let plan = store::change(&of.operator.session, &of.paths, &self.plan(of), None, alter).await?;
        let shown = Evacuated::from(plan);
        let text = shown.progress();
        Ok(Report::new(shown, text))
    }
}

impl Operation for Evacuate {
    type Outcome = Evacuated;

    fn check(&self) -> Result<(), Error> {
        match &self.to_site {
            Some(to) if *to == self.site => {
                Err(Error::Usage(format!("to_site: site {to} is the site that is emptied")))
            }
            _ => Ok(()),
        }
    }

    async fn ask<'a>(&'a self, of: &'a Election<'a>) -> Result<Ask<'a, Evacuated>, Error> {
        if self.resume || self.undo || self.abandon {
            return Ok(Ask::Deed(None, Box::pin(self.change(of))));
        }
        let prepared = prepare(of.operator, self.plan(of), &self.jobs, &[]).await?;
        let mut shown = Evacuated::from(prepared);
        let unordered = unordered(&shown.plan, &of.operator.config.jobs);
        if self.dry_run {
            let mut report = Report::new(shown.clone(), shown.forecast());
            report.notes.extend(unordered);
            return Ok(Ask::Deed(None, Box::pin(async { Ok(report) })));
        }
        let present = store::read(&of.operator.session, &of.paths).await?;
        let replaced = present.as_ref().and_then(|present| store::supersedes(present, &shown.plan));
        let replaced = replaced.map(|why| format!("{why}; they can't be moved back together any more"));
        if let Some(present) = store::joined(present, &shown.plan)? {
            let note = "it is under way already; --wait follows it".to_owned();
            let shown = Evacuated::from(present);
            let mut report = Report::new(shown.clone(), shown.progress());
            report.notes.push(note);
            return Ok(Ask::Deed(None, Box::pin(async { Ok(report) })));
        }
        if !self.force && !shown.obstacles.is_empty() {
            return Err(Error::NotNow(hindered(&shown)));
        }
        let site = &self.site;
        let danger = match (self.force, self.now) {
            (true, true) => {
                ", by force, now: two programs of a job may run until the leader there has stopped"
            }
            (true, false) => {
                ", by force: leaders there that do not stop within their stop budget are replaced, so two programs may \
                 run for a moment"
            }
            _ => "",
        };
        let jobs = shown.plan.steps.len();
        let also = replaced.as_ref().map_or(String::new(), |why| format!("; {why}"));
        let what = format!("evacuate site {site}: {jobs} jobs{danger}{also}");
        let work = async move {
            if let Some(present) = store::begin(&of.operator.session, &of.paths, &mut shown.plan).await? {
                shown.plan = present;
            }
            let shown = Evacuated { left_out: shown.left_out, ..Evacuated::from(shown.plan) };
            let text = shown.progress();
            let mut report = Report::new(shown, text);
            report.notes.extend(unordered.into_iter().chain(replaced));
            report.notes.push("workers carry it out; --wait follows it".to_owned());
            Ok(report)
        };
        Ok(Ask::Deed(Some(Question { what, needs_yes: false }), Box::pin(work)))
    }
}

/// What is said of jobs whose order is not known: only the configuration has it.
fn unordered(plan: &Evacuation, configured: &BTreeMap<String, PolicyConfig>) -> Option<String> {
    let jobs = plan.steps.iter().map(|step| step.job.as_str());
    let jobs: Vec<_> = jobs.filter(|job| !configured.contains_key(*job)).collect();
    (plan.steps.len() > 1 && !jobs.is_empty()).then(|| {
        format!(
            "no order is known for {}, which the configuration here does not have; evacuate from the host of a worker to \
             move each job after those that it depends on",
            jobs.join(", ")
        )
    })
}

fn hindered(shown: &Evacuated) -> String {
    let notes: Vec<_> = shown.obstacles.iter().map(|note| format!("{}: {}", note.job, note.why)).collect();
    let forced = Typed::verb("evacuate").arg(&shown.plan.site).arg("--force");
    format!(
        "nothing was moved: {}; to leave jobs out, name the others with --job; if the site is lost: `{forced}`",
        notes.join("; ")
    )
}
