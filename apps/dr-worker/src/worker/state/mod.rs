//! The state of a running worker: its session, its jobs, and the process of each.

mod others;
mod reload;
mod slot;
mod vacancy;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use election_core::{Election, status::Role};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use zk_session::{BootTime, Session, SessionState};

use super::{certificates::Certificates, job::HungDisk};
use crate::{
    commands::evacuation::practice::EvaluatedPlan,
    config::{Config, NodeConfig},
    workers::Workers,
};
pub(super) use others::{Others, SeenJob, Service};
pub(super) use reload::Reload;
pub(super) use slot::{Halt, HandedSlot, JobSlot};
pub(super) use vacancy::Vacancy;

/// The state of this worker, for the HTTP endpoints.
#[derive(Debug)]
pub(super) struct Worker {
    config: watch::Sender<Arc<Config>>,
    certificates: Certificates,
    disk: HungDisk,
    /// What became of the last reload of the configuration.
    reload: Mutex<Option<Reload>>,
    node: NodeConfig,
    root: String,
    joined: OnceLock<Joined>,
    has_joined: Notify,
    /// What its jobs know of each other.
    others: Arc<Others>,
    /// The plans of sites that it has evaluated.
    plans: Mutex<BTreeMap<String, EvaluatedPlan>>,
    /// Until when it is cut off, for a drill.
    cut_until: watch::Sender<Option<BootTime>>,
}

#[derive(Debug)]
struct Joined {
    session: Session,
    jobs: Vec<Job>,
    /// Its part in the balancer's election, if any job is balanced.
    balancer: Option<Election>,
}

/// A job and its election.
#[derive(Debug)]
pub(super) struct Job {
    /// This member's part in the election.
    pub(super) election: Election,
    /// Its process on this node.
    pub(super) slot: Arc<JobSlot>,
    /// How many leaders it has by this worker's configuration.
    pub(super) slots: usize,
    /// What this member knows of its leaders.
    pub(super) vacancy: Arc<Vacancy>,
    /// Which gauges were set of it.
    pub(super) gauges: Mutex<SetGauges>,
    removal: Mutex<Removal>,
}

/// The gauges of a job that were set. A gauge can't be removed, so it is set once more when it has no value any more.
#[derive(Debug, Default)]
pub(super) struct SetGauges {
    /// The slots; `None` for a series without this label.
    pub(super) slots: BTreeSet<Option<usize>>,
    /// Whether the result of a fitness check was set.
    pub(super) healthy: bool,
    /// The names of its processes, if it has several.
    pub(super) processes: BTreeSet<String>,
}

/// What becomes of a job that the configuration has no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Removal {
    /// The configuration has it.
    #[default]
    None,
    /// This member leaves its election.
    Leaving,
    /// Nothing of it remains.
    Left,
}

impl Job {
    pub(super) fn new(election: Election, slot: Arc<JobSlot>, slots: usize, vacancy: Arc<Vacancy>) -> Self {
        Self { election, slot, slots, vacancy, gauges: Mutex::default(), removal: Mutex::default() }
    }

    /// Whether it leaves, or has left, because the configuration has it no more.
    pub(super) fn is_removed(&self) -> bool {
        *self.removal.lock() != Removal::None
    }

    /// Whether it leaves, and something of it remains.
    pub(super) fn is_leaving(&self) -> bool {
        *self.removal.lock() == Removal::Leaving
    }

    /// Whether it has left, so that nothing of it remains.
    pub(super) fn has_left(&self) -> bool {
        *self.removal.lock() == Removal::Left
    }

    /// It has left for good.
    pub(super) fn set_left(&self) {
        *self.removal.lock() = Removal::Left;
    }

    /// It is about to leave for good. Returns whether it was not before.
    pub(super) fn remove(&self) -> bool {
        let mut removal = self.removal.lock();
        let is_new = *removal == Removal::None;
        if is_new {
            *removal = Removal::Leaving;
        }
        is_new
    }
}

impl Worker {
    /// A worker that has not joined yet.
    pub(super) fn new(config: Config, certificates: Certificates, disk: HungDisk) -> Self {
        let (node, root) = (config.node.clone(), config.zookeeper.root.clone());
        let others = Arc::new(Others::new(&config));
        Self {
            others,
            config: watch::Sender::new(Arc::new(config)),
            certificates,
            disk,
            reload: Mutex::default(),
            node,
            root,
            joined: OnceLock::new(),
            has_joined: Notify::new(),
            plans: Mutex::default(),
            cut_until: watch::Sender::new(None),
        }
    }

