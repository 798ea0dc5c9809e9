#![doc = include_str!("../README.md")]
//!
//! A deployment, or a test that breaks one, writes a [history]: one line for each thing that was asked, answered, done or
//! broken. The [checker] reads a history and names the lines that break a promise.
//! A [schedule] is what a test breaks, and when.
//!
//! What the checker knows of the crates whose promises it checks is in their documents: the promises, the HTTP endpoints, the
//! znodes.
#![forbid(unsafe_code)]

pub mod checker;
pub mod history;
pub mod schedule;
