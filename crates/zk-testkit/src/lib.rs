//! ZooKeeper for tests: real ensembles on loopback that end with the test that
//! started them, however it ends, and a proxy that breaks connections on purpose.
#![forbid(unsafe_code)]

mod admin;
mod builder;
mod classpath;
mod ensemble;
mod error;
mod ports;
mod server;
mod warden;

pub use admin::Mode;
pub use builder::Builder;
pub use classpath::Installation;
pub use ensemble::Ensemble;
pub use error::Error;
pub use ports::PortReservation;
pub use server::Server;
