//! A plan that breaks nothing, and one change for every way to break something.

use std::sync::Arc;

use muster_model::{
    Timestamp,
    k8s::{Node, Pod, PodKey},
};
use serde_json::{Value, json};

use super::*;
use crate::{
    plan::{NewNode, Placement, Removal, Source, Target},
    snapshot::{
        Gap, Group, Health, Hold, Host, HostState, Member, MemberState, Mode, Offering, Pool, PowerLimits,
        Scope, Stops, Template,
    },
};

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn key(name: &str) -> PodKey {
    PodKey { namespace: "d".into(), name: name.into() }
}

fn node(name: &str, labels: Value) -> Node {
    from(json!({"metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}, "capacity": {"cpu": "4", "memory": "8Gi"}}}))
}

fn pod(name: &str, cpu: &str, extra: Value) -> Pod {
    let mut pod = json!({"metadata": {"name": name, "namespace": "d", "labels": {"app": name},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "rs", "controller": true}]},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
    merge(&mut pod, extra);
    from(pod)
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn host(name: &str, rack: &str, state: HostState) -> Host {
    Host {
        name: name.into(),
        pool: "metal".into(),
        template: "box".into(),
        rack: Some(rack.into()),
        state,
        price: 7,
        max_milliwatts: 300_000,
        inrush_milliwatts: 500_000,
        ..Host::default()
    }
}

/// Two nodes of a cloud pool that also has room to buy, and a pool of three hosts, one of which runs.
fn snapshot() -> Snapshot {
    let offering = |zone: &str, kind: &str, price, supply| Offering {
        zone: Some(zone.into()),
        capacity_type: Some(kind.into()),
        price,
        supply,
        ..Offering::default()
    };
    let template = |name: &str, offerings| Template {
        name: name.into(),
        node: Arc::new(node("", json!({"kind": name}))),
        offerings,
        ..Template::default()
    };
    let pool =
        |name: &str, max, templates| Pool { name: name.into(), min: 1, max, templates, ..Pool::default() };
    let member = |pool: &str, price, host: Option<&str>| Member {
        pool: pool.into(),
        price,
        host: host.map(Into::into),
        ..Member::default()
    };
    let mut snapshot = Snapshot {
        now: Timestamp::from_millis(1_000_000),
        pools: vec![
            pool(
                "cloud",
                5,
                vec![template(
                    "m",
                    vec![offering("a", "on-demand", 100, None), offering("b", "spot", 40, Some(1))],
                )],
            ),
            pool("metal", 3, vec![template("box", vec![])]),
        ],
        hosts: vec![
            host("h1", "r1", HostState::Ready),
            host("h2", "r1", HostState::Off),
            host("h3", "r2", HostState::Off),
        ],
        ..Snapshot::default()
    };
    snapshot.hosts[0].node = Some("m1".into());
    snapshot.cluster.nodes =
        vec![node("n1", json!({"zone": "a"})), node("n2", json!({"zone": "b"})), node("m1", json!({}))];
    snapshot.cluster.pods = vec![
        pod("r1", "1", json!({"spec": {"nodeName": "n1"}})),
        pod("r2", "1", json!({"spec": {"nodeName": "n2"}})),
        pod("p1", "3", json!({})),
        pod("p2", "1", json!({})),
        pod("p3", "9", json!({})),
    ];
    snapshot.cluster.budgets = from(json!([{"metadata": {"name": "b", "namespace": "d"},
        "spec": {"selector": {"matchLabels": {"app": "r1"}}}, "status": {"disruptionsAllowed": 1}}]));
    snapshot.members =
        [("n1", "cloud", 100, None), ("n2", "cloud", 100, None), ("m1", "metal", 7, Some("h1"))]
            .into_iter()
            .map(|(name, pool, price, host)| (name.into(), member(pool, price, host)))
            .collect();
    snapshot
}

fn bought(name: &str, zone: &str, kind: &str, price: i64) -> NewNode {
    let source = Source::Bought { zone: Some(zone.into()), capacity_type: Some(kind.into()) };
    NewNode { name: name.into(), pool: "cloud".into(), template: "m".into(), source, price }
}

fn woken(name: &str, host: &str) -> NewNode {
    let source = Source::Host { host: host.into() };
    NewNode { name: name.into(), pool: "metal".into(), template: "box".into(), source, price: 7 }
}

fn on(pod: &str, target: Target) -> Placement {
    Placement { pod: key(pod), on: target }
}

fn named(node: &str) -> Target {
    Target::Node(node.into())
}

/// Buys a node, wakes a host, places two pods and gives up `n1`.
fn plan() -> Plan {
    Plan {
        new_nodes: vec![bought("c1", "a", "on-demand", 100), woken("m2", "h2")],
        placements: vec![on("p1", Target::New(0)), on("p2", named("n2"))],
        removals: vec![Removal { node: "n1".into(), moves: vec![on("r1", named("n2"))] }],
        unplaced: vec![key("p3")],
    }
}

#[track_caller]
fn check(code: &str, change: impl FnOnce(&mut Snapshot, &mut Plan)) {
    let (mut snapshot, mut plan) = (snapshot(), plan());
    change(&mut snapshot, &mut plan);
    let findings = audit(&snapshot, &plan);
    let codes: Vec<&str> = findings.iter().map(|finding| finding.fault.code()).collect();
    assert_eq!(codes, [code], "{findings}");
    assert!(!findings.to_string().is_empty());
}

#[test]
fn a_plan_that_breaks_nothing_has_no_findings() {
    let findings = audit(&snapshot(), &plan());
    assert!(findings.is_empty(), "{findings}");
    assert!(audit(&Snapshot::default(), &Plan::default()).is_empty());
}

#[test]
fn supply_is_respected() {
    check("UnknownPool", |_, plan| {
        plan.new_nodes.push(NewNode { pool: "x".into(), ..bought("c2", "a", "on-demand", 100) });
    });
    check("UnknownTemplate", |_, plan| {
        plan.new_nodes.push(NewNode { template: "x".into(), ..bought("c2", "a", "on-demand", 100) });
    });
    check("NotOffered", |_, plan| plan.new_nodes.push(bought("c2", "a", "spot", 40)));
    check("NotOffered", |snapshot, plan| {
        snapshot.pools[0].templates[0].offerings[1].unavailable_until =
            Some(Timestamp::from_millis(1_000_001));
        plan.new_nodes.push(bought("c2", "b", "spot", 40));
    });
    check("OfferingExhausted", |_, plan| {
        plan.new_nodes.extend([bought("c2", "b", "spot", 40), bought("c3", "b", "spot", 40)]);
    });
    check("WrongPrice", |_, plan| plan.new_nodes[0].price = 99);
    check("WrongPrice", |_, plan| plan.new_nodes[1].price = 0);
    check("NodeNameTaken", |_, plan| plan.new_nodes[0].name = "n2".into());
    check("NodeNameTaken", |_, plan| plan.new_nodes[0].name = "m2".into());
    check("UnknownHost", |_, plan| plan.new_nodes[1] = woken("m2", "h9"));
    check("HostUsedTwice", |snapshot, plan| {
        snapshot.pools[1].max = 9;
        plan.new_nodes.push(woken("m3", "h2"));
    });
}

#[test]
fn only_hosts_that_can_be_woken_are() {
    check("WrongHost", |_, plan| plan.new_nodes[1] = woken("m2", "h1")); // it runs already
    for state in
        [HostState::Waking, HostState::Leaving, HostState::Failed, HostState::Maintenance, HostState::Unknown]
    {
        check("WrongHost", |snapshot, _| snapshot.hosts[1].state = state);
    }
    check("WrongHost", |snapshot, _| snapshot.hosts[1].pool = "other".into());
    check("WrongHost", |snapshot, _| snapshot.hosts[1].template = "other".into());
    check("WrongHost", |snapshot, _| snapshot.hosts[1].health = Health::Critical("inlet 48 °C".into()));
    check("WrongHost", |snapshot, _| {
        snapshot.hosts[1].backoff_until = Some(Timestamp::from_millis(2_000_000));
    });
}

#[test]
fn bounds_of_pools_hold() {
    check("AboveMax", |snapshot, _| snapshot.pools[0].max = 2);
    check("AboveMax", |snapshot, _| snapshot.pools[1].max = 1);
    check("AboveMax", |snapshot, plan| {
        snapshot.pools[1].fixed = Some(1);
        plan.removals.clear();
    });
    check("BelowMin", |snapshot, _| snapshot.pools[0].min = 2);
    check("BelowMin", |snapshot, plan| {
        snapshot.members.get_mut("n2").unwrap().state = MemberState::Leaving;
        plan.placements[1] = on("p2", named("m1"));
        plan.removals[0].moves[0] = on("r1", named("m1"));
    });
    check("TooManyNew", |snapshot, _| snapshot.pools[0].max_new = Some(0));
    check("TooMuch", |snapshot, _| snapshot.pools[0].limits = from(json!({"cpu": "11"})));
    check("Frozen", |snapshot, plan| {
        snapshot.pools[1].mode = Mode::Frozen;
        plan.removals.clear();
    });
    check("Frozen", |snapshot, plan| {
        snapshot.pools[0].mode = Mode::Frozen;
        plan.new_nodes.remove(0);
        plan.placements.remove(0);
        plan.unplaced.push(key("p1"));
    });
}

#[test]
fn bounds_of_the_cluster_hold() {
    check("TooManyNodes", |snapshot, _| snapshot.limits.max_nodes = Some(4));
    check("TooManyNew", |snapshot, _| snapshot.limits.max_new = Some(1));
    check("TooManyRemovals", |snapshot, _| snapshot.limits.max_removals = Some(0));
    // Those that are going already count, in all and in their rack.
    let leaving = |name: &str| Host {
        name: name.into(),
        state: HostState::Leaving,
        rack: Some("r".into()),
        ..Host::default()
    };
    check("TooManyRemovals", |snapshot, _| {
        snapshot.limits.max_removals = Some(1);
        snapshot.hosts.push(leaving("h-going"));
    });
    check("TooManyRemovals", |snapshot, plan| {
        let node = plan.removals[0].node.clone();
        snapshot.hosts.push(leaving("h-going"));
        snapshot.hosts.push(Host { state: HostState::Ready, ..leaving("h-planned") });
        snapshot.members.get_mut(&node).unwrap().host = Some("h-planned".into());
        snapshot.limits.racks.insert("r".into(), PowerLimits { leaving: Some(1), ..PowerLimits::default() });
    });
    check("TooExpensive", |snapshot, _| snapshot.limits.price = Some(313));
    check("TooMuch", |snapshot, _| snapshot.limits.resources = from(json!({"memory": "39Gi"})));
    // Limits that are already broken and not touched are nobody's fault.
    let (mut snapshot, mut plan) = (snapshot(), plan());
    snapshot.limits.resources = from(json!({"gpu": "0", "cpu": "20"}));
    snapshot.limits.price = Some(314);
    assert!(audit(&snapshot, &plan).is_empty());
    snapshot.limits.resources = from(json!({"cpu": "1"}));
    snapshot.limits.price = Some(1);
    plan.new_nodes.clear();
    plan.placements.remove(0);
    plan.unplaced.push(key("p1"));
    assert!(audit(&snapshot, &plan).is_empty());
}

#[test]
fn power_limits_hold_for_everything_and_for_each_rack() {
    let all =
        |limits: PowerLimits| move |snapshot: &mut Snapshot, _: &mut Plan| snapshot.limits.power = limits;
    let rack = |limits: PowerLimits| {
        move |snapshot: &mut Snapshot, _: &mut Plan| {
            snapshot.limits.racks.insert("r1".into(), limits);
        }
    };
    let watts = PowerLimits { milliwatts: Some(599_999), ..PowerLimits::default() };
    let inrush = PowerLimits { inrush_milliwatts: Some(499_999), ..PowerLimits::default() };
    let waking = PowerLimits { waking: Some(0), ..PowerLimits::default() };
    check("TooMuchPower", all(watts.clone()));
    check("TooMuchPower", rack(watts.clone()));
    check("TooMuchInrush", all(inrush.clone()));
    check("TooMuchInrush", rack(inrush));
    check("TooManyWaking", all(waking.clone()));
    check("TooManyWaking", rack(waking));
    check("TooManyWaking", |snapshot, _| {
        snapshot.hosts[2].state = HostState::Waking;
        snapshot.limits.power.waking = Some(1);
    });
    // Another rack's limit is not ours, and a limit that is just met is met.
    let mut snapshot = snapshot();
    snapshot.limits.racks.insert("r2".into(), watts);
    snapshot.limits.power = PowerLimits {
        milliwatts: Some(600_000),
        inrush_milliwatts: Some(500_000),
        waking: Some(1),
        leaving: None,
    };
    assert!(audit(&snapshot, &plan()).is_empty());
}

#[test]
fn few_machines_are_on_their_way_in_times_of_trouble() {
    let slow = |snapshot: &mut Snapshot| snapshot.limits.caution = Some("answers take 10 s".into());
    check("TooFast", |snapshot, _| slow(snapshot));
    let mut large = snapshot();
    slow(&mut large);
    large.cluster.nodes.extend((0..20).map(|number| node(&format!("more-{number}"), json!({}))));
    assert!(audit(&large, &plan()).is_empty()); // two of more than twenty
}

#[test]
fn holds_and_gaps_are_respected() {
    let hold = |scope, stops| Hold { scope, stops, why: "because".into(), until: None };
    check("Held", |snapshot, _| snapshot.holds.push(hold(Scope::Pool("metal".into()), Stops::Growth)));
    check("Held", |snapshot, _| snapshot.holds.push(hold(Scope::Host("h2".into()), Stops::Both)));
    check("Held", |snapshot, _| snapshot.holds.push(hold(Scope::Node("n1".into()), Stops::Removal)));
    check("Held", |snapshot, _| snapshot.holds.push(hold(Scope::Everything, Stops::Removal)));
    check("Held", |snapshot, _| {
        snapshot.cluster.nodes[0].metadata.annotations =
            [("cluster-autoscaler.kubernetes.io/scale-down-disabled", "true")].into_iter().collect();
    });
    for scope in [Scope::Everything, Scope::Pool("cloud".into()), Scope::Node("n1".into())] {
        check("Unobserved", |snapshot, _| snapshot.gaps.push(Gap { scope, why: "no pods were read".into() }));
    }
    // A hold that has run out, that stops the other direction or that is on something else does not matter.
    let mut snapshot = snapshot();
    let past = Some(snapshot.now);
    snapshot.holds.push(Hold { until: past, ..hold(Scope::Everything, Stops::Both) });
    snapshot.holds.push(hold(Scope::Node("n1".into()), Stops::Growth));
    snapshot.holds.push(hold(Scope::Pool("metal".into()), Stops::Removal));
    snapshot.gaps.push(Gap { scope: Scope::Node("n2".into()), why: "no".into() });
    assert!(audit(&snapshot, &plan()).is_empty());
}

#[test]
fn every_pending_pod_is_placed_once_or_listed() {
    check("UnknownPod", |_, plan| plan.placements.push(on("nobody", named("n2"))));
    check("NotPending", |_, plan| plan.placements.push(on("r2", named("m1"))));
    check("NotPending", |snapshot, plan| {
        snapshot.cluster.pods.push(pod("g", "1", json!({"spec": {"schedulingGates": [{"name": "wait"}]}})));
        plan.placements.push(on("g", named("m1")));
    });
    check("PlacedTwice", |_, plan| plan.placements.push(on("p2", named("m1"))));
    check("PlacedTwice", |_, plan| plan.unplaced.push(key("p2")));
    check("Unaccounted", |_, plan| plan.unplaced.clear());
    check("UnknownNode", |_, plan| plan.placements[1] = on("p2", named("n9")));
    check("UnknownNode", |_, plan| plan.placements[1] = on("p2", Target::New(7)));
    check("LeavingNode", |_, plan| plan.placements[1] = on("p2", named("n1")));
    check("LeavingNode", |snapshot, plan| {
        snapshot.members.get_mut("m1").unwrap().state = MemberState::Leaving;
        plan.placements[1] = on("p2", named("m1"));
    });
}

#[test]
fn filters_are_asked_at_every_step() {
    #[track_caller]
    fn refused(plugin: &str, change: impl FnOnce(&mut Snapshot, &mut Plan)) {
        let (mut snapshot, mut plan) = (snapshot(), plan());
        change(&mut snapshot, &mut plan);
        let findings = audit(&snapshot, &plan);
        let plugins: Vec<&str> = findings
            .iter()
            .map(|finding| match &finding.fault {
                Fault::Refused { plugin, .. } => plugin.name(),
                other => panic!("{other}"),
            })
            .collect();
        assert_eq!(plugins, [plugin], "{findings}");
    }
    refused("NodeResourcesFit", |_, plan| {
        plan.unplaced.clear();
        plan.placements.push(on("p3", named("m1")));
    });
    refused("NodeResourcesFit", |snapshot, _| {
        // A daemon pod takes the room on the new node.
        snapshot.cluster.daemon_sets = from(
            json!([{"metadata": {"name": "log", "namespace": "d"}, "spec": {"template":
            {"spec": {"nodeSelector": {"kind": "m"}, "containers": [{"resources": {"requests": {"cpu": "1500m"}}}]}}}}]),
        );
    });
    refused("TaintToleration", |snapshot, _| {
        Arc::make_mut(&mut snapshot.pools[0].templates[0].node).spec.taints =
            from(json!([{"key": "dedicated", "effect": "NoSchedule"}]));
    });
    refused("NodeUnschedulable", |snapshot, plan| {
        snapshot.cluster.nodes[2].spec.unschedulable = true;
        plan.placements[1] = on("p2", named("m1"));
    });
    refused("NodeAffinity", |snapshot, _| {
        snapshot.cluster.pods[2] =
            pod("p1", "3", json!({"spec": {"nodeSelector": {"topology.kubernetes.io/zone": "b"}}}));
    });
    refused("InterPodAffinity", |snapshot, _| {
        let terms = json!([{"labelSelector": {"matchLabels": {"app": "p2"}}, "topologyKey": "zone"}]);
        snapshot.cluster.pods[0] = pod(
            "r1",
            "1",
            json!({"spec": {"nodeName": "n1",
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}}),
        );
    });
    refused("PodTopologySpread", |snapshot, plan| {
        // A new zone lowers the minimum and closes the others.
        let spread = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "p1"}}}]);
        snapshot.cluster.pods[2] = pod("p1", "1", json!({"spec": {"topologySpreadConstraints": spread}}));
        snapshot.cluster.pods.push(pod(
            "p4",
            "1",
            json!({"metadata": {"labels": {"app": "p1"}}, "spec": {"topologySpreadConstraints": spread}}),
        ));
        plan.placements.push(on("p4", Target::New(0)));
    });
}

