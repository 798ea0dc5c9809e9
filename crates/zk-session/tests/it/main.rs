//! Sessions over real servers: Apache ZooKeeper, the embedded server, and servers of a script.

#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod administration;
mod architecture;
mod cancel_safety;
mod chroot;
mod crowds;
mod dead_links;
mod disagreement;
mod durable_watches;
mod exactly_once;
mod example_fenced_lock;
mod frozen;
mod garbage;
mod hosts;
mod keeper;
mod lagging;
mod lasting;
mod lease;
mod leftovers;
mod locks;
mod metrics;
mod moving;
mod namespaces;
mod no_connection;
mod operations;
mod partition;
mod refused_credentials;
mod resume;
mod security;
mod servers;
mod session;
mod silent_hosts;
mod slow_servers;
mod suspected;
mod timeouts;
mod tls;
mod trees_and_groups;
mod verdicts;
mod waits;
mod watches;
