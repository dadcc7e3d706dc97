//! What clusters and pools have in common for the registry.

use std::{borrow::Cow, sync::Arc};

use muster_model::{
    ClusterId, Timestamp,
    host::{
        PoolHostConfig,
        keys::{self as hosts, PoolRecord},
    },
    identity::Secrets,
    platform::PlatformKind,
    pool::StoredPool,
    report::Report,
    status::{
        AggregateConfig, Aggregated, ClusterStatus, PoolRollup, PoolStatus, Subject, Target,
        aggregate_cluster, aggregate_pool,
    },
    store::{Entry, Expect, Revision, Txn},
};
pub use muster_model::{cluster::Cluster, pool::NodePool};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use uuid::Uuid;

use super::{RegistryError, decoded::Decoded, keys, keys::Kind};
use crate::inventory::keys as inventory;

/// An object with a name, a generation and a status.
pub trait Noun:
    std::fmt::Debug + Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync + 'static
{
    const KIND: Kind;
    type Status: std::fmt::Debug + Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync + 'static;

    fn id(&self) -> Uuid;
    fn name(&self) -> &str;
    fn project(&self) -> &str;
    fn generation(&self) -> u64;
    fn deleted_at(&self) -> Option<Timestamp>;
    fn updated_at(&self) -> Timestamp;
    fn set_deleted(&mut self, at: Option<Timestamp>, now: Timestamp);
    /// Where its name is kept.
    fn name_key(&self) -> String;
    /// Why its name cannot be used.
    fn name_taken(&self) -> RegistryError;
    /// As the API shows it.
    fn render(&self, version: Revision, status: &Self::Status, secrets: Secrets) -> Vec<u8>;
    /// The status that follows from reports. `before` is what stood until now.
    fn aggregate(
        &self,
        reports: &[Report],
        before: Option<(&Self, &Self::Status)>,
        now: Timestamp,
        config: &AggregateConfig,
    ) -> Aggregated<Self::Status>;

    /// As the API shows it, straight from what is stored; `None` when only the object as a whole can say.
    fn short_text(
        _object: &Entry,
        _status: Option<&Entry>,
        _secrets: Secrets,
    ) -> Result<Option<Vec<u8>>, RegistryError> {
        Ok(None)
    }

    /// The project of a stored object, and whether it is being torn down.
    fn whereabouts(object: &Entry) -> Result<(String, bool), RegistryError> {
        let read: Whereabouts = decode(object)?;
        Ok((read.project, read.deleted_at.is_some()))
    }

    /// Puts the count of its pools into a status that shows one.
    fn count_pools(_: &mut Self::Status, _: Option<PoolRollup>) {}

    fn is_deleting(&self) -> bool {
        self.deleted_at().is_some()
    }

    /// What is written with the object beside its name: changes from `before` to `after`, one of which is given.
    /// Comparisons hold only while nobody else has what the object wants.
    fn companions(txn: Txn, _before: Option<&Self>, _after: Option<&Self>) -> Txn {
        txn
    }

    /// Why a comparison of [`Noun::companions`] did not hold.
    fn companion_taken(&self) -> RegistryError {
        RegistryError::Busy
    }

    /// Keys that [`Noun::companions`] compares.
    fn is_companion(_key: &str) -> bool {
        false
    }
}

/// Status as it is stored: with the time at which it must be looked at again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusRecord<S> {
    #[serde(flatten)]
    pub status: S,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recheck_at: Option<Timestamp>,
}

/// Reads a stored value, or says under which key it cannot be read.
fn decode<'e, T: Deserialize<'e>>(entry: &'e Entry) -> Result<T, RegistryError> {
    serde_json::from_slice(&entry.value)
        .map_err(|source| RegistryError::Damaged { key: entry.key.clone(), source })
}

/// What decides over who sees an object.
#[derive(Deserialize)]
struct Whereabouts {
    project: String,
    #[serde(default)]
    deleted_at: Option<Timestamp>,
}

/// An object as the store has it.
#[derive(Debug, Clone)]
pub struct Stored<N: Noun> {
    pub object: N,
    /// Its resource version.
    pub version: Revision,
    pub status: Option<StatusRecord<N::Status>>,
    pub status_version: Revision,
}

impl<N: Noun> Stored<N> {
    pub(super) fn of(object: &Entry, status: Option<&Entry>) -> Result<Self, RegistryError> {
        Ok(Self {
            object: decode(object)?,
            version: object.modified,
            status: status.map(decode).transpose()?,
            status_version: status.map_or(Revision::ZERO, |entry| entry.modified),
        })
    }

