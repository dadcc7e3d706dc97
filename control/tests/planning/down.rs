//! Shrinking: only after the delay, only with full knowledge, and the delay survives a restart.

use std::sync::Arc;

use async_trait::async_trait;
use muster_control::journal::{ActionKind, OutcomeState};
use muster_model::{
    Duration, Known, Timestamp,
    host::{FreezeMode, Phase, Switch},
    pool::Trigger,
    trigger::{Finding, Triggers},
};
use serde_json::json;

use crate::world::{World, pod, running};

/// Two nodes of which one is needed.
async fn half_empty() -> World {
    let world = World::new().await;
    world.metal("web", 1, 3).await;
    for host in ["a", "b"] {
        world.host(host, "web").await;
        world.serve(host, "web").await;
    }
    world.show(|objects| objects.pods.push(running("web-1", "4", "a")));
    world
}

#[tokio::test]
async fn a_node_goes_after_its_delay_and_the_delay_survives_a_new_leader() {
    let mut world = half_empty().await;
    let first = world.turn().await;
    assert_eq!(world.intent("b").await, None, "{first:?}");
    world.pass(Duration::from_mins(6));
    world.fail_over().await; // two minutes more
    let _ = world.turn().await;
    assert_eq!(world.intent("b").await, None);
    world.pass(Duration::from_mins(2).saturating_add(Duration::from_secs(1)));
    world.show(|_| {});
    let decision = World::decided(&world.turn().await);
    assert_eq!(decision.actions[0].kind, ActionKind::Remove, "{decision:#?}");
    assert_eq!(decision.actions[0].node.as_deref(), Some("b"));
    let evidence = decision.actions[0].evidence.as_ref().expect("figures");
    assert_eq!((evidence.percent, evidence.mark, evidence.required), (0, Some(30), Duration::from_mins(10)));
    assert_eq!(evidence.unneeded_since, Some("2026-11-16T02:00:00Z".parse().unwrap()));
    let intent = world.intent("b").await.unwrap();
    assert_eq!(
        (intent.want, intent.spread_weighed),
        (Switch::Off, true),
        "no second opinion on racks and zones"
    );
    assert_eq!(world.intent("a").await, None);
}

/// The host loop gave a drain up: what the plan wanted is over. A later plan asks again when the pause is over and the
/// node can still go, without waiting for the whole delay once more; when it cannot, nobody asks.
#[tokio::test]
async fn a_drain_that_was_given_up_is_asked_for_again_by_a_later_plan_or_not_at_all() {
    for needed in [false, true] {
        let mut world = half_empty().await;
        let _ = world.turn().await;
        world.pass(Duration::from_mins(11));
        world.show(|_| {});
        let _ = world.turn().await;
        let first = world.intent("b").await.unwrap();
        let (spent, again) = (first.id.clone(), world.now().saturating_add(Duration::from_mins(10)));
        world
            .status("b", |status| (status.spent_intent, status.drain_retry_at) = (Some(spent), Some(again)))
            .await;
        if needed {
            world.show(|objects| objects.pods.push(running("web-2", "7", "b")));
        }
        for _ in 0..9 {
            world.pass(Duration::from_mins(1));
            world.show(|_| {});
            let _ = world.turn().await;
            assert_eq!(world.intent("b").await.unwrap(), first, "not before the pause is over");
        }
        for _ in 0..2 {
            world.pass(Duration::from_mins(1));
            world.show(|_| {});
            let _ = world.turn().await;
        }
        let intent = world.intent("b").await.unwrap();
        assert_eq!((intent.want, intent.id == first.id), (Switch::Off, needed), "{intent:?}");
    }
}

/// What kept a host loop from an intent until it was too old to be taken up.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kept {
    /// Nobody knows; the planner looks all the time.
    Unknown,
    Freeze,
    Hold,
    Maintenance,
    /// The store took no writes, so that nobody planned either.
    Store,
}

/// The host loop begins no drain for an intent that waited for five minutes. Whatever it waited for: a later plan asks
/// again, with an intent of its own, and only if the node can still go.
#[tokio::test]
async fn an_intent_that_was_not_taken_up_in_time_is_asked_for_again_by_a_later_plan_or_not_at_all() {
    for kept in [Kept::Unknown, Kept::Freeze, Kept::Hold, Kept::Maintenance, Kept::Store] {
        for needed in [false, true] {
            let mut world = half_empty().await;
            let _ = world.turn().await;
            world.pass(Duration::from_mins(11));
            world.show(|_| {});
            let _ = world.turn().await;
            let first = world.intent("b").await.unwrap();
            keep(&world, kept, true).await;
            if needed {
                world.show(|objects| objects.pods.push(running("web-2", "7", "b")));
            }
            for minute in 0..60 {
                world.pass(Duration::from_mins(1));
                world.show(|_| {});
                if kept != Kept::Store {
                    let _ = world.turn().await;
                }
                let stands = world.intent("b").await.unwrap() == first;
                assert!(stands || (kept == Kept::Unknown && minute >= 4), "{kept:?} in minute {minute}");
            }
            keep(&world, kept, false).await;
            let lifted = world.now();
            for _ in 0..20 {
                world.pass(Duration::from_mins(1));
                world.show(|_| {});
                let _ = world.turn().await;
            }
            let intent = world.intent("b").await.unwrap();
            assert_eq!((intent.want, intent == first), (Switch::Off, needed), "{kept:?}: {intent:?}");
            assert!(needed || intent.at > lifted, "{kept:?}: {intent:?}, lifted at {lifted}");
        }
    }
}

