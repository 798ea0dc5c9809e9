//! The worker's endpoints: for load balancers, orchestrators, monitoring, and people with curl.

mod answer;
mod cluster;
mod connections;
mod explain;
mod metrics;
mod roles;
mod status;

use std::sync::Arc;

use axum::{
    Router,
    extract::FromRef,
    handler::Handler,
    routing::{MethodFilter, MethodRouter, on},
};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;

use crate::worker::state::Worker;
use connections::Bounded;

#[derive(Clone)]
struct App {
    worker: Arc<Worker>,
    metrics: PrometheusHandle,
}

impl FromRef<App> for Arc<Worker> {
    fn from_ref(app: &App) -> Self {
        Self::clone(&app.worker)
    }
}

impl FromRef<App> for PrometheusHandle {
    fn from_ref(app: &App) -> Self {
        app.metrics.clone()
    }
}

/// Serves the endpoints until it is dropped, to at most `connections` at once.
pub(crate) async fn serve(
    listener: TcpListener,
    connections: usize,
    worker: Arc<Worker>,
    metrics: PrometheusHandle,
) {
    let app = App { worker, metrics };
    let upkeep = metrics::upkeep(app.metrics.clone());
    let server = async {
        if let Err(error) = axum::serve(Bounded::new(listener, connections), router(app)).await {
            tracing::error!(%error, "the HTTP server has ended");
        }
    };
    tokio::join!(server, upkeep);
}

fn router(app: App) -> Router {
    Router::new()
        .route("/leader", read(roles::leader))
        .route("/standby", read(roles::standby))
        .route("/liveness", read(roles::liveness))
        .route("/readiness", read(roles::readiness))
        .route("/status", read(status::status))
        .route("/cluster", read(cluster::cluster))
        .route("/history", read(cluster::history))
        .route("/explain", read(explain::explain))
        .route("/simulate", read(explain::simulate))
        .route("/can-restart", read(explain::can_restart))
        .route("/metrics", read(metrics::render))
        .fallback(answer::not_found)
        .with_state(app)
}

/// GET and HEAD; and OPTIONS with the same status code, for load balancers that use it.
fn read<H, T>(handler: H) -> MethodRouter<App>
where
    H: Handler<T, App>,
    T: 'static,
{
    on(MethodFilter::GET.or(MethodFilter::OPTIONS), handler).fallback(answer::not_allowed)
}
