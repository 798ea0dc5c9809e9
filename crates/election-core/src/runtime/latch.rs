//! A member that leads whenever it can, and reports whether it leads.

use tokio::sync::watch;
use zk_session::{OpError, Session};

use super::{
    at,
    candidate::CampaignError,
    changes::Changes,
    config::ElectionConfig,
    election::Election,
    ended::Ended,
    handler::{Failure, Handler, Leadership, StopOrder},
    status::ElectionStatus,
};

/// A member that leads whenever it can. Ask it before each piece of work that only the leader may do.
///
/// It does not wait for that work to end: another member may lead by then. For work that takes longer than
/// [`Policy::stop_budget`](crate::engine::Policy::stop_budget) use a [`Candidate`](super::Candidate) or a [`Handler`]. In any
/// case pass the [fencing token](Self::fencing_token) to what the work writes to.
#[derive(Clone, Debug)]
pub struct Latch {
    election: Election,
    refused: watch::Receiver<Option<OpError>>,
}

impl Latch {
    /// Joins an election on a session, which other elections and other members of this one can share. Must be called in a tokio runtime, on which the
    /// election runs.
    pub fn join(session: &Session, config: ElectionConfig) -> Self {
        let (refusing, refused) = watch::channel(None);
        Self { election: Election::join(session.clone(), config, Idle { refusing }), refused }
    }

    /// Whether this member is the leader now, and its lease is valid.
    pub fn is_leader(&self) -> bool {
        self.fencing_token().is_some()
    }

    /// The fencing token while this member [is the leader](Self::is_leader).
    pub fn fencing_token(&self) -> Option<u64> {
        self.election.token_while_leading()
    }

    /// Waits until this member is the leader, and returns its fencing token. It waits for as long as another member leads,
    /// and while there is no session.
    ///
    /// # Errors
    /// [`CampaignError::Refused`] when ZooKeeper refuses what the election reads or writes, which the election tries again.
    /// [`CampaignError::Ended`] when this member's part in the election has ended.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn leading(&self) -> Result<u64, CampaignError> {
        let mut refused = self.refused.clone();
        refused.mark_unchanged();
        let mut refused = Changes::new(refused);
        let mut status = self.status();
        let leads = status.wait_for(|status| status.leads_now() && status.fencing_token.is_some());
        tokio::select! {
            biased;
            ended = self.election.ended() => Err(CampaignError::Ended(ended)),
            Some(Some(error)) = refused.changed() => Err(CampaignError::Refused(error)),
            status = leads => match status.and_then(|status| status.fencing_token) {
                Some(token) => Ok(token),
                None => Err(CampaignError::Ended(self.election.ended().await)),
            },
        }
    }

    /// Waits until this member is not the leader, or its lease has ended. Returns at once if it is not the leader.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn lost(&self) {
        let mut status = self.status();
        while self.is_leader() {
            let lease = status.now().work_until;
            tokio::select! {
                changed = status.changed() => if changed.is_none() { return },
                () = at(lease) => {}
            }
        }
    }

    /// What this member is doing, and its changes.
    pub fn status(&self) -> Changes<ElectionStatus> {
        self.election.status()
    }

    /// The handle on this member's part in the election.
    pub fn election(&self) -> &Election {
        &self.election
    }

    /// Leaves the election, and waits until leadership is released.
    ///
    /// # Cancel safety
    /// Cancel safe: once begun, leaving continues.
    pub async fn close(&self) -> Ended {
        self.election.leave().await
    }
}

/// Has no work of its own.
struct Idle {
    refusing: watch::Sender<Option<OpError>>,
}

impl Handler for Idle {
    fn refused(&self, error: &OpError) {
        self.refusing.send_replace(Some(error.clone()));
    }

    async fn takeover(&self, _: &Leadership) -> Result<(), Failure> {
        Ok(())
    }

    async fn lead(&self, _: &Leadership) -> Result<(), Failure> {
        std::future::pending().await
    }

    async fn stop(&self, _: &StopOrder) {}
}
