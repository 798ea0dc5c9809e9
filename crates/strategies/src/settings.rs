//! Reads typed settings with serde, and gathers all problems instead of stopping at the first: those of a policy, and
//! those of a configuration that a policy is a part of.

use std::{collections::BTreeMap, fmt, sync::LazyLock};

use serde::{
    de::{
        self, DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer as _,
        MapAccess, SeqAccess, Unexpected, Visitor,
    },
    forward_to_deserialize_any,
};
use serde_json::{Value, json};

pub use crate::types::{duration, parsed};
use crate::{types::EMPTY, words::closest};

/// Reads a value, and reports everything that is wrong with it. A type of serde is described in the words of a
/// configuration; keys that a struct does not have, and texts of white space alone, are refused.
///
/// ```
/// #[derive(Debug, serde::Deserialize)]
/// struct Limits {
///     most: u32,
///     sites: Vec<String>,
/// }
///
/// let text = serde_json::json!({ "most": "ten", "sites": ["east", 3], "leest": 1 });
/// assert_eq!(
///     strategies::settings::read::<Limits>(&text).unwrap_err().to_string(),
///     "most: expected an integer, found \"ten\"\n\
///      sites[1]: expected a string in quotes, found the integer 3\n\
///      leest: unknown key; valid here: most, sites"
/// );
/// ```
///
/// # Errors
/// All problems at once, each with the steps to it.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, SpecError> {
    let mut findings = Findings::default();
    let read = findings.read(value, None);
    findings.into_result(read)
}

/// The steps to a value: keys, and positions in arrays such as `[0]`.
type Path = Vec<String>;

/// All problems of settings; at least one. Its text has a line for each: `rules[0].pipeline[1].first: ...`
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct SpecError(Vec<(Path, String)>);

impl SpecError {
    /// One by one: the steps to the value, which are keys and positions in arrays such as `[0]`; and what is wrong with
    /// it, and what would be valid.
    pub fn iter(&self) -> impl Iterator<Item = (&[String], &str)> {
        self.0.iter().map(|(path, message)| (path.as_slice(), message.as_str()))
    }
}

fn lines(problems: &[(Path, String)]) -> String {
    let line = |(path, message): &(Path, String)| {
        let path = path.join(".").replace(".[", "[");
        format!("{path}: {message}")
    };
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The problems found, and the position of the reader.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) problems: Vec<(Path, String)>,
    path: Path,
}

impl Findings {
    /// What has been read, if there is no problem.
    pub(crate) fn into_result<T>(self, read: Option<T>) -> Result<T, SpecError> {
        read.filter(|_| self.problems.is_empty()).ok_or(SpecError(self.problems))
    }

    pub(crate) fn say(&mut self, message: impl Into<String>) {
        self.problems.push((self.path.clone(), message.into()));
    }

    pub(crate) fn say_of(&mut self, key: &str, message: impl Into<String>) {
        self.at(key, |findings| findings.say(message));
    }

    /// Runs `read` with this step added to the path.
    pub(crate) fn at<T>(&mut self, step: impl Into<String>, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step.into());
        let read = read(self);
        self.path.pop();
        read
    }

    /// Reads a value, and reports all errors in it. A wrong value is left out, with the table or the element that requires
    /// it; `None` if that is the whole value.
    ///
    /// serde stops at the first error. So each error is recorded with its position, and the next attempt replaces the
    /// value there: first it leaves the value out, then, if the type requires one, it uses a placeholder.
    ///
    /// `tag` is a key of the table that was already read.
    pub(crate) fn read<T: DeserializeOwned>(
        &mut self,
        value: &Value,
        tag: Option<&'static str>,
    ) -> Option<T> {
        let mut failed = Failed { times: BTreeMap::new(), root: self.path.len(), tag };
        loop {
            let reader = Reader { value, at: self.path.clone(), failed: &failed };
            match T::deserialize(reader) {
                Ok(made) => match failed.with_placeholder() {
                    None => return Some(made),
                    // The placeholder was only needed to find the other errors.
                    Some(at) => failed.replace(&at[..at.len() - 1]).then_some(())?,
                },
                Err(Stop { at, message, .. }) => {
                    let at = at.unwrap_or_else(|| self.path.clone());
                    match failed.covering(&at) {
                        Some(known) => failed.replace(&known).then_some(())?,
                        None => {
                            // An error that a placeholder causes further out is not an error of the input.
                            if !failed.has_below(&at) {
                                self.problems.push((at.clone(), message));
                            }
                            failed.replace(&at).then_some(())?;
                        }
                    }
                }
            }
        }
    }
}

