//! Which path leads to which handler.

use axum::{
    Router,
    middleware::from_fn_with_state,
    routing::{delete, get, post, put},
};
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::{
    api::{
        agent, audit, boot, clusters, connections, credentials, decisions, energy, explain, export, freeze,
        host_actions, host_bulk, hosts, inventory, me, named, operations, overview, pending, pools, probes,
        search, status, stream, what_if,
    },
    app::App,
    frame, openapi, page,
};

/// Every path that is served, as metrics label them.
pub const PATHS: [&str; 74] = [
    "/health",
    "/livez",
    "/readyz",
    "/metrics",
    "/metrics/hosts",
    "/openapi.json",
    "/api/v1/whoami",
    "/api/v1/clusters",
    "/api/v1/clusters/{cluster_id}",
    "/api/v1/clusters/{cluster_id}/status",
    "/api/v1/clusters/{cluster_id}/status/{controller_name}",
    "/api/v1/clusters/{cluster_id}/nodepools",
    "/api/v1/clusters/{cluster_id}/connection",
    "/api/v1/nodepools",
    "/api/v1/nodepools/{id}",
    "/api/v1/nodepools/{id}/status",
    "/api/v1/nodepools/{id}/status/{controller_name}",
    "/api/v1/nodepools/{id}/scale",
    "/api/v1/operations",
    "/api/v1/operations/{id}",
    "/api/v1/operations/{id}/cancel",
    "/api/v1/hosts",
    "/api/v1/hosts/bulk",
    "/api/v1/hosts/export",
    "/api/v1/hosts/{name}",
    "/api/v1/hosts/{name}/events",
    "/api/v1/hosts/{name}/durations",
    "/api/v1/hosts/{name}/energy",
    "/api/v1/hosts/{name}/hold",
    "/api/v1/hosts/{name}/release",
    "/api/v1/hosts/{name}/maintenance",
    "/api/v1/hosts/{name}/acknowledge",
    "/api/v1/hosts/{name}/approve",
    "/api/v1/hosts/{name}/label",
    "/api/v1/hosts/{name}/power",
    "/api/v1/hosts/{name}/boot",
    "/api/v1/hosts/{name}/boot-token",
    "/api/v1/hosts/{name}/agent/hello",
    "/api/v1/hosts/{name}/agent/taken",
    "/api/v1/inventory",
    "/api/v1/inventory/config",
    "/api/v1/discover",
    "/api/v1/racks",
    "/api/v1/racks/{name}",
    "/api/v1/boot-profiles",
    "/api/v1/boot-profiles/{name}",
    "/api/v1/credentials",
    "/api/v1/credentials/{name}",
    "/api/v1/credentials/{name}/rotate",
    "/api/v1/decisions",
    "/api/v1/decisions/{id}",
    "/api/v1/decisions/{id}/replay",
    "/api/v1/decisions/{id}/compare",
    "/api/v1/explain/pod/{namespace}/{name}",
    "/api/v1/explain/node/{name}",
    "/api/v1/explain/host/{name}",
    "/api/v1/explain/pool/{id}",
    "/api/v1/explain/decision/{id}",
    "/api/v1/overview",
    "/api/v1/pending",
    "/api/v1/energy",
    "/api/v1/history",
    "/api/v1/search",
    "/api/v1/stream",
    "/api/v1/what-if",
    "/api/v1/me",
    "/api/v1/sign-in",
    "/api/v1/settings",
    "/api/v1/hosts/{name}/transcript",
    "/api/v1/freeze",
    "/api/v1/audit",
    "/api/v1/audit/verify",
    "/api/v1/store/export",
    "/docs",
];

/// The noun that the seed uses for hosts; every path under it leads to the same handlers.
const HOSTS_ALIAS: &str = "/api/v1/baremetalnodes";

/// A matched path as a label: one of ours, or `other`.
pub fn known_route(path: &str) -> &'static str {
    let alias = path.strip_prefix(HOSTS_ALIAS).map(|rest| format!("/api/v1/hosts{rest}"));
    let path = alias.as_deref().unwrap_or(path);
    PATHS.iter().find(|known| **known == path).copied().unwrap_or("other")
}

/// The paths of hosts under one noun.
fn host_routes(root: &str) -> Router<App> {
    let at = |rest: &str| format!("{root}{rest}");
    Router::new()
        .route(root, get(hosts::list).post(hosts::create))
        .route(&at("/bulk"), post(host_bulk::register).patch(host_bulk::patch))
        .route(&at("/export"), get(host_bulk::export))
        .route(&at("/{name}"), get(hosts::read).put(hosts::replace).patch(hosts::patch).delete(hosts::delete))
        .route(&at("/{name}/events"), get(host_actions::events))
        .route(&at("/{name}/durations"), get(host_actions::durations))
        .route(&at("/{name}/energy"), get(energy::of_host))
        .route(&at("/{name}/transcript"), get(me::transcript))
        .route(&at("/{name}/hold"), post(host_actions::hold))
        .route(&at("/{name}/release"), post(host_actions::release))
        .route(&at("/{name}/maintenance"), post(host_actions::maintenance))
        .route(&at("/{name}/acknowledge"), post(host_actions::acknowledge))
        .route(&at("/{name}/approve"), post(host_actions::approve))
        .route(&at("/{name}/label"), post(host_actions::label))
        .route(&at("/{name}/power"), post(host_actions::power))
        .route(&at("/{name}/boot-token"), post(boot::make_token))
}

