//! The engine of election-core, copied and mutated by `build.rs`: a test can drop one rule of `mutations.rs`.

// The original is what is linted, and what its unit tests are for.
#![allow(warnings)]
#![cfg(not(test))]

use std::sync::atomic::{AtomicUsize, Ordering};

include!(concat!(env!("OUT_DIR"), "/lib.rs"));

/// The number of the rule that is dropped.
static DROPPED: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Drops the rule of this number in `mutations.rs`, or none, in the whole process. Before an engine runs.
pub fn drop_rule(rule: Option<usize>) {
    DROPPED.store(rule.unwrap_or(usize::MAX), Ordering::Relaxed);
}

fn is_dropped(rule: usize) -> bool {
    DROPPED.load(Ordering::Relaxed) == rule
}
