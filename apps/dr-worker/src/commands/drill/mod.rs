//! Drills: practised failovers. What is checked before one, and the reports that are kept; the same for the command line
//! and for a worker that evaluates plans.

pub(crate) mod checks;
pub(crate) mod gather;
pub(crate) mod report;
pub(crate) mod runs;
