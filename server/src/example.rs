//! `--seed-example`: the cluster and the pool of the user guide, under the ids that it shows, so that its
//! requests can be copied as they are, in its order.
//!
//! The guide's pool is there from the start as a placeholder. The guide creates pools and then speaks of the
//! one id that it shows, so a create of one of its pools in the example cluster gets that id as long as nobody has
//! changed the placeholder, or while the id is free; pools of other names are as they are anywhere. Deleting the pool of that id puts the placeholder back, because the
//! guide goes on to speak of it. Everything else is as it is without the example.

use muster_control::registry::{
    Cluster, Kind, NodePool, Noun, Registry, RegistryError, Stored, WriteContext, Written,
};
use muster_model::{Project, Timestamp, field::Parsed, identity::Email, pool::PoolContext};
use serde_json::{Value, json};
use uuid::{Uuid, uuid};

pub const CLUSTER: Uuid = uuid!("550e8400-e29b-41d4-a716-446655440000");
pub const POOL: Uuid = uuid!("123e4567-e89b-12d3-a456-426614174000");
/// The pools that the guide creates.
const GUIDE_POOLS: [&str; 2] = ["worker-pool-1", "production-workers"];
/// Whom the guide's requests come from.
pub const OWNER: &str = "user@example.com";
/// The guide shows the pool after its first change, and reports on that generation.
const GENERATION: u64 = 2;

/// The example, for a server that was started with it.
#[derive(Debug, Clone)]
pub struct Example {
    project: Project,
}

/// What a create in the example cluster takes over.
#[derive(Debug)]
pub(crate) enum Adopts {
    Nothing,
    FreeId,
    Placeholder(Box<Stored<NodePool>>),
}

impl Example {
    /// Registers the cluster and the placeholder unless they are there already.
    pub async fn register(registry: &Registry, now: Timestamp) -> Result<Self, RegistryError> {
        let email: Email = OWNER.parse().expect("the guide's address is one");
        let example = Self { project: email.project() };
        let Parsed { value: draft, .. } = Cluster::parse_create(&cluster_body())?;
        let cluster = draft.into_cluster(CLUSTER.into(), example.project.clone(), OWNER.to_owned(), now);
        settled(registry.create(&context(now), cluster, None, Vec::new()).await)?;
        example.restore(registry, now).await?;
        tracing::info!(cluster = %CLUSTER, pool = %POOL, owner = OWNER, "the example is registered");
        Ok(example)
    }

    /// Puts the placeholder where nothing is, while its cluster stands.
    pub(crate) async fn restore(&self, registry: &Registry, now: Timestamp) -> Result<(), RegistryError> {
        let Some(cluster) = registry.read::<Cluster>(CLUSTER).await? else { return Ok(()) };
        if cluster.object.is_deleting() {
            return Ok(());
        }
        let parent = (Kind::Cluster.object(CLUSTER), cluster.version);
        settled(registry.create(&context(now), self.placeholder(now)?, Some(parent), Vec::new()).await)
    }

    /// What a new pool of this name in `cluster` takes over.
    pub(crate) async fn adopts(
        &self,
        registry: &Registry,
        cluster: Uuid,
        name: &str,
    ) -> Result<Adopts, RegistryError> {
        if cluster != CLUSTER || !GUIDE_POOLS.contains(&name) {
            return Ok(Adopts::Nothing);
        }
        Ok(match registry.read::<NodePool>(POOL).await? {
            None => Adopts::FreeId,
            Some(stored) if self.placeholder(stored.object.created_at)? == stored.object => {
                Adopts::Placeholder(Box::new(stored))
            }
            Some(_) => Adopts::Nothing,
        })
    }

    fn placeholder(&self, now: Timestamp) -> Result<NodePool, RegistryError> {
        let Parsed { value: draft, .. } = NodePool::parse_create(&pool_body(), &PoolContext::default())?;
        let mut pool = draft.into_pool(POOL.into(), self.project.clone(), OWNER.to_owned(), now);
        pool.generation = GENERATION;
        Ok(pool)
    }
}

fn context(now: Timestamp) -> WriteContext {
    WriteContext { actor: OWNER.to_owned(), now, dry_run: false, idempotency: None }
}

fn settled<N: Noun>(result: Result<Written<N>, RegistryError>) -> Result<(), RegistryError> {
    match result {
        Ok(_) | Err(RegistryError::IdTaken { .. } | RegistryError::NameTaken { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn cluster_body() -> Value {
    json!({ "name": "example", "spec": { "platform": { "type": "gcp", "gcp": { "region": "us-central1" } } } })
}

/// The pool as the guide's "get" shows it.
fn pool_body() -> Value {
    json!({
        "name": "worker-pool-1",
        "cluster_id": CLUSTER.to_string(),
        "spec": {
            "platform": { "type": "gcp", "gcp": {
                "machineType": "n1-standard-4", "diskSize": 100, "diskType": "pd-ssd" } },
            "nodeCount": 5
        }
    })
}
