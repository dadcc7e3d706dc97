//! The rights that the adapter needs, each with its reason, and as objects that grant them.
//!
//! This table is what documentation and manifests are made from. A test works with these rights alone, and reads
//! in the API server's audit log that none of them is unused.

use serde_json::{Value, json};

/// Where a right holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    /// In `kube-node-lease`, where kubelets renew their leases.
    NodeLeases,
    /// In the namespace that Muster runs in.
    Own,
}

/// What a right is for; only the first is always needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Watching and acting.
    Core,
    /// Pools whose policy deletes the nodes of machines that are off.
    DeleteNodes,
    /// Identity mode `k8s`.
    Identity,
    /// Leader election by a `Lease`.
    Election,
}

/// Verbs on resources of one API group.
#[derive(Debug, Clone, Copy)]
pub struct Right {
    pub part: Part,
    pub scope: Scope,
    pub group: &'static str,
    pub resources: &'static [&'static str],
    pub verbs: &'static [&'static str],
    pub why: &'static str,
}

const WATCH: &[&str] = &["list", "watch"];

const fn core(
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
    why: &'static str,
) -> Right {
    Right { part: Part::Core, scope: Scope::Cluster, group, resources, verbs, why }
}

/// All of them.
pub const RIGHTS: &[Right] = &[
    core(
        "",
        &["pods", "namespaces", "persistentvolumes", "persistentvolumeclaims"],
        WATCH,
        "what needs room",
    ),
    core(
        "apps",
        &["daemonsets", "replicasets", "statefulsets"],
        WATCH,
        "what a node carries, and what comes back",
    ),
    core("batch", &["jobs"], WATCH, "what comes back"),
    core("policy", &["poddisruptionbudgets"], WATCH, "what may be moved"),
    core(
        "storage.k8s.io",
        &["storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"],
        WATCH,
        "where volumes can be used",
    ),
    core("scheduling.k8s.io", &["priorityclasses"], WATCH, "which pod goes first"),
    core("scheduling.k8s.io", &["podgroups"], WATCH, "which pods run together"),
    core("scheduling.x-k8s.io", &["podgroups"], WATCH, "the same, of coscheduling"),
    core("scheduling.volcano.sh", &["podgroups"], WATCH, "the same, of Volcano"),
    core("node.k8s.io", &["runtimeclasses"], WATCH, "what a pod needs beside its requests"),
    core("", &["nodes"], &["get", "list", "watch", "patch"], "cordon, label and taint nodes"),
    core("", &["pods/eviction"], &["create"], "drain nodes through disruption budgets"),
    core("events.k8s.io", &["events"], &["create", "patch"], "say why, on pods, nodes and pools"),
    core(
        muster_model::API_GROUP,
        &["nodepools"],
        &["get", "list"],
        "find the object of a pool, to say why on it",
    ),
    Right {
        part: Part::Core,
        scope: Scope::NodeLeases,
        group: "coordination.k8s.io",
        resources: &["leases"],
        verbs: WATCH,
        why: "tell a node that lives from one that only looks so",
    },
    Right {
        part: Part::DeleteNodes,
        scope: Scope::Cluster,
        group: "",
        resources: &["nodes"],
        verbs: &["delete"],
        why: "only for pools whose policy deletes the nodes of machines that are off",
    },
    Right {
        part: Part::Identity,
        scope: Scope::Cluster,
        group: "authentication.k8s.io",
        resources: &["tokenreviews"],
        verbs: &["create"],
        why: "only for identity mode k8s: who a token belongs to",
    },
    Right {
        part: Part::Identity,
        scope: Scope::Cluster,
        group: "authorization.k8s.io",
        resources: &["subjectaccessreviews"],
        verbs: &["create"],
        why: "only for identity mode k8s: which roles its bearer holds",
    },
    Right {
        part: Part::Election,
        scope: Scope::Own,
        group: "coordination.k8s.io",
        resources: &["leases"],
        verbs: &["get", "create", "update"],
        why: "only for several replicas that elect their leader by a Lease",
    },
];

/// Roles and bindings that give `parts` to a service account.
pub fn manifest(namespace: &str, account: &str, parts: &[Part]) -> Vec<Value> {
    let subject = json!([{"kind": "ServiceAccount", "name": account, "namespace": namespace}]);
    let places = [(Scope::Cluster, ""), (Scope::NodeLeases, "kube-node-lease"), (Scope::Own, namespace)];
    let mut objects = Vec::new();
    for (scope, place) in places {
        let rules: Vec<Value> = RIGHTS
            .iter()
            .filter(|right| right.scope == scope && parts.contains(&right.part))
            .map(|right| json!({"apiGroups": [right.group], "resources": right.resources, "verbs": right.verbs}))
            .collect();
        if rules.is_empty() {
            continue;
        }
        let (role, binding) =
            if place.is_empty() { ("ClusterRole", "ClusterRoleBinding") } else { ("Role", "RoleBinding") };
        // Two installations in one cluster must not take each other's.
        let mut meta = json!({"name": format!("muster-{namespace}-{account}")});
        if !place.is_empty() {
            meta["namespace"] = place.into();
        }
        objects.push(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": role, "metadata": meta, "rules": rules,
        }));
        objects.push(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": binding, "metadata": meta, "subjects": subject,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": meta["name"]},
        }));
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_lists_exactly_these_rights() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/kubernetes.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, section) = page.split_once("## Rights\n").expect("the page has a section on rights");
        let documented: Vec<&str> =
            section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| group")).collect();
        let expected: Vec<String> = RIGHTS
            .iter()
            .map(|right| {
                let group = if right.group.is_empty() { "core" } else { right.group };
                let place = match right.scope {
                    Scope::Cluster => "everywhere",
                    Scope::NodeLeases => "`kube-node-lease`",
                    Scope::Own => "Muster's namespace",
                };
                let words = |all: &[&str]| all.join(", ");
                format!(
                    "| {group} | {} | {} | {place} | {} |",
                    words(right.resources),
                    words(right.verbs),
                    right.why
                )
            })
            .collect();
        assert_eq!(documented, expected);
    }

    #[test]
    fn parts_that_are_not_asked_for_are_not_granted() {
        let core = manifest("muster", "muster", &[Part::Core]);
        let kinds: Vec<&str> = core.iter().filter_map(|object| object["kind"].as_str()).collect();
        assert_eq!(kinds, ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]);
        let text = Value::from(core).to_string();
        for word in ["delete", "tokenreviews", "update"] {
            assert!(!text.contains(word), "{word} is not part of the core");
        }
    }
}
