//! A member that leads on request: campaign, lead, resign.

use std::{
    fmt,
    ops::AsyncFnMut,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use futures_util::future::BoxFuture;
use tokio::sync::{oneshot, watch};
use zk_session::{OpError, Session, sleep_until};

use super::{
    config::ElectionConfig,
    election::{Election, WeakElection},
    ended::Ended,
    handler::{Failure, Handler, Leadership, Loan, StopOrder},
    status::ElectionStatus,
};
use crate::engine::Role;

/// A member that leads on request.
///
/// Between campaigns it is not a candidate, as after [`Election::withdraw`]. When it is dropped, it leaves the election
/// after its leadership has been dropped as well.
#[derive(Debug)]
pub struct Candidate {
    session: Session,
    /// Until the first campaign.
    config: Option<Box<ElectionConfig>>,
    election: Option<Election>,
    desk: Arc<Desk>,
}

impl Candidate {
    /// A candidate on a session, which other elections and other members of this one can share. Nothing is written before it campaigns.
    pub fn new(session: &Session, config: ElectionConfig) -> Self {
        Self {
            session: session.clone(),
            config: Some(Box::new(config)),
            election: None,
            desk: Arc::default(),
        }
    }

    /// Waits until this member leads. The returned leadership is READY, and resigns when it is dropped. The release happens
    /// in the background and needs the running runtime: await [`Leadership::resign`] or [`Election::leave`] before the program
    /// ends.
    ///
    /// It waits for as long as another member leads, and while there is no session. Must be called in a tokio runtime, on
    /// which the election runs.
    ///
    /// # Errors
    /// [`CampaignError::Held`] at once while the last leadership exists. [`CampaignError::Refused`] when ZooKeeper refuses
    /// what the election reads or writes; another campaign tries again. [`CampaignError::Ended`] when this member's part in
    /// the election has ended, which is final.
    ///
    /// # Cancel safety
    /// Cancel safe: without a campaign this member is not a candidate. If it has just been named, it resigns.
    pub async fn campaign(&mut self) -> Result<Leadership, CampaignError> {
        if *self.desk.is_out.borrow() {
            return Err(CampaignError::Held);
        }
        let (sender, receiver) = oneshot::channel();
        *self.desk.waiting() = Some(sender);
        let election = self.enter();
        let mut waiting = Campaign { election: Some(election.clone()), desk: &self.desk };
        let leadership = tokio::select! {
            biased;
            Ok(leadership) = receiver => leadership.map_err(CampaignError::Refused)?,
            ended = election.ended() => {
                waiting.election = None;
                return Err(CampaignError::Ended(ended));
            }
        };
        waiting.election = None;
        Ok(leadership)
    }

    /// Campaigns, and runs `work` while this member leads. If leadership is lost, `work` is dropped at its next
    /// `await`, and the campaign begins again. `work` thus starts again with each leadership. Returns when `work` has
    /// finished; this member is then not a candidate. The release happens in the background and needs the running runtime:
    /// await [`Election::leave`] before the program ends.
    ///
    /// Tasks that `work` has spawned continue after it was dropped, and so does code that never awaits. If the work
    /// needs more than being dropped to end, use a [`Handler`].
    ///
    /// In a task of its own, write `async move`: the compiler does not accept a closure there that borrows what it uses
    /// ("implementation of `Send` is not general enough").
    ///
    /// ```no_run
    /// use election_core::{Candidate, ElectionConfig, Leadership, session::Session};
    ///
    /// # async fn write(_: &str, _: u64) -> Result<(), std::io::Error> { Ok(()) }
    /// # fn run(session: &Session, target: String) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut candidate = Candidate::new(session, ElectionConfig::queue("/app/report", "host-1")?);
    /// tokio::spawn(async move {
    ///     let work = async move |leadership: &Leadership| write(&target, leadership.fencing_token()).await;
    ///     candidate.run_while_leading(work).await
    /// });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RunError::Failed`] when `work` has failed, which counts as a failure of this member; [`RunError::Campaign`] as
    /// [`campaign`](Self::campaign).
    ///
    /// # Cancel safety
    /// Cancel safe if `work` is: `work` is dropped, then this member resigns.
    pub async fn run_while_leading<T, E: fmt::Display>(
        &mut self,
        mut work: impl AsyncFnMut(&Leadership) -> Result<T, E>,
    ) -> Result<T, RunError<E>> {
        loop {
            let mut leadership = self.campaign().await.map_err(RunError::Campaign)?;
            let done = tokio::select! {
                biased;
                _ = leadership.lost() => continue,
                done = work(&leadership) => done,
            };
            return done.map_err(|error| {
                if let Some(hold) = &mut leadership.hold {
                    hold.fail(Failure::new(error.to_string()));
                }
                RunError::Failed(error)
            });
        }
    }

    /// The handle on this member's part in the election; `None` before the first campaign.
    pub fn election(&self) -> Option<&Election> {
        self.election.as_ref()
    }

    fn enter(&mut self) -> Election {
        if let Some(election) = &self.election {
            election.rejoin();
            return election.clone();
        }
        let config = self.config.take().expect("it is there until the election is");
        let election = Election::join(self.session.clone(), *config, AtDesk(Arc::clone(&self.desk)));
        // Set once: there is one first campaign.
        let _ = self.desk.election.set(election.downgrade());
        self.election.insert(election).clone()
    }
}

/// Why [`Candidate::run_while_leading`] ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E> {
    /// The work has failed.
    #[error("the work of the leader failed: {0}")]
    Failed(E),
    /// There was no leadership to work under.
    #[error(transparent)]
    Campaign(CampaignError),
}

