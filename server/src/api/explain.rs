//! `/api/v1/explain`: why a pod, a node, a host, a pool or a decision is as it is.

use axum::{extract::Path, http::StatusCode, response::Response};
use muster_control::{
    explain::{Explained, Subject},
    registry::{Kind, NodePool},
};
use muster_model::{ClusterId, k8s::PodKey};

use super::{Call, decisions, reply, request::path_id};
use crate::error::ApiError;

/// `GET /api/v1/explain/pod/{namespace}/{name}`
pub async fn pod(call: Call, Path((namespace, name)): Path<(String, String)>) -> Result<Response, ApiError> {
    let key = PodKey { namespace: namespace.into(), name: name.into() };
    answer(&call, Subject::Pod(key), None).await
}

/// `GET /api/v1/explain/node/{name}`
pub async fn node(call: Call, Path(name): Path<String>) -> Result<Response, ApiError> {
    answer(&call, Subject::Node(name), None).await
}

/// `GET /api/v1/explain/host/{name}`
pub async fn host(call: Call, Path(name): Path<String>) -> Result<Response, ApiError> {
    answer(&call, Subject::Host(name), None).await
}

/// `GET /api/v1/explain/pool/{id}`
pub async fn pool(call: Call, Path(id): Path<String>) -> Result<Response, ApiError> {
    let id = path_id(&id)?;
    let stored = call.app.registry.read::<NodePool>(id).await?;
    let Some(pool) = stored.map(|stored| stored.object).filter(|pool| call.sees(pool.project.as_str()))
    else {
        return Err(ApiError::not_found(Kind::Pool.title()));
    };
    answer(&call, Subject::Pool(pool.name.to_string()), Some(pool.cluster_id)).await
}

/// `GET /api/v1/explain/decision/{id}`
pub async fn decision(call: Call, Path(id): Path<String>) -> Result<Response, ApiError> {
    call.query()?.finish()?;
    let decision = decisions::find(&call, &id).await?;
    let explained = call.app.explain.decision(decision).await?;
    Ok(reply::value(StatusCode::OK, &explained))
}

/// Asks the live state, or the snapshot of the decision that `at` names.
async fn answer(call: &Call, subject: Subject, of: Option<ClusterId>) -> Result<Response, ApiError> {
    let mut query = call.query()?;
    let at = query.text("at");
    let wanted = query.text("cluster_id");
    query.finish()?;
    if let Some(at) = at {
        let decision = decisions::find(call, &at).await?;
        let explained = call.app.explain.then(&decision, &subject).await?;
        return Ok(reply::value(StatusCode::OK, &explained));
    }
    let wanted = match (of, wanted) {
        (Some(cluster), _) => Some(cluster),
        (None, Some(text)) => Some(ClusterId::from(path_id(&text)?)),
        (None, None) => None,
    };
    let seen = decisions::clusters(call);
    let asked: Vec<ClusterId> =
        seen.into_iter().filter(|id| wanted.is_none_or(|wanted| wanted == *id)).collect();
    if asked.is_empty() {
        let missing = ApiError::not_found(Kind::Cluster.title());
        let nothing = "0 clusters are registered, and plans are made for clusters: `muster create cluster` adds one, \
                       `muster describe host` says what is known of a host without one";
        return Err(if wanted.is_none() { missing.details(nothing) } else { missing });
    }
    let mut best: Option<Explained> = None;
    for cluster in asked {
        let sees = |project: Option<&str>| call.sees(&call.project_of(project));
        let mut explained = call.app.explain.now_for(cluster, &subject, call.app.clock.now(), &sees).await?;
        if explained.cluster_name.is_empty() {
            let known = call.app.registry.summary(Kind::Cluster, cluster.uuid());
            explained.cluster_name = known.map(|known| known.name.to_string()).unwrap_or_default();
        }
        // What is there beats what was there, and that beats what nobody knows.
        let rank = |one: &Explained| (one.trace, !one.history.is_empty());
        if best.as_ref().is_none_or(|best| rank(&explained) > rank(best)) {
            best = Some(explained);
        }
    }
    let explained = best.ok_or_else(|| ApiError::not_found(Kind::Cluster.title()))?;
    Ok(reply::value(StatusCode::OK, &explained))
}
