//! What surrounds every handler: request id, identity, rate limit, error rendering, metrics, access log.

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::{Next, map_response},
    response::{IntoResponse, Response},
};
use futures::FutureExt;
use muster_model::Clock;
use uuid::Uuid;

use crate::{
    app::App,
    error::{ApiError, Code},
    identity::Caller,
    metrics::{RequestLabels, RouteLabels},
    peer::Peer,
};

pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest request id that is taken over from the caller.
const MAX_REQUEST_ID: usize = 128;

/// What time it is where the server lives, when that is not the time of its callers.
const TIME: HeaderName = HeaderName::from_static("x-muster-time");

/// Lets every answer say what time it is here. For a server whose clock runs at another speed than that of its callers.
pub fn telling_time(router: Router, clock: Arc<dyn Clock>) -> Router {
    router.layer(map_response(move |mut response: Response| {
        if let Ok(now) = HeaderValue::from_str(&clock.now().to_string()) {
            response.headers_mut().insert(TIME, now);
        }
        std::future::ready(response)
    }))
}

/// The id under which a request appears in logs, answers and the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(pub Arc<str>);

/// Runs around everything, matched or not.
pub async fn outer(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let started = app.clock.precise();
    let id = request_id(request.headers());
    let method = method_name(request.method());
    let head = request.method() == Method::HEAD;
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("unmatched", |path| crate::routes::known_route(path.as_str()));
    let path = request.uri().path().to_owned();
    request.extensions_mut().insert(RequestId(Arc::clone(&id)));
    app.metrics.in_flight.inc();
    let result = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    app.metrics.in_flight.dec();
    let response = result.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("unknown");
        tracing::error!(request_id = %id, path, panic = text, "a handler panicked; this is a bug");
        ApiError::internal().into_response()
    });
    let response = finish(response, &id, head);
    let took = app.clock.precise().saturating_sub(started);
    let status = response.status();
    app.metrics.request_seconds.get_or_create(&RouteLabels { method, route }).observe(took.as_secs_f64());
    app.metrics.requests.get_or_create(&RequestLabels { method, route, code: status.as_u16() }).inc();
    if status.is_server_error() {
        tracing::warn!(request_id = %id, method, path, status = status.as_u16(), ms = took.as_secs_f64() * 1_000.0, "answered");
    } else {
        tracing::debug!(request_id = %id, method, path, status = status.as_u16(), ms = took.as_secs_f64() * 1_000.0, "answered");
    }
    response
}

/// Runs around every route that needs to know its caller.
pub async fn authenticated(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let caller = {
        let Some(peer) = request.extensions().get::<Peer>().cloned() else {
            tracing::error!("a request came without its peer; this is a bug");
            return ApiError::internal().into_response();
        };
        match app.identity.authenticate(request.headers(), &peer).await {
            Ok(caller) => caller,
            Err(error) => return drain(&app, request, error).await,
        }
    };
    if let Err(wait) = app.rate.take(&caller.name, app.clock.monotonic()) {
        app.metrics.rate_limited.inc();
        let seconds = wait.millis().div_ceil(1000).max(1);
        let error = ApiError::new(Code::RateLimited, "Too many requests")
            .details(format!("this identity may send {} a second", app.limits.requests_per_second))
            .header(header::RETRY_AFTER, &seconds.to_string());
        return drain(&app, request, error).await;
    }
    request.extensions_mut().insert::<Arc<Caller>>(Arc::new(caller));
    next.run(request).await
}

/// Answers without a handler. A small body is read first, so that the connection can be used again.
async fn drain(app: &App, request: Request, error: ApiError) -> Response {
    const SMALL: usize = 64 * 1024;
    let read = axum::body::to_bytes(request.into_body(), SMALL);
    // Whoever is refused may not hold the connection any longer than others.
    let _ = tokio::time::timeout(app.limits.body_timeout.as_std(), read).await;
    error.into_response()
}

fn request_id(headers: &HeaderMap) -> Arc<str> {
    let sent = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(|id| {
        !id.is_empty()
            && id.len() <= MAX_REQUEST_ID
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:/+=".contains(&b))
    });
    sent.map_or_else(|| Uuid::new_v4().to_string().into(), Into::into)
}

fn finish(response: Response, id: &str, head: bool) -> Response {
    let error = response.extensions().get::<Arc<ApiError>>().cloned().or_else(|| foreign(&response));
    let mut response = match error {
        None => response,
        Some(error) => {
            let (mut parts, _) = response.into_parts();
            parts.status = error.code.status();
            parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            parts.headers.remove(header::CONTENT_LENGTH);
            let body = if head { Body::empty() } else { Body::from(error.render(id)) };
            Response::from_parts(parts, body)
        }
    };
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID, id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Refusals that the router itself makes, in our envelope.
fn foreign(response: &Response) -> Option<Arc<ApiError>> {
    if response.headers().contains_key(header::CONTENT_TYPE) {
        return None;
    }
    match response.status() {
        // The router adds `Allow` itself, after us.
        StatusCode::METHOD_NOT_ALLOWED => Some(Arc::new(
            ApiError::new(Code::MethodNotAllowed, "Method not allowed")
                .details("the header Allow names the methods that this path takes"),
        )),
        StatusCode::NOT_FOUND => Some(Arc::new(ApiError::not_found("Path"))),
        _ => None,
    }
}

/// Methods as labels: a made-up method must not make a new series.
pub fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "OTHER",
    }
}
