//! The endpoints: one table, for the router, for `/openapi.json` and for the answer to an unknown path.

use std::future::{Ready, ready};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    handler::Handler,
    http::StatusCode,
    middleware::{from_fn_with_state, map_response},
    response::Response,
    routing::{MethodFilter, MethodRouter, on},
};

use super::{
    access,
    answer::{self, answer, refuse},
    app::App,
    cluster, config, control,
    endpoint::{Access, Answer, Endpoint, JSON},
    events, explain, logs, metrics, openapi, page, roles,
    status::status as own_status,
};

const JOB: &[&str] = &["job: string"];

const READY: &[&str] = &["ready: boolean", "problem: string|null"];

const ROLE: &[&str] = &[
    "job: string",
    "member: string",
    "site: string",
    "role: string",
    "slot: integer|null",
    "term: integer",
    "fencing_token: integer|null",
    "health: string",
    "stopped: object|null",
    "lease_remaining_ms: integer|null",
];

/// A request for a move, and what there is of it if nothing was filed.
const MOVES: &[Answer] = &[
    (202, JSON, &["election: string", "request: string", "outcome: object", "planned_for?: string"]),
    DONE,
    (200, JSON, &["election: string", "request: null", "taken_from: string"]),
];

const ORDERED: &[Answer] = &[(
    202,
    JSON,
    &[
        "election: string",
        "request: string",
        "outcome: object",
        "changed: boolean",
        "mode: string",
        "drained: array",
        "failed_sites: array",
        "maintenance: array",
        "preferred_site: string|null",
        "site_order: array",
    ],
)];

const SWITCHOVER: &[&str] = &[
    "job?: string",
    "to?: string",
    "to_site?: string",
    "from?: string",
    "slot?: integer",
    "accept_loss?: boolean",
    "reason?: string",
    "at?: string",
    "within?: string",
];

const FAILOVER: &[&str] = &[
    "job?: string",
    "to?: string",
    "to_site?: string",
    "from?: string",
    "slot?: integer",
    "accept_loss?: boolean",
    "reason?: string",
    "force?: boolean",
    "now?: boolean",
];

/// A request that was filed.
const FILED: Answer = (202, JSON, &["election: string", "request: string", "outcome: object"]);

/// What is answered instead if there is nothing to do.
const DONE: Answer = (200, JSON, &["election: string", "request: null", "outcome: object"]);

const RESTART: &[&str] = &["job?: string", "from?: string", "slot?: integer", "reason?: string"];

const STOP: &[&str] = &["job?: string", "reason?: string"];

const fn status(
    path: &'static str,
    summary: &'static str,
    parameters: &'static [&'static str],
    answers: &'static [Answer],
    route: fn() -> MethodRouter<App>,
) -> Endpoint {
    Endpoint { path, summary, access: Access::Status, parameters, body: &[], answers, route }
}

const fn health(
    path: &'static str,
    summary: &'static str,
    parameters: &'static [&'static str],
    answers: &'static [Answer],
    route: fn() -> MethodRouter<App>,
) -> Endpoint {
    Endpoint { access: Access::Health, ..status(path, summary, parameters, answers, route) }
}

const fn control(
    path: &'static str,
    summary: &'static str,
    body: &'static [&'static str],
    answers: &'static [Answer],
    route: fn() -> MethodRouter<App>,
) -> Endpoint {
    Endpoint { path, summary, access: Access::Control, parameters: JOB, body, answers, route }
}

