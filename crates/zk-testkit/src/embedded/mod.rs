//! A ZooKeeper in this process, for tests and for trying things out.
//!
//! From the outside in: `server` and `builder` are what users see, `shell` is the
//! part with sockets and timers, `cluster` is what the servers do, without either,
//! `tree` is the znodes of one of them, `wire` the bytes.

mod builder;
mod cluster;
mod code;
mod server;
mod shell;
mod tree;
mod wire;

pub use builder::TestServerBuilder;
pub use server::{SessionInfo, TestServer};
