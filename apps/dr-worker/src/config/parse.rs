//! Typed values from values of the tree, or a message with what would be valid.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use election_core::{
    config::{MemberId, SiteId},
    internals::calendar::Windows,
};

#[cfg(test)]
use schemars::{Schema, SchemaGenerator, json_schema};

use super::{
    dates::Dates,
    tree::{Node, Origin, Value},
};

pub(super) const MILLISECOND: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);

/// A value of another type or out of range.
#[derive(Debug)]
pub(super) struct Mismatch {
    pub(super) message: String,
    /// The exact position, if it is inside the value.
    pub(super) at: Option<Origin>,
}

impl From<String> for Mismatch {
    fn from(message: String) -> Self {
        Self { message, at: None }
    }
}

/// A type of value.
pub(super) trait Parse: Sized {
    /// Takes the value of a node.
    fn parse(node: &Node) -> Result<Self, Mismatch>;

    /// Takes an element of an array.
    fn parse_element(node: &Node) -> Result<Self, Mismatch> {
        Self::parse(node)
    }

    /// As it would be written in a file. Secrets are masked.
    fn show(&self) -> String;

    /// The same with secrets, to compare two values.
    fn identity(&self) -> String {
        self.show()
    }

    /// The JSON Schema of its values.
    #[cfg(test)]
    fn schema(generator: &mut SchemaGenerator) -> Schema;
}

fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

impl Node {
    pub(super) fn expected(&self, what: &str) -> Mismatch {
        let found = match &self.value {
            Value::Text(text) | Value::String(text) => format!("{text:?}"),
            Value::Integer(number) => format!("the integer {number}"),
            Value::Float(number) => format!("the number {number}"),
            Value::Bool(yes) => format!("{yes}"),
            other => other.kind().to_owned(),
        };
        format!("expected {what}, found {found}").into()
    }

