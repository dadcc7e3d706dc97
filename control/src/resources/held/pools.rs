//! Pools.

use muster_model::{
    pool::{PoolContext, PoolUpdate},
    resource::{Resource, shape},
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Held, Reason, Record, Refusal, Side, Trouble, Wish, invalid, status};
use crate::registry::{AuditNote, Cluster, Force, Kind, NodePool, Noun, Stored};

impl Side {
    pub(super) async fn read_pool(
        &self,
        id: &str,
        cluster_object: impl Fn(Uuid) -> Option<String>,
    ) -> Result<Option<Held>, Trouble> {
        let Ok(id) = id.parse::<Uuid>() else { return Ok(None) };
        let Some(stored) = self.registry.read::<NodePool>(id).await? else { return Ok(None) };
        let of = stored.object.cluster_id.uuid();
        let Some(cluster) = self.registry.read::<Cluster>(of).await? else {
            return Err(Trouble::Later("its cluster is gone; it is about to go too".to_owned()));
        };
        let Some(cluster_name) = cluster_object(of) else {
            return Err(Trouble::Later("its cluster has no object yet".to_owned()));
        };
        Ok(Some(Held {
            id: id.to_string(),
            project: stored.object.project.to_string(),
            object_name: format!("{cluster_name}.{}", stored.object.name),
            version: stored.version,
            generation: stored.object.generation,
            deleting: stored.object.is_deleting(),
            spec: shape::pool_spec(&stored.object, &cluster_name),
            status: status::pool(&stored, &cluster),
            record: Record::Pool(Box::new(stored), Box::new(cluster)),
        }))
    }

    pub(super) async fn apply_pool(
        &self,
        pool: &Stored<NodePool>,
        cluster: &Stored<Cluster>,
        object: &Resource,
        patch: &Value,
    ) -> Result<AuditNote, Trouble> {
        let (context, base) = (self.context(object), pool.version);
        let written = self
            .registry
            .update::<NodePool>(
                &context,
                pool.object.id(),
                &|version| version == base,
                |stored| {
                    let update = update(stored, cluster, patch)?;
                    let mut pool = stored.object.clone();
                    pool.apply(update.value, context.now);
                    Ok((pool, update.warnings))
                },
                |txn, _| txn,
            )
            .await?;
        Ok(written.audit)
    }

    pub(super) async fn create_pool(
        &self,
        wish: &Wish<'_>,
        cluster: Option<Uuid>,
    ) -> Result<AuditNote, Trouble> {
        let named = wish.spec["cluster"].as_str().unwrap_or_default();
        let missing = || {
            Trouble::Refused(Refusal::new(
                Reason::ClusterNotFound,
                format!("spec.cluster: there is no Cluster {named} in namespace {}", wish.object.namespace()),
            ))
        };
        let cluster =
            self.registry.read::<Cluster>(cluster.ok_or_else(missing)?).await?.ok_or_else(missing)?;
        if cluster.object.is_deleting() {
            return Err(Trouble::Refused(Refusal::new(
                Reason::Deleting,
                format!("spec.cluster: {named} is being deleted"),
            )));
        }
        let mut body = shape::body(&wish.spec);
        if body.get("name").is_none() {
            let own = wish.object.name();
            let rest = own.strip_prefix(named).and_then(|rest| rest.strip_prefix('.'));
            body["name"] = rest.unwrap_or(own).into();
        }
        body["cluster_id"] = json!(cluster.object.id);
        let context =
            PoolContext { cluster_id: Some(cluster.object.id), cluster: Some(&cluster.object.spec) };
        let parsed = NodePool::parse_create(&body, &context).map_err(|faults| invalid(&faults))?;
        let write = self.context(wish.object);
        let project = cluster.object.project.clone();
        let pool = parsed.value.into_pool(wish.id.into(), project, write.actor.clone(), write.now);
        let parent = (Kind::Cluster.object(cluster.object.id()), cluster.version);
        let written = self.registry.create(&write, pool, Some(parent), parsed.warnings).await?;
        Ok(written.audit)
    }

    pub(super) async fn delete_pool(
        &self,
        pool: &Stored<NodePool>,
        object: &Resource,
    ) -> Result<AuditNote, Trouble> {
        let context = self.context(object);
        let deleted = self
            .registry
            .delete::<NodePool>(&context, pool.object.id(), &|_| true, |_| true, Force::No)
            .await?;
        Ok(deleted.audit)
    }

    /// The pool of a cluster that has this name.
    pub(in crate::resources) fn pool_named(&self, cluster: Uuid, name: &str) -> Option<Uuid> {
        let filter = crate::registry::Filter {
            cluster: Some(cluster),
            name: Some(name.into()),
            include_deleted: true,
            ..crate::registry::Filter::everything()
        };
        let found = self.registry.list(Kind::Pool, &filter, crate::registry::Start::Offset(0), 1).ok()?;
        found.items.first().map(|summary| summary.id)
    }
}

fn update(
    stored: &Stored<NodePool>,
    cluster: &Stored<Cluster>,
    patch: &Value,
) -> Result<muster_model::Parsed<PoolUpdate>, muster_model::FieldErrors> {
    let context = PoolContext { cluster_id: None, cluster: Some(&cluster.object.spec) };
    stored.object.merge_patch(&shape::body(patch), &context)
}

pub(super) fn agrees(stored: &Stored<NodePool>, cluster: &Stored<Cluster>, patch: &Value) -> bool {
    let (name, spec) = (&stored.object.name, &stored.object.spec);
    update(stored, cluster, patch)
        .is_ok_and(|update| update.value.name == *name && update.value.spec == *spec)
}
