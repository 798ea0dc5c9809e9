//! What a running worker knows of itself: its session, its jobs, and what runs of each here.

mod slot;
mod vacancy;

use std::sync::{Arc, OnceLock};

use election_core::Election;
use zk_session::Session;

use crate::config::{Config, NodeConfig};
pub(super) use slot::JobSlot;
pub(super) use vacancy::Vacancy;

/// What the HTTP endpoints know of this worker.
#[derive(Debug)]
pub(super) struct Worker {
    config: Config,
    joined: OnceLock<Joined>,
}

#[derive(Debug)]
struct Joined {
    session: Session,
    jobs: Vec<Job>,
    /// Its part in the election of whoever spreads the leaderships, if it takes any.
    balancer: Option<Election>,
}

/// A job and its election.
#[derive(Debug)]
pub(super) struct Job {
    /// This member's part in the election.
    pub(super) election: Election,
    /// What runs here of it.
    pub(super) slot: Arc<JobSlot>,
    /// How long it has had no READY leader.
    pub(super) vacancy: Arc<Vacancy>,
}

impl Worker {
    /// A worker that has not joined yet.
    pub(super) fn new(config: Config) -> Self {
        Self { config, joined: OnceLock::new() }
    }

    /// From now on it takes part.
    pub(super) fn joined(&self, session: Session, jobs: Vec<Job>, balancer: Option<Election>) {
        // Nobody else sets it.
        let _ = self.joined.set(Joined { session, jobs, balancer });
    }

    /// All that it was started with.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Who it is.
    pub(super) fn node(&self) -> &NodeConfig {
        &self.config.node
    }

    /// The znode that its elections lie under.
    pub(super) fn root(&self) -> &str {
        &self.config.zookeeper.root
    }

    /// Its session, once it has connected and joined.
    pub(super) fn session(&self) -> Option<&Session> {
        self.joined.get().map(|joined| &joined.session)
    }

    /// Its part in the election of whoever spreads the leaderships over the nodes.
    pub(super) fn balancer(&self) -> Option<&Election> {
        self.joined.get()?.balancer.as_ref()
    }

    /// Its jobs; none until it has joined.
    pub(super) fn jobs(&self) -> &[Job] {
        self.joined.get().map_or(&[], |joined| &joined.jobs)
    }
}
