//! Text from outside: what operators, members and other programs write, and people and programs read.
//!
//! A text is one line of at most [`MAX`] bytes of characters that a reader can see. Others, such as ends of lines, escape
//! sequences of terminals, and marks that change the direction of writing, could forge a row of a table or a line of a log, and
//! a program can't be started with a NUL in its environment. So they are
//!
//! * refused where an operator gives a text: [`Text`];
//! * escaped where a record is read: each field of a record names [`line`](mod@line) or [`block`] where it is declared;
//! * [stripped] where a text is passed on to a program.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Deref,
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, de};

/// The longest text, in bytes.
pub const MAX: usize = 1000;

/// Whether a text may have this character: a reader sees it, and it changes nothing around it.
pub fn is_plain(character: char) -> bool {
    let is_invisible = matches!(
        character,
        '\u{061c}' | '\u{200b}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    !character.is_control() && !is_invisible
}

/// Whether a text of several lines may have this character.
pub fn is_in_block(character: char) -> bool {
    is_plain(character) || matches!(character, '\n' | '\r' | '\t')
}

/// Whether this is the name or the address of a host, as a program takes it as an argument: letters, digits, `.`, `_`, `-`,
/// `:` and `%`, the first of them a letter, a digit or `:`.
pub fn is_host(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '%');
    (1..=253).contains(&text.len()) && text.chars().all(is_part) && !text.starts_with(['.', '_', '-', '%'])
}

/// The text with escapes (`\n`, `\u{1b}`) for the characters that are not [plain](is_plain).
pub fn shown(text: &str) -> Cow<'_, str> {
    escaped(text, is_plain)
}

fn escaped(text: &str, is_kept: fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(is_kept) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_kept(character) {
            escaped.push(character);
        } else {
            escaped.extend(character.escape_default());
        }
    }
    Cow::Owned(escaped)
}

/// The text without the characters that are not [plain](is_plain). White space among them becomes a space.
pub fn stripped(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let kept = |character: char| match character {
        plain if is_plain(plain) => Some(plain),
        space if space.is_whitespace() => Some(' '),
        _ => None,
    };
    Cow::Owned(text.chars().filter_map(kept).collect())
}

/// Shortens a text to this many bytes, and [strips](stripped) it.
pub fn shorten(text: &mut String, most: usize) {
    if let Cow::Owned(plain) = stripped(text) {
        *text = plain;
    }
    cut(text, most);
}

/// Shortens a text to this many bytes.
pub fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        let end = (0..=most - '…'.len_utf8()).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}

/// A text that an operator has given.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Text(String);

/// Why a text was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidText {
    /// It is longer than [`MAX`].
    #[error("it has {0} bytes, more than {MAX}")]
    TooLong(usize),
    /// It has a character that is not [plain](is_plain).
    #[error("it has {0:?}, which is not allowed in a line of text")]
    NotPlain(char),
}

impl Text {
    /// The text, if it is one.
    ///
    /// # Errors
    /// When it is too long, or has a character that is not [plain](is_plain).
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidText> {
        let text = text.into();
        if text.len() > MAX {
            return Err(InvalidText::TooLong(text.len()));
        }
        text.chars().find(|c| !is_plain(*c)).map_or(Ok(Self(text)), |c| Err(InvalidText::NotPlain(c)))
    }

    /// The text as a string.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for Text {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        Self::new(text)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(from)?).map_err(de::Error::custom)
    }
}

/// The texts in a field of a record.
pub trait Texts: Clone {
    /// Escapes the characters for which `is_kept` does not hold, and shortens each text to `most` bytes.
    fn make(&mut self, is_kept: fn(char) -> bool, most: usize);
}

impl Texts for String {
    fn make(&mut self, is_kept: fn(char) -> bool, most: usize) {
        if let Cow::Owned(escaped) = escaped(self, is_kept) {
            *self = escaped;
        }
        cut(self, most);
    }
}

impl Texts for u32 {
    fn make(&mut self, _is_kept: fn(char) -> bool, _most: usize) {}
}

impl<T: Texts> Texts for Option<T> {
    fn make(&mut self, is_kept: fn(char) -> bool, most: usize) {
        self.iter_mut().for_each(|text| text.make(is_kept, most));
    }
}

