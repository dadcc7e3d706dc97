//! Growth: pods, minimums, fixed sizes, and everything that stops it.

use muster_control::{journal::OutcomeState, planner::Did};
use muster_model::{
    Duration,
    host::{FreezeMode, Phase, Switch},
    k8s::Pod,
};
use serde_json::{Value, json};

use crate::world::{World, pod, running};

/// BM-7.1, the planner's half: one host, one intent, one decision, whatever happens next.
#[tokio::test]
async fn bm_7_1_a_pending_pod_wakes_one_host_within_the_turn() {
    let mut world = World::new().await;
    let pool = world.metal("web", 0, 3).await;
    for host in ["a", "b"] {
        world.host(host, "web").await;
    }
    world.show(|objects| objects.pods.push(pod("web-1", "2")));
    let turn = world.turn().await;
    let decision = World::decided(&turn);
    assert_eq!(decision.outcome.state, OutcomeState::Acted, "{decision:#?}");
    assert_eq!(decision.headline, "1 node more in pool web: 1 pod waits for it: default/web-1");
    assert_eq!((decision.new_nodes, decision.number), (1, 1));
    let intent = world.intent("a").await.expect("an intent");
    assert_eq!((intent.want, intent.pool.as_str(), intent.epoch), (Switch::On, "web", world.fence.epoch.0));
    assert_eq!(
        (intent.decision.as_str(), intent.reason.as_str()),
        (decision.id.as_str(), "1 pod waits for it: default/web-1")
    );
    assert_eq!(world.intent("b").await, None);
    let status = world.pool_status(&pool).await;
    assert_eq!(status.desired_nodes, 1);
    let reports =
        world.registry.status::<muster_control::registry::NodePool>(pool.id.uuid()).await.unwrap().reports;
    assert_eq!(reports[0].controller_name, "muster-baremetal");
    let metadata: serde_json::Value = serde_json::from_str(reports[0].metadata.get()).unwrap();
    assert_eq!((metadata["active_nodes"].clone(), metadata["desired_nodes"].clone()), (json!(0), json!(1)));
    assert_eq!(
        (metadata["platform"].clone(), metadata["node_ages"].clone()),
        (json!("baremetal"), json!(""))
    );
    // The host is on its way: that it is waited for is noted once, and nothing more is done however often we look.
    for _ in 0..5 {
        world.pass(Duration::from_secs(11));
        world.show(|_| {});
        let _ = world.turn().await;
    }
    let decisions = world.decisions().await;
    assert_eq!(decisions.len(), 2, "{decisions:#?}");
    assert_eq!((decisions[0].new_nodes, decisions[0].outcome.state), (0, OutcomeState::Quiet));
    assert_eq!(world.intent("b").await, None);
    assert_eq!(world.intent("a").await.unwrap(), intent);
}

#[tokio::test]
async fn a_host_that_failed_is_replaced_at_once() {
    let mut world = World::new().await;
    world.metal("web", 0, 3).await;
    for host in ["a", "b"] {
        world.host(host, "web").await;
    }
    world.show(|objects| objects.pods.push(pod("web-1", "2")));
    let _ = world.turn().await;
    let intent = world.intent("a").await.unwrap();
    let retry = world.now().saturating_add(Duration::from_mins(2));
    world
        .status("a", |status| {
            (status.phase, status.state) = (Phase::Backoff, Phase::Backoff.state());
            (status.spent_intent, status.retry_at) = (Some(intent.id.clone()), Some(retry));
        })
        .await;
    world.pass(Duration::from_secs(5));
    world.show(|_| {});
    let decision = World::decided(&world.turn().await);
    assert_eq!(decision.actions[0].host.as_deref(), Some("b"), "{decision:#?}");
    assert_eq!(world.intent("b").await.unwrap().want, Switch::On);
}

