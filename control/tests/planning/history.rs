//! The questions that one snapshot cannot answer: is it alive, why is this gone, what led to it, on what grounds.

use muster_control::explain::{Explain, Explained, Subject};
use muster_model::Duration;
use serde_json::json;

use crate::world::{World, context, running};

fn explain(world: &World) -> Explain {
    Explain::new(world.parts.board.clone(), world.journal())
}

#[track_caller]
fn fits(explained: &Explained) {
    assert!(explained.headline.chars().count() <= 120, "{}", explained.headline);
    assert!(explained.headline.chars().any(|c| c.is_ascii_digit()), "{}", explained.headline);
    assert_eq!(explained.text.lines().next(), Some(explained.headline.as_str()));
}

/// Three nodes of which one is needed; the other two go after their delay, one of them later.
async fn shrunk() -> World {
    let mut world = World::new().await;
    world.metal("web", 1, 3).await;
    for host in ["a", "b"] {
        world.host(host, "web").await;
        world.serve(host, "web").await;
    }
    world.show(|objects| objects.pods.push(running("web-1", "4", "a")));
    for _ in 0..2 {
        let _ = world.turn().await;
        world.pass(Duration::from_mins(10));
        world.show(|_| {});
    }
    assert!(world.intent("b").await.is_some(), "{:#?}", world.decisions().await);
    // The host loop has done its part: the machine is off, the node is gone.
    world
        .status("b", |status| {
            (status.phase, status.state) = (muster_model::host::Phase::Idle, muster_model::host::State::Off);
            (status.kubernetes_node, status.serving_since) = (None, None);
            status.off_proved_at = Some(status.phase_since);
        })
        .await;
    world.show(|objects| objects.nodes.retain(|node| node.name() != "b"));
    let _ = world.turn().await;
    world
}

/// Question 2: is the autoscaler even alive?
#[tokio::test]
async fn ops_u8_q02_when_it_last_looked_and_what_stopped_it() {
    let mut world = World::new().await;
    world.metal("web", 0, 3).await;
    let subject = Subject::Pool("web".into());
    let never = explain(&world).now(world.id, &subject, world.now()).await.unwrap();
    fits(&never);
    assert!(never.text.contains("0 looks so far"), "{}", never.text);
    let _ = world.turn().await;
    world.pass(Duration::from_mins(3));
    world.unsync(true);
    let _ = world.turn().await;
    world.pass(Duration::from_secs(7));
    let answer = explain(&world).now(world.id, &subject, world.now()).await.unwrap();
    fits(&answer);
    assert!(
        answer.text.contains("last look 7s ago (2026-11-16T02:03:00Z), 2 looks, leads"),
        "{}",
        answer.text
    );
    assert!(answer.text.contains("waits: 1 of 17 kinds are not in sync: pods"), "{}", answer.text);
}

/// Question 23: why was this node deleted? It is gone, its host is reused, the process is a new one.
#[tokio::test]
async fn ops_u8_q23_ops_u11_a_node_that_is_gone_still_says_why() {
    let mut world = Box::pin(shrunk()).await;
    world.fail_over().await;
    let _ = world.turn().await;
    let answer = explain(&world).now(world.id, &Subject::Node("b".into()), world.now()).await.unwrap();
    fits(&answer);
    assert!(answer.headline.starts_with("node b is gone; decision 55440000-"), "{}", answer.headline);
    assert!(answer.history[0].because.starts_with("remove node b: 0 % of its "), "{:?}", answer.history);
    let nobody = explain(&world).now(world.id, &Subject::Node("zzz".into()), world.now()).await.unwrap();
    fits(&nobody);
    assert!(nobody.headline.contains("decisions did anything for it"), "{}", nobody.headline);
    assert!(nobody.text.contains("decisions that are kept, back to 2026-11-16T02:"), "{}", nobody.text);
}

/// Question 24: everything was replaced at one clock time. What led to it is in the record.
#[tokio::test]
async fn ops_u8_q24_a_decision_names_what_led_to_it() {
    let mut world = World::new().await;
    let pool = world.pool("web", json!({"platform": {"type": "baremetal"}, "nodeCount": 2})).await;
    for host in ["a", "b"] {
        world.host(host, "web").await;
        world.serve(host, "web").await;
    }
    world.show(|objects| objects.pods.push(running("web-1", "1", "a")));
    let _ = world.turn().await;
    world.host("c", "web").await;
    let (registry, now) = (world.registry.clone(), world.now());
    let change = |nodes: u32| {
        let (registry, id) = (registry.clone(), pool.id.uuid());
        async move {
            let change = |stored: &muster_control::registry::Stored<muster_control::registry::NodePool>| {
                let patch = json!({"spec": {"nodeCount": nodes}});
                let parsed =
                    stored.object.merge_patch(&patch, &muster_model::pool::PoolContext::default())?;
                let mut pool = stored.object.clone();
                pool.apply(parsed.value, now);
                Ok((pool, Vec::new()))
            };
            registry.update(&context(now), id, &|_| true, change, |txn, _| txn).await.unwrap();
        }
    };
    // A first decision to compare with, then a smaller size.
    change(3).await;
    let grown = World::decided(&world.turn().await);
    change(1).await;
    world.pass(Duration::from_mins(20));
    world.show(|_| {});
    world.planner.nudge("registry");
    let decision = World::decided(&world.turn().await);
    assert_eq!(decision.cause.changes[0], "pool web: minimum 3 → 1", "{decision:#?}");
    assert!(decision.cause.changes.iter().any(|one| one == "pool web: fixed size 3 → 1"));
    assert!(decision.cause.nudges.contains(&"registry".to_owned()));
    assert_eq!(decision.cause.after, Some(grown.id));
    let text = muster_control::explain::describe(&decision, None);
    assert!(text.contains("because:\n  pool web: minimum 3 → 1"), "{text}");
}

/// Question 25: "scaled down without any reason". The figures of then are frozen in the record.
#[tokio::test]
async fn ops_u8_q25_the_evidence_is_that_of_then() {
    let world = Box::pin(shrunk()).await;
    let decisions = world.decisions().await;
    let removal = decisions.iter().find(|one| one.removals == 1).unwrap();
    let explained = explain(&world).decision(removal.clone()).await.unwrap();
    assert!(explained.headline.chars().count() <= 120);
    assert!(
        explained.text.contains("mark 30 %; unneeded since 2026-11-16T02:00:00Z, required 10m"),
        "{}",
        explained.text
    );
    assert!(
        explained.replay.starts_with("the same plan again: 0 new nodes, 1 removal"),
        "{}",
        explained.replay
    );
    // The node as it was then, although it is not there any more.
    let then = explain(&world).then(removal, &Subject::Node("b".into())).await.unwrap();
    fits(&then);
    assert!(then.answer.is_some(), "{}", then.text);
}
