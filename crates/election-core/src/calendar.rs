//! Wall-clock time in UTC: as text, and as hours of the week.

/// A wall-clock time in milliseconds since the Unix epoch, as text in UTC to the
/// second: `2026-11-05T14:30:00Z`.
///
/// It is a time and not 'for another 4 minutes', so that the sentence is still right when it is read later.
pub fn utc(unix_ms: u64) -> String {
    const DAY: u64 = 24 * 60 * 60;
    let seconds = unix_ms / 1000;
    let (mut days, rest) = (seconds / DAY, seconds % DAY);
    // The Gregorian calendar repeats every 400 years, which have 146,097 days. Whole
    // periods first, so that a garbled record with a time in the far future costs nothing.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    let leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (day, hour, minute, second) = (days + 1, rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Hours of the week, in UTC: when something may happen.
///
/// As text: `Sat,Sun 02:00-04:00`, `Mon-Fri 23:30-01:00`, or `02:00-04:00` for every day. The end is exclusive. `24:00`
/// is midnight. An end that is not after the beginning is on the next day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows(Vec<Window>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Window {
    /// When it opens, in minutes since Monday 00:00.
    opens: Vec<u32>,
    /// For how many minutes.
    length: u32,
    text: String,
}

/// Why a text is not a window, with the accepted format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} {why}; valid are days and hours in UTC, such as \"Sat,Sun 02:00-04:00\", \"Mon-Fri 23:30-01:00\" or \"02:00-04:00\""
)]
pub struct NoWindow {
    text: String,
    why: &'static str,
}

const DAY: u32 = 24 * 60;
const WEEK: u32 = 7 * DAY;
const MINUTE_MS: u64 = 60_000;
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

impl Windows {
    /// Reads each window. No window means at any time.
    ///
    /// # Errors
    /// The first text that is not a window.
    pub fn read<T: AsRef<str>>(texts: &[T]) -> Result<Self, NoWindow> {
        texts.iter().map(|text| Window::read(text.as_ref())).collect::<Result<_, _>>().map(Self)
    }

    /// The earliest time from `unix_ms` on at which a window is open, both in milliseconds
    /// since the Unix epoch.
    pub fn open_from(&self, unix_ms: u64) -> u64 {
        let minutes = unix_ms / MINUTE_MS;
        let now = week_minute(unix_ms);
        let wait = |window: &Window, opens: u32| {
            let since = (now + WEEK - opens) % WEEK;
            if since < window.length { 0 } else { WEEK - since }
        };
        let waits = self.0.iter().flat_map(|w| w.opens.iter().map(move |opens| wait(w, *opens)));
        match waits.min() {
            None | Some(0) => unix_ms,
            Some(wait) => minutes.saturating_add(u64::from(wait)).saturating_mul(MINUTE_MS),
        }
    }

    /// Whether a window is open at `unix_ms`, in milliseconds since the Unix epoch.
    pub fn is_open(&self, unix_ms: u64) -> bool {
        self.open_from(unix_ms) == unix_ms
    }

    /// The next time after `unix_ms` at which that changes. `None` if a window is open all week.
    pub fn changes_after(&self, unix_ms: u64) -> Option<u64> {
        if self.0.is_empty() {
            return None;
        }
        let opens = self.open_from(unix_ms);
        if opens > unix_ms {
            return Some(opens);
        }
        let minute = unix_ms / MINUTE_MS * MINUTE_MS;
        let last = minute.saturating_add(u64::from(WEEK) * MINUTE_MS);
        let mut end = minute;
        while end < last {
            let open = self.0.iter().filter_map(|window| window.closes_in(week_minute(end))).max();
            let Some(longest) = open else { return Some(end) };
            end = end.saturating_add(u64::from(longest) * MINUTE_MS);
        }
        None
    }

    /// The windows as they were written.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|window| window.text.as_str())
    }
}

/// The minutes between Monday 00:00 and this time.
fn week_minute(unix_ms: u64) -> u32 {
    // The epoch began on a Thursday.
    u32::try_from((unix_ms / MINUTE_MS + 3 * u64::from(DAY)) % u64::from(WEEK)).unwrap_or(0)
}

