//! Words that several stages need.

/// The longest text of a member or an operator that a reason repeats, in characters.
const MAX_QUOTE: usize = 200;

/// `first`, `second`, .. for a rank counted from 0.
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

/// Text of a member or an operator as part of a sentence: on one line, without control characters, and of limited
/// length.
pub(crate) fn quote(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let mut line = words.collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(MAX_QUOTE) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// The known name that is most similar to a mistyped one.
pub(crate) fn closest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    known
        .iter()
        .map(|candidate| (distance(name, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The number of insertions, deletions and substitutions between two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_finds_its_word() {
        assert_eq!(closest("auto_move", &["auto_moves", "fenced"]), Some("auto_moves"));
        assert_eq!(closest("sit", &["id", "site"]), Some("site"));
        assert_eq!(closest("colour", &["id", "site"]), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

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

    #[test]
    fn quotes_are_one_line_and_bounded() {
        assert_eq!(quote("  disk\n\tfull \u{7} "), "disk full");
        let long = quote(&"ä".repeat(1000));
        assert_eq!(long.chars().count(), MAX_QUOTE + 1);
        assert!(long.ends_with('…'));
    }
}
