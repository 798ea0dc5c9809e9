//! The records that only operators, and members for them, write and read. No decision uses them.

#[cfg(test)]
mod bounds_tests;
mod breadcrumbs;
mod roster;

pub use breadcrumbs::{Breadcrumb, Breadcrumbs};
pub use roster::{Absence, Absent, Listed, Roster};
