//! The wall clock.

use std::{
    fmt::Write as _,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The current time in milliseconds since the Unix epoch; 0 if the clock is before it.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A time as text.
pub(crate) fn moment(unix_ms: u64) -> String {
    let mut text = String::new();
    let at = UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms));
    // A record may contain any number; a time after the year 9999 has no such text.
    match at.map(|at| write!(text, "{}", humantime::format_rfc3339_seconds(at))) {
        Some(Ok(())) => text,
        _ => format!("{unix_ms} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_readable() {
        assert_eq!(moment(1_700_000_000_000), "2023-11-14T22:13:20Z");
        assert_eq!(moment(u64::MAX), "18446744073709551615 ms");
    }
}
