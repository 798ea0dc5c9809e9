//! The world of the policies, and what its documents say.

#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

mod weeks;
mod year;
