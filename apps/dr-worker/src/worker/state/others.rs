//! What the jobs of this worker know of each other: where each one is led, and whether it serves.

use std::collections::{BTreeMap, BTreeSet};

use election_core::{
    internals::record::{Control, Current, Status},
    status::ElectionStatus,
};
use parking_lot::Mutex;
use strategies::other_jobs::{OtherJob, OtherJobs};
use tokio::sync::watch;

use crate::{
    config::{Config, JobConfig, Recipe},
    znodes::{Halted, HaltedProgram},
};

/// What is known of the jobs that others depend on. Each is read from its own election.
#[derive(Debug)]
pub(in crate::worker) struct Others {
    seen: watch::Sender<BTreeMap<String, SeenJob>>,
    /// What each job comes after.
    after: Mutex<BTreeMap<String, Vec<String>>>,
}

/// What is known of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::worker) struct SeenJob {
    /// For policies.
    led: OtherJob,
    service: Service,
}

/// Whether a job serves, for those that come after it, and for those that it comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worker) enum Service {
    /// It has a READY leader of this term, whose program runs.
    Up(u64),
    /// It has a leader, whose program may run.
    MayRun,
    /// Its leader is about to stop the program, as planned.
    Stopping,
    /// Its leader does not run the program.
    Stopped,
    /// It has no leader.
    Gone,
}

impl SeenJob {
    /// `control` is `None` if the standing orders are not known.
    pub(in crate::worker) fn of(
        status: &ElectionStatus,
        control: Option<&Control>,
        halted: Option<&Halted>,
    ) -> Self {
        let leaders = || status.leaders.iter().flatten().map(|leader| &**leader);
        let service = Service::of_leader(leaders().next(), halted);
        Self { led: OtherJob::of(control, status.elected.as_deref(), leaders()), service }
    }
}

impl Service {
    /// What the leader znode and the record of its program say.
    pub(in crate::worker) fn of_leader(leader: Option<&Current>, halted: Option<&Halted>) -> Self {
        let Some(leader) = leader else { return Self::Gone };
        let program = halted.filter(|halted| halted.term == leader.term).map(|halted| halted.program);
        match (program, leader.status) {
            (Some(HaltedProgram::Stopping), _) => Self::Stopping,
            (Some(HaltedProgram::Stopped), _) => Self::Stopped,
            (Some(HaltedProgram::Starting), _) => Self::MayRun,
            (Some(HaltedProgram::Runs) | None, Status::Ready) => Self::Up(leader.term),
            (Some(HaltedProgram::Runs) | None, _) => Self::MayRun,
        }
    }

    /// Whether its program may run.
    pub(in crate::worker) fn may_run(self) -> bool {
        !matches!(self, Self::Stopped | Self::Gone)
    }

    /// Why a job after this one may not start.
    pub(in crate::worker) fn in_the_way(self, job: &str) -> Option<String> {
        match self {
            Self::Up(_) => None,
            Self::Stopping => Some(format!("{job} is being stopped")),
            Self::Stopped => Some(format!("the program of {job} does not run")),
            Self::MayRun => Some(format!("{job} is not READY yet")),
            Self::Gone => Some(format!("{job} has no leader")),
        }
    }
}

impl Others {
    pub(in crate::worker) fn new(config: &Config) -> Self {
        let others = Self { seen: watch::Sender::default(), after: Mutex::default() };
        others.set_config(&config.jobs);
        others
    }

    pub(in crate::worker) fn set_config(&self, jobs: &[JobConfig]) {
        let after = jobs.iter().map(|job| (job.name().to_owned(), job.spec.after.clone()));
        *self.after.lock() = after.collect();
        let wanted = Self::wanted(jobs);
        // What is not followed any more is out of date when it is followed again.
        self.seen.send_modify(|seen| seen.retain(|job, _| wanted.contains(job)));
    }

    /// The jobs that must be followed: those that a policy goes by, those that others come after, and these others.
    pub(in crate::worker) fn wanted(jobs: &[JobConfig]) -> BTreeSet<String> {
        let policies = jobs.iter().filter(|job| job.recipe == Recipe::Elector);
        let mut wanted: BTreeSet<_> = policies.flat_map(|job| job.policy.needs().jobs).collect();
        for job in jobs.iter().filter(|job| !job.spec.after.is_empty()) {
            wanted.extend(job.spec.after.iter().cloned());
            wanted.insert(job.name().to_owned());
        }
        wanted
    }

    /// Takes over what was read of a job.
    pub(in crate::worker) fn saw(&self, job: &str, news: SeenJob) {
        self.seen.send_if_modified(|seen| {
            if seen.get(job) == Some(&news) {
                return false;
            }
            tracing::debug!(job, seen = ?news, "another job has changed");
            seen.insert(job.to_owned(), news);
            true
        });
    }

    /// Its changes.
    pub(in crate::worker) fn changes(&self) -> watch::Receiver<BTreeMap<String, SeenJob>> {
        self.seen.subscribe()
    }

