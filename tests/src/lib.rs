//! The shared code of the end-to-end tests: real `dr-worker` processes of two sites, with a real ensemble, and the
//! means to break and inspect them.
//!
//! A test looks like this:
//!
//! ```no_run
//! # async fn example() {
//! use e2e::{Cluster, Driver, SOON};
//!
//! let mut cluster = Cluster::start(Driver::Native).await;
//! let first = cluster.leader_is("any", SOON, |_| true).await;
//! cluster.worker(&first.member).kill();
//! let second = cluster.leader_is("the next one", SOON, |leader| leader.token > first.token).await;
//! assert_ne!(second.member, first.member);
//! cluster.end().await;
//! # }
//! ```
//!
//! The basis of every test:
//!
//! * **Conditions, not sleeps.** [`wait_for`] reports the condition and the last state.
//! * **No process is left.** Every process has a mark in its environment. [`Cluster::end`] ends the workers by SIGTERM
//!   and fails the test if a process with the mark is left. Dropping the cluster, as a panic does, kills all of them by
//!   pid.
//! * **Acts are recorded by the job.** The job `e2e-job` stamps the boot clock into one journal every few milliseconds.
//!   [`Journal::assert_one_at_a_time`] proves from it that no two leaderships acted at once, whatever the workers
//!   report.
#![forbid(unsafe_code)]

mod cluster;
mod delays;
mod desk;
mod document;
mod driver;
mod frontend;
mod http;
mod journal;
mod ledger;
mod operator;
mod package;
mod places;
mod process;
mod programs;
mod servers;
mod setup;
mod shape;
mod shared_ensemble;
mod stamp;
mod terminal;
mod wait;
mod wall;
mod worker;
mod znodes;

pub use cluster::{Cluster, Leader};
pub use delays::{Delays, FarServers};
pub use desk::Desk;
pub use document::{Step, steps};
pub use driver::Driver;
pub use frontend::Frontend;
pub use journal::{Acting, Journal, Overlap};
pub use ledger::Ledger;
pub use operator::{Operator, Said};
pub use package::{can_run, debian_package, rpm_package, succeeds};
pub use process::{Tree, children, freeze_pid, is_there, kill_pid, name_of, state_of, thaw_pid, when_gone};
pub use programs::program;
pub use setup::{JOB, Setup};
pub use shape::{Loss, Outcome, Part, Server, Shape};
pub use shared_ensemble::{TICK, ensemble, own_ensemble};
pub use stamp::{Event, PACE, Stamp};
pub use terminal::Terminal;
pub use wait::{SOON, Wait, wait_for};
pub use wall::wall_ahead;
pub use worker::Worker;
pub use znodes::Znodes;
