//! Plans of the bench and of random snapshots: legal, complete, and the same whatever the order.

use std::sync::Arc;

use muster_engine::{Snapshot, audit, plan::scale_up};
use muster_sim::scenario;
use proptest::prelude::*;

fn fixture(name: &str) -> Snapshot {
    let path = format!("{}/fixtures/scenarios/{name}.json", env!("CARGO_MANIFEST_DIR"));
    scenario::load(&std::fs::read(path).expect("the fixture is in the repository"))
        .expect("the fixture is a scenario")
}

/// Plans a fixture: everything is placed, at most at this cost, and the audit accepts it.
#[track_caller]
fn check(name: &str, most_micros: i64) {
    let snapshot = fixture(name);
    let decision = scale_up(&snapshot);
    let findings = audit(&snapshot, &decision.plan);
    assert!(findings.fatal().is_none(), "{name}: {:?}", findings.fatal());
    assert_eq!(decision.plan.unplaced.len(), 0, "{name}");
    let cost: i64 = decision.plan.new_nodes.iter().map(|new| new.price).sum();
    assert!(cost <= most_micros, "{name} costs {cost}, more than {most_micros}");
}

#[test]
fn eng_12_and_17_stay_within_their_bars() {
    check("web", 86_574_000);
    check("gpu", 645_943_000);
    check("baremetal", 328_032);
    check("ca-efficiency", 6_000_000);
    check("generic-1000", 213_626_000);
    check("zone-spread-1000", 206_950_000);
    check("host-spread-1000", 241_475_000);
}

/// A small scenario: sizes, spread, anti-affinity, affinity, a finite supply.
fn entry() -> impl Strategy<Value = (u32, u32, u32, u8)> {
    (1..6_u32, 1..16_u32, 1..16_u32, 0..6_u8)
}

fn text(entries: &[(u32, u32, u32, u8)], supply: u32) -> String {
    let pods: Vec<String> = entries
        .iter()
        .enumerate()
        .map(|(at, (replicas, cpu, memory, kind))| {
            let selector = format!(r#""labelSelector":{{"matchLabels":{{"app":"a{at}"}}}}"#);
            let spread = |key: &str| {
                format!(r#","topologySpreadConstraints":[{{"maxSkew":1,"topologyKey":"{key}","whenUnsatisfiable":"DoNotSchedule",{selector}}}]"#)
            };
            let term = |kind: &str, key: &str| {
                format!(r#","affinity":{{"{kind}":{{"requiredDuringSchedulingIgnoredDuringExecution":[{{{selector},"topologyKey":"{key}"}}]}}}}"#)
            };
            let rules = match kind {
                1 => spread("topology.kubernetes.io/zone"),
                2 => spread("kubernetes.io/hostname"),
                3 => term("podAntiAffinity", "kubernetes.io/hostname"),
                4 => term("podAffinity", "topology.kubernetes.io/zone"),
                5 => term("podAffinity", "kubernetes.io/hostname"),
                _ => String::new(),
            };
            format!(r#"{{"name":"p{at}","replicas":{replicas},"labels":{{"app":"a{at}"}},"requests":{{"cpu":"{}m","memory":"{}Mi"}}{rules}}}"#, cpu * 100, memory * 128)
        })
        .collect();
    format!(
        r#"{{"format":"muster-scenario/1","templates":[
        {{"name":"small","capacity":{{"cpu":"2","memory":"4Gi","pods":"8"}},"price":1.0,"offerings":[{{"zone":"a","supply":{supply}}},{{"zone":"b"}}]}},
        {{"name":"large","capacity":{{"cpu":"8","memory":"12Gi","pods":"16"}},"price":3.5,"supply":2}}],
        "nodes":[{{"name":"n0","template":"small","zone":"a"}}],"pods":[{}]}}"#,
        pods.join(",")
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Every plan passes the audit, accounts for every pod, and does not depend on the order of the input.
    #[test]
    fn eng_18_plans_are_legal_complete_and_do_not_depend_on_order(
        entries in proptest::collection::vec(entry(), 1..8),
        supply in 0..4_u32,
        turn in 0..50_usize,
        most in 0..6_u32,
    ) {
        let mut snapshot = scenario::load(text(&entries, supply).as_bytes()).unwrap();
        snapshot.pools[0].max = most + 1;
        let decision = scale_up(&snapshot);
        let findings = audit(&snapshot, &decision.plan);
        prop_assert!(findings.fatal().is_none(), "{:?}", findings.fatal());
        let pods = snapshot.cluster.pods.len();
        prop_assert_eq!(decision.plan.placements.len() + decision.plan.unplaced.len(), pods);
        prop_assert!(decision.plan.new_nodes.len() <= most as usize);
        let reported: u32 = decision.report.unplaced.iter().map(|class| class.pods).sum();
        prop_assert_eq!(reported as usize, decision.plan.unplaced.len());
        let mut turned = snapshot.clone();
        turned.cluster.pods.rotate_left(turn % pods);
        for pod in &mut turned.cluster.pods {
            pod.spec = Arc::new((*pod.spec).clone());
        }
        prop_assert_eq!(scale_up(&turned), decision);
    }
}
