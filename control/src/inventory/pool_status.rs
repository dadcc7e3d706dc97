//! The view that a pool's servers give of it: `status.baremetal`, derived from the hosts' records.

use std::sync::Arc;

use muster_model::{
    Known, Quantity, Timestamp,
    host::{
        BareMetalNodeSpec, BareMetalNodeStatus, BareMetalPoolStatus, HostOp, PoolHost, PoolHostConfig,
        ResourceCapacity, ScalingNode, pool_status,
    },
    pool::NodePool,
    status::PoolStatus,
};
use serde_json::Value;
use uuid::Uuid;

use super::{Host, Inventory, InventoryError};
use crate::registry::{Kind, Registry, inventory_pool};

/// One pool of servers in the registry.
#[derive(Debug, Clone)]
pub(super) struct OwnedPool {
    pub(super) id: Uuid,
    pub(super) pool: Arc<NodePool>,
    pub(super) version: muster_model::store::Revision,
    /// Its name in the inventory, and its settings there.
    pub(super) name: String,
    pub(super) config: PoolHostConfig,
}

/// Every pool of servers that is not being deleted.
pub(super) async fn owned_pools(registry: &Registry) -> Result<Vec<OwnedPool>, InventoryError> {
    let mut ids = Vec::new();
    registry.each(Kind::Pool, |summary| {
        if summary.platform == "baremetal" && !summary.deleting {
            ids.push(summary.id);
        }
    });
    let mut pools = Vec::with_capacity(ids.len());
    for id in ids {
        let seen = registry.look::<NodePool>(id).await.map_err(|error| match error {
            crate::registry::RegistryError::Store(error) => InventoryError::Store(error),
            _ => InventoryError::Busy,
        })?;
        let Some(seen) = seen else { continue };
        let Some((name, config)) = inventory_pool(&seen.object) else { continue };
        pools.push(OwnedPool { id, version: seen.version, pool: seen.object, name, config });
    }
    Ok(pools)
}

/// What is kept of one host while a status is derived.
struct Seen {
    host: Arc<Host>,
    spec: Arc<BareMetalNodeSpec>,
    status: BareMetalNodeStatus,
    op: Option<Arc<HostOp>>,
    allocated: Known<ResourceCapacity>,
}

impl Inventory {
    /// Brings the bare-metal view of every pool up to date.
    pub(super) async fn refresh_pools(
        &self,
        registry: &Registry,
        pools: &[OwnedPool],
    ) -> Result<(), InventoryError> {
        let now = self.shared.clock.now();
        for pool in pools {
            let seen = self.seen_of(pool, now);
            let make = |status: &PoolStatus| view(&seen, status, now);
            match registry.set_baremetal(pool.id, make).await {
                Ok(()) | Err(crate::registry::RegistryError::Busy) => {}
                Err(crate::registry::RegistryError::Store(error)) => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(pool = pool.name, %error, "a pool's status was not brought up to date");
                }
            }
        }
        Ok(())
    }

    /// The hosts that serve a pool: named so by their specs, of the same project, and chosen by its selector.
    fn seen_of(&self, pool: &OwnedPool, now: Timestamp) -> Vec<Seen> {
        let selector = pool.pool.spec.platform.facts().selector;
        let index = self.shared.index();
        index
            .accepted()
            .filter(|(_, spec)| spec.pool == pool.name)
            .filter(|(_, spec)| {
                spec.project.as_deref().is_none_or(|project| project == pool.pool.project.as_str())
            })
            .filter(|(_, spec)| selector.as_ref().is_none_or(|selector| selector.matches(&spec.labels)))
            .map(|(host, spec)| Seen {
                spec: Arc::clone(spec),
                status: host.status(),
                op: host.op.clone(),
                allocated: allocated(host, spec, now),
                host: Arc::clone(host),
            })
            .collect()
    }
}

/// What pods have requested of a host, from its loop's last figures. Without figures it is unknown, not nothing.
fn allocated(host: &Host, spec: &BareMetalNodeSpec, now: Timestamp) -> Known<ResourceCapacity> {
    let unknown = |why: &str| Known::Unknown { why: why.to_owned(), since: now };
    let Some(metrics) = &host.metrics else { return unknown("its use was not measured yet") };
    let (Known::Value { value: cpu, at }, Known::Value { value: memory, .. }) =
        (&metrics.cpu_permille, &metrics.memory_permille)
    else {
        return unknown("its use is not known");
    };
    let part = |whole: Quantity, permille: i64| {
        Quantity::from_nanos(whole.nanos().saturating_mul(i128::from(permille)) / 1000, whole.format())
    };
    Known::Value {
        value: ResourceCapacity {
            cpu: part(spec.resources.cpu, *cpu),
            memory: part(spec.resources.memory, *memory),
            ..ResourceCapacity::default()
        },
        at: *at,
    }
}

fn view(seen: &[Seen], status: &PoolStatus, now: Timestamp) -> Value {
    let before: Vec<ScalingNode> = status
        .baremetal
        .as_ref()
        .and_then(|view| serde_json::from_value::<BareMetalPoolStatus>(view.clone()).ok())
        .map(|view| view.scaling_nodes)
        .unwrap_or_default();
    let hosts: Vec<PoolHost<'_>> = seen
        .iter()
        .map(|seen| PoolHost {
            name: &seen.host.name,
            spec: &seen.spec,
            status: &seen.status,
            op: seen.op.as_deref(),
            allocated: &seen.allocated,
        })
        .collect();
    let view = pool_status(&hosts, status.desired_nodes, &before, now);
    serde_json::to_value(view).unwrap_or_default()
}