impl Window {
    /// In how many minutes the window closes, if it is open at this minute of the week.
    fn closes_in(&self, now: u32) -> Option<u32> {
        let since = self.opens.iter().map(|opens| (now + WEEK - opens) % WEEK);
        since.filter_map(|since| self.length.checked_sub(since)).filter(|left| *left > 0).max()
    }

    fn read(text: &str) -> Result<Self, NoWindow> {
        let error = |why| NoWindow { text: text.to_owned(), why };
        let (days, hours) = match text.trim().rsplit_once(char::is_whitespace) {
            Some((days, hours)) => (days.trim(), hours),
            None => ("Mon-Sun", text.trim()),
        };
        let (from, to) = hours.split_once('-').ok_or(error("has no hours"))?;
        let from = minute(from).filter(|from| *from < DAY).ok_or(error("has an hour that there is not"))?;
        let to = minute(to).ok_or(error("has an hour that there is not"))?;
        if from == to {
            return Err(error("is empty, or a whole day, which is 00:00-24:00"));
        }
        let length = if to > from { to - from } else { to + DAY - from };
        let mut opens = Vec::new();
        for part in days.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first = weekday(first).ok_or(error("has a day that there is not"))?;
            let last = weekday(last).ok_or(error("has a day that there is not"))?;
            let count = (last + 7 - first) % 7 + 1;
            opens.extend((0..count).map(|day| (first + day) % 7 * DAY + from));
        }
        opens.sort_unstable();
        opens.dedup();
        Ok(Self { opens, length, text: text.trim().to_owned() })
    }
}

