//! The measured attributes of this member in one election: the values of the job's measure command, and the load of other
//! jobs that the worker leads.

use std::collections::BTreeMap;

use election_core::Election;
use parking_lot::Mutex;

/// The measured attributes of one election. Only a change is published, because each is a write.
#[derive(Debug)]
pub(super) struct Measured {
    election: Election,
    parts: Mutex<MeasuredParts>,
}

#[derive(Debug, Default)]
struct MeasuredParts {
    /// By the measure command. Its names are distinct from the others.
    by_command: BTreeMap<String, String>,
    of_jobs: BTreeMap<String, String>,
    published: BTreeMap<String, String>,
}

impl Measured {
    pub(super) fn of(election: Election) -> Self {
        Self { election, parts: Mutex::default() }
    }

    /// Sets all values of the measure command.
    pub(super) fn by_command(&self, job: &str, values: BTreeMap<String, String>) {
        let mut parts = self.parts.lock();
        parts.by_command = values;
        self.publish(job, &mut parts);
    }

    /// Sets all attributes about other jobs.
    pub(super) fn of_jobs(&self, job: &str, values: BTreeMap<String, String>) {
        let mut parts = self.parts.lock();
        parts.of_jobs = values;
        self.publish(job, &mut parts);
    }

    fn publish(&self, job: &str, parts: &mut MeasuredParts) {
        let all: BTreeMap<_, _> = parts.by_command.clone().into_iter().chain(parts.of_jobs.clone()).collect();
        if all == parts.published {
            return;
        }
        match self.election.set_measured(all.clone()) {
            Ok(()) => parts.published = all,
            Err(error) => tracing::warn!(job, "can't publish the measured attributes: {error}"),
        }
    }
}