/// BM-7.2: nothing is ready, so that utilisation is 0 of 0; what the host declares decides.
#[tokio::test]
async fn bm_7_2_a_pool_at_zero_grows_by_what_its_hosts_declare() {
    let mut world = World::new().await;
    world.metal("cpu", 0, 3).await;
    world
        .pool(
            "gpu",
            json!({"platform": {"type": "baremetal"}, "labels": {"purpose": "gpu"},
                "taints": [{"key": "gpu", "effect": "NoSchedule"}],
                "autoscaling": {"enabled": true, "minNodes": 0, "maxNodes": 2}}),
        )
        .await;
    world.host("c1", "cpu").await;
    world.host_with("g1", json!({"pool": "gpu", "resources": {"gpu": 4}}), |_| {}).await;
    let train: Pod = serde_json::from_value(json!({
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"nodeSelector": {"purpose": "gpu"}, "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "2"}}}]},
        "status": {"phase": "Pending"}}))
    .unwrap();
    world.show(|objects| objects.pods.push(train));
    let decision = World::decided(&world.turn().await);
    assert_eq!(decision.actions.len(), 1, "{decision:#?}");
    assert_eq!(world.intent("g1").await.unwrap().pool, "gpu");
    assert_eq!(world.intent("c1").await, None);
}

#[tokio::test]
async fn a_fixed_pool_holds_its_number_without_a_connection() {
    let store = std::sync::Arc::new(muster_store::memory::Memory::default());
    let mut world = World::with(store, false, "active").await;
    let pool = world.pool("web", json!({"platform": {"type": "baremetal"}, "nodeCount": 2})).await;
    for host in ["a", "b", "c"] {
        world.host(host, "web").await;
    }
    let decision = World::decided(&world.turn().await);
    assert_eq!(decision.actions[0].because, "pool web holds 2 nodes");
    let on = [world.intent("a").await, world.intent("b").await, world.intent("c").await];
    assert_eq!(on.iter().flatten().count(), 2);
    let status = world.pool_status(&pool).await;
    let connected = muster_model::condition::find(&status.conditions, "ClusterConnected").unwrap();
    assert_eq!((connected.status.as_str(), connected.reason.as_str()), ("False", "NotConnected"));
    assert_eq!(status.desired_nodes, 2);
}

/// BM-7.30, the planner's half: the same decision is recorded, and nothing is written for any host.
#[tokio::test]
async fn bm_7_30_advice_is_recorded_and_nothing_acts() {
    let store = std::sync::Arc::new(muster_store::memory::Memory::default());
    let mut world = World::with(store, true, "advise").await;
    world.metal("web", 0, 3).await;
    world.host("a", "web").await;
    world.show(|objects| objects.pods.push(pod("web-1", "2")));
    let decision = World::decided(&world.turn().await);
    assert_eq!(decision.outcome.state, OutcomeState::Advised);
    assert!(decision.actions[0].advice, "{decision:#?}");
    assert_eq!(decision.actions[0].host.as_deref(), Some("a"));
    assert_eq!(world.intent("a").await, None);
    // Saying it once is enough.
    world.pass(Duration::from_secs(30));
    world.show(|_| {});
    assert_eq!(world.turn().await.did, Did::Looked);
}

/// Where advice is compared with acts: scenarios of BM-7 by their numbers.
async fn furnish(world: &World, scenario: u32) {
    match scenario {
        1 => {
            world.metal("web", 0, 3).await;
            world.host("a", "web").await;
            world.show(|objects| objects.pods.push(pod("web-1", "2")));
        }
        // The pod of a budget is on the very host that is to go, and the budget lets one go when it is looked at.
        3 => {
            world.metal("web", 0, 3).await;
            for host in ["a", "b"] {
                world.host(host, "web").await;
                world.serve(host, "web").await;
            }
            let budget = json!({"metadata": {"name": "keep", "namespace": "default"},
                "spec": {"selector": {}}, "status": {"disruptionsAllowed": 1}});
            world.show(|objects| {
                objects.pods.push(running("web-0", "3", "a"));
                objects.pods.push(running("web-1", "1", "b"));
                objects.budgets.push(serde_json::from_value(budget).unwrap());
            });
        }
        // Somebody pressed a's button while it served: the host loop leaves it alone for an hour, and its pool is below its
        // minimum.
        15 => {
            world.metal("web", 1, 3).await;
            world.host("a", "web").await;
            world.host("b", "web").await;
            let until = world.now().saturating_add(Duration::from_hours(1));
            world.status("a", |status| status.held_until = Some(until)).await;
        }
        other => panic!("scenario {other} is not described"),
    }
}

