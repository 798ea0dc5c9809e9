#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admin;
mod builder;
mod classpath;
mod curator;
mod embedded;
mod ensemble;
mod ensemble_faults;
mod error;
mod links;
mod listener;
mod network;
mod ports;
mod process;
mod program;
mod proxy;
mod reaper;
mod server;
mod servers;
mod skip;
mod times;

pub use admin::Mode;
pub use builder::EnsembleBuilder;
pub use classpath::Installation;
pub use curator::curator_jars;
pub use embedded::{Refusal, Release, SessionInfo, TestServer, TestServerBuilder, TestServerFaults};
pub use ensemble::Ensemble;
pub use ensemble_faults::EnsembleFaults;
pub use error::Error;
pub use network::{Host, Network};
pub use ports::PortReservation;
pub use process::freeze;
pub use program::{copy_program, write_program};
pub use proxy::{Loss, Lost, Op, PassedFrame, Proxy, Sender, Which};
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use rustls;
pub use server::Server;
pub use servers::{ServerKind, Servers};
pub use skip::skip;
