//! Elections over servers: the runtime, the recipes beside those of other projects, and the examples.

#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

mod examples;
mod others;
mod runtime;