    /// An object that nobody has reported on.
    pub(super) fn fresh(object: N, version: Revision) -> Self {
        Self { object, version, status: None, status_version: Revision::ZERO }
    }

    /// After an update at `revision`.
    pub(super) fn changed(
        object: N,
        revision: Revision,
        status: Option<StatusRecord<N::Status>>,
        before: &Self,
    ) -> Self {
        let status_version = if status.is_some() { revision } else { before.status_version };
        Self { object, version: revision, status: status.or_else(|| before.status.clone()), status_version }
    }

    /// The stored status, or the one of an object that nobody has reported on.
    pub fn status(&self) -> N::Status {
        if let Some(record) = &self.status {
            return record.status.clone();
        }
        unreported(&self.object)
    }

    /// As the API shows it.
    pub fn text(&self, secrets: Secrets) -> Vec<u8> {
        match &self.status {
            Some(record) => self.object.render(self.version, &record.status, secrets),
            None => self.object.render(self.version, &self.status(), secrets),
        }
    }

    /// As the API shows it, with what is counted at the moment of reading.
    pub fn text_with(&self, secrets: Secrets, pools: Option<PoolRollup>) -> Vec<u8> {
        self.object.render(self.version, &self.status_with(pools), secrets)
    }

    /// The status with what is counted at the moment of reading.
    pub fn status_with(&self, pools: Option<PoolRollup>) -> N::Status {
        let mut status = self.status();
        N::count_pools(&mut status, pools);
        status
    }
}

/// An object as the store has it now, for those who only look: shared with whoever looked before while it is the same.
#[derive(Debug, Clone)]
pub(crate) struct Seen<N: Noun> {
    pub(crate) object: Arc<N>,
    pub(crate) version: Revision,
    pub(crate) record: Option<Arc<StatusRecord<N::Status>>>,
    pub(crate) status_version: Revision,
}

impl<N: Noun> Seen<N> {
    pub(super) fn of(object: &Entry, status: Option<&Entry>, known: &Decoded) -> Result<Self, RegistryError> {
        Ok(Self {
            object: known.get(object, |entry| decode(entry))?,
            version: object.modified,
            record: status.map(|status| known.get(status, |entry| decode(entry))).transpose()?,
            status_version: status.map_or(Revision::ZERO, |entry| entry.modified),
        })
    }

    /// The stored status, or the one of an object that nobody has reported on: see [`Stored::status`].
    pub(crate) fn status(&self) -> Cow<'_, N::Status> {
        match &self.record {
            Some(record) => Cow::Borrowed(&record.status),
            None => Cow::Owned(unreported(&*self.object)),
        }
    }

    /// When the status must be looked at again.
    pub(super) fn recheck_at(&self) -> Option<Timestamp> {
        self.record.as_ref().and_then(|record| record.recheck_at)
    }

    /// What a transaction that replaces the status has to find.
    pub(super) fn expect_status(&self) -> Expect {
        self.record.as_ref().map_or(Expect::Absent, |_| Expect::Modified(self.status_version))
    }
}

/// The status of an object that nobody has reported on.
fn unreported<N: Noun>(object: &N) -> N::Status {
    // Seen from its last change, so that the same object always reads the same.
    object.aggregate(&[], None, object.updated_at(), &AggregateConfig::default()).status
}

/// What is the same in both envelopes.
macro_rules! envelope {
    () => {
        fn id(&self) -> Uuid {
            self.id.uuid()
        }

        fn name(&self) -> &str {
            self.name.as_str()
        }

        fn project(&self) -> &str {
            self.project.as_str()
        }

        fn generation(&self) -> u64 {
            self.generation
        }

        fn deleted_at(&self) -> Option<Timestamp> {
            self.deleted_at
        }

        fn updated_at(&self) -> Timestamp {
            self.updated_at
        }

        fn set_deleted(&mut self, at: Option<Timestamp>, now: Timestamp) {
            self.deleted_at = at;
            self.updated_at = now;
        }

        fn render(&self, version: Revision, status: &Self::Status, secrets: Secrets) -> Vec<u8> {
            self.to_api_bytes(version, Some(status), secrets)
        }
    };
}

impl Noun for Cluster {
    const KIND: Kind = Kind::Cluster;
    type Status = ClusterStatus;

    envelope!();

