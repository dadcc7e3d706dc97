//! The clusters in which nodes are, and what else surrounds the loop.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use muster_control::hosts::{Around, Home};
use muster_engine::lifecycle::{Advice, AgentView, Hello};
use muster_model::{
    Clock as _, Duration, Known, Timestamp,
    host::{BootProfile, Presence},
    k8s::{Effect, Node, Objects, Pod, Taint},
    observe::{ActError, Acted, CORDON_MARK, ClusterPort, ClusterView, NodeAction, NotSynced},
    rack::Rack,
};
use serde_json::json;

use super::{Outside, PoolIs};

/// One connection to the cluster that all hosts join.
#[derive(Debug)]
pub(crate) struct TestCluster(pub(crate) Arc<Outside>, pub(crate) bool);

#[async_trait]
impl ClusterPort for TestCluster {
    fn view(&self) -> Result<ClusterView, NotSynced> {
        let now = self.0.clock.now();
        let state = self.0.state();
        if state.api_down {
            return Err(NotSynced { total: 1, waiting: Vec::new() });
        }
        let mut objects = Objects::default();
        let mut renewed = BTreeMap::new();
        for (name, node) in state.nodes.iter().filter(|(_, node)| !node.deleted) {
            let taint = |key: &String| Taint {
                key: key.as_str().into(),
                value: "".into(),
                effect: Effect::NoSchedule,
            };
            let mut annotations = json!({});
            if let Some(mark) = &node.cordon {
                annotations = json!({ CORDON_MARK: mark });
            }
            let mut made: Node = serde_json::from_value(json!({
                "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": node.labels, "annotations": annotations},
                "spec": {"unschedulable": node.unschedulable},
                "status": {
                    "conditions": [{"type": "Ready", "status": if node.ready { "True" } else { "Unknown" }}],
                    "allocatable": {"cpu": "8", "memory": "16Gi"},
                    "nodeInfo": {"bootID": format!("boot-{}", node.boot)},
                }
            }))
            .unwrap();
            made.spec.taints = node.taints.iter().map(taint).collect();
            if let Some(at) = node.renewed {
                renewed.insert(Arc::from(name.as_str()), at);
            }
            objects.nodes.push(made);
        }
        for pod in &state.pods {
            let made: Pod = serde_json::from_value(json!({
                "metadata": {
                    "name": pod.name, "namespace": "default", "uid": format!("uid-{}", pod.name),
                    "deletionTimestamp": pod.deleted_at,
                    "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "controller": true}],
                },
                "spec": {"nodeName": pod.node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
                "status": {"phase": "Running"},
            }))
            .unwrap();
            objects.pods.push(made);
        }
        Ok(ClusterView {
            number: self.number(),
            fresh_at: now,
            objects: Arc::new(objects),
            renewed: Arc::new(renewed),
            guarded: Arc::new(state.guarded.clone()),
            set_aside: Arc::from([]),
            ..ClusterView::default()
        })
    }

    fn number(&self) -> u64 {
        self.0.clock.monotonic().millis() / 500 + 1
    }

    async fn changed(&self, seen: u64) {
        if self.0.state().renewed && !self.1 {
            std::future::pending::<()>().await;
        }
        while self.0.clock.monotonic().millis() / 500 < seen {
            self.0.clock.sleep(Duration::from_millis(500)).await;
        }
    }

    async fn act(&self, node: &str, action: &NodeAction) -> Result<Acted, ActError> {
        let now = self.0.clock.now();
        let mut state = self.0.state();
        if state.api_down {
            return Err(ActError::Unreachable { what: node.into(), why: "down".into() });
        }
        state.node_acts.push(format!("{} {node}", action.verb()));
        if let NodeAction::Evict { pod, .. } = action {
            state.evictions += 1;
            if let Some(lead) = &state.deposed_by_eviction {
                lead.set(None);
            }
            if let Some(budget) = state.budget.clone() {
                return Err(ActError::Budget { pod: pod.to_string(), budget, retry_after_seconds: None });
            }
            let found = state.pods.iter_mut().find(|one| *one.name == *pod.name);
            let Some(found) = found else { return Ok(Acted::Gone) };
            found.deleted_at.get_or_insert(now);
            return Ok(Acted::Done);
        }
        let Some(marks) = state.nodes.get_mut(node) else { return Ok(Acted::Gone) };
        match action {
            NodeAction::Cordon { op } => {
                if !marks.unschedulable {
                    (marks.unschedulable, marks.cordon) = (true, Some(op.clone()));
                }
            }
            NodeAction::Uncordon => {
                if marks.cordon.take().is_some() {
                    marks.unschedulable = false;
                }
            }
            NodeAction::Label { labels, taints } => {
                marks.labels.extend(labels.iter().map(|(key, value)| (key.to_owned(), value.to_string())));
                marks.taints.extend(taints.iter().map(|taint| taint.key.to_string()));
            }
            NodeAction::AddTaint(taint) => drop(marks.taints.insert(taint.key.to_string())),
            NodeAction::RemoveTaint { key } => drop(marks.taints.remove(key)),
            NodeAction::DeleteNode { .. } => marks.deleted = true,
            NodeAction::Evict { .. } => unreachable!("handled above"),
        }
        Ok(Acted::Done)
    }
}

