//! Publishes in each job's election the load of all other jobs that this worker leads, if its policy goes by it.

use std::{collections::BTreeMap, sync::Arc};

use election_core::status::{ElectionStatus, Role};
use strategies::{published, spec::Needs};
use tokio::sync::watch;

use super::{measured::Measured, task::Task};

/// A job of this worker.
pub(super) struct OwnJob {
    pub(super) name: String,
    pub(super) load: u32,
    /// What its policy depends on.
    pub(super) needs: Needs,
    pub(super) status: watch::Receiver<ElectionStatus>,
    pub(super) measured: Arc<Measured>,
}

/// The attributes to publish in the election of `job` while this worker leads the jobs `led` (names and loads).
fn attributes(job: &str, led: &BTreeMap<String, u32>) -> BTreeMap<String, String> {
    let others = led.iter().filter(|(name, _)| *name != job);
    published::attributes(others.map(|(_, load)| u64::from(*load)).sum())
}

/// Publishes while these tasks run: none if no policy goes by the load.
pub(super) fn keep(jobs: Vec<OwnJob>) -> Vec<Task> {
    let all = jobs.iter().any(|job| job.needs.load);
    let led = Arc::new(watch::Sender::new(BTreeMap::new()));
    let mut tasks = Vec::new();
    for job in jobs.iter().filter(|_| all) {
        let follow = follow(job.name.clone(), job.load, job.status.clone(), Arc::clone(&led));
        tasks.push(Task::spawn(follow));
    }
    for job in jobs {
        if job.needs.load {
            tasks.push(Task::spawn(publish(job, led.subscribe())));
        } else {
            // Its former policy may have gone by it.
            job.measured.change(&job.name, |parts| parts.of_jobs.clear());
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
        let attributes = attributes(&job.name, &led.borrow_and_update());
        job.measured.change(&job.name, |parts| parts.of_jobs = attributes);
        if led.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_of_all_other_jobs_is_published() {
        // By a job named `web`, while this worker leads these jobs.
        let published = |led: &[(&str, u32)]| {
            let led = led.iter().map(|(name, load)| ((*name).to_owned(), *load)).collect();
            attributes("web", &led).into_iter().collect::<Vec<_>>()
        };
        let load = |load: &str| vec![("dr.load".to_owned(), load.to_owned())];
        assert_eq!(published(&[("bills", 2), ("db", 3), ("web", 5)]), load("5"));
        assert_eq!(published(&[("db", 3), ("web", 5)]), load("3"));
        assert_eq!(published(&[("web", 5)]), []);
    }
}
