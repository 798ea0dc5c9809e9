//! The body of an operation by HTTP: its arguments as a JSON object, under the rules of the command line.

use std::any::TypeId;

use clap::{Arg, ArgAction};
use serde_json::{Map, Value, json};

use crate::{
    commands::{
        operation::{Asking, Declared},
        options::Options,
    },
    error::Error,
};

/// What a body asks for.
pub(super) struct Asked {
    pub(super) operation: Box<dyn Asking>,
    pub(super) options: Options,
}

/// Reads a body; an empty one has the defaults.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(declared: &Declared, body: &[u8]) -> Result<Asked, Error> {
    let fields = fields(declared);
    let words =
        words(&fields, body).map_err(|why| Error::Usage(format!("the body is not understood: {why}")))?;
    let command = declared.full_command().no_binary_name(true);
    let wrong = |error: clap::Error| Error::Usage(sentence(&error, &fields));
    let matches = command.try_get_matches_from(words).map_err(wrong)?;
    let operation = (declared.read)(&matches).map_err(wrong)?;
    operation.check()?;
    Ok(Asked { operation, options: Options::read(&matches) })
}

/// A body as the words of a command line.
fn words(fields: &[Arg], body: &[u8]) -> Result<Vec<String>, String> {
    let mut body: Map<String, Value> = match body.trim_ascii() {
        [] => Map::new(),
        body => serde_json::from_slice(body).map_err(|error| error.to_string())?,
    };
    let is_known = |key: &String| fields.iter().any(|field| field.get_id() == key.as_str());
    if let Some(unknown) = body.keys().find(|key| !is_known(key)) {
        return Err(format!("unknown field `{unknown}`"));
    }
    let (mut words, mut place) = (Vec::new(), Vec::new());
    for field in fields {
        let name = field.get_id().as_str();
        let value = body.remove(name).unwrap_or_default();
        let found = texts(field, value).map_err(|expected| format!("{name:?} is not {expected}"))?;
        match field.get_long() {
            Some(long) if kind(field) == Kind::Flag => {
                words.extend(found.iter().map(|_| format!("--{long}")))
            }
            Some(long) => words.extend(found.iter().map(|text| format!("--{long}={text}"))),
            // A value that begins with a dash is no option.
            None => place.extend(found.into_iter().flat_map(|text| ["--".to_owned(), text])),
        }
    }
    words.extend(place);
    Ok(words)
}

/// The arguments that can be fields.
fn fields(declared: &Declared) -> Vec<Arg> {
    let (own, mut full) = (declared.command(), declared.full_command());
    full.build();
    let is_field = |argument: &&Arg| {
        let id = argument.get_id().as_str();
        ["job", "reason", "yes"].contains(&id) || own.get_arguments().any(|own| own.get_id() == id)
    };
    full.get_arguments().filter(is_field).cloned().collect()
}

/// The type of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Flag,
    Number,
    Text,
    Texts,
}

fn kind(field: &Arg) -> Kind {
    let is = |id: TypeId| field.get_value_parser().type_id() == id;
    match field.get_action() {
        ArgAction::SetTrue => Kind::Flag,
        ArgAction::Append => Kind::Texts,
        _ if is(TypeId::of::<usize>()) || is(TypeId::of::<u64>()) => Kind::Number,
        _ => Kind::Text,
    }
}

/// The values for the command line.
fn texts(field: &Arg, value: Value) -> Result<Vec<String>, &'static str> {
    match (kind(field), value) {
        (_, Value::Null) | (Kind::Flag, Value::Bool(false)) => Ok(Vec::new()),
        (Kind::Flag, Value::Bool(true)) => Ok(vec![String::new()]),
        (Kind::Number, Value::Number(number)) if number.is_u64() => Ok(vec![number.to_string()]),
        (Kind::Text, Value::String(text)) => Ok(vec![text]),
        (Kind::Texts, Value::Array(values)) => {
            let text = |value: Value| value.as_str().map(str::to_owned).ok_or("an array of strings");
            values.into_iter().map(text).collect()
        }
        (Kind::Flag, _) => Err("true or false"),
        (Kind::Number, _) => Err("a whole number"),
        (Kind::Text, _) => Err("a string"),
        (Kind::Texts, _) => Err("an array of strings"),
    }
}

/// What the parser reports, about fields.
fn sentence(error: &clap::Error, fields: &[Arg]) -> String {
    let text = error.to_string();
    let text = text.trim_start_matches("error: ").split("\n\nUsage:").next().unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    fields.iter().fold(text, |text, field| {
        text.replace(&format!("'{field}'"), &format!("{:?}", field.get_id().as_str()))
    })
}

