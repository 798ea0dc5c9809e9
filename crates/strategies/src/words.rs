//! Words that several stages need.

/// The longest text of somebody else's that is repeated in a reason, in characters.
const MAX_QUOTE: usize = 200;

/// `first`, `second`, .. for a place counted from 0.
pub(crate) fn ordinal(place: usize) -> String {
    const WORDS: [&str; 10] =
        ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"];
    if let Some(word) = WORDS.get(place) {
        return (*word).to_owned();
    }
    let number = place.saturating_add(1);
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// Text that a member or an operator wrote, as part of a sentence: on one line,
/// without control characters, and not endless.
pub(crate) fn quote(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let mut line = words.fold(String::new(), |mut line, word| {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        line
    });
    if let Some((end, _)) = line.char_indices().nth(MAX_QUOTE) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// A wall-clock time in milliseconds since the Unix epoch, as text in UTC to the
/// second: `2026-11-05T14:30:00Z`.
///
/// Written out, and not as 'for another 4 minutes', so that it is still right when
/// the sentence is read later.
pub(crate) fn utc(unix_ms: u64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals() {
        let cases = [
            (0, "first"),
            (9, "tenth"),
            (10, "11th"),
            (12, "13th"),
            (20, "21st"),
            (21, "22nd"),
            (22, "23rd"),
            (110, "111th"),
            (120, "121st"),
        ];
        for (place, word) in cases {
            assert_eq!(ordinal(place), word);
        }
    }

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

    #[test]
    fn quotes_are_one_line_and_bounded() {
        assert_eq!(quote("  disk\n\tfull \u{7} "), "disk full");
        let long = quote(&"ä".repeat(1000));
        assert_eq!(long.chars().count(), MAX_QUOTE + 1);
        assert!(long.ends_with('…'));
    }
}
