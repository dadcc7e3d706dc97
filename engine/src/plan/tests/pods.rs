//! Classes, volumes and wishes.

use serde_json::{Value, json};

use super::{ZONE, add_node, claims, new_zones, object, places, plan, pod, pods, pool, template, unplaced};
use crate::{
    Snapshot,
    plan::{Decision, scale_up},
};

#[test]
fn pods_that_differ_in_what_nobody_reads_are_one_class() {
    #[track_caller]
    fn check(first: Value, second: Value, classes: usize) {
        let mut snapshot = Snapshot::default();
        snapshot.cluster.pods = vec![pod("a", "1", first.clone()), pod("b", "1", second.clone())];
        assert_eq!(scale_up(&snapshot).report.classes, classes, "{first} {second}");
    }
    let volume = |name: &str, source: Value| {
        let mut volume = json!({"name": name});
        super::merge(&mut volume, source);
        json!({"volumes": [volume]})
    };
    let token = json!({"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}});
    check(volume("kube-api-access-x1", token.clone()), volume("kube-api-access-y2", token.clone()), 1);
    check(volume("kube-api-access-x1", token), json!({}), 1);
    check(volume("a", json!({"emptyDir": {}})), volume("b", json!({"hostPath": {"path": "/x"}})), 1);
    check(
        volume("a", json!({"configMap": {"name": "x"}})),
        volume("b", json!({"secret": {"secretName": "y"}})),
        1,
    );
    let claim = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
    check(volume("a", claim("x")), volume("b", claim("x")), 1);
    check(volume("a", claim("x")), volume("a", claim("y")), 2);
    check(json!({"terminationGracePeriodSeconds": 1}), json!({"priorityClassName": "x"}), 1);
    check(json!({"priority": 1}), json!({}), 2);
    check(json!({"hostNetwork": true}), json!({}), 1);
    let port = |port: i32| json!({"containers": [{"ports": [{"containerPort": 1, "hostPort": port}], "resources": {"requests": {"cpu": "1"}}}]});
    check(port(80), port(81), 2);
    check(port(80), port(80), 1);
}

/// A cluster with one type of four cores in zones a and b, and two claims for every pod that may come.
fn with_claims(list: Value) -> Snapshot {
    let mut snapshot = Snapshot {
        pools: vec![pool("p", 10, vec![template("m", 4, &["a", "b"], 1_000)])],
        ..Snapshot::default()
    };
    snapshot.cluster.claims = claims(list);
    snapshot.cluster.storage_classes = object(json!([
        {"metadata": {"name": "late"}, "provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer"},
        {"metadata": {"name": "only-b"}, "provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer",
         "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]},
        {"metadata": {"name": "now"}, "provisioner": "disk.example.com", "volumeBindingMode": "Immediate"}]));
    snapshot.cluster.volumes = object(json!([
        {"metadata": {"name": "pv-b", "labels": {ZONE: "b"}},
         "spec": {"capacity": {"storage": "1Gi"}, "csi": {"driver": "disk.example.com", "volumeHandle": "h1"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}]}}},
         "status": {"phase": "Bound"}}]));
    snapshot
}

fn claim(name: &str, class: &str, volume: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": name, "annotations":
            if volume.is_empty() { json!({}) } else { json!({"pv.kubernetes.io/bind-completed": "yes"}) }},
        "spec": {"storageClassName": class, "volumeName": volume, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": if volume.is_empty() { "Pending" } else { "Bound" }}})
}

fn uses(claims: &[&str]) -> Value {
    let volume = |name: &&str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    json!({"volumes": claims.iter().map(volume).collect::<Vec<_>>()})
}

#[test]
fn volumes_decide_where_new_machines_come_from() {
    #[track_caller]
    fn check(name: &str, zones: &[&str], left: usize) {
        let mut snapshot = with_claims(json!([
            claim("bound-b", "late", "pv-b"),
            claim("late", "late", ""),
            claim("only-b", "only-b", ""),
            claim("now", "now", ""),
        ]));
        snapshot.cluster.pods = vec![pod("x", "1", uses(&[name]))];
        let decision = plan(&snapshot);
        assert_eq!(
            (new_zones(&decision), decision.plan.unplaced.len()),
            (zones.iter().map(ToString::to_string).collect(), left),
            "{name}"
        );
    }
    check("bound-b", &["b"], 0);
    check("only-b", &["b"], 0);
    check("late", &["a"], 0);
    check("now", &[], 1); // has to be bound first
    check("missing", &[], 1);
}

#[test]
fn volumes_decide_which_nodes_are_used() {
    let mut snapshot = with_claims(json!([claim("bound-b", "late", "pv-b")]));
    snapshot.pools.clear();
    add_node(&mut snapshot, "n-a", "p", "a", 4);
    add_node(&mut snapshot, "n-b", "p", "b", 4);
    snapshot.members.clear();
    snapshot.cluster.pods = vec![pod("x", "1", uses(&["bound-b"]))];
    assert_eq!(places(&plan(&snapshot)), [("x".into(), "n-b".into())]);
}