/// `02:30` as minutes; up to `24:00`.
fn minute(text: &str) -> Option<u32> {
    let (hour, minute) = text.trim().split_once(':')?;
    let number = |text: &str| {
        (text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
    };
    let (hour, minute): (u32, u32) = (number(hour)?, number(minute)?);
    let all = hour * 60 + minute;
    (minute < 60 && all <= DAY).then_some(all)
}

/// `Sat`, in any case, as days since Monday.
fn weekday(text: &str) -> Option<u32> {
    let day = text.trim().to_ascii_lowercase();
    DAYS.iter().position(|known| *known == day).and_then(|at| u32::try_from(at).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts come from `date -u -d @SECONDS`.
    #[test]
    fn times_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_999, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (951_868_800_000, "2000-03-01T00:00:00Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59Z"),
            (1_793_889_000_000, "2026-11-05T14:30:00Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
            (253_402_300_799_000, "9999-12-31T23:59:59Z"),
        ];
        for (unix_ms, text) in cases {
            assert_eq!(utc(unix_ms), text, "{unix_ms}");
        }
        assert!(utc(u64::MAX).ends_with('Z'), "no overflow, no endless loop");
    }

    /// 2026-11-05T14:30:00Z, a Thursday.
    const THURSDAY: u64 = 1_793_889_000_000;
    const HOUR: u64 = 60 * MINUTE_MS;

    fn open(texts: &[&str], unix_ms: u64) -> String {
        utc(Windows::read(texts).unwrap().open_from(unix_ms))
    }

    #[test]
    fn a_window_that_is_open_is_open_now_and_another_one_when_it_opens() {
        let cases: [(&[&str], &str); 10] = [
            (&[], "2026-11-05T14:30:00Z"),
            (&["Thu 14:30-14:31"], "2026-11-05T14:30:00Z"),
            (&["thu 14:00-14:30"], "2026-11-12T14:00:00Z"),
            (&["Sat,Sun 02:00-04:00"], "2026-11-07T02:00:00Z"),
            (&["Mon-Fri 01:30-02:30"], "2026-11-06T01:30:00Z"),
            (&["Sat,Sun 02:00-04:00", "Mon-Fri 01:30-02:30"], "2026-11-06T01:30:00Z"),
            (&["Fri-Mon 00:00-24:00"], "2026-11-06T00:00:00Z"),
            (&["15:00-14:00"], "2026-11-05T15:00:00Z"),
            (&["23:00-14:45"], "2026-11-05T14:30:00Z"),
            (&["Wed 15:00-14:31"], "2026-11-05T14:30:00Z"),
        ];
        for (texts, expected) in cases {
            assert_eq!(open(texts, THURSDAY), expected, "{texts:?}");
        }
    }

    /// From Sunday into Monday, and the first minute after it.
    #[test]
    fn a_window_goes_over_midnight_and_over_the_end_of_the_week() {
        let sunday = ["Sun 23:00-01:00"];
        let midnight = THURSDAY + 4 * 24 * HOUR - 14 * HOUR - 30 * MINUTE_MS;
        assert_eq!(utc(midnight), "2026-11-09T00:00:00Z");
        assert_eq!(open(&sunday, midnight - 2 * HOUR), "2026-11-08T23:00:00Z");
        assert_eq!(open(&sunday, midnight - HOUR), "2026-11-08T23:00:00Z");
        assert_eq!(open(&sunday, midnight + HOUR - 1), "2026-11-09T00:59:59Z");
        assert_eq!(open(&sunday, midnight + HOUR), "2026-11-15T23:00:00Z");
        assert_eq!(Windows::read(&["24x7"]).unwrap_err().text, "24x7");
    }

    /// A window is open at the returned time and was not open before it.
    #[test]
    fn every_minute_of_two_weeks() {
        let windows =
            Windows::read(&["Sat,Sun 02:00-04:00", "Mon 23:30-00:30", "Wed-Thu 12:00-12:01"]).unwrap();
        let mut last_closed = None;
        for minute in (0..2 * u64::from(WEEK)).map(|m| m * MINUTE_MS) {
            let at = windows.open_from(minute);
            assert_eq!(windows.open_from(at), at, "{}", utc(at));
            assert!(at >= minute && at - minute <= u64::from(WEEK) * MINUTE_MS);
            if let Some(promised) = last_closed {
                assert_eq!(at, promised, "{}", utc(minute));
            }
            last_closed = (at > minute).then_some(at);
        }
        assert!(windows.open_from(u64::MAX) > 0);
    }

    #[test]
    fn what_is_no_window_is_said_with_what_is() {
        let cases = [
            ("", "has no hours"),
            ("Sat", "has no hours"),
            ("Sat 02:00", "has no hours"),
            ("Sat 2:00-4:00", "has an hour that there is not"),
            ("Sat 24:00-02:00", "has an hour that there is not"),
            ("Sat 02:60-04:00", "has an hour that there is not"),
            ("Sat 02:00-24:01", "has an hour that there is not"),
            ("Sat 02:00-02:00", "is empty, or a whole day"),
            ("Sit 02:00-04:00", "has a day that there is not"),
            ("Sat, 02:00-04:00", "has a day that there is not"),
            ("Sat-Sun-Mon 02:00-04:00", "has a day that there is not"),
        ];
        for (text, why) in cases {
            let error = Windows::read(&[text]).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("Sat,Sun 02:00-04:00"), "{text}: {error}");
        }
    }

    #[test]
    fn a_window_changes_when_it_closes_or_opens() {
        let cases: [(&[&str], Option<&str>); 8] = [
            (&[], None),
            (&["00:00-24:00"], None),
            (&["06:00-18:00", "18:00-06:00"], None),
            (&["Thu 14:00-18:00"], Some("2026-11-05T18:00:00Z")),
            (&["Thu 14:00-18:00", "Thu 16:30-19:00"], Some("2026-11-05T19:00:00Z")),
            (&["14:00-24:00", "Fri 00:00-02:00"], Some("2026-11-06T02:00:00Z")),
            (&["Sun-Thu 20:00-15:00"], Some("2026-11-05T15:00:00Z")),
            (&["Sat 02:00-04:00"], Some("2026-11-07T02:00:00Z")),
        ];
        for (texts, expected) in cases {
            let windows = Windows::read(texts).unwrap();
            // Seconds are ignored.
            for now in [THURSDAY, THURSDAY + 59_999] {
                assert_eq!(windows.changes_after(now).map(utc).as_deref(), expected, "{texts:?}");
            }
            if let Some(change) = windows.changes_after(THURSDAY) {
                assert_ne!(windows.is_open(change - 1), windows.is_open(change), "{texts:?}");
                assert_eq!(windows.is_open(change - 1), windows.is_open(THURSDAY), "{texts:?}");
            }
        }
    }
}