/// BM-7.30, the planner's half for scenarios 1, 3 and 15: with advice alone the same things are decided for the same
/// reasons, and nothing is written for any host.
#[tokio::test]
async fn bm_7_30_advice_is_what_would_be_done_and_nothing_acts() {
    for (scenario, expected) in [(1, "Wake a"), (3, "Remove b"), (15, "Wake b")] {
        let mut decided = Vec::new();
        for mode in ["active", "advise"] {
            let store = std::sync::Arc::new(muster_store::memory::Memory::default());
            let mut world = World::with(store, true, mode).await;
            furnish(&world, scenario).await;
            // Long enough for a node to have been unneeded.
            for _ in 0..13 {
                let _ = world.turn().await;
                world.pass(Duration::from_mins(1));
                world.show(|_| {});
            }
            let decisions = world.decisions().await;
            let all = decisions.iter().flat_map(|one| &one.actions);
            let first = all.map(|one| {
                assert_eq!(one.advice, mode == "advise", "{one:#?}");
                format!("{:?} {}: {}", one.kind, one.host.as_deref().unwrap_or_default(), one.because)
            });
            let first = first.into_iter().next().unwrap_or_default();
            assert!(first.starts_with(expected), "scenario {scenario}, {mode}: {first:?}");
            decided.push(first);
            let intents = [world.intent("a").await, world.intent("b").await].into_iter().flatten().count();
            assert_eq!(intents > 0, mode == "active", "scenario {scenario}, {mode}");
        }
        assert_eq!(decided[0], decided[1], "scenario {scenario}");
    }
}

#[tokio::test]
async fn a_freeze_stops_everything_at_once_and_says_so() {
    let mut world = World::new().await;
    let pool = world.metal("web", 0, 3).await;
    world.host("a", "web").await;
    world
        .global(|config| {
            config.freeze = FreezeMode::Frozen;
            config.freeze_reason = Some("power works in hall 2".into());
        })
        .await;
    world.show(|objects| objects.pods.push(pod("web-1", "2")));
    let decision = World::decided(&world.turn().await);
    assert_eq!((decision.new_nodes, decision.unplaced), (0, 1));
    assert!(decision.told[0].headline.contains("power works in hall 2"), "{:?}", decision.told);
    assert_eq!(world.intent("a").await, None);
    let status = world.pool_status(&pool).await;
    let paused = muster_model::condition::find(&status.conditions, "Paused").unwrap();
    assert_eq!((paused.status.as_str(), paused.reason.as_str()), ("True", "Frozen"));
    // A store that was restored from something older than the world stops everything, too.
    world.global(|_| {}).await;
    world
        .put(
            "/muster/restored",
            &json!({"revision": 7, "exported": world.now(), "imported": world.now(), "sha256": "x"}),
        )
        .await;
    world.pass(Duration::from_secs(11));
    world.show(|_| {});
    let _ = world.turn().await;
    assert_eq!(world.intent("a").await, None);
    let _ = world.store.commit(muster_model::store::Txn::new().delete("/muster/restored")).await.unwrap();
    // The freeze ends, and the pod gets its host in the next turn.
    world.global(|_| {}).await;
    world.pass(Duration::from_secs(1));
    let decision = World::decided(&world.turn().await);
    assert_eq!(decision.outcome.state, OutcomeState::Acted);
    assert!(world.intent("a").await.is_some());
}

