//! One host: its worker, the client of its session, and its job.

use std::collections::{BTreeMap, BTreeSet};

use election_core::{
    config::{MemberId, SiteId},
    internals::{Engine, Epoch, OpId, Watched},
};

use super::job::{Job, Phase};
use crate::{Millis, incident};

/// Creation and last change of the znodes that a watch has reported, by name.
pub(super) type Versions = BTreeMap<String, (i64, i64)>;

/// The client's view of a worker's session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Link {
    /// There is no session.
    #[default]
    None,
    Connected,
    Paused,
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) member: MemberId,
    pub(super) site: SiteId,
    pub(super) powered: bool,
    /// The number of cuts: the link's, and the ensemble's.
    pub(super) cuts: u32,
    /// How long its worker stays down after SIGTERM.
    pub(super) back_after: Millis,
    /// The behaviour of its job.
    pub(super) task: incident::Job,
    pub(super) unwell: Option<String>,
    pub(super) measured: BTreeMap<String, String>,
    /// Counts processes: events for a dead process reach none.
    pub(super) life: u64,
    pub(super) engine: Option<Engine>,
    pub(super) wakes_at: Option<Millis>,
    pub(super) link: Link,
    pub(super) epoch: Epoch,
    pub(super) session: i64,
    /// The start of its session, from which heartbeats are counted.
    pub(super) since: Millis,
    /// Operations under way.
    pub(super) ops: BTreeSet<OpId>,
    pub(super) watched: BTreeMap<Watched, Option<Versions>>,
    pub(super) job: Job,
}

impl Host {
    pub(super) fn new(member: MemberId, site: SiteId) -> Self {
        Self {
            member,
            site,
            powered: false,
            cuts: 0,
            back_after: 0,
            task: incident::Job::Works,
            unwell: None,
            measured: BTreeMap::new(),
            life: 0,
            engine: None,
            wakes_at: None,
            link: Link::None,
            epoch: 0,
            session: 0,
            since: 0,
            ops: BTreeSet::new(),
            watched: BTreeMap::new(),
            job: Job::default(),
        }
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cuts > 0
    }

    /// Its process has ended.
    pub(super) fn dies(&mut self) {
        self.life += 1;
        self.engine = None;
        self.wakes_at = None;
        self.link = Link::None;
        self.epoch = 0;
        self.ops.clear();
        self.watched.clear();
        self.job = Job { run: self.job.run + 1, ..Job::default() };
    }

    pub(super) fn serves(&self) -> bool {
        self.job.phase == Phase::Serving
    }

    /// Whether it could lead, whatever the members know.
    pub(super) fn is_fit(&self) -> bool {
        self.engine.is_some()
            && !self.is_cut()
            && self.unwell.is_none()
            && matches!(self.task, incident::Job::Works | incident::Job::Slow(_))
    }
}
