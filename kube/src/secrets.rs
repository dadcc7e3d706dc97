//! Accounts and keys that are kept in Kubernetes Secrets.
//!
//! A Secret is read by name at the time of use, and only if it says itself that it is meant for this: whoever may name a Secret in Muster
//! and a machine of their own could otherwise have any Secret of the namespace sent there. What is in it appears in no error.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use muster_model::{API_GROUP, Secret, names, power::Credential};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::{
    client::{Call, Client},
    error::KubeError,
};

/// Why a Secret gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// A person has to do something.
    #[error("{0}")]
    Unusable(String),
    /// Nothing is known about it now.
    #[error("{0}")]
    Away(String),
}

/// The label that a Secret has to carry, with the value `true`.
pub fn label() -> String {
    format!("{API_GROUP}/credential")
}

/// Reads `username` and `password`, or `key` in place of the password, of one Secret. Its version is the API server's.
pub async fn read(client: &Client, namespace: &str, name: &str) -> Result<Credential, SecretError> {
    let what = format!("read Secret {namespace}/{name}");
    let sound = names::check_dns_label(namespace).is_ok() && names::check_dns_subdomain(name).is_ok();
    if !sound {
        return Err(SecretError::Unusable(format!("{namespace}/{name} is no name of a Secret")));
    }
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
    let text = match client.text(&what, Call::get(&path)).await {
        Ok(text) => Zeroizing::new(text),
        Err(error @ KubeError::Status { code: 401 | 403 | 404, .. }) => {
            return Err(SecretError::Unusable(error.to_string()));
        }
        Err(error) => return Err(SecretError::Away(error.to_string())),
    };
    let mut object: Value = serde_json::from_str(&text)
        .map_err(|_| SecretError::Away(format!("{what}: the answer cannot be read")))?;
    let read = take(&object, &what);
    forget(&mut object);
    read
}

fn take(object: &Value, what: &str) -> Result<Credential, SecretError> {
    let unusable = |why: &str| SecretError::Unusable(format!("{what}: {why}"));
    let label = label();
    if object["metadata"]["labels"][&label] != "true" {
        return Err(unusable(&format!(
            "it does not carry the label {label}: \"true\", so that it is not for BMCs"
        )));
    }
    let bytes = |field: &str| -> Result<Option<Zeroizing<Vec<u8>>>, SecretError> {
        let Some(text) = object["data"][field].as_str() else { return Ok(None) };
        let bytes =
            STANDARD.decode(text).map_err(|_| unusable(&format!("its field {field} is not base64")))?;
        Ok(Some(Zeroizing::new(bytes)))
    };
    let user = match bytes("username")? {
        None => String::new(),
        Some(user) => {
            std::str::from_utf8(&user).map_err(|_| unusable("its username is not text"))?.to_owned()
        }
    };
    let value = match bytes("password")? {
        Some(value) => Some(value),
        None => bytes("key")?,
    };
    let value =
        value.filter(|value| !value.is_empty()).ok_or_else(|| unusable("it has neither password nor key"))?;
    // Tools that make Secrets from files keep the line end; no BMC has one in a password.
    let end = value.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    Ok(Credential {
        user,
        password: Secret::new(value[..end].to_vec()),
        version: object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned(),
    })
}

/// Overwrites what was in it.
fn forget(object: &mut Value) {
    for value in object["data"].as_object_mut().into_iter().flat_map(serde_json::Map::values_mut) {
        if let Value::String(text) = value {
            zeroize::Zeroize::zeroize(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_secret_says_what_it_is_for_and_no_error_says_what_is_in_it() {
        #[track_caller]
        fn check(labels: Value, data: Value, expected: Result<(&str, &str), &str>) {
            let object = json!({"metadata": {"labels": labels, "resourceVersion": "7"}, "data": data});
            let read = take(&object, "read Secret lab/bmc");
            match (read, expected) {
                (Ok(found), Ok((user, password))) => {
                    assert_eq!((found.user.as_str(), found.version.as_str()), (user, "7"));
                    assert_eq!(found.password.expose(), password.as_bytes());
                }
                (Err(error), Err(part)) => {
                    let text = error.to_string();
                    assert!(text.contains(part) && !text.contains("canary"), "{text}");
                }
                (found, expected) => panic!("{found:?} for {expected:?}"),
            }
        }
        let marked = || json!({"muster.dev/credential": "true"});
        let coded = |text: &str| STANDARD.encode(text);
        let account = || json!({"username": coded("admin"), "password": coded("canary\n")});
        check(marked(), account(), Ok(("admin", "canary")));
        check(marked(), json!({"key": coded("canary")}), Ok(("", "canary")));
        check(json!({}), account(), Err("muster.dev/credential"));
        check(json!({"muster.dev/credential": "yes"}), account(), Err("muster.dev/credential"));
        check(marked(), json!({"username": coded("admin")}), Err("neither password nor key"));
        check(marked(), json!({"password": "canary!"}), Err("not base64"));
        check(marked(), json!({"password": ""}), Err("neither"));
    }
}
