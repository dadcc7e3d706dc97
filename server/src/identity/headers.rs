//! Reading proof from headers, strictly: what could be read in two ways is refused.

use axum::http::{HeaderMap, header};
use muster_model::identity::Email;

use crate::{error::ApiError, peer::PeerCertificate};

/// The bearer token, if one was sent. Two `Authorization` headers are a fault, another scheme is no token.
pub(super) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let Some(value) = single(headers, header::AUTHORIZATION.as_str())? else { return Ok(None) };
    let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(ApiError::unauthenticated("the Authorization header must be `Bearer TOKEN`"));
    }
    let token = token.trim();
    if token.is_empty() {
        return Err(ApiError::unauthenticated("the bearer token is empty"));
    }
    Ok(Some(token))
}

/// The address in header `name`: exactly one header with exactly one address.
pub(super) fn address(headers: &HeaderMap, name: &str) -> Result<Email, ApiError> {
    let value = single(headers, name)?
        .ok_or_else(|| ApiError::unauthenticated(format!("send your address in the header {name}")))?;
    value.trim().parse().map_err(|_| {
        ApiError::unauthenticated(format!(
            "the header {name} must hold one e-mail address, like user@example.com"
        ))
    })
}

/// Values of a header that may hold a list, separated by commas, in one header line.
pub(super) fn list(headers: &HeaderMap, name: &str) -> Result<Vec<String>, ApiError> {
    Ok(single(headers, name)?
        .map(|value| {
            value.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        })
        .unwrap_or_default())
}

/// The only value of a header; more than one is a fault, because two readers could pick different ones.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ApiError> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(ApiError::invalid(name, format!("the header {name} was sent more than once")));
    }
    first
        .to_str()
        .map(Some)
        .map_err(|_| ApiError::invalid(name, format!("the header {name} must be plain ASCII")))
}

/// Whether a certificate carries one of these names, as common name or DNS name.
pub(super) fn names_any(certificate: &PeerCertificate, allowed: &[String]) -> bool {
    allowed.iter().any(|name| *name == certificate.common_name || certificate.dns_names.contains(name))
}
