//! The wall clock, and times as numbers and text.

use std::{
    fmt::Write as _,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The current time in milliseconds since the Unix epoch; 0 if the clock is before it.
pub(crate) fn unix_ms() -> u64 {
    ms(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A duration in milliseconds: a number in the log, which has no type for `u128`.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A time as text, in seconds.
pub(crate) fn moment(unix_ms: u64) -> String {
    written(unix_ms, humantime::format_rfc3339_seconds)
}

/// A time as text, in milliseconds.
pub(crate) fn exact_moment(unix_ms: u64) -> String {
    written(unix_ms, humantime::format_rfc3339_millis)
}

fn written(unix_ms: u64, format: impl Fn(SystemTime) -> humantime::Rfc3339Timestamp) -> String {
    let mut text = String::new();
    let at = UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms));
    // A record may contain any number; a time after the year 9999 has no such text.
    match at.map(|at| write!(text, "{}", format(at))) {
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
        assert_eq!(exact_moment(1_700_000_000_007), "2023-11-14T22:13:20.007Z");
        assert_eq!(moment(u64::MAX), "18446744073709551615 ms");
    }
}