/// All endpoints.
pub(super) const ALL: &[Endpoint] = &[
    status("/", "The status page.", &[], &[(200, "text/html; charset=utf-8", &[])], || get(page::page)),
    health(
        "/leader",
        "200 on the member that is READY leader with a valid lease and a job that runs, else 503.",
        JOB,
        &[(200, JSON, ROLE), (503, JSON, ROLE)],
        || get(roles::leader),
    ),
    health(
        "/standby",
        "200 on a standby that is connected and fit, else 503.",
        JOB,
        &[(200, JSON, ROLE), (503, JSON, ROLE)],
        || get(roles::standby),
    ),
    health("/liveness", "200 while the process answers.", &[], &[(200, JSON, &["alive: boolean"])], || {
        get(roles::liveness)
    }),
    health(
        "/readiness",
        "200 while it is connected and has joined all its elections, else 503; 503 too while the disk of its state directory hangs.",
        &[],
        &[(200, JSON, READY), (503, JSON, READY)],
        || get(roles::readiness),
    ),
    status(
        "/status",
        "This member, its jobs and their processes.",
        &[],
        &[(
            200,
            JSON,
            &[
                "member: string",
                "site: string",
                "session: string",
                "lease_remaining_ms: integer|null",
                "jobs: object",
                "problem: string|null",
                "software: string",
            ],
        )],
        || get(own_status),
    ),
    status(
        "/cluster",
        "All members and the decision, as `list --output json`.",
        JOB,
        &[(
            200,
            JSON,
            &[
                "election: string",
                "root: string",
                "recipe: string",
                "term: integer",
                "elector: string|null",
                "decided_by: string|null",
                "slots: array",
                "skipped: object|null",
                "members: array",
                "absent: array",
                "exclusions: array",
                "failures: array",
                "mode: string",
                "stopped: object|null",
                "maintenance: array",
                "drained: array",
                "preferred_site: string|null",
                "site_order: array",
                "stay: array",
                "confirmed: array",
                "latest_order: object",
                "failed_sites: array",
                "unwell_sites: array",
                "site_failures: array",
                "requests: array",
                "problems: array",
                "unreadable: array",
            ],
        )],
        || get(cluster::cluster),
    ),
    status(
        "/history",
        "Past leaderships, as `history --output json`.",
        JOB,
        &[(200, JSON, &["election: string", "leaderships: array", "unreadable: array"])],
        || get(cluster::history),
    ),
    status(
        "/explain",
        "Who leads, who would, and what blocks a change, as `explain --output json`.",
        JOB,
        &[(
            200,
            JSON,
            &[
                "election: string",
                "recipe: string",
                "at_ms: integer",
                "mode: string",
                "elector: string|null",
                "next: object",
                "skipped: object|null",
                "other_line: boolean",
                "other_policy: boolean",
                "slots: array",
                "problems: array",
                "unreadable: array",
            ],
        )],
        || get(explain::explain),
    ),
    status(
        "/simulate",
        "Who would lead without a site or member, or with other settings, as `simulate --output json`.",
        &["job: string", "without_site: array", "without: array", "set: array"],
        &[(
            200,
            JSON,
            &[
                "election: string",
                "recipe: string",
                "if: object",
                "unchanged: boolean",
                "elector: string|null",
                "elector_then: string|null",
                "slots: array",
                "notes: array",
            ],
        )],
        || get(explain::simulate),
    ),
    status(
        "/can-restart",
        "200 if this worker may be taken down now, else 503 and why, as `can-restart`.",
        &[],
        &[
            (200, JSON, &["member: string", "can_restart: boolean", "reasons: array"]),
            (503, JSON, &["member: string", "can_restart: boolean", "reasons: array"]),
        ],
        || get(explain::can_restart),
    ),
    Endpoint {
        access: Access::Output,
        ..status(
            "/logs",
            "The last output of a job on this node, oldest line first, as `logs`.",
            &["job: string", "lines: integer"],
            &[(200, JSON, &["member: string", "job: string", "lines: array"])],
            || get(logs::logs),
        )
    },
    Endpoint {
        path: "/config",
        summary: "The configuration that is in force, as `config show --output json`, and its last reload.",
        access: Access::Secret,
        parameters: &[],
        body: &[],
        answers: &[(200, JSON, &["values: array", "reload: object|null", "overlays: object"])],
        route: || get(config::config),
    },
    status("/events", "Server-sent events, one per change.", JOB, &[(200, "text/event-stream", &[])], || {
        get(events::events)
    }),
    status(
        "/metrics",
        "Metrics for Prometheus.",
        &[],
        &[(200, "text/plain; version=0.0.4; charset=utf-8", &[])],
        || get(metrics::render),
    ),
    control("/switchover", "Move leadership to another member, as `switchover`.", SWITCHOVER, MOVES, || {
        post(control::switchover)
    }),
    control(
        "/failover",
        "Move leadership even if the leader or the elector is down, as `failover`.",
        FAILOVER,
        MOVES,
        || post(control::failover),
    ),
    control("/restart", "Restart the job on its leader, as `restart`.", RESTART, &[FILED], || {
        post(control::restart)
    }),
    control("/stop", "Stop the job until it is started, as `stop`.", STOP, &[FILED, DONE], || {
        post(control::stop)
    }),
    control("/start", "Start a stopped job, as `start`.", STOP, &[FILED, DONE], || post(control::start)),
    control(
        "/pause",
        "Start maintenance, as `pause`.",
        &["job?: string", "reason?: string"],
        ORDERED,
        || post(control::pause),
    ),
    control(
        "/resume",
        "End maintenance, as `resume`.",
        &["job?: string", "reason?: string"],
        ORDERED,
        || post(control::resume),
    ),
    status(
        "/requests/{id}",
        "The outcome of a request.",
        JOB,
        &[
            (200, JSON, &["election: string", "request: string", "outcome: object"]),
            (200, JSON, &["election: string", "request: string", "outcome: object", "mode: string"]),
        ],
        || get(control::outcome),
    ),
    status(
        "/openapi.json",
        "This description.",
        &[],
        &[(200, JSON, &["openapi: string", "info: object", "paths: object", "components: object"])],
        || get(openapi),
    ),
];

