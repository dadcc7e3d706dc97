//! `--seed-example`: the cluster and the pool of the user guide, under the ids that it shows, so that its
//! commands can be copied as they are.

use muster_control::registry::{Cluster, NodePool, Noun, Registry, RegistryError, WriteContext};
use muster_model::{Timestamp, field::Parsed, identity::Email, pool::PoolContext};
use serde_json::{Value, json};
use uuid::{Uuid, uuid};

pub(super) const CLUSTER: Uuid = uuid!("550e8400-e29b-41d4-a716-446655440000");
pub(super) const POOL: Uuid = uuid!("123e4567-e89b-12d3-a456-426614174000");
const OWNER: &str = "user@example.com";

/// Registers both unless they are there already.
pub(super) async fn register(registry: &Registry, now: Timestamp) -> anyhow::Result<()> {
    let email: Email = OWNER.parse()?;
    let project = email.project();
    let context = WriteContext { actor: OWNER.to_owned(), now, dry_run: false, idempotency: None };
    let Parsed { value: draft, .. } = Cluster::parse_create(&cluster_body())?;
    let cluster = draft.into_cluster(CLUSTER.into(), project.clone(), OWNER.to_owned(), now);
    settled(registry.create(&context, cluster, None, Vec::new()).await)?;
    let Parsed { value: draft, .. } = NodePool::parse_create(&pool_body(), &PoolContext::default())?;
    let pool = draft.into_pool(POOL.into(), project, OWNER.to_owned(), now);
    settled(registry.create(&context, pool, None, Vec::new()).await)?;
    tracing::info!(cluster = %CLUSTER, pool = %POOL, owner = OWNER, "the example is registered");
    Ok(())
}

fn settled<N: Noun>(
    result: Result<muster_control::registry::Written<N>, RegistryError>,
) -> Result<(), RegistryError> {
    match result {
        Ok(_) | Err(RegistryError::IdTaken { .. } | RegistryError::NameTaken { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn cluster_body() -> Value {
    json!({ "name": "example", "spec": { "platform": { "type": "gcp", "gcp": { "region": "us-central1" } } } })
}

fn pool_body() -> Value {
    json!({
        "name": "worker-pool-1",
        "cluster_id": CLUSTER.to_string(),
        "spec": {
            "platform": { "type": "gcp", "gcp": {
                "machineType": "n1-standard-4", "diskSize": 100, "diskType": "pd-ssd",
                "zones": ["us-central1-a", "us-central1-b"], "preemptible": false } },
            "autoscaling": { "enabled": true, "minNodes": 1, "maxNodes": 10 },
            "nodeCount": 3
        }
    })
}
