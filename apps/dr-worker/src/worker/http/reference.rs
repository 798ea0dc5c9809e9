//! `docs/reference/http.md`: every endpoint.

use std::fmt::Write as _;

use schemars::Schema;
use serde_json::{Value, json};

use super::{
    answer::Refusal,
    body,
    endpoint::{Access, Endpoint},
    endpoints::all,
    openapi::{errors, properties},
};
use crate::{
    reference::{cell, compare},
    schema::schema_of,
};

const TITLE: &str = "# HTTP endpoints

The endpoints of a worker at [`http.listen`](keys.md#http), as `/openapi.json` describes them.
[How the HTTP endpoints work](../http.md) describes their behaviour, [how clients find the leader](../clients.md) what they
are for.

- GET endpoints also answer HEAD and OPTIONS.
- `?job=J` names the job where the query has `job`. It can be left out if there is only one job.
- *Health* is open to everyone; *status* and *control* are as `http.access` says; *output* is as *status*, or as
  *control* where *status* is open.

| endpoint | access | does |
|---|---|---|
";

fn access(endpoint: &Endpoint) -> &'static str {
    match endpoint.access {
        Access::Health => "health",
        Access::Status => "status",
        Access::Output => "output",
        Access::Secret | Access::Control => "control",
    }
}

/// The types of a schema: `string or null`.
fn types(schema: &Value) -> String {
    let several = |key: &str| schema[key].as_array().cloned().unwrap_or_default();
    let parts: Vec<_> = [several("anyOf"), several("oneOf")].concat().iter().map(types).collect();
    let of_type = match &schema["type"] {
        Value::String(one) => vec![one.clone()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => parts,
    };
    let mut types: Vec<_> = of_type;
    types.dedup();
    if types.is_empty() { "any".to_owned() } else { types.join(" or ") }
}

/// The fields of an object with their types; with `optional` which may be absent.
fn fields(schema: &Schema, optional: bool) -> String {
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let field = |(name, schema): (String, Value)| {
        let absent = if !optional || required.contains(&json!(name)) { "" } else { ", optional" };
        format!("`{name}` ({}{absent})", types(&schema))
    };
    properties(schema).into_iter().map(field).collect::<Vec<_>>().join(", ")
}

#[test]
fn the_reference_has_each_endpoint() {
    let mut page = TITLE.to_owned();
    let all = all();
    for endpoint in &all {
        let (method, path) = (endpoint.access.method(), &endpoint.path);
        let anchor: String =
            path.chars().filter(|symbol| symbol.is_alphanumeric() || *symbol == '-').collect();
        let anchor = format!("{}-{anchor}", method.to_lowercase());
        let (access, summary) = (access(endpoint), cell(&endpoint.summary));
        writeln!(page, "| [{method} `{path}`](#{anchor}) | {access} | {summary} |").unwrap();
    }
    for endpoint in &all {
        write!(page, "\n## {} {}\n\n{}\n\n", endpoint.access.method(), endpoint.path, endpoint.summary)
            .unwrap();
        writeln!(page, "- Access: {}", access(endpoint)).unwrap();
        if let Some(query) = &endpoint.query {
            writeln!(page, "- Query: {}", fields(query, false)).unwrap();
        }
        if let Some(declared) = endpoint.operation {
            let body: Schema = body::schema(declared).try_into().unwrap();
            writeln!(page, "- Body, a JSON object: {}", fields(&body, true)).unwrap();
        }
        for (status, media, schema) in &endpoint.answers {
            let of = schema.as_ref().map_or_else(String::new, |schema| format!(": {}", fields(schema, true)));
            writeln!(page, "- {status} `{media}`{of}").unwrap();
        }
        let errors: Vec<_> = errors(endpoint).iter().map(ToString::to_string).collect();
        if !errors.is_empty() {
            writeln!(page, "- Errors {}: {}", errors.join(", "), fields(&schema_of::<Refusal<'_>>(), true))
                .unwrap();
        }
    }
    compare("http.md", &page);
}