/// The rest of the inventory.
fn inventory_routes() -> Router<App> {
    Router::new()
        .route("/api/v1/inventory", get(inventory::read))
        .route("/api/v1/inventory/config", put(inventory::configure))
        .route("/api/v1/discover", post(inventory::discover))
        .route("/api/v1/racks", get(named::racks::list).post(named::racks::create))
        .route(
            "/api/v1/racks/{name}",
            get(named::racks::read)
                .put(named::racks::replace)
                .patch(named::racks::patch)
                .delete(named::racks::delete),
        )
        .route("/api/v1/boot-profiles", get(named::profiles::list).post(named::profiles::create))
        .route(
            "/api/v1/boot-profiles/{name}",
            get(named::profiles::read)
                .put(named::profiles::replace)
                .patch(named::profiles::patch)
                .delete(named::profiles::delete),
        )
        .route("/api/v1/credentials", get(credentials::list).post(credentials::create))
        .route(
            "/api/v1/credentials/{name}",
            get(credentials::read).put(credentials::rotate).delete(credentials::delete),
        )
        .route("/api/v1/credentials/{name}/rotate", post(credentials::rotate))
}

/// What pages are made of.
fn page_routes() -> Router<App> {
    Router::new()
        .route("/api/v1/overview", get(overview::read))
        .route("/api/v1/pending", get(pending::read))
        .route("/api/v1/energy", get(energy::read))
        .route("/api/v1/history", get(energy::history))
        .route("/api/v1/search", get(search::search))
        .route("/api/v1/stream", get(stream::stream))
        .route("/api/v1/what-if", post(what_if::ask))
        .route("/api/v1/me", get(me::me))
        .route("/api/v1/settings", get(me::settings))
}

/// Boot progress: a host's own token is enough for it.
fn boot_routes(app: &App) -> Router<App> {
    let path = |root: &str| format!("{root}/{{name}}/boot");
    Router::new()
        .route(&path("/api/v1/hosts"), post(boot::report).get(boot::read))
        .route(&path(HOSTS_ALIAS), post(boot::report).get(boot::read))
        .route_layer(from_fn_with_state(app.clone(), boot::guard))
}

/// Agents on hosts: their own key is what proves them.
fn agent_routes() -> Router<App> {
    let path = |root: &str, rest: &str| format!("{root}/{{name}}/agent/{rest}");
    let under = |root: &str| {
        Router::new()
            .route(&path(root, "hello"), post(agent::hello))
            .route(&path(root, "taken"), post(agent::taken))
    };
    under("/api/v1/hosts").merge(under(HOSTS_ALIAS))
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
        .route(
            "/api/v1/clusters/{cluster_id}/connection",
            get(connections::read).put(connections::write).delete(connections::delete),
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
        .route("/api/v1/store/export", get(export::export))
        .route("/api/v1/operations/{id}/cancel", post(operations::cancel))
        .merge(host_routes("/api/v1/hosts"))
        .merge(host_routes(HOSTS_ALIAS))
        .merge(inventory_routes())
        .merge(page_routes());
    let api = if app.identity.is_dev() {
        api
    } else {
        api.route("/metrics", get(probes::metrics)).route("/metrics/hosts", get(probes::host_metrics))
    };
    let api = api.route_layer(from_fn_with_state(app.clone(), frame::authenticated));
    let open = Router::new()
        .route("/health", get(probes::health))
        .route("/livez", get(probes::live))
        .route("/readyz", get(probes::ready))
        .route("/api/v1/sign-in", get(me::sign_in))
        .route("/openapi.json", get(openapi::serve));
    let open = if app.identity.is_dev() {
        open.route("/metrics", get(probes::open_metrics))
            .route("/metrics/hosts", get(probes::open_host_metrics))
    } else {
        open
    };
    let docs: Router<App> = SwaggerUi::new("/docs").config(Config::from("/openapi.json")).into();
    Router::new()
        .merge(api)
        .merge(boot_routes(app))
        .merge(agent_routes())
        .merge(open)
        .merge(docs)
        .fallback(page::serve)
        .layer(from_fn_with_state(app.clone(), frame::outer))
        .with_state(app.clone())
}