#[test]
fn groups_run_together_or_not_at_all() {
    let group =
        |pods: &[&str], min| Group { name: "g".into(), pods: pods.iter().map(|pod| key(pod)).collect(), min };
    check("GroupTorn", |snapshot, _| snapshot.groups.push(group(&["p1", "p3"], 2)));
    let mut snapshot = snapshot();
    snapshot.groups = vec![group(&["p1", "p2", "p3"], 2), group(&["p3"], 1), group(&["r2", "p1"], 2)];
    assert!(audit(&snapshot, &plan()).is_empty());
}

#[test]
fn removals_leave_no_pod_behind() {
    check("LeftBehind", |_, plan| plan.removals[0].moves.clear());
    check("NotOnNode", |_, plan| plan.removals[0].moves.push(on("r2", named("n2"))));
    check("UnknownNode", |_, plan| plan.removals.push(Removal { node: "n9".into(), moves: vec![] }));
    check("NotOurs", |snapshot, plan| {
        snapshot.cluster.nodes.push(node("x", json!({})));
        plan.removals.push(Removal { node: "x".into(), moves: vec![] });
    });
    check("RemovedTwice", |snapshot, plan| {
        snapshot.pools[0].min = 0;
        plan.removals.push(Removal { node: "n1".into(), moves: vec![] });
    });
    check("LeavingNode", |_, plan| plan.removals[0].moves[0] = on("r1", named("n1")));
    check("Refused", |_, plan| {
        // p1 and r1 do not both fit the node that is bought.
        plan.placements[0] = on("p1", Target::New(0));
        plan.placements[1] = on("p2", Target::New(0));
        plan.removals[0].moves[0] = on("r1", Target::New(0));
    });
    // Daemon pods, mirror pods and pods on their way out go with the node.
    let mut snapshot = snapshot();
    let owner = json!([{"kind": "DaemonSet", "name": "log", "controller": true}]);
    snapshot.cluster.pods.extend([
        pod("a", "0", json!({"metadata": {"ownerReferences": owner}, "spec": {"nodeName": "n1"}})),
        pod("b", "0", json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {"nodeName": "n1"}})),
        pod("c", "0", json!({"metadata": {"deletionTimestamp": "2025-01-01T00:00:00Z"}, "spec": {"nodeName": "n1"}})),
        pod("e", "0", json!({"spec": {"nodeName": "n1"}, "status": {"phase": "Succeeded"}})),
    ]);
    assert!(audit(&snapshot, &plan()).is_empty());
}

