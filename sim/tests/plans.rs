//! Properties of whole plans, growth and removals together, on random clusters.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

use std::sync::Arc;

use muster_engine::{
    Plan, Snapshot, audit,
    down::complete,
    explain::{Answer, Code, Explainer, LONGEST_LINE, Match, Scene, text},
    plan::{Decision, Reason, Target, scale_up},
    snapshot::{HostState, Offering, Pool},
};
use muster_model::k8s::PodKey;
use muster_sim::{
    replay::{Order, left_pending},
    scenario,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Pods of one workload by small numbers: replicas, cpu, memory, kind of rule, and the node they run on.
type Draft = (u8, u8, u8, u8, u8);

const NODES: u8 = 6;

fn rules(app: &str, kind: u8, spread: bool) -> Value {
    let selector = json!({"matchLabels": {"app": app}});
    let term = |key: &str| json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selector, "topologyKey": key}]});
    let zone = "topology.kubernetes.io/zone";
    let even = |key: &str| json!([{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]);
    match kind % 10 {
        1 => json!({"affinity": {"podAntiAffinity": term("kubernetes.io/hostname")}}),
        2 => json!({"affinity": {"podAffinity": term(zone)}}),
        3 if spread => json!({"topologySpreadConstraints": even(zone)}),
        4 if spread => json!({"topologySpreadConstraints": even("kubernetes.io/hostname")}),
        5 => {
            json!({"nodeSelector": {"kind": "metal"}, "tolerations": [{"key": "metal", "operator": "Exists"}]})
        }
        6 => json!({"nodeSelector": {zone: "a"}}),
        7 => json!({"tolerations": [{"key": "metal", "operator": "Exists"}]}),
        8 => json!({"hostPorts": [8080]}),
        9 => json!({"nodeSelector": {"no": "such"}}),
        _ => json!({}),
    }
}

/// Two pools, one that buys and one of hosts, and a few nodes that run already.
fn cluster(drafts: &[Draft], hosts: u8, max: u32, min: u32, spread: bool) -> Snapshot {
    let mut pods = Vec::new();
    for (at, (replicas, cpu, memory, kind, on)) in drafts.iter().enumerate() {
        let app = format!("a{at}");
        let mut pod = rules(&app, *kind, spread);
        pod["name"] = json!(app);
        pod["labels"] = json!({"app": app});
        pod["requests"] = json!({"cpu": format!("{}m", u32::from(*cpu % 20) * 100), "memory": format!("{}Mi", u32::from(*memory % 20) * 128)});
        if on.is_multiple_of(3) {
            pod["node"] = json!(format!("n{}", on % NODES));
        } else {
            pod["replicas"] = json!(replicas % 6);
        }
        pods.push(pod);
    }
    let host = |at: u8| json!({"name": format!("h{at}"), "zone": if at.is_multiple_of(2) { "a" } else { "b" }, "maxWatts": 200});
    let node = |at: u8| json!({"name": format!("n{at}"), "template": "small", "pool": "cloud", "zone": if at.is_multiple_of(2) { "a" } else { "b" }});
    let scenario = json!({"format": "muster-scenario/1", "pools": [
            {"name": "cloud", "templates": ["small", "large"]},
            {"name": "metal", "templates": ["box"], "labels": {"kind": "metal"}, "taints": [{"key": "metal", "effect": "NoSchedule"}]}],
        "templates": [
            {"name": "small", "capacity": {"cpu": "2", "memory": "4Gi", "pods": "8"}, "price": 1.0, "offerings": [{"zone": "a"}, {"zone": "b", "supply": 2}]},
            {"name": "large", "capacity": {"cpu": "8", "memory": "12Gi", "pods": "16"}, "price": 3.5, "supply": 2},
            {"name": "box", "capacity": {"cpu": "4", "memory": "8Gi", "pods": "12"}, "price": 0.2, "hosts": (0..hosts).map(host).collect::<Vec<_>>()}],
        "nodes": (0..NODES).map(node).collect::<Vec<_>>(),
        "daemons": [{"name": "agent", "requests": {"cpu": "50m"}}],
        "pods": pods});
    let mut snapshot = scenario::load(scenario.to_string().as_bytes()).unwrap();
    snapshot.drain.keep_unreplicated = false;
    snapshot.now = "2026-01-01T00:00:00Z".parse().unwrap();
    for pool in &mut snapshot.pools {
        pool.max = max;
        pool.min = min;
    }
    if hosts == 0 {
        // A template without hosts would stand for machines that can be bought.
        snapshot.pools[1].templates[0].offerings = Vec::<Offering>::new();
    }
    snapshot
}

