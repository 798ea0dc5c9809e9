//! The job without ZooKeeper, by an operator's order: what a node keeps for it, and what it may do.
//!
//! While ZooKeeper works, each worker keeps the [`Newest`] token of each job in its state directory. Without a quorum an
//! operator can run the job on one node with a token above it ([`decision`]). The [`Record`] of that keeps the worker of
//! this node out of the job's election until the ensemble gives out higher tokens.

pub(crate) mod decision;
mod newest;
mod record;

pub(crate) use newest::{Newest, NewestFile, keep};
pub(crate) use record::{Record, Records};
