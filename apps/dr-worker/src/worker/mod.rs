//! The daemon, and everything that it runs.
//!
//! ```text
//!   run ──▶ upgrade, http, probes, balance, drill, trace ─▶ notify, plans, evacuation, systemd ──▶ state ──▶ job
//!               └──▶ metrics
//! ```
//!
//! Arrows are all the dependencies between them; `run` also uses `metrics`, and `run`, `http`, `probes` and `state`
//! use `certificates`. `run` starts and ends the daemon. `state` is what a running worker knows of itself; it also arms the
//! `watchdog` device. `emergency` is what `run` keeps and asks for the job without ZooKeeper. [`job`] is what belongs to
//! a job beside the program that [`job_guard`] runs.

mod balance;
mod certificates;
pub(crate) mod closing;
mod descriptors;
mod drill;
pub(crate) mod emergency;
mod evacuation;
mod http;
pub mod job;
mod metrics;
pub(crate) mod notify;
mod plans;
mod probes;
pub(crate) mod run;
mod state;
pub(crate) mod systemd;
mod trace;
mod unsent;
pub(crate) mod upgrade;
mod watchdog;

pub(crate) use self::{descriptors::needed, http::exposed};
