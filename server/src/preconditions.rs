//! `If-Match` and `If-None-Match`: strong entity tags made of the object's resource version.

use axum::http::{HeaderMap, HeaderValue, header};

use crate::{
    error::{ApiError, Code},
    identity::single_header,
};

/// What a write demands of the object as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Preconditions {
    if_match: Option<Tags>,
    if_none_match: Option<Tags>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Tags {
    Any,
    These(Vec<String>),
}

/// The entity tag of a resource version.
pub fn etag(resource_version: &str) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{resource_version}\""))
        .expect("a resource version is made of decimal digits")
}

impl Preconditions {
    pub fn read(headers: &HeaderMap) -> Result<Self, ApiError> {
        let read = |name: header::HeaderName| -> Result<Option<Tags>, ApiError> {
            single_header(headers, name.as_str())?.map(|value| tags(name.as_str(), value)).transpose()
        };
        Ok(Self { if_match: read(header::IF_MATCH)?, if_none_match: read(header::IF_NONE_MATCH)? })
    }

    /// Whether the write may only create (`If-None-Match: *`).
    pub fn must_be_new(&self) -> bool {
        self.if_none_match == Some(Tags::Any)
    }

    pub fn has_if_match(&self) -> bool {
        self.if_match.is_some()
    }

    /// Whether the caller has this version already: a read is answered with 304.
    pub fn not_modified(&self, resource_version: &str) -> bool {
        self.if_none_match.as_ref().is_some_and(|tags| tags.contain(resource_version))
    }

    /// Fails unless a write to the object at this version is what the caller wants.
    pub fn check_write(&self, resource_version: &str) -> Result<(), ApiError> {
        if self.if_match.as_ref().is_some_and(|tags| !tags.contain(resource_version)) {
            return Err(ApiError::new(Code::PreconditionFailed, "The object has changed").details(format!(
                "If-Match does not name its present version \"{resource_version}\"; read it again"
            )));
        }
        if self.not_modified(resource_version) {
            return Err(ApiError::new(Code::PreconditionFailed, "The object exists")
                .details(format!("If-None-Match excludes its present version \"{resource_version}\"")));
        }
        Ok(())
    }
}

impl Tags {
    fn contain(&self, resource_version: &str) -> bool {
        match self {
            Self::Any => true,
            Self::These(tags) => tags.iter().any(|tag| tag == resource_version),
        }
    }
}

fn tags(name: &str, value: &str) -> Result<Tags, ApiError> {
    if value.trim() == "*" {
        return Ok(Tags::Any);
    }
    let mut tags = Vec::new();
    for part in value.split(',') {
        let part = part.trim();
        // A weak tag never matches strongly, but it is well-formed: it is read as a tag that fits nothing.
        let (weak, quoted) = part.strip_prefix("W/").map_or((false, part), |rest| (true, rest));
        let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        match inner {
            Some(inner) if !inner.contains('"') => {
                tags.push(if weak && name == header::IF_MATCH.as_str() {
                    String::new()
                } else {
                    inner.to_owned()
                });
            }
            _ => {
                return Err(ApiError::invalid(
                    name,
                    format!("{part:?} is no entity tag; write it in quotes, as the ETag header had it, or *"),
                ));
            }
        }
    }
    Ok(Tags::These(tags))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_compare_with_the_present_version() {
        #[track_caller]
        fn check(name: header::HeaderName, value: &str, write_at_7: bool) {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            let read = Preconditions::read(&headers).unwrap();
            assert_eq!(read.check_write("7").is_ok(), write_at_7, "{value}");
        }
        check(header::IF_MATCH, "\"7\"", true);
        check(header::IF_MATCH, "\"6\", \"7\"", true);
        check(header::IF_MATCH, "*", true);
        check(header::IF_MATCH, "\"6\"", false);
        check(header::IF_MATCH, "W/\"7\"", false);
        check(header::IF_NONE_MATCH, "*", false);
        check(header::IF_NONE_MATCH, "\"6\"", true);
        check(header::IF_NONE_MATCH, "\"7\"", false);
    }

    #[test]
    fn what_is_no_tag_is_a_fault() {
        for value in ["7", "\"7", "\"a\"b\"", ""] {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_MATCH, value.parse().unwrap());
            assert!(Preconditions::read(&headers).is_err(), "{value:?} was accepted");
        }
    }
}
