//! `/config`: the configuration that is in force, as `config show --output json`, what became of its last
//! reload, and the overlay of each job.

use std::{collections::BTreeMap, sync::Arc};

use axum::{extract::State, http::StatusCode, response::Response};
use election_core::internals::record::AppliedOverlay;
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::answer;
use crate::{
    config::Shown,
    schema::Object,
    worker::state::{Reload, Worker},
};

/// The configuration that is in force.
#[derive(Serialize, JsonSchema)]
pub(super) struct InForce<'a> {
    values: &'a [Shown],
    /// What became of the last reload.
    reload: Option<Reload>,
    /// The overlay of each job.
    #[schemars(with = "BTreeMap<String, Option<Object>>")]
    overlays: BTreeMap<&'a str, Option<AppliedOverlay>>,
}

pub(super) async fn config(State(worker): State<Arc<Worker>>) -> Response {
    let config = worker.config();
    let overlays = worker.jobs().iter().map(|job| (job.slot.name(), job.slot.overlay()));
    let reload = worker.last_reload();
    answer(StatusCode::OK, &InForce { values: config.shown(), reload, overlays: overlays.collect() })
}
