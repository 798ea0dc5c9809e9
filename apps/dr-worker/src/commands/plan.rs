//! The time of a planned switchover: as it is given, and as it was understood.

use std::time::{Duration, UNIX_EPOCH};

use election_core::{
    internals::{
        calendar::utc,
        record::{AdminRequest, RequestState},
    },
    strategy::in_words,
};

use crate::{error::Error, wall::ms};

const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

/// A time that is further away is a typing error.
const LONGEST_MS: u64 = 366 * DAY_MS;

/// How much later than its time a planned switchover may begin.
const USUAL_GRACE: Duration = Duration::from_secs(5 * 60);

/// A shorter time would be over before an elector that is changing could act.
const SHORTEST_GRACE: Duration = Duration::from_secs(1);

/// The request, planned as `--at` and `--within` ask.
///
/// # Errors
/// If the time can't be read, is over or is too far away, or the grace is too short.
pub(crate) fn plan(
    request: AdminRequest,
    at: &str,
    within: Option<Duration>,
    now_ms: u64,
) -> Result<AdminRequest, Error> {
    let within = within.unwrap_or(USUAL_GRACE);
    if within < SHORTEST_GRACE {
        return Err(Error::Usage(format!(
            "within: {} is too short for an elector; give 1s or more",
            in_words(within)
        )));
    }
    let at_ms = read(at.trim(), now_ms).ok_or_else(|| {
        Error::Usage(format!(
            "at: {at:?} is not a time; valid are RFC 3339 with a zone (2026-11-26T02:30:00Z, 2026-11-26T03:30:00+01:00), \
             HH:MM for the next such time in UTC (02:30), and a delay (+30m)"
        ))
    })?;
    let now = utc(now_ms);
    match at_ms {
        at_ms if at_ms <= now_ms => {
            Err(Error::Usage(format!("at: {} (UTC) is in the past: it is now {now}", utc(at_ms))))
        }
        at_ms if at_ms - now_ms > LONGEST_MS => {
            Err(Error::Usage(format!("at: {} (UTC) is more than a year away: it is now {now}", utc(at_ms))))
        }
        at_ms => Ok(request.planned_for(at_ms, within)),
    }
}

/// A time in milliseconds since the Unix epoch.
fn read(text: &str, now_ms: u64) -> Option<u64> {
    if let Some(delay) = text.strip_prefix('+') {
        return now_ms.checked_add(ms(humantime::parse_duration(delay.trim()).ok()?));
    }
    if let Some(minute) = minute(text) {
        let today = now_ms / DAY_MS * DAY_MS + minute * MINUTE_MS;
        return Some(if today > now_ms { today } else { today + DAY_MS });
    }
    let text = text.to_ascii_uppercase();
    if text.ends_with('Z') {
        return in_utc(&text);
    }
    let (local, zone) = text.split_at_checked(text.len().checked_sub("+01:00".len())?)?;
    let local = in_utc(&format!("{local}Z"))?;
    match zone.split_at_checked(1)? {
        ("+", ahead) => local.checked_sub(minute(ahead)? * MINUTE_MS),
        ("-", behind) => local.checked_add(minute(behind)? * MINUTE_MS),
        _ => None,
    }
}

fn in_utc(text: &str) -> Option<u64> {
    let at = humantime::parse_rfc3339(text).ok()?;
    at.duration_since(UNIX_EPOCH).ok().map(ms)
}

/// `02:30` in minutes.
fn minute(text: &str) -> Option<u64> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str, end: u64| {
        let is_number = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u64>().ok().filter(|number| is_number && *number < end)
    };
    Some(number(hour, 24)? * 60 + number(minute, 60)?)
}

/// How the time of a planned request was understood, as text.
pub(crate) fn understood(request: &AdminRequest, now_ms: u64) -> Option<String> {
    let RequestState::Planned { at_ms } = request.state else { return None };
    let away = in_words(Duration::from_millis(at_ms.saturating_sub(now_ms)));
    Some(format!("{} (UTC), in {away}", utc(at_ms)))
}

