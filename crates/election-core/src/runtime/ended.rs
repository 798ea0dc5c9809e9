//! Why a member's part in an election has ended.

use std::time::Duration;

use zk_session::{LeaseTiming, NoLease};

#[cfg(doc)]
use crate::engine::Policy;
use crate::ids::MemberId;

/// Why this member's part in an election has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// It left.
    #[error("this member has left the election")]
    Left,
    /// Another living member of the election has the same id: of another process, or of this one.
    #[error(
        "another living member{} takes part as {member} (it holds {path}); give each member an id of its own",
        address.as_ref().map(|address| format!(" at {address}")).unwrap_or_default()
    )]
    DuplicateMember {
        /// The id.
        member: MemberId,
        /// The znode that the other one holds.
        path: String,
        /// The address of the other one, if it has published any.
        address: Option<String>,
    },
    /// The election has members of another recipe: all members must use the same.
    #[error(
        "the election has members of the recipe {recipe}: stop them first, all members must use the same recipe"
    )]
    OtherRecipe {
        /// Theirs.
        recipe: &'static str,
    },
    /// It was handed over, and another engine of this process continues as this member.
    #[error("another engine of this process continues as this member")]
    HandedOver,
    /// The session was closed.
    #[error("the ZooKeeper session was closed")]
    SessionClosed,
    /// No member can lead with these servers' settings.
    #[error("{0}")]
    NoLease(NoLease),
    /// With the first session's granted timeout, the work might not end before its lease does.
    #[error("{0}")]
    StopBudgetTooLong(StopBudgetTooLong),
    /// A call of the application panicked. Leadership is not released, because the state of the work is unknown: the session
    /// stays open after its last handle was dropped. The process should exit.
    #[error("the application panicked in `{call}`")]
    HandlerPanicked {
        /// The call.
        call: &'static str,
    },
    /// The engine's own task panicked, which is a bug. Leadership is not released, as after
    /// [`HandlerPanicked`](Self::HandlerPanicked). The process should exit.
    #[error("the election engine panicked; this is a bug")]
    EnginePanicked,
    /// The runtime on which the election ran has ended.
    #[error("the runtime on which the election ran has ended")]
    RuntimeEnded,
}

/// [`Policy::stop_budget`] is too long for the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the stop budget of {stop_budget:?} does not fit a session timeout of {:?} with a tick time of {:?}: leases have {:?} \
     left at least; shorten Policy::stop_budget below that, or have a longer session timeout granted",
    timing.session_timeout, timing.tick_time, timing.shortest_lease()
)]
pub struct StopBudgetTooLong {
    /// How long the work may take to end.
    pub stop_budget: Duration,
    /// The session's timing.
    pub timing: LeaseTiming,
}

impl StopBudgetTooLong {
    /// Checks that work which takes `stop_budget` to end always ends before its lease does.
    ///
    /// # Errors
    /// When it might not.
    pub fn check(stop_budget: Duration, timing: LeaseTiming) -> Result<(), Self> {
        if stop_budget < timing.shortest_lease() { Ok(()) } else { Err(Self { stop_budget, timing }) }
    }
}
