//! `config/schema.json`: made of the keys that the reader asks for, with the comments of `config/base.toml`.
//!
//! `UPDATE_SCHEMA=1 cargo test -p dr-worker --lib schema` writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Map, Value as Json, json};
use strategies::{AutoMoves, BelowSiteMinimum, OnLeaderFailure, SlotSpread, spec};

use super::{super::tree::Value, *};

/// Each makes the reader ask for keys that a small configuration has not.
pub(super) fn variants() -> Vec<String> {
    let probes = [
        "job.orders.ready",
        "job.orders.liveness",
        "job.orders.fitness",
        "job.orders.drill.probe",
        "node.site_check",
    ];
    let kinds = ["none", "exec", "http", "tcp"];
    let probes = probes.iter().flat_map(|probe| kinds.map(|kind| format!("{probe}={{ kind = \"{kind}\" }}")));
    let hooks =
        ["prepare", "before_takeover", "after_ready", "before_stop", "after_stop", "on_leader_changed"];
    let hooks = hooks.map(|hook| format!("job.orders.hooks.{hook}={{}}"));
    let tables = [
        "job.orders.output={ kind = \"file\" }",
        "job.orders.output={ kind = \"journal\" }",
        "zookeeper.auth={}",
        "zookeeper.tls={}",
        "http.tls={}",
        "job.orders.measure={}",
        "job.orders.fence={}",
        "probes.targets.db={ address = \"db:5432\" }",
        "probes.targets.shop={ url = \"http://shop/\" }",
        "notify.webhook.ops={ url = \"http://alerts/\" }",
        "notify.command={}",
        "drill.quarterly={ job = \"orders\" }",
    ];
    probes.chain(hooks).chain(tables.map(str::to_owned)).collect()
}

/// Defaults that depend on the node or on other keys.
const DERIVED: [&str; 4] = ["node.id", "node.address", "zookeeper.acl", "http.access.control"];

/// The steps to a key; `*` represents a name that the user chooses.
fn steps(key: &str) -> Vec<String> {
    let mut steps: Vec<_> = key.split('.').map(str::to_owned).collect();
    let chosen = match steps.first().map(String::as_str) {
        Some("job") => 1,
        Some("drill") if !["allow", "restarted"].map(Some).contains(&steps.get(1).map(String::as_str)) => 1,
        Some("notify") if steps.get(1).is_some_and(|step| step == "webhook") => 2,
        Some("probes") if steps.get(1).is_some_and(|step| step == "targets") => 2,
        _ => usize::MAX,
    };
    if let Some(step) = steps.get_mut(chosen) {
        *step = "*".to_owned();
    }
    steps
}

/// The part of a schema for these steps.
fn part<'a>(schema: &'a mut Json, steps: &[String]) -> &'a mut Json {
    let Some((step, rest)) = steps.split_first() else { return schema };
    let table = schema.as_object_mut().unwrap();
    table.entry("type").or_insert_with(|| json!("object"));
    let next = if step == "*" {
        let chosen = table.entry("additionalProperties").or_insert_with(|| json!({}));
        // Keys that the user does not choose came first.
        if chosen.is_boolean() {
            *chosen = json!({});
        }
        chosen
    } else {
        table.entry("additionalProperties").or_insert(json!(false));
        let properties = table.entry("properties").or_insert_with(|| json!({}));
        properties.as_object_mut().unwrap().entry(step).or_insert_with(|| json!({}))
    };
    part(next, rest)
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
        "below_site_minimum" => words(&mut BelowSiteMinimum::WORDS.iter().map(|(word, _)| *word)),
        "on_leader_failure" => words(&mut OnLeaderFailure::WORDS.iter().map(|(word, _)| *word)),
        "auto_moves" => words(&mut AutoMoves::WORDS.iter().map(|(word, _)| *word)),
        "spread" => words(&mut SlotSpread::WORDS.iter().map(|(word, _)| *word)),
        "pipeline" => json!({ "anyOf": [{ "type": "string" }, pipeline] }),
        "pipelines" => json!({ "type": "object", "additionalProperties": pipeline }),
        "rules" => {
            let cause = words(&mut spec::causes());
            let when = json!({ "anyOf": [cause, { "type": "array", "items": cause, "minItems": 1 }] });
            let pipeline = json!({ "anyOf": [{ "type": "string" }, pipeline] });
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

/// The comment above each key and table of `config/base.toml`.
fn comments() -> BTreeMap<Vec<String>, String> {
    let (mut table, mut block, mut is_used) = (String::new(), String::new(), false);
    let mut all = BTreeMap::new();
    for line in base_toml().lines() {
        let text = example(line).unwrap_or(line);
        let key = if text.starts_with('[') {
            table = text.trim_matches(['[', ']']).to_owned();
            table.clone()
        } else if let Some(comment) = text.strip_prefix('#') {
            if std::mem::take(&mut is_used) {
                block.clear();
            }
            block = format!("{block}{comment}").trim().to_owned();
            continue;
        } else if let Some((key, _)) = text.split_once('=') {
            format!("{table}.{}", key.trim())
        } else {
            block.clear();
            continue;
        };
        is_used = true;
        if !block.is_empty() {
            all.entry(steps(&key)).or_insert_with(|| block.clone());
        }
        // The comment of a table is not that of its first key.
        if text.starts_with('[') {
            block.clear();
        }
    }
    all
}

/// What a reader of this configuration asks for, and the built-in defaults that it shows.
fn read(given: &Given) -> Findings {
    let mut findings = Findings::default();
    let root = layers::merge(&given.sources, &mut findings.problems);
    Section::read_root(&root, &mut findings, read_worker);
    findings
}

/// The keys that the reader asks for with this setting, with their types.
pub(super) fn all_asked(set: &str) -> BTreeMap<String, Json> {
    let findings = read(&Given::file(SMALL).set(set));
    findings.asked.into_iter().map(|(key, of_type)| (key, of_type.as_value().clone())).collect()
}

/// Every key that the reader asks for.
pub(super) fn all_keys() -> BTreeSet<String> {
    let all = variants().into_iter().map(|set| read(&Given::file(SMALL).set(&set)));
    all.flat_map(|findings| findings.asked).map(|(key, _)| key).collect()
}

pub(super) fn schema() -> Json {
    let mut schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Configuration of dr-worker, or one layer of it",
        "definitions": definitions(),
    });
    let all: Vec<_> = variants().iter().map(|set| read(&Given::file(SMALL).set(set))).collect();
    for (key, of_type) in all.iter().flat_map(|findings| &findings.asked) {
        let steps = steps(key);
        let of_policy = match &steps[..] {
            [.., table, key] if table == "policy" => of_policy(key),
            _ => None,
        };
        let found = of_policy.unwrap_or_else(|| of_type.as_value().clone());
        part(&mut schema, &steps).as_object_mut().unwrap().extend(found.as_object().unwrap().clone());
    }
    for shown in all.iter().flat_map(|findings| &findings.shown) {
        if shown.origin == Origin::BuiltIn && !DERIVED.contains(&shown.key.as_str()) {
            part(&mut schema, &steps(&shown.key))["default"] = toml_value(&shown.value);
        }
    }
    let comments = comments();
    for (steps, comment) in &comments {
        part(&mut schema, steps)["description"] = json!(comment);
    }
    // A job's policy has the keys of [policy].
    for (steps, comment) in comments.iter().filter(|(steps, _)| steps[0] == "policy" && steps.len() == 2) {
        let of_job: Vec<_> = ["job", "*"].map(str::to_owned).into_iter().chain(steps.clone()).collect();
        part(&mut schema, &of_job)["description"] = json!(comment);
    }
    schema
}

