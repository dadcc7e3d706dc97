//! Clusters.

use muster_model::{
    FieldErrors, Parsed, Project,
    cluster::ClusterUpdate,
    resource::{Resource, shape},
};
use serde_json::Value;
use uuid::Uuid;

use super::{Held, Reason, Record, Refusal, Side, Trouble, Wish, invalid, status};
use crate::registry::{AuditNote, Cluster, Force, Noun, Stored};

impl Side {
    pub(super) async fn read_cluster(&self, id: &str) -> Result<Option<Held>, Trouble> {
        let Ok(id) = id.parse::<Uuid>() else { return Ok(None) };
        let Some(stored) = self.registry.read::<Cluster>(id).await? else { return Ok(None) };
        let pools = self.registry.pools_of(id);
        Ok(Some(Held {
            id: id.to_string(),
            project: stored.object.project.to_string(),
            object_name: stored.object.name.to_string(),
            version: stored.version,
            generation: stored.object.generation,
            deleting: stored.object.is_deleting(),
            spec: shape::cluster_spec(&stored.object),
            status: status::cluster(&stored, pools),
            record: Record::Cluster(Box::new(stored)),
        }))
    }

    pub(super) async fn apply_cluster(
        &self,
        cluster: &Stored<Cluster>,
        object: &Resource,
        patch: &Value,
    ) -> Result<AuditNote, Trouble> {
        let (context, base) = (self.context(object), cluster.version);
        let written = self
            .registry
            .update::<Cluster>(
                &context,
                cluster.object.id(),
                &|version| version == base,
                |stored| {
                    let update = update(stored, patch)?;
                    let mut cluster = stored.object.clone();
                    cluster.apply(update.value, context.now);
                    Ok((cluster, update.warnings))
                },
                |txn, _| txn,
            )
            .await?;
        Ok(written.audit)
    }

    pub(super) async fn create_cluster(&self, wish: &Wish<'_>) -> Result<AuditNote, Trouble> {
        let mut body = shape::body(&wish.spec);
        if body.get("name").is_none() {
            body["name"] = wish.object.name().into();
        }
        let project: Project = wish.object.namespace().parse().map_err(|error| {
            Trouble::Refused(Refusal::new(
                Reason::Invalid,
                format!("metadata.namespace: as the name of a project it {error}"),
            ))
        })?;
        let parsed = Cluster::parse_create(&body).map_err(|faults| invalid(&faults))?;
        let write = self.context(wish.object);
        let cluster = parsed.value.into_cluster(wish.id.into(), project, write.actor.clone(), write.now);
        Ok(self.registry.create(&write, cluster, None, parsed.warnings).await?.audit)
    }

    pub(super) async fn delete_cluster(
        &self,
        cluster: &Stored<Cluster>,
        object: &Resource,
    ) -> Result<AuditNote, Trouble> {
        let (context, id) = (self.context(object), cluster.object.id());
        let deleted =
            self.registry.delete_cluster(&context, id, &|_| true, |_| true, false, Force::No).await?;
        Ok(deleted.audit)
    }

    /// The cluster of a project that has this name.
    pub(in crate::resources) fn cluster_named(&self, project: &str, name: &str) -> Option<Uuid> {
        let filter = crate::registry::Filter {
            projects: Some(vec![project.into()]),
            name: Some(name.into()),
            include_deleted: true,
            ..crate::registry::Filter::everything()
        };
        let found = self
            .registry
            .list(crate::registry::Kind::Cluster, &filter, crate::registry::Start::Offset(0), 1)
            .ok()?;
        found.items.first().map(|summary| summary.id)
    }
}

fn update(stored: &Stored<Cluster>, patch: &Value) -> Result<Parsed<ClusterUpdate>, FieldErrors> {
    stored.object.merge_patch(&shape::body(patch))
}

pub(super) fn agrees(stored: &Stored<Cluster>, patch: &Value) -> bool {
    update(stored, patch).is_ok_and(|update| {
        let (new, old) = (update.value, &stored.object);
        new.name == old.name && new.spec == old.spec && new.target_project_id == old.target_project_id
    })
}
