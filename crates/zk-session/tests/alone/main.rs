//! Tests that measure their process. Their own program, in which one test runs at a time.

#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod memory;
mod rebuilds;
mod storms;
mod za_resources;

/// Held by the test that runs.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
