//! How clusters are reached: kubeconfigs, encrypted in the store under the cluster's id.
//!
//! A kubeconfig goes in through [`Vault::set_connection`] and comes out only through [`Vault::access`], for the
//! part that opens connections. Everybody else sees [`ConnectionMeta`].

use muster_model::{
    ClusterId, Secret, Timestamp,
    cluster::Cluster,
    connection::ConnectionKind,
    store::{Committed, Entry, Expect, List, Txn},
};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{
    InventoryError, encode, keys,
    vault::{MAX_TRIES, Sealed, Vault},
};
use crate::registry::{AuditNote, WriteContext};

/// How a cluster is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    InCluster,
    /// Of the context, or of the current one.
    Kubeconfig {
        text: Secret,
        context: Option<String>,
    },
}

/// A connection without its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionMeta {
    pub kind: ConnectionKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The API server's address.
    pub server: String,
    /// Rises every time that it is set.
    pub version: u64,
    pub set_at: Timestamp,
    pub set_by: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    #[serde(flatten)]
    meta: ConnectionMeta,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<Sealed>,
}

impl Vault {
    /// Keeps how a cluster is reached, in the place of what was known before. `server` is what the connection was
    /// found to lead to.
    pub async fn set_connection(
        &self,
        context: &WriteContext,
        cluster: &Cluster,
        access: &Access,
        server: String,
    ) -> Result<(ConnectionMeta, AuditNote), InventoryError> {
        let key = keys::connection(cluster.id);
        let fault = |why: &str| InventoryError::Vault { name: cluster.name.to_string(), why: why.to_owned() };
        for _ in 0..MAX_TRIES {
            let known = self.store.get(&key).await?;
            let expect = known.as_ref().map_or(Expect::Absent, |entry| Expect::Modified(entry.modified));
            let version =
                known.as_ref().and_then(|entry| read(entry).ok()).map_or(1, |old| old.meta.version + 1);
            let (kind, context_name, sealed) = match access {
                Access::InCluster => (ConnectionKind::InCluster, None, None),
                Access::Kubeconfig { text, context } => {
                    let plain = Zeroizing::new(text.expose().to_vec());
                    let sealed = self.seal(&binding(cluster.id, version), plain).map_err(fault)?;
                    (ConnectionKind::Kubeconfig, context.clone(), Some(sealed))
                }
            };
            let meta = ConnectionMeta {
                kind,
                context: context_name,
                server: server.clone(),
                version,
                set_at: context.now,
                set_by: context.actor.clone(),
            };
            // No digests: they would let a reader of the log try tokens.
            let note = AuditNote {
                project: cluster.project.to_string(),
                name: cluster.name.to_string(),
                changed: vec!["connection".to_owned()],
                ..AuditNote::default()
            };
            if context.dry_run {
                return Ok((meta, note));
            }
            let record = Record { meta: meta.clone(), sealed };
            // A cluster that is deleted at this moment takes its connection along, or keeps this from being written.
            let object = crate::registry::Kind::Cluster.object(cluster.id.uuid());
            let Some(there) = self.store.get(&object).await? else {
                return Err(InventoryError::NotFound { kind: "Cluster" });
            };
            let txn = Txn::new()
                .expect(&object, Expect::Modified(there.modified))
                .expect(&key, expect)
                .put(&key, encode(&record));
            if let Committed::Done { revision } = self.store.commit(txn).await? {
                return Ok((meta, note.at(revision)));
            }
        }
        Err(InventoryError::Busy)
    }

    /// Forgets how a cluster is reached. `None`: nobody had said.
    pub async fn forget_connection(
        &self,
        context: &WriteContext,
        cluster: &Cluster,
    ) -> Result<Option<AuditNote>, InventoryError> {
        let key = keys::connection(cluster.id);
        for _ in 0..MAX_TRIES {
            let Some(entry) = self.store.get(&key).await? else { return Ok(None) };
            let note = AuditNote {
                project: cluster.project.to_string(),
                name: cluster.name.to_string(),
                changed: vec!["connection".to_owned()],
                ..AuditNote::default()
            };
            if context.dry_run {
                return Ok(Some(note));
            }
            let txn = Txn::new().expect(&key, Expect::Modified(entry.modified)).delete(&key);
            if let Committed::Done { revision } = self.store.commit(txn).await? {
                return Ok(Some(note.at(revision)));
            }
        }
        Err(InventoryError::Busy)
    }

    /// How a cluster is reached, without the secrets.
    pub async fn connection(&self, cluster: ClusterId) -> Result<Option<ConnectionMeta>, InventoryError> {
        let entry = self.store.get(&keys::connection(cluster)).await?;
        entry.map(|entry| Ok(read(&entry)?.meta)).transpose()
    }

    /// All clusters that somebody has told us how to reach. A record that cannot be opened says why.
    pub async fn accesses(&self) -> Result<Vec<(ClusterId, Result<Access, String>)>, InventoryError> {
        let mut found = Vec::new();
        let take = |entry: Entry| {
            let id = entry.key.strip_prefix(keys::CONNECTIONS).and_then(|id| id.parse::<ClusterId>().ok());
            if let Some(id) = id {
                found.push((id, self.access(id, &entry)));
            } else {
                tracing::warn!(key = entry.key, "a connection of no cluster is ignored");
            }
        };
        List::prefix(keys::CONNECTIONS).each(&*self.store, take).await?;
        Ok(found)
    }

    fn access(&self, id: ClusterId, entry: &Entry) -> Result<Access, String> {
        let record = read(entry).map_err(|error| error.to_string())?;
        match (record.meta.kind, &record.sealed) {
            (ConnectionKind::InCluster, _) => Ok(Access::InCluster),
            (ConnectionKind::Kubeconfig, Some(sealed)) => {
                let text = self.unseal(&binding(id, record.meta.version), sealed)?;
                Ok(Access::Kubeconfig { text: Secret::new(text.to_vec()), context: record.meta.context })
            }
            (ConnectionKind::Kubeconfig, None) => {
                Err("its record holds no kubeconfig; set it anew".to_owned())
            }
        }
    }
}

/// What a kubeconfig is bound to: a record that was copied under another cluster does not open.
fn binding(cluster: ClusterId, version: u64) -> String {
    format!("connection\n{cluster}\n{version}")
}

fn read(entry: &Entry) -> Result<Record, InventoryError> {
    serde_json::from_slice(&entry.value)
        .map_err(|source| InventoryError::Damaged { key: entry.key.clone(), source })
}
