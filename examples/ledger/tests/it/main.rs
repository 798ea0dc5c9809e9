//! Both stores, the program, and its README.

#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

mod cli;
mod postgres;
mod readme;
#[allow(unreachable_pub, reason = "a module of a test program")]
mod server;
mod sqlite;
mod suite;
