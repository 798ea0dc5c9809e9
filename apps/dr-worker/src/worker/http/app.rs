//! What handlers get.

use std::sync::Arc;

use axum::extract::FromRef;
use metrics_exporter_prometheus::PrometheusHandle;

use super::{events::Hub, refusals::Refusals};
use crate::worker::state::Worker;

/// The state of the server.
#[derive(Clone)]
pub(super) struct App {
    pub(super) worker: Arc<Worker>,
    pub(super) metrics: PrometheusHandle,
    pub(super) events: Arc<Hub>,
    pub(super) refusals: Arc<Refusals>,
}

impl FromRef<App> for Arc<Worker> {
    fn from_ref(app: &App) -> Self {
        Self::clone(&app.worker)
    }
}

impl FromRef<App> for Arc<Hub> {
    fn from_ref(app: &App) -> Self {
        Self::clone(&app.events)
    }
}
