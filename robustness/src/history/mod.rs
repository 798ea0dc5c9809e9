//! What happened, as lines of JSON in the order of time.

mod files;
mod line;
mod operations;
mod read;
mod recorder;
mod txn_log;
mod witness;

pub use files::{BadFile, Files};
pub use line::{Answer, Call, Event, Excuse, Leadership, Line, RequestState, STALE, Setup};
pub use operations::{Operation, Outcome};
pub use read::{BadLine, History};
pub use recorder::Recorder;
pub use txn_log::{BadLog, Change, Txn, read_log};
pub use witness::Witness;
