//! What our loops say about the connection to a cluster: on the cluster itself, and on each of its pools.

use std::sync::Arc;

use muster_model::{
    Duration, Timestamp,
    cluster::Cluster,
    condition::{Condition, ConditionStatus},
    observe::{ClusterPort, NotSynced},
    store::Fence,
};
use serde_json::json;

use super::ActError;
use crate::{
    registry::{CONNECTED, OwnReport, PoolWord, Registry, Said},
    snapshot::{Observed, PoolInput},
};

/// The name under which our own loops report on clusters.
pub const LINK_CONTROLLER: &str = "muster-kubernetes";
/// A cluster that was not heard of for this long is called unreachable. It is asked every five seconds, and an answer
/// may take as long again.
const SILENT_AFTER: Duration = Duration::from_secs(20);

/// How the connection to a cluster is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// Nobody has said how to reach it.
    None,
    /// It was never seen as a whole since this process began.
    Waiting(String),
    /// It was seen, and is not any more.
    Silent(String),
    InSync,
}

impl Link {
    /// How the connection is, by what a look at it gave.
    pub fn of(
        port: Option<&Arc<dyn ClusterPort>>,
        seen: Result<&Observed, &NotSynced>,
        now: Timestamp,
    ) -> Self {
        match seen {
            Err(waiting) => Self::Waiting(muster_engine::explain::one_line(&waiting.to_string())),
            Ok(Observed::NotConnected) => Self::None,
            Ok(Observed::View(view)) if now.since(view.fresh_at) > SILENT_AFTER => {
                let why = port.map(|port| port.troubles()).unwrap_or_default();
                let why = why.first().map_or_else(String::new, |one| format!(": {} ({})", one.kind, one.why));
                Self::Silent(format!("nothing new is known since {}{why}", view.fresh_at))
            }
            Ok(Observed::View(_)) => Self::InSync,
        }
    }

    /// Status, reason and text of the condition that pools carry.
    fn words(&self) -> (ConditionStatus, &'static str, String) {
        match self {
            Self::InSync => (ConditionStatus::True, "InSync", "the cluster's pods and nodes are seen".to_owned()),
            Self::None => (
                ConditionStatus::False,
                "NotConnected",
                "0 pods and nodes are seen: only fixed sizes, minimums and triggers are planned, nothing is removed; \
                 connect the cluster with `muster connect cluster`"
                    .to_owned(),
            ),
            Self::Waiting(why) => {
                (ConditionStatus::False, "NotInSync", format!("nothing is decided, {why}"))
            }
            Self::Silent(why) => (ConditionStatus::Unknown, "Silent", why.clone()),
        }
    }

    pub(super) fn condition(&self, pool: &PoolInput, now: Timestamp) -> Condition {
        let (status, reason, message) = self.words();
        Condition {
            kind: "ClusterConnected".to_owned(),
            status,
            reason: reason.to_owned(),
            message,
            last_transition_time: now,
            observed_generation: Some(pool.object.generation),
            severity: None,
        }
    }
}

/// Reports on the cluster. Writes only what changed.
pub async fn report_link(
    registry: &Registry,
    fence: &Fence,
    cluster: &Cluster,
    link: &Link,
    now: Timestamp,
) -> Result<(), ActError> {
    let word = (*link != Link::None).then(|| {
        let (status, reason, message) = link.words();
        let connected = Condition {
            kind: CONNECTED.to_owned(),
            status,
            reason: reason.to_owned(),
            message,
            last_transition_time: now,
            observed_generation: Some(cluster.generation),
            severity: None,
        };
        (own_report(cluster, link, now), connected)
    });
    let word = word.as_ref().map(|(report, connected)| (report, connected));
    let said = registry.say_of_cluster(fence, cluster.id.uuid(), LINK_CONTROLLER, word, now).await?;
    leads(said)
}

/// Reports on the pools of a cluster that cannot be planned because it is not in sync.
pub async fn report_waiting(
    registry: &Registry,
    fence: &Fence,
    pools: &[PoolInput],
    link: &Link,
    now: Timestamp,
) -> Result<(), ActError> {
    for pool in pools {
        let word = PoolWord { conditions: vec![link.condition(pool, now)], ..PoolWord::default() };
        match registry.say(fence, pool.object.id.uuid(), &word, now).await {
            Ok(said) => leads(said)?,
            Err(crate::registry::RegistryError::Busy) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn leads(said: Said) -> Result<(), ActError> {
    match said {
        Said::Written | Said::AlreadySo | Said::Gone => Ok(()),
        Said::NotLeading => Err(ActError::NotLeading { decision: "of a report".to_owned() }),
    }
}

fn own_report(cluster: &Cluster, link: &Link, now: Timestamp) -> OwnReport {
    let make = |kind: &str, status, reason: &str, message: String| Condition {
        kind: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message,
        last_transition_time: now,
        observed_generation: Some(cluster.generation),
        severity: None,
    };
    let (status, reason, message) = link.words();
    let available = if status == ConditionStatus::Unknown { ConditionStatus::False } else { status };
    let mut conditions = vec![make("Available", available, reason, message)];
    if cluster.deleted_at.is_some() {
        // A connection holds no cluster back.
        conditions.push(make(
            "Deleted",
            ConditionStatus::True,
            "Deleted",
            "0 things are left to do".to_owned(),
        ));
    }
    OwnReport { controller: LINK_CONTROLLER, conditions, metadata: json!({ "link": reason }) }
}