fn decide(snapshot: &Snapshot) -> Plan {
    let mut plan = scale_up(snapshot).plan;
    let _ = complete(snapshot, &mut plan);
    plan
}

fn drafts() -> impl Strategy<Value = Vec<Draft>> {
    proptest::collection::vec(any::<Draft>(), 1..12)
}

/// Members of a pool before, new, and gone.
fn sizes(snapshot: &Snapshot, plan: &Plan, pool: &Pool) -> (u32, u32, u32) {
    let count = |items: usize| u32::try_from(items).unwrap();
    let ours = |name: &Arc<str>| snapshot.members.get(name).is_some_and(|member| member.pool == pool.name);
    (
        count(snapshot.members.keys().filter(|name| ours(name)).count()),
        count(plan.new_nodes.iter().filter(|new| new.pool == pool.name).count()),
        count(plan.removals.iter().filter(|removal| ours(&removal.node)).count()),
    )
}

fn rotate<T>(items: &mut [T], by: usize) {
    if !items.is_empty() {
        let by = by % items.len();
        items.rotate_left(by);
    }
}

#[track_caller]
fn has_number(line: &str) {
    assert!(line.chars().any(|c| c.is_ascii_digit()), "no number: {line}");
    assert!(line.chars().count() <= LONGEST_LINE && !line.is_empty(), "{line}");
}

/// Other clusters in every run; `PROPTEST_CASES` asks for more of them. What was found once is a test of its own.
fn cases() -> ProptestConfig {
    let mut chosen = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    chosen.cases = if chosen.cases == 256 { 96 } else { chosen.cases };
    chosen
}

/// How many pods find no place without the last host, and with it.
fn left_without_and_with_one_more(drafts: &[Draft], hosts: u8, max: u32) -> (usize, usize) {
    let more = cluster(drafts, hosts + 1, max, 0, false);
    let mut fewer = more.clone();
    fewer.hosts.pop();
    (scale_up(&fewer).plan.unplaced.len(), scale_up(&more).plan.unplaced.len())
}

/// Whether a reason of the planner and a cause that is told to people mean the same.
fn agree(noted: &Reason, matches: Match, told: Code) -> bool {
    use Code::{
        Affinity, AntiAffinity, Competition, Contradiction, Cordoned, Feature, LabelDiffers, LabelMissing,
        NoUsableHost, NodeNamed, PoolMax, PortTaken, ResourceShort, SoldOut, Spread, TaintNotTolerated,
        TemplateUnknown, TooManyPods,
    };
    match noted {
        Reason::NoTemplate => told == TemplateUnknown,
        Reason::Frozen => told == Code::Frozen,
        Reason::Held => told == Code::Held,
        Reason::Incompatible => {
            let node =
                [LabelMissing, LabelDiffers, NodeNamed, TaintNotTolerated, Cordoned, Feature, Contradiction];
            matches == Match::NoMatch && node.contains(&told)
        }
        Reason::Room { .. } => matches == Match::NoMatch && [ResourceShort, TooManyPods].contains(&told),
        // One template of a pool may be sold out while another is stopped by a limit.
        Reason::Limit { .. } => {
            matches == Match::Unavailable && [PoolMax, SoldOut, NoUsableHost].contains(&told)
        }
        // Of machines that do not exist the planner does not ask whether they would do.
        Reason::NoSupply => matches != Match::Available,
        Reason::Skew | Reason::Forbidden | Reason::Lonely | Reason::Crowded => {
            [Spread, Affinity, AntiAffinity, PortTaken, Competition].contains(&told)
        }
    }
}

