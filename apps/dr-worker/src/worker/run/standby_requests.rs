//! What operators ask of the standby of a job on this member: to restart it. A request is begun by a compare-and-set, so it is
//! carried out once. If this process ends meanwhile, the leader answers it, or the next process of this member.

use std::{sync::Arc, time::Duration};

use election_admin::{JobNews, JobRequests, StandingBy};
use election_core::{
    Election,
    internals::record::{FiledRequest, RequestState},
    strategy::in_words,
};
use zk_session::{BootTime, sleep_until};

use super::orders::Source;
use crate::{
    wall::unix_ms,
    worker::{job::Standby, state::JobSlot},
};

/// The delay before a request is begun or answered again after an error.
const RETRY: Duration = Duration::from_secs(1);

/// Carries out the requests about the standby of this member, until the session is closed.
pub(super) async fn follow(source: Source, slot: Arc<JobSlot>, election: Election) {
    let Some(standby) = slot.standby().cloned() else { return };
    let requests = JobRequests::follow_requests(&source.session, source.paths.clone());
    let mut following = Following { source, slot, election, standby, requests };
    while let Ok(news) = following.requests.next().await {
        let JobNews::Requests(open) = news else { continue };
        for filed in open {
            let is_own = filed.request.standby_of() == Some(&following.source.me);
            let goes_on = match filed.request.state {
                RequestState::Pending if is_own => following.carry_out(filed).await,
                // An earlier process of this member has begun it. After an upgrade in place no leader answers it.
                RequestState::Accepted { .. } if is_own && !following.requests.has_tried(&filed.which) => {
                    let reason =
                        "it was interrupted: the worker was restarted or upgraded meanwhile".to_owned();
                    following.answer(&filed, RequestState::Failed { reason, at_ms: unix_ms() }).await
                }
                _ => true,
            };
            if !goes_on {
                return;
            }
        }
    }
}

struct Following {
    source: Source,
    slot: Arc<JobSlot>,
    election: Election,
    standby: Arc<Standby>,
    requests: JobRequests,
}

impl Following {
    /// Returns whether the session goes on.
    async fn carry_out(&mut self, filed: FiledRequest) -> bool {
        let (job, which) = (self.slot.name().to_owned(), &filed.which);
        let term = self.election.status().now().elected.as_ref().map_or(0, |elected| elected.term);
        loop {
            let standby = StandingBy { member: &self.source.me, term };
            match self.requests.begin_here(&filed, standby).await {
                Ok(true) => break,
                // It was withdrawn or has expired.
                Ok(false) => return true,
                Err(error) => tracing::warn!(job, request = which.name, "can't begin a request yet: {error}"),
            }
            if !self.pause().await {
                return false;
            }
        }
        let (by, reason) = (&filed.request.by, &filed.request.reason);
        tracing::info!(job, request = which.name, by, reason, "restarting the standby");
        let outcome = self.restart(term).await;
        self.answer(&filed, outcome).await
    }

    /// Returns whether the session goes on.
    async fn answer(&mut self, filed: &FiledRequest, outcome: RequestState) -> bool {
        let (job, which) = (self.slot.name(), &filed.which);
        loop {
            match self.requests.answer(which, &outcome).await {
                Ok(()) => return true,
                Err(error) => {
                    tracing::warn!(
                        job,
                        request = which.name,
                        "can't record the outcome of a request yet: {error}"
                    );
                }
            }
            if !self.pause().await {
                return false;
            }
        }
    }

    async fn restart(&self, term: u64) -> RequestState {
        let within = self.slot.takeover_timeout();
        let failed = |reason: String| RequestState::Failed { reason, at_ms: unix_ms() };
        match tokio::time::timeout(within, self.standby.restart()).await {
            Ok(Ok(())) => RequestState::Done { term, leader: self.source.me.clone(), at_ms: unix_ms() },
            Ok(Err(why)) => failed(why.to_owned()),
            Err(_) => failed(format!(
                "the standby was not ready within takeover_timeout ({}); it goes on starting",
                in_words(within)
            )),
        }
    }

    async fn pause(&self) -> bool {
        sleep_until(BootTime::now() + RETRY).await;
        self.source.session.active().await.is_ok()
    }
}
