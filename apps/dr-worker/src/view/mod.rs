//! What is shown of an election: the same for `list`, `history` and the HTTP endpoints.

mod cluster;
mod history;

pub use cluster::{Cluster, Leader, Member, MemberRole, OpenRequest, SlotRow, Standing, Unreadable};
pub use history::{History, HistoryRow};
