//! What the host loop is told beside the records of hosts, read from the store.

use std::sync::Arc;

use muster_control::{
    hosts::{Around, Facts, Home, NoAgents, PoolSays},
    inventory::{CredentialDraft, DraftValue, Inventory, Vault, VaultKey},
    registry::WriteContext,
};
use muster_model::{
    Secret, Timestamp,
    credential::CredentialKind,
    host::{
        BootReport, Phase,
        keys::{self, PoolRecord},
    },
    store::{Committed, Txn},
};
use serde_json::json;

use crate::world::{CLUSTER, World};

async fn facts(world: &World) -> Arc<Facts> {
    let inventory = Inventory::open(Arc::clone(&world.store), world.clock()).await.unwrap();
    let key = VaultKey::in_memory().unwrap();
    let vault = Arc::new(Vault::new(Arc::clone(&inventory), key));
    let (registry, connections) = (Arc::clone(&world.registry), Arc::clone(&world.parts.connections));
    let facts = Facts::new(registry, inventory, vault, connections, Arc::new(NoAgents), world.clock());
    facts.refresh().await.unwrap();
    facts
}

#[tokio::test]
async fn every_boot_report_is_read_however_many_there_are() {
    let world = World::new().await;
    for number in 0..2_345 {
        let report = BootReport { stage: "kernel".into(), os: false, at: world.now(), by: "pxe".into() };
        world.put(&keys::boot_progress(&format!("h{number:04}")), &report).await;
    }
    let facts = facts(&world).await;
    for name in ["h0000", "h0999", "h1000", "h2000", "h2344"] {
        assert!(facts.boot_report(name).is_some(), "what {name} reported is not known");
    }
}

/// Its pool was deleted: whoever stands the machine down has to see what runs on it.
#[tokio::test]
async fn a_cluster_stays_in_sight_while_a_node_of_a_host_is_there() {
    let world = World::new().await;
    world.host("h1", "gone").await;
    assert!(matches!(facts(&world).await.home("gone"), Home::Nowhere));
    assert!(facts(&world).await.clusters().is_empty(), "nothing of it is anywhere");
    world
        .status("h1", |status| {
            (status.phase, status.state) = (Phase::Serving, Phase::Serving.state());
            status.kubernetes_cluster = Some(CLUSTER.to_owned());
        })
        .await;
    let shown: Vec<String> =
        facts(&world).await.clusters().iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(shown, [CLUSTER]);
    // One that nobody knows is in nobody's sight.
    world.status("h1", |status| status.kubernetes_cluster = Some("3f1c".into())).await;
    assert!(facts(&world).await.clusters().is_empty());
}

/// What holds for the actuator holds for hosts: the pool's own word, else its cluster's, and advice where neither is known.
#[tokio::test]
async fn hosts_are_told_whether_their_pool_only_gives_advice() {
    let store = Arc::new(muster_store::memory::Memory::default());
    let world = World::with(store, false, "advise").await;
    world.metal("web", 0, 1).await;
    let own =
        |mode: &str| serde_json::json!({"platform": {"type": "baremetal"}, "nodeCount": 1, "mode": mode});
    world.pool("gpu", own("active")).await;
    world.pool("old", own("advise")).await;
    world.put(&muster_control::inventory::keys::pool_owner("ghost"), &uuid::Uuid::from_u128(7)).await;
    let facts = facts(&world).await;
    let remedy = |pool: &str| facts.advice(pool).map(|advice| advice.remedy);
    assert_eq!(remedy("web").as_deref(), Some("muster enable cluster lab"));
    assert_eq!(remedy("gpu"), None);
    assert_eq!(remedy("old").as_deref(), Some("muster enable pool lab/old"));
    let ghost = facts.advice("ghost").map(|advice| advice.why);
    assert_eq!(ghost.as_deref(), Some("its pool ghost or the cluster of that is not known"));
    assert_eq!(remedy("nobodys"), None);
}

/// A BMC that refused the one is asked with the other, although both are version 1.
#[tokio::test]
async fn a_credential_that_is_made_anew_is_another_to_hosts() {
    let world = World::new().await;
    let inventory = Inventory::open(Arc::clone(&world.store), world.clock()).await.unwrap();
    let vault = Vault::new(inventory, VaultKey::in_memory().unwrap());
    let mut seen = Vec::new();
    for at in 1..3 {
        let context = WriteContext {
            actor: "test".into(),
            now: Timestamp::from_millis(at),
            dry_run: false,
            idempotency: None,
        };
        let value = DraftValue::Sealed { user: "root".into(), password: Secret::new("x") };
        let draft = CredentialDraft { name: "rack-a".into(), kind: CredentialKind::Bmc, value };
        vault.create(&context, "team", draft).await.unwrap();
        seen.push(facts(&world).await.credential_version("team/rack-a"));
        vault.delete(&context, "team", "rack-a", &|_| true).await.unwrap();
    }
    seen.push(facts(&world).await.credential_version("team/rack-a"));
    assert!(seen[0] != seen[1] && seen[2] == 0, "{seen:?}");
}

/// What a tool writes beside the pools is a request, and is not in force before somebody has judged it.
#[tokio::test]
async fn pools_say_how_their_hosts_are_handled_and_nobody_else_does() {
    let world = World::new().await;
    world.metal("web", 0, 3).await;
    let facts = facts(&world).await;
    let (before, changed) = (facts.pool_says("web"), facts.pools_changed());
    assert!(matches!(before, PoolSays::This(_)) && changed > 0, "{before:?}");
    let slip = json!({ "deadlines": { "callTimeout": "0s" }, "rackSpread": true });
    for pool in ["web", "nobodys"] {
        world.put(&keys::pool(pool, PoolRecord::Config), &slip).await;
    }
    facts.refresh().await.unwrap();
    assert_eq!((facts.pool_says("web"), facts.pool_says("nobodys")), (before.clone(), PoolSays::Nothing));
    let store = &world.store;
    let gone = Txn::new().delete(keys::pool("web", PoolRecord::Config));
    assert!(matches!(store.commit(gone).await.unwrap(), Committed::Done { .. }));
    facts.refresh().await.unwrap();
    assert_eq!((facts.pool_says("web"), facts.pools_changed()), (before, changed));
}
