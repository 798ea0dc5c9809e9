//! What a member publishes of its standby, in its record: whether it is ready, or since when it is not any more.

use std::fmt;

/// The attribute that has it. Configured and measured names may not begin with `dr.`.
pub(crate) const STANDBY_ATTRIBUTE: &str = "dr.standby";

const READY: &str = "ready";
const STARTING: &str = "starting";

/// Precedes the time since when it is not ready, in milliseconds since the Unix epoch.
const NOT_READY: &str = "not-ready ";

/// A standby of a member that does not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StandbyReport {
    /// It has not been ready since its worker was started. It can't be lost.
    Starting,
    Ready,
    Gone {
        since_ms: u64,
    },
}

impl fmt::Display for StandbyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str(STARTING),
            Self::Ready => f.write_str(READY),
            Self::Gone { since_ms } => write!(f, "{NOT_READY}{since_ms}"),
        }
    }
}

impl StandbyReport {
    /// `None` for a text that no worker writes.
    pub(crate) fn read(text: &str) -> Option<Self> {
        match text.strip_prefix(NOT_READY) {
            Some(since) => Some(Self::Gone { since_ms: since.parse().ok()? }),
            None if text == READY => Some(Self::Ready),
            None => (text == STARTING).then_some(Self::Starting),
        }
    }

    /// The report after `before`. `is_ready` is `None` while a leadership has the job's program: the last report remains, so that
    /// a takeover needs no write for it.
    pub(crate) fn next(before: Option<Self>, is_ready: Option<bool>, now_ms: u64) -> Option<Self> {
        match (is_ready, before) {
            (Some(true), _) => Some(Self::Ready),
            (Some(false), Some(Self::Ready)) => Some(Self::Gone { since_ms: now_ms }),
            (Some(false), None) => Some(Self::Starting),
            (Some(false) | None, before) => before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        let gone = StandbyReport::Gone { since_ms: 1_790_000_000_000 };
        for report in [StandbyReport::Starting, StandbyReport::Ready, gone] {
            assert_eq!(StandbyReport::read(&report.to_string()), Some(report));
        }
        assert!(STANDBY_ATTRIBUTE.starts_with(strategies::published::RESERVED));
        for wrong in ["", "Ready", "not-ready", "not-ready x", "not-ready -1"] {
            assert_eq!(StandbyReport::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_one_that_was_ready_is_gone_and_a_leadership_changes_nothing() {
        let ready = Some(StandbyReport::Ready);
        let gone = |since_ms| Some(StandbyReport::Gone { since_ms });
        let starting = Some(StandbyReport::Starting);
        assert_eq!(StandbyReport::next(None, Some(false), 1), starting);
        assert_eq!(StandbyReport::next(starting, Some(false), 1), starting);
        assert_eq!(StandbyReport::next(starting, Some(true), 1), ready);
        assert_eq!(StandbyReport::next(None, None, 1), None);
        assert_eq!(StandbyReport::next(None, Some(true), 1), ready);
        assert_eq!(StandbyReport::next(ready, None, 2), ready);
        assert_eq!(StandbyReport::next(ready, Some(false), 3), gone(3));
        assert_eq!(StandbyReport::next(gone(3), Some(false), 4), gone(3), "since it was ready last");
        assert_eq!(StandbyReport::next(gone(3), Some(true), 5), ready);
    }
}
