use std::{sync::Arc, time::Duration};

use election_core::{Election, Paths, config::MemberId};
use strategies::spec::Needs;
use zk_session::Session;

use super::answers::PeerAnswers;
use crate::{config::ProbesConfig, worker::certificates::Certificates};

/// What to measure for one job, and where to publish it.
#[derive(Clone)]
pub(in crate::worker) struct Prober {
    pub(in crate::worker) job: String,
    pub(in crate::worker) me: MemberId,
    pub(in crate::worker) session: Session,
    pub(in crate::worker) paths: Paths,
    pub(in crate::worker) election: Election,
    pub(in crate::worker) probes: ProbesConfig,
    /// How soon the election needs to know members that do not answer; `None` if it does not need to.
    pub(in crate::worker) suspect_after: Option<Duration>,
    /// Which round trips the policy uses.
    pub(in crate::worker) needs: Needs,
    /// How to verify the other members.
    pub(in crate::worker) certificates: Certificates,
    /// Where the last answer of each member is kept.
    pub(in crate::worker) answers: Arc<PeerAnswers>,
}

impl Prober {
    /// Whether it probes other members, so that they must be able to probe this one.
    pub(in crate::worker) fn needs_peers(&self) -> bool {
        self.suspect_after.is_some() || self.needs.peers
    }
}