    fn text(&self, what: &str) -> Result<String, Mismatch> {
        match &self.value {
            Value::String(text) => Ok(text.clone()),
            // `--set 'node.id="east-1"'` means the same as without the quotes.
            Value::Text(text) if text.len() > 1 && text.starts_with('"') && text.ends_with('"') => {
                match text.parse::<toml_edit::Value>() {
                    Ok(toml_edit::Value::String(inner)) => Ok(inner.into_value()),
                    _ => Ok(text.clone()),
                }
            }
            Value::Text(text) => Ok(text.clone()),
            _ => Err(self.expected(what)),
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
    fn parse(node: &Node) -> Result<Self, Mismatch> {
        let text = node.text("a string in quotes")?;
        if text.is_empty() {
            return Err("it is empty; leave the key out instead".to_owned().into());
        }
        Ok(text)
    }

    fn parse_element(node: &Node) -> Result<Self, Mismatch> {
        // An empty argument of a command is an argument.
        node.text("a string in quotes")
    }

    fn show(&self) -> String {
        quoted(self)
    }

    #[cfg(test)]
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

impl Parse for PathBuf {
    fn parse(node: &Node) -> Result<Self, Mismatch> {
        String::parse(node).map(Self::from)
    }

    fn show(&self) -> String {
        quoted(&self.to_string_lossy())
    }

    #[cfg(test)]
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

impl Parse for bool {
    fn parse(node: &Node) -> Result<Self, Mismatch> {
        match node.structured() {
            Value::Bool(yes) => Ok(yes),
            _ => Err(node.expected("true or false, without quotes")),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }

    #[cfg(test)]
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

impl Parse for i64 {
    fn parse(node: &Node) -> Result<Self, Mismatch> {
        match node.structured() {
            Value::Integer(number) => Ok(number),
            _ => Err(node.expected("an integer, without quotes")),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }

    #[cfg(test)]
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

impl Parse for u32 {
    fn parse(node: &Node) -> Result<Self, Mismatch> {
        let number = i64::parse(node)?;
        Self::try_from(number)
            .map_err(|_| format!("{number} is out of range; 0 to {} is valid", Self::MAX).into())
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
            fn parse(node: &Node) -> Result<Self, Mismatch> {
                u32::parse(node).map(|number| number as Self)
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
    fn parse(node: &Node) -> Result<Self, Mismatch> {
        let text = node.text(DURATION)?;
        humantime::parse_duration(text.trim()).map_err(|_| node.expected(DURATION))
    }

    fn show(&self) -> String {
        quoted(&humantime::format_duration(*self).to_string())
    }

    #[cfg(test)]
    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": r"^\s*([0-9]+\s*[a-zA-Zµ]+\s*)+$" })
    }
}

macro_rules! name {
    ($($type:ty),*) => {$(
        impl Parse for $type {
            fn parse(node: &Node) -> Result<Self, Mismatch> {
                let text = String::parse(node)?;
                Self::new(text).map_err(|e| e.to_string().into())
            }

            fn show(&self) -> String {
                quoted(self.as_str())
            }

            #[cfg(test)]
            fn schema(generator: &mut SchemaGenerator) -> Schema {
                String::schema(generator)
            }
        }
    )*};
}

name!(MemberId, SiteId);

/// A type that is written as an array of texts.
macro_rules! texts {
    ($($type:ty),*) => {$(
        impl Parse for $type {
            fn parse(node: &Node) -> Result<Self, Mismatch> {
                Self::read(&Vec::<String>::parse(node)?).map_err(|e| e.to_string().into())
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
    fn parse(node: &Node) -> Result<Self, Mismatch> {
        let Value::Array(elements) = node.structured() else {
            return Err(node.expected("an array, such as [\"one\", \"two\"]"));
        };
        let parsed = elements.iter().enumerate().map(|(index, element)| {
            T::parse_element(element).map_err(|wrong| Mismatch {
                message: format!("element {}: {}", index + 1, wrong.message),
                at: Some(wrong.at.unwrap_or_else(|| element.origin.clone())),
            })
        });
        parsed.collect()
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
    fn parse(node: &Node) -> Result<Self, Mismatch> {
        let Value::Table(entries) = node.structured() else {
            return Err(node.expected("a table of strings, such as { name = \"value\" }"));
        };
        let parsed = entries.into_iter().map(|(name, entry)| {
            // An empty value is a value in an environment.
            let value = entry.text("a string in quotes").map_err(|wrong| Mismatch {
                message: format!("{name}: {}", wrong.message),
                at: Some(entry.origin.clone()),
            })?;
            Ok((name, value))
        });
        parsed.collect()
    }

    fn identity(&self) -> String {
        format!("{self:?}")
    }

    fn show(&self) -> String {
        let secret = |name: &str| {
            let name = name.to_ascii_uppercase();
            ["PASS", "SECRET", "TOKEN", "KEY", "CREDENTIAL"].iter().any(|word| name.contains(word))
        };
        if self.is_empty() {
            return "{}".to_owned();
        }
        let all: Vec<_> = self
            .iter()
            .map(|(name, value)| {
                let shown = if secret(name) { "..." } else { value };
                format!("{} = {}", toml_edit::Key::new(name), quoted(shown))
            })
            .collect();
        format!("{{ {} }}", all.join(", "))
    }

    #[cfg(test)]
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

impl Parse for BTreeMap<String, Vec<String>> {
    fn parse(node: &Node) -> Result<Self, Mismatch> {
        let Value::Table(entries) = node.structured() else {
            return Err(node.expected("a table of arrays, such as { name = [\"one\", \"two\"] }"));
        };
        let parsed = entries.into_iter().map(|(name, entry)| {
            let values = Vec::parse(&entry).map_err(|wrong| Mismatch {
                message: format!("{name}: {}", wrong.message),
                at: Some(wrong.at.unwrap_or_else(|| entry.origin.clone())),
            })?;
            Ok((name, values))
        });
        parsed.collect()
    }

    fn show(&self) -> String {
        if self.is_empty() {
            return "{}".to_owned();
        }
        let all: Vec<_> = self
            .iter()
            .map(|(name, values)| format!("{} = {}", toml_edit::Key::new(name), values.show()))
            .collect();
        format!("{{ {} }}", all.join(", "))
    }

    #[cfg(test)]
    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

/// As it is, for a crate that knows what it means.
impl Parse for serde_json::Value {
    fn parse(node: &Node) -> Result<Self, Mismatch> {
        let inside = |value: &Node| Self::parse(value);
        Ok(match node.structured() {
            Value::Text(text) | Value::String(text) => Self::String(text),
            Value::Integer(number) => number.into(),
            Value::Float(number) => number.into(),
            Value::Bool(yes) => Self::Bool(yes),
            Value::Array(elements) => Self::Array(elements.iter().map(inside).collect::<Result<_, _>>()?),
            Value::Table(entries) => {
                let entry = |(key, value): (String, Node)| Ok((key, inside(&value)?));
                Self::Object(entries.into_iter().map(entry).collect::<Result<_, Mismatch>>()?)
            }
        })
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
            Self::Array(all) => {
                let all: Vec<_> = all.iter().map(Self::show).collect();
                format!("[{}]", all.join(", "))
            }
            Self::Object(all) if all.is_empty() => "{}".to_owned(),
            Self::Object(all) => {
                let entry = |(key, value): (&String, &Self)| {
                    format!("{} = {}", toml_edit::Key::new(key), value.show())
                };
                let all: Vec<_> = all.iter().map(entry).collect();
                format!("{{ {} }}", all.join(", "))
            }
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
    /// Words of a later version.
    const LATER: &[&str] = &[];

    /// The word of this value.
    fn word(&self) -> &'static str {
        Self::WORDS.iter().find(|(_, value)| value == self).map_or("", |(word, _)| word)
    }
}

impl<T: Words> Parse for T {
    fn parse(node: &Node) -> Result<Self, Mismatch> {
        let text = String::parse(node)?;
        let known = T::WORDS.iter().find(|(word, _)| *word == text);
        known.map(|(_, value)| value.clone()).ok_or_else(|| {
            let valid: Vec<_> = T::WORDS.iter().map(|(word, _)| *word).collect();
            unknown_word(&text, &valid, T::LATER)
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
        later: [$($later:literal),*]
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Its word in the configuration.
            $vis fn as_str(self) -> &'static str {
                $crate::config::parse::Words::word(&self)
            }
        }

        impl $crate::config::parse::Words for $name {
            const WORDS: &[(&str, Self)] = &[$(($word, Self::$variant)),*];
            const LATER: &[&str] = &[$($later),*];
        }
    };
}
pub(super) use choice;

pub(super) fn unknown_word(word: &str, valid: &[impl AsRef<str>], later: &[&str]) -> Mismatch {
    let valid: Vec<_> = valid.iter().map(|word| format!("{:?}", word.as_ref())).collect();
    let what = if later.contains(&word) { "is not supported by this version" } else { "is not known" };
    format!("{word:?} {what}; valid: {}", valid.join(", ")).into()
}
