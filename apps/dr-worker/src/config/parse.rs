//! Typed values from values of the tree, or a message with what would be valid.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use election_core::{
    config::{MemberId, SiteId},
    internals::calendar::Windows,
};
use job_guard::StopSignal;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::Value as Plain;
use strategies::settings;

#[cfg(test)]
use schemars::{Schema, SchemaGenerator, json_schema};

use super::{
    dates::Dates,
    tree::{Node, Value},
};

pub(super) const MILLISECOND: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);

/// A type of value.
pub(super) trait Parse: Sized {
    /// Whether it is written as a string, so that text from the environment is taken as it is.
    const IS_TEXT: bool = false;

    /// Whether it can be a table, whose keys the user chooses.
    const IS_MAP: bool = false;

    /// Takes the value, for [`settings::read`].
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error>;

    /// Takes an element of an array or a table.
    fn read_element<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::read(from)
    }

    /// The value of a node, to be read.
    fn plain(node: &Node) -> Plain {
        if Self::IS_TEXT { node.plain_text() } else { node.plain() }
    }

    /// As it would be written in a file. Secrets are masked.
    fn show(&self) -> String;

    /// The same with secrets, to compare two values.
    fn identity(&self) -> String {
        self.show()
    }

    /// The JSON Schema of its values: strings, if it does not say otherwise.
    #[cfg(test)]
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<String>()
    }
}

/// A value as the reader takes it.
pub(super) struct Whole<T>(pub(super) T);

impl<'de, T: Parse> Deserialize<'de> for Whole<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::read(from).map(Self)
    }
}

/// An element of an array or a table.
struct Element<T>(T);

impl<'de, T: Parse> Deserialize<'de> for Element<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::read_element(from).map(Self)
    }
}

/// What `make` makes of what is written as a `T`.
pub(super) fn made<'de, D: Deserializer<'de>, T: DeserializeOwned, M, E: fmt::Display>(
    from: D,
    make: impl FnOnce(T) -> Result<M, E>,
) -> Result<M, D::Error> {
    make(T::deserialize(from)?).map_err(D::Error::custom)
}

fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

/// A table of these values, as they would be written in a file.
fn inline_table<'a>(entries: impl Iterator<Item = (&'a String, String)>) -> String {
    let all: Vec<_> = entries.map(|(key, value)| format!("{} = {value}", toml_edit::Key::new(key))).collect();
    if all.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", all.join(", ")) }
}

impl Node {
    /// Its value where a string is wanted.
    fn plain_text(&self) -> Plain {
        match &self.value {
            // `--set 'node.id="east-1"'` means the same as without the quotes.
            Value::Text(text) if text.len() > 1 && text.starts_with('"') && text.ends_with('"') => {
                match text.parse::<toml_edit::Value>() {
                    Ok(toml_edit::Value::String(inner)) => Plain::String(inner.into_value()),
                    _ => Plain::String(text.clone()),
                }
            }
            Value::Text(text) => Plain::String(text.clone()),
            _ => self.plain(),
        }
    }

    /// Its value where no string is wanted.
    pub(super) fn plain(&self) -> Plain {
        match self.structured() {
            Value::Text(text) | Value::String(text) => Plain::String(text),
            Value::Integer(number) => number.into(),
            Value::Float(number) => number.into(),
            Value::Bool(yes) => Plain::Bool(yes),
            Value::Array(elements) => elements.iter().map(Self::plain).collect(),
            Value::Table(entries) => entries.into_iter().map(|(key, value)| (key, value.plain())).collect(),
        }
    }

    /// Its value; what came as mere text is read as TOML, for no string is wanted here.
    pub(super) fn structured(&self) -> Value {
        match &self.value {
            Value::Text(text) => text
                .parse::<toml_edit::Value>()
                .map(|value| self.converted(&value).value)
                .unwrap_or_else(|_| self.value.clone()),
            other => other.clone(),
        }
    }

