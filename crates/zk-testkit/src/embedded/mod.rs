//! The embedded server: a ZooKeeper server inside this process, for tests and experiments.
//!
//! From the outside in: `server`, `faults`, `settings` and `builder` are what users see, `shell` is the
//! part with sockets and timers, `cluster` is what the servers do, without either,
//! `tree` is the znodes of one of them. The bytes are zk-proto's.

mod builder;
mod cluster;
mod faults;
mod server;
mod settings;
mod shell;
mod tree;

pub use cluster::{Refusal, SessionInfo};
pub use faults::TestServerFaults;
pub use server::TestServer;
pub use settings::{Release, TestServerBuilder};
