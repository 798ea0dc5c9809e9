//! The checks, by what they look at.

mod access;
mod jobs;
mod members;
mod node;
mod servers;
mod timing;

use super::finding::Check;

/// All checks, in the order of the report: docs/doctor.md is made of them, too.
pub(super) fn all() -> impl Iterator<Item = &'static Check> {
    [servers::CHECKS, timing::CHECKS, access::CHECKS, members::CHECKS, jobs::CHECKS, node::CHECKS]
        .into_iter()
        .flatten()
}