    fn converted(&self, value: &toml_edit::Value) -> Self {
        use toml_edit::Value as Toml;
        let value = match value {
            Toml::String(text) => Value::String(text.value().clone()),
            Toml::Integer(number) => Value::Integer(*number.value()),
            Toml::Float(number) => Value::Float(*number.value()),
            Toml::Boolean(yes) => Value::Bool(*yes.value()),
            Toml::Datetime(date) => Value::String(date.to_string()),
            Toml::Array(array) => Value::Array(array.iter().map(|e| self.converted(e)).collect()),
            Toml::InlineTable(table) => Value::Table(
                table.iter().map(|(key, value)| (key.to_owned(), self.converted(value))).collect(),
            ),
        };
        Self {
            value,
            origin: self.origin.clone(),
            key_origin: self.key_origin.clone(),
            outlived: self.outlived,
        }
    }
}

impl Parse for String {
    const IS_TEXT: bool = true;

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::deserialize(from)
    }

    fn read_element<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // An empty argument of a command is an argument, and an empty value is one in an environment.
        match Plain::deserialize(from)? {
            Plain::String(text) => Ok(text),
            other => {
                let found = settings::found(&other);
                Err(D::Error::custom(format!("expected a string in quotes, found {found}")))
            }
        }
    }

    fn show(&self) -> String {
        quoted(self)
    }
}

impl Parse for PathBuf {
    const IS_TEXT: bool = true;

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::deserialize(from)
    }

    fn show(&self) -> String {
        quoted(&self.to_string_lossy())
    }
}

macro_rules! as_it_is {
    ($($type:ty),*) => {$(
        impl Parse for $type {
            fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Self::deserialize(from)
            }

            fn show(&self) -> String {
                self.to_string()
            }

            #[cfg(test)]
            fn schema(generator: &mut SchemaGenerator) -> Schema {
                generator.subschema_for::<Self>()
            }
        }
    )*};
}

as_it_is!(bool, i64);

impl Parse for u32 {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        made(from, |number: i64| {
            let valid = || format!("{number} is out of range; 0 to {} is valid", Self::MAX);
            Self::try_from(number).map_err(|_| valid())
        })
    }

    fn show(&self) -> String {
        self.to_string()
    }

    #[cfg(test)]
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

macro_rules! as_u32 {
    ($($type:ty),*) => {$(
        impl Parse for $type {
            fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                u32::read(from).map(|number| number as Self)
            }

            fn show(&self) -> String {
                self.to_string()
            }

            #[cfg(test)]
            fn schema(generator: &mut SchemaGenerator) -> Schema {
                u32::schema(generator)
            }
        }
    )*};
}

as_u32!(u64, usize);

const DURATION: &str = "a duration: a string with a unit, such as \"10s\", \"250ms\" or \"1m 30s\"";

impl Parse for Duration {
    const IS_TEXT: bool = true;

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        settings::parsed(from, DURATION, |text| humantime::parse_duration(text.trim()).ok())
    }

    fn show(&self) -> String {
        quoted(&humantime::format_duration(*self).to_string())
    }

    #[cfg(test)]
    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": r"^\s*([0-9]+\s*[a-zA-Zµ]+\s*)+$" })
    }
}

/// A type that is written as a string, which `FromStr` reads and `Display` shows.
macro_rules! text {
    ($($type:ty),*) => {$(
        impl $crate::config::parse::Parse for $type {
            const IS_TEXT: bool = true;

            fn read<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::config::parse::made(from, |text: String| text.parse())
            }

            fn show(&self) -> String {
                $crate::config::parse::Parse::show(&self.to_string())
            }
        }
    )*};
}
pub(super) use text;

text!(MemberId, SiteId, StopSignal);

/// A type that is written as an array of texts.
macro_rules! texts {
    ($($type:ty),*) => {$(
        impl Parse for $type {
            fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Self::read(&<Vec<String> as Parse>::read(from)?).map_err(D::Error::custom)
            }

            fn show(&self) -> String {
                let texts: Vec<String> = self.texts().map(str::to_owned).collect();
                texts.show()
            }

            #[cfg(test)]
            fn schema(generator: &mut SchemaGenerator) -> Schema {
                Vec::<String>::schema(generator)
            }
        }
    )*};
}

texts!(Windows, Dates);

