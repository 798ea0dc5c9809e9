//! What a member publishes of its standby, in its record: whether it is ready, or since when it is not.

use std::fmt;

/// The attribute that has it. Configured and measured names may not begin with `dr.`.
pub(crate) const STANDBY_ATTRIBUTE: &str = "dr.standby";

/// Precedes the time since when it is not ready, in milliseconds since the Unix epoch.
const NOT_READY: &str = "not-ready ";

/// A standby that is ready, or was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StandbyReport {
    Ready,
    Gone { since_ms: u64 },
}

impl fmt::Display for StandbyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Gone { since_ms } => write!(f, "{NOT_READY}{since_ms}"),
        }
    }
}

impl StandbyReport {
    /// `None` for a text that no worker writes.
    pub(crate) fn read(text: &str) -> Option<Self> {
        match text.strip_prefix(NOT_READY) {
            Some(since) => Some(Self::Gone { since_ms: since.parse().ok()? }),
            None => (text == "ready").then_some(Self::Ready),
        }
    }

    /// The report after `before`. `is_ready` is `None` while a leadership has the job's program: the last report remains, so that
    /// a takeover needs no write for it.
    ///
    /// A standby that has never been ready is not reported, because it can't be lost.
    pub(crate) fn next(before: Option<Self>, is_ready: Option<bool>, now_ms: u64) -> Option<Self> {
        match (is_ready, before) {
            (Some(true), _) => Some(Self::Ready),
            (Some(false), Some(Self::Ready)) => Some(Self::Gone { since_ms: now_ms }),
            (Some(false) | None, before) => before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        for report in [StandbyReport::Ready, StandbyReport::Gone { since_ms: 1_790_000_000_000 }] {
            assert_eq!(StandbyReport::read(&report.to_string()), Some(report));
        }
        for wrong in ["", "Ready", "not-ready", "not-ready x", "not-ready -1"] {
            assert_eq!(StandbyReport::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_one_that_was_ready_is_gone_and_a_leadership_changes_nothing() {
        let ready = Some(StandbyReport::Ready);
        let gone = |since_ms| Some(StandbyReport::Gone { since_ms });
        assert_eq!(StandbyReport::next(None, Some(false), 1), None);
        assert_eq!(StandbyReport::next(None, None, 1), None);
        assert_eq!(StandbyReport::next(None, Some(true), 1), ready);
        assert_eq!(StandbyReport::next(ready, None, 2), ready);
        assert_eq!(StandbyReport::next(ready, Some(false), 3), gone(3));
        assert_eq!(StandbyReport::next(gone(3), Some(false), 4), gone(3), "since it was ready last");
        assert_eq!(StandbyReport::next(gone(3), Some(true), 5), ready);
    }
}
