use std::time::Duration;

use election_core::{Election, MemberId, Paths};
use strategies::spec::Needs;
use zk_session::Session;

use crate::config::ProbesConfig;

/// What is measured for one job, and where it is published.
pub(in crate::worker) struct Prober {
    pub(in crate::worker) job: String,
    pub(in crate::worker) me: MemberId,
    pub(in crate::worker) session: Session,
    pub(in crate::worker) paths: Paths,
    pub(in crate::worker) election: Election,
    pub(in crate::worker) probes: ProbesConfig,
    /// Whether the election is told who does not answer, and how soon it wants to know.
    pub(in crate::worker) suspect_after: Option<Duration>,
    /// Which round trips the policy goes by.
    pub(in crate::worker) needs: Needs,
}

impl Prober {
    /// Whether it asks other members, so that they must be able to ask this one.
    pub(in crate::worker) fn needs_peers(&self) -> bool {
        self.suspect_after.is_some() || self.needs.peers
    }
}
