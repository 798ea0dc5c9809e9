//! Why an operator's command was not carried out.

use std::time::Duration;

use zk_session::{OpError, WatchError};

use election_core::{
    internals::{NoSuchToken, ReadError},
    record::RecordError,
};

/// How many times a step is repeated after it has lost a race.
pub(crate) const TRIES: u32 = 50;

/// Whether a compare-and-set lost a race or has an unknown outcome. Reading the znode again then shows its state.
pub(crate) const fn is_worth_another_look(error: &OpError) -> bool {
    matches!(
        error,
        OpError::BadVersion { .. }
            | OpError::NodeExists { .. }
            | OpError::NoNode { .. }
            | OpError::Unknown { .. }
    )
}

/// Between two attempts. So many races in a row are no races: the server of the session may disagree with the quorum, and a
/// session needs seconds to find that out and to move to another server.
pub(crate) async fn pause(attempt: u32) {
    match attempt.saturating_sub(10) {
        0 => tokio::task::yield_now().await,
        late => tokio::time::sleep(Duration::from_millis(10) * late).await,
    }
}

/// Why a compare-and-set was given up.
pub(crate) fn too_many_races() -> OperatorError {
    OperatorError::Refused(format!(
        "gave up after losing {TRIES} races: other clients change it all the time, or the server of this session shows \
         another state than the quorum has"
    ))
}

/// Why an operator's command was not carried out.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OperatorError {
    /// ZooKeeper did not answer as expected.
    #[error(transparent)]
    Session(#[from] OpError),
    /// The election could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A record can't be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// No resource can have seen such a token.
    #[error(transparent)]
    Token(#[from] NoSuchToken),
    /// It can't be done. The text has the reason.
    #[error("{0}")]
    Refused(String),
    /// It can't be done now. The text has the reason and what ends that state.
    #[error("{0}")]
    NotNow(String),
    /// The session was closed.
    #[error("the ZooKeeper session was closed")]
    Closed,
}

impl From<zk_session::Closed> for OperatorError {
    fn from(_: zk_session::Closed) -> Self {
        Self::Closed
    }
}

impl From<WatchError> for OperatorError {
    fn from(error: WatchError) -> Self {
        match error {
            WatchError::Refused(error) => Self::Session(error),
            _ => Self::Closed,
        }
    }
}
