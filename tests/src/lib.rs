//! What the end-to-end tests share: real `dr-worker` processes of two sites, over a real ensemble, and
//! the means to break them and to look at them.
//!
//! A test reads like this:
//!
//! ```no_run
//! # async fn example() {
//! use e2e::{Cluster, Driver, SOON};
//!
//! let mut cluster = Cluster::start(Driver::Native).await;
//! let first = cluster.leader_is("anybody", SOON, |_| true).await;
//! cluster.worker(&first.member).kill();
//! let second = cluster.leader_is("the next one", SOON, |leader| leader.token > first.token).await;
//! assert_ne!(second.member, first.member);
//! cluster.end().await;
//! # }
//! ```
//!
//! What every test leans on:
//!
//! * **Conditions, not naps.** [`wait_for`] says what was awaited and what was there instead.
//! * **Nothing is left behind.** Every process carries a mark in its environment; [`Cluster::end`] ends
//!   the workers politely and fails the test if any process with the mark is left. Dropping the cluster,
//!   as a panic does, kills all of them by pid.
//! * **Acting is observed where it happens.** The job `e2e-job` stamps the boot clock into one journal
//!   every few milliseconds; [`Journal::assert_one_at_a_time`] proves from it that no two leaderships acted
//!   at once, whatever anybody says of himself.
#![forbid(unsafe_code)]

mod cluster;
mod delays;
mod desk;
mod driver;
mod http;
mod journal;
mod ledger;
mod operator;
mod places;
mod process;
mod programs;
mod setup;
mod shared_ensemble;
mod stamp;
mod wait;
mod wall;
mod worker;
mod znodes;

pub use cluster::{Cluster, Leader};
pub use delays::Delays;
pub use desk::Desk;
pub use driver::Driver;
pub use journal::{Acting, Journal, Overlap};
pub use ledger::Ledger;
pub use operator::{Operator, Said};
pub use process::{Tree, children, freeze_pid, is_there, kill_pid, name_of, thaw_pid};
pub use programs::program;
pub use setup::{JOB, Setup};
pub use shared_ensemble::{TICK, ensemble, own_ensemble};
pub use stamp::{Event, Stamp};
pub use wait::{SOON, Wait, wait_for};
pub use wall::wall_ahead;
pub use worker::Worker;
pub use znodes::Znodes;
