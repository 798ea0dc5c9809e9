//! The parts of `dr-worker`, the daemon that runs a program on exactly one node.
#![forbid(unsafe_code)]

pub mod ask;
pub mod cli;
pub mod config;
pub mod connect;
mod descriptors;
pub mod error;
pub mod guard;
pub mod http;
pub mod job;
pub mod logging;
mod mask;
pub mod run;
pub mod view;
mod wall;
