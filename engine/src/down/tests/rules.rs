//! Drainability rule by rule, budgets on one node, spread over racks, times of hosts, and replacements.

use super::*;

const SAFE: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// What becomes of node `a` when it carries one pod with these fields: the code of what keeps it, `empty` if
/// the pod goes with it, or `moves`.
#[track_caller]
fn outcome(change: impl Fn(&mut Snapshot), metadata: &Value, rest: &Value) -> String {
    let mut snapshot = base();
    let mut value = json!({
        "metadata": {"name": "p", "namespace": "d", "labels": {"app": "p"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "rs", "controller": true}]},
        "spec": {"nodeName": "a", "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
        "status": {"phase": "Running"}});
    for (key, field) in metadata.as_object().unwrap() {
        value["metadata"][key] = field.clone();
    }
    for (part, fields) in rest.as_object().unwrap() {
        for (key, field) in fields.as_object().unwrap() {
            value[part][key] = field.clone();
        }
    }
    snapshot.cluster.pods[0] = from(value);
    change(&mut snapshot);
    let gone = removed(&snapshot); // the audit agrees
    let report = scale_down(&snapshot, &Plan::default());
    let verdict = report.verdict("a").unwrap();
    assert_eq!(gone.iter().any(|text| text.starts_with('a')), verdict.outcome != Outcome::Blocked);
    match &verdict.outcome {
        Outcome::Empty => "empty".to_owned(),
        Outcome::Drained => "moves".to_owned(),
        _ => verdict.blockers.iter().map(Blocker::code).collect::<Vec<_>>().join(" "),
    }
}

#[test]
fn every_rule_of_the_cluster_autoscaler_is_kept() {
    #[track_caller]
    fn check(rule: &str, metadata: Value, rest: Value, expected: &str) {
        assert_eq!(outcome(|_| {}, &metadata, &rest), expected, "{rule}");
    }
    let note = |key: &str, value: &str| json!({"annotations": {key: value}});
    let owner = |kind: &str| json!({"ownerReferences": [{"kind": kind, "name": "o", "controller": true}]});
    let alone = |key: &str, value: &str| json!({"ownerReferences": [], "annotations": {key: value}});
    let ca = |name: &str| format!("cluster-autoscaler.kubernetes.io/{name}");
    let none = || json!({});
    let scratch = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
    let in_memory = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]}});
    check("an ordinary pod", none(), none(), "moves");
    check("mirror", note("kubernetes.io/config.mirror", "x"), none(), "empty");
    check("long terminating", json!({"deletionTimestamp": HOUR_AGO}), none(), "empty");
    check("terminating", json!({"deletionTimestamp": NOW}), none(), "empty"); // its drain waits for it
    check("daemon set", owner("DaemonSet"), none(), "empty");
    check("daemon set by annotation", alone(&ca("daemonset-pod"), "true"), none(), "empty");
    check("not a daemon set", note(&ca("daemonset-pod"), "false"), none(), "moves");
    check("skip reschedule", alone(&ca("skip-reschedule"), "true"), none(), "empty");
    let torn = json!({"annotations": {ca("skip-reschedule"): "true", SAFE: "false"}});
    check("skip reschedule, but not safe", torn, none(), "notSafeToEvict");
    check("safe to evict", alone(SAFE, "true"), scratch.clone(), "moves");
    check("terminal", json!({"ownerReferences": []}), json!({"status": {"phase": "Failed"}}), "empty");
    check("completed", json!({"ownerReferences": []}), json!({"status": {"phase": "Succeeded"}}), "empty");
    check("replicated", json!({"ownerReferences": []}), none(), "unreplicated");
    check("replicated by a custom controller", owner("Rollout"), none(), "moves");
    check("controller gone", owner("ReplicaSet"), none(), "controllerMissing");
    check(
        "system",
        json!({"namespace": "kube-system", "ownerReferences": []}),
        none(),
        "unreplicated systemPod",
    );
    check("not safe to evict", note(SAFE, "false"), none(), "notSafeToEvict");
    check("on completion", note(SAFE, "on-completion"), none(), "waitsForCompletion");
    check("any other word", note(SAFE, "yes"), none(), "moves");
    check("local storage", none(), scratch.clone(), "localStorage");
    check("local storage in memory", none(), in_memory, "moves");
    check(
        "local storage that is safe",
        note(&ca("safe-to-evict-local-volumes"), "w,v"),
        scratch.clone(),
        "moves",
    );
    check(
        "local storage, other is safe",
        note(&ca("safe-to-evict-local-volumes"), "w"),
        scratch,
        "localStorage",
    );
    let path = json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/var"}}]}});
    check("host path", none(), path, "localStorage");
    check("karpenter", note("karpenter.sh/do-not-disrupt", "true"), none(), "doNotDisrupt");
    let both = json!({"annotations": {"karpenter.sh/do-not-disrupt": "true", SAFE: "true"}});
    check("karpenter, though safe to evict", both, none(), "doNotDisrupt");
}