pub(super) fn router(app: App) -> Router {
    let all = ALL.iter().fold(Router::new(), |router, endpoint| {
        let route = (endpoint.route)();
        router.route(
            endpoint.path,
            match endpoint.access {
                Access::Health => route.fallback(async || answer::not_allowed(READING)),
                Access::Status => {
                    let guarded = route.route_layer(from_fn_with_state(app.clone(), access::status));
                    guarded.fallback(async || answer::not_allowed(READING))
                }
                Access::Output => {
                    let guarded = route.route_layer(from_fn_with_state(app.clone(), access::output));
                    guarded.fallback(async || answer::not_allowed(READING))
                }
                Access::Secret => {
                    let guarded = route.route_layer(from_fn_with_state(app.clone(), access::control));
                    guarded.fallback(async || answer::not_allowed(READING))
                }
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

// Not `async`: the type of the table must not depend on the table.
fn openapi() -> Ready<Response> {
    ready(answer(StatusCode::OK, &openapi::document(ALL)))
}

async fn not_found() -> Response {
    let paths: Vec<_> = ALL.iter().map(|endpoint| endpoint.path).collect();
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

fn post<H, T>(handler: H) -> MethodRouter<App>
where
    H: Handler<T, App>,
    T: 'static,
{
    on(MethodFilter::POST, handler)
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
        types(&openapi::document(ALL)["paths"], &mut found);
        assert!(found.len() > 100, "{found:?}");
        for name in found {
            assert!(["string", "integer", "boolean", "array", "object", "null"].contains(&&*name), "{name}");
        }
    }

    #[test]
    fn an_operation_has_what_a_client_must_know() {
        let document = openapi::document(ALL);
        let switchover = &document["paths"]["/switchover"]["post"];
        assert_eq!(switchover["security"], json!([{ "token": [] }, { "certificate": [] }]));
        let body = &switchover["requestBody"]["content"][JSON]["schema"];
        assert_eq!(body["properties"]["slot"], json!({ "type": "integer" }));
        assert_eq!((&body["required"], &body["additionalProperties"]), (&json!([]), &json!(false)));
        let statuses: Vec<_> = switchover["responses"].as_object().unwrap().keys().collect();
        assert_eq!(statuses, ["200", "202", "400", "401", "403", "404", "409", "413", "415", "503"]);
        let request = &document["paths"]["/requests/{id}"]["get"];
        assert_eq!(request["security"], json!([{}, { "token": [] }, { "certificate": [] }]));
        assert!(document["paths"]["/leader"]["get"]["security"].is_null());
        assert_eq!(request["parameters"][1]["in"], "path");
    }
}
