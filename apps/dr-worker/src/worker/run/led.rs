//! Publishes in each job's election which of the jobs that its policy names this worker leads, and the load of all
//! other jobs that it leads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use election_core::status::{ElectionStatus, Role};
use strategies::{published, spec::Needs};
use tokio::sync::watch;

use super::{measured::Measured, settings::needs, task::Task};
use crate::config::JobConfig;

/// A job of this worker.
pub(super) struct OwnJob {
    name: String,
    load: u32,
    /// What its policy depends on.
    needs: Needs,
    status: watch::Receiver<ElectionStatus>,
    measured: Arc<Measured>,
}

impl OwnJob {
    pub(super) fn new(
        job: &JobConfig,
        status: watch::Receiver<ElectionStatus>,
        measured: Arc<Measured>,
    ) -> Self {
        Self { name: job.name().to_owned(), load: job.load, needs: needs(job), status, measured }
    }

    /// Whether its policy depends on other jobs.
    fn goes_by_others(&self) -> bool {
        self.needs.load || !self.needs.jobs.is_empty()
    }
}

/// The attributes to publish in the election of `job`, whose policy has these needs, while this worker leads the jobs
/// `led` (names and loads).
fn attributes(job: &str, needs: &Needs, led: &BTreeMap<String, u32>) -> BTreeMap<String, String> {
    let others = || led.iter().filter(|(name, _)| *name != job);
    let named = others().map(|(name, _)| name.as_str()).filter(|name| needs.jobs.contains(*name));
    let load = others().map(|(_, load)| u64::from(*load)).sum();
    published::attributes(named, if needs.load { load } else { 0 })
}

/// Publishes while these tasks run: none if no policy depends on other jobs.
pub(super) fn keep(jobs: Vec<OwnJob>) -> Vec<Task> {
    let wanted: BTreeSet<_> = jobs.iter().flat_map(|job| job.needs.jobs.clone()).collect();
    let all = jobs.iter().any(|job| job.needs.load);
    let led = Arc::new(watch::Sender::new(BTreeMap::new()));
    let mut tasks = Vec::new();
    for job in &jobs {
        if all || wanted.contains(&job.name) {
            let follow = follow(job.name.clone(), job.load, job.status.clone(), Arc::clone(&led));
            tasks.push(Task::spawn(follow));
        }
    }
    for job in jobs {
        if job.goes_by_others() {
            tasks.push(Task::spawn(publish(job, led.subscribe())));
        } else {
            // Its former policy may have depended on them.
            job.measured.of_jobs(&job.name, BTreeMap::new());
        }
    }
    tasks
}

/// Records in `led` whether this worker is the READY leader of the job, until its election has ended.
async fn follow(
    name: String,
    load: u32,
    mut status: watch::Receiver<ElectionStatus>,
    led: Arc<watch::Sender<BTreeMap<String, u32>>>,
) {
    loop {
        let leads = status.borrow_and_update().role == Role::Leader;
        led.send_if_modified(|led| match leads {
            true => led.insert(name.clone(), load).is_none(),
            false => led.remove(&name).is_some(),
        });
        if status.changed().await.is_err() {
            return;
        }
    }
}

async fn publish(job: OwnJob, mut led: watch::Receiver<BTreeMap<String, u32>>) {
    loop {
        let attributes = attributes(&job.name, &job.needs, &led.borrow_and_update());
        job.measured.of_jobs(&job.name, attributes);
        if led.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a job named `web` publishes while this worker leads these jobs.
    fn published(needs: Needs, led: &[(&str, u32)]) -> Vec<(String, String)> {
        let led = led.iter().map(|(name, load)| ((*name).to_owned(), *load)).collect();
        attributes("web", &needs, &led).into_iter().collect()
    }

    #[test]
    fn only_what_the_policy_goes_by_is_published_and_never_the_job_itself() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let jobs = || Needs::default().with(|needs| needs.jobs = ["db".to_owned(), "mq".to_owned()].into());
        let led = [("bills", 2), ("db", 3), ("web", 5)];
        assert_eq!(published(Needs::default(), &led), []);
        assert_eq!(published(jobs(), &led), [pair("dr.leads", "db")]);
        assert_eq!(published(Needs::default().with(|needs| needs.load = true), &led), [pair("dr.load", "5")]);
        let both = jobs().with(|needs| needs.load = true);
        assert_eq!(published(both, &led[1..]), [pair("dr.leads", "db"), pair("dr.load", "3")]);
        assert_eq!(published(jobs().with(|needs| needs.load = true), &led[2..]), []);
    }
}
