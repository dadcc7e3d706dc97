//! Nodes whose pool is gone or in another cluster: what runs there is seen, moved away, and never cut off.

use muster_control::{
    hosts::failpoint::Failpoints,
    inventory::{
        HostChanges,
        keys::{boot_token, changes},
    },
};
use muster_model::{
    Clock as _,
    host::{
        Acknowledgement, Deletion, DeletionMode, Phase, Switch,
        keys::{self, HostRecord},
    },
    power::PowerAction,
    store::Txn,
};

use crate::world::{PoolIs, World};

/// A host that serves a pod which a budget protects; then its pool changes, and a person wants the machine off.
async fn left_behind(pool: PoolIs) -> World {
    let world = World::new().await;
    world.serving("h1").await;
    assert_eq!(world.status("h1").await.kubernetes_cluster.as_deref(), Some("lab"));
    world.pod("web-1", "h1", 10);
    world.outside.state().budget = Some("web-pdb".into());
    world.outside.state().pool_is = pool;
    world.pass(120).await;
    world.respec("h1", |spec| spec.power_state = Some(Switch::Off)).await;
    world
}

fn switched_off(world: &World) -> (usize, usize) {
    let state = world.outside.state();
    (state.count("h1", PowerAction::GracefulOff), state.count("h1", PowerAction::ForceOff))
}

#[tokio::test(start_paused = true)]
async fn a_node_is_drained_where_it_is_although_its_pool_is_not_there() {
    for pool in [PoolIs::Gone, PoolIs::Elsewhere, PoolIs::WhereItWasBefore] {
        let world = left_behind(pool).await;
        world.pass(600).await;
        assert_eq!(switched_off(&world), (0, 0), "{pool:?}: a budget keeps 1 pod there");
        assert!(world.outside.state().evictions > 0, "{pool:?}: it was asked to go");
        world.outside.state().budget = None;
        world.until("h1", Phase::Idle, 3_600).await;
        assert_eq!(switched_off(&world), (1, 0), "{pool:?}");
        assert!(world.outside.state().pods.is_empty());
        let status = world.status("h1").await;
        assert_eq!(status.kubernetes_cluster, None, "{pool:?}: nothing of it is left there");
        // It joins the cluster of its pool from now on.
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_in_a_cluster_that_nobody_is_connected_to_keeps_its_power_until_a_person_says_so() {
    for pool in [PoolIs::Gone, PoolIs::Here] {
        let world = World::new().await;
        world.serving("h1").await;
        world.pod("web-1", "h1", 10);
        world.outside.state().disconnected = true;
        world.outside.state().pool_is = pool;
        world.respec("h1", |spec| spec.power_state = Some(Switch::Off)).await;
        world.pass(7_200).await;
        assert_eq!(switched_off(&world), (0, 0), "{pool:?}: nobody knows what runs there");
        if pool == PoolIs::Here {
            continue;
        }
        let told = world.status("h1").await;
        assert_eq!(told.kubernetes_cluster.as_deref(), Some("lab"));
        let at = world.outside.clock.now();
        let (by, reason) = ("ann".into(), "that cluster was taken down".into());
        world.respec("h1", |spec| spec.acknowledgement = Some(Acknowledgement { by, reason, at })).await;
        world.until("h1", Phase::Idle, 3_600).await;
        assert_eq!(switched_off(&world).0, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_is_nobodys_deletion() {
    let world = World::new().await;
    world.serving("h1").await;
    let status = world.status("h1").await;
    let (outside, store) = world.kill().await;
    // A newer version, or a hand that slipped, wrote what this process cannot read; it has never seen another.
    let before = store.get(&keys::host("h1", HostRecord::Spec)).await.unwrap().unwrap();
    let broken = Txn::new().put(keys::host("h1", HostRecord::Spec), br#"{"powerInterface": 7}"#.as_slice());
    let _ = store.commit(broken).await.unwrap();
    let world = World::on(outside, store, Failpoints::default()).await;
    world.pass(3_600).await;
    assert_eq!((world.phase("h1").await, switched_off(&world)), (Some(Phase::Serving), (0, 0)));
    assert_eq!(world.status("h1").await.operations, status.operations);
    let spec: serde_json::Value = serde_json::from_slice(&before.value).unwrap();
    world.put(keys::host("h1", HostRecord::Spec), spec).await;
    world.pass(60).await;
    world.want("h1", Switch::Off, "i-off").await;
    world.until("h1", Phase::Idle, 600).await;
}

/// What is left of a host would be taken for the next one's of its name.
#[tokio::test(start_paused = true)]
async fn nothing_of_a_host_outlives_its_deletion_but_the_line_that_says_so() {
    let world = World::new().await;
    world.serving("h1").await;
    let left = [keys::boot_progress("h1"), keys::agent_goodbye("h1"), boot_token("h1")];
    for key in &left {
        world.put(key.clone(), serde_json::json!({})).await;
    }
    let at = world.outside.clock.now();
    let gone = Deletion { mode: DeletionMode::Keep, by: "ann".into(), at };
    world.respec("h1", |spec| spec.deletion = Some(gone)).await;
    world.pass(3_600).await;
    let (_, store) = world.kill().await;
    for key in left.into_iter().chain(HostRecord::ALL.map(|record| keys::host("h1", record))) {
        assert!(store.get(&key).await.unwrap().is_none(), "{key} is left behind");
    }
    let told = store.get(&changes("h1")).await.unwrap().expect("its end is told");
    let told: HostChanges = serde_json::from_slice(&told.value).unwrap();
    assert_eq!(told.changes.last().unwrap().verb, "delete");
    let nothing = hex::encode(<sha2::Sha256 as sha2::Digest>::digest([]));
    assert_eq!(told.digest, nothing, "so that it is nobody else's doing");
}
