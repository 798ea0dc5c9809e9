use axum::{
    Json,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::json;

/// An answer that no proxy may cache.
pub(super) fn answer(code: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(body) => {
            let headers = [(header::CACHE_CONTROL, "no-store"), (header::CONTENT_TYPE, "application/json")];
            (code, headers, body).into_response()
        }
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// An error, with its reason.
pub(super) fn refuse(code: StatusCode, why: &str) -> Response {
    (code, [(header::CACHE_CONTROL, "no-store")], Json(json!({ "error": why }))).into_response()
}

pub(super) async fn not_found() -> Response {
    refuse(
        StatusCode::NOT_FOUND,
        "unknown path; valid: /leader, /standby, /liveness, /readiness, /status, /cluster, /history, /explain, /simulate, /can-restart and /metrics",
    )
}

pub(super) async fn not_allowed() -> Response {
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "only GET, HEAD and OPTIONS are allowed");
    response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET,HEAD,OPTIONS"));
    response
}
