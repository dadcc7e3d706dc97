//! The part of the fleet that an answer is about: all that the caller sees, or one cluster and the servers of its pools.

use std::collections::BTreeSet;

use muster_control::registry::Kind;
use muster_model::{ClusterId, NodePool, platform::PlatformKind};

use super::{Call, decisions, request::path_id};
use crate::{error::ApiError, query::Query};

#[derive(Debug, Default)]
pub(super) struct Part {
    one: Option<One>,
}

#[derive(Debug)]
struct One {
    cluster: ClusterId,
    /// Names of its pools in the inventory, where each belongs to one cluster alone.
    pools: BTreeSet<String>,
}

impl Part {
    /// What `cluster_id` asks for; a cluster that the caller does not see is not there.
    pub(super) async fn read(call: &Call, query: &mut Query) -> Result<Self, ApiError> {
        let Some(text) = query.text("cluster_id") else { return Ok(Self::default()) };
        let id = path_id(&text)?;
        let seen = decisions::clusters(call).into_iter().find(|cluster| cluster.uuid() == id);
        let cluster = seen.ok_or_else(|| ApiError::not_found(Kind::Cluster.title()))?;
        let mut members = Vec::new();
        call.app.registry.each(Kind::Pool, |pool| {
            if pool.cluster == id {
                members.push(pool.id);
            }
        });
        let mut pools = BTreeSet::new();
        for member in members {
            let Some(stored) = call.app.registry.read::<NodePool>(member).await? else { continue };
            let platform = &stored.object.spec.platform;
            if platform.kind == PlatformKind::Baremetal {
                let named = platform.facts().inventory;
                pools.insert(named.unwrap_or_else(|| stored.object.name.to_string()));
            }
        }
        Ok(Self { one: Some(One { cluster, pools }) })
    }

    /// The one cluster, if it is about one.
    pub(super) fn cluster(&self) -> Option<ClusterId> {
        self.one.as_ref().map(|one| one.cluster)
    }

    pub(super) fn has_cluster(&self, cluster: ClusterId) -> bool {
        self.cluster().is_none_or(|only| only == cluster)
    }

    /// Whether the servers of a pool of the inventory belong to it.
    pub(super) fn has_pool(&self, name: &str) -> bool {
        self.one.as_ref().is_none_or(|one| one.pools.contains(name))
    }
}