async fn keep(world: &World, kept: Kept, keeps: bool) {
    match kept {
        Kept::Unknown | Kept::Store => {}
        Kept::Freeze => {
            let mode = if keeps { FreezeMode::Frozen } else { FreezeMode::None };
            world.global(|config| config.freeze = mode).await;
        }
        Kept::Hold => {
            let hold = keeps.then(|| json!({"by": "ada", "reason": "looking at it"}));
            world.respec("b", json!({"hold": hold})).await;
        }
        Kept::Maintenance => {
            let admin = if keeps { "maintenance" } else { "normal" };
            world.respec("b", json!({"admin": admin})).await;
        }
    }
}

/// OPS-R5: an old view, an empty list of pods or a view that cannot be read removes nothing.
#[tokio::test]
async fn ops_r5_a_doubtful_view_removes_nothing() {
    let mut world = half_empty().await;
    let _ = world.turn().await;
    // Old knowledge: the view stands still while time goes on.
    world.pass(Duration::from_mins(20));
    let _ = world.turn().await;
    assert_eq!(world.intent("b").await, None);
    let live = world.parts.board.get(world.id).unwrap();
    let gaps = &live.view.as_ref().unwrap().snapshot.gaps;
    assert_eq!(&*gaps[0].why, "the view of the cluster is 20m old, at most 2m is trusted");
    // An empty list of pods is not an empty cluster.
    world.show(|objects| objects.pods.clear());
    for _ in 0..3 {
        world.pass(Duration::from_mins(11));
        world.show(|_| {});
        let _ = world.turn().await;
    }
    assert_eq!((world.intent("a").await, world.intent("b").await), (None, None));
}

#[derive(Debug)]
struct Silent;

#[async_trait]
impl Triggers for Silent {
    async fn evaluate(&self, _: &Trigger, now: Timestamp) -> Known<Finding> {
        Known::Unknown { why: "Prometheus answers 503".into(), since: now }
    }
}

/// OPS-R6 and BM-7.21: what Prometheus does not say keeps capacity, and pending pods still get a host.
#[tokio::test]
async fn ops_r6_bm_7_21_unknown_triggers_remove_nothing_and_do_not_stop_growth() {
    let mut world = World::new().await;
    let pool = world
        .pool(
            "web",
            json!({"platform": {"type": "baremetal"}, "autoscaling": {
                "enabled": true, "minNodes": 0, "maxNodes": 3, "scaleDownDelay": "1m", "triggers": [
                    {"metricQuery": "queue", "threshold": 5, "duration": "1m", "scaleDirection": "down"}]}}),
        )
        .await;
    world.parts.triggers = Some(Arc::new(Silent));
    world.planner = world.parts.planner(world.id);
    for host in ["a", "b", "c"] {
        world.host(host, "web").await;
    }
    for host in ["a", "b"] {
        world.serve(host, "web").await;
    }
    world.show(|objects| objects.pods.push(running("web-1", "4", "a")));
    for _ in 0..5 {
        world.pass(Duration::from_mins(2));
        world.show(|_| {});
        let _ = world.turn().await;
    }
    assert_eq!((world.intent("a").await, world.intent("b").await), (None, None));
    let status = world.pool_status(&pool).await;
    let metrics = muster_model::condition::find(&status.conditions, "MetricsAvailable").unwrap();
    assert_eq!((metrics.status.as_str(), metrics.reason.as_str()), ("False", "MetricsUnavailable"));
    assert!(metrics.message.contains("Prometheus answers 503"), "{}", metrics.message);
    world.show(|objects| objects.pods.push(pod("web-2", "8")));
    world.show(|objects| objects.pods.push(pod("web-3", "8")));
    let decision = World::decided(&world.turn().await);
    assert_eq!(decision.outcome.state, OutcomeState::Acted, "{decision:#?}");
    assert_eq!(world.intent("c").await.unwrap().want, Switch::On);
}

