//! Days on which something may not happen. Pure.

use election_core::internals::calendar::utc;

/// Days, in UTC: `2026-12-24`, each year `12-24`, or from one day to another one, both included, `12-20..01-06`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dates(Vec<String>);

impl Dates {
    /// Reads each text.
    ///
    /// # Errors
    /// The first text that is neither a day nor days.
    pub fn read<T: AsRef<str>>(texts: &[T]) -> Result<Self, String> {
        for text in texts.iter().map(AsRef::as_ref) {
            let (first, last) = ends(text);
            let is_day = |day: &str| is_date(day);
            if !is_day(first) || !is_day(last) || first.len() != last.len() {
                return Err(format!(
                    "{text:?} is not a date; valid are 2026-12-24, 12-24 for each year, and days from one to another, such \
                     as 2026-12-20..2027-01-06 or 12-20..01-06"
                ));
            }
            if is_full(first) && last < first {
                return Err(format!("{text:?} ends before it begins"));
            }
        }
        Ok(Self(texts.iter().map(|text| text.as_ref().to_owned()).collect()))
    }

    /// The text that contains the day of `unix_ms`, in milliseconds since the Unix epoch.
    pub fn find(&self, unix_ms: u64) -> Option<&str> {
        let now = utc(unix_ms);
        let today = now.get(..FULL.len()).unwrap_or_default();
        let contains = |text: &&String| {
            let (first, last) = ends(text);
            let day = if is_full(first) { today } else { today.get(YEAR..).unwrap_or_default() };
            match first <= last {
                true => (first..=last).contains(&day),
                // Over the end of the year.
                false => day >= first || day <= last,
            }
        };
        self.0.iter().find(contains).map(String::as_str)
    }

    /// As they were written.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

const FULL: &str = "2026-12-24";
/// The length of a year with its hyphen.
const YEAR: usize = 5;

fn is_full(day: &str) -> bool {
    day.len() == FULL.len()
}

fn ends(text: &str) -> (&str, &str) {
    text.split_once("..").map_or((text, text), |(first, last)| (first.trim(), last.trim()))
}

fn is_date(day: &str) -> bool {
    let rest = match is_full(day) {
        true => day.split_once('-').filter(|(year, _)| number(year, 4).is_some()).map(|(_, rest)| rest),
        false => Some(day),
    };
    let month_and_day = rest.and_then(|rest| rest.split_once('-'));
    let parts = month_and_day.and_then(|(month, day)| Some((number(month, 2)?, number(day, 2)?)));
    parts.is_some_and(|(month, day)| {
        let last = match month {
            2 => 29,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        (1..=12).contains(&month) && (1..=last).contains(&day)
    })
}

fn number(text: &str, digits: usize) -> Option<u32> {
    (text.len() == digits && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-26T00:00:00Z
    const NOVEMBER_26: u64 = 1_795_651_200_000;
    const DAY: u64 = 24 * 3_600_000;

    fn dates(texts: &[&str]) -> Result<Dates, String> {
        Dates::read(texts)
    }

    #[test]
    fn a_day_is_found_in_each_form() {
        let all = dates(&["2026-11-26", "11-28", "2026-12-01..2026-12-03", "12-24..01-06"]).unwrap();
        for (days, found) in [
            (0, Some("2026-11-26")),
            (1, None),
            (2, Some("11-28")),
            (4, None),
            (5, Some("2026-12-01..2026-12-03")),
            (7, Some("2026-12-01..2026-12-03")),
            (8, None),
            (28, Some("12-24..01-06")),
            (36, Some("12-24..01-06")),
            (41, Some("12-24..01-06")),
            (42, None),
            (365, None),
            (367, Some("11-28")),
        ] {
            let last_ms = NOVEMBER_26 + (days + 1) * DAY - 1;
            assert_eq!(all.find(last_ms), found, "{}", utc(last_ms));
        }
        assert_eq!(Dates::default().find(NOVEMBER_26), None);
    }

    #[test]
    fn what_is_no_day_is_refused() {
        for text in
            ["", "2026", "2026-13-01", "2026-02-30", "2-1", "12-24..", "12-24..2026-12-25", "é6-12-24", "x"]
        {
            assert!(dates(&[text]).unwrap_err().contains("is not a date"), "{text}");
        }
        assert!(dates(&["2026-12-02..2026-12-01"]).unwrap_err().contains("ends before"));
        assert!(dates(&["02-29"]).is_ok());
    }
}