#[tokio::test]
async fn hosts_in_maintenance_or_held_by_a_person_are_left_alone() {
    let mut world = World::new().await;
    world.metal("web", 0, 3).await;
    world.host_with("a", json!({"pool": "web", "admin": "maintenance"}), |_| {}).await;
    world.host_with("b", json!({"pool": "web", "hold": {"by": "ann", "reason": "new disks"}}), |_| {}).await;
    world.host_with("c", json!({"pool": "web", "powerState": "off"}), |_| {}).await;
    world.show(|objects| objects.pods.push(pod("web-1", "2")));
    let decision = World::decided(&world.turn().await);
    assert_eq!((decision.new_nodes, decision.unplaced), (0, 1), "{decision:#?}");
    for host in ["a", "b", "c"] {
        assert_eq!(world.intent(host).await, None, "{host}");
    }
}

#[tokio::test]
async fn a_cluster_out_of_sync_is_waited_for() {
    let mut world = World::new().await;
    world.metal("web", 0, 3).await;
    world.host("a", "web").await;
    world.show(|objects| objects.pods.push(pod("web-1", "2")));
    world.unsync(true);
    let turn = world.turn().await;
    assert_eq!(
        turn.did,
        Did::Waited("1 of 17 kinds are not in sync: pods (the first list is under way)".into())
    );
    assert_eq!(world.intent("a").await, None);
    assert!(world.parts.board.get(world.id).unwrap().waiting.is_some());
    world.unsync(false);
    assert_eq!(World::decided(&world.turn().await).outcome.state, OutcomeState::Acted);
}

/// Two records that mean one machine: the host loop leaves the second one alone, and so does the planner, until one of them
/// is corrected.
#[tokio::test]
async fn a_host_that_the_inventory_sets_aside_is_not_asked_for() {
    let mut world = World::new().await;
    world.metal("web", 0, 3).await;
    for host in ["b", "a"] {
        world.host_with(host, json!({"pool": "web", "macAddress": "02:00:00:00:00:01"}), |_| {}).await;
    }
    world.show(|objects| objects.pods.push(pod("web-1", "2")));
    let decision = World::decided(&world.turn().await);
    let woken: Vec<_> = decision.actions.iter().filter_map(|action| action.host.as_deref()).collect();
    assert_eq!(woken, ["b"], "{decision:#?}"); // it was registered before
    world.show(|objects| objects.pods.push(pod("web-2", "8")));
    world.pass(Duration::from_secs(11));
    let turn = world.turn().await;
    assert_eq!(world.intent("a").await, None, "{turn:?}");
    world.respec("a", json!({"macAddress": "02:00:00:00:00:02"})).await;
    world.pass(Duration::from_secs(11));
    let turn = world.turn().await;
    assert!(world.intent("a").await.is_some(), "{turn:?}");
}

/// OPS-R15: a rack that may start one machine at a time gets one, and its cap on watts holds.
#[tokio::test]
async fn ops_r15_racks_start_no_more_than_they_may() {
    let mut world = World::new().await;
    world.metal("web", 0, 9).await;
    // As the API stores them.
    let rack = |spec: Value| {
        json!({"project": "lab", "created_at": "2026-11-16T00:00:00Z", "created_by": "ann",
        "updated_at": "2026-11-16T00:00:00Z", "spec": spec})
    };
    let r1 = rack(json!({"name": "r1", "units": 42, "startLimit": 1}));
    let r2 = rack(json!({"name": "r2", "units": 42, "startLimit": 4, "wattCap": 900}));
    world.put("/muster/inventory/racks/r1", &r1).await;
    world.put("/muster/inventory/racks/r2", &r2).await;
    for (host, rack) in [("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r2"), ("e", "r2")] {
        world
            .host_with(host, json!({"pool": "web", "rack": rack, "idleWatts": 100, "maxWatts": 400}), |_| {})
            .await;
    }
    world.show(|objects| objects.pods.extend((0..5).map(|n| pod(&format!("web-{n}"), "8"))));
    let decision = World::decided(&world.turn().await);
    let on = |hosts: [&'static str; 3]| {
        let woken = decision.actions.iter().filter_map(|action| action.host.as_deref());
        woken.filter(|host| hosts.contains(host)).count()
    };
    assert_eq!((on(["a", "b", ""]), on(["c", "d", "e"])), (1, 2), "{decision:#?}");
    assert_eq!(decision.unplaced, 2);
}
