//! The endpoints: one table, for the router, for `/openapi.json` and for the answer to an unknown path.

use std::{
    future::{Ready, ready},
    sync::Arc,
};

use axum::{
    Router,
    body::Bytes,
    extract::{ConnectInfo, DefaultBodyLimit, Query, Request, State},
    handler::Handler,
    http::StatusCode,
    middleware::{Next, from_fn_with_state, map_response},
    response::{IntoResponse as _, Response},
    routing::{MethodFilter, MethodRouter, on, post},
};
use schemars::JsonSchema;

use super::{
    access,
    answer::{self, answer, refuse},
    app::App,
    cluster, config,
    connections::Peer,
    control,
    endpoint::{Access, Answer, Endpoint, JSON},
    events, explain, logs, metrics, openapi, page,
    roles::{self, JobQuery},
    status::{self, status as own_status},
};
use crate::{
    commands::{
        operation::{Declared, Jobs},
        operations::ALL as OPERATIONS,
    },
    schema::{schema_as_read, schema_of},
    view::{Cluster, Explained, History, Restartable, Simulated},
};

fn answer_of<T: JsonSchema>(status: u16) -> Answer {
    (status, JSON, Some(schema_of::<T>()))
}

/// The same object for yes, and with 503 for no.
fn yes_or_no<T: JsonSchema>() -> Vec<Answer> {
    vec![answer_of::<T>(200), answer_of::<T>(503)]
}

fn status(path: &str, summary: &str, answers: Vec<Answer>, route: MethodRouter<App>) -> Endpoint {
    let (path, summary) = (path.to_owned(), summary.to_owned());
    Endpoint { path, summary, access: Access::Status, query: None, operation: None, answers, route }
}

/// One that answers with this object.
fn reading<T: JsonSchema>(path: &str, summary: &str, route: MethodRouter<App>) -> Endpoint {
    status(path, summary, vec![answer_of::<T>(200)], route)
}

/// The same about the job that the query names.
fn of_job<T: JsonSchema>(path: &str, summary: &str, route: MethodRouter<App>) -> Endpoint {
    reading::<T>(path, summary, route).with_query::<JobQuery>()
}

fn health(path: &str, summary: &str, answers: Vec<Answer>, route: MethodRouter<App>) -> Endpoint {
    Endpoint { access: Access::Health, ..status(path, summary, answers, route) }
}

impl Endpoint {
    fn with_query<T: JsonSchema>(self) -> Self {
        Self { query: Some(schema_as_read::<T>()), ..self }
    }
}

/// An operation by HTTP.
fn operation(declared: &'static Declared) -> Endpoint {
    let route = post(
        async |State(app): State<App>,
               ConnectInfo(peer): ConnectInfo<Peer>,
               Query(which): Query<JobQuery>,
               body: Bytes| { control::carry_out(declared, app.worker, peer, which, body).await },
    );
    let verb = declared.verb;
    let about = declared.command().get_about().map(ToString::to_string).unwrap_or_default();
    let answers = (declared.answers)().into_iter();
    let answers = answers.map(|(status, schema)| (status, JSON, Some(schema))).collect();
    let endpoint = status(&format!("/{verb}"), &format!("{about}, as `{verb}`."), answers, route);
    let endpoint = Endpoint { access: Access::Control, operation: Some(declared), ..endpoint };
    match declared.takes.jobs {
        Jobs::OfRoot => endpoint,
        _ => endpoint.with_query::<JobQuery>(),
    }
}

/// All endpoints.
pub(super) fn all() -> Vec<Endpoint> {
    let operations = OPERATIONS.iter().map(operation);
    let html = vec![(200, "text/html; charset=utf-8", None)];
    let mut all = vec![status("/", "The status page.", html, get(page::page)).with_query::<JobQuery>()];
    all.extend(health_checks());
    all.extend(readings());
    all.extend(operations);
    all.extend([
        of_job::<control::RequestOutcome<'_>>(
            "/requests/{id}",
            "The outcome of a request.",
            get(control::outcome),
        ),
        reading::<control::LastEvacuation>(
            "/evacuation",
            "The last evacuation of a site, and how far it is.",
            get(control::evacuation),
        ),
        reading::<openapi::Document>("/openapi.json", "This description.", get(openapi)),
    ]);
    all
}

