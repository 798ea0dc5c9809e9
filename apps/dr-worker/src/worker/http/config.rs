//! `/config`: the effective configuration, as `config show --output json`.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use serde_json::json;

use super::answer::answer;
use crate::worker::state::Worker;

pub(super) async fn config(State(worker): State<Arc<Worker>>) -> Response {
    answer(StatusCode::OK, &json!({ "values": worker.config().shown() }))
}
