//! The Deployment and what it stands on: settings, volume, service, disruption budget.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{Install, NAME, PORT, labels, metadata, selector};
use crate::cli;

/// Where things are in the container.
pub(super) const DATA: &str = "/var/lib/muster";
pub(super) const TLS: &str = "/etc/muster/tls";
pub(super) const CREDENTIALS: &str = "/etc/muster/credentials";
pub(super) const ETCD: &str = "/etc/muster/etcd";
const SETTINGS: &str = "/etc/muster/settings";
/// Nobody in particular, and not root.
const USER: u32 = 65_532;
/// Requests under way, a turn of the host loop, and both leases are finished well within this.
const GRACE_SECONDS: u32 = 45;

pub(super) fn objects(install: &Install<'_>, image: &str) -> Vec<Value> {
    let settings = cli::yaml(&nested(&install.settings));
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(install, NAME),
        "data": {"muster.yaml": &settings},
    })];
    if install.etcd.is_none() {
        objects.push(volume(install));
    }
    objects.push(deployment(install, image, &settings));
    objects.push(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(install, NAME),
        "spec": {"selector": selector(), "ports": [{"name": "https", "port": 443, "targetPort": "https"}]},
    }));
    // One at a time, also when there is one only: a budget that blocks every drain of its node helps nobody.
    objects.push(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata(install, NAME),
        "spec": {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": {"matchLabels": selector()}},
    }));
    objects
}

/// Settings by path as the nested document that the server reads.
fn nested(settings: &[(String, Value)]) -> Value {
    let mut document = Map::new();
    for (path, value) in settings {
        let mut words: Vec<&str> = path.split('.').collect();
        let last = words.pop().unwrap_or_default();
        let mut place = &mut document;
        for word in words {
            let inner = place.entry(word).or_insert_with(|| json!({}));
            place = inner.as_object_mut().expect("no setting is the beginning of another's path");
        }
        place.insert(last.to_owned(), value.clone());
    }
    Value::Object(document)
}

fn volume(install: &Install<'_>) -> Value {
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata(install, NAME),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": install.args.volume_size}},
        },
    });
    if let Some(class) = &install.args.storage_class {
        claim["spec"]["storageClassName"] = class.as_str().into();
    }
    claim
}

fn deployment(install: &Install<'_>, image: &str, settings: &str) -> Value {
    // The volume of an embedded store is free only once the old pod is gone.
    let strategy = if install.etcd.is_none() {
        json!({"type": "Recreate"})
    } else {
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(install, NAME),
        "spec": {
            "replicas": install.replicas, "strategy": strategy, "selector": {"matchLabels": selector()},
            "template": {
                "metadata": {
                    "labels": labels(),
                    // Other settings are another pod: they are read at the start.
                    "annotations": {"muster.dev/settings": hex::encode(Sha256::digest(settings))},
                },
                "spec": pod(install, image),
            },
        },
    })
}

fn pod(install: &Install<'_>, image: &str) -> Value {
    let mut pod = json!({
        "serviceAccountName": NAME, "automountServiceAccountToken": true, "enableServiceLinks": false,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector()},
        }],
        "containers": [container(install, image)],
        "volumes": volumes(install),
    });
    if let Some(class) = &install.args.priority_class {
        pod["priorityClassName"] = class.as_str().into();
    }
    pod
}

fn container(install: &Install<'_>, image: &str) -> Value {
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let mut environment = vec![
        field("MUSTER_OWN_POD", "metadata.name"),
        field("MUSTER_OWN_NAMESPACE", "metadata.namespace"),
        field("MUSTER_OWN_NODE", "spec.nodeName"),
    ];
    if let Some(secret) = &install.args.controller_token_secret {
        environment.push(json!({
            "name": "MUSTER_CONTROLLER_TOKEN", "valueFrom": {"secretKeyRef": {"name": secret, "key": "token"}},
        }));
    }
    let mount = |name: &str, path: &str, read_only: bool| json!({"name": name, "mountPath": path, "readOnly": read_only});
    let mut mounts = vec![
        mount("settings", SETTINGS, true),
        mount("tls", TLS, true),
        mount("credentials", CREDENTIALS, true),
        mount("data", DATA, false),
        mount("tmp", "/tmp", false),
    ];
    if install.args.etcd_secret.is_some() {
        mounts.push(mount("etcd", ETCD, true));
    }
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": "https", "scheme": "HTTPS"},
            "periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": failures,
        })
    };
    json!({
        "name": NAME, "image": image, "imagePullPolicy": "IfNotPresent",
        "args": ["serve", "--config", format!("{SETTINGS}/muster.yaml")],
        "env": environment,
        "ports": [{"name": "https", "containerPort": PORT, "protocol": "TCP"}],
        // A large store is checked in full after an unclean stop, before anything is served.
        "startupProbe": probe("/livez", 5, 60),
        "livenessProbe": probe("/livez", 10, 6),
        "readinessProbe": probe("/readyz", 5, 2),
        "resources": {
            // Measured beside 1,000 nodes and 3,000 pods it stays below 200 MB.
            "requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    })
}

fn volumes(install: &Install<'_>) -> Vec<Value> {
    let args = install.args;
    // Readable for the pod's group alone: the owner of a mounted secret is root.
    let secret = |name: &str, secret: &str| json!({"name": name, "secret": {"secretName": secret, "defaultMode": 0o440}});
    let data = if install.etcd.is_none() {
        json!({"name": "data", "persistentVolumeClaim": {"claimName": NAME}})
    } else {
        // The audit log of this replica; everything else is in etcd.
        json!({"name": "data", "emptyDir": {"sizeLimit": "2Gi"}})
    };
    let mut volumes = vec![
        json!({"name": "settings", "configMap": {"name": NAME}}),
        secret("tls", &args.tls_secret),
        secret("credentials", &args.credentials_secret),
        data,
        json!({"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}),
    ];
    if let Some(name) = &args.etcd_secret {
        volumes.push(secret("etcd", name));
    }
    volumes
}