#[test]
fn pods_that_may_not_be_moved_stay() {
    #[track_caller]
    fn fine(change: impl FnOnce(&mut Snapshot, &mut Plan)) {
        let (mut snapshot, mut plan) = (snapshot(), plan());
        change(&mut snapshot, &mut plan);
        let findings = audit(&snapshot, &plan);
        assert!(findings.is_empty(), "{findings}");
    }
    let with = |extra: Value| {
        move |snapshot: &mut Snapshot, _: &mut Plan| {
            let mut all = json!({"spec": {"nodeName": "n1"}});
            merge(&mut all, extra);
            snapshot.cluster.pods[0] = pod("r1", "1", all);
        }
    };
    let annotated = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
    check("Unmovable", with(annotated("cluster-autoscaler.kubernetes.io/safe-to-evict", "false")));
    check("Unmovable", with(annotated("karpenter.sh/do-not-disrupt", "true")));
    check("Unmovable", with(json!({"metadata": {"ownerReferences": []}})));
    let scratch = json!({"spec": {"volumes": [{"name": "tmp", "emptyDir": {}}]}});
    check("Unmovable", with(scratch.clone()));
    check("Unmovable", |snapshot, plan| {
        with(json!({"metadata": {"namespace": "kube-system"}}))(snapshot, plan);
        plan.removals[0].moves[0].pod.namespace = "kube-system".into();
    });
    check("Unmovable", |snapshot, _| {
        snapshot.drain.min_replicas = 2;
        snapshot.cluster.replica_sets =
            from(json!([{"metadata": {"name": "rs", "namespace": "d"}, "spec": {"replicas": 1}}]));
    });
    let mut safe = scratch.clone();
    merge(&mut safe, annotated("cluster-autoscaler.kubernetes.io/safe-to-evict", "true"));
    fine(with(safe));
    let mut safe = scratch;
    merge(&mut safe, annotated("cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes", "other, tmp"));
    fine(with(safe));
    fine(with(json!({"spec": {"volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}]}})));
}

#[test]
fn budgets_are_shared_by_the_whole_plan() {
    check("BudgetExhausted", |snapshot, _| snapshot.cluster.budgets[0].status.disruptions_allowed = Some(0));
    check("BudgetExhausted", |snapshot, _| snapshot.cluster.budgets[0].status.disruptions_allowed = None);
    check("BudgetExhausted", |snapshot, _| snapshot.cluster.budgets[0].metadata.generation = 1);
    check("SeveralBudgets", |snapshot, _| {
        let again = snapshot.cluster.budgets[0].clone();
        snapshot.cluster.budgets.push(again);
    });
    check("BudgetExhausted", |snapshot, plan| {
        // One disruption for two pods on two nodes.
        snapshot.cluster.budgets[0].spec.selector = Some(from(json!({})));
        snapshot.pools[1].min = 0;
        snapshot.cluster.pods.push(pod("r3", "1", json!({"spec": {"nodeName": "m1"}})));
        plan.removals.push(Removal { node: "m1".into(), moves: vec![on("r3", Target::New(1))] });
    });
    // Pods that are not ready cost nothing where the budget says so.
    let mut snapshot = snapshot();
    snapshot.cluster.budgets[0].status.disruptions_allowed = Some(0);
    snapshot.cluster.budgets[0].spec.unhealthy_pod_eviction_policy = "AlwaysAllow".into();
    snapshot.cluster.pods[0].status = from(json!({"conditions": [{"type": "Ready", "status": "False"}]}));
    assert!(audit(&snapshot, &plan()).is_empty());
}

#[test]
fn nodes_on_their_way_carry_their_daemon_pods() {
    check("Refused", |snapshot, plan| {
        let expected = Timestamp::from_millis(2_000_000);
        snapshot.members.get_mut("m1").unwrap().state = MemberState::Upcoming { expected };
        snapshot.cluster.daemon_sets =
            from(json!([{"metadata": {"name": "log", "namespace": "d"}, "spec": {"template":
            {"spec": {"nodeName": "m1", "containers": [{"resources": {"requests": {"cpu": "3500m"}}}]}}}}]));
        plan.placements[1] = on("p2", named("m1"));
    });
}

#[test]
fn snapshots_and_plans_survive_json() {
    let (snapshot, plan) = (snapshot(), plan());
    let text = serde_json::to_string(&(&snapshot, &plan)).unwrap();
    let back: (Snapshot, Plan) = serde_json::from_str(&text).unwrap();
    assert_eq!(back, (snapshot, plan));
}
