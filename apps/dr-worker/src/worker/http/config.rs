//! `/config`: the configuration that is in force, as `config show --output json`, what became of its last
//! reload, and the overlay of each job.

use std::{collections::BTreeMap, sync::Arc};

use axum::{extract::State, http::StatusCode, response::Response};
use serde_json::json;

use super::answer::answer;
use crate::worker::state::Worker;

pub(super) async fn config(State(worker): State<Arc<Worker>>) -> Response {
    let config = worker.config();
    let overlays = worker.jobs().iter().map(|job| (job.slot.name(), job.slot.overlay()));
    let overlays: BTreeMap<_, _> = overlays.collect();
    let body = json!({ "values": config.shown(), "reload": worker.last_reload(), "overlays": overlays });
    answer(StatusCode::OK, &body)
}
