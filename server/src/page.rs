//! The page: its files are in the program, and every path that is nobody else's leads to it.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use sha2::{Digest, Sha256};

use crate::error::ApiError;

/// A file of the page.
struct File {
    name: &'static str,
    bytes: &'static [u8],
    /// The same, compressed, where that is worth it.
    packed: Option<&'static [u8]>,
}

mod built {
    use super::File;
    include!(concat!(env!("OUT_DIR"), "/page.rs"));
}

const INDEX: &str = "index.html";
/// Files under it are named after their content, so that they never change.
const HASHED: &str = "assets/";
/// Only our own origin: no script, style, font, picture or call leaves it, and nobody frames the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; \
connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// What is served when the program was built without the page.
const UNBUILT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Muster</title>\
<h1>Muster serves, without its page</h1><p>This program was built before the page was. Build the page, then the program:</p>\
<pre>make page\ncargo build</pre><p>The API is here all the same: <a href=\"/docs/\">/docs/</a>, and <code>muster get pools</code>.</p></html>";

/// Whether the program carries the page.
pub fn is_built() -> bool {
    find(INDEX).is_some()
}

fn find(name: &str) -> Option<&'static File> {
    built::FILES.iter().find(|file| file.name == name)
}

/// Serves what no route does: the files of the page, and the page itself for every address inside it.
pub async fn serve(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path().trim_start_matches('/');
    let missing = || ApiError::not_found("Path").into_response();
    if method != Method::GET && method != Method::HEAD {
        return missing();
    }
    if let Some(file) = find(path).filter(|file| file.name != INDEX) {
        return answer(file, &headers);
    }
    // Programs that mistype a path are told so; people who follow a link into the page get the page.
    let wants_page = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|accept| accept.contains("text/html"));
    let other = ["api", "docs", "metrics", "assets"];
    let first = path.split('/').next().unwrap_or_default();
    if !wants_page || other.contains(&first) || path.rsplit('/').next().is_some_and(|last| last.contains('.'))
    {
        return missing();
    }
    if let Some(file) = find(INDEX) {
        return answer(file, &headers);
    }
    let mut response = Response::new(Body::from(UNBUILT));
    let kind = HeaderValue::from_static(kind(INDEX));
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    guard(response.headers_mut());
    response
}

fn answer(file: &'static File, headers: &HeaderMap) -> Response {
    let tag = format!("\"{}\"", &hex::encode(Sha256::digest(file.bytes))[..32]);
    let accepts = |name: header::HeaderName, word: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).is_some_and(|text| text.contains(word))
    };
    let same = accepts(header::IF_NONE_MATCH, &tag);
    let packed = file.packed.filter(|_| accepts(header::ACCEPT_ENCODING, "gzip"));
    let body = if same { Body::empty() } else { Body::from(packed.unwrap_or(file.bytes)) };
    let mut response = Response::new(body);
    if same {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let set = response.headers_mut();
    set.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind(file.name)));
    let cache =
        if file.name.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
    set.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        set.insert(header::ETAG, tag);
    }
    if file.packed.is_some() {
        set.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
    if packed.is_some() && !same {
        set.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    guard(set);
    response
}

fn guard(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        Some("json" | "webmanifest") => "application/json",
        Some("png") => "image/png",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(path: &str, accept: &str) -> Response {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
        serve(Method::GET, path.parse().unwrap(), headers).await
    }

    #[tokio::test]
    async fn people_get_the_page_and_programs_are_told_that_a_path_is_wrong() {
        for path in ["/", "/pools", "/hosts/a/", "/decisions/550e8400-1"] {
            let response = get(path, "text/html,application/xhtml+xml").await;
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
            assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        }
        for (path, accept) in [
            ("/", "*/*"),
            ("/pools", "application/json"),
            ("/api/v1/nothing", "text/html"),
            ("/api", "text/html"),
            ("/assets/gone.js", "text/html"),
            ("/favicon.ico", "text/html"),
        ] {
            assert_eq!(get(path, accept).await.status(), StatusCode::NOT_FOUND, "{path} {accept}");
        }
        let response = serve(Method::POST, "/".parse().unwrap(), HeaderMap::new()).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
    }

    /// OPS-U19: what a browser loads before it shows anything.
    #[test]
    fn ops_u19_scripts_and_styles_are_small() {
        let extension = |file: &&File| matches!(file.name.rsplit('.').next(), Some("js" | "css"));
        let code = built::FILES.iter().filter(extension);
        let bytes: usize = code.map(|file| file.packed.map_or(file.bytes.len(), <[u8]>::len)).sum();
        assert!(bytes <= 300 * 1024, "{bytes} bytes of scripts and styles");
    }
}
