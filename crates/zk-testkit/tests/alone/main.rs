//! Tests that measure their process: its descriptors, tasks, memory and panics.

#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

#[path = "../wire/mod.rs"]
mod wire;

mod bad_input;
