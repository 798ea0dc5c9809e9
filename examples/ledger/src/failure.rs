//! Why the program ended without doing what was asked, and the exit code for it.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::orders::OrdersError;
use crate::store::StoreError;

/// Exit code for a command line that can't be understood (EX_USAGE).
pub(crate) const USAGE: u8 = 64;

/// Shown at the end of `--help`. The numbers are those of sysexits.h.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0   done, or stopped by SIGTERM or SIGINT
  1   check: the ledger does not agree with the orders
  64  bad usage
  65  the orders file can't be read as orders
  69  the store can't be used now: not reachable, not there, locked for too long
  70  internal error
  75  wait: not so many booked in time
  77  deposed: the store has seen a newer token and refused this one
  78  the store holds something else, or another layout of the ledger";

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Leadership has moved on. Nothing may be written any more, and a retry
    /// with this token can't succeed.
    #[error("deposed: the store has seen token {seen}, mine is {mine}; {what} was refused")]
    Deposed { seen: i64, mine: i64, what: String },
    /// Another leader uses the same token: two leaders got one token, which no election does.
    #[error(
        "refused: token {token} is claimed by member {holder:?}, and I am {member:?}; \
         a token belongs to one leadership, so look where this one came from"
    )]
    TokenOfAnother { token: i64, holder: String, member: String },
    #[error(transparent)]
    Orders(#[from] OrdersError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the ledger does not agree with the orders: {problems} kind(s) of fault, listed above")]
    CheckFailed { problems: usize },
    #[error("{booked} orders are booked after {}, {wanted} were waited for", humantime::format_duration(*.waited))]
    NotInTime { booked: u64, wanted: u64, waited: Duration },
    #[error("{}: can't be written: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("internal error: {0}")]
    Internal(String),
}

impl Failure {
    /// The exit code for a supervisor.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::CheckFailed { .. } => 1,
            Self::Orders(_) => 65,
            Self::Store(StoreError::Unsupported { .. }) => USAGE,
            Self::Store(StoreError::Layout { .. }) => 78,
            Self::Store(_) => 69,
            Self::Write { .. } | Self::Internal(_) => 70,
            Self::NotInTime { .. } => 75,
            Self::Deposed { .. } | Self::TokenOfAnother { .. } => 77,
        })
    }
}
