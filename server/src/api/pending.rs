//! `GET /api/v1/pending`: pods that wait, by why they wait, each group with the change that would help it.

use std::{collections::BTreeMap, sync::Arc};

use axum::{http::StatusCode, response::Response};
use muster_control::{
    explain::{PendingGroup, Remedy},
    registry::Kind,
};
use muster_engine::explain::PatchKind;
use muster_model::{ClusterId, identity::Resource};
use serde_json::{Value, json};

use super::{Call, part::Part, reply};
use crate::error::ApiError;

/// The groups of one cluster; `None` where nobody sees pods.
pub(super) struct Waiting {
    pub cluster: ClusterId,
    pub name: String,
    pub groups: Option<Arc<Vec<PendingGroup>>>,
}

/// What waits in the clusters that the caller sees. Explaining may take a moment, so it is done elsewhere.
pub(super) async fn waiting(call: &Call, only: Option<ClusterId>) -> Result<Vec<Waiting>, ApiError> {
    let mut asked: Vec<(ClusterId, String)> = Vec::new();
    call.app.registry.each(Kind::Cluster, |cluster| {
        let id = ClusterId::from(cluster.id);
        if call.sees(&cluster.project) && only.is_none_or(|only| only == id) {
            asked.push((id, cluster.name.to_string()));
        }
    });
    let explain = call.app.explain.clone();
    let found = tokio::task::spawn_blocking(move || {
        asked
            .into_iter()
            .map(|(cluster, name)| Waiting { cluster, name, groups: explain.pending(cluster) })
            .collect::<Vec<_>>()
    });
    found.await.map_err(|_| ApiError::internal())
}

/// `GET /api/v1/pending`
pub async fn read(call: Call) -> Result<Response, ApiError> {
    call.check_list(Resource::NodePools)?;
    let mut query = call.query()?;
    let only = Part::read(&call, &mut query).await?.cluster();
    query.finish()?;
    let pools = pool_ids(&call);
    let (mut groups, mut unseen, mut total) = (Vec::new(), Vec::new(), 0);
    for waiting in waiting(&call, only).await? {
        let Some(found) = &waiting.groups else {
            unseen.push(json!({ "cluster_id": waiting.cluster, "cluster_name": waiting.name }));
            continue;
        };
        for group in found.iter() {
            total += group.count;
            let mut value = json!(group);
            value["cluster_id"] = json!(waiting.cluster);
            value["cluster_name"] = json!(waiting.name);
            value["fixes"] =
                group.fixes.iter().map(|fix| remedy(fix, waiting.cluster, &waiting.name, &pools)).collect();
            groups.push((helps(group), value));
        }
    }
    groups.sort_by(|(a, _), (b, _)| b.cmp(a));
    let groups: Vec<Value> = groups.into_iter().map(|(_, value)| value).collect();
    // Clusters whose pods nobody sees: what waits there is unknown, not none.
    let answer = json!({ "groups": groups, "total": total, "unseen_clusters": unseen });
    Ok(reply::value(StatusCode::OK, &answer))
}

/// Those that no plan helps first; then by how many pods one change would help.
fn helps(group: &PendingGroup) -> (bool, u32, usize) {
    (!group.helped, group.fixes.first().map_or(0, |fix| fix.helps), group.count)
}

type PoolIds = BTreeMap<(ClusterId, String), uuid::Uuid>;

fn pool_ids(call: &Call) -> PoolIds {
    let mut ids = BTreeMap::new();
    call.app.registry.each(Kind::Pool, |pool| {
        if call.sees(&pool.project) {
            ids.insert((ClusterId::from(pool.cluster), pool.name.to_string()), pool.id);
        }
    });
    ids
}

/// A change with where to send it and how to make it on the command line.
fn remedy(fix: &Remedy, cluster: ClusterId, cluster_name: &str, pools: &PoolIds) -> Value {
    let mut value = json!(fix);
    let patch = fix.patch.to_string().replace('\'', "'\\''");
    let (kind, name) = fix.object.split_once('/').unwrap_or((&fix.object, ""));
    match kind {
        "nodepools" => {
            if let Some(id) = pools.get(&(cluster, name.to_owned())) {
                value["target"] = json!(format!("/api/v1/nodepools/{id}"));
            }
            value["command"] = json!(format!("muster patch pool {cluster_name}/{name} -p '{patch}'"));
        }
        "baremetalnodes" => {
            value["target"] = json!(format!("/api/v1/hosts/{name}"));
            value["command"] = json!(format!("muster patch host {name} -p '{patch}'"));
        }
        // Muster does not change workloads: whoever owns them does.
        _ => {
            let flag = if fix.kind == PatchKind::Merge { " --type merge" } else { "" };
            let (namespace, name) = name.split_once('/').unwrap_or(("", name));
            let namespace = if namespace.is_empty() { String::new() } else { format!(" -n {namespace}") };
            value["command"] = json!(match &fix.template_of {
                Some(maker) => {
                    let whole =
                        json!({ "spec": { "template": fix.patch } }).to_string().replace('\'', "'\\''");
                    format!("kubectl patch{namespace} {maker}{flag} -p '{whole}'")
                }
                // What exists cannot be changed like this: it is made anew from what this prints.
                None if kind == "pods" => format!("kubectl get{namespace} {kind}/{name} -o yaml"),
                None => format!("kubectl patch{namespace} {kind}/{name}{flag} -p '{patch}'"),
            });
        }
    }
    value
}
