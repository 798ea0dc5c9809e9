//! Why something was not done to an election.

use std::time::Duration;

use election_core::{
    config::MemberId,
    internals::{
        Layout, NoSlot, NoSuchToken, NotNow, ReadError, Unforced, in_words,
        record::{RecordError, RequestKind, RequestState},
    },
};
use zk_session::{OpError, WatchError};

/// How many times a step is repeated after it has lost a race.
pub(crate) const TRIES: u32 = 50;

/// Why something was not done to an election.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// ZooKeeper did not answer as expected.
    #[error(transparent)]
    Session(#[from] OpError),
    /// The election could not be read: there is none.
    #[error(transparent)]
    Read(ReadError),
    /// A record can't be used, or can't be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// No resource can have seen such a token.
    #[error(transparent)]
    Token(#[from] NoSuchToken),
    /// It can't be done.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It can't be done now.
    #[error(transparent)]
    NotNow(#[from] Hindrance),
    /// Other clients change it all the time, or the server of this session shows another state than the quorum has.
    #[error(
        "gave up after losing {TRIES} races: other clients keep changing it, or the server of this session shows \
         a state other than the quorum's"
    )]
    TooManyRaces,
    /// The session was closed.
    #[error("the ZooKeeper session was closed")]
    Closed,
}

/// Why it can't be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Another member leads, or no member.
    #[error("this member does not lead any more")]
    NotLeading,
    /// A request to the elector does it.
    #[error("this election has an elector: file a request instead")]
    HasElector,
    /// The election has another recipe.
    #[error("{path} is held by the recipe {:?}, which has no elector to carry out standing orders", .recipe.as_str())]
    NoElector {
        /// Of the election.
        path: String,
        /// Its recipe.
        recipe: Layout,
    },
    /// No leader znode exists.
    #[error("no member leads")]
    NoLeader,
    /// The ballot with which it was to be done.
    #[error("the ballot is gone")]
    BallotGone,
    /// A znode of others below the election.
    #[error("{0} is not part of an election")]
    ForeignZnode(String),
    /// No request has this path.
    #[error("there is no request {0}")]
    NoRequest(String),
    /// The request with this path was deleted, or replaced by another one.
    #[error("request {0} does not exist")]
    RequestGone(String),
    /// The request is about no slot.
    #[error(transparent)]
    NoSlot(#[from] NoSlot),
    /// The failover can't be forced.
    #[error(transparent)]
    Unforced(#[from] Unforced),
}

/// Why it can't be done now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Hindrance {
    /// A forced failover was not begun within the validity of its request.
    #[error("it was not begun within {}", in_words(*.0))]
    NotBegun(Duration),
    /// The mode, or another request, forbids the request.
    #[error("{why}")]
    Rules {
        /// The name of the election.
        election: String,
        /// Why.
        why: NotNow,
    },
    /// Another request is open.
    #[error(transparent)]
    OpenRequest(#[from] OpenRequest),
    /// A request has not ended.
    #[error("request {0} is open; cancel it first")]
    Request(String),
    /// This session does not hold the member's record yet.
    #[error("{0} has not joined the election yet")]
    NotJoined(MemberId),
    /// A member takes part in the election.
    #[error("{0} is a member: stop its worker first")]
    Member(MemberId),
    /// Operators have given orders that hold.
    #[error("standing orders are in force; end them first")]
    StandingOrders,
    /// A former leader was not fenced.
    #[error("{member} may still run the job; make sure that it is off, and confirm that first")]
    NotFenced {
        /// The name of the election.
        election: String,
        /// The leader.
        member: MemberId,
    },
    /// The move of an election is not as this command has left it.
    #[error(
        "its move was changed meanwhile: another command has carried it on, or has called it off; run this one again"
    )]
    MoveChanged,
    /// The election is open at the place that it moves to.
    #[error("it has moved already")]
    Moved,
    /// A record can't be used, so what it would hinder is not known.
    #[error(transparent)]
    Unreadable(#[from] RecordError),
    /// An ephemeral znode.
    #[error("a session holds {0}")]
    Held(String),
}

/// A request that another one must wait for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {name}, a {}, is still open ({}); {}", .kind.as_str(), .kind.progress(.state), way_out(.state))]
pub struct OpenRequest {
    /// The name of the election.
    pub election: String,
    /// The name of the request.
    pub name: String,
    /// Its kind.
    pub kind: RequestKind,
    /// Its state.
    pub state: RequestState,
}

const fn way_out(state: &RequestState) -> &'static str {
    if state.is_unbegun() { "wait for it to end, or cancel it" } else { "wait for it to end" }
}

impl From<ReadError> for AdminError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Session(error) => Self::Session(error),
            ReadError::Record(error) => Self::Record(error),
            none => Self::Read(none),
        }
    }
}

impl From<zk_session::Closed> for AdminError {
    fn from(_: zk_session::Closed) -> Self {
        Self::Closed
    }
}

impl From<WatchError> for AdminError {
    fn from(error: WatchError) -> Self {
        match error {
            WatchError::Refused(error) => Self::Session(error),
            _ => Self::Closed,
        }
    }
}
