//! The behaviour of a policy under faults: workers of two sites in virtual time, with the real engine.
//!
//! ```text
//!   [policy] ── read as a worker reads it ──▶ World ◀── incidents: a week's script, or a year's, drawn from a seed
//!                                               │
//!                                               └──▶ Account: who led when, minutes without a leader, moves
//! ```
//!
//! [`election_core::internals::Engine`], one for each worker, decides who leads, with the ensemble in memory of the
//! engine's own tests. The world adds the engine's surroundings: sessions that expire, jobs that need time and fail,
//! hosts that go down and up.
//!
//! A year takes less than a second, because the world jumps from one due event to the next one. Quorum heartbeats would
//! be due all the time. Therefore a connected member holds a lease without an end, and gets the lease that its
//! heartbeats have proved at the moment when it is cut off, see [`world`].
//!
//! - [`script`]: the scripts of `docs/weeks.md`, run and compared by `tests/it/weeks.rs`;
//! - [`year`]: the table of the defaults beside their alternatives, printed by `cargo run --release -p policy-world`.
#![forbid(unsafe_code)]

pub mod account;
pub mod incident;
pub mod policy;
pub mod script;
pub mod world;
pub mod year;
#[allow(dead_code, reason = "the tests of the engine need more of it")]
#[path = "../../../crates/election-core/tests/it/zookeeper.rs"]
mod zookeeper;

/// Milliseconds since the beginning of a world.
pub type Millis = u64;

/// A second.
pub const SECOND: Millis = 1000;
/// A minute.
pub const MINUTE: Millis = 60 * SECOND;
/// An hour.
pub const HOUR: Millis = 60 * MINUTE;
/// A day.
pub const DAY: Millis = 24 * HOUR;
