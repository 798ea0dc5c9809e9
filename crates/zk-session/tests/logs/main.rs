//! What a session logs, and what it never logs. Its own program, because a process has one subscriber of its log.

#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod kept_lock;
mod negotiated;
mod observable;
mod sasl;
mod secrets;
mod za_logs;