/// Why a campaign ended without a leadership.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CampaignError {
    /// This program still holds its last leadership, which may be lost already.
    #[error("this program still holds its last leadership: drop it before the next campaign")]
    Held,
    /// ZooKeeper refuses what the election reads or writes.
    #[error("ZooKeeper refuses the election: {0}")]
    Refused(OpError),
    /// This member's part in the election has ended.
    #[error(transparent)]
    Ended(Ended),
}

/// Where a campaign waits for a leadership, and where the leadership is returned.
#[derive(Debug, Default)]
struct Desk {
    waiting: Mutex<Option<oneshot::Sender<Result<Leadership, OpError>>>>,
    /// Whether a leadership is in use.
    is_out: watch::Sender<bool>,
    election: OnceLock<WeakElection>,
}

impl Desk {
    fn waiting(&self) -> MutexGuard<'_, Option<oneshot::Sender<Result<Leadership, OpError>>>> {
        // No code under this lock can panic.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn election(&self) -> Option<Election> {
        self.election.get().and_then(WeakElection::upgrade)
    }
}

/// Makes a [`Leadership`] end when it is dropped.
#[derive(Debug)]
struct LeadershipGuard {
    desk: Arc<Desk>,
    /// A dropped candidate still has its leadership.
    election: Option<Election>,
    back: Option<oneshot::Sender<Result<(), Failure>>>,
    outcome: Result<(), Failure>,
}

impl Drop for LeadershipGuard {
    fn drop(&mut self) {
        if let Some(back) = self.back.take() {
            let _ = back.send(std::mem::replace(&mut self.outcome, Ok(())));
        }
        self.desk.is_out.send_replace(false);
    }
}

impl Loan for LeadershipGuard {
    fn fail(&mut self, why: Failure) {
        self.outcome = Err(why);
    }

    fn released(&self) -> BoxFuture<'static, ()> {
        let election = self.election.clone();
        Box::pin(async move {
            let Some(election) = election else { return };
            let mut status = election.status();
            let released = |status: &ElectionStatus| {
                !matches!(status.role, Role::TakingOver | Role::Leader | Role::SteppingDown)
            };
            tokio::select! {
                biased;
                _ = status.wait_for(released) => {}
                _ = election.ended() => {}
            }
        })
    }
}

/// A campaign that has not ended yet.
struct Campaign<'a> {
    election: Option<Election>,
    desk: &'a Desk,
}

impl Drop for Campaign<'_> {
    fn drop(&mut self) {
        if let Some(election) = self.election.take() {
            self.desk.waiting().take();
            election.withdraw("it does not campaign any more");
        }
    }
}

/// Leads by returning a leadership from the campaign, and has stopped when that leadership is returned.
struct AtDesk(Arc<Desk>);

impl Handler for AtDesk {
    fn refused(&self, error: &OpError) {
        if let Some(waiting) = self.0.waiting().take() {
            drop(waiting.send(Err(error.clone())));
        }
    }

    async fn takeover(&self, _: &Leadership) -> Result<(), Failure> {
        Ok(())
    }

    async fn lead(&self, leadership: &Leadership) -> Result<(), Failure> {
        let desk = &self.0;
        let Some(waiting) = desk.waiting().take() else { return Ok(()) };
        let (back, handed_back) = oneshot::channel();
        desk.is_out.send_replace(true);
        let hold = LeadershipGuard {
            desk: Arc::clone(desk),
            election: desk.election(),
            back: Some(back),
            outcome: Ok(()),
        };
        let terms = Arc::clone(&leadership.terms);
        // If the campaign was dropped meanwhile, the leadership is dropped too.
        drop(waiting.send(Ok(Leadership { terms, hold: Some(Box::new(hold)) })));
        handed_back.await.unwrap_or(Ok(()))
    }

    async fn stop(&self, order: &StopOrder) {
        let desk = &self.0;
        let mut is_out = desk.is_out.subscribe();
        let handed_back = is_out.wait_for(|is_out| !is_out);
        tokio::pin!(handed_back);
        let too_late = tokio::select! {
            biased;
            _ = &mut handed_back => false,
            () = sleep_until(order.by()) => true,
        };
        if too_late {
            tracing::warn!(
                term = order.term(),
                "the lease has ended and the program still holds its leadership: it is not released before it is dropped"
            );
            let _ = handed_back.await;
        }
        let waiting = desk.waiting();
        if waiting.is_none()
            && let Some(election) = desk.election()
        {
            election.withdraw("it does not campaign");
        }
    }
}