proptest! {
    #![proptest_config(cases())]

    /// Never above the maximum or below the minimum on its own account, and the audit accepts it.
    #[test]
    fn plans_keep_their_bounds_and_pass_the_audit(
        drafts in drafts(), hosts in 0..5_u8, max in 0..12_u32, min in 0..8_u32,
    ) {
        let snapshot = cluster(&drafts, hosts, max.max(min), min, true);
        let plan = decide(&snapshot);
        let findings = audit(&snapshot, &plan);
        prop_assert!(findings.is_empty(), "{findings}");
        for pool in &snapshot.pools {
            let (had, new, gone) = sizes(&snapshot, &plan, pool);
            prop_assert!(new == 0 || had + new <= pool.max, "{had} + {new} of {}", pool.max);
            prop_assert!(gone == 0 || had - gone >= pool.min, "{had} - {gone} of {}", pool.min);
        }
        let waiting = snapshot.cluster.pods.iter().filter(|pod| pod.is_pending()).count();
        prop_assert_eq!(plan.placements.len() + plan.unplaced.len(), waiting);
    }

    /// The same snapshot gives the same plan, byte for byte, and so does the same one in another order.
    #[test]
    fn plans_do_not_depend_on_the_order_of_anything(
        drafts in drafts(), hosts in 0..5_u8, turn in 1..40_usize,
    ) {
        let snapshot = cluster(&drafts, hosts, 9, 0, true);
        let plan = serde_json::to_string(&decide(&snapshot)).unwrap();
        prop_assert_eq!(&plan, &serde_json::to_string(&decide(&snapshot)).unwrap());
        let mut turned = snapshot.clone();
        rotate(&mut turned.cluster.pods, turn);
        turned.cluster.pods.reverse();
        rotate(&mut turned.cluster.nodes, turn);
        rotate(&mut turned.hosts, turn);
        rotate(&mut turned.pools, turn);
        prop_assert_eq!(plan, serde_json::to_string(&decide(&turned)).unwrap());
    }

    /// One more host that any pod of its pool could use never leaves more pods without a place.
    #[test]
    fn one_more_host_never_hurts(drafts in drafts(), hosts in 1..4_u8, max in 0..8_u32) {
        let (fewer, more) = left_without_and_with_one_more(&drafts, hosts, max);
        prop_assert!(more <= fewer, "{fewer} without a place, {more} with one host more");
    }

    /// Every pod, node, host and pool has an answer, and it agrees with the plan.
    #[test]
    fn eng_18_everything_is_explained(drafts in drafts(), hosts in 0..4_u8, max in 0..9_u32) {
        let mut snapshot = cluster(&drafts, hosts, max, 1, true);
        if let Some(host) = snapshot.hosts.first_mut() {
            host.state = HostState::Maintenance;
        }
        let plan = decide(&snapshot);
        let scene = Scene::new(&snapshot, &plan);
        let explainer = Explainer::new(&scene);
        for pod in &snapshot.cluster.pods {
            let answer = explainer.pod(&pod.key()).expect("every pod has an answer");
            has_number(&answer.headline);
            let planned = plan.placements.iter().any(|placement| placement.pod == pod.key());
            let placed = answer.node.is_some();
            prop_assert_eq!(placed, planned || pod.spec.node_name.is_some(), "{}", answer.headline);
            if plan.unplaced.contains(&pod.key()) {
                prop_assert_eq!(answer.pools.len(), snapshot.pools.len());
                prop_assert!(!answer.cause.object.is_empty() && !answer.cause.field.is_empty());
            }
        }
        for node in &snapshot.cluster.nodes {
            let answer = explainer.node(node.name()).expect("every node has an answer");
            has_number(&answer.headline);
            let goes = plan.removals.iter().any(|removal| *removal.node == *node.name());
            prop_assert_eq!(goes, answer.cause.code.name() == "Removed", "{}", answer.headline);
            prop_assert!(!text::render(&Answer::Node(Box::new(answer))).is_empty());
        }
        for new in &plan.new_nodes {
            has_number(&explainer.node(&new.name).expect("new nodes too").headline);
        }
        for host in &snapshot.hosts {
            has_number(&explainer.host(&host.name).expect("every host has an answer").headline);
        }
        for pool in &snapshot.pools {
            has_number(&explainer.pool(&pool.name).expect("every pool has an answer").headline);
        }
    }

    /// What the planner notes per class and what is told about a pod of it are worked out apart, and agree.
    #[test]
    fn eng_18_explanations_agree_with_the_planner(drafts in drafts(), hosts in 0..4_u8, max in 0..9_u32) {
        let snapshot = cluster(&drafts, hosts, max, 0, true);
        let Decision { plan, report } = scale_up(&snapshot);
        let scene = Scene::new(&snapshot, &plan);
        let explainer = Explainer::new(&scene);
        for class in &report.unplaced {
            let answer = explainer.pod(&class.example).expect("every pod has an answer");
            prop_assert_eq!(class.pools.len(), answer.pools.len());
            for noted in &class.pools {
                let told = answer.pools.iter().find(|row| *row.pool == *noted.pool).expect("a row per pool");
                prop_assert!(
                    agree(&noted.reason, told.matches, told.cause.code),
                    "{} in {}: noted {:?}, told {:?} {:?}", class.example, noted.pool, noted.reason, told.matches, told.cause.code
                );
            }
        }
    }

    /// Whatever the scheduler chooses, what it cannot place is a pod of the plan, and each is named once.
    #[test]
    fn replays_account_for_every_pod(drafts in drafts(), hosts in 0..4_u8) {
        let snapshot = cluster(&drafts, hosts, 9, 0, true);
        let plan = decide(&snapshot);
        for order in [Order::MostAllocated, Order::LeastAllocated] {
            let left = left_pending(&snapshot, &plan, order);
            let moved = plan.removals.iter().flat_map(|removal| &removal.moves);
            let known: Vec<&PodKey> = plan.placements.iter().chain(moved).map(|step| &step.pod).collect();
            prop_assert!(left.iter().all(|pod| known.contains(&pod)));
            prop_assert_eq!(&left, &left_pending(&snapshot, &plan, order));
        }
    }
}

