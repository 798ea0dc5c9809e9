//! `/openapi.json`: the table of endpoints as an OpenAPI document.

use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use super::endpoint::{Access, Answer, Endpoint, JSON};

/// The object of every error; `code` is the exit code of the same command.
pub(super) const ERROR: &[&str] = &["error: string", "code?: integer"];

/// The description of these endpoints.
pub(super) fn document(endpoints: &[Endpoint]) -> Value {
    let paths: Map<_, _> = endpoints
        .iter()
        .map(|endpoint| {
            let method = if endpoint.access == Access::Control { "post" } else { "get" };
            (endpoint.path.to_owned(), json!({ method: operation(endpoint) }))
        })
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": { "title": "dr-worker", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": { "securitySchemes": {
            "token": { "type": "http", "scheme": "bearer" },
            "certificate": { "type": "mutualTLS" },
        } },
    })
}

fn operation(endpoint: &Endpoint) -> Value {
    let mut parameters: Vec<_> = endpoint
        .parameters
        .iter()
        .map(|parameter| {
            let field = Field::of(parameter);
            json!({ "name": field.name, "in": "query", "schema": field.schema() })
        })
        .collect();
    if endpoint.path.contains("{id}") {
        parameters
            .push(json!({ "name": "id", "in": "path", "required": true, "schema": { "type": "string" } }));
    }
    let mut operation = json!({
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": responses(endpoint),
    });
    if !endpoint.body.is_empty() {
        let mut body = object(endpoint.body);
        body["additionalProperties"] = json!(false);
        operation["requestBody"] = json!({ "content": { JSON: { "schema": body } } });
    }
    // Which of them it is depends on the worker's configuration.
    match endpoint.access {
        Access::Health => {}
        Access::Status => operation["security"] = json!([{}, { "token": [] }, { "certificate": [] }]),
        Access::Output | Access::Secret | Access::Control => {
            operation["security"] = json!([{ "token": [] }, { "certificate": [] }]);
        }
    }
    operation
}

/// The errors that follow from what an endpoint takes.
pub(super) fn errors(endpoint: &Endpoint) -> Vec<u16> {
    let mut errors: Vec<u16> = Vec::new();
    if !endpoint.parameters.is_empty() {
        errors.extend([400, 404, 503]);
    }
    if endpoint.access != Access::Health {
        errors.extend([401, 403]);
    }
    if endpoint.access == Access::Control {
        errors.extend([409, 413, 415]);
    }
    errors
}

/// The answers of an endpoint, with the errors that follow from what it takes.
fn responses(endpoint: &Endpoint) -> Value {
    let mut answers: Vec<Answer> = endpoint.answers.to_vec();
    answers.extend(errors(endpoint).into_iter().map(|status| (status, JSON, ERROR)));
    let mut responses = Map::new();
    for (status, media, fields) in answers {
        let response = responses.entry(status.to_string()).or_insert_with(|| {
            let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
            json!({ "description": reason.unwrap_or_default(), "content": {} })
        });
        let content = &mut response["content"][media];
        if fields.is_empty() {
            *content = json!({ "schema": { "type": "string" } });
            continue;
        }
        match content["schema"]["anyOf"].as_array_mut() {
            Some(several) => several.push(object(fields)),
            None => *content = json!({ "schema": { "anyOf": [object(fields)] } }),
        }
    }
    Value::Object(responses)
}

/// The schema of an object with these fields.
fn object(fields: &[&'static str]) -> Value {
    let fields: Vec<_> = fields.iter().map(|field| Field::of(field)).collect();
    let properties: Map<_, _> = fields.iter().map(|field| (field.name.to_owned(), field.schema())).collect();
    let required: Vec<_> = fields.iter().filter(|field| field.is_required).map(|field| field.name).collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

/// A field, from `name: type`, `name: type|null` or `name?: type`.
struct Field {
    name: &'static str,
    is_required: bool,
    types: Vec<&'static str>,
}

impl Field {
    fn of(text: &'static str) -> Self {
        let (name, types) = text.split_once(": ").unwrap_or((text, "string"));
        let types = types.split('|').collect();
        match name.strip_suffix('?') {
            Some(name) => Self { name, is_required: false, types },
            None => Self { name, is_required: true, types },
        }
    }

    fn schema(&self) -> Value {
        match &self.types[..] {
            ["array"] => json!({ "type": "array", "items": {} }),
            [one] => json!({ "type": one }),
            several => json!({ "type": several }),
        }
    }
}
