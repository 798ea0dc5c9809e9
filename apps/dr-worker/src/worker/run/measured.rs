//! What is measured of this member for one election, put together: what the job's command says, and which
//! other jobs the worker leads.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use election_core::Election;

/// One election's share of what is measured. Only a change is published, for each is a write.
#[derive(Debug)]
pub(super) struct Measured {
    election: Election,
    parts: Mutex<Parts>,
}

#[derive(Debug, Default)]
struct Parts {
    /// By the job's command. None of its names is one of the others.
    by_command: BTreeMap<String, String>,
    of_jobs: BTreeMap<String, String>,
    published: BTreeMap<String, String>,
}

impl Measured {
    pub(super) fn of(election: Election) -> Self {
        Self { election, parts: Mutex::default() }
    }

    /// What the command has said: all of it.
    pub(super) fn by_command(&self, job: &str, values: BTreeMap<String, String>) {
        let mut parts = self.lock();
        parts.by_command = values;
        self.publish(job, &mut parts);
    }

    /// Which other jobs are led here: all that is to be known.
    pub(super) fn of_jobs(&self, job: &str, values: BTreeMap<String, String>) {
        let mut parts = self.lock();
        parts.of_jobs = values;
        self.publish(job, &mut parts);
    }

    fn publish(&self, job: &str, parts: &mut Parts) {
        let all: BTreeMap<_, _> = parts.by_command.clone().into_iter().chain(parts.of_jobs.clone()).collect();
        if all == parts.published {
            return;
        }
        match self.election.set_measured(all.clone()) {
            Ok(()) => parts.published = all,
            Err(error) => tracing::warn!(job, "what was measured is not published: {error}"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Parts> {
        // Nothing that can panic is done under it.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