/// What load balancers and supervisors ask.
fn health_checks() -> Vec<Endpoint> {
    vec![
        health(
            "/leader",
            "200 on the member that is READY leader with a valid lease and a job that runs, else 503.",
            yes_or_no::<roles::OwnRole<'_>>(),
            get(roles::leader),
        )
        .with_query::<JobQuery>(),
        health(
            "/standby",
            "200 on a standby that is connected and fit, and whose standby program is ready if the job has one, else 503.",
            yes_or_no::<roles::OwnRole<'_>>(),
            get(roles::standby),
        )
        .with_query::<JobQuery>(),
        health(
            "/liveness",
            "200 while the process answers.",
            vec![answer_of::<roles::Alive>(200)],
            get(roles::liveness),
        ),
        health(
            "/readiness",
            "200 while it is connected and has joined all its elections, else 503; 503 too while the disk of its state directory hangs.",
            yes_or_no::<roles::Readiness>(),
            get(roles::readiness),
        ),
    ]
}

/// What programs and people read.
fn readings() -> Vec<Endpoint> {
    let can_restart = "200 if this worker may be taken down now, else 503 and why, as `can-restart`.";
    let output = reading::<logs::Logs<'_>>(
        "/logs",
        "The last output of a job on this node, oldest line first, as `logs`.",
        get(logs::logs),
    );
    let in_force = reading::<config::InForce<'_>>(
        "/config",
        "The configuration that is in force, as `config show --output json`, and its last reload.",
        get(config::config),
    );
    let events = vec![(200, "text/event-stream", None)];
    let metrics = vec![(200, "text/plain; version=0.0.4; charset=utf-8", None)];
    vec![
        reading::<status::MemberStatus<'_>>(
            "/status",
            "This member, its jobs and their processes.",
            get(own_status),
        ),
        of_job::<Cluster>(
            "/cluster",
            "All members and the decision, as `list --output json`.",
            get(cluster::cluster),
        ),
        of_job::<History>("/history", "Past leaderships, as `history --output json`.", get(cluster::history)),
        of_job::<Explained>(
            "/explain",
            "Who leads, who would, and what blocks a change, as `explain --output json`.",
            get(explain::explain),
        ),
        reading::<Simulated>(
            "/simulate",
            "Who would lead without a site or member, or with other settings, as `simulate --output json`.",
            get(explain::simulate),
        )
        .with_query::<explain::Assumed>(),
        status("/can-restart", can_restart, yes_or_no::<Restartable>(), get(explain::can_restart)),
        Endpoint { access: Access::Output, ..output }.with_query::<logs::LogsQuery>(),
        Endpoint { access: Access::Secret, ..in_force },
        status("/events", "Server-sent events, one per change.", events, get(events::events))
            .with_query::<JobQuery>(),
        status("/metrics", "Metrics for Prometheus.", metrics, get(metrics::render)),
    ]
}

pub(super) fn router(app: App) -> Router {
    let all = all().into_iter().fold(Router::new(), |router, Endpoint { path, access, query, route, .. }| {
        let known: Arc<[String]> = query.iter().flat_map(openapi::properties).map(|(name, _)| name).collect();
        // The innermost layer: access comes first, and a refused request is logged.
        let route = route.route_layer(from_fn_with_state(known, known_parameters));
        router.route(
            &path,
            match access {
                Access::Health => reads(route),
                Access::Status => reads(route.route_layer(from_fn_with_state(app.clone(), access::status))),
                Access::Output => reads(route.route_layer(from_fn_with_state(app.clone(), access::output))),
                Access::Secret => reads(route.route_layer(from_fn_with_state(app.clone(), access::control))),
                Access::Control => {
                    let bounded = route.layer(DefaultBodyLimit::max(control::LONGEST_BODY));
                    let guarded = bounded.route_layer(from_fn_with_state(app.clone(), access::control));
                    guarded.fallback(async || answer::not_allowed("POST"))
                }
            },
        )
    });
    all.fallback(not_found).layer(map_response(answer::as_json)).with_state(app)
}