/// A value as written in a file.
fn toml_value(text: &str) -> Json {
    json_of(&Node {
        value: Value::Text(text.to_owned()),
        origin: Origin::BuiltIn,
        key_origin: Origin::BuiltIn,
        outlived: false,
    })
}

fn json_of(node: &Node) -> Json {
    match node.structured() {
        Value::Text(text) | Value::String(text) => json!(text),
        Value::Integer(number) => json!(number),
        Value::Float(number) => json!(number),
        Value::Bool(yes) => json!(yes),
        Value::Array(all) => all.iter().map(json_of).collect(),
        Value::Table(all) => {
            Json::Object(all.iter().map(|(key, value)| (key.clone(), json_of(value))).collect::<Map<_, _>>())
        }
    }
}

/// The settings of these sources, merged.
fn merged(sources: &Sources) -> Json {
    let mut problems = Vec::new();
    let root = layers::merge(sources, &mut problems);
    assert_eq!(problems, []);
    json_of(&root)
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

/// The keys of a schema that are no tables, with the schema of each.
fn leaves<'a>(schema: &'a Json, path: &str, all: &mut Vec<(String, &'a Json)>) {
    let inside = schema.get("properties").and_then(Json::as_object).into_iter().flatten();
    let inside: Vec<_> = inside.map(|(key, part)| (key.as_str(), part)).collect();
    let chosen = schema.get("additionalProperties").filter(|part| part.get("properties").is_some());
    if inside.is_empty() && chosen.is_none() {
        all.push((path.to_owned(), schema));
    }
    for (key, part) in inside.into_iter().chain(chosen.map(|part| ("*", part))) {
        leaves(part, format!("{path}.{key}").trim_start_matches('.'), all);
    }
}

/// Keys with an example in `config/base.toml` instead of the default.
const EXAMPLES: [&str; 12] = [
    "drill.*.back",
    "drill.*.blocked_dates",
    "drill.*.mode",
    "drill.*.windows",
    "job.*.as_worker",
    "job.*.env",
    "job.*.fenced",
    "node.attributes",
    "node.site_check.kind",
    "policy.sites",
    "zookeeper.admin",
    "zookeeper.sites",
];

/// `1m` is `60s`.
fn comparable(value: &Json) -> String {
    let duration = value.as_str().and_then(|text| humantime::parse_duration(text).ok());
    duration.map_or_else(|| value.to_string(), |duration| format!("{duration:?}"))
}

#[test]
fn the_sample_file_describes_each_key_and_shows_its_default() {
    let schema = schema();
    let mut all = Vec::new();
    leaves(&schema, "", &mut all);
    let sample = merged(&Given::file(&uncommented()).sources);
    let mut differ = Vec::new();
    for (path, leaf) in all {
        let steps: Vec<_> = path.split('.').map(str::to_owned).collect();
        let mut described = schema.clone();
        let is_described =
            (1..=steps.len()).any(|to| part(&mut described, &steps[..to]).get("description").is_some());
        assert!(is_described, "{path} is not described in config/base.toml");
        let Some(default) = leaf.get("default") else { continue };
        // Of names that the user chooses any will do.
        let shown = steps.iter().try_fold(&sample, |table, step| match step.as_str() {
            "*" => table.as_object()?.values().find(|value| value.is_object()),
            step => table.get(step),
        });
        if shown.is_some_and(|shown| comparable(shown) != comparable(default)) {
            differ.push(path);
        }
    }
    assert_eq!(differ, EXAMPLES, "what config/base.toml shows of these is not the default");
}
