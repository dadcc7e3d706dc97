//! The audit and the real scheduler agree on every recorded plan.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use muster_engine::{
    audit,
    audit::{At, Fault},
    plan::{NewNode, Placement, Plan, Source, Target},
    snapshot::{Offering, Pool, Snapshot, Template},
};
use muster_model::k8s;
use muster_sim::conformance::case::{Case, PlanAnswer};
use serde_json::{Value, json};

fn plans() -> Vec<(Value, Case)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/conformance");
    let mut cases = Vec::new();
    for file in ["plan.jsonl", "named.jsonl"] {
        for line in fs::read_to_string(folder.join(file)).unwrap().lines() {
            let value: Value = serde_json::from_str(line).unwrap();
            if value["kind"] == "plan" {
                let case = k8s::from_value("case", &value).unwrap();
                cases.push((value, case));
            }
        }
    }
    assert_eq!(cases.len(), 303);
    cases
}

/// The cluster of a case with the nodes for which `made` holds left out, to be made by the plan from a
/// template that describes exactly that node.
fn stage(case: &Case, made: impl Fn(usize) -> bool) -> (Snapshot, Plan) {
    let mut snapshot = Snapshot::default();
    snapshot.cluster.namespaces.clone_from(&case.namespaces);
    snapshot.cluster.pods = case.pods.iter().chain(&case.pending).cloned().collect();
    let mut plan = Plan::default();
    let mut targets: BTreeMap<usize, Target> = BTreeMap::new();
    let mut pool = Pool { name: "pool".into(), max: 1000, ..Pool::default() };
    for (index, node) in case.nodes.iter().enumerate() {
        let name: Arc<str> = node.name().into();
        if !made(index) {
            snapshot.cluster.nodes.push(node.clone());
            targets.insert(index, Target::Node(name));
            continue;
        }
        targets.insert(index, Target::New(u32::try_from(plan.new_nodes.len()).unwrap()));
        let offerings = vec![Offering::default()];
        let template =
            Template { name: name.clone(), node: Arc::new(node.clone()), offerings, ..Template::default() };
        pool.templates.push(template);
        let source = Source::default();
        plan.new_nodes.push(NewNode {
            name: name.clone(),
            pool: "pool".into(),
            template: name,
            source,
            price: 0,
        });
    }
    snapshot.pools.push(pool);
    let place =
        |(pod, node): &(usize, usize)| Placement { pod: case.pending[*pod].key(), on: targets[node].clone() };
    plan.placements = case.steps.iter().map(place).collect();
    let placed: Vec<_> = plan.placements.iter().map(|placement| placement.pod.clone()).collect();
    let waiting = case.pending.iter().map(muster_model::k8s::Pod::key);
    plan.unplaced = waiting.filter(|pod| !placed.contains(pod)).collect();
    (snapshot, plan)
}

#[track_caller]
fn compare(snapshot: &Snapshot, plan: &Plan, expected: &PlanAnswer, id: &str) {
    let findings = audit(snapshot, plan);
    assert_eq!(findings.is_empty(), expected.legal, "{id}: {findings}");
    let mut refused = BTreeMap::new();
    for finding in findings.iter() {
        match (finding.at, &finding.fault) {
            (At::Placement(step), Fault::Refused { plugin, reasons, .. }) => {
                refused.insert(step, (plugin.name().to_owned(), reasons.clone()));
            }
            _ => panic!("{id}: {finding}"),
        }
    }
    let steps = expected.steps.iter().enumerate().filter(|(_, step)| !step.ok);
    let recorded: BTreeMap<_, _> = steps
        .map(|(index, step)| {
            let mut why = step.why.clone().unwrap();
            why.sort();
            (index, (step.first.clone().unwrap(), why))
        })
        .collect();
    assert_eq!(refused, recorded, "{id}");
}

#[test]
fn the_audit_agrees_with_every_recorded_plan() {
    for (_, case) in plans() {
        let (snapshot, plan) = stage(&case, |_| false);
        compare(&snapshot, &plan, case.plan.as_ref().unwrap(), &case.id);
    }
}