/// Clusters in which the choice of the search alone left more pods without a place.
#[test]
fn one_more_host_never_hurt_where_it_once_did() {
    #[track_caller]
    fn check(drafts: &[Draft], hosts: u8, max: u32) {
        let (fewer, more) = left_without_and_with_one_more(drafts, hosts, max);
        assert!(more <= fewer, "{fewer} without a place, {more} with one host more");
    }
    check(&[(177, 130, 109, 115, 28), (77, 1, 194, 135, 28), (5, 10, 254, 25, 1)], 2, 2);
}

#[test]
fn a_plan_whose_pods_are_all_alike_leaves_nobody_pending() {
    let snapshot = cluster(&[(5, 10, 10, 0, 1), (5, 10, 10, 0, 1)], 0, 9, 0, true);
    let plan = scale_up(&snapshot).plan;
    assert!(plan.unplaced.is_empty());
    assert!(plan.placements.iter().any(|placement| matches!(placement.on, Target::Node(_))));
    for order in [Order::MostAllocated, Order::LeastAllocated] {
        assert_eq!(left_pending(&snapshot, &plan, order), []);
    }
}

#[test]
fn a_plan_that_only_works_as_planned_shows_it() {
    // Two nodes are just large enough if the large pod gets the large one.
    let text = json!({"format": "muster-scenario/1", "templates": [],
        "nodes": [{"name": "wide", "allocatable": {"cpu": "3", "memory": "4Gi"}}, {"name": "thin", "allocatable": {"cpu": "1", "memory": "4Gi"}}],
        "pods": [{"name": "little", "requests": {"cpu": "1"}}, {"name": "huge", "requests": {"cpu": "3"}}]});
    let snapshot = scenario::load(text.to_string().as_bytes()).unwrap();
    let plan = scale_up(&snapshot).plan;
    assert_eq!((plan.placements.len(), plan.new_nodes.len()), (2, 0));
    assert_eq!(left_pending(&snapshot, &plan, Order::MostAllocated), []);
    let left = left_pending(&snapshot, &plan, Order::LeastAllocated);
    assert_eq!(left.iter().map(|pod| &*pod.name).collect::<Vec<_>>(), ["huge"]);
}
