//! A value of a configuration in any format.

use std::{collections::BTreeMap, fmt};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A value of a configuration before its key gives it a meaning, so that all problems can be reported at once with
/// their keys.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A number without a fraction.
    Whole(i64),
    /// Any other number.
    Number(f64),
    /// Yes or no.
    Bool(bool),
    /// An array.
    List(Vec<Value>),
    /// A table.
    Table(BTreeMap<String, Value>),
}

impl Value {
    /// The value for a message, after 'found'.
    pub fn found(&self) -> String {
        match self {
            Self::Text(text) => format!("{text:?}"),
            Self::Whole(number) => format!("the integer {number}"),
            Self::Number(number) => format!("the number {number}"),
            Self::Bool(yes) => yes.to_string(),
            Self::List(_) => "an array".to_owned(),
            Self::Table(_) => "a table".to_owned(),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Anything)
    }
}

struct Anything;

impl<'de> Visitor<'de> for Anything {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a number, true or false, an array or a table")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Whole(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        i64::try_from(number).map(Value::Whole).map_err(|_| E::custom(format!("{number} is too large")))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Number(number))
    }

    fn visit_bool<E: Error>(self, yes: bool) -> Result<Value, E> {
        Ok(Value::Bool(yes))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(value) = list.next_element()? {
            all.push(value);
        }
        Ok(Value::List(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Value, A::Error> {
        let mut all = BTreeMap::new();
        while let Some((key, value)) = table.next_entry()? {
            all.insert(key, value);
        }
        Ok(Value::Table(all))
    }
}