#[tokio::test]
async fn a_pool_that_grew_rests_before_it_shrinks() {
    let mut world = half_empty().await;
    world.host("c", "web").await;
    let _ = world.turn().await;
    world.pass(Duration::from_mins(9));
    world.show(|objects| objects.pods.extend([pod("big-1", "8"), pod("big-2", "8")]));
    let grown = World::decided(&world.turn().await);
    assert_eq!(grown.actions[0].host.as_deref(), Some("c"), "{grown:#?}");
    world.show(|objects| objects.pods.retain(|pod| !pod.metadata.name.starts_with("big")));
    world.pass(Duration::from_mins(2));
    world.show(|_| {});
    let _ = world.turn().await;
    assert_eq!(world.intent("b").await, None, "the pool grew two minutes ago");
}

#[tokio::test]
async fn hosts_that_a_person_holds_are_not_switched_off() {
    let mut world = half_empty().await;
    let held = json!({"pool": "web", "hold": {"by": "ann", "reason": "burn-in"}});
    world.host_with("b", held, |_| {}).await;
    world.show(|objects| objects.nodes.clear());
    for host in ["a", "b"] {
        world.serve(host, "web").await;
    }
    for _ in 0..3 {
        world.pass(Duration::from_mins(11));
        world.show(|_| {});
        let _ = world.turn().await;
    }
    assert_eq!(world.intent("b").await, None);
}

/// OPS-R14: a rack goes dark. Removals stop with the next look and stay stopped while it is dark, growth goes on, and
/// when it is back the pool shrinks once and not back and forth.
#[tokio::test]
async fn ops_r14_a_dark_rack_stops_removals_and_not_growth() {
    let mut world = World::new().await;
    world.metal("web", 1, 12).await;
    let hosts: Vec<String> = (0..8).map(|number| format!("h{number}")).collect();
    for (number, host) in hosts.iter().enumerate() {
        let rack = if number < 4 { "r1" } else { "r2" };
        world.host_with(host, json!({ "pool": "web", "rack": rack }), |_| {}).await;
        world.serve(host, "web").await;
    }
    for spare in ["s1", "s2"] {
        world.host_with(spare, json!({ "pool": "web", "rack": "r2" }), |_| {}).await;
    }
    let full = |node: &str| running(&format!("web-{node}"), "7", node);
    world.show(|objects| objects.pods.extend(hosts[..7].iter().map(|host| full(host))));
    let _ = world.turn().await; // h7 is not needed from now on
    let dark = |world: &World, is_dark: bool| {
        world.show(|objects| {
            for node in
                objects.nodes.iter_mut().filter(|node| hosts[..4].iter().any(|host| **host == *node.name()))
            {
                let status = if is_dark { "Unknown" } else { "True" };
                node.status.conditions =
                    serde_json::from_value(json!([{ "type": "Ready", "status": status }])).unwrap();
            }
        });
    };
    dark(&world, true);
    world.show(|objects| objects.pods.push(pod("train", "8")));
    let mut grown = 0;
    for _ in 0..30 {
        world.pass(Duration::from_mins(1));
        world.show(|_| {});
        let turn = world.turn().await;
        if let muster_control::planner::Did::Decided(decision) = &turn.did {
            assert!(decision.actions.iter().all(|action| action.kind != ActionKind::Remove), "{decision:#?}");
            grown += decision.actions.len();
        }
        assert_eq!(world.intent("h7").await, None, "nothing is removed while a rack is dark");
    }
    assert!(grown > 0, "a pod that waits still gets a host");
    // What was woken has come.
    for spare in ["s1", "s2"] {
        if world.intent(spare).await.is_some() {
            world.serve(spare, "web").await;
        }
    }
    // Light again: what is not needed goes, once.
    world.show(|objects| objects.pods.retain(|pod| &*pod.metadata.name != "train"));
    dark(&world, false);
    let mut removals = 0;
    for _ in 0..60 {
        world.pass(Duration::from_mins(1));
        world.show(|_| {});
        if let muster_control::planner::Did::Decided(decision) = &world.turn().await.did {
            removals += decision.actions.iter().filter(|action| action.kind == ActionKind::Remove).count();
        }
    }
    let why = || format!("{:#?}", world.parts.board.get(world.id).map(|live| live.waiting.clone()));
    assert!(removals > 0, "the breaker closes by itself: {}", why());
    for busy in &hosts[..7] {
        assert_eq!(world.intent(busy).await, None, "{busy} is in use");
    }
    let ons = world
        .decisions()
        .await
        .iter()
        .flat_map(|one| one.actions.clone())
        .filter(|one| one.kind != ActionKind::Remove)
        .count();
    assert!(ons <= 4, "no back and forth: {ons} power-ons in an hour and a half");
}