/// Refuses a parameter that the endpoint does not have. If it were ignored, the request would be about more than was meant.
async fn known_parameters(State(known): State<Arc<[String]>>, request: Request, next: Next) -> Response {
    let Query(given) = match Query::<Vec<(String, String)>>::try_from_uri(request.uri()) {
        Ok(given) => given,
        Err(unreadable) => return unreadable.into_response(),
    };
    match given.iter().find(|(name, _)| !known.contains(name)) {
        None => next.run(request).await,
        Some((name, _)) => {
            let valid = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            refuse(StatusCode::BAD_REQUEST, &format!("unknown parameter {name:?}; valid: {valid}"))
        }
    }
}

/// The answer to another method.
fn reads(route: MethodRouter<App>) -> MethodRouter<App> {
    route.fallback(async || answer::not_allowed(READING))
}

// Not `async`: the type of the table must not depend on the table.
fn openapi() -> Ready<Response> {
    ready(answer(StatusCode::OK, &openapi::document(&all())))
}

async fn not_found() -> Response {
    let paths: Vec<_> = all().into_iter().map(|endpoint| endpoint.path).collect();
    refuse(StatusCode::NOT_FOUND, &format!("unknown path; valid: {}", paths.join(", ")))
}

/// The methods that only read.
const READING: &str = "GET,HEAD,OPTIONS";

/// GET and HEAD; and OPTIONS with the same status code, for load balancers that use it.
fn get<H, T>(handler: H) -> MethodRouter<App>
where
    H: Handler<T, App>,
    T: 'static,
{
    on(MethodFilter::GET.or(MethodFilter::OPTIONS), handler)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// All types that a description names.
    fn types(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                for (key, value) in object {
                    match (key.as_str(), value) {
                        ("type", Value::String(one)) => found.push(one.clone()),
                        ("type", Value::Array(several)) => {
                            found.extend(several.iter().filter_map(Value::as_str).map(str::to_owned));
                        }
                        _ => types(value, found),
                    }
                }
            }
            Value::Array(array) => array.iter().for_each(|value| types(value, found)),
            _ => {}
        }
    }

    #[test]
    fn the_types_of_the_table_are_those_of_json_schema() {
        let mut found = Vec::new();
        types(&openapi::document(&all())["paths"], &mut found);
        assert!(found.len() > 100, "{found:?}");
        for name in found {
            assert!(["string", "integer", "boolean", "array", "object", "null"].contains(&&*name), "{name}");
        }
    }

    #[test]
    fn an_operation_has_what_a_client_must_know() {
        let document = openapi::document(&all());
        let switchover = &document["paths"]["/switchover"]["post"];
        assert_eq!(switchover["security"], json!([{ "token": [] }, { "certificate": [] }]));
        let body = &switchover["requestBody"]["content"][JSON]["schema"];
        let slot =
            json!({ "type": "integer", "description": "Slot whose leader it is about, counted from 0" });
        assert_eq!(body["properties"]["slot"], slot);
        assert_eq!((&body["required"], &body["additionalProperties"]), (&json!([]), &json!(false)));
        let statuses: Vec<_> = switchover["responses"].as_object().unwrap().keys().collect();
        assert_eq!(statuses, ["200", "202", "400", "401", "403", "404", "409", "413", "415", "500", "503"]);
        let request = &document["paths"]["/requests/{id}"]["get"];
        assert_eq!(request["security"], json!([{}, { "token": [] }, { "certificate": [] }]));
        assert!(document["paths"]["/leader"]["get"]["security"].is_null());
        assert_eq!(request["parameters"][1]["in"], "path");
    }
}