/// The values that did not fit, and how often each was replaced.
struct Failed {
    times: BTreeMap<Path, usize>,
    /// The number of steps to the value as a whole.
    root: usize,
    tag: Option<&'static str>,
}

/// The substitutes for a required value that did not fit, each in turn.
static PLACEHOLDERS: LazyLock<[Value; 4]> = LazyLock::new(|| [json!("x"), json!(1), json!([]), json!({})]);

impl Failed {
    /// The value that the reader uses at this position instead of `value`.
    fn instead<'a>(&'a self, at: &[String], value: Option<&'a Value>) -> Option<&'a Value> {
        match self.times.get(at) {
            None => value,
            Some(times) => times.checked_sub(2).and_then(|number| PLACEHOLDERS.get(number)),
        }
    }

    /// Replaces the value there once more or, if no placeholder fits, the value that contains it. `false` if that is the whole value.
    fn replace(&mut self, at: &[String]) -> bool {
        if at.len() <= self.root {
            return false;
        }
        let times = self.times.entry(at.to_vec()).or_default();
        *times += 1;
        *times <= 1 + PLACEHOLDERS.len() || self.replace(&at[..at.len() - 1])
    }

    /// The outermost of these values that the position is in.
    fn covering(&self, at: &[String]) -> Option<Path> {
        (self.root..=at.len())
            .map(|steps| &at[..steps])
            .find(|part| self.times.contains_key(*part))
            .map(<[_]>::to_vec)
    }

    fn has_below(&self, at: &[String]) -> bool {
        self.times.keys().any(|known| known.starts_with(at))
    }

    /// The position of a value that a placeholder replaces.
    fn with_placeholder(&self) -> Option<Path> {
        let is_outermost = |at: &Path| self.covering(at).as_ref() == Some(at);
        self.times.iter().find(|(at, times)| **times > 1 && is_outermost(at)).map(|(at, _)| at.clone())
    }
}

/// An error of one attempt.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Stop {
    at: Option<Path>,
    message: String,
    /// A field that is missing at `at`.
    missing: Option<&'static str>,
}

impl Stop {
    fn at(self, at: &Path) -> Self {
        Self { at: self.at.or_else(|| Some(at.clone())), ..self }
    }
}

impl de::Error for Stop {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { at: None, message: message.to_string(), missing: None }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Str(text) => format!("{text:?}"),
            Unexpected::Signed(number) => format!("the integer {number}"),
            Unexpected::Unsigned(number) => format!("the integer {number}"),
            Unexpected::Float(number) => format!("the number {number}"),
            Unexpected::Bool(yes) => yes.to_string(),
            Unexpected::Seq => "an array".to_owned(),
            Unexpected::Map => "a table".to_owned(),
            other => other.to_string(),
        };
        Self::custom(format!("expected {}, found {found}", words(expected)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn missing_field(field: &'static str) -> Self {
        Self { missing: Some(field), ..Self::custom("it is missing") }
    }
}

/// What serde expects, in the words of a configuration.
fn words(expected: &dyn Expected) -> String {
    let words = expected.to_string();
    match words.as_str() {
        "a string" => "a string in quotes",
        "a boolean" => "true or false",
        "f64" | "f32" => "a number",
        "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "usize" => "an integer",
        "a nonzero u32" => "an integer of 1 or more",
        "a sequence" => "an array",
        "a map" => "a table",
        text if text.starts_with("struct ") => "a table",
        _ => return words,
    }
    .to_owned()
}

/// What a value is, after 'found'.
pub fn found(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Number(number) if number.is_f64() => format!("the number {number}"),
        Value::Number(number) => format!("the integer {number}"),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "a table".to_owned(),
        other => other.to_string(),
    }
}

/// That a value is none of these words.
pub fn not_known(found: &str, valid: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let valid: Vec<_> = valid.into_iter().map(|word| format!("{:?}", word.as_ref())).collect();
    format!("{found} is not known; valid: {}", valid.join(", "))
}

/// A value on its way into a type.
struct Reader<'a> {
    value: &'a Value,
    at: Path,
    failed: &'a Failed,
}

impl<'a> Reader<'a> {
    fn below(&self, step: &str) -> Path {
        self.at.iter().cloned().chain([step.to_owned()]).collect()
    }

