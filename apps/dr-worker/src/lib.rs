//! The parts of `dr-worker`, the daemon that runs a program on exactly one node.
#![forbid(unsafe_code)]

pub mod config;
pub mod guard;
pub mod job;
