//! Pools that others provision: the size is visible, and so is silence.

use muster_control::journal::{ActionKind, OutcomeState};
use muster_model::{Duration, condition::find, k8s::Node};
use serde_json::json;

use crate::world::{World, node, pod};

async fn cloud(world: &World) -> muster_control::registry::NodePool {
    world
        .pool(
            "web",
            json!({"platform": {"type": "gcp", "gcp": {"machineType": "n1-standard-4"}},
                "autoscaling": {"enabled": true, "minNodes": 0, "maxNodes": 5, "scaleDownDelay": "10m"}}),
        )
        .await
}

fn cloud_node(world: &World, name: &str) -> Node {
    let mut node = node(name, "web", world.now());
    node.metadata.labels.insert("node.kubernetes.io/instance-type", "n1-standard-4".into());
    node
}

#[tokio::test]
async fn the_size_is_on_the_pool_and_silence_becomes_visible() {
    let mut world = World::new().await;
    let pool = cloud(&world).await;
    world.show(|objects| objects.pods.extend([pod("web-1", "3"), pod("web-2", "3")]));
    let decision = World::decided(&world.turn().await);
    assert_eq!(decision.outcome.state, OutcomeState::Acted, "{decision:#?}");
    assert!(decision.actions.iter().all(|action| action.kind == ActionKind::Ask));
    assert_eq!(world.pool_status(&pool).await.desired_nodes, 2);
    // They are on their way: no more are asked for.
    world.pass(Duration::from_secs(30));
    world.show(|_| {});
    let _ = world.turn().await;
    let status = world.pool_status(&pool).await;
    assert_eq!(status.desired_nodes, 2);
    assert_eq!(find(&status.conditions, "Provisioned").unwrap().reason, "Waiting");
    // Nobody makes them: said, and the pool is not asked again at once.
    world.pass(Duration::from_mins(15));
    world.show(|_| {});
    let _ = world.turn().await;
    let status = world.pool_status(&pool).await;
    let provisioned = find(&status.conditions, "Provisioned").unwrap();
    assert_eq!((provisioned.status.as_str(), provisioned.reason.as_str()), ("False", "ProvisionerSilent"));
    assert!(provisioned.message.starts_with("0 of 2 nodes are there"), "{}", provisioned.message);
    assert_eq!(status.desired_nodes, 2);
}

#[tokio::test]
async fn nodes_that_join_by_their_label_are_counted_and_fewer_are_asked_for_when_they_idle() {
    let mut world = World::new().await;
    let pool = cloud(&world).await;
    world.show(|objects| objects.pods.extend([pod("web-1", "3"), pod("web-2", "3")]));
    let _ = world.turn().await;
    let (first, second) = (cloud_node(&world, "n1"), cloud_node(&world, "n2"));
    world.show(|objects| {
        objects.nodes.extend([first, second]);
        objects.pods = vec![crate::world::running("web-1", "2", "n1")];
    });
    let _ = world.turn().await;
    assert_eq!(
        find(&world.pool_status(&pool).await.conditions, "Provisioned").unwrap().reason,
        "SizeReached"
    );
    for _ in 0..4 {
        world.pass(Duration::from_mins(6));
        world.show(|_| {});
        let _ = world.turn().await;
    }
    let status = world.pool_status(&pool).await;
    assert_eq!(status.desired_nodes, 1, "{:#?}", world.decisions().await[0]);
    let leaving = find(&status.conditions, "ScalingDown").unwrap();
    assert!(leaving.message.contains("n2"), "{}", leaving.message);
    assert_eq!(status.nodes_to_remove, ["n2"], "for programs, too");
    // It is gone: nothing is left to remove.
    world.show(|objects| objects.nodes.retain(|node| &*node.metadata.name != "n2"));
    let _ = world.turn().await;
    assert_eq!(world.pool_status(&pool).await.nodes_to_remove, [""; 0]);
}

#[tokio::test]
async fn a_pool_that_nobody_can_describe_is_not_planned() {
    let mut world = World::new().await;
    let pool = world
        .pool(
            "odd",
            json!({"platform": {"type": "gcp", "gcp": {"machineType": "x9-unheard-of"}},
                "autoscaling": {"enabled": true, "minNodes": 0, "maxNodes": 5}}),
        )
        .await;
    world.show(|objects| objects.pods.push(pod("web-1", "3")));
    let decision = World::decided(&world.turn().await);
    assert_eq!(decision.new_nodes, 0);
    let planned = world.pool_status(&pool).await;
    let planned = find(&planned.conditions, "Planned").unwrap();
    assert_eq!((planned.status.as_str(), planned.reason.as_str()), ("False", "TemplateIncomplete"));
    assert!(planned.message.contains("x9-unheard-of"), "{}", planned.message);
}

/// Without a connection what is wanted or reported counts: a size is never lowered, nor asked for twice.
#[tokio::test]
async fn pools_of_an_unseen_cluster_keep_their_size() {
    let store = std::sync::Arc::new(muster_store::memory::Memory::default());
    let mut world = World::with(store, false, "active").await;
    let pool = world
        .pool(
            "web",
            json!({"platform": {"type": "gcp", "gcp": {"machineType": "n1-standard-4"}}, "nodeCount": 4,
                "autoscaling": {"enabled": true, "minNodes": 1, "maxNodes": 5}}),
        )
        .await;
    for _ in 0..3 {
        let _ = world.turn().await;
        world.pass(Duration::from_mins(20));
    }
    let status = world.pool_status(&pool).await;
    assert_eq!(status.desired_nodes, 4, "{:#?}", world.decisions().await);
    assert_eq!(find(&status.conditions, "ClusterConnected").unwrap().reason, "NotConnected");
    assert!(world.decisions().await.iter().all(|one| one.new_nodes == 0 && one.removals == 0));
}
