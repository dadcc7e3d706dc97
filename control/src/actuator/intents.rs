//! What is wanted of hosts: one record for each, written with the fence against what was read.

use muster_engine::{
    Plan, Snapshot,
    plan::{Source, Target},
};
use muster_model::{
    host::{
        Intent, Switch,
        keys::{self, HostRecord},
    },
    k8s::PodKey,
    store::{Committed, Expect, Fence, Txn},
};

use super::ActError;
use crate::{journal::Decision, planner::Parts, snapshot::Inputs};

/// What a plan wants of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostWish {
    pub(super) host: String,
    /// The pool's name in the cluster.
    pub(super) pool: String,
    pub(super) want: Switch,
    pub(super) reason: String,
    /// Pods are to land there.
    pub(super) for_pods: Vec<PodKey>,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Written {
    Done,
    /// An intent that stands says the same.
    AlreadySo,
    /// The host changed since it was looked at; the next turn decides anew.
    Changed(String),
}

/// The hosts that a plan wakes and those that it gives up.
pub(super) fn wishes(snapshot: &Snapshot, plan: &Plan, decision: &Decision) -> Vec<HostWish> {
    let because = |host: &str| {
        let action = decision.actions.iter().find(|action| action.host.as_deref() == Some(host));
        action.map_or_else(|| decision.headline.clone(), |action| action.because.clone())
    };
    let on = plan.new_nodes.iter().filter_map(|new| match &new.source {
        Source::Host { host } => Some((host.to_string(), new.pool.to_string(), Switch::On)),
        Source::Bought { .. } => None,
    });
    let off = plan.removals.iter().filter_map(|removal| {
        let member = snapshot.members.get(&removal.node)?;
        Some((member.host.as_ref()?.to_string(), member.pool.to_string(), Switch::Off))
    });
    let for_pods = |host: &str| {
        let new = plan
            .new_nodes
            .iter()
            .position(|new| matches!(&new.source, Source::Host { host: on } if **on == *host));
        let new = new.and_then(|new| u32::try_from(new).ok()).map(Target::New);
        let there = plan.placements.iter().filter(|placement| Some(&placement.on) == new.as_ref());
        there.map(|placement| placement.pod.clone()).collect()
    };
    on.chain(off)
        .map(|(host, pool, want)| HostWish {
            reason: because(&host),
            for_pods: for_pods(&host),
            host,
            pool,
            want,
        })
        .collect()
}

/// Writes one intent. The host must still be the one that was looked at.
pub(super) async fn write(
    parts: &Parts,
    fence: &Fence,
    inputs: &Inputs,
    wish: &HostWish,
    decision: &Decision,
) -> Result<Written, ActError> {
    let Some(host) = inputs.hosts.iter().find(|host| host.name == wish.host) else {
        return Ok(Written::Changed(format!("host {} is gone", wish.host)));
    };
    let spent = host.status.as_ref().and_then(|status| status.as_ref().ok()?.spent_intent.clone());
    let stands = host.intent.as_ref().is_some_and(|old| {
        old.want == wish.want && old.decision == decision.id.as_str() && spent.as_ref() != Some(&old.id)
    });
    if stands || (host.intent.is_some() && muster_model::planted::is("F4")) {
        return Ok(Written::AlreadySo);
    }
    let pool = inputs
        .pool_named(&wish.pool)
        .map_or_else(|| wish.pool.clone(), crate::snapshot::PoolInput::inventory_name);
    let intent = Intent {
        id: format!("{}/{}", decision.id, wish.host),
        want: wish.want,
        pool,
        decision: decision.id.to_string(),
        reason: wish.reason.clone(),
        epoch: fence.epoch.0,
        at: inputs.now,
        spread_weighed: wish.want == Switch::Off,
    };
    let key = keys::host(&wish.host, HostRecord::Intent);
    let expect = host.intent_version.map_or(Expect::Absent, Expect::Modified);
    let txn = Txn::new()
        .fenced(fence)
        .expect(keys::host(&wish.host, HostRecord::Spec), Expect::Modified(host.spec_version))
        .expect(&key, expect)
        .put(&key, serde_json::to_vec(&intent).expect("an intent is plain data"));
    match parts.registry.store().commit(txn).await? {
        Committed::Done { .. } => {
            tracing::info!(host = wish.host, want = %wish.want, decision = %decision.id, "intent written");
            Ok(Written::Done)
        }
        Committed::Refused { failed: 0, .. } => {
            Err(ActError::NotLeading { decision: decision.id.to_string() })
        }
        Committed::Refused { .. } => {
            Ok(Written::Changed(format!("host {} was changed meanwhile", wish.host)))
        }
    }
}