#[test]
fn replica_counts_of_every_kind_of_controller_are_read() {
    #[track_caller]
    fn check(kind: &str, list: &str, field: &str, replicas: u32, min: u32, expected: &str) {
        let owner = json!({"ownerReferences": [{"kind": kind, "name": "o", "controller": true}]});
        let change = |snapshot: &mut Snapshot| {
            let set = json!([{"metadata": {"name": "o", "namespace": "d"}, "spec": {field: replicas}}]);
            snapshot.drain.min_replicas = min;
            match list {
                "replicaSets" => snapshot.cluster.replica_sets.extend(from::<Vec<_>>(set)),
                "statefulSets" => snapshot.cluster.stateful_sets = from(set),
                _ => snapshot.cluster.jobs = from(set),
            }
        };
        assert_eq!(outcome(change, &owner, &json!({})), expected, "{kind} {replicas} of {min}");
    }
    for (kind, list, field) in [
        ("ReplicaSet", "replicaSets", "replicas"),
        ("ReplicationController", "replicaSets", "replicas"),
        ("StatefulSet", "statefulSets", "replicas"),
        ("Job", "jobs", "parallelism"),
    ] {
        check(kind, list, field, 2, 2, "moves");
        check(kind, list, field, 1, 2, "fewReplicas");
        check(kind, list, field, 1, 0, "moves");
    }
}

