//! What operators ask of the standby of a job on this member: to restart, to stop or to start it. A request is begun by a
//! compare-and-set, so it is carried out once. If this process ends meanwhile, the leader answers it, or the next process of this
//! member. That the standby is stopped is a standing order, written in the same transaction.

use std::{sync::Arc, time::Duration};

use election_admin::{JobNews, JobRequests, StandingBy};
use election_core::{
    Election,
    internals::record::{AdminRequest, Control, FiledRequest, RequestKind, RequestState},
    strategy::in_words,
};
use zk_session::{BootTime, sleep_until};

use super::{after::Source, orders::failed};
use crate::{
    wall::unix_ms,
    worker::{job::Standby, state::JobSlot},
};

/// The delay before a request is begun or answered again after an error.
const RETRY: Duration = Duration::from_secs(1);

/// Carries out the requests about the standby of this member, until the session is closed.
pub(super) async fn follow(source: Source, slot: Arc<JobSlot>, election: Election) {
    let Some(standby) = slot.standby().cloned() else { return };
    let requests = JobRequests::follow(&source.session, source.paths.clone());
    let mut following = Following { source, slot, election, standby, requests };
    while let Ok(news) = following.requests.next().await {
        let open = match news {
            JobNews::Requests(open) => open,
            JobNews::Orders(control) => {
                following.obey(&control);
                continue;
            }
            JobNews::Unreadable(error) => {
                let job = following.slot.name();
                tracing::warn!(
                    job,
                    "the orders of operators can't be read, so the standby goes on as it is: {error}"
                );
                continue;
            }
        };
        for filed in open {
            let is_own = filed.request.standby_of() == Some(&following.source.me);
            let goes_on = match filed.request.state {
                RequestState::Pending if is_own => following.carry_out(filed).await,
                // An earlier process of this member has begun it. After an upgrade in place no leader answers it.
                RequestState::Accepted { term } if is_own && !following.requests.has_tried(&filed.which) => {
                    let outcome = following.continued(&filed.request, term).await;
                    following.answer(&filed, outcome).await
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
                Ok(Some(control)) => {
                    self.obey(&control);
                    break;
                }
                // It was withdrawn or has expired.
                Ok(None) => return true,
                Err(error) => tracing::warn!(job, request = which.name, "can't begin a request yet: {error}"),
            }
            if !self.pause().await {
                return false;
            }
        }
        let AdminRequest { kind, by, reason, .. } = &filed.request;
        tracing::info!(job, request = which.name, by, reason, "carrying out a {}", kind.as_str());
        let outcome = self.outcome(*kind, term).await;
        self.answer(&filed, outcome).await
    }

    fn obey(&self, control: &Control) {
        let order = control.stopped_standby(&self.source.me);
        self.standby.obey(order.map(|order| order.stopped.clone()));
    }

    /// The outcome of a request that an earlier process has begun. Its order is carried out by this one.
    async fn continued(&self, request: &AdminRequest, term: u64) -> RequestState {
        if request.kind != RequestKind::RestartStandby {
            return self.outcome(request.kind, term).await;
        }
        failed("it was interrupted: the worker was restarted or upgraded meanwhile".to_owned())
    }

    /// Returns whether the session goes on.
    async fn answer(&mut self, filed: &FiledRequest, outcome: RequestState) -> bool {
        let (job, which) = (self.slot.name(), &filed.which);
        loop {
            let Err(error) = self.requests.answer(which, &outcome).await else { return true };
            tracing::warn!(job, request = which.name, "can't record the outcome of a request yet: {error}");
            if !self.pause().await {
                return false;
            }
        }
    }

    async fn outcome(&self, kind: RequestKind, term: u64) -> RequestState {
        let within = self.slot.takeover_timeout();
        let is_so = async {
            match kind {
                RequestKind::StopStandby => {
                    self.standby.ended().await;
                    Ok(())
                }
                RequestKind::StartStandby => self.standby.ready().await,
                _ => self.standby.restart().await,
            }
        };
        match tokio::time::timeout(within, is_so).await {
            Ok(Ok(())) => RequestState::Done { term, leader: self.source.me.clone(), at_ms: unix_ms() },
            Ok(Err(why)) => failed(why.to_owned()),
            Err(_) => {
                let (what, goes_on) = match kind {
                    RequestKind::StopStandby => ("stopped", "stopping"),
                    _ => ("ready", "starting"),
                };
                let within = in_words(within);
                failed(format!(
                    "the standby was not {what} within takeover_timeout ({within}); it goes on {goes_on}"
                ))
            }
        }
    }

    async fn pause(&self) -> bool {
        sleep_until(BootTime::now() + RETRY).await;
        self.source.session.active().await.is_ok()
    }
}
