//! Which path leads to which handler.

use axum::{
    Router,
    middleware::from_fn_with_state,
    routing::{delete, get, post},
};
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::{
    api::{audit, clusters, decisions, explain, export, freeze, operations, pools, probes, status},
    app::App,
    frame, openapi,
};

/// Every path that is served, as metrics label them.
pub const PATHS: [&str; 32] = [
    "/health",
    "/livez",
    "/readyz",
    "/metrics",
    "/openapi.json",
    "/api/v1/whoami",
    "/api/v1/clusters",
    "/api/v1/clusters/{cluster_id}",
    "/api/v1/clusters/{cluster_id}/status",
    "/api/v1/clusters/{cluster_id}/status/{controller_name}",
    "/api/v1/clusters/{cluster_id}/nodepools",
    "/api/v1/nodepools",
    "/api/v1/nodepools/{id}",
    "/api/v1/nodepools/{id}/status",
    "/api/v1/nodepools/{id}/status/{controller_name}",
    "/api/v1/nodepools/{id}/scale",
    "/api/v1/operations",
    "/api/v1/operations/{id}",
    "/api/v1/decisions",
    "/api/v1/decisions/{id}",
    "/api/v1/decisions/{id}/replay",
    "/api/v1/decisions/{id}/compare",
    "/api/v1/explain/pod/{namespace}/{name}",
    "/api/v1/explain/node/{name}",
    "/api/v1/explain/host/{name}",
    "/api/v1/explain/pool/{id}",
    "/api/v1/explain/decision/{id}",
    "/api/v1/freeze",
    "/api/v1/audit",
    "/api/v1/audit/verify",
    "/api/v1/store/export",
    "/docs",
];

/// A matched path as a label: one of ours, or `other`.
pub fn known_route(path: &str) -> &'static str {
    PATHS.iter().find(|known| **known == path).copied().unwrap_or("other")
}

/// The whole service.
pub fn router(app: &App) -> Router {
    let api = Router::new()
        .route("/api/v1/whoami", get(probes::whoami))
        .route("/api/v1/clusters", get(clusters::list).post(clusters::create))
        .route(
            "/api/v1/clusters/{cluster_id}",
            get(clusters::read).put(clusters::replace).patch(clusters::patch).delete(clusters::delete),
        )
        .route("/api/v1/clusters/{cluster_id}/status", get(status::read_cluster).put(status::report_cluster))
        .route(
            "/api/v1/clusters/{cluster_id}/nodepools",
            get(pools::list_of_cluster).post(pools::create_in_cluster),
        )
        .route("/api/v1/nodepools", get(pools::list).post(pools::create))
        .route(
            "/api/v1/nodepools/{id}",
            get(pools::read).put(pools::replace).patch(pools::patch).delete(pools::delete),
        )
        .route("/api/v1/nodepools/{id}/status", get(status::read_pool).put(status::report_pool))
        .route("/api/v1/nodepools/{id}/scale", post(operations::scale))
        .route("/api/v1/operations", get(operations::list))
        .route("/api/v1/operations/{id}", get(operations::read))
        .route("/api/v1/decisions", get(decisions::list))
        .route("/api/v1/decisions/{id}", get(decisions::read))
        .route("/api/v1/decisions/{id}/replay", get(decisions::again))
        .route("/api/v1/decisions/{id}/compare", get(decisions::side_by_side))
        .route("/api/v1/explain/pod/{namespace}/{name}", get(explain::pod))
        .route("/api/v1/explain/node/{name}", get(explain::node))
        .route("/api/v1/explain/host/{name}", get(explain::host))
        .route("/api/v1/explain/pool/{id}", get(explain::pool))
        .route("/api/v1/explain/decision/{id}", get(explain::decision))
        .route("/api/v1/nodepools/{id}/status/{controller_name}", delete(status::forget_pool))
        .route("/api/v1/clusters/{cluster_id}/status/{controller_name}", delete(status::forget_cluster))
        .route("/api/v1/freeze", get(freeze::read).put(freeze::write))
        .route("/api/v1/audit", get(audit::list))
        .route("/api/v1/audit/verify", get(audit::check))
        .route("/api/v1/store/export", get(export::export));
    let api = if app.identity.is_dev() { api } else { api.route("/metrics", get(probes::metrics)) };
    let api = api.route_layer(from_fn_with_state(app.clone(), frame::authenticated));
    let open = Router::new()
        .route("/health", get(probes::health))
        .route("/livez", get(probes::live))
        .route("/readyz", get(probes::ready))
        .route("/openapi.json", get(openapi::serve));
    let open = if app.identity.is_dev() { open.route("/metrics", get(probes::open_metrics)) } else { open };
    let docs: Router<App> = SwaggerUi::new("/docs").config(Config::from("/openapi.json")).into();
    Router::new()
        .merge(api)
        .merge(open)
        .merge(docs)
        .layer(from_fn_with_state(app.clone(), frame::outer))
        .with_state(app.clone())
}
