//! The cluster: nodes that kubelets register, pods that workloads make, and a scheduler that binds them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use muster_engine::fit::{Cycle, Storage, World as Fit};
use muster_model::{
    Duration, Quantity, Timestamp,
    k8s::{
        Effect, LabelSelector, Node, NodeCondition, Objects, Pod, PodCondition, PodDisruptionBudget,
        PodPhase, ReplicaSet, Taint,
    },
    observe::{CORDON_MARK, OUT_OF_SERVICE_TAINT, STARTUP_TAINT},
};

use super::{
    machine::Quirk,
    state::{Event, State},
    workload::Kind,
};

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// What a node with [`Quirk::JoinsTainted`] carries: somebody's taint-adder.
const STRANGE: &str = "example.com/strange";

/// A Node object.
#[derive(Debug, Clone)]
pub(super) struct NodeTruth {
    pub uid: String,
    pub created: Timestamp,
    pub boot: u32,
    /// `True`, `False` or `Unknown`.
    pub ready: &'static str,
    /// Since when.
    pub ready_since: Timestamp,
    pub unschedulable: bool,
    pub mark: Option<String>,
    pub taints: BTreeMap<String, (String, Effect)>,
    pub labels: BTreeMap<String, String>,
}

/// A pod. Its name is its uid.
#[derive(Debug, Clone)]
pub(super) struct PodTruth {
    pub workload: String,
    pub node: Option<String>,
    pub created: u64,
    /// When it came onto its node.
    pub bound: Option<u64>,
    pub deleted: Option<u64>,
    /// Something holds it although it ended.
    pub object: Pod,
}

impl PodTruth {
    pub(super) fn is_daemon(&self) -> bool {
        self.object.metadata.controller().is_some_and(|owner| &*owner.kind == "DaemonSet")
    }

    pub(super) fn is_live(&self) -> bool {
        !self.object.is_finished()
    }
}

impl State {
    pub(super) fn register_node(&mut self, name: &str) {
        let wall = self.wall();
        let Some(machine) = self.machines.get(name) else { return };
        let (boot, strange) = (machine.boots, machine.has(Quirk::JoinsTainted));
        let fresh = !self.nodes.contains_key(name);
        self.made += u64::from(fresh);
        let uid = format!("node-{name}-{}", self.made);
        let node = self.nodes.entry(name.to_owned()).or_insert_with(|| NodeTruth {
            uid,
            created: wall,
            boot,
            ready: "False",
            ready_since: wall,
            unschedulable: false,
            mark: None,
            taints: BTreeMap::from([(STARTUP_TAINT.to_owned(), (String::new(), Effect::NoSchedule))]),
            labels: [
                ("kubernetes.io/hostname", name),
                ("kubernetes.io/arch", "amd64"),
                ("kubernetes.io/os", "linux"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        });
        (node.boot, node.ready, node.ready_since) = (boot, "False", wall);
        if strange {
            node.taints.insert(STRANGE.to_owned(), (String::new(), Effect::NoSchedule));
        }
        self.say(&format!("node {name} joins with boot {boot}"));
        // Containers of pods that were to end are gone with the reboot; the new kubelet notices.
        let ending: Vec<String> =
            self.pods_on(name).filter(|(_, pod)| pod.deleted.is_some()).map(|(uid, _)| uid.clone()).collect();
        for uid in ending {
            self.plan(2_000, Event::PodGone { uid });
        }
        self.touch();
    }

    pub(super) fn node_ready(&mut self, name: &str) {
        if self.machines.get(name).is_none_or(|one| one.has(Quirk::JoinsUnready) || one.kubelet.is_none()) {
            return;
        }
        let wall = self.wall();
        let Some(node) = self.nodes.get_mut(name) else { return };
        if node.ready != "True" {
            (node.ready, node.ready_since) = ("True", wall);
        }
        node.taints.remove(UNREACHABLE);
        self.say(&format!("node {name} is ready"));
        let daemons: Vec<String> = self
            .workloads
            .values()
            .filter(|one| one.kind == Kind::Daemon)
            .map(|one| one.name.clone())
            .collect();
        for daemon in daemons {
            self.reconcile(&daemon);
        }
        self.touch();
    }

    pub(super) fn node_silent(&mut self, name: &str) {
        let wall = self.wall();
        let Some(node) = self.nodes.get_mut(name) else { return };
        if node.ready == "Unknown" {
            return;
        }
        (node.ready, node.ready_since) = ("Unknown", wall);
        node.taints.insert(UNREACHABLE.to_owned(), (String::new(), Effect::NoExecute));
        self.say(&format!("node {name} is silent"));
        self.touch();
    }

    pub(super) fn pods_on<'s>(
        &'s self,
        node: &'s str,
    ) -> impl Iterator<Item = (&'s String, &'s PodTruth)> + 's {
        self.pods.iter().filter(move |(_, pod)| pod.node.as_deref() == Some(node))
    }

