//! `/config`: the configuration that is in force, as `config show --output json`, and what became of its last reload.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use serde_json::json;

use super::answer::answer;
use crate::worker::state::Worker;

pub(super) async fn config(State(worker): State<Arc<Worker>>) -> Response {
    let config = worker.config();
    answer(StatusCode::OK, &json!({ "values": config.shown(), "reload": worker.last_reload() }))
}