/// A cluster without nodes, or with those that are left of an earlier time.
#[derive(Debug)]
pub(super) struct BareCluster(pub(super) Arc<Outside>);

#[async_trait]
impl ClusterPort for BareCluster {
    fn view(&self) -> Result<ClusterView, NotSynced> {
        let (fresh_at, state) = (self.0.clock.now(), self.0.state());
        let mut objects = Objects::default();
        if state.pool_is == PoolIs::WhereItWasBefore {
            objects.nodes.extend(state.machines.keys().map(|name| -> Node {
                serde_json::from_value(json!({
                    "metadata": {"name": name, "uid": format!("old-{name}")},
                    "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
                }))
                .unwrap()
            }));
        }
        Ok(ClusterView { number: 1, fresh_at, objects: Arc::new(objects), ..ClusterView::default() })
    }

    fn number(&self) -> u64 {
        1
    }

    async fn changed(&self, _: u64) {
        std::future::pending::<()>().await;
    }

    async fn act(&self, _: &str, _: &NodeAction) -> Result<Acted, ActError> {
        Ok(Acted::Gone)
    }
}

#[derive(Debug)]
pub(super) struct TestAround {
    pub(super) outside: Arc<Outside>,
    pub(super) cluster: [Arc<dyn ClusterPort>; 2],
    pub(super) other: Arc<dyn ClusterPort>,
}

impl TestAround {
    fn cluster(&self) -> Arc<dyn ClusterPort> {
        Arc::clone(&self.cluster[usize::from(self.outside.state().renewed)])
    }
}

impl Around for TestAround {
    fn home(&self, _pool: &str) -> Home {
        let (pool, disconnected) = {
            let state = self.outside.state();
            (state.pool_is, state.disconnected)
        };
        match pool {
            PoolIs::Gone => Home::Nowhere,
            PoolIs::Elsewhere | PoolIs::WhereItWasBefore => {
                Home::Cluster { name: "other".into(), port: Arc::clone(&self.other) }
            }
            PoolIs::Here if disconnected => Home::Unconnected { why: "cluster lab is not connected".into() },
            PoolIs::Here => Home::Cluster { name: "lab".into(), port: self.cluster() },
        }
    }

    fn clusters(&self) -> muster_control::hosts::Clusters {
        let disconnected = self.outside.state().disconnected;
        let lab = (!disconnected).then(|| ("lab".into(), self.cluster()));
        lab.into_iter().chain([("other".into(), Arc::clone(&self.other))]).collect()
    }

    fn advice(&self, _pool: &str) -> Option<Advice> {
        let (why, remedy) =
            ("its pool lab/gpu is in advise mode".to_owned(), "muster enable pool lab/gpu".to_owned());
        self.outside.state().advises.0.then_some(Advice { why, remedy })
    }

    fn pools_changed(&self) -> u64 {
        self.outside.state().advises.1
    }

    fn pool_max(&self, _pool: &str) -> Option<u32> {
        self.outside.state().pool_max
    }

    fn rack(&self, name: &str) -> Option<Rack> {
        self.outside.state().racks.get(name).cloned()
    }

    fn boot_profile(&self, name: &str) -> Option<BootProfile> {
        serde_json::from_value(json!({ "name": name, "target": "pxe" })).ok()
    }

    fn credential_version(&self, _name: &str) -> u64 {
        self.outside.state().credential_version
    }

    fn credentials_changed(&self) -> u64 {
        self.outside.state().credential_version
    }

    fn agent(&self, host: &str) -> AgentView {
        let now = self.outside.clock.now();
        let state = self.outside.state();
        let machine = &state.machines[host];
        let hello = (machine.is_up(now) && !machine.no_agent)
            .then(|| Hello { boot_id: format!("boot-{}", machine.boots), at: now });
        AgentView { hello, goodbye: state.goodbyes.get(host).cloned() }
    }

    fn presence(&self, host: &str, now: Timestamp) -> Known<Presence> {
        let up = self.outside.state().machines[host].is_up(now);
        Known::Value { value: if up { Presence::Answers } else { Presence::Silent }, at: now }
    }
}
