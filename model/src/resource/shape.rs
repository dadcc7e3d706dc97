//! The one mapping between the shapes of the API and those of objects.
//!
//! The API's envelope and status are in `snake_case`, its `spec` in camelCase; an object is in camelCase throughout. An
//! object has no envelope of its own, so the parts of the envelope that people write stand in its `spec`: `name`,
//! `cluster` (by name: people do not type UUIDs) and `targetProjectId`. Secrets are never part of an object.

use serde_json::{Map, Value, json};

use crate::{cluster::Cluster, host::BareMetalNodeSpec, platform::platform, pool::NodePool};

/// Members of a host's spec that the server owns.
pub const HOST_OWNED: [&str; 3] = ["project", "registered", "deletion"];
/// Fields of a cluster's spec that are never shown.
pub const CLUSTER_SECRETS: [&str; 1] = ["serviceAccountSigningKey"];

/// `desired_nodes` becomes `desiredNodes`.
pub fn camel(snake: &str) -> String {
    let mut out = String::with_capacity(snake.len());
    let mut upper = false;
    for c in snake.chars() {
        match c {
            '_' => upper = true,
            c if upper => {
                out.push(c.to_ascii_uppercase());
                upper = false;
            }
            c => out.push(c),
        }
    }
    out
}

/// `desiredNodes` becomes `desired_nodes`.
pub fn snake(camel: &str) -> String {
    let mut out = String::with_capacity(camel.len() + 4);
    for c in camel.chars() {
        if c.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// The names of one object's members, those inside of them untouched: keys in there may be data.
pub fn renamed(value: Value, rename: fn(&str) -> String) -> Value {
    match value {
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (rename(&name), value)).collect::<Map<_, _>>().into()
        }
        other => other,
    }
}

/// A status of the API as an object shows it.
pub fn status(api: Value) -> Value {
    let mut status = renamed(api, camel);
    if let Some(pools) = status.get_mut("pools") {
        *pools = renamed(pools.take(), camel);
    }
    status
}

/// A status as the API shows it: the way back.
pub fn api_status(object: Value) -> Value {
    let mut status = renamed(object, snake);
    if let Some(pools) = status.get_mut("pools") {
        *pools = renamed(pools.take(), snake);
    }
    status
}

fn of<T: serde::Serialize>(spec: &T) -> Map<String, Value> {
    match serde_json::to_value(spec) {
        Ok(Value::Object(members)) => members,
        _ => Map::new(),
    }
}

/// A pool's `spec` in its object.
pub fn pool_spec(pool: &NodePool, cluster: &str) -> Value {
    let mut spec = of(&pool.spec);
    let kind = pool.spec.platform.kind;
    if let Some(Value::Object(block)) =
        spec.get_mut("platform").and_then(|platform| platform.get_mut(kind.as_str()))
    {
        for secret in platform(kind).secrets() {
            block.remove(*secret);
        }
    }
    // `scale` needs a number to change: where nobody said one, the size that the pool begins with.
    spec.entry("nodeCount").or_insert_with(|| pool.spec.initial_nodes().into());
    spec.insert("cluster".into(), cluster.into());
    spec.insert("name".into(), pool.name.as_str().into());
    canonical(spec.into())
}

/// A cluster's `spec` in its object.
pub fn cluster_spec(cluster: &Cluster) -> Value {
    let mut spec = of(&cluster.spec);
    for secret in CLUSTER_SECRETS {
        spec.remove(secret);
    }
    spec.insert("name".into(), cluster.name.as_str().into());
    if let Some(project) = &cluster.target_project_id {
        spec.insert("targetProjectId".into(), project.as_str().into());
    }
    canonical(spec.into())
}

/// A host's `spec` in its object.
pub fn host_spec(spec: &BareMetalNodeSpec) -> Value {
    let mut spec = of(spec);
    for owned in HOST_OWNED {
        spec.remove(owned);
    }
    canonical(spec.into())
}

/// The body of a request that says what an object's `spec`, or a patch of it, says. `cluster` is left out: its name is not
/// its id.
pub fn body(spec: &Value) -> Value {
    let mut spec = spec.as_object().cloned().unwrap_or_default();
    let mut body = Map::new();
    for (ours, theirs) in [("name", "name"), ("targetProjectId", "target_project_id")] {
        if let Some(value) = spec.remove(ours) {
            body.insert(theirs.to_owned(), value);
        }
    }
    // A name cannot be taken away; who leaves it out means the one that there is.
    if body.get("name").is_some_and(Value::is_null) {
        body.remove("name");
    }
    spec.remove("cluster");
    body.insert("spec".to_owned(), spec.into());
    body.into()
}

