//! Growth without pending pods, and pods that do not count yet.

use muster_model::{Duration, Timestamp};
use serde_json::json;

use super::{add_node, object, plan, pod, pods, pool, template, unplaced};
use crate::{
    Snapshot, explain,
    plan::{Growth, Plan},
    snapshot::{MemberState, Mode, Pool, Spare, Trigger},
};

fn now() -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000)
}

fn base(edit: impl FnOnce(&mut Pool)) -> Snapshot {
    let mut only =
        pool("p", 10, vec![template("small", 4, &["a"], 1_000), template("large", 16, &["a"], 3_800)]);
    edit(&mut only);
    Snapshot { now: now(), pools: vec![only], ..Snapshot::default() }
}

/// New nodes, and the reason that the report gives.
#[track_caller]
fn check(snapshot: &Snapshot, nodes: usize, code: &str) {
    let decision = plan(snapshot);
    let growth = serde_json::to_value(&decision.report.growth).expect("reports can be written");
    let found = growth[0]["why"]["reason"].as_str().unwrap_or("").to_owned();
    assert_eq!((decision.plan.new_nodes.len(), found.as_str()), (nodes, code), "{growth}");
}

#[test]
fn pools_hold_their_minimum_and_their_fixed_size() {
    check(&base(|pool| pool.min = 3), 3, "minimum");
    check(&base(|pool| pool.fixed = Some(2)), 2, "fixed");
    check(&base(|pool| (pool.fixed, pool.min) = (Some(2), 3)), 2, "minimum"); // never above the size
    check(&base(|pool| (pool.min, pool.mode) = (3, Mode::Frozen)), 0, "minimum");
    let mut partly = base(|pool| pool.min = 2);
    add_node(&mut partly, "n", "p", "a", 4);
    check(&partly, 1, "minimum");
}

#[test]
fn a_step_is_one_node_and_waits_for_the_last() {
    let trigger = |pool: &mut Pool| pool.demand.trigger = Some(Trigger::Up);
    let mut snapshot = base(trigger);
    add_node(&mut snapshot, "n", "p", "a", 4);
    check(&snapshot, 1, "step");
    let member = snapshot.members.get_mut("n").expect("it was just added");
    member.state = MemberState::Upcoming { expected: now() };
    check(&snapshot, 0, "");
    check(&base(|pool| (pool.max, pool.demand.trigger) = (0, Some(Trigger::Up))), 0, "step");
}

/// Its metric has to show the node that came before it is believed again.
#[test]
fn a_trigger_waits_until_its_metric_can_show_the_youngest_node() {
    let mut snapshot = base(|pool| {
        pool.demand.trigger = Some(Trigger::Up);
        pool.demand.trigger_settles = Duration::from_mins(2);
    });
    add_node(&mut snapshot, "old", "p", "a", 4);
    add_node(&mut snapshot, "new", "p", "a", 4);
    let mut came = |seconds: u64| {
        let since = now().saturating_sub(Duration::from_secs(seconds));
        snapshot.cluster.nodes[1].metadata.creation_timestamp = Some(since);
        snapshot.clone()
    };
    check(&came(119), 0, "");
    check(&came(120), 1, "step");
    let (world, nothing) = (came(30), Plan::default());
    let scene = explain::Scene::new(&world, &nothing);
    let answer = explain::Explainer::new(&scene).pool("p").expect("it is there");
    let text = "pool p has 2 nodes, 0 to 10; a trigger waits until 2027-01-15T08:01:30Z: its metric has 2m to show the last node";
    assert_eq!((answer.cause.code, &*answer.headline), (explain::Code::TriggerWaits, text));
    // Pods do not wait for it, and neither does a high mark.
    let mut waiting = came(30);
    waiting.cluster.pods = pods("x", 12, "1", &json!({}));
    check(&waiting, 1, "");
}

#[test]
fn a_pool_above_its_high_mark_grows() {
    let mut snapshot = base(|pool| {
        pool.demand.target_cpu_percent = Some(70);
        pool.demand.scale_up_delay = Duration::from_mins(3);
        pool.demand.high_since = Some(now().saturating_sub(Duration::from_mins(3)));
    });
    add_node(&mut snapshot, "n", "p", "a", 4);
    let mut running = pod("x", "3", json!({}));
    std::sync::Arc::make_mut(&mut running.spec).node_name = Some("n".into());
    snapshot.cluster.pods.push(running);
    check(&snapshot, 1, "step");
    snapshot.pools[0].demand.high_since = Some(now().saturating_sub(Duration::from_mins(2)));
    check(&snapshot, 0, "");
}

#[test]
fn headroom_is_kept_free_of_the_pods_that_wait() {
    #[track_caller]
    fn check(spare: Spare, sum: &str, waiting: usize, nodes: usize, missing: u32) {
        let mut snapshot = base(|pool| {
            pool.spare = spare.clone();
            pool.templates.truncate(1);
            pool.max = 5;
            if !sum.is_empty() {
                pool.headroom = object(json!({"cpu": sum}));
            }
        });
        snapshot.cluster.pods = pods("x", waiting, "1", &json!({}));
        let decision = plan(&snapshot);
        let lacking: u32 = decision.report.growth.iter().map(|growth| growth.missing).sum();
        assert_eq!((decision.plan.new_nodes.len(), lacking, unplaced(&decision).len()), (nodes, missing, 0));
    }
    let none = Spare::default;
    let free = |nodes| Spare { nodes, ..none() };
    let places = |pods, cpu: &str| Spare { pods, shape: object(json!({"cpu": cpu})), ..none() };
    // headroom, sum, pods that wait => new nodes, nodes that are missing
    check(none(), "", 0, 0, 0);
    check(free(2), "", 0, 2, 0);
    check(free(2), "", 3, 3, 0);
    check(free(2), "", 16, 5, 1); // the maximum comes first, pods come before room
    check(places(3, "1"), "", 0, 1, 0);
    check(places(3, "1"), "", 1, 1, 0); // one machine has room for both
    check(places(3, "1"), "", 2, 2, 0);
    check(places(2, "4"), "", 0, 2, 0);
    check(places(1, "5"), "", 0, 0, 1); // no machine is that large
    check(none(), "6", 0, 2, 0);
    check(none(), "2", 2, 1, 0);
}

#[test]
fn an_existing_free_node_is_headroom() {
    let mut snapshot = base(|pool| pool.spare.nodes = 1);
    add_node(&mut snapshot, "n", "p", "a", 4);
    assert_eq!(plan(&snapshot).plan.new_nodes.len(), 0);
    snapshot.cluster.pods = pods("x", 1, "1", &json!({}));
    let decision = plan(&snapshot);
    assert_eq!(decision.plan.new_nodes.len(), 1); // the pod takes the free one
    assert!(matches!(decision.report.growth[0].why, Growth::Headroom { .. }));
}

#[test]
fn pods_that_wait_do_not_wait_for_a_mark() {
    let mut snapshot = base(|pool| pool.demand.scale_up_delay = Duration::from_secs(180));
    let mut waiting = pod("x", "1", json!({}));
    waiting.metadata.creation_timestamp = Some(now());
    snapshot.cluster.pods = vec![waiting];
    assert_eq!(plan(&snapshot).plan.new_nodes.len(), 1);
}
