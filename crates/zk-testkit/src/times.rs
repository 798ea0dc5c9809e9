//! Lengths of time.

use std::time::Duration;

/// Later than a test ends, and can be added to any point in time: a century.
pub(crate) const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
