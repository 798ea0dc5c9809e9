//! The worker's endpoints: for load balancers, orchestrators, monitoring, and people with curl.

mod access;
mod answer;
mod app;
mod body;
mod cluster;
mod config;
mod connections;
mod control;
mod endpoint;
mod endpoints;
mod events;
mod explain;
mod logs;
mod metrics;
mod openapi;
mod origin;
mod page;
#[cfg(test)]
mod reference;
mod refusals;
mod roles;
mod status;
mod transport;

use std::sync::Arc;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{net::TcpListener, sync::mpsc};

pub(crate) use self::access::exposed;
use crate::worker::state::Worker;
use app::App;
use connections::{BoundedListener, Peer};
use events::Hub;

/// Serves the endpoints until it is dropped, to at most `connections` at once. `next` are listeners that replace the first.
pub(crate) async fn serve(
    listener: TcpListener,
    next: mpsc::Receiver<TcpListener>,
    connections: usize,
    worker: Arc<Worker>,
    metrics: PrometheusHandle,
) {
    access::listens(&worker, &listener);
    let listener = BoundedListener::new(listener, next, access::listens, connections, Arc::clone(&worker));
    let cut = listener.cut_with_worker();
    let events = Arc::new(Hub::new(connections));
    let follow = Arc::clone(&events).follow(Arc::clone(&worker));
    let app = App { worker, metrics, events, refusals: Arc::default() };
    let upkeep = metrics::upkeep(app.metrics.clone());
    let server = async {
        let router = endpoints::router(app).into_make_service_with_connect_info::<Peer>();
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the HTTP server has ended");
        }
    };
    tokio::join!(server, upkeep, follow, cut);
}
