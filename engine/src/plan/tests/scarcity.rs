//! What happens when not everything can be had, and when new domains close others.

use serde_json::json;

use super::{add_node, places, plan, pod, pods, pool, template, unplaced};
use crate::{Snapshot, snapshot::Group};

/// One type of four cores, at most so many machines.
fn short(max: u32) -> Snapshot {
    Snapshot { pools: vec![pool("p", max, vec![template("m", 4, &["a"], 1_000)])], ..Snapshot::default() }
}

#[test]
fn higher_priorities_come_first_when_machines_are_short() {
    #[track_caller]
    fn check(max: u32, low: (usize, &str), high: (usize, &str), left_low: usize, left_high: usize) {
        let mut snapshot = short(max);
        snapshot.cluster.pods = pods("low", low.0, low.1, &json!({"priority": 0}));
        snapshot.cluster.pods.extend(pods("high", high.0, high.1, &json!({"priority": 100})));
        let decision = plan(&snapshot);
        let of = |name: &str| unplaced(&decision).iter().filter(|pod| pod.starts_with(name)).count();
        assert_eq!((of("low"), of("high")), (left_low, left_high));
    }
    check(2, (8, "1"), (0, "1"), 0, 0);
    check(2, (8, "1"), (2, "3"), 6, 0); // many small pods do not outvote two large ones
    check(1, (4, "1"), (1, "3"), 3, 0);
    check(1, (4, "1"), (1, "5"), 0, 1); // nothing can hold it: it holds nothing back
    check(2, (4, "1"), (3, "3"), 2, 1);
}

#[test]
fn a_limit_on_everything_is_given_by_priority_too() {
    let mut snapshot = short(10);
    snapshot.limits.max_new = Some(1);
    snapshot.cluster.pods = pods("low", 4, "1", &json!({}));
    snapshot.cluster.pods.extend(pods("high", 1, "4", &json!({"priority": 7})));
    assert_eq!(unplaced(&plan(&snapshot)), ["low-0", "low-1", "low-2", "low-3"]);
}

#[test]
fn groups_run_as_a_whole_or_not_at_all() {
    #[track_caller]
    fn check(max: u32, groups: &[(&str, usize, u32, i32)], run: &[&str]) {
        let mut snapshot = short(max);
        for (name, count, min, priority) in groups {
            let members = pods(name, *count, "4", &json!({"priority": priority}));
            snapshot.groups.push(Group {
                name: (*name).into(),
                pods: members.iter().map(muster_model::k8s::Pod::key).collect(),
                min: *min,
            });
            snapshot.cluster.pods.extend(members);
        }
        let decision = plan(&snapshot);
        let placed = places(&decision);
        let runs: Vec<&str> = groups
            .iter()
            .filter(|(name, _, min, _)| {
                placed.iter().filter(|(pod, _)| pod.starts_with(name)).count() >= *min as usize
            })
            .map(|(name, ..)| *name)
            .collect();
        assert_eq!(runs, run);
    }
    // machines, groups of (name, pods, least, priority) => those that run
    check(3, &[("a", 3, 3, 0)], &["a"]);
    check(2, &[("a", 3, 3, 0)], &[]);
    check(2, &[("a", 3, 2, 0)], &["a"]);
    check(4, &[("a", 3, 3, 0), ("b", 3, 3, 0)], &["a"]); // not half of each
    check(4, &[("a", 3, 3, 0), ("b", 3, 3, 5)], &["b"]);
    check(6, &[("a", 3, 3, 0), ("b", 3, 3, 5)], &["a", "b"]);
}

#[test]
fn a_new_zone_that_closes_others_is_accounted_for() {
    // Two pods in zone a; a third may go to a only while no empty zone is there.
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": super::ZONE,
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "x"}}}]});
    let mut snapshot = Snapshot {
        pools: vec![pool("p", 10, vec![template("m", 4, &["a", "b", "c"], 1_000)])],
        ..Snapshot::default()
    };
    add_node(&mut snapshot, "n-a", "p", "a", 8);
    for at in 0..2 {
        let mut running = pod(&format!("x-{at}"), "1", spread.clone());
        std::sync::Arc::make_mut(&mut running.spec).node_name = Some("n-a".into());
        snapshot.cluster.pods.push(running);
    }
    // Room in zone a for all of them, but a machine for the large one may open another zone.
    let waiting = (2..6).map(|at| pod(&format!("x-{at}"), "1", spread.clone()));
    snapshot.cluster.pods.extend(waiting);
    snapshot.cluster.pods.push(pod("large", "4", json!({"nodeSelector": {super::ZONE: "b"}})));
    let decision = plan(&snapshot);
    assert_eq!(unplaced(&decision), Vec::<&str>::new());
}

#[test]
fn absurd_prices_and_amounts_end_in_a_plan() {
    #[track_caller]
    fn check(prices: [i64; 2], pods_each: &str, replicas: usize) {
        let mut cheap = template("m", 4, &["a"], prices[0]);
        cheap.name = "cheap".into();
        let mut snapshot = Snapshot {
            pools: vec![pool("p", 4_000, vec![cheap, template("n", 8, &["a", "b"], prices[1])])],
            ..Snapshot::default()
        };
        snapshot.cluster.pods = pods("w", replicas, pods_each, &json!({}));
        let decision = plan(&snapshot); // the audit agrees
        let placed = places(&decision).len();
        assert_eq!(placed + unplaced(&decision).len(), replicas);
        assert_eq!(placed > 0, pods_each == "2", "{prices:?}");
    }
    for prices in [[i64::MAX, i64::MAX], [i64::MAX, 1], [0, i64::MAX / 2], [i64::MIN, -1], [1 << 41, 1 << 50]]
    {
        check(prices, "2", 200);
        check(prices, "9000000T", 3_000);
    }
}
