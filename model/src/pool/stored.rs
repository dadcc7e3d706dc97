//! A stored pool shown as the API gives it, without understanding its spec: that part is copied as it stands.
//!
//! Most of a pool is its spec, and lists show a hundred pools at once. Reading a spec into its types and writing it again
//! gives the same text at ten times the cost.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{ApiPool, Autoscaling, spec::initial_nodes};
use crate::{
    ClusterId, PoolId, Timestamp,
    field::Choice,
    identity::Secrets,
    platform::{PlatformKind, platform},
    status::{PoolStatus, Subject, Target, fresh_pool_status},
    store::Revision,
};

/// A pool as it is stored, its spec unread.
#[derive(Debug, Deserialize)]
pub struct StoredPool<'a> {
    id: PoolId,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    project: Cow<'a, str>,
    cluster_id: ClusterId,
    generation: u64,
    #[serde(borrow)]
    spec: &'a RawValue,
    created_at: Timestamp,
    updated_at: Timestamp,
    #[serde(borrow)]
    created_by: Cow<'a, str>,
    #[serde(default)]
    deleted_at: Option<Timestamp>,
}

/// What the size of a pool that nobody has sized follows from.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Size {
    #[serde(default)]
    autoscaling: Option<Autoscaling>,
    #[serde(default)]
    node_count: Option<u32>,
}

impl StoredPool<'_> {
    /// Whether the spec may have to be shown with less than it holds. Then only the whole pool knows what to show.
    pub fn must_hide(&self, secrets: Secrets) -> bool {
        let mut names = PlatformKind::ALL.iter().flat_map(|(_, kind)| platform(*kind).secrets());
        let spec = self.spec.get();
        // Behind a backslash any name can hide.
        secrets == Secrets::Hidden && (spec.contains('\\') || names.any(|name| spec.contains(name)))
    }

    /// The pool as the API gives it; `status` is the stored one, or `None` when nobody has reported.
    pub fn to_api_bytes(
        &self,
        revision: Revision,
        status: Option<PoolStatus>,
    ) -> Result<Vec<u8>, serde_json::Error> {
        let status = match status {
            Some(status) => status,
            None => self.fresh_status()?,
        };
        let api = ApiPool {
            id: self.id,
            name: &self.name,
            cluster_id: self.cluster_id,
            project: &self.project,
            generation: self.generation,
            resource_version: revision,
            spec: self.spec,
            status: Some(&status),
            created_at: self.created_at,
            updated_at: self.updated_at,
            created_by: &self.created_by,
            deleted_at: self.deleted_at,
        };
        let mut bytes = Vec::with_capacity(self.spec.get().len() + 2_048);
        serde_json::to_writer(&mut bytes, &api)?;
        Ok(bytes)
    }

    /// Seen from its last change, so that the same object always reads the same.
    fn fresh_status(&self) -> Result<PoolStatus, serde_json::Error> {
        let size: Size = serde_json::from_str(self.spec.get())?;
        let nodes = initial_nodes(size.autoscaling.as_ref(), size.node_count);
        let subject = Subject { generation: self.generation, deleting: self.deleted_at.is_some() };
        Ok(fresh_pool_status(subject, Target { nodes }, self.updated_at))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{pool::NodePool, status::AggregateConfig, status::aggregate_pool};

    /// The same text on both ways, with and without a stored status.
    #[track_caller]
    fn check(body: &Value, change: impl FnOnce(&mut NodePool)) {
        let draft = NodePool::parse_create(body, &super::super::PoolContext::default()).unwrap().value;
        let id = "123e4567-e89b-12d3-a456-426614174000".parse().unwrap();
        let mut pool = draft.into_pool(id, "team".parse().unwrap(), "ü\"\\@x.y".into(), Timestamp::EPOCH);
        change(&mut pool);
        let text = serde_json::to_vec(&pool).unwrap();
        let stored = serde_json::from_slice::<StoredPool<'_>>(&text).unwrap();
        let nodes = pool.spec.initial_nodes();
        let config = AggregateConfig::default();
        let fresh = aggregate_pool(&pool, Target { nodes }, &[], None, pool.updated_at, &config).status;
        let shown = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let whole = shown(pool.to_api_bytes(Revision(42), Some(&fresh), Secrets::All));
        assert_eq!(shown(stored.to_api_bytes(Revision(42), None).unwrap()), whole);
        assert_eq!(shown(stored.to_api_bytes(Revision(42), Some(fresh)).unwrap()), whole);
        assert!(!stored.must_hide(Secrets::All) && !stored.must_hide(Secrets::Writer));
        assert_eq!(stored.must_hide(Secrets::Hidden), pool.spec.has_secrets());
    }

    #[test]
    fn the_short_way_shows_what_the_long_one_does() {
        let seed = crate::pool::tests::seed_body();
        check(&seed, |_| ());
        check(&seed, |pool| pool.deleted_at = Some(Timestamp::from_millis(77)));
        let mut fixed = seed.clone();
        fixed["spec"]["autoscaling"] = json!({"enabled": false, "minNodes": 2, "maxNodes": 3});
        check(&fixed, |pool| pool.generation = 9);
        let mut from_zero = seed.clone();
        from_zero["spec"]["nodeCount"] = Value::Null;
        check(&from_zero, |_| ());
        let mut secret = seed;
        secret["spec"]["platform"] =
            json!({"type": "aws", "aws": {"instanceType": "m5.large", "userData": "s3cret"}});
        check(&secret, |_| ());
        let written = r#"{"id":"123e4567-e89b-12d3-a456-426614174000","name":"a","project":"b","generation":1,
            "cluster_id":"123e4567-e89b-12d3-a456-426614174000","created_by":"c","created_at":"1970-01-01T00:00:00Z",
            "updated_at":"1970-01-01T00:00:00Z","spec":{"platform":{"type":"aws","aws":{"user\u0044ata":"s3cret"}}}}"#;
        assert!(serde_json::from_str::<StoredPool<'_>>(written).unwrap().must_hide(Secrets::Hidden));
    }
}
