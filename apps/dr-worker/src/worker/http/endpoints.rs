//! The endpoints: one table, for the router and for what describes it.

use axum::{
    Router,
    extract::DefaultBodyLimit,
    handler::Handler,
    middleware::from_fn_with_state,
    routing::{MethodFilter, MethodRouter, on},
};

use super::{App, access, answer, cluster, config, control, events, explain, metrics, page, roles, status};

/// An endpoint.
pub(super) struct Endpoint {
    pub(super) path: &'static str,
    routes: fn(&App) -> MethodRouter<App>,
}

const fn endpoint(path: &'static str, routes: fn(&App) -> MethodRouter<App>) -> Endpoint {
    Endpoint { path, routes }
}

/// All endpoints.
pub(super) const ALL: &[Endpoint] = &[
    endpoint("/", |_| read(page::page)),
    endpoint("/leader", |_| read(roles::leader)),
    endpoint("/standby", |_| read(roles::standby)),
    endpoint("/liveness", |_| read(roles::liveness)),
    endpoint("/readiness", |_| read(roles::readiness)),
    endpoint("/status", |_| read(status::status)),
    endpoint("/cluster", |_| read(cluster::cluster)),
    endpoint("/history", |_| read(cluster::history)),
    endpoint("/explain", |_| read(explain::explain)),
    endpoint("/simulate", |_| read(explain::simulate)),
    endpoint("/config", |app| {
        read(config::config).route_layer(from_fn_with_state(app.clone(), access::control))
    }),
    endpoint("/events", |_| read(events::events)),
    endpoint("/metrics", |_| read(metrics::render)),
    endpoint("/switchover", |app| change(app, control::switchover)),
    endpoint("/failover", |app| change(app, control::failover)),
    endpoint("/pause", |app| change(app, control::pause)),
    endpoint("/resume", |app| change(app, control::resume)),
    endpoint("/requests/{id}", |_| read(control::outcome)),
];

pub(super) fn router(app: App) -> Router {
    let all = ALL
        .iter()
        .fold(Router::new(), |router, endpoint| router.route(endpoint.path, (endpoint.routes)(&app)));
    all.fallback(answer::not_found).with_state(app)
}

/// GET and HEAD; and OPTIONS with the same status code, for load balancers that use it.
fn read<H, T>(handler: H) -> MethodRouter<App>
where
    H: Handler<T, App>,
    T: 'static,
{
    on(MethodFilter::GET.or(MethodFilter::OPTIONS), handler)
        .fallback(async || answer::not_allowed("GET,HEAD,OPTIONS"))
}

/// POST, with a token.
fn change<H, T>(app: &App, handler: H) -> MethodRouter<App>
where
    H: Handler<T, App>,
    T: 'static,
{
    on(MethodFilter::POST, handler)
        .layer(DefaultBodyLimit::max(control::LONGEST_BODY))
        .route_layer(from_fn_with_state(app.clone(), access::control))
        .fallback(async || answer::not_allowed("POST"))
}