    /// What its jobs know of each other.
    pub(super) fn others(&self) -> &Arc<Others> {
        &self.others
    }

    /// Sets what exists since it has joined.
    pub(super) fn joined(&self, session: Session, jobs: Vec<Job>, balancer: Option<Election>) {
        // It is set only once.
        let _ = self.joined.set(Joined { session, jobs, balancer });
        self.has_joined.notify_waiters();
    }

    /// Waits until it has joined.
    pub(super) async fn until_joined(&self) {
        let notified = self.has_joined.notified();
        if self.joined.get().is_none() {
            notified.await;
        }
    }

    /// Cuts this worker off until then, as if its host had lost its network: from ZooKeeper, and from everyone who uses its
    /// HTTP port. It ends by the clock alone. A longer cut that is under way stays.
    pub(super) fn cut_off(&self, until: BootTime) {
        let is_longer = self.cut_until.send_if_modified(|present| {
            let is_longer = present.is_none_or(|present| present < until);
            if is_longer {
                *present = Some(until);
            }
            is_longer
        });
        if let (true, Some(session)) = (is_longer, self.session()) {
            session.isolate_until(until);
        }
    }

    /// Whether this worker is cut off for a drill.
    pub(super) fn is_cut_off(&self) -> bool {
        self.cut_until.borrow().is_some_and(|until| BootTime::now() < until)
    }

    /// Waits for the beginning of the next cut.
    pub(super) async fn next_cut(&self) {
        if self.cut_until.subscribe().changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Its configuration at present.
    pub(super) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.borrow())
    }

    /// Its configuration, whenever that is replaced.
    pub(super) fn config_changes(&self) -> watch::Receiver<Arc<Config>> {
        self.config.subscribe()
    }

    /// The disk of its state directory.
    pub(super) fn disk(&self) -> &HungDisk {
        &self.disk
    }

    /// Its certificates, and how to verify those of others.
    pub(super) fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// A client for a few questions to other workers.
    pub(super) fn workers(&self) -> Workers {
        Workers::that_keep_nothing(&self.certificates.borrow().client)
    }

    /// Replaces its configuration.
    pub(super) fn set_config(&self, config: Config) {
        self.config.send_replace(Arc::new(config));
    }

    /// What became of the last reload of the configuration.
    pub(super) fn last_reload(&self) -> Option<Reload> {
        self.reload.lock().clone()
    }

    /// Sets what became of a reload of the configuration.
    pub(super) fn reloaded(&self, reload: Reload) {
        *self.reload.lock() = Some(reload);
    }

    /// The plans of sites that it evaluates, as they were found last.
    pub(super) fn plans(&self) -> BTreeMap<String, EvaluatedPlan> {
        self.plans.lock().clone()
    }

    /// Sets what was found of the plan of a site. Returns what was found before.
    pub(super) fn evaluated(&self, name: &str, plan: EvaluatedPlan) -> Option<EvaluatedPlan> {
        self.plans.lock().insert(name.to_owned(), plan)
    }

    /// Forgets the other plans of sites.
    pub(super) fn retain_plans(&self, is_kept: impl Fn(&str) -> bool) {
        self.plans.lock().retain(|name, _| is_kept(name));
    }

    /// Its node, as it was configured at the start: only `id` and `site` are for readers.
    pub(super) fn node(&self) -> &NodeConfig {
        &self.node
    }

    /// The root znode of its elections.
    pub(super) fn root(&self) -> &str {
        &self.root
    }

    /// Its session, once it has connected and joined.
    pub(super) fn session(&self) -> Option<&Session> {
        self.joined.get().map(|joined| &joined.session)
    }

    /// Its part in the balancer's election.
    pub(super) fn balancer(&self) -> Option<&Election> {
        self.joined.get()?.balancer.as_ref()
    }

    /// Its jobs; none until it has joined.
    pub(super) fn jobs(&self) -> &[Job] {
        self.joined.get().map_or(&[], |joined| &joined.jobs)
    }

    /// Its jobs without those that the configuration has no more.
    pub(super) fn lasting_jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs().iter().filter(|job| !job.is_removed())
    }

    /// Whether its session is active.
    pub(super) fn is_active(&self) -> bool {
        self.session().is_some_and(|session| matches!(session.state(), SessionState::Active { .. }))
    }

    /// Whether it takes part in all of its elections now.
    pub(super) fn takes_part(&self) -> bool {
        let has_joined = |job: &Job| job.election.status().now().role != Role::Joining;
        self.is_active() && self.lasting_jobs().all(has_joined)
    }
}
