//! The measured attributes of this member in one election: the values of the job's measure command, the load of other jobs
//! that the worker leads, and the state of the standby.

use std::collections::BTreeMap;

use election_core::Election;
use parking_lot::Mutex;

use crate::znodes::{STANDBY_ATTRIBUTE, StandbyReport};

/// The measured attributes of one election. Only a change is published, because each is a write.
#[derive(Debug)]
pub(super) struct Measured {
    election: Election,
    parts: Mutex<MeasuredParts>,
}

/// What is measured, by its source.
#[derive(Debug, Default)]
pub(super) struct MeasuredParts {
    /// By the measure command. Its names are distinct from the others.
    pub(super) by_command: BTreeMap<String, String>,
    pub(super) of_jobs: BTreeMap<String, String>,
    pub(super) of_standby: Option<StandbyReport>,
    published: BTreeMap<String, String>,
}

impl Measured {
    pub(super) fn of(election: Election) -> Self {
        Self { election, parts: Mutex::default() }
    }

    /// Changes a part, and publishes all of them.
    pub(super) fn change(&self, job: &str, change: impl FnOnce(&mut MeasuredParts)) {
        let mut parts = self.parts.lock();
        change(&mut parts);
        let of_standby = parts.of_standby.map(|report| (STANDBY_ATTRIBUTE.to_owned(), report.to_string()));
        let others = parts.of_jobs.clone().into_iter().chain(of_standby);
        let all: BTreeMap<_, _> = parts.by_command.clone().into_iter().chain(others).collect();
        if all == parts.published {
            return;
        }
        match self.election.set_measured(all.clone()) {
            Ok(()) => parts.published = all,
            Err(error) => tracing::warn!(job, "can't publish the measured attributes: {error}"),
        }
    }
}