/// Nodes that the case calls new come from templates of a pool. Only cases in which every node carries its
/// own name as hostname, as any node that registers does, can be staged so.
#[test]
fn the_audit_agrees_when_new_nodes_come_from_templates() {
    let mut staged = 0;
    for (value, case) in plans() {
        let new: Vec<usize> = serde_json::from_value(value["newNodes"].clone()).unwrap_or_default();
        let named = |index: &usize| {
            case.nodes[*index].metadata.labels.text("kubernetes.io/hostname")
                == Some(case.nodes[*index].name())
        };
        if new.is_empty() || !new.iter().all(named) {
            continue;
        }
        let (snapshot, plan) = stage(&case, |index| new.contains(&index));
        compare(&snapshot, &plan, case.plan.as_ref().unwrap(), &case.id);
        staged += 1;
    }
    assert!(staged > 100, "only {staged} cases could be staged");
}

/// A fifth each of plain pods, zone spread, hostname spread, zone affinity and hostname anti-affinity.
fn diverse(count: usize, nodes: usize) -> (Snapshot, Plan) {
    let spread = |key: &str, label: &str| json!([{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"l": label}}}]);
    let near = |key: &str, value: &str| {
        let labels = json!({ key: value });
        json!([{"labelSelector": {"matchLabels": labels}, "topologyKey": if key == "z" { "topology.kubernetes.io/zone" } else { "kubernetes.io/hostname" }}])
    };
    let pod = |index: usize| {
        let label = ["a", "b", "c", "d", "e", "f", "g"][index % 7];
        let (labels, spec) = match index % 5 {
            0 => (json!({"l": label}), json!({})),
            1 => (
                json!({"l": label}),
                json!({"topologySpreadConstraints": spread("topology.kubernetes.io/zone", label)}),
            ),
            2 => (
                json!({"l": label}),
                json!({"topologySpreadConstraints": spread("kubernetes.io/hostname", label)}),
            ),
            3 => (
                json!({"z": label}),
                json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": near("z", label)}}}),
            ),
            _ => (
                json!({"app": "nginx"}),
                json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": near("app", "nginx")}}}),
            ),
        };
        let mut spec = spec;
        spec["containers"] =
            json!([{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}]);
        json!({"metadata": {"name": format!("p{index}"), "namespace": "d", "labels": labels}, "spec": spec})
    };
    let node = |index: usize| {
        let zone = ["x", "y", "z"][index % 3];
        json!({"metadata": {"name": format!("n{index}"), "labels": {"kubernetes.io/hostname": format!("n{index}"),
            "topology.kubernetes.io/zone": zone}},
            "status": {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"}}})
    };
    let mut snapshot = Snapshot::default();
    snapshot.cluster.pods = serde_json::from_value((0..count).map(pod).collect()).unwrap();
    snapshot.cluster.nodes = serde_json::from_value((0..nodes).map(node).collect()).unwrap();
    let place = |(index, pod): (usize, &k8s::Pod)| Placement {
        pod: pod.key(),
        on: Target::Node(format!("n{}", index % nodes).into()),
    };
    let placements = snapshot.cluster.pods.iter().enumerate().map(place).collect();
    let plan = Plan { placements, ..Plan::default() };
    (snapshot, plan)
}

#[test]
fn a_big_plan_is_audited_in_one_go() {
    let (snapshot, plan) = diverse(5_000, 1_000);
    let findings = audit(&snapshot, &plan);
    let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in findings.iter() {
        match &finding.fault {
            Fault::Refused { plugin, .. } => *refused.entry(plugin.name()).or_default() += 1,
            other => panic!("{other}"),
        }
    }
    // Pod `i` goes to node `i mod 1000`. A second nginx on a node is always one too many, and pods with
    // affinity have to follow the zone of the first of their label.
    let mut first_zone: BTreeMap<usize, usize> = BTreeMap::new();
    let strays = (0..5_000_usize).filter(|index| index % 5 == 3).filter(|index| {
        let zone = index % 1_000 % 3;
        *first_zone.entry(index % 7).or_insert(zone) != zone
    });
    let strays = strays.count();
    assert_eq!(refused.get("InterPodAffinity"), Some(&(4 * 200 + strays)), "{refused:?}");
    assert_eq!(refused.keys().copied().collect::<Vec<_>>(), ["InterPodAffinity", "PodTopologySpread"]);
}
