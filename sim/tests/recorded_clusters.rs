//! The planner on every recorded cluster: what its fast path decides is what the exact filters say.
//!
//! The recorded cases have every rule that the filters know, in combinations that no generator of ours makes. Here
//! their pending pods are planned for, once without new machines and once with some.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use muster_engine::{
    Plan, Snapshot, audit,
    down::complete,
    fit::{World, judge},
    plan::{Target, scale_up},
    snapshot::{DrainPolicy, Member, Offering, Pool, Template},
};
use muster_model::k8s;
use muster_sim::conformance::case::Case;

fn cases() -> Vec<Case> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let folder = fs::read_dir(fixtures.join("conformance")).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = folder.filter(|file| !file.ends_with("quantities.jsonl")).collect();
    files.push(fixtures.join("conformance-variants.jsonl"));
    files.sort();
    let texts = files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "jsonl"));
    let texts: Vec<String> = texts.map(|file| fs::read_to_string(file).unwrap()).collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    let read =
        |line: &str| -> Case { k8s::from_value("case", &serde_json::from_str(line).unwrap()).unwrap() };
    // A pod that names its node is bound, not pending; there is nothing to plan.
    let waits = |case: &Case| case.pending.iter().all(|pod| pod.is_pending() && pod.spec.node_name.is_none());
    lines.map(read).filter(|case| !case.nodes.is_empty() && waits(case)).collect()
}

/// The cluster of a case; its nodes belong to a pool that can make up to `most` more of the first few of them.
fn stage(case: &Case, most: u32) -> Snapshot {
    let mut snapshot = Snapshot {
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
        drain: DrainPolicy { keep_unreplicated: false, keep_local_storage: false, ..DrainPolicy::default() },
        ..Snapshot::default()
    };
    let cluster = &mut snapshot.cluster;
    cluster.nodes.clone_from(&case.nodes);
    cluster.namespaces.clone_from(&case.namespaces);
    cluster.pods = case.pods.iter().chain(&case.pending).cloned().collect();
    cluster.volumes.clone_from(&case.pvs);
    cluster.claims.clone_from(&case.pvcs);
    cluster.storage_classes.clone_from(&case.storage_classes);
    cluster.csi_nodes.clone_from(&case.csi_nodes);
    cluster.csi_drivers.clone_from(&case.csi_drivers);
    cluster.storage_capacities.clone_from(&case.csi_storage_capacities);
    cluster.volume_attachments.clone_from(&case.volume_attachments);
    let template = |(price, node): (i64, &k8s::Node)| Template {
        name: node.metadata.name.clone(),
        node: Arc::new(node.clone()),
        csi: case
            .csi_nodes
            .iter()
            .find(|csi| csi.metadata.name == node.metadata.name)
            .map(|csi| csi.spec.clone()),
        offerings: vec![Offering { price: 1_000 + price, ..Offering::default() }],
    };
    let max = u32::try_from(case.nodes.len()).unwrap() + most;
    let templates = (0..).zip(case.nodes.iter().take(4)).map(template).collect();
    snapshot.pools = vec![Pool { name: "p".into(), max, templates, ..Pool::default() }];
    let member = |node: &k8s::Node| {
        let template = node.metadata.name.clone();
        (node.metadata.name.clone(), Member { pool: "p".into(), template, price: 1_000, ..Member::default() })
    };
    snapshot.members = case.nodes.iter().map(member).collect();
    snapshot
}

/// The cluster once everything was carried out that the plan says about nodes that are there.
fn end<'a>(case: &'a Case, plan: &Plan) -> World<'a> {
    let mut world = case.world();
    let pods: BTreeMap<_, _> = case.pending.iter().map(|pod| (pod.key(), pod)).collect();
    for placement in &plan.placements {
        let Target::Node(name) = &placement.on else { panic!("there are no new nodes") };
        world.bind(pods[&placement.pod], world.index_of(name).unwrap());
    }
    world
}

#[test]
fn eng_17_without_new_machines_pods_are_left_only_where_the_filters_refuse_them() {
    let (mut placed, mut left) = (0, 0);
    for case in cases() {
        let snapshot = stage(&case, 0);
        let plan = scale_up(&snapshot).plan;
        let findings = audit(&snapshot, &plan);
        assert!(findings.is_empty(), "{}: {findings}", case.id);
        let world = end(&case, &plan);
        // A volume that another pod of the plan takes is still free to the filters, which see what is bound.
        let left_out = |pod: &&k8s::Pod| pod.spec.volumes.is_empty() && plan.unplaced.contains(&pod.key());
        for pod in case.pending.iter().filter(left_out) {
            let fits = judge(&world, pod).fits;
            assert_eq!(fits, Vec::<usize>::new(), "{}: {} was left out", case.id, pod.key());
        }
        (placed, left) = (placed + plan.placements.len(), left + plan.unplaced.len());
    }
    assert!(placed > 1_000 && left > 1_000, "{placed} pods were placed and {left} left");
}

#[test]
fn eng_17_plans_with_new_machines_and_removals_pass_the_audit() {
    let (mut machines, mut removed) = (0, 0);
    for case in cases() {
        let snapshot = stage(&case, 3);
        let mut plan = scale_up(&snapshot).plan;
        let findings = audit(&snapshot, &plan);
        assert!(findings.is_empty(), "{}: {findings}", case.id);
        let _ = complete(&snapshot, &mut plan);
        let findings = audit(&snapshot, &plan);
        assert!(findings.is_empty(), "{} with removals: {findings}", case.id);
        (machines, removed) = (machines + plan.new_nodes.len(), removed + plan.removals.len());
    }
    assert!(machines > 300 && removed > 300, "{machines} machines, {removed} removals");
}
