use muster_model::k8s::{
    DaemonSet,
    Operator::{In, NotIn},
};
use serde_json::{Value, json};

use super::*;
use crate::fit::{ports, requests};

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "d", "labels": {"app": "a", "rev": "1"}}, "spec": spec}))
        .unwrap()
}

fn admitted(spec: Value) -> Pod {
    admit(pod(spec), Classes::default()).unwrap()
}

#[test]
fn limits_become_requests_and_fractions_round_up_per_container() {
    let pod = admitted(json!({"containers": [
        {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}}},
        {"resources": {"requests": {"cpu": "1n"}}}, {"resources": {"requests": {"cpu": "1n"}}}]}));
    let request = requests::of_pending(&pod);
    assert_eq!((request.milli_cpu, request.memory), (102, 1 << 30));
}

#[test]
fn pod_level_requests_come_from_the_containers_and_then_from_the_limits() {
    #[track_caller]
    fn check(resources: Value, containers: Value, cpu: i64, memory: i64) {
        let pod = admitted(json!({"resources": resources, "containers": [{"resources": containers}]}));
        let request = requests::of_pending(&pod);
        assert_eq!((request.milli_cpu, request.memory), (cpu, memory));
    }
    check(json!({"limits": {"cpu": "4", "memory": "10"}}), json!({"requests": {"cpu": "1"}}), 1000, 10);
    check(json!({"requests": {"cpu": "2"}}), json!({"requests": {"cpu": "1", "memory": "5"}}), 2000, 5);
    check(json!({}), json!({"limits": {"cpu": "1"}}), 1000, 0);
}

#[test]
fn pod_level_huge_pages_come_from_the_containers_limits() {
    let pod = admitted(json!({"resources": {"requests": {"cpu": "1"}}, "containers": [
        {"resources": {"limits": {"hugepages-2Mi": "4Mi"}, "requests": {"hugepages-2Mi": "4Mi"}}}]}));
    let resources = pod.spec.resources.clone().unwrap();
    assert_eq!(resources.limits.get("hugepages-2Mi").unwrap().value(), 4 << 20);
    assert_eq!(resources.requests.get("hugepages-2Mi").unwrap().value(), 4 << 20);
}

#[test]
fn ports_of_the_hosts_network_are_ports_of_the_node() {
    let spec = json!({"hostNetwork": true, "containers": [{"ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 81}]}]});
    let taken: Vec<i32> = ports::of(&admitted(spec).spec).iter().map(|port| port.port).collect();
    assert_eq!(taken, [80, 81]);
    let spec = json!({"containers": [{"ports": [{"containerPort": 80}]}]});
    assert!(ports::of(&admitted(spec).spec).is_empty());
}

#[test]
fn label_keys_are_merged_once_into_selectors_that_exist() {
    let term = json!({"topologyKey": "z", "labelSelector": {}, "matchLabelKeys": ["rev", "nope"], "mismatchLabelKeys": ["app"]});
    let pod = admitted(json!({
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        "topologySpreadConstraints": [
            {"topologyKey": "z", "labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["rev"]},
            {"topologyKey": "z", "matchLabelKeys": ["rev"]}]}));
    let expressions = |selector: &muster_model::k8s::LabelSelector| {
        selector.match_expressions.iter().map(|one| (one.key.to_string(), one.operator)).collect::<Vec<_>>()
    };
    let anti = pod.spec.affinity.as_ref().unwrap().pod_anti_affinity.as_ref().unwrap();
    assert_eq!(
        expressions(anti.required[0].label_selector.as_ref().unwrap()),
        [("rev".to_owned(), In), ("app".to_owned(), NotIn)]
    );
    let spread = &pod.spec.topology_spread_constraints;
    assert_eq!(expressions(spread[0].label_selector.as_ref().unwrap()), [("rev".to_owned(), In)]);
    assert_eq!(spread[1].label_selector, None);
    // Admitting what was already admitted changes nothing.
    assert_eq!(admit(pod.clone(), Classes::default()).unwrap(), pod);
}

#[test]
fn lost_nodes_are_tolerated_for_a_while_unless_the_pod_says_otherwise() {
    assert_eq!(admitted(json!({})).spec.tolerations.len(), 2);
    let own = json!({"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]});
    assert_eq!(admitted(own).spec.tolerations.len(), 1);
}

#[test]
fn priority_and_runtime_class_are_resolved() {
    let priority: Vec<PriorityClass> = serde_json::from_value(json!([
        {"metadata": {"name": "high"}, "value": 100, "preemptionPolicy": "Never"},
        {"metadata": {"name": "usual"}, "value": 5, "globalDefault": true}]))
    .unwrap();
    let runtime: Vec<RuntimeClass> = serde_json::from_value(json!([{"metadata": {"name": "vm"},
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]}}]))
    .unwrap();
    let classes = Classes { priority: &priority, runtime: &runtime };
    let found = admit(pod(json!({"priorityClassName": "high", "runtimeClassName": "vm"})), classes).unwrap();
    assert_eq!(found.spec.priority, Some(100));
    assert_eq!(found.spec.preemption_policy.as_deref(), Some("Never"));
    assert_eq!(found.spec.node_selector.text("vm"), Some("yes"));
    assert_eq!(requests::of_pending(&found).milli_cpu, 250);
    assert_eq!(admit(pod(json!({})), classes).unwrap().spec.priority, Some(5));
    let system = json!({"priorityClassName": "system-node-critical"});
    assert_eq!(admitted(system).spec.priority, Some(2_000_001_000));

    let refused = |spec: Value| admit(pod(spec), classes).unwrap_err();
    assert_eq!(refused(json!({"priorityClassName": "no"})), Refused::PriorityClass { name: "no".into() });
    assert_eq!(refused(json!({"runtimeClassName": "no"})), Refused::RuntimeClass { name: "no".into() });
    assert!(matches!(refused(json!({"priority": 7})), Refused::Priority { found: 7, expected: 5 }));
    let clash = json!({"runtimeClassName": "vm", "nodeSelector": {"vm": "no"}});
    assert!(matches!(refused(clash), Refused::NodeSelector { .. }));
}

#[test]
fn daemon_pods_go_where_their_set_wants_them() {
    #[track_caller]
    fn check(set: &DaemonSet, node: Value, wanted: bool) {
        let node = serde_json::from_value(node).unwrap();
        assert_eq!(wants_node(set, &node), wanted);
    }
    let set: DaemonSet = serde_json::from_value(json!({"metadata": {"name": "log", "namespace": "kube-system"},
        "spec": {"template": {"metadata": {"labels": {"app": "log"}}, "spec": {"nodeSelector": {"disk": "yes"}}}}}))
    .unwrap();
    check(&set, json!({"metadata": {"labels": {"disk": "yes"}}}), true);
    check(&set, json!({"metadata": {}}), false);
    let tainted = |key: &str| json!({"metadata": {"labels": {"disk": "yes"}}, "spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}});
    check(&set, tainted("gpu"), false);
    check(&set, tainted("node.kubernetes.io/disk-pressure"), true);
    let pod = daemon_pod(&set, "n1");
    assert_eq!(pod.key().to_string(), "kube-system/log-n1");
    assert!(matches!(
        crate::fit::node_affinity::cut(&pod.spec),
        Ok(crate::fit::node_affinity::Cut::Named(_))
    ));
}
