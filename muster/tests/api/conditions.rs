//! OPS-U2: what conditions look like on the way through every phase.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::{Caller, World, gcp_spec, report, rows, set};

rows!(
    ops_u2_conditions_of_pools_are_whole_and_documented,
    ops_u2_conditions_of_clusters_are_whole_and_documented
);

const DOCUMENTED: &str = include_str!("../../../docs/explanation/status.md");

/// What the last look saw of each condition: its status and since when.
#[derive(Default)]
struct Seen(BTreeMap<String, (Value, Value)>);

impl Seen {
    /// Looks at every condition of an object, and at its transitions since the last look.
    fn look(&mut self, object: &Value) {
        let conditions = object["status"]["conditions"].as_array().expect("conditions are always there");
        assert!(conditions.len() >= 4, "all conditions are there from the beginning: {object}");
        for condition in conditions {
            let text =
                |name: &str| condition[name].as_str().unwrap_or_else(|| panic!("no {name}: {condition}"));
            let (kind, reason) = (text("type"), text("reason"));
            assert!(["True", "False", "Unknown"].contains(&text("status")), "{condition}");
            assert!(!text("message").is_empty() && text("lastTransitionTime").ends_with('Z'), "{condition}");
            let observed = condition["observedGeneration"].as_u64().expect("a generation");
            assert!(observed <= object["generation"].as_u64().unwrap(), "{condition}");
            let mut letters = reason.chars();
            assert!(letters.next().is_some_and(|c| c.is_ascii_uppercase()), "{condition}");
            assert!(letters.all(|c| c.is_ascii_alphanumeric()), "{condition}");
            for word in [kind, reason] {
                assert!(
                    DOCUMENTED.contains(&format!("`{word}`")),
                    "{word} is not in docs/explanation/status.md"
                );
            }
            let now = (condition["status"].clone(), condition["lastTransitionTime"].clone());
            let before = self.0.insert(kind.to_owned(), now.clone());
            if let Some(before) = before {
                let changed = before.0 != now.0;
                assert!(changed || before.1 == now.1, "{kind} moved its time without a change: {condition}");
            }
        }
    }
}

/// Walks an object through the phases. `change` makes a new generation.
async fn walk(user: &Caller, path: &str, change: &Value) {
    let url = format!("/api/v1/{path}");
    let mut seen = Seen::default();
    let mut look = async |wanted: &str| {
        let object = user.get(&url).await.expect(200).body;
        seen.look(&object);
        assert_eq!(object["status"]["phase"], wanted, "{object}");
        object
    };
    let tell = async |report: &Value| user.report(path, report).await.expect(200);
    look("Pending").await;
    tell(&report("a", 1, ("Available", "False"))).await;
    look("Progressing").await;
    let mut counted = report("a", 1, ("Available", "True"));
    counted["metadata"] = json!({"active_nodes": 3, "desired_nodes": 3});
    tell(&counted).await;
    let object = look("Ready").await;
    assert_eq!(object["status"]["observed_generation"], 1);
    // The same again changes nothing, and moves nothing.
    tell(&counted).await;
    look("Ready").await;
    tell(&report("b", 1, ("Available", "False"))).await;
    look("Progressing").await;
    tell(&report("b", 1, ("Ready", "True"))).await;
    look("Ready").await;
    user.patch(&url, change).await.expect(200);
    let object = look("Progressing").await;
    assert_eq!(object["status"]["observed_generation"], 1, "nobody has seen the new generation");
    for controller in ["a", "b"] {
        tell(&report(controller, 2, ("Available", "True"))).await;
    }
    let object = look("Ready").await;
    assert_eq!(object["status"]["observed_generation"], 2);
    for kind in ["Transient", "System", "Configuration", "Fatal"] {
        let error = json!({"errorType": kind, "message": "it did not work"});
        tell(&set(report("b", 2, ("Available", "False")), "/last_error", error)).await;
        look(if ["Configuration", "Fatal"].contains(&kind) { "Failed" } else { "Progressing" }).await;
    }
    // A report whose lease is over: the silence shows by itself.
    for controller in ["a", "b"] {
        tell(&set(report(controller, 2, ("Available", "True")), "/lease", json!("1s"))).await;
    }
    let silent = user.until(&url, |object| object["status"]["reason"] == "ControllerSilent").await;
    seen.look(&silent);
    assert_eq!(silent["status"]["phase"], "Degraded", "{silent}");
    tell(&report("a", 2, ("Available", "True"))).await;
    user.delete(&url).await;
    let gone = user.get(&format!("{url}?include_deleted=true")).await.expect(200).body;
    seen.look(&gone);
    assert_eq!(gone["status"]["phase"], "Deleting", "{gone}");
}

async fn ops_u2_conditions_of_pools_are_whole_and_documented(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let body = json!({"name": "p", "spec": gcp_spec()});
    let made = user.post(&format!("/api/v1/clusters/{cluster}/nodepools"), &body).await.expect(201);
    walk(&user, &format!("nodepools/{}", made.id()), &json!({"spec": {"nodeCount": 4}})).await;
}

async fn ops_u2_conditions_of_clusters_are_whole_and_documented(world: World) {
    let user = world.user();
    let cluster = user.cluster("c").await;
    let change = json!({"spec": {"platform": {"gcp": {"region": "us-central1"}}}});
    walk(&user, &format!("clusters/{cluster}"), &change).await;
}
