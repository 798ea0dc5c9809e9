//! `/openapi.json`: the endpoints as an OpenAPI document.

use axum::http::StatusCode;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    answer::Refusal,
    body,
    endpoint::{Access, Answer, Endpoint, JSON},
};
use crate::schema::{Object, schema_of};

/// The description.
#[derive(Serialize, JsonSchema)]
pub(super) struct Document {
    openapi: &'static str,
    info: Object,
    paths: Object,
    components: Object,
}

/// The description of these endpoints.
pub(super) fn document(endpoints: &[Endpoint]) -> Value {
    let paths: Map<_, _> = endpoints
        .iter()
        .map(|endpoint| {
            let method = endpoint.access.method().to_lowercase();
            (endpoint.path.clone(), json!({ method: operation(endpoint) }))
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

/// The properties of an object, with their schemas.
pub(super) fn properties(schema: &Schema) -> Object {
    schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()
}

fn operation(endpoint: &Endpoint) -> Value {
    let query = endpoint.query.as_ref().map(properties).unwrap_or_default();
    let mut parameters: Vec<_> = query
        .into_iter()
        .map(|(name, schema)| json!({ "name": name, "in": "query", "schema": schema }))
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
    if let Some(declared) = endpoint.operation {
        operation["requestBody"] = json!({ "content": { JSON: { "schema": body::schema(declared) } } });
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
    // Each one refuses a parameter that it does not have.
    let mut errors: Vec<u16> = vec![400];
    if endpoint.query.is_some() || endpoint.operation.is_some() {
        errors.push(404);
    }
    if endpoint.access != Access::Health {
        errors.extend([401, 403, 500]);
    }
    if endpoint.access == Access::Control {
        errors.extend([409, 413, 415]);
    }
    // The only one that needs nothing but the process.
    if endpoint.path != "/liveness" {
        errors.push(503);
    }
    errors.sort_unstable();
    errors
}

/// The answers of an endpoint, with the errors that follow from what it takes.
fn responses(endpoint: &Endpoint) -> Value {
    let mut answers: Vec<Answer> = endpoint.answers.clone();
    let refusal = schema_of::<Refusal<'_>>();
    answers.extend(errors(endpoint).into_iter().map(|status| (status, JSON, Some(refusal.clone()))));
    let mut responses = Map::new();
    for (status, media, schema) in answers {
        let response = responses.entry(status.to_string()).or_insert_with(|| {
            let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
            json!({ "description": reason.unwrap_or_default(), "content": {} })
        });
        let content = &mut response["content"][media];
        let Some(schema) = schema else {
            *content = json!({ "schema": { "type": "string" } });
            continue;
        };
        match content["schema"]["anyOf"].as_array_mut() {
            Some(several) => several.push(schema.into()),
            None => *content = json!({ "schema": { "anyOf": [schema] } }),
        }
    }
    Value::Object(responses)
}