/// Hosts of one rack go by fours, and the next plan does not add to those that are going.
#[tokio::test]
async fn no_more_hosts_of_a_rack_go_at_one_time_than_may() {
    let mut world = World::new().await;
    world.metal("web", 1, 12).await;
    for number in 0..7 {
        let (host, rack) = (format!("h{number}"), if number == 0 { "r2" } else { "r1" });
        world.host_with(&host, json!({ "pool": "web", "rack": rack }), |_| {}).await;
        world.serve(&host, "web").await;
    }
    world.show(|objects| objects.pods.push(running("web-1", "4", "h0")));
    let _ = world.turn().await;
    world.pass(Duration::from_mins(11));
    world.show(|_| {});
    let _ = world.turn().await;
    let asked = async |world: &World| {
        let mut asked = Vec::new();
        for number in 0..7 {
            if world.intent(&format!("h{number}")).await.is_some_and(|intent| intent.want == Switch::Off) {
                asked.push(format!("h{number}"));
            }
        }
        asked
    };
    let first = asked(&world).await;
    assert_eq!(first.len(), 4, "{first:?}");
    for _ in 0..3 {
        world.pass(Duration::from_secs(30));
        world.show(|_| {});
        let _ = world.turn().await;
    }
    assert_eq!(asked(&world).await, first, "they are still going");
    // One of them is off.
    world
        .status(&first[0], |status| {
            (status.phase, status.state) = (Phase::Idle, Phase::Idle.state());
            (status.kubernetes_node, status.off_proved_at) = (None, status.serving_since);
        })
        .await;
    world.show(|objects| objects.nodes.retain(|node| *node.name() != *first[0]));
    let _ = world.turn().await;
    assert_eq!(asked(&world).await.len(), 5, "one more of the rack may go");
}

/// Pods that have ended ask for nothing, and all of what the others ask for counts, not the node's own share alone.
#[tokio::test]
async fn cba_ended_pods_count_for_nothing_and_pods_must_have_room_elsewhere() {
    let mut world = half_empty().await;
    let mut ended = running("job-1", "8", "b");
    ended.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
    world.show(|objects| objects.pods.push(ended));
    let _ = world.turn().await;
    world.pass(Duration::from_mins(11));
    world.show(|_| {});
    let decision = World::decided(&world.turn().await);
    assert_eq!(decision.actions[0].node.as_deref(), Some("b"), "{decision:#?}");
    // The same node with a pod that nothing else could take stays, however idle it looks.
    let mut world = half_empty().await;
    world.show(|objects| {
        objects.pods = vec![running("web-1", "7", "a"), running("web-2", "2", "b")];
    });
    for _ in 0..3 {
        let _ = world.turn().await;
        world.pass(Duration::from_mins(11));
        world.show(|_| {});
    }
    assert_eq!((world.intent("a").await, world.intent("b").await), (None, None));
}

/// A server goes for one that costs less when that one serves, and not before: its pods have nowhere else to go.
#[tokio::test]
async fn a_node_that_is_replaced_goes_when_the_new_one_serves() {
    let mut world = World::new().await;
    let auto = json!({"enabled": true, "minNodes": 0, "maxNodes": 3, "scaleDownDelay": "0s"});
    world.pool("web", json!({"platform": {"type": "baremetal"}, "autoscaling": auto})).await;
    world.global(|global| global.energy_price_micros = Some(300_000)).await;
    for (host, watts) in [("a", 400), ("b", 400), ("c", 60)] {
        world
            .host_with(host, json!({"pool": "web", "idleWatts": watts / 2, "maxWatts": watts}), |_| {})
            .await;
    }
    for host in ["a", "b"] {
        world.serve(host, "web").await;
    }
    world.pass(Duration::from_hours(2));
    let set = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"replicas": 3}});
    world.show(|objects| {
        objects.replica_sets = vec![serde_json::from_value(set).unwrap()];
        objects.pods.extend([running("web-1", "2", "a"), running("web-2", "1", "b")]);
        // Somebody works on b: it keeps what it has and takes nothing.
        objects.nodes[1].spec.unschedulable = true;
        objects.nodes[1].metadata.annotations.insert("karpenter.sh/do-not-disrupt", "true".into());
    });
    let decision = World::decided(&world.turn().await);
    assert_eq!(world.intent("c").await.map(|intent| intent.want), Some(Switch::On), "{decision:#?}");
    assert_eq!(world.intent("a").await, None, "its pods have no place yet: {decision:#?}");
    world.pass(Duration::from_secs(11));
    world.show(|_| {});
    let turn = world.turn().await;
    assert_eq!(world.intent("a").await, None, "the other one is on its way: {turn:?}");
    world.serve("c", "web").await;
    world.pass(Duration::from_hours(2));
    world.show(|_| {});
    let decision = World::decided(&world.turn().await);
    assert_eq!(world.intent("a").await.map(|intent| intent.want), Some(Switch::Off), "{decision:#?}");
    assert_eq!(world.intent("c").await.map(|intent| intent.want), Some(Switch::On));
}
