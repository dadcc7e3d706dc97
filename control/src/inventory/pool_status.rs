//! The view that a pool's servers give of it: `status.baremetal`, derived from the hosts' records.

use std::sync::Arc;

use muster_model::{
    Known, Quantity, Timestamp,
    catalogue::GPU_RESOURCE,
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
    let Some(metrics) = host.metrics() else { return unknown("its use was not measured yet") };
    let Known::Value { at, .. } = &metrics.cpu_permille else { return unknown("its use is not known") };
    // The share says how old the amounts are. Figures of older versions have no amounts of these two.
    let (Some(cpu), Some(memory)) = (metrics.requested.get("cpu"), metrics.requested.get("memory")) else {
        return unknown("its use was not measured since the last upgrade");
    };
    let mut value = ResourceCapacity {
        cpu: Quantity::from_milli(*cpu),
        memory: Quantity::from_bytes(*memory),
        ..ResourceCapacity::default()
    };
    for (name, amount) in
        metrics.requested.iter().filter(|(name, _)| !matches!(name.as_str(), "cpu" | "memory"))
    {
        if name == "ephemeral-storage" {
            value.storage = Quantity::from_bytes(*amount);
            continue;
        }
        if is_gpu(name) {
            value.gpu = value.gpu.saturating_add(u32::try_from(*amount).unwrap_or(0));
        }
        // `gpu` of a host says how many there are of the usual name; other names are its custom resources.
        if name != GPU_RESOURCE || spec.resources.custom_resources.contains_key(name) {
            value.custom_resources.insert(name.clone(), Quantity::from_units(*amount));
        }
    }
    Known::Value { value, at: *at }
}

/// Whether a resource counts whole GPUs, whoever made them: `nvidia.com/gpu`, `amd.com/gpu`.
fn is_gpu(name: &str) -> bool {
    name == GPU_RESOURCE || name.ends_with("/gpu")
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
            intent: seen.host.intent.as_deref(),
            allocated: &seen.allocated,
        })
        .collect();
    let view = pool_status(&hosts, status.desired_nodes, &before, now);
    serde_json::to_value(view).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use muster_model::host::{HostMetrics, PowerInterface};

    use super::*;

    fn used(requested: &[(&str, i64)], change: impl FnOnce(&mut BareMetalNodeSpec)) -> ResourceCapacity {
        let now = Timestamp::EPOCH;
        let known = |value| Known::Value { value, at: now };
        let metrics = HostMetrics {
            at: now,
            milliwatts: known(0),
            millicelsius: known(0),
            cpu_permille: known(250),
            memory_permille: known(0),
            requested: [("cpu", 7_777), ("memory", 1_234_567_891)]
                .iter()
                .chain(requested)
                .map(|(name, amount)| ((*name).to_owned(), *amount))
                .collect(),
            health: Known::Unknown { why: "not reported".into(), since: now },
            watts_by: None,
            on_millis: 0,
            off_millis: 0,
            used_milliwatt_hours: 0,
            saved_milliwatt_hours: 0,
            used_rest: 0,
            saved_rest: 0,
        };
        let mut spec = BareMetalNodeSpec::new("gpu", PowerInterface::Redfish);
        (spec.resources.cpu, spec.resources.gpu) = (Quantity::from_units(32), 8);
        change(&mut spec);
        let mut host = Host::new("g1");
        host.metrics =
            Some(crate::inventory::host::StoredMetrics::new(serde_json::to_vec(&metrics).unwrap().into()));
        match allocated(&host, &spec, now) {
            Known::Value { value, .. } => value,
            Known::Unknown { why, .. } => panic!("{why}"),
        }
    }

    /// `activeResources` has what pods request of every resource, not of CPU and memory alone.
    #[test]
    fn active_resources_count_gpus_and_custom_resources() {
        let custom = |all: &[(&str, i64)]| -> BTreeMap<String, Quantity> {
            all.iter().map(|(name, amount)| ((*name).to_owned(), Quantity::from_units(*amount))).collect()
        };
        let value =
            used(&[("nvidia.com/gpu", 3), ("example.com/nic", 1), ("ephemeral-storage", 4096)], |_| {});
        // To the thousandth of a core and to the byte, whatever the host's size.
        assert_eq!((value.cpu, value.gpu), (Quantity::from_milli(7_777), 3));
        assert_eq!(value.memory, Quantity::from_bytes(1_234_567_891));
        assert_eq!(value.storage, Quantity::from_bytes(4096));
        assert_eq!(value.custom_resources, custom(&[("example.com/nic", 1)]));
        // A host that names its GPUs otherwise shows them under both names, as its resources do.
        let value = used(&[("amd.com/gpu", 2)], |spec| {
            spec.resources.custom_resources.insert("amd.com/gpu".into(), Quantity::from_units(8));
        });
        assert_eq!((value.gpu, value.custom_resources), (2, custom(&[("amd.com/gpu", 2)])));
        assert_eq!(used(&[], |_| {}).gpu, 0);
    }
}
