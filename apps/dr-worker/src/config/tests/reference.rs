//! `docs/reference/keys.md`: every key, of the schema and of what a change of it takes.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::{
    super::{
        KEYS,
        key::{Effect, find},
    },
    schema,
};
use crate::reference::{cell, compare};

const TITLE: &str = r#"# Configuration keys

A key without a default is not set, unless its meaning names a default. [Configuration](../configuration.md) describes how files
are layered, read again and checked; [config/base.toml](../../config/base.toml) has all keys in one file, and
[config/schema.json](../../config/schema.json) is the JSON Schema for editors. `dr-worker config show` prints every value with its
source.

- NAME is a name of your choice, such as that of a job. A key without a meaning, such as `ready.kind`, is described with its table.
- A duration is a number with a unit: `"250ms"`, `"10s"`, `"1h 30m"`, `"1d"`. A size has one of `B`, `KiB`, `MiB`, `GiB`, `TiB`.
- `DR_WORKER__ZOOKEEPER__ROOT=/dr` sets `zookeeper.root` in the environment, and `--set zookeeper.root=/dr` on the command line.
- A change is *applied* by a [reload](../configuration.md#reload), applied at the *next start of the job*
  (`dr-worker restart`), applied by a reload with a *[handover](../configuration.md#a-reload-with-a-handover)*, as an added or
  removed job is, or needs a *restart of the worker*.

## What needs a restart of the worker

"#;

/// The keys that need a restart of the worker, by the reason; of a table whose keys have one reason, the table.
fn restarts(found: &[(String, Json)]) -> String {
    let (mut reasons, mut tables) = (Vec::<(&str, Vec<String>)>::new(), Vec::<(String, &str)>::new());
    let mut fixed = Vec::new();
    for (path, _) in found {
        let steps: Vec<_> = path.split('.').map(str::to_owned).collect();
        let Some(key) = find(&KEYS, &steps).filter(|key| key.effect == Some(Effect::WorkerRestart)) else {
            continue;
        };
        assert!(!key.reason.is_empty(), "{path} needs a restart of the worker, and no reason is declared");
        let name = format!("`{}`", path.replace('*', "NAME"));
        if key.is_fixed {
            fixed.push(name.clone());
        }
        if tables.iter().any(|(table, reason)| path.starts_with(table.as_str()) && *reason == key.reason) {
            continue;
        }
        if key.is_table {
            tables.push((format!("{path}."), key.reason));
        }
        match reasons.iter_mut().find(|(reason, _)| *reason == key.reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((key.reason, vec![name])),
        }
    }
    let rows = reasons.iter().map(|(reason, names)| format!("| {} | {reason} |\n", names.join(", ")));
    format!(
        "`dr-worker upgrade` applies these without a stop of the jobs, except {}.\n\n| keys | reason |\n|---|---|\n{}",
        fixed.join(", "),
        rows.collect::<String>()
    )
}

/// A part of the configuration that has a heading of its own, and the key in it.
fn place(path: &str) -> (String, &str) {
    let chosen = path.find(".*").map(|at| at + 2);
    let end = chosen.or_else(|| path.find('.')).unwrap_or(path.len());
    (path[..end].replace('*', "NAME"), path[end..].trim_start_matches('.'))
}

/// What a value is, in words.
fn kind(schema: &Json) -> String {
    let all = |of: &Json| of.as_array().into_iter().flatten().map(kind).collect::<Vec<_>>().join(" or ");
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        return if pattern.contains("iB") { "size" } else { "duration" }.to_owned();
    }
    if schema["anyOf"].is_array() {
        return all(&schema["anyOf"]);
    }
    if let Some(definition) = schema["$ref"].as_str() {
        return definition.rsplit('/').next().unwrap_or_default().to_owned();
    }
    match &schema["type"] {
        Json::String(name) => match name.as_str() {
            "array" => format!("array of {}", kind(&schema["items"])),
            "object" if schema["additionalProperties"].is_object() => {
                format!("table of {}", kind(&schema["additionalProperties"]))
            }
            "object" => "table".to_owned(),
            other => other.to_owned(),
        },
        Json::Array(names) => names.iter().filter_map(Json::as_str).collect::<Vec<_>>().join(" or "),
        other => panic!("no type: {other}"),
    }
}

/// All keys and all tables with a description, in order.
fn keys(schema: &Json, path: &str, found: &mut Vec<(String, Json)>) {
    if let Some(each) = schema.get("items").filter(|each| each.get("properties").is_some()) {
        let mut each = each.clone();
        each["description"] = schema["description"].clone();
        return keys(&each, &format!("{path}[]"), found);
    }
    let chosen = schema.get("additionalProperties").filter(|part| part.get("properties").is_some());
    let inside = schema["properties"].as_object().into_iter().flatten();
    let mut inside: Vec<_> = inside.map(|(key, part)| (key.as_str(), part)).collect();
    inside.extend(chosen.map(|part| ("*", part)));
    if !path.is_empty() && (inside.is_empty() || schema.get("description").is_some()) {
        found.push((path.to_owned(), schema.clone()));
    }
    for (key, part) in inside {
        let path = format!("{path}.{key}");
        let path = path.trim_start_matches('.');
        // A job's policy has the keys of [policy].
        if path != "job.*.policy" {
            keys(part, path, found);
        }
    }
}

/// A description, with links to the documents that it names.
fn meaning(schema: &Json) -> String {
    let text = cell(schema["description"].as_str().unwrap_or_default());
    let mut parts = text.split("docs/");
    let mut linked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once(".md").unwrap_or_else(|| panic!("no document: docs/{part}"));
        linked += &format!("[docs/{name}.md](../{name}.md){rest}");
    }
    linked
}

