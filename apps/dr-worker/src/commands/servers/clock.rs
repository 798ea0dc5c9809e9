//! Clocks of other machines, by the header `Date` of their answers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Clock;

/// The header has whole seconds.
const HALF: Duration = Duration::from_millis(500);

/// Compares a clock: `date` is the header of an answer to a request that was sent at `sent`, and answered at `answered`.
pub(crate) fn compare(date: &str, sent: SystemTime, answered: SystemTime) -> Option<Clock> {
    let millis = |time: SystemTime| i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok();
    let (sent, answered) = (millis(sent)?, millis(answered)?);
    let there = millis(read(date)? + HALF)?;
    let half = i64::try_from(HALF.as_millis()).ok()?;
    Some(Clock { ahead_ms: there - sent.midpoint(answered), within_ms: half + (answered - sent).abs() / 2 })
}

/// A time such as `Thu, 26 Nov 2026 03:58:13 GMT`.
fn read(date: &str) -> Option<SystemTime> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let mut words = date.split_ascii_whitespace().skip(1);
    let (day, month, year, time) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let month = MONTHS.find(month).filter(|_| month.len() == 3)? / 3 + 1;
    humantime::parse_rfc3339(&format!("{year}-{month:02}-{day}T{time}Z")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_has_the_uncertainty_of_the_header_and_of_the_request() {
        let at = |seconds: f64| UNIX_EPOCH + Duration::from_secs_f64(seconds);
        // 1795665493
        let date = "Thu, 26 Nov 2026 03:58:13 GMT";
        let clock = |sent, answered| compare(date, at(sent), at(answered)).unwrap();
        let now = clock(1_795_665_493.25, 1_795_665_493.75);
        assert_eq!((now.ahead_ms, now.within_ms, now.apart()), (0, 750, Duration::ZERO));
        let ahead = clock(1_795_665_483.5, 1_795_665_483.5);
        assert_eq!((ahead.ahead_ms, ahead.apart()), (10_000, Duration::from_millis(9_500)));
        assert!(clock(1_795_665_495.0, 1_795_665_495.0).ahead_ms < 0);
        for wrong in ["", "now", "Thu, 26 Nub 2026 03:58:13 GMT"] {
            assert!(compare(wrong, at(0.0), at(0.0)).is_none(), "{wrong}");
        }
    }
}
