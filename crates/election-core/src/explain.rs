//! What an elector decides about an election and why, and what it would decide under other circumstances. It runs the
//! elector's own code on records that every client can read.

pub use crate::engine::{
    Bound, Explanation, NextStep, Obstacle, Played, Proposal, Prospect, Seen, Simulation, SlotExplanation,
    barred_sites, explain, failed_sites, held_until, simulate, unwell_sites,
};