/// A row of the table of a key.
fn row(path: &str, key: &str, schema: &Json) -> String {
    let steps: Vec<_> = path.split('.').map(|step| step.trim_end_matches("[]").to_owned()).collect();
    let effect = match find(&KEYS, &steps).and_then(|found| found.effect) {
        Some(Effect::Applied) => "applied",
        Some(Effect::JobRestart) => "next start of the job",
        Some(Effect::Handover) => "handover",
        Some(Effect::WorkerRestart) => "restart of the worker",
        None => "",
    };
    let kind = match (schema["properties"].is_object(), key.ends_with("[]")) {
        (true, true) => "array of tables".to_owned(),
        (true, false) => "table".to_owned(),
        (false, _) => kind(schema),
    };
    let default = schema.get("default").map(|value| format!("`{value}`")).unwrap_or_default();
    format!("| `{key}` | {} | {} | {effect} | {} |\n", cell(&kind), cell(&default), meaning(schema))
}

#[test]
fn the_reference_has_each_key() {
    let (mut found, mut sections) = (Vec::new(), Vec::<(String, String, String)>::new());
    keys(&schema::schema(), "", &mut found);
    let restarts = restarts(&found);
    for (path, schema) in found {
        let (heading, key) = place(&path);
        let at = sections.iter().position(|(other, ..)| *other == heading).unwrap_or_else(|| {
            sections.push((heading, String::new(), String::new()));
            sections.len() - 1
        });
        let (_, text, rows) = &mut sections[at];
        if key.is_empty() {
            *text = format!("{}\n\n", meaning(&schema));
        } else {
            *rows += &row(&path, key, &schema);
        }
    }
    let mut page = TITLE.to_owned() + &restarts;
    for (heading, text, rows) in sections {
        let head = "| key | type | default | a change is | meaning |\n|---|---|---|---|---|\n";
        write!(page, "\n## {heading}\n\n{text}{head}{rows}").unwrap();
    }
    page += "\n## job.NAME.policy\n\nThe keys of [policy](#policy), for this job instead of all.\n";
    compare("keys.md", &page);
}