    fn name_key(&self) -> String {
        keys::cluster_name(self.project.as_str(), self.name.as_str())
    }

    fn name_taken(&self) -> RegistryError {
        RegistryError::NameTaken { kind: Kind::Cluster, name: self.name.to_string(), place: "project" }
    }

    fn count_pools(status: &mut ClusterStatus, pools: Option<PoolRollup>) {
        status.pools = pools;
    }

    fn aggregate(
        &self,
        reports: &[Report],
        before: Option<(&Self, &ClusterStatus)>,
        now: Timestamp,
        config: &AggregateConfig,
    ) -> Aggregated<ClusterStatus> {
        let subject = Subject { generation: self.generation, deleting: self.deleted_at.is_some() };
        aggregate_cluster(subject, reports, before.map(|(_, status)| status), now, config)
    }

    /// Its credentials go with it.
    fn companions(txn: Txn, before: Option<&Self>, after: Option<&Self>) -> Txn {
        match (before, after) {
            (Some(gone), None) => txn.delete(inventory::connection(gone.id)),
            _ => txn,
        }
    }
}

impl Noun for NodePool {
    const KIND: Kind = Kind::Pool;
    type Status = PoolStatus;

    envelope!();

    fn name_key(&self) -> String {
        keys::pool_name(ClusterId::uuid(self.cluster_id), self.name.as_str())
    }

    fn name_taken(&self) -> RegistryError {
        RegistryError::NameTaken { kind: Kind::Pool, name: self.name.to_string(), place: "cluster" }
    }

    fn aggregate(
        &self,
        reports: &[Report],
        before: Option<(&Self, &PoolStatus)>,
        now: Timestamp,
        config: &AggregateConfig,
    ) -> Aggregated<PoolStatus> {
        let nodes = before.map_or_else(
            || self.spec.initial_nodes(),
            |(old, status)| self.spec.desired_after(&old.spec, status.desired_nodes),
        );
        aggregate_pool(self, Target { nodes }, reports, before.map(|(_, status)| status), now, config)
    }

    fn short_text(
        object: &Entry,
        status: Option<&Entry>,
        secrets: Secrets,
    ) -> Result<Option<Vec<u8>>, RegistryError> {
        let pool: StoredPool<'_> = decode(object)?;
        if pool.must_hide(secrets) {
            return Ok(None);
        }
        let status = status.map(decode::<PoolStatus>).transpose()?;
        let text = pool.to_api_bytes(object.modified, status);
        text.map(Some).map_err(|source| RegistryError::Damaged { key: object.key.clone(), source })
    }

    /// A pool of servers owns its name in the inventory and writes its host settings there.
    fn companions(mut txn: Txn, before: Option<&Self>, after: Option<&Self>) -> Txn {
        let (old, new) = (before.and_then(inventory_pool), after.and_then(inventory_pool));
        let moved = old.as_ref().map(|(name, _)| name) != new.as_ref().map(|(name, _)| name);
        if let Some((name, _)) = old.as_ref().filter(|_| moved) {
            txn = txn.delete(inventory::pool_owner(name)).delete(hosts::pool(name, PoolRecord::Config));
        }
        if let Some((name, config)) = new {
            if moved {
                let id = after.map(|pool| pool.id.to_string()).unwrap_or_default();
                let key = inventory::pool_owner(&name);
                txn = txn.expect(&key, Expect::Absent).put(&key, id);
            }
            if moved || old.is_none_or(|(_, old)| old != config) {
                txn = txn.put(hosts::pool(&name, PoolRecord::Config), super::write::encode(&config));
            }
        }
        txn
    }

    fn companion_taken(&self) -> RegistryError {
        let name = inventory_pool(self).map(|(name, _)| name).unwrap_or_default();
        RegistryError::NameTaken { kind: Kind::Pool, name, place: "the inventory (platform.baremetal.pool)" }
    }

    fn is_companion(key: &str) -> bool {
        key.starts_with(inventory::ROOT)
    }
}

/// The name in the inventory and the host settings of a pool of servers.
pub(crate) fn inventory_pool(pool: &NodePool) -> Option<(String, PoolHostConfig)> {
    if pool.spec.platform.kind != PlatformKind::Baremetal {
        return None;
    }
    let name = pool.spec.platform.facts().inventory.unwrap_or_else(|| pool.name.to_string());
    let config = pool.spec.platform.block.as_ref().map(PoolHostConfig::of_block).unwrap_or_default();
    Some((name, config))
}
