//! Reading proof from headers, strictly: what could be read in two ways is refused.

use axum::http::{HeaderMap, StatusCode, header};

use crate::{
    error::{ApiError, Code},
    peer::PeerCertificate,
};

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

/// The address in header `name`: exactly one header, exactly one address, in lower case.
pub(super) fn address(headers: &HeaderMap, name: &str) -> Result<String, ApiError> {
    let value = single(headers, name)?
        .ok_or_else(|| ApiError::unauthenticated(format!("send your address in the header {name}")))?;
    let address = value.trim().to_ascii_lowercase();
    if is_address(&address) {
        Ok(address)
    } else {
        Err(ApiError::unauthenticated(format!(
            "the header {name} must hold one e-mail address, like user@example.com"
        )))
    }
}

/// Values of a header that may hold a list, separated by commas, in one header line.
pub(super) fn list(headers: &HeaderMap, name: &str) -> Result<Vec<String>, ApiError> {
    Ok(single(headers, name)?
        .map(|value| value.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect())
        .unwrap_or_default())
}

/// The only value of a header; more than one is a fault, because two readers could pick different ones.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ApiError> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(duplicate(name));
    }
    first.to_str().map(Some).map_err(|_| {
        let mut error = ApiError::invalid(name, format!("the header {name} must be plain ASCII"));
        error.code = Code::Validation;
        error
    })
}

fn duplicate(name: &str) -> ApiError {
    debug_assert_eq!(Code::Validation.status(), StatusCode::BAD_REQUEST);
    ApiError::invalid(name, format!("the header {name} was sent more than once"))
}

/// Shaped `x@y.z`: one `@`, a local part, and a domain of at least two non-empty labels.
fn is_address(text: &str) -> bool {
    let Some((local, domain)) = text.split_once('@') else { return false };
    let plain = |c: char| c.is_ascii_alphanumeric() || "._%+-".contains(c);
    !local.is_empty()
        && text.len() <= 254
        && local.chars().all(plain)
        && domain.contains('.')
        && domain.split('.').all(|label| {
            !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        })
}

/// Whether a certificate carries one of these names, as common name or DNS name.
pub(super) fn names_any(certificate: &PeerCertificate, allowed: &[String]) -> bool {
    allowed.iter().any(|name| *name == certificate.common_name || certificate.dns_names.contains(name))
}

#[cfg(test)]
mod tests {
    use super::is_address;

    #[test]
    fn addresses_have_one_reading() {
        for good in ["user@example.com", "a.b+c@sub.example.org", "x@system.local", "controller@system.local"] {
            assert!(is_address(good), "{good} was refused");
        }
        for bad in [
            "", "not-an-email", "a@b", "a@@b.c", "@b.c", "a@", "a@.c", "a@b.", "a b@c.d", "a@b.c,d@e.f",
            "a@b..c", "<a@b.c>", "a@b.c\n", "ü@b.c", "a@b@c.d",
        ] {
            assert!(!is_address(bad), "{bad:?} was accepted");
        }
    }
}