#[test]
fn pods_of_one_node_draw_on_their_budget_together() {
    #[track_caller]
    fn check(allowed: i32, policy: &str, healthy: i32, pods: &[(&str, &str)], expected: &[&str]) {
        let mut snapshot = base();
        let status = |phase: &str, ready: &str| {
            let conditions =
                if ready.is_empty() { json!([]) } else { json!([{"type": "Ready", "status": ready}]) };
            from(json!({"phase": phase, "conditions": conditions}))
        };
        snapshot.cluster.pods.remove(0);
        for (at, (phase, ready)) in pods.iter().enumerate() {
            let mut pod =
                pod_with(&format!("w-{at}"), "a", "100m", &json!({"labels": {"app": "w"}}), &json!({}));
            pod.status = status(phase, ready);
            snapshot.cluster.pods.push(pod);
        }
        snapshot.cluster.budgets = vec![from(json!({"metadata": {"name": "b", "namespace": "d"},
            "spec": {"selector": {"matchLabels": {"app": "w"}}, "unhealthyPodEvictionPolicy": policy},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": 2}}))];
        let gone = removed(&snapshot).iter().any(|text| text.starts_with("a "));
        let report = scale_down(&snapshot, &Plan::default());
        let found: Vec<&str> = report.verdict("a").unwrap().blockers.iter().map(Blocker::code).collect();
        assert_eq!((found.as_slice(), gone), (expected, expected.is_empty()), "{allowed} {policy} {pods:?}");
    }
    let ready = ("Running", "True");
    let sick = ("Running", "False");
    check(1, "", 2, &[ready], &[]);
    check(1, "", 2, &[ready, ready], &["budget"]); // two of one node need two
    check(2, "", 2, &[ready, ready], &[]);
    check(0, "", 2, &[sick], &[]); // the budget is met without it
    check(0, "", 1, &[sick], &["budget"]); // it is not: even a sick pod counts
    check(0, "AlwaysAllow", 1, &[sick], &[]);
    check(0, "AlwaysAllow", 1, &[sick, ready], &["budget"]);
    check(0, "", 1, &[("Pending", "")], &[]); // it does not run yet
    check(0, "AlwaysAllow", 1, &[("Running", "")], &["budget"]); // readiness is not known
}

fn racked(racks: [&str; 3]) -> Snapshot {
    let mut snapshot = base();
    snapshot.pools[0].demand.scale_down_percent = None;
    snapshot.cluster.pods = vec![pod("a-1", "a", "500m"), pod("b-1", "b", "500m"), pod("c-1", "c", "500m")];
    for (name, rack) in ["a", "b", "c"].into_iter().zip(racks) {
        snapshot.hosts.push(Host {
            name: name.into(),
            pool: "p".into(),
            template: "t".into(),
            rack: Some(rack.into()),
            state: HostState::Ready,
            node: Some(name.into()),
            ..Host::default()
        });
        snapshot.members.get_mut(name).unwrap().host = Some(name.into());
    }
    snapshot
}

#[test]
fn the_last_node_of_a_rack_stays_if_the_pool_asks_for_spread() {
    let mut snapshot = racked(["r1", "r1", "r2"]);
    assert_eq!(removed(&snapshot).len(), 2); // nobody asks
    snapshot.pools[0].keep_racks = 2;
    let gone = removed(&snapshot);
    assert_eq!(gone.len(), 1);
    assert!(!gone[0].starts_with('c'), "{gone:?}");
    let report = scale_down(&snapshot, &Plan::default());
    let text = report.verdict("c").unwrap().blockers[0].to_string();
    assert_eq!(text, "it is the only node of pool p in rack r2; 2 of 2 are kept");
    let stays = report.verdicts.iter().filter(|verdict| {
        matches!(verdict.outcome, Outcome::Kept(Kept::LastThere { .. } | Kept::Receives { .. }))
    });
    assert_eq!(stays.count(), 1, "{report:?}");
    // One that is not ready holds no place.
    let mut unready = snapshot.clone();
    unready.members.get_mut("b").unwrap().state = MemberState::Unready;
    let report = scale_down(&unready, &Plan::default());
    assert!(report.verdict("a").unwrap().blockers.iter().any(|why| why.code() == "lastThere"), "{report:?}");
    // A machine that fails goes all the same.
    snapshot.hosts[2].health = Health::Critical("fan 1 stands still".into());
    assert!(removed(&snapshot).iter().any(|text| text.starts_with('c')));
    // Zones likewise, by the label of the node.
    let mut zoned = racked(["r1", "r1", "r1"]);
    zoned.pools[0].keep_zones = 1;
    zoned.cluster.nodes[0].metadata.labels.insert("topology.kubernetes.io/zone", "z".into());
    let report = scale_down(&zoned, &Plan::default());
    assert_eq!(report.verdict("a").unwrap().blockers[0].code(), "lastThere");
    assert_eq!(removed(&zoned).len(), 2);
}

/// The world once the removals are carried out.
pub(super) fn carried_out(snapshot: &Snapshot, removals: &[Removal]) -> Snapshot {
    let mut after = snapshot.clone();
    for removal in removals {
        for step in &removal.moves {
            let Target::Node(to) = &step.on else { panic!("{step:?}") };
            let pod = after.cluster.pods.iter_mut().find(|pod| pod.key() == step.pod).unwrap();
            Arc::make_mut(&mut pod.spec).node_name = Some((**to).into());
        }
        after.members.remove(&removal.node);
    }
    let goes = |name: &str| removals.iter().any(|removal| *removal.node == *name);
    after.cluster.nodes = snapshot.cluster.nodes.iter().filter(|node| !goes(node.name())).cloned().collect();
    after.cluster.pods.retain(|pod| pod.spec.node_name.as_deref().is_none_or(|node| !goes(node)));
    after
}

/// The pools for which growth would call up a node to keep room free.
pub(super) fn short_of_room(snapshot: &Snapshot) -> Vec<String> {
    let growth = crate::plan::scale_up(snapshot).report.growth;
    let short =
        growth.into_iter().filter(|growth| matches!(growth.why, crate::plan::Growth::Headroom { .. }));
    short.map(|growth| growth.pool).collect()
}

/// What removals leave is what growth counts: nobody is called up again for it.
#[test]
fn room_that_is_kept_free_is_counted_as_growth_counts_it() {
    #[track_caller]
    fn check(change: impl FnOnce(&mut Snapshot), goes: usize, why: Option<&str>) {
        let mut snapshot = base();
        snapshot.cluster.nodes = ["a", "b", "c"].map(|name| node(name, "8")).to_vec();
        snapshot.cluster.pods = vec![pod("b-1", "b", "5"), pod("c-1", "c", "5")];
        change(&mut snapshot);
        assert_eq!(short_of_room(&snapshot), [""; 0], "nothing is missing at first");
        let report = scale_down(&snapshot, &Plan::default());
        let found = report.verdict("a").unwrap().blockers.first().map(ToString::to_string);
        assert_eq!((report.removals.len(), found.as_deref()), (goes, why), "{report:?}");
        assert_eq!(short_of_room(&carried_out(&snapshot, &report.removals)), [""; 0]);
    }
    let spare = |snapshot: &mut Snapshot, spare: Spare| snapshot.pools[0].spare = spare;
    let shape = |cpu: &str| Spare { pods: 1, shape: from(json!({"cpu": cpu})), nodes: 0 };
    check(|_| {}, 1, None);
    check(|s| spare(s, shape("3")), 1, None);
    // 3 + 3 cpu would be left, and no node with 4.
    let text = "pool p keeps 1 places free; 0 would be left";
    check(|s| spare(s, shape("4")), 0, Some(text));
    let text = "pool p keeps 1 nodes free; 0 would be left";
    check(|s| spare(s, Spare { nodes: 1, ..Spare::default() }), 0, Some(text));
    // A node on which nothing new lands is no free one.
    let closed = |s: &mut Snapshot| {
        s.cluster.nodes.push(node("d", "8"));
        s.cluster.nodes[3].spec.unschedulable = true;
        s.members.insert("d".into(), Member { unneeded_since: None, ..member("p") });
        spare(s, Spare { nodes: 1, ..Spare::default() });
    };
    check(closed, 0, Some(text));
    // A node of its own that a daemon runs on is free all the same.
    let daemon = json!({"ownerReferences": [{"kind": "DaemonSet", "name": "ds", "controller": true}]});
    check(
        |s| {
            s.cluster.nodes.push(node("d", "8"));
            s.members.insert("d".into(), Member { unneeded_since: None, ..member("p") });
            s.cluster.pods.push(pod_with("ds-1", "d", "1", &daemon, &json!({})));
            spare(s, Spare { nodes: 1, ..Spare::default() });
        },
        1,
        None,
    );
}

#[test]
fn the_audit_refuses_to_empty_a_rack() {
    let mut snapshot = racked(["r1", "r1", "r2"]);
    snapshot.pools[0].keep_racks = 2;
    let moves = vec![Placement { pod: key("c-1"), on: Target::Node("a".into()) }];
    let plan = Plan { removals: vec![Removal { node: "c".into(), moves }], ..Plan::default() };
    let found: Vec<String> = audit(&snapshot, &plan).iter().map(ToString::to_string).collect();
    assert_eq!(found, ["removals[0]: node c is the last of its pool in rack r2, and 2 of them are kept"]);
}

#[test]
fn a_host_serves_for_its_least_time() {
    #[track_caller]
    fn check(since: Option<&str>, minutes: u64, critical: bool, expected: Option<&str>) {
        let mut snapshot = racked(["r1", "r1", "r1"]);
        snapshot.hosts[0].on_since = since.map(time);
        snapshot.hosts[0].min_on_time = Duration::from_mins(minutes);
        if critical {
            snapshot.hosts[0].health = Health::Critical("cpu 101 °C".into());
        }
        let report = scale_down(&snapshot, &Plan::default());
        let verdict = report.verdict("a").unwrap();
        assert_eq!(verdict.blockers.first().map(ToString::to_string).as_deref(), expected);
        assert!(expected.is_none() || verdict.unneeded && verdict.next.is_some());
    }
    check(None, 10, false, None); // nobody knows since when
    check(Some(HOUR_AGO), 60, false, None);
    let text = "host a is on since 2026-01-01T23:00:00Z and stays on for 1h1m, until 2026-01-02T00:01:00Z";
    check(Some(HOUR_AGO), 61, false, Some(text));
    check(Some(HOUR_AGO), 61, true, None);
}

#[test]
fn several_nodes_are_replaced_by_one_that_is_cheaper_than_all_of_them() {
    let mut snapshot = base();
    snapshot.pools[0].demand.scale_down_percent = None;
    snapshot.cluster.pods = vec![pod("a-1", "a", "3"), pod("b-1", "b", "3"), pod("c-1", "c", "3")];
    let large = Template {
        name: "l".into(),
        node: Arc::new(node("l", "9")),
        offerings: vec![crate::snapshot::Offering { price: 2_000_000, ..Default::default() }],
        ..Template::default()
    };
    snapshot.pools[0].templates.push(large);
    let mut plan = Plan::default();
    let report = complete(&snapshot, &mut plan);
    assert!(audit(&snapshot, &plan).is_empty());
    assert_eq!((plan.new_nodes.len(), plan.removals.len()), (1, 3), "{report:?}");
    assert!(report.verdicts.iter().all(|verdict| verdict.outcome == Outcome::Replaced));
    let moved: usize = plan.removals.iter().map(|removal| removal.moves.len()).sum();
    assert_eq!(moved, 3); // every pod has a place
    // A budget that lets nobody go stops it.
    snapshot.cluster.budgets = vec![from(json!({"metadata": {"name": "b", "namespace": "d"},
        "spec": {"selector": {}}, "status": {"disruptionsAllowed": 0}}))];
    assert!(scale_down(&snapshot, &Plan::default()).new_nodes.is_empty());
}

#[test]
fn nodes_and_pods_to_spare_are_kept() {
    #[track_caller]
    fn check(nodes: u32, pods: u32, gone: usize) {
        let mut snapshot = base();
        snapshot.cluster.pods.remove(0);
        for name in ["d", "e"] {
            snapshot.cluster.nodes.push(node(name, "4"));
            snapshot.members.insert(name.into(), member("p"));
        }
        snapshot.pools[0].spare.nodes = nodes;
        snapshot.pools[0].spare.pods = pods;
        snapshot.pools[0].spare.shape = from(json!({"cpu": "1"}));
        assert_eq!(removed(&snapshot).len(), gone, "{nodes} nodes, {pods} pods of one core");
    }
    // Three empty nodes of four cores, and two that are half full and stay.
    check(0, 0, 3);
    check(1, 0, 2);
    check(2, 0, 1);
    check(3, 0, 0);
    check(9, 0, 0); // what is missing already is not made worse
    check(0, 4, 3); // the two have room for four
    check(0, 5, 2);
    check(0, 9, 1);
    check(0, 13, 0);
    check(1, 4, 2);
}
