//! What a policy does when things go wrong: workers of two sites in virtual time, with the real engine.
//!
//! ```text
//!   [policy] ── read as a worker reads it ──▶ World ◀── incidents: a week's script, or a year's, drawn from a seed
//!                                               │
//!                                               └──▶ Account: who led when, minutes without a leader, moves
//! ```
//!
//! Nothing here decides who leads: that is done by [`election_core::internals::Engine`], one for each worker, over the
//! ensemble in memory that the engine's own tests run on. The world adds what the engine asks for: sessions that
//! expire, jobs that take their time and fail, hosts that go and come back.
//!
//! A year takes less than a second, because the world jumps from one thing that is due to the next one. Quorum
//! heartbeats are the one thing that would be due all the time. Therefore a member that is connected holds a lease
//! without an end, and gets the one that its heartbeats have proved in the moment in which it is cut off, see [`world`].
//!
//! - [`script`]: the scripts of `docs/weeks.md`, run and compared by `tests/weeks.rs`;
//! - [`year`]: the table of the defaults beside their alternatives, printed by `cargo run --release -p policy-world`.
#![forbid(unsafe_code)]

pub mod account;
pub mod incident;
pub mod policy;
pub mod script;
pub mod world;
pub mod year;
#[allow(dead_code, reason = "the tests of the engine need more of it")]
#[path = "../../../crates/election-core/tests/support/zookeeper.rs"]
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
