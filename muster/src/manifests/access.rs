//! Who Muster is in the cluster, what it may do there, and the roles that it knows people by.

use std::collections::{BTreeMap, BTreeSet};

use muster_kube::{review::PROJECTS, rights};
use muster_model::{API_GROUP, field::Choice, identity::Role};
use serde_json::{Value, json};

use super::{AuthMode, Install, NAME, labels, metadata};

pub(super) fn objects(install: &Install<'_>) -> Vec<Value> {
    // Only the pod that needs the token mounts it.
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(install, NAME),
        "automountServiceAccountToken": false,
    })];
    let granted = rights::manifest(&install.args.namespace, NAME, &install.parts());
    objects.extend(granted.into_iter().map(|mut object| {
        object["metadata"]["labels"] = labels();
        object
    }));
    if install.keeps_resources() {
        objects.extend(on_resources(install));
    }
    objects.extend(on_secrets(install));
    if !install.args.rights_only && install.args.auth_mode == AuthMode::K8s {
        objects.extend(Role::ALL.iter().map(|(word, role)| for_people(word, *role)));
    }
    objects
}

/// What keeping custom resources takes.
fn on_resources(install: &Install<'_>) -> [Value; 2] {
    let space = &install.args.namespace;
    let name = format!("muster-{space}-{NAME}-resources");
    let meta = json!({"name": name, "labels": labels()});
    [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": meta,
            "rules": muster_kube::resources::rules(),
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": meta,
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": space}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        }),
    ]
}

/// The right to read the Secrets that credentials name, each by its name: never to list, and none beside them.
fn on_secrets(install: &Install<'_>) -> Vec<Value> {
    let mut by_namespace: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (namespace, name) in &install.args.bmc_secret {
        by_namespace.entry(namespace).or_default().insert(name);
    }
    let space = &install.args.namespace;
    let role = format!("{NAME}-bmc-secrets");
    let grant = |(namespace, names): (&str, BTreeSet<&str>)| {
        let meta = json!({"name": role, "namespace": namespace, "labels": labels()});
        [
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta,
                "rules": [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get"]}],
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta,
                "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": space}],
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            }),
        ]
    };
    by_namespace.into_iter().flat_map(grant).collect()
}

/// A role of Muster's as a `ClusterRole`, to be bound in a namespace, which is a project, or everywhere. Those that
/// have a counterpart among the cluster's own are part of it, so that whoever may edit a namespace operates its project.
fn for_people(word: &str, role: Role) -> Value {
    let mut object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": format!("{NAME}-project-{word}"), "labels": labels()},
        "rules": [{"apiGroups": [API_GROUP], "resources": [PROJECTS], "verbs": [word]}],
    });
    let own = match role {
        Role::Viewer => "view",
        Role::Operator => "edit",
        Role::Admin => "admin",
        Role::Controller | Role::Auditor => return object,
    };
    object["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{own}")] = "true".into();
    object
}
