//! What an elector makes of an election and why, and what would become of it under other circumstances; by the elector's
//! own code, from what anybody can read.

pub use crate::engine::{
    Bound, Explanation, NextStep, Obstacle, Played, Proposal, Prospect, Seen, Simulation, SlotExplanation,
    barred_sites, explain, failed_sites, held_until, simulate, unwell_sites,
};
