//! TOML files: their values, with the line and column of each.

use std::{collections::BTreeMap, ops::Range};

use figment::value::{Dict, Num, Tag, Value};
use toml_edit::{ImDocument, Item, TableLike};

/// Line and column, both counted from 1, the column in characters.
pub(super) type Place = (usize, usize);

/// The positions of a key and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) key: Place,
    pub(super) value: Place,
}

/// The content of a file.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) values: Dict,
    /// By path; an element of an array has its index as the last step.
    pub(super) places: BTreeMap<Vec<String>, Places>,
}

/// A syntax error in a TOML file.
#[derive(Debug)]
pub(super) struct SyntaxError {
    pub(super) place: Place,
    pub(super) message: String,
}

/// Parses a TOML document.
pub(super) fn parse(text: &str) -> Result<Parsed, SyntaxError> {
    let document = ImDocument::parse(text).map_err(|e| SyntaxError {
        place: place(text, e.span().unwrap_or(0..0)),
        message: e.message().trim_end().replace('\n', ", "),
    })?;
    let mut reader = Reader { text, places: BTreeMap::new() };
    let values = reader.table(document.as_table(), &mut Vec::new())?;
    Ok(Parsed { values, places: reader.places })
}

fn place(text: &str, span: Range<usize>) -> Place {
    let before = text.get(..span.start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

struct Reader<'a> {
    text: &'a str,
    places: BTreeMap<Vec<String>, Places>,
}

impl Reader<'_> {
    fn table(&mut self, table: &dyn TableLike, path: &mut Vec<String>) -> Result<Dict, SyntaxError> {
        let mut values = Dict::new();
        for (name, item) in table.iter() {
            path.push(name.to_owned());
            let key = table.key(name).and_then(toml_edit::Key::span);
            let value = item.span().or_else(|| key.clone()).unwrap_or(0..0);
            let key = key.unwrap_or_else(|| value.clone());
            self.places
                .insert(path.clone(), Places { key: place(self.text, key), value: place(self.text, value) });
            values.insert(name.to_owned(), self.item(item, path)?);
            path.pop();
        }
        Ok(values)
    }

    fn item(&mut self, item: &Item, path: &mut Vec<String>) -> Result<Value, SyntaxError> {
        if let Some(table) = item.as_table_like() {
            return Ok(Value::Dict(Tag::Default, self.table(table, path)?));
        }
        if let Some(tables) = item.as_array_of_tables() {
            let mut elements = Vec::new();
            for (index, table) in tables.iter().enumerate() {
                elements.push(self.element(index, table.span(), path, |reader, path| {
                    Ok(Value::Dict(Tag::Default, reader.table(table, path)?))
                })?);
            }
            return Ok(Value::Array(Tag::Default, elements));
        }
        match item.as_value() {
            Some(value) => self.value(value, path),
            None => Ok(Value::Dict(Tag::Default, Dict::new())),
        }
    }

    fn value(&mut self, value: &toml_edit::Value, path: &mut Vec<String>) -> Result<Value, SyntaxError> {
        let tag = Tag::Default;
        Ok(match value {
            toml_edit::Value::String(text) => Value::String(tag, text.value().clone()),
            toml_edit::Value::Integer(number) => Value::Num(tag, Num::I64(*number.value())),
            toml_edit::Value::Float(number) => Value::Num(tag, Num::F64(*number.value())),
            toml_edit::Value::Boolean(yes) => Value::Bool(tag, *yes.value()),
            toml_edit::Value::Datetime(_) => {
                return Err(SyntaxError {
                    place: place(self.text, value.span().unwrap_or(0..0)),
                    message: "no key takes a date or a time of day; put a string in quotes".into(),
                });
            }
            toml_edit::Value::Array(array) => {
                let mut elements = Vec::new();
                for (index, element) in array.iter().enumerate() {
                    elements.push(
                        self.element(index, element.span(), path, |reader, path| {
                            reader.value(element, path)
                        })?,
                    );
                }
                Value::Array(tag, elements)
            }
            toml_edit::Value::InlineTable(table) => Value::Dict(tag, self.table(table, path)?),
        })
    }

    fn element(
        &mut self,
        index: usize,
        span: Option<Range<usize>>,
        path: &mut Vec<String>,
        read: impl FnOnce(&mut Self, &mut Vec<String>) -> Result<Value, SyntaxError>,
    ) -> Result<Value, SyntaxError> {
        path.push(index.to_string());
        let at = place(self.text, span.unwrap_or(0..0));
        self.places.insert(path.clone(), Places { key: at, value: at });
        let value = read(self, path)?;
        path.pop();
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(key: &str) -> Vec<String> {
        key.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn every_form_of_a_key_has_its_line_and_column() {
        let parsed = parse(
            "top = 1\n[node]\nid = \"e1\"\nattributes = { rack = \"r7\" }\njob.orders.command = [\"a\",\n  \"b\"]\n",
        )
        .unwrap();
        let at = |key: &str| parsed.places[&path(key)];
        assert_eq!(at("top").key, (1, 1));
        assert_eq!(at("node.id").value, (3, 6));
        assert_eq!(at("node.attributes.rack").key, (4, 16));
        assert_eq!(at("node.job.orders.command").key, (5, 12));
        assert_eq!(at("node.job.orders.command.1").value, (6, 3));
    }

    #[test]
    fn columns_are_characters_not_bytes() {
        let parsed = parse("a = { \"\u{fc}\u{fc}\" = 1, b = 2 }").unwrap();
        assert_eq!(parsed.places[&path("a.b")].key, (1, 17));
    }

    #[test]
    fn broken_toml_is_refused_at_its_place() {
        let error = parse("[node]\nid = \n").unwrap_err();
        assert_eq!(error.place.0, 2, "{error:?}");
        let error = parse("day = 2026-11-21\n").unwrap_err();
        assert_eq!(error.place, (1, 7), "{error:?}");
    }
}
