//! Servers of Apache ZooKeeper and the embedded ones, and the proxy.

#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

#[path = "../support/mod.rs"]
mod support;
#[path = "../wire/mod.rs"]
mod wire;

mod differential;
mod ensemble;
mod faults;
mod isolation;
mod kazoo;
mod namespaces;
mod proxy;
mod restart;
mod settings;
#[cfg(feature = "tls")]
mod tls;
mod transcript;
mod virtual_time;
mod znodes;