/// The schema of the body.
pub(super) fn schema(declared: &Declared) -> Value {
    let fields = fields(declared);
    let properties: Map<_, _> = fields
        .iter()
        .map(|field| {
            let mut schema = match kind(field) {
                Kind::Flag => json!({ "type": "boolean" }),
                Kind::Number => json!({ "type": "integer" }),
                Kind::Text => json!({ "type": "string" }),
                Kind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
            };
            let values = field.get_possible_values();
            if kind(field) == Kind::Text && !values.is_empty() {
                schema["enum"] = values.iter().map(|value| value.get_name()).collect();
            }
            schema["description"] = field.get_help().map(ToString::to_string).into();
            (field.get_id().to_string(), schema)
        })
        .collect();
    let required: Vec<_> =
        fields.iter().filter(|field| field.is_required_set()).map(|field| field.get_id().as_str()).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::operations::ALL;

    fn of(verb: &str) -> &'static Declared {
        ALL.iter().find(|declared| declared.verb == verb).unwrap()
    }

    fn words_of(verb: &str, body: &str) -> String {
        words(&fields(of(verb)), body.as_bytes()).unwrap().join(" ")
    }

    #[test]
    fn a_body_is_read_like_the_options_of_the_command() {
        for (verb, body, expected) in [
            ("switchover", "", ""),
            ("switchover", " \n", ""),
            (
                "switchover",
                r#"{"to": "west-1", "slot": 1, "reason": "a drill", "accept_loss": true, "job": "orders"}"#,
                "--to=west-1 --slot=1 --accept-loss --job=orders --reason=a drill",
            ),
            ("failover", r#"{"to_site": "west", "force": true, "now": false}"#, "--to-site=west --force"),
            ("prefer", r#"{"order": ["west", "east"], "reason": null}"#, "--order=west --order=east"),
            ("drain", r#"{"site": "--off", "yes": true}"#, "--yes -- --off"),
        ] {
            assert_eq!(words_of(verb, body), expected, "{verb} {body}");
        }
        for (verb, body) in [
            ("failover", r#"{"force": true, "now": true}"#),
            ("switchover", r#"{"at": "+30m", "within": "10m"}"#),
            ("restart", r#"{"slot": 1, "reason": "new data"}"#),
            ("drain", r#"{"site": "west", "job": "orders"}"#),
            ("prefer", r#"{"off": true}"#),
        ] {
            read(of(verb), body.as_bytes())
                .map(drop)
                .unwrap_or_else(|error| panic!("{verb} {body}: {error}"));
        }
    }

    #[test]
    fn what_is_wrong_with_a_body_is_told_by_its_fields() {
        for (verb, body, part) in [
            ("switchover", r#"{"too": "west-1"}"#, "unknown field `too`"),
            ("switchover", r#"{"wait": true}"#, "unknown field `wait`"),
            ("switchover", r#"{"to": "a", "to_site": "b"}"#, "\"to\" cannot be used with \"to_site\""),
            ("switchover", r#"{"from": "a", "slot": 0}"#, "\"from\" cannot be used with \"slot\""),
            ("switchover", r#"{"force": true}"#, "unknown field `force`"),
            ("failover", r#"{"now": true}"#, "required arguments were not provided: --force"),
            ("switchover", r#"{"to": "a/b"}"#, "invalid value 'a/b' for \"to\""),
            ("switchover", r#"{"to": 1}"#, "\"to\" is not a string"),
            ("switchover", r#"{"slot": "1"}"#, "\"slot\" is not a whole number"),
            ("switchover", r#"{"slot": -1}"#, "\"slot\" is not a whole number"),
            ("failover", r#"{"force": "yes"}"#, "\"force\" is not true or false"),
            ("prefer", r#"{"order": "west"}"#, "\"order\" is not an array of strings"),
            ("prefer", "{}", "required"),
            ("drain", r#"{"site": "-x"}"#, "\"site\""),
            ("switchover", r#"{"at": "tomorrow"}"#, "is not a time"),
            ("switchover", r#"{"at": "+1m", "within": "long"}"#, "\"within\""),
            ("switchover", r#"{"within": "1m"}"#, "--at"),
            ("failover", r#"{"at": "+30m"}"#, "unknown field `at`"),
            ("stop", r#"{"from": "east-1"}"#, "unknown field `from`"),
            ("switchover", "[]x", "not understood"),
            ("switchover", "null", "not understood"),
        ] {
            let why = read(of(verb), body.as_bytes()).map(drop).unwrap_err();
            assert!(matches!(&why, Error::Usage(text) if text.contains(part)), "{verb} {body}: {why}");
        }
    }
}
