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

#[cfg(test)]
mod tests {
    use crate::k8s::{LabelSelector, Pod, PodPhase, TolerationOperator, VolumeSource};

    use super::*;

    #[test]
    fn unknown_fields_are_skipped_and_null_is_absent() {
        let pod: Pod = from_json(
            "Pod",
            br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"d","labels":null,
                "creationTimestamp":null,"managedFields":[{"x":1}]},
                "spec":{"nodeName":"","containers":null,"hostNetwork":null,"futureField":{"a":[1]},
                "tolerations":[{"key":"k","operator":"","effect":""}],
                "affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
                    {"labelSelector":null,"namespaceSelector":{},"topologyKey":"z"}]}},
                "volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}},{"name":"s","secret":{}}]},
                "status":{"phase":"Dreaming","podIP":"10.0.0.1"}}"#,
        )
        .unwrap();
        assert_eq!((pod.spec.node_name.as_deref(), pod.spec.host_network), (None, false));
        let toleration = &pod.spec.tolerations[0];
        assert_eq!((toleration.operator, toleration.effect), (TolerationOperator::Equal, None));
        let term = &pod.spec.affinity.as_ref().unwrap().pod_affinity.as_ref().unwrap().required[0];
        assert_eq!(
            (&term.label_selector, &term.namespace_selector),
            (&None, &Some(LabelSelector::default()))
        );
        assert!(matches!(&pod.spec.volumes[0].source, VolumeSource::Claim { name, .. } if &**name == "c"));
        assert_eq!(
            (&pod.spec.volumes[1].source, pod.status.phase),
            (&VolumeSource::Other, PodPhase::Unknown)
        );
        let again: Pod = from_value("Pod", &serde_json::to_value(&pod).unwrap()).unwrap();
        assert_eq!(again, pod);
    }

    #[test]
    fn errors_name_the_field() {
        #[track_caller]
        fn check(text: &str, path: &str) {
            let error = from_json::<Pod>("Pod", text.as_bytes()).unwrap_err();
            assert_eq!(error.path, path, "{error}");
            assert!(error.to_string().starts_with(&format!("Pod cannot be read at {path}: ")), "{error}");
        }
        check(
            r#"{"spec":{"containers":[{"name":"a"},{"ports":[{"hostPort":"x"}]}]}}"#,
            "spec.containers[1].ports[0].hostPort",
        );
        check(r#"{"metadata":{"deletionTimestamp":"soon"}}"#, "metadata.deletionTimestamp");
        check(
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1x"}}}]}}"#,
            "spec.containers[0].resources.requests.cpu",
        );
        check(
            r#"{"spec":{"volumes":[{"persistentVolumeClaim":{"claimName":7}}]}}"#,
            "spec.volumes[0].persistentVolumeClaim.claimName",
        );
    }
}