    /// Pods that would lose something if their node's power went now.
    pub(super) fn live_pods_on(&self, node: &str) -> usize {
        self.pods_on(node).filter(|(_, pod)| pod.is_live() && !pod.is_daemon()).count()
    }

    /// The pods of an unreachable node are to go; others take their place.
    pub(super) fn replace_pods_of(&mut self, name: &str) {
        let uids: Vec<String> = self
            .pods_on(name)
            .filter(|(_, pod)| pod.deleted.is_none() && !pod.is_daemon())
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in uids {
            self.delete_pod(&uid);
        }
    }

    /// Marks a pod for deletion. Whoever runs it lets it end; who is dead does not.
    pub(super) fn delete_pod(&mut self, uid: &str) {
        let (now, wall) = (self.now, self.wall());
        let Some(pod) = self.pods.get_mut(uid) else { return };
        if pod.deleted.is_some() {
            return;
        }
        let workload = pod.workload.clone();
        pod.deleted = Some(now);
        pod.object.metadata.deletion_timestamp = Some(wall);
        let node = pod.node.clone();
        let grace = pod.object.spec.termination_grace_period_seconds.unwrap_or(30);
        pod.object.metadata.deletion_grace_period_seconds = Some(grace);
        let ends =
            self.workloads.get(&workload).map_or(1, |one| one.ends_after_seconds.min(one.grace_seconds));
        let alive =
            node.as_ref().is_none_or(|node| self.machines.get(node).is_some_and(|one| one.kubelet.is_some()));
        match node {
            None => self.plan(1, Event::PodGone { uid: uid.to_owned() }),
            Some(_) if alive => self.plan(ends * 1000, Event::PodGone { uid: uid.to_owned() }),
            Some(_) => {}
        }
        self.plan(200, Event::Reconcile { workload });
        self.touch();
    }

    pub(super) fn pod_gone(&mut self, uid: &str) {
        let Some(pod) = self.pods.get(uid) else { return };
        let alive = pod
            .node
            .as_ref()
            .is_none_or(|node| self.machines.get(node).is_some_and(|one| one.kubelet.is_some()));
        if !alive {
            return; // nobody is there to say that it ended
        }
        if self.has(super::Outage::Finalizers) {
            self.plan(30_000, Event::PodGone { uid: uid.to_owned() });
            return;
        }
        self.remove_pod(uid);
    }

    fn remove_pod(&mut self, uid: &str) {
        if let Some(pod) = self.pods.remove(uid) {
            self.say(&format!("pod {uid} is gone"));
            self.plan(200, Event::Reconcile { workload: pod.workload });
            self.touch();
        }
    }

