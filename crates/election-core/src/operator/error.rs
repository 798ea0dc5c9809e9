//! Why what an operator asks for is not done.

use zk_session::OpError;

use crate::{engine::NoSuchToken, record::RecordError, runtime::ReadError};

/// How many times a step is tried again after losing a race.
pub(in crate::operator) const TRIES: u32 = 50;

/// Whether a compare-and-set lost a race, or has an unknown outcome: what stands there now tells.
pub(in crate::operator) const fn is_worth_another_look(error: &OpError) -> bool {
    matches!(
        error,
        OpError::BadVersion { .. }
            | OpError::NodeExists { .. }
            | OpError::NoNode { .. }
            | OpError::Unknown { .. }
    )
}

/// Why a compare-and-set was given up.
pub(in crate::operator) fn too_many_races() -> OperatorError {
    OperatorError::Refused(format!("gave up after losing {TRIES} races; try again"))
}

/// Why an operator's wish was not carried out.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OperatorError {
    /// ZooKeeper did not answer as it should.
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
    /// It can't be done; why, in words.
    #[error("{0}")]
    Refused(String),
    /// It can't be done now; why, and what ends that, in words.
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