    /// Where these jobs are led, for policies.
    pub(in crate::worker) fn led<'a>(&self, jobs: impl IntoIterator<Item = &'a String>) -> OtherJobs {
        let seen = self.seen.borrow();
        let known = |job: &String| Some((job.clone(), seen.get(job)?.led.clone()));
        jobs.into_iter().filter_map(known).collect()
    }

    /// Where all followed jobs are led.
    pub(in crate::worker) fn all_led(&self) -> OtherJobs {
        self.seen.borrow().iter().map(|(job, seen)| (job.clone(), seen.led.clone())).collect()
    }

    /// The jobs that this one comes after.
    pub(in crate::worker) fn before(&self, job: &str) -> Vec<String> {
        self.after.lock().get(job).cloned().unwrap_or_default()
    }

    /// These jobs, as this member has seen them.
    pub(in crate::worker) fn services_in<'a>(
        seen: &BTreeMap<String, SeenJob>,
        jobs: impl IntoIterator<Item = &'a String>,
    ) -> Vec<(String, Service)> {
        let service = |name: &String| seen.get(name).map_or(Service::Gone, |seen| seen.service);
        jobs.into_iter().map(|name| (name.clone(), service(name))).collect()
    }

    /// The jobs that this one comes after, as this member has seen them.
    fn services(&self, job: &str) -> Vec<(String, Service)> {
        Self::services_in(&self.seen.borrow(), &self.before(job))
    }

    /// Why this job may not start now.
    pub(in crate::worker) fn waits(&self, job: &str) -> Option<String> {
        self.services(job).into_iter().find_map(|(name, service)| service.in_the_way(&name))
    }

    /// Why this job is to stop now: one that it comes after is stopped as planned.
    pub(in crate::worker) fn must_stop(&self, job: &str) -> Option<String> {
        let stops = |service: &Service| matches!(service, Service::Stopping | Service::Stopped);
        let all = self.services(job).into_iter();
        all.filter(|(_, service)| stops(service)).find_map(|(name, service)| service.in_the_way(&name))
    }

    /// The terms of the jobs that this one comes after, as far as they serve.
    pub(in crate::worker) fn terms(&self, job: &str) -> BTreeMap<String, u64> {
        let term = |(name, service)| match service {
            Service::Up(term) => Some((name, term)),
            _ => None,
        };
        self.services(job).into_iter().filter_map(term).collect()
    }

    /// Whether this job comes after another one, or another one after it.
    pub(in crate::worker) fn is_ordered(&self, job: &str) -> bool {
        let after = self.after.lock();
        after.get(job).is_some_and(|names| !names.is_empty())
            || after.values().flatten().any(|name| name == job)
    }

    /// The jobs that come after this one.
    pub(in crate::worker) fn behind(&self, job: &str) -> Vec<String> {
        let after = self.after.lock();
        let behind = after.iter().filter(|(_, names)| names.iter().any(|name| name == job));
        behind.map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn others() -> Others {
        let after = [("shop", vec!["db"]), ("web", vec!["shop", "db"]), ("db", vec![])];
        let owned = |(job, after): (&str, Vec<&str>)| {
            (job.to_owned(), after.into_iter().map(str::to_owned).collect::<Vec<_>>())
        };
        Others { seen: watch::Sender::default(), after: Mutex::new(after.into_iter().map(owned).collect()) }
    }

    fn saw(others: &Others, job: &str, service: Service) {
        others.saw(job, SeenJob { led: OtherJob::Unknown(String::new()), service });
    }

    #[test]
    fn a_job_waits_for_all_that_it_comes_after_and_stops_only_with_a_planned_stop() {
        let others = others();
        assert_eq!(others.waits("db"), None);
        assert_eq!(others.waits("shop").as_deref(), Some("db has no leader"));
        for (service, waits, must_stop) in [
            (Service::Up(3), None, None),
            (Service::MayRun, Some("db is not READY yet"), None),
            (Service::Gone, Some("db has no leader"), None),
            (Service::Stopping, Some("db is being stopped"), Some("db is being stopped")),
            (
                Service::Stopped,
                Some("the program of db does not run"),
                Some("the program of db does not run"),
            ),
        ] {
            saw(&others, "db", service);
            assert_eq!(others.waits("shop").as_deref(), waits);
            assert_eq!(others.must_stop("shop").as_deref(), must_stop);
        }
        saw(&others, "db", Service::Up(3));
        saw(&others, "shop", Service::MayRun);
        assert_eq!(others.waits("web").as_deref(), Some("shop is not READY yet"));
        assert_eq!(others.terms("web"), [("db".to_owned(), 3)].into());
    }

    #[test]
    fn a_job_is_ordered_if_another_one_is_before_or_behind_it() {
        let others = others();
        assert!(others.is_ordered("web") && others.is_ordered("db") && !others.is_ordered("mq"));
        assert_eq!(others.behind("db"), ["shop", "web"]);
        assert_eq!(others.before("web"), ["shop", "db"]);
    }

    #[test]
    fn a_halted_program_counts_in_its_term_alone() {
        let leader: Current = serde_json::from_value(serde_json::json!({
            "v": 1, "member": "east-1", "ballot": "b-0000000001", "site": "east", "slot": 0, "term": 5,
            "status": "READY", "since_ms": 0,
        }))
        .unwrap();
        let of = |term, program| Service::of_leader(Some(&leader), Some(&Halted::new(term, program)));
        assert_eq!(Service::of_leader(Some(&leader), None), Service::Up(5));
        assert_eq!(Service::of_leader(None, Some(&Halted::new(5, HaltedProgram::Runs))), Service::Gone);
        assert_eq!(of(4, HaltedProgram::Stopped), Service::Up(5));
        assert_eq!(of(5, HaltedProgram::Stopped), Service::Stopped);
        assert_eq!(of(5, HaltedProgram::Stopping), Service::Stopping);
        assert_eq!(of(5, HaltedProgram::Starting), Service::MayRun);
        let may_run = [Service::Up(5), Service::MayRun, Service::Stopping, Service::Stopped, Service::Gone];
        assert_eq!(may_run.map(Service::may_run), [true, true, true, false, false]);
        assert_eq!(of(5, HaltedProgram::Runs), Service::Up(5));
    }
}