impl<K: Texts + Ord, T: Texts> Texts for BTreeMap<K, T> {
    fn make(&mut self, is_kept: fn(char) -> bool, most: usize) {
        let made = std::mem::take(self).into_iter().map(|(mut key, mut text)| {
            key.make(is_kept, most);
            text.make(is_kept, most);
            (key, text)
        });
        *self = made.collect();
    }
}

impl<T: Texts + Ord> Texts for BTreeSet<T> {
    fn make(&mut self, is_kept: fn(char) -> bool, most: usize) {
        let made = std::mem::take(self).into_iter().map(|mut text| {
            text.make(is_kept, most);
            text
        });
        *self = made.collect();
    }
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident, $is_kept:expr, $most:expr;)*) => {$(
        $(#[$doc])*
        pub mod $name {
            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            use super::Texts;

            /// Writes it as it is read.
            ///
            /// # Errors
            /// Those of the serializer.
            pub fn serialize<T: Texts + Serialize, S: Serializer>(texts: &T, to: S) -> Result<S::Ok, S::Error> {
                let mut made = texts.clone();
                made.make($is_kept, $most);
                made.serialize(to)
            }

            /// Reads it, with escapes, and shortened.
            ///
            /// # Errors
            /// Those of the deserializer.
            pub fn deserialize<'de, T: Texts + Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
                let mut texts = T::deserialize(from)?;
                texts.make($is_kept, $most);
                Ok(texts)
            }
        }
    )*};
}

fields! {
    /// A field with text of one line, for serde's `with`.
    line, super::is_plain, super::MAX;
    /// A field with texts of one line each that have a limit of their own, such as the attributes of a member.
    long_line, super::is_plain, usize::MAX;
    /// A field with text of several lines, such as a configuration, of any length.
    block, super::is_in_block, usize::MAX;
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\0b\n\u{1b}[31mc\u{202e}d\u{2066}\u{feff}";

    #[test]
    fn what_an_operator_can_not_see_is_refused_escaped_and_stripped() {
        assert_eq!(Text::new("Wartung für west-1 👩‍🔧").unwrap().to_string(), "Wartung für west-1 👩‍🔧");
        assert_eq!(Text::new(HOSTILE), Err(InvalidText::NotPlain('\0')));
        assert_eq!(Text::new("x".repeat(MAX + 1)), Err(InvalidText::TooLong(MAX + 1)));
        for hostile in HOSTILE.chars().filter(|c| !c.is_ascii_alphanumeric() && *c != '[') {
            assert!(!is_plain(hostile) && Text::new(hostile).is_err(), "{hostile:?}");
        }
        assert_eq!(shown(HOSTILE), "a\\u{0}b\\n\\u{1b}[31mc\\u{202e}d\\u{2066}\\u{feff}");
        assert_eq!(stripped(HOSTILE), "ab [31mcd");
        assert!(matches!((shown("plain"), stripped("plain")), (Cow::Borrowed(_), Cow::Borrowed(_))));
    }

    #[test]
    fn a_host_is_no_option_and_no_command() {
        for host in ["10.0.0.7", "::1", "fe80::1%eth0", "db-1.example.com", "west_1"] {
            assert!(is_host(host), "{host}");
        }
        for other in
            ["", "-oProxyCommand=x", "a b", "a;b", "$(id)", "`id`", "a,b", "*", "a\nb", "ä", &"x".repeat(300)]
        {
            assert!(!is_host(other), "{other}");
        }
    }

    #[test]
    fn a_field_is_read_with_escapes_and_written_so() {
        #[derive(Serialize, Deserialize)]
        struct Fields {
            #[serde(with = "line")]
            line: BTreeMap<String, String>,
            #[serde(with = "block")]
            block: Option<String>,
        }
        let read = r#"{"line":{"k\n":"\u0000"},"block":"a\n\tb\u001b"}"#;
        let fields: Fields = serde_json::from_str(read).unwrap();
        assert_eq!(fields.line, BTreeMap::from([("k\\n".to_owned(), "\\u{0}".to_owned())]));
        assert_eq!(fields.block.as_deref(), Some("a\n\tb\\u{1b}"));
        let raw = Fields {
            line: [("k\n".to_owned(), "\0".to_owned())].into(),
            block: Some("a\n\tb\u{1b}".to_owned()),
        };
        assert_eq!(serde_json::to_string(&fields).unwrap(), serde_json::to_string(&raw).unwrap());
    }
}
