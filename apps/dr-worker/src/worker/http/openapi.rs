//! `/openapi.json`: the table of endpoints as an OpenAPI document.

use axum::{http::StatusCode, response::Response};
use serde_json::{Map, Value, json};

use super::{
    answer::answer,
    endpoints::{ALL, Access, Answer, Endpoint, JSON},
};

/// The object of every error; `code` is the exit code of the same command.
const ERROR: &[&str] = &["error: string", "code?: integer"];

pub(super) async fn openapi() -> Response {
    answer(StatusCode::OK, &document())
}

fn document() -> Value {
    let paths: Map<_, _> = ALL
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
        "components": { "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } } },
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
    if endpoint.access != Access::Open {
        operation["security"] = json!([{ "token": [] }]);
    }
    operation
}

/// The answers of an endpoint, with the errors that follow from what it takes.
fn responses(endpoint: &Endpoint) -> Value {
    let mut answers: Vec<Answer> = endpoint.answers.to_vec();
    let mut errors: Vec<u16> = Vec::new();
    if !endpoint.parameters.is_empty() {
        errors.extend([400, 404, 503]);
    }
    if endpoint.access != Access::Open {
        errors.extend([401, 403]);
    }
    if endpoint.access == Access::Control {
        errors.extend([409, 413]);
    }
    answers.extend(errors.into_iter().map(|status| (status, JSON, ERROR)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_of_the_table_are_those_of_json_schema() {
        let known = ["string", "integer", "boolean", "array", "object", "null"];
        for endpoint in ALL {
            let of_answers = endpoint.answers.iter().flat_map(|(_, _, fields)| *fields);
            for field in endpoint.parameters.iter().chain(endpoint.body).chain(of_answers) {
                let Field { types, .. } = Field::of(field);
                assert!(field.contains(": ") && types.iter().all(|t| known.contains(t)), "{field}");
            }
        }
    }

    #[test]
    fn an_operation_has_what_a_client_must_know() {
        let document = document();
        let switchover = &document["paths"]["/switchover"]["post"];
        assert_eq!(switchover["security"], json!([{ "token": [] }]));
        let body = &switchover["requestBody"]["content"][JSON]["schema"];
        assert_eq!(body["properties"]["slot"], json!({ "type": "integer" }));
        assert_eq!((&body["required"], &body["additionalProperties"]), (&json!([]), &json!(false)));
        let statuses: Vec<_> = switchover["responses"].as_object().unwrap().keys().collect();
        assert_eq!(statuses, ["200", "202", "400", "401", "403", "404", "409", "413", "503"]);
        let request = &document["paths"]["/requests/{id}"]["get"];
        assert!(request["security"].is_null());
        assert_eq!(request["parameters"][1]["in"], "path");
    }
}
