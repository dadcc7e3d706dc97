//! What holds for any input: no panic, and no verdict that depends on the order of nodes or pods.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod common;

use std::{collections::BTreeMap, fs, path::Path, sync::OnceLock};

use common::{Dice, spoil};
use muster_engine::{
    audit,
    fit::{Verdict, judge},
    plan::{NewNode, Placement, Plan, Removal, Source, Target},
    snapshot::{DrainPolicy, Group, Host, HostState, Member, Offering, Pool, Snapshot, Template},
};
use muster_model::k8s::{self, Pod};
use muster_sim::conformance::{case::Case, run_line};
use proptest::prelude::*;
use serde_json::{Value, json};

const FILES: [&str; 12] = [
    "mixed",
    "named",
    "nodeaffinity",
    "nodebits",
    "plan",
    "podaffinity",
    "ports",
    "resources",
    "sequence",
    "spread",
    "taints",
    "volumes",
];

fn cases() -> &'static [Value] {
    static CASES: OnceLock<Vec<Value>> = OnceLock::new();
    CASES.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/conformance");
        let texts = FILES.map(|file| fs::read_to_string(folder.join(format!("{file}.jsonl"))).unwrap());
        texts.iter().flat_map(|text| text.lines()).map(|line| serde_json::from_str(line).unwrap()).collect()
    })
}

fn shuffle<T>(dice: &mut Dice, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, dice.roll(last + 1));
    }
}

fn by_name(case: &Case, verdict: &Verdict) -> Value {
    let name = |node: usize| case.nodes[node].name().to_owned();
    let fails: BTreeMap<String, String> = verdict
        .failures
        .iter()
        .map(|failure| (name(failure.node), format!("{:?} {:?}", failure.first, failure.all)))
        .collect();
    let mut fits: Vec<String> = verdict.fits.iter().map(|node| name(*node)).collect();
    fits.sort();
    json!({"fits": fits, "fails": fails, "message": verdict.message, "request": format!("{:?}", verdict.request)})
}

fn verdicts(case: &Case) -> BTreeMap<String, Value> {
    let world = case.world();
    case.pending.iter().map(|pod| (pod.key().to_string(), by_name(case, &judge(&world, pod)))).collect()
}

