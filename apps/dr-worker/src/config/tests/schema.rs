//! `config/schema.json`: made of the declared keys.
//!
//! `UPDATE_SCHEMA=1 cargo test -p dr-worker --lib schema` writes it, and `config/base.toml`.

use std::sync::LazyLock;

use serde_json::{Map, Value as Json, json};
use strategies::spec;

use super::{
    super::{key::Shape, tree::Value},
    *,
};

/// The words of a key, by the error of a value that is none.
fn valid_words(key: &str) -> Json {
    let wrong = Map::from_iter([(key.to_owned(), json!(0))]);
    let error = strategies::PolicySpec::read(&wrong, spec::Inputs::ALL).unwrap_err().to_string();
    let (_, valid) = error.split_once("valid: ").unwrap();
    json!({ "enum": serde_json::from_str::<Json>(&format!("[{valid}]")).unwrap() })
}

/// The schema of a key that ranks members: `strategies` reads its values.
fn of_policy(key: &str) -> Option<Json> {
    let words = |words: &mut dyn Iterator<Item = &'static str>| json!({ "enum": words.collect::<Vec<_>>() });
    let pipeline = json!({ "$ref": "#/definitions/pipeline" });
    Some(match key {
        "sites" | "forbidden_sites" => {
            json!({ "type": "array", "items": { "type": "string" }, "uniqueItems": true })
        }
        "site_minimum" => {
            let number = json!({ "type": "integer", "minimum": 1, "maximum": spec::MAX_SITE_MINIMUM });
            json!({ "anyOf": [number, { "type": "object", "additionalProperties": number }] })
        }
        "below_site_minimum" | "on_leader_failure" | "auto_moves" | "spread" => valid_words(key),
        "pipeline" => json!({ "anyOf": [{ "type": "string" }, pipeline] }),
        "pipelines" => json!({ "type": "object", "additionalProperties": pipeline }),
        "rules" => {
            let cause = words(&mut spec::causes());
            let when = json!({
                "description": "The cause of the decision, or several.",
                "anyOf": [cause, { "type": "array", "items": cause, "minItems": 1 }],
            });
            let pipeline = json!({
                "description": "What ranks the members then: a pipeline, or the name of one in `pipelines`.",
                "anyOf": [{ "type": "string" }, pipeline],
            });
            json!({ "type": "array", "items": {
                "type": "object", "required": ["when", "pipeline"], "additionalProperties": false,
                "properties": { "when": when, "pipeline": pipeline },
            } })
        }
        "strategy" => json!({ "type": ["string", "object"] }),
        _ => return None,
    })
}

fn definitions() -> Json {
    let name = json!({ "$ref": "#/definitions/stage" });
    let with_settings = json!({ "type": "object", "required": ["stage"], "properties": { "stage": name } });
    json!({
        "stage": { "enum": spec::stages().collect::<Vec<_>>() },
        "pipeline": { "type": "array", "minItems": 1, "items": { "anyOf": [name, with_settings] } },
    })
}

/// A sentence as one line.
pub(super) fn one_line(sentence: &str) -> String {
    sentence.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The schema of a table with these keys. Values that are taken over from another table have no defaults.
fn of_table(keys: &[Key], is_inherited: bool) -> Json {
    let (mut properties, mut others) = (Map::new(), json!(false));
    for key in keys {
        let is_inherited = is_inherited || key.terms.inherits.is_some();
        let mut schema = match &key.of {
            Of::Table { keys, shape } => {
                let table = of_table(keys, is_inherited);
                if *shape == Shape::List { json!({ "type": "array", "items": table }) } else { table }
            }
            Of::Value { default, schema, .. } => {
                let of_type = schema.as_value();
                let is_typed = of_type.as_object().is_some_and(|of_type| !of_type.is_empty());
                let mut schema = if is_typed { of_type.clone() } else { of_policy(key.name).unwrap() };
                if let Some(default) = default.as_ref().filter(|_| !is_inherited) {
                    schema["default"] = toml_value(default);
                }
                schema
            }
        };
        let sentence = one_line(key.sentence);
        if !sentence.is_empty() {
            schema["description"] = json!(sentence);
        }
        match key.name {
            ANY => others = schema,
            name => drop(properties.insert(name.to_owned(), schema)),
        }
    }
    let mut schema = json!({ "type": "object", "additionalProperties": others });
    if !properties.is_empty() {
        schema["properties"] = Json::Object(properties);
    }
    schema
}

pub(super) fn schema() -> Json {
    let mut schema = of_table(&KEYS, false);
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("Configuration of dr-worker, or one layer of it");
    schema["definitions"] = definitions();
    schema
}

/// A value as written in a file.
fn toml_value(text: &str) -> Json {
    Node { value: Value::Text(text.to_owned()), ..Node::default() }.plain()
}

/// The settings of these sources, merged.
fn merged(sources: &Sources) -> Json {
    let mut problems = Vec::new();
    let root = layers::merge(sources, &mut problems);
    assert_eq!(problems, []);
    root.plain()
}

/// Why these settings do not match the schema.
fn mismatch(settings: &Json) -> Option<String> {
    static SCHEMA: LazyLock<(boon::Schemas, boon::SchemaIndex)> = LazyLock::new(|| {
        let (mut all, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
        compiler.add_resource("schema.json", schema()).unwrap();
        let index = compiler.compile("schema.json", &mut all).unwrap();
        (all, index)
    });
    SCHEMA.0.validate(settings, SCHEMA.1).err().map(|error| format!("{error:#}"))
}

#[test]
fn the_schema_in_the_repository_is_that_of_the_reader() {
    let path = config_dir().join("schema.json");
    let schema = schema();
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(&path, serde_json::to_string_pretty(&schema).unwrap() + "\n").unwrap();
    }
    let written: Json = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(written, schema, "write it with: UPDATE_SCHEMA=1 cargo test -p dr-worker --lib schema");
}

#[test]
fn the_sample_files_match_the_schema_one_by_one_and_merged() {
    for files in [
        &["base.toml"][..],
        &["east.toml"],
        &["west.toml"],
        &["base.toml", "east.toml"],
        &["base.toml", "west.toml"],
    ] {
        assert_eq!(mismatch(&merged(&sample(files))), None, "{files:?}");
    }
    let examples = Given::file(&uncommented());
    assert_eq!(mismatch(&merged(&examples.sources)), None);
}

#[test]
fn what_the_reader_refuses_the_schema_refuses() {
    for wrong in [
        "node.colour=1",
        "job.orders.colour=1",
        "node.priority=high",
        "zookeeper.session_timeout=10",
        "zookeeper.session_timeout=\"ten\"",
        "zookeeper.driver=zk",
        "policy.auto_moves=soon",
        "policy.site_minimum=0",
        "policy.site_minimum={ east = 0 }",
        "policy.below_site_minimum=\"first\"",
        "policy.pipeline=[\"lga\"]",
        "policy.rules=[{ when = \"leader-lsot\", pipeline = [\"class\"] }]",
        "job.orders.policy.on_pause=wait",
        "job.orders.recipe=paxos",
        "job.orders.command=true",
    ] {
        let given = Given::file(SMALL).set(wrong);
        assert!(given.load().is_err(), "{wrong}");
        assert!(mismatch(&merged(&given.sources)).is_some(), "{wrong}");
    }
}
