//! Asking a BMC what it is, and making a spec of the answer.

use async_trait::async_trait;
use muster_model::power::{Bmc, Identity, PowerError};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Whatever can ask a BMC. The drivers are behind it.
#[async_trait]
pub trait Prober: Send + Sync + std::fmt::Debug {
    async fn identify(&self, bmc: &Bmc) -> Result<Identity, PowerError>;
}

/// What was found, and the spec that follows from it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Discovered {
    pub identity: Identity,
    /// A draft: `pool` and what no BMC knows is left to people.
    pub spec: Value,
    /// What could not be found out.
    pub missing: Vec<&'static str>,
}

/// Adds what a machine says about itself to `known`, the members of a spec that the caller gave. What a person wrote
/// is never replaced.
pub fn propose(identity: Identity, known: Map<String, Value>) -> Discovered {
    let mut spec = known;
    let mut missing = Vec::new();
    let mut put = |name: &'static str, value: Option<Value>| match value {
        Some(value) => drop(spec.entry(name).or_insert(value)),
        None if spec.contains_key(name) => {}
        None => missing.push(name),
    };
    put("serial", identity.serial.as_ref().map(|serial| json!(serial)));
    put("macAddress", identity.macs.first().map(|mac| json!(mac.to_string())));
    put("systemId", identity.system.as_ref().map(|system| json!(system)));
    let cores = identity.cpu_threads.or(identity.cpu_cores);
    let mut resources = Map::new();
    if let Some(cores) = cores {
        resources.insert("cpu".into(), json!(cores.to_string()));
    }
    if let Some(bytes) = identity.memory_bytes {
        resources.insert("memory".into(), json!(memory(bytes)));
    }
    if !identity.gpus.is_empty() {
        resources.insert("gpu".into(), json!(identity.gpus.len()));
    }
    if cores.is_none() || identity.memory_bytes.is_none() {
        missing.push("resources");
    }
    if !resources.is_empty() {
        let given = spec.entry("resources").or_insert_with(|| json!({}));
        if let Value::Object(given) = given {
            for (name, value) in resources {
                given.entry(name).or_insert(value);
            }
        }
    }
    Discovered { identity, spec: Value::Object(spec), missing }
}

/// Bytes as people write memory.
fn memory(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    let unit = UNITS.iter().find(|(_, size)| bytes >= *size && bytes.is_multiple_of(*size));
    unit.map_or_else(|| bytes.to_string(), |(name, size)| format!("{}{name}", bytes / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_wrote_stays_and_the_rest_is_filled_in() {
        let identity = Identity {
            serial: Some("S1".into()),
            macs: vec!["02:00:00:00:00:01".parse().unwrap()],
            cpu_cores: Some(32),
            cpu_threads: Some(64),
            memory_bytes: Some(512 << 30),
            gpus: vec!["H100".into(); 8],
            ..Identity::default()
        };
        let known = Map::from_iter([("serial".to_owned(), json!("mine")), ("pool".to_owned(), json!("gpu"))]);
        let found = propose(identity, known);
        assert_eq!(
            found.spec,
            json!({"serial": "mine", "pool": "gpu", "macAddress": "02:00:00:00:00:01",
                "resources": {"cpu": "64", "memory": "512Gi", "gpu": 8}})
        );
        assert_eq!(found.missing, ["systemId"]);
        let nothing = propose(Identity::default(), Map::new());
        assert_eq!(nothing.missing, ["serial", "macAddress", "systemId", "resources"]);
        assert_eq!(memory(1536 << 20), "1536Mi");
    }
}