/// A snapshot and a plan that touch every kind of step, legal or not.
fn stage(case: &Case, dice: &mut Dice) -> (Snapshot, Plan) {
    let drain = DrainPolicy { keep_unreplicated: false, ..DrainPolicy::default() };
    let mut snapshot = Snapshot { drain, ..Snapshot::default() };
    snapshot.cluster.nodes.clone_from(&case.nodes);
    snapshot.cluster.namespaces.clone_from(&case.namespaces);
    snapshot.cluster.pods = case.pods.iter().chain(&case.pending).cloned().collect();
    snapshot.cluster.volumes.clone_from(&case.pvs);
    snapshot.cluster.claims.clone_from(&case.pvcs);
    snapshot.cluster.storage_classes.clone_from(&case.storage_classes);
    let template = Template {
        name: "t".into(),
        node: case.nodes.first().cloned().unwrap_or_default().into(),
        offerings: vec![Offering::default()],
        ..Template::default()
    };
    snapshot.pools = vec![Pool { name: "p".into(), max: 9, templates: vec![template], ..Pool::default() }];
    snapshot.hosts = vec![Host {
        name: "h".into(),
        pool: "p".into(),
        template: "t".into(),
        state: HostState::Off,
        ..Host::default()
    }];
    snapshot.groups =
        vec![Group { name: "g".into(), pods: case.pending.iter().map(Pod::key).collect(), min: 1 }];
    let member = || Member { pool: "p".into(), ..Member::default() };
    snapshot.members = case.nodes.iter().map(|node| (node.metadata.name.clone(), member())).collect();

    let new = |name: &str, source| NewNode {
        name: name.into(),
        pool: "p".into(),
        template: "t".into(),
        source,
        price: 0,
    };
    let mut plan = Plan {
        new_nodes: vec![new("x1", Source::default()), new("x2", Source::Host { host: "h".into() })],
        ..Plan::default()
    };
    let target = |dice: &mut Dice| match dice.roll(case.nodes.len() + 2) {
        choice if choice < case.nodes.len() => Target::Node(case.nodes[choice].metadata.name.clone()),
        choice => Target::New(u32::try_from(choice - case.nodes.len()).unwrap()),
    };
    plan.placements = case.pending.iter().map(|pod| Placement { pod: pod.key(), on: target(dice) }).collect();
    if let Some(node) = case.nodes.first() {
        let moves = case.pods.iter().filter(|pod| pod.spec.node_name.as_deref() == Some(node.name()));
        let moves = moves.map(|pod| Placement { pod: pod.key(), on: target(dice) }).collect();
        plan.removals.push(Removal { node: node.metadata.name.clone(), moves });
    }
    (snapshot, plan)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Objects that no API server would accept are refused with a reason or judged; nothing panics.
    #[test]
    fn spoiled_cases_never_panic(seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let mut case = cases()[dice.roll(cases().len())].clone();
        for _ in 0..=dice.roll(4) {
            spoil(&mut case, &mut dice);
        }
        let outcome = run_line(&case.to_string());
        prop_assert!(outcome.computed.is_some() || !outcome.differences.is_empty());
    }

    /// Nodes, bound pods, namespaces and pending pods may come in any order.
    #[test]
    fn verdicts_do_not_depend_on_the_order_of_objects(seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let value = &cases()[dice.roll(cases().len())];
        let case: Case = k8s::from_value("case", value).unwrap();
        let mut shuffled: Case = k8s::from_value("case", value).unwrap();
        shuffle(&mut dice, &mut shuffled.nodes);
        shuffle(&mut dice, &mut shuffled.pods);
        shuffle(&mut dice, &mut shuffled.pending);
        shuffle(&mut dice, &mut shuffled.namespaces);
        shuffle(&mut dice, &mut shuffled.pvs);
        shuffle(&mut dice, &mut shuffled.pvcs);
        prop_assert_eq!(verdicts(&case), verdicts(&shuffled));
    }

    /// Binding pods and taking them away again, or taking nodes away, leaves no trace.
    #[test]
    fn what_is_undone_leaves_no_trace(seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let case: Case = k8s::from_value("case", &cases()[dice.roll(cases().len())]).unwrap();
        let mut world = case.world();
        // Ask first, so that whatever is counted lazily is there and has to be kept up to date.
        let before: Vec<Verdict> = case.pending.iter().map(|pod| judge(&world, pod)).collect();
        let mut bound = Vec::new();
        for pod in case.pending.iter().filter(|_| !case.nodes.is_empty()) {
            let node = dice.roll(case.nodes.len());
            world.bind(pod, node);
            bound.push((pod, node));
            let _ = judge(&world, pod);
        }
        for (pod, node) in bound {
            prop_assert!(world.unbind(&pod.metadata.namespace, &pod.metadata.name, node));
        }
        let after: Vec<Verdict> = case.pending.iter().map(|pod| judge(&world, pod)).collect();
        prop_assert_eq!(before, after);
    }

    #[test]
    fn a_removed_node_is_as_if_it_had_never_been(seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let value = &cases()[dice.roll(cases().len())];
        let case: Case = k8s::from_value("case", value).unwrap();
        if case.nodes.len() < 2 {
            return Ok(());
        }
        let gone = dice.roll(case.nodes.len());
        let mut world = case.world();
        for pod in &case.pending {
            let _ = judge(&world, pod);
        }
        world.remove_node(gone);
        let mut smaller: Case = k8s::from_value("case", value).unwrap();
        smaller.nodes.remove(gone);
        let left: BTreeMap<String, Value> =
            case.pending.iter().map(|pod| (pod.key().to_string(), by_name(&case, &judge(&world, pod)))).collect();
        prop_assert_eq!(left, verdicts(&smaller));
    }

    /// Any plan on any cluster, spoiled as well, is judged without a panic and twice the same.
    #[test]
    fn audits_of_spoiled_plans_never_panic(seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let case: Case = k8s::from_value("case", &cases()[dice.roll(cases().len())]).unwrap();
        let mut both = serde_json::to_value(stage(&case, &mut dice)).unwrap();
        for _ in 0..dice.roll(5) {
            spoil(&mut both, &mut dice);
        }
        if let Ok((snapshot, plan)) = serde_json::from_value::<(Snapshot, Plan)>(both) {
            let first = audit(&snapshot, &plan);
            prop_assert_eq!(first.to_string(), audit(&snapshot, &plan).to_string());
        }
    }
}