#[test]
fn attach_limits_cost_machines_and_shared_volumes_count_once() {
    #[track_caller]
    fn check(limit: i32, own: usize, shared: usize, machines: usize) {
        let names: Vec<String> = (0..own).map(|at| format!("own-{at}")).collect();
        let mut list: Vec<Value> = names.iter().map(|name| claim(name, "late", "")).collect();
        list.push(claim("shared", "late", ""));
        let mut snapshot = with_claims(Value::Array(list));
        snapshot.pools[0].templates[0].csi =
            Some(object(json!({"drivers": [{"name": "disk.example.com", "allocatable": {"count": limit}}]})));
        snapshot.cluster.pods =
            names.iter().map(|name| pod(&format!("p-{name}"), "10m", uses(&[name]))).collect();
        snapshot.cluster.pods.extend(pods("s", shared, "10m", &uses(&["shared"])));
        let decision = plan(&snapshot);
        assert_eq!(
            (decision.plan.new_nodes.len(), unplaced(&decision).len()),
            (machines, 0),
            "{limit} {own} {shared}"
        );
    }
    // limit, pods with a volume of their own, pods with one they share => machines
    check(10, 4, 0, 1);
    check(2, 4, 0, 2);
    check(1, 4, 0, 4);
    check(2, 0, 5, 1); // one volume, however many use it
    check(3, 4, 5, 2);
}

#[test]
fn a_claim_for_one_pod_only_serves_one_pod() {
    let mut single = claim("mine", "late", "");
    single["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    let mut snapshot = with_claims(json!([single]));
    snapshot.cluster.pods = pods("x", 3, "1", &uses(&["mine"]));
    assert_eq!(unplaced(&plan(&snapshot)), ["x-1", "x-2"]);
    add_node(&mut snapshot, "n", "p", "a", 4);
    snapshot.cluster.pods.push(pod("user", "1", uses(&["mine"])));
    std::sync::Arc::make_mut(&mut snapshot.cluster.pods[3].spec).node_name = Some("n".into());
    assert_eq!(unplaced(&plan(&snapshot)), ["x-0", "x-1", "x-2"]);
}

#[test]
fn one_disk_is_not_mounted_twice_on_a_node() {
    let disk = json!({"volumes": [{"name": "d", "gcePersistentDisk": {"pdName": "d1"}}]});
    let mut snapshot =
        Snapshot { pools: vec![pool("p", 10, vec![template("m", 8, &["a"], 1_000)])], ..Snapshot::default() };
    snapshot.cluster.pods = pods("x", 3, "1", &disk);
    assert_eq!(plan(&snapshot).plan.new_nodes.len(), 3);
}

/// Twelve pods of one core on types of eight cores in zones a and b: two machines.
fn wishful(spec: &Value) -> Decision {
    let mut snapshot = Snapshot {
        pools: vec![pool("p", 10, vec![template("m", 8, &["a", "b"], 1_000)])],
        ..Snapshot::default()
    };
    snapshot.cluster.pods = pods("x", 12, "1", spec);
    plan(&snapshot)
}

fn selector() -> Value {
    json!({"matchLabels": {"app": "x"}})
}

#[test]
fn wishes_are_kept_as_far_as_they_cost_no_machine() {
    #[track_caller]
    fn check(spec: Value, stated: u64, kept: u64, zones: &[&str]) {
        let decision = wishful(&spec);
        let found = decision.report.preferences;
        assert_eq!(
            (found.stated, found.kept, new_zones(&decision)),
            (stated, kept, zones.iter().map(ToString::to_string).collect()),
            "{spec}"
        );
    }
    let spread = |key: &str| {
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector()}]})
    };
    let node = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}}]}}});
    let term = |kind: &str, key: &str| {
        json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"labelSelector": selector(), "topologyKey": key}}]}}})
    };
    check(json!({}), 0, 0, &["a", "b"]);
    check(spread(ZONE), 12, 12, &["a", "b"]);
    check(spread(super::HOSTNAME), 12, 12, &["a", "b"]); // six on each, not eight and four
    check(node, 12, 12, &["b", "b"]);
    check(term("podAffinity", ZONE), 12, 12, &["a", "b"]);
    check(term("podAntiAffinity", super::HOSTNAME), 12, 0, &["a", "b"]); // twelve machines would keep it
}

#[test]
fn a_taint_to_avoid_is_avoided_if_there_is_room_elsewhere() {
    #[track_caller]
    fn check(pods_wanted: usize, on_tainted: usize) {
        let mut snapshot = Snapshot::default();
        for name in ["n1", "n2"] {
            add_node(&mut snapshot, name, "p", "a", 4);
        }
        snapshot.members.clear();
        snapshot.cluster.nodes[0].spec.taints = object(json!([{"key": "old", "effect": "PreferNoSchedule"}]));
        snapshot.cluster.pods = pods("x", pods_wanted, "1", &json!({}));
        let decision = plan(&snapshot);
        let tainted = places(&decision).iter().filter(|(_, node)| node == "n1").count();
        assert_eq!((tainted, unplaced(&decision).len()), (on_tainted, 0));
    }
    check(3, 0);
    check(4, 0);
    check(6, 2);
}