#[cfg(test)]
mod tests {
    use election_core::internals::record::{RequestKind, Target};

    use super::*;

    /// 2026-11-26T01:10:30.500Z
    const NOW: u64 = 1_795_655_430_500;

    fn planned(at: &str, within: Option<Duration>) -> Result<AdminRequest, Error> {
        let request =
            AdminRequest::new("1".to_owned(), RequestKind::Switchover, Target::Any, "ann".to_owned(), NOW);
        plan(request, at, within, NOW)
    }

    #[test]
    fn a_time_is_read_in_each_form() {
        assert_eq!(utc(NOW), "2026-11-26T01:10:30Z");
        for (text, expected) in [
            ("+30m", "2026-11-26T01:40:30Z"),
            ("+ 1h 30s", "2026-11-26T02:11:00Z"),
            ("02:30", "2026-11-26T02:30:00Z"),
            ("01:11", "2026-11-26T01:11:00Z"),
            ("01:10", "2026-11-27T01:10:00Z"),
            ("00:00", "2026-11-27T00:00:00Z"),
            ("2026-11-26T02:30:00Z", "2026-11-26T02:30:00Z"),
            ("2026-11-26t02:30:00z", "2026-11-26T02:30:00Z"),
            ("2026-11-26T02:30:00.250Z", "2026-11-26T02:30:00Z"),
            ("2026-11-26T02:30:00+01:00", "2026-11-26T01:30:00Z"),
            ("2026-11-26T02:30:00-05:30", "2026-11-26T08:00:00Z"),
            ("2026-12-01T00:30:00+14:00", "2026-11-30T10:30:00Z"),
        ] {
            let request = planned(text, None).unwrap_or_else(|e| panic!("{text}: {e}"));
            let RequestState::Planned { at_ms } = request.state else { panic!("{request:?}") };
            assert_eq!(utc(at_ms), expected, "{text}");
            assert_eq!(request.valid_for(), USUAL_GRACE);
        }
        let request = planned("+90m", Some(Duration::from_secs(30))).unwrap();
        assert_eq!(understood(&request, NOW).unwrap(), "2026-11-26T02:40:30Z (UTC), in 1h 30m");
        assert_eq!(request.valid_for(), Duration::from_secs(30));
    }

    #[test]
    fn what_is_no_time_or_no_longer_one_is_refused() {
        for (text, why) in [
            ("", "is not a time"),
            ("tomorrow", "is not a time"),
            ("2:30", "is not a time"),
            ("24:00", "is not a time"),
            ("02:60", "is not a time"),
            ("02:30Z", "is not a time"),
            ("+", "is not a time"),
            ("+x", "is not a time"),
            ("2026-11-26T02:30:00", "is not a time"),
            ("2026-11-26T02:30:00+1:00", "is not a time"),
            ("2026-11-26T02:30:00+99:00", "is not a time"),
            ("2026-13-26T02:30:00Z", "is not a time"),
            ("é+01:00", "is not a time"),
            ("+99999999999999999999y", "is not a time"),
            ("2026-11-26T01:10:30Z", "is in the past: it is now 2026-11-26T01:10:30Z"),
            ("2026-11-26T02:00:00+01:00", "2026-11-26T01:00:00Z (UTC) is in the past"),
            ("+0s", "is in the past"),
            ("2028-01-01T00:00:00Z", "more than a year away"),
        ] {
            let error = planned(text, None).unwrap_err();
            assert!(matches!(&error, Error::Usage(_)) && error.to_string().contains(why), "{text}: {error}");
        }
        let error = planned("+1m", Some(Duration::from_millis(10))).unwrap_err().to_string();
        assert!(error.contains("within: 10ms is too short"), "{error}");
    }
}
