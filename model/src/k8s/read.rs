//! Reading a record, with errors that say where in the object the trouble is.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use thiserror::Error;

/// An object that could not be read.
#[derive(Debug, Error)]
#[error("{kind} cannot be read at {path}: {source}")]
pub struct ReadError {
    /// What was being read, for example `Pod`.
    pub kind: &'static str,
    /// The field, for example `spec.containers[0].resources.requests.cpu`.
    pub path: String,
    #[source]
    pub source: serde_json::Error,
}

impl ReadError {
    fn new(kind: &'static str, error: serde_path_to_error::Error<serde_json::Error>) -> Self {
        Self { kind, path: error.path().to_string(), source: error.into_inner() }
    }
}

/// Reads one object from JSON text; `kind` is only used in the error.
pub fn from_json<T: DeserializeOwned>(kind: &'static str, text: &[u8]) -> Result<T, ReadError> {
    let mut json = serde_json::Deserializer::from_slice(text);
    serde_path_to_error::deserialize(&mut json).map_err(|error| ReadError::new(kind, error))
}

/// Reads one object from parsed JSON; `kind` is only used in the error.
pub fn from_value<T: DeserializeOwned>(
    kind: &'static str,
    value: &serde_json::Value,
) -> Result<T, ReadError> {
    serde_path_to_error::deserialize(value).map_err(|error| ReadError::new(kind, error))
}

/// For a field whose `null` means its zero value, as it does for every field in Go.
pub(crate) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// For an optional text whose empty string means absent.
pub(crate) fn non_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<str>>, D::Error> {
    Ok(Option::<Box<str>>::deserialize(deserializer)?.filter(|text| !text.is_empty()))
}
