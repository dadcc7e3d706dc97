//! Leaders that die or are superseded, and a world that moves while they think.

use muster_control::{journal::OutcomeState, planner::Did};
use muster_model::{Duration, host::Switch, store::List};

use crate::world::{World, pod};

async fn one_pod_two_hosts() -> World {
    let world = World::new().await;
    world.metal("web", 0, 3).await;
    for host in ["a", "b"] {
        world.host(host, "web").await;
    }
    world.show(|objects| objects.pods.push(pod("web-1", "2")));
    world
}

async fn intents(world: &World) -> Vec<String> {
    let page = world.store.list(List::prefix("/baremetal/nodes/")).await.unwrap();
    page.entries.into_iter().map(|entry| entry.key).filter(|key| key.ends_with("/intent")).collect()
}

/// BM-7.20 and OPS-R7, the planner's half: the store refuses everything from the old epoch.
#[tokio::test]
async fn bm_7_20_ops_r7_a_superseded_leader_writes_nothing() {
    let mut world = one_pod_two_hosts().await;
    let (old, old_planner) = (world.fence.clone(), world.parts.planner(world.id));
    world.fail_over().await;
    let before = world.store.revision().await.unwrap();
    let mut old_planner = old_planner;
    let turn = old_planner.turn(world.now(), Some(&old)).await;
    assert!(matches!(&turn.did, Did::Waited(why) if why.contains("no longer leads")), "{turn:?}");
    assert_eq!(world.store.revision().await.unwrap(), before, "the old leader changed something");
    assert_eq!(intents(&world).await, Vec::<String>::new());
    let decision = World::decided(&world.turn().await);
    assert_eq!((decision.epoch, decision.outcome.state), (world.fence.epoch, OutcomeState::Acted));
    assert_eq!(intents(&world).await.len(), 1);
}

/// OPS-R12, BM-7.17, the planner's half: the leader died after it journaled and before it acted.
#[tokio::test]
async fn ops_r12_killed_between_journal_and_act_the_next_leader_goes_on_once() {
    let mut world = one_pod_two_hosts().await;
    // What a leader leaves behind that dies right after the journal: a decision that is only planned.
    let decision = World::decided(&world.turn().await);
    let planned = muster_control::journal::Outcome {
        state: OutcomeState::Planned,
        at: world.now(),
        text: "1 things to do".into(),
        effects: Vec::new(),
    };
    world.journal().settle(&world.fence, &decision, planned).await.unwrap();
    let txn = muster_model::store::Txn::new().delete("/baremetal/nodes/a/intent");
    let _ = world.store.commit(txn).await.unwrap();
    world.fail_over().await;
    let again = World::decided(&world.turn().await);
    assert_eq!((again.number, again.outcome.state), (2, OutcomeState::Acted));
    assert_eq!(again.cause.after.as_ref(), Some(&decision.id));
    assert_eq!(intents(&world).await, ["/baremetal/nodes/a/intent"]);
    let old = world.journal().read(world.id, 1).await.unwrap().unwrap();
    assert_eq!(old.outcome.state, OutcomeState::Void, "{:?}", old.outcome);
    assert!(old.outcome.text.contains("decides anew"), "{}", old.outcome.text);
}

/// The leader died after the intent and before it wrote down that it acted: nothing is woken twice.
#[tokio::test]
async fn ops_r12_killed_after_the_intent_nothing_is_woken_twice() {
    let mut world = one_pod_two_hosts().await;
    let decision = World::decided(&world.turn().await);
    let planned = muster_control::journal::Outcome {
        state: OutcomeState::Planned,
        at: world.now(),
        text: "1 things to do".into(),
        effects: Vec::new(),
    };
    world.journal().settle(&world.fence, &decision, planned).await.unwrap();
    let txn = muster_model::store::Txn::new().delete(format!("/muster/planner/{}", world.id));
    let _ = world.store.commit(txn).await.unwrap();
    world.fail_over().await;
    let _ = world.turn().await;
    assert_eq!(intents(&world).await, ["/baremetal/nodes/a/intent"]);
    assert_eq!(world.intent("a").await.unwrap().want, Switch::On);
}

/// The second audit: the pod is gone when the plan is to be carried out.
#[tokio::test]
async fn a_plan_is_void_when_the_world_moved_on() {
    let mut world = one_pod_two_hosts().await;
    world.show_afterwards(|objects| objects.pods.clear());
    let decision = World::decided(&world.turn().await);
    assert_eq!(decision.outcome.state, OutcomeState::Void, "{decision:#?}");
    assert!(decision.outcome.text.starts_with("the world moved on, "), "{}", decision.outcome.text);
    assert_eq!(intents(&world).await, Vec::<String>::new());
    world.pass(Duration::from_secs(1));
    let _ = world.turn().await;
    assert_eq!(intents(&world).await, Vec::<String>::new());
}

/// A process that does not lead looks, explains, and writes nothing.
#[tokio::test]
async fn a_follower_looks_and_writes_nothing() {
    let mut world = one_pod_two_hosts().await;
    let before = world.store.revision().await.unwrap();
    let turn = world.planner.turn(world.now(), None).await;
    assert_eq!(turn.did, Did::Looked);
    assert_eq!(world.store.revision().await.unwrap(), before);
    let live = world.parts.board.get(world.id).unwrap();
    assert!(!live.leading);
    assert_eq!(live.view.as_ref().unwrap().plan.new_nodes.len(), 1);
}