/// A fault's text with the path that it has in an object.
pub fn fault(text: &str) -> String {
    for (theirs, ours) in [
        ("name:", "spec.name:"),
        ("target_project_id:", "spec.targetProjectId:"),
        ("cluster_id:", "spec.cluster:"),
    ] {
        if let Some(rest) = text.strip_prefix(theirs) {
            return format!("{ours}{rest}");
        }
    }
    text.to_owned()
}

/// One spelling for what means the same to an API server: whole numbers without a point, members in order, no nulls.
pub fn canonical(value: Value) -> Value {
    match value {
        Value::Number(number) => whole(&number).map_or(Value::Number(number), Into::into),
        Value::Array(items) => items.into_iter().map(canonical).collect(),
        Value::Object(members) => {
            let mut members: Vec<(String, Value)> =
                members.into_iter().filter(|(_, value)| !value.is_null()).collect();
            members.sort_by(|one, other| one.0.cmp(&other.0));
            members.into_iter().map(|(name, value)| (name, canonical(value))).collect::<Map<_, _>>().into()
        }
        other => other,
    }
}

/// The number as an integer, where a float holds one exactly.
fn whole(number: &serde_json::Number) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
    let float = number.as_f64().filter(|_| number.is_f64())?;
    #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
    (float.fract() == 0.0 && float.abs() < EXACT).then_some(float as i64)
}

/// Where two specs differ, for people: `spec.nodeCount is 5, not 7`. At most three places.
pub fn differences(kept: &Value, wanted: &Value) -> String {
    const SHOWN: usize = 3;
    let shown = |value: &Option<Value>| {
        let text = value.as_ref().map_or_else(|| "not set".to_owned(), Value::to_string);
        if text.chars().count() > 60 {
            format!("{}…", text.chars().take(60).collect::<String>())
        } else {
            text
        }
    };
    let all = crate::patch::diff(&json!({ "spec": kept }), &json!({ "spec": wanted }));
    let mut told: Vec<String> = all
        .iter()
        .take(SHOWN)
        .map(|one| match &one.new {
            Some(_) => format!("{} is {}, not {}", one.path, shown(&one.old), shown(&one.new)),
            None => format!("{} is {} and stays", one.path, shown(&one.old)),
        })
        .collect();
    if all.len() > SHOWN {
        told.push(format!("{} more", all.len() - SHOWN));
    }
    told.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for (theirs, ours) in [
            ("desired_nodes", "desiredNodes"),
            ("phase", "phase"),
            ("nodes_to_remove", "nodesToRemove"),
            ("observed_generation", "observedGeneration"),
        ] {
            assert_eq!(camel(theirs), ours);
            assert_eq!(snake(ours), theirs);
        }
    }

    #[test]
    fn data_keeps_its_keys() {
        let api = json!({ "ready_nodes": 1, "pools": { "by_phase": { "not_a_name": 2 } }, "baremetal": { "readyNodes": 3 } });
        let object = status(api.clone());
        assert_eq!(
            object,
            json!({ "readyNodes": 1, "pools": { "byPhase": { "not_a_name": 2 } }, "baremetal": { "readyNodes": 3 } })
        );
        assert_eq!(api_status(object), api);
    }

    #[test]
    fn the_envelope_stands_in_the_spec() {
        let spec = json!({ "name": "web", "cluster": "lab", "targetProjectId": "p", "nodeCount": 3 });
        assert_eq!(
            body(&spec),
            json!({ "name": "web", "target_project_id": "p", "spec": { "nodeCount": 3 } })
        );
        assert_eq!(
            body(&json!({ "name": null, "nodeCount": null })),
            json!({ "spec": { "nodeCount": null } })
        );
        assert_eq!(fault("name: must not be empty"), "spec.name: must not be empty");
        assert_eq!(fault("spec.nodeCount: is wrong"), "spec.nodeCount: is wrong");
    }

    #[test]
    fn one_spelling_for_numbers() {
        let value: Value = serde_json::from_str(r#"{"b":5.0,"a":[0.19,1e3],"c":null,"d":-3.0}"#).unwrap();
        assert_eq!(canonical(value).to_string(), r#"{"a":[0.19,1000],"b":5,"d":-3}"#);
    }

    #[test]
    fn differences_are_named() {
        let (kept, wanted) = (json!({ "nodeCount": 5, "labels": { "a": "b" } }), json!({ "nodeCount": 7 }));
        assert_eq!(
            differences(&kept, &wanted),
            r#"spec.labels is {"a":"b"} and stays, spec.nodeCount is 5, not 7"#
        );
    }
}