    pub(super) fn pod_ends(&mut self, uid: &str) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        if pod.deleted.is_none() {
            pod.object.status.phase = PodPhase::Succeeded;
            self.say(&format!("pod {uid} has ended"));
            self.touch();
        }
    }

    /// Makes the pods of a workload as many as they are to be.
    pub(super) fn reconcile(&mut self, name: &str) {
        let Some(workload) = self.workloads.get(name).cloned() else { return };
        let mine = |pod: &&PodTruth| pod.workload == name;
        if workload.kind == Kind::Daemon {
            let has: BTreeSet<String> =
                self.pods.values().filter(mine).filter_map(|pod| pod.node.clone()).collect();
            let bare: Vec<String> = self
                .nodes
                .iter()
                .filter(|(node, truth)| truth.ready == "True" && !has.contains(*node))
                .map(|(node, _)| node.clone())
                .collect();
            for node in bare {
                let uid = self.make_pod(name);
                self.bind(&uid, &node);
            }
            return;
        }
        let live: Vec<(String, u64, bool)> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.workload == name && pod.deleted.is_none())
            .filter(|(_, pod)| pod.is_live() || matches!(workload.kind, Kind::Job { .. }))
            .map(|(uid, pod)| (uid.clone(), pod.created, pod.node.is_some()))
            .collect();
        let wanted = workload.replicas as usize;
        if live.len() < wanted {
            for _ in live.len()..wanted {
                self.make_pod(name);
            }
        } else {
            // Those that wait go first, then the youngest.
            let mut order = live;
            order.sort_by_key(|(uid, created, bound)| (*bound, std::cmp::Reverse(*created), uid.clone()));
            let many = order.len() - wanted;
            for (uid, ..) in order.into_iter().take(many) {
                self.delete_pod(&uid);
            }
        }
    }

    fn make_pod(&mut self, workload: &str) -> String {
        self.made += 1;
        let uid = format!("{workload}-{}", self.made);
        let object = self.workloads[workload].pod(&uid, &uid, self.wall());
        let pod = PodTruth {
            workload: workload.to_owned(),
            node: None,
            created: self.now,
            bound: None,
            deleted: None,
            object,
        };
        self.pods.insert(uid.clone(), pod);
        self.touch();
        uid
    }

    pub(super) fn bind(&mut self, uid: &str, node: &str) {
        let wall = self.wall();
        let Some(pod) = self.pods.get_mut(uid) else { return };
        pod.node = Some(node.to_owned());
        pod.bound = Some(self.now);
        self.judge.called.remove(&pod.workload);
        Arc::make_mut(&mut pod.object.spec).node_name = Some(node.into());
        pod.object.status.phase = PodPhase::Running;
        pod.object.status.start_time = Some(wall);
        pod.object.status.conditions =
            vec![condition("PodScheduled", "True", ""), condition("Ready", "True", "")].into();
        let ends = match self.workloads.get(&pod.workload).map(|one| one.kind) {
            Some(Kind::Job { seconds }) => Some(seconds),
            _ => None,
        };
        self.say(&format!("pod {uid} runs on {node}"));
        if let Some(seconds) = ends {
            self.plan(seconds * 1000, Event::PodEnds { uid: uid.to_owned() });
        }
        self.touch();
    }

    /// Binds every pod that fits somewhere, the oldest first, to the node with the most room.
    pub(super) fn schedule(&mut self) {
        self.scheduling = false;
        if self.has(super::Outage::ApiDown) {
            return; // the scheduler has no API server either; its end touches everything
        }
        let mut waiting: Vec<(u64, String)> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.object.is_pending())
            .map(|(uid, pod)| (pod.created, uid.clone()))
            .collect();
        if waiting.is_empty() {
            return;
        }
        waiting.sort();
        let objects = self.objects();
        let mut fit = Fit::new(&objects.nodes, &objects.namespaces, Storage::default());
        fit.bind_running(&objects.pods);
        let (mut bound, mut stranded) = (Vec::new(), Vec::new());
        for (_, uid) in &waiting {
            let Some(pod) = objects.pods.iter().find(|pod| *pod.metadata.uid == **uid) else { continue };
            let cycle = Cycle::new(&fit, pod);
            let free = |node: usize| {
                let state = fit.node(node);
                state.capacity.milli_cpu - state.used.milli_cpu
            };
            let best = fit
                .present()
                .filter(|node| cycle.refusal(*node).is_none())
                .max_by_key(|node| (free(*node), std::cmp::Reverse(fit.node(*node).node.name().to_owned())));
            if let Some(node) = best {
                bound.push((uid.clone(), fit.node(node).node.name().to_owned()));
                fit.bind(pod, node);
            } else {
                stranded.push(uid.clone());
            }
        }
        for (uid, node) in bound {
            self.bind(&uid, &node);
        }
        let mut news = false;
        for uid in stranded {
            let Some(pod) = self.pods.get_mut(&uid) else { continue };
            if pod.object.status.condition("PodScheduled").is_none() {
                pod.object.status.conditions =
                    vec![condition("PodScheduled", "False", "Unschedulable")].into();
                news = true;
            }
        }
        if news {
            self.scheduling = true; // it has just looked
            self.touch();
            self.scheduling = false;
        }
    }

    /// What the API server shows, made once for every change.
    pub(super) fn objects(&mut self) -> Arc<Objects> {
        if let Some(objects) = &self.objects {
            return Arc::clone(objects);
        }
        let mut objects = Objects::default();
        for (name, truth) in &self.nodes {
            objects.nodes.push(self.node_object(name, truth));
        }
        objects.pods = self.pods.values().map(|pod| pod.object.clone()).collect();
        objects.replica_sets = self.workloads.values().filter_map(|one| self.replica_set(one)).collect();
        objects.budgets = self.workloads.values().filter_map(|one| self.budget(one)).collect();
        let objects = Arc::new(objects);
        self.objects = Some(Arc::clone(&objects));
        objects
    }

    /// What makes the pods of a deployment, and how many of them it counts as ready.
    fn replica_set(&self, workload: &super::Workload) -> Option<ReplicaSet> {
        let owner = format!("owner-{}", workload.name);
        let owns = |pod: &Pod| pod.metadata.controller().is_some_and(|one| *one.uid == *owner);
        let is_ready = |pod: &Pod| pod.status.phase == PodPhase::Running && !pod.is_terminating();
        let ready = self.pods.values().filter(|pod| owns(&pod.object) && is_ready(&pod.object)).count();
        let mut set = ReplicaSet::default();
        set.metadata.name = workload.name.as_str().into();
        set.metadata.namespace = "default".into();
        set.metadata.uid = owner.as_str().into();
        set.spec.replicas = i32::try_from(workload.replicas).ok();
        set.status.ready_replicas = i32::try_from(ready).unwrap_or(i32::MAX);
        (workload.kind == Kind::Deployment).then_some(set)
    }

    fn node_object(&self, name: &str, truth: &NodeTruth) -> Node {
        let mut node = Node::default();
        node.metadata.name = name.into();
        node.metadata.uid = truth.uid.as_str().into();
        node.metadata.creation_timestamp = Some(truth.created);
        node.metadata.labels =
            truth.labels.iter().map(|(key, value)| (key.as_str(), Box::from(value.as_str()))).collect();
        if let Some(mark) = &truth.mark {
            node.metadata.annotations.insert(CORDON_MARK, mark.as_str().into());
        }
        node.spec.unschedulable = truth.unschedulable;
        node.spec.provider_id = Some(format!("metal:///{name}").into());
        node.spec.taints = truth
            .taints
            .iter()
            .map(|(key, (value, effect))| Taint {
                key: key.as_str().into(),
                value: value.as_str().into(),
                effect: *effect,
            })
            .collect();
        if let Some(machine) = self.machines.get(name) {
            let mut offers = vec![
                ("cpu", Quantity::from_milli(machine.build.milli_cpu)),
                ("memory", Quantity::from_bytes(machine.build.memory)),
                ("pods", Quantity::from_units(110)),
            ];
            if machine.build.gpus > 0 {
                offers.push(("nvidia.com/gpu", Quantity::from_units(machine.build.gpus)));
            }
            node.status.allocatable = offers.iter().copied().collect();
            node.status.capacity = offers.into_iter().collect();
        }
        node.status.conditions = vec![NodeCondition {
            kind: "Ready".into(),
            status: truth.ready.into(),
            last_transition_time: Some(truth.ready_since),
            ..NodeCondition::default()
        }]
        .into();
        node.status.node_info.boot_id = format!("boot-{name}-{}", truth.boot).into();
        node
    }

    /// How many of a workload's pods may go now.
    pub(super) fn disruptions_allowed(&self, workload: &super::Workload) -> Option<i32> {
        let least = workload.min_available?;
        if self.has(super::Outage::BudgetsClosed) {
            return Some(0);
        }
        let healthy = self.healthy(&workload.name);
        Some(i32::try_from(healthy.saturating_sub(least as usize)).unwrap_or(i32::MAX))
    }

    fn healthy(&self, workload: &str) -> usize {
        let well = |node: &String| self.nodes.get(node).is_some_and(|node| node.ready == "True");
        self.pods
            .values()
            .filter(|pod| pod.workload == workload && pod.deleted.is_none() && pod.is_live())
            .filter(|pod| pod.node.as_ref().is_some_and(well))
            .count()
    }

    fn budget(&self, workload: &super::Workload) -> Option<PodDisruptionBudget> {
        let allowed = self.disruptions_allowed(workload)?;
        let mut budget = PodDisruptionBudget::default();
        budget.metadata.name = workload.name.as_str().into();
        budget.metadata.namespace = "default".into();
        budget.spec.min_available =
            workload.min_available.map(|least| muster_model::k8s::IntOrPercent::Int(i64::from(least)));
        budget.spec.selector =
            Some(LabelSelector { match_labels: workload.labels(), ..LabelSelector::default() });
        budget.status.disruptions_allowed = Some(allowed);
        budget.status.current_healthy = i32::try_from(self.healthy(&workload.name)).unwrap_or(i32::MAX);
        budget.status.desired_healthy =
            workload.min_available.and_then(|least| i32::try_from(least).ok()).unwrap_or(0);
        budget.status.expected_pods = i32::try_from(workload.replicas).unwrap_or(i32::MAX);
        Some(budget)
    }

    /// Takes a taint; the cluster's own controllers follow the one that says out of service.
    pub(super) fn taint(&mut self, node: &str, taint: &Taint) -> bool {
        let Some(truth) = self.nodes.get_mut(node) else { return false };
        let value = (taint.value.to_string(), taint.effect);
        if truth.taints.get(&*taint.key) == Some(&value) {
            return false;
        }
        truth.taints.insert(taint.key.to_string(), value);
        if &*taint.key == OUT_OF_SERVICE_TAINT {
            let uids: Vec<String> =
                self.pods_on(node).filter(|(_, pod)| !pod.is_daemon()).map(|(uid, _)| uid.clone()).collect();
            for uid in uids {
                self.remove_pod(&uid);
            }
        }
        self.touch();
        true
    }

    pub(super) fn delete_node(&mut self, name: &str) {
        if self.nodes.remove(name).is_some() {
            let uids: Vec<String> = self.pods_on(name).map(|(uid, _)| uid.clone()).collect();
            for uid in uids {
                self.remove_pod(&uid);
            }
            self.say(&format!("node {name} is deleted"));
            self.touch();
        }
    }

    /// The age of a moment.
    pub(super) fn since(&self, at: u64) -> Duration {
        Duration::from_millis(self.now.saturating_sub(at))
    }
}

fn condition(kind: &str, status: &str, reason: &str) -> PodCondition {
    PodCondition {
        kind: kind.into(),
        status: status.into(),
        reason: reason.into(),
        last_transition_time: None,
    }
}
