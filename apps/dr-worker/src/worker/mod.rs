//! The daemon, and everything that it runs.
//!
//! ```text
//!   run ──▶ http, probes, balance, systemd ──▶ state ──▶ job ──▶ guard
//!               └──▶ metrics
//! ```
//!
//! Arrows are all the dependencies between them; `run` also uses `metrics`. `run` starts and ends the daemon. `state` is
//! what a running worker knows of itself; it also arms the `watchdog` device. [`job`] runs the programs of a job, each under a
//! [`guard`].

mod balance;
mod descriptors;
pub mod guard;
mod http;
pub mod job;
mod metrics;
mod probes;
pub(crate) mod run;
mod state;
pub(crate) mod systemd;
mod watchdog;