    /// These parts of the value, as far as they have not failed.
    fn parts(&self, parts: impl Iterator<Item = (String, Option<&'a Value>)>) -> Parts<'a> {
        let usable = parts.filter_map(|(step, value)| {
            let at = self.below(&step);
            let value = self.failed.instead(&at, value)?;
            Some((step, Self { value, at, failed: self.failed }))
        });
        Parts { left: usable.collect::<Vec<_>>().into_iter(), next: None }
    }

    /// Reads a table with these keys, and no others.
    fn table<T>(
        &self,
        fields: &'static [&'static str],
        expected: &str,
        read: impl FnOnce(Parts<'a>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let Value::Object(table) = self.value else {
            return Err(Stop::custom(format!("expected {expected}, found {}", found(self.value))));
        };
        let made = read(self.parts(fields.iter().map(|field| ((*field).to_owned(), table.get(*field)))));
        let made = made.map_err(|stop| {
            let field = stop.missing.filter(|_| stop.at.is_none());
            let Some(field) = field else { return stop.at(&self.at) };
            let example =
                if expected == "a table" { String::new() } else { format!("; valid is {expected}") };
            let at = self.below(field);
            Stop::custom(format!("it is missing{example}")).at(&at)
        });
        if let Err(Stop { at: Some(at), .. }) = &made
            && self.failed.covering(at).is_none()
        {
            return made;
        }
        for key in table.keys().filter(|key| !fields.contains(&key.as_str())) {
            let at = self.below(key);
            if self.failed.covering(&at).is_none() {
                let tag = self.failed.tag.filter(|_| self.at.len() == self.failed.root);
                let valid: Vec<_> = tag.iter().chain(fields).copied().collect();
                return Err(Stop::custom(unknown_key(key, &valid, "here")).at(&at));
            }
        }
        made
    }
}

/// That a table has no such key, and which it has: `place` follows 'valid'.
pub fn unknown_key(key: &str, valid: &[&str], place: &str) -> String {
    let meant = closest(key, valid).map(|close| format!("; did you mean {close:?}?")).unwrap_or_default();
    match valid {
        [] => format!("unknown key; none is valid {place}"),
        valid => format!("unknown key{meant}; valid {place}: {}", valid.join(", ")),
    }
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Stop;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(yes) => visitor.visit_bool(*yes),
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => visitor.visit_i64(number),
                (None, Some(number)) => visitor.visit_u64(number),
                (None, None) => visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_str(text),
            Value::Array(list) => {
                let parts = list.iter().enumerate().map(|(place, value)| (format!("[{place}]"), Some(value)));
                visitor.visit_seq(self.parts(parts))
            }
            Value::Object(table) => {
                visitor.visit_map(self.parts(table.iter().map(|(key, value)| (key.clone(), Some(value)))))
            }
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        match self.value {
            Value::String(text) if text.trim().is_empty() => Err(Stop::custom(EMPTY)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.table(&[], "a table", |_| visitor.visit_unit())
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        let expected = words(&visitor);
        self.table(fields, &expected, |parts| visitor.visit_map(parts))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        match self.value {
            Value::String(word) if variants.contains(&word.as_str()) => {
                visitor.visit_enum(word.as_str().into_deserializer())
            }
            other => Err(Stop::custom(not_known(&found(other), variants))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

/// The elements of an array, or the keys and values of a table.
struct Parts<'a> {
    left: std::vec::IntoIter<(String, Reader<'a>)>,
    next: Option<Reader<'a>>,
}

impl<'de> SeqAccess<'de> for Parts<'_> {
    type Error = Stop;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Stop> {
        let Some((_, reader)) = self.left.next() else { return Ok(None) };
        let at = reader.at.clone();
        seed.deserialize(reader).map(Some).map_err(|stop| stop.at(&at))
    }
}

impl<'de> MapAccess<'de> for Parts<'_> {
    type Error = Stop;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Stop> {
        let Some((key, reader)) = self.left.next() else { return Ok(None) };
        let at = reader.at.clone();
        self.next = Some(reader);
        seed.deserialize(key.into_deserializer()).map(Some).map_err(|stop: Stop| stop.at(&at))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Stop> {
        let reader = self.next.take().ok_or_else(|| Stop::custom("a value without a key"))?;
        let at = reader.at.clone();
        seed.deserialize(reader).map_err(|stop| stop.at(&at))
    }
}