impl<T: Parse> Parse for Vec<T> {
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let elements = Vec::<Element<T>>::deserialize(from)?;
        Ok(elements.into_iter().map(|element| element.0).collect())
    }

    fn show(&self) -> String {
        let all: Vec<_> = self.iter().map(T::show).collect();
        format!("[{}]", all.join(", "))
    }

    #[cfg(test)]
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        let items = T::schema(generator);
        json_schema!({ "type": "array", "items": items })
    }
}

impl Parse for BTreeMap<String, String> {
    const IS_MAP: bool = true;

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let entries = BTreeMap::<String, Element<_>>::deserialize(from)?;
        Ok(entries.into_iter().map(|(name, value)| (name, value.0)).collect())
    }

    fn plain(node: &Node) -> Plain {
        match node.structured() {
            Value::Table(entries) => {
                entries.iter().map(|(name, value)| (name.clone(), value.plain_text())).collect()
            }
            _ => node.plain(),
        }
    }

    fn identity(&self) -> String {
        format!("{self:?}")
    }

    fn show(&self) -> String {
        let secret = |name: &str| {
            let name = name.to_ascii_uppercase();
            ["PASS", "SECRET", "TOKEN", "KEY", "CREDENTIAL"].iter().any(|word| name.contains(word))
        };
        inline_table(
            self.iter().map(|(name, value)| (name, quoted(if secret(name) { "..." } else { value }))),
        )
    }

    #[cfg(test)]
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

impl Parse for BTreeMap<String, Vec<String>> {
    const IS_MAP: bool = true;

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let entries = BTreeMap::<String, Element<_>>::deserialize(from)?;
        Ok(entries.into_iter().map(|(name, value)| (name, value.0)).collect())
    }

    fn show(&self) -> String {
        inline_table(self.iter().map(|(name, values)| (name, values.show())))
    }

    #[cfg(test)]
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

/// As it is, for a crate that knows what it means.
impl Parse for serde_json::Value {
    const IS_MAP: bool = true;

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::deserialize(from)
    }

    fn show(&self) -> String {
        match self {
            Self::Null => "nan".to_owned(),
            Self::String(text) => quoted(text),
            Self::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
                Some(number) => toml_edit::Value::from(number).to_string(),
                None => number.to_string(),
            },
            Self::Bool(yes) => yes.to_string(),
            Self::Array(all) => all.show(),
            Self::Object(all) => inline_table(all.iter().map(|(key, value)| (key, value.show()))),
        }
    }

    #[cfg(test)]
    fn schema(_: &mut SchemaGenerator) -> Schema {
        Schema::default()
    }
}

/// A type with one word for each value.
pub(super) trait Words: Clone + PartialEq + 'static {
    /// The values and their words in the configuration.
    const WORDS: &[(&str, Self)];

    /// The word of this value.
    fn word(&self) -> &'static str {
        Self::WORDS.iter().find(|(_, value)| value == self).map_or("", |(word, _)| word)
    }
}

impl<T: Words> Parse for T {
    const IS_TEXT: bool = true;

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        made(from, |text: String| {
            let known = T::WORDS.iter().find(|(word, _)| *word == text);
            let unknown = || settings::not_known(&format!("{text:?}"), T::WORDS.iter().map(|(word, _)| word));
            known.map(|(_, value)| value.clone()).ok_or_else(unknown)
        })
    }

    fn show(&self) -> String {
        quoted(self.word())
    }

    #[cfg(test)]
    fn schema(_: &mut SchemaGenerator) -> Schema {
        let words: Vec<_> = T::WORDS.iter().map(|(word, _)| *word).collect();
        json_schema!({ "enum": words })
    }
}

/// An enum with its [`Words`].
macro_rules! choice {
    (
        $(#[$doc:meta])*
        $vis:vis enum $name:ident {
            $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Its word in the configuration.
            #[allow(dead_code, reason = "the words of some choices are only read")]
            $vis fn as_str(self) -> &'static str {
                $crate::config::parse::Words::word(&self)
            }
        }

        impl $crate::config::parse::Words for $name {
            const WORDS: &[(&str, Self)] = &[$(($word, Self::$variant)),*];
        }
    };
}
pub(super) use choice;
