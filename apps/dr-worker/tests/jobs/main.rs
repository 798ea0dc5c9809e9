//! The commands beside a job, without an election.

mod hooks;
mod measure;
mod support;
