//! The codec and the state machine of a client, without a server.

#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

mod client;
mod codec;
mod purity;
