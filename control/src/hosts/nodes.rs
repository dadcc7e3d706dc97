//! What a cluster shows of a host: its node, the pods on it, and how much of it they ask for.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use muster_engine::{
    down::{Controllers, Fate, blocks, fate},
    fit::{
        Code, Cycle, Storage, World,
        requests::{self, Amounts},
    },
    lifecycle::{Cordon, NodeSeen, NodeView, PodsView},
    snapshot::DrainPolicy,
};
use muster_model::{
    Duration, Known, NODEPOOL_LABEL, Quantity, Timestamp,
    host::{Ambiguous, BareMetalNodeSpec, HostOp, MatchBy, node_of},
    k8s::{Effect, Labels, Node, Objects, Pod, Taint},
    observe::{CORDON_MARK, ClusterView, OFF_TAINT, OUT_OF_SERVICE_TAINT, STARTUP_TAINT},
    pool::TaintEffect,
};

use super::{around::Dress, turn::Shared};

/// Names the host on its node.
pub(super) const HOST_LABEL: &str = "muster.dev/host";
/// Extended resource that counts GPUs unless the host names others.
const GPU: &str = "nvidia.com/gpu";
const KEEP: [(&str, &str); 2] =
    [("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"), ("karpenter.sh/do-not-disrupt", "true")];

/// What Kubernetes itself puts onto a node that is cordoned.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";
/// What times in the metadata of objects are cut to.
const CUT_TO: Duration = Duration::from_secs(1);

/// A view with what is needed to find things in it quickly. Made once for every view.
#[derive(Debug)]
pub(super) struct Indexed {
    pub view: ClusterView,
    places: Arc<Places>,
    /// Why the pods that it shows may not be all there are.
    pub doubt: Option<String>,
}

/// Where things are among the objects of a view. Most views show the objects of the one before, with later signs of life.
#[derive(Debug, Default)]
struct Places {
    by_name: HashMap<Arc<str>, usize>,
    /// By the whole provider id, and by its last part.
    by_provider: HashMap<Box<str>, Vec<usize>>,
    pods: HashMap<Box<str>, Vec<u32>>,
    unschedulable: Vec<u32>,
}

impl Places {
    fn new(objects: &Objects) -> Self {
        let mut index = Self::default();
        for (place, node) in objects.nodes.iter().enumerate() {
            index.by_name.insert(Arc::clone(&node.metadata.name), place);
            if let Some(provider) = &node.spec.provider_id {
                let last = provider.rsplit('/').next().filter(|last| **last != **provider);
                for id in [Some(&**provider), last].into_iter().flatten() {
                    index.by_provider.entry(id.into()).or_default().push(place);
                }
            }
        }
        for (place, pod) in objects.pods.iter().enumerate() {
            let place = u32::try_from(place).unwrap_or(u32::MAX);
            if let Some(node) = &pod.spec.node_name {
                index.pods.entry(node.as_ref().into()).or_default().push(place);
            } else if pod.is_pending() && is_unschedulable(pod) {
                index.unschedulable.push(place);
            }
        }
        index
    }
}

impl Indexed {
    /// With `before`, the last one of the same cluster.
    pub(super) fn new(view: ClusterView, before: Option<&Self>) -> Self {
        let places = match before {
            Some(before) if Arc::ptr_eq(&before.view.objects, &view.objects) => Arc::clone(&before.places),
            _ => Arc::new(Places::new(&view.objects)),
        };
        Self { doubt: view.doubt().filter(|_| !muster_model::planted::is("F2")), places, view }
    }

    /// The node of a host, by the one rule that its spec names.
    pub(super) fn node(&self, host: &str, spec: &BareMetalNodeSpec) -> Result<Option<&Node>, Ambiguous> {
        let nodes = &self.view.objects.nodes;
        let given = spec.node_match.value.as_deref();
        let places: &[usize] = match spec.node_match.by {
            MatchBy::ProviderId => {
                let id = given.or(spec.inventory_id.as_deref()).unwrap_or(host);
                self.places.by_provider.get(id).map_or(&[], Vec::as_slice)
            }
            MatchBy::Name => self.places.by_name.get(given.unwrap_or(host)).map_or(&[], std::slice::from_ref),
            MatchBy::Label | MatchBy::Mac => return node_of(host, spec, nodes),
        };
        node_of(host, spec, places.iter().map(|place| &nodes[*place]))
    }

    /// The same for those who do without when it is not clear.
    pub(super) fn clear_node(&self, host: &str, spec: &BareMetalNodeSpec) -> Option<&Node> {
        self.node(host, spec).ok().flatten()
    }

    /// Whether its kubelet is seen to renew here.
    pub(super) fn is_alive(&self, host: &str, spec: &BareMetalNodeSpec, silence: Duration) -> bool {
        let node = self.clear_node(host, spec);
        let renewed = node.and_then(|node| self.view.renewed.get(node.name()));
        renewed.is_some_and(|at| self.view.fresh_at.since(*at) <= silence)
    }

    pub(super) fn pods_on(&self, node: &str) -> impl Iterator<Item = &Pod> {
        let places = self.places.pods.get(node).map_or(&[][..], Vec::as_slice);
        places.iter().filter_map(|place| self.view.objects.pods.get(usize::try_from(*place).ok()?))
    }

    /// Pods that came into being since `since`, that the scheduler has found no place for, and that the node could hold if it
    /// took pods again. Of a node that is not seen nobody can say that: there every one of them counts.
    pub(super) fn would_return(&self, node: Option<&Node>, since: Timestamp) -> u32 {
        let stranded: Vec<&Pod> = self.stranded_since(since).collect();
        let fits = match node {
            Some(node) if !stranded.is_empty() => self.held_by(node, &stranded),
            Some(_) | None => stranded.len(),
        };
        u32::try_from(fits).unwrap_or(u32::MAX)
    }

    /// Kubernetes cuts the time of creation to whole seconds, so that a pod of the same second counts: it may have come after.
    fn stranded_since(&self, since: Timestamp) -> impl Iterator<Item = &Pod> {
        let pods = &self.view.objects.pods;
        let places = self.places.unschedulable.iter();
        let later = move |created: Timestamp| created.saturating_add(CUT_TO) > since;
        places
            .filter_map(|place| pods.get(usize::try_from(*place).ok()?))
            .filter(move |pod| pod.metadata.creation_timestamp.is_some_and(later))
    }

    /// How many of these pods the scheduler would put onto the node as it is now, but for its cordon.
    fn held_by<'a>(&'a self, node: &'a Node, pods: &[&'a Pod]) -> usize {
        let objects = &*self.view.objects;
        let mut opened = node.clone();
        opened.spec.unschedulable = false;
        opened.spec.taints =
            node.spec.taints.iter().filter(|taint| &*taint.key != CORDON_TAINT).cloned().collect();
        let nodes = objects.nodes.iter().map(|one| if one.name() == node.name() { &opened } else { one });
        let mut world = World::new(nodes, &objects.namespaces, storage(objects));
        world.bind_running(&objects.pods);
        let Some(place) = world.index_of(node.name()) else { return pods.len() };
        let mut could = 0;
        for pod in pods.iter().copied() {
            could += match Cycle::new(&world, pod).refusal(place) {
                None => 1,
                // Nobody knows what the scheduler makes of objects that contradict themselves.
                Some(refusal) => usize::from(refusal.rejection.code == Code::Error),
            };
        }
        could
    }
}

fn storage(objects: &Objects) -> Storage<'_> {
    Storage::default()
        .with_volumes(&objects.volumes)
        .with_claims(&objects.claims)
        .with_classes(&objects.storage_classes)
        .with_csi_nodes(&objects.csi_nodes)
        .with_csi_drivers(&objects.csi_drivers)
        .with_capacities(&objects.storage_capacities)
        .with_attachments(&objects.volume_attachments)
}

fn is_unschedulable(pod: &Pod) -> bool {
    let condition = pod.status.condition("PodScheduled");
    condition.is_some_and(|one| &*one.status == "False" && &*one.reason == "Unschedulable")
}

/// What the node of a host is called as far as its record tells, whether it was ever seen or not: most are called as their
/// hosts. Asked only for what keeps power where it is, so that a name that is another's costs no more than that.
pub(super) fn named<'s>(host: &'s str, spec: &'s BareMetalNodeSpec) -> &'s str {
    spec.node_match.value.as_deref().filter(|_| spec.node_match.by == MatchBy::Name).unwrap_or(host)
}

/// The node as the lifecycle wants it.
pub(super) fn seen(
    host: &str,
    spec: &BareMetalNodeSpec,
    dress: &Dress,
    index: &Indexed,
) -> Result<NodeView, Ambiguous> {
    let Some(node) = index.node(host, spec)? else { return Ok(NodeView::Absent) };
    let taint = |key: &str| node.spec.taints.iter().any(|taint| &*taint.key == key);
    let mark = node.metadata.annotations.text(CORDON_MARK);
    let cordon = match (node.spec.unschedulable, mark) {
        (false, _) => Cordon::None,
        (true, Some(op)) => Cordon::Ours { op: op.to_owned() },
        (true, None) => Cordon::Foreign,
    };
    let wanted = labels(host, spec, dress);
    let labelled = wanted.iter().all(|(key, value)| node.metadata.labels.text(key) == Some(&**value));
    let tainted = taints(spec, dress).iter().all(|taint| node.spec.taints.contains(taint));
    let boot_id = &node.status.node_info.boot_id;
    Ok(NodeView::Present(NodeSeen {
        name: node.name().to_owned(),
        cluster: None,
        boot_id: (!boot_id.is_empty()).then(|| boot_id.to_string()),
        ready: node.status.condition("Ready").is_some_and(|ready| &*ready.status == "True"),
        lease_renewed: index.view.renewed.get(node.name()).copied(),
        lease_watched: index.view.leases_since,
        cordon,
        startup_taint: taint(STARTUP_TAINT),
        off_taint: taint(OFF_TAINT),
        out_of_service: taint(OUT_OF_SERVICE_TAINT),
        labels_complete: labelled && tainted,
        missing: missing(spec, node),
    }))
}

/// A resource that the inventory promises and the node does not show.
fn missing(spec: &BareMetalNodeSpec, node: &Node) -> Option<String> {
    let lacks = |name: &str, amount: Quantity| {
        node.status.allocatable.get(name).is_none_or(|shown| *shown < amount).then(|| name.to_owned())
    };
    let custom = &spec.resources.custom_resources;
    let named = custom.keys().any(|name| name.ends_with("/gpu"));
    let gpus = i64::from(spec.resources.gpu);
    if gpus > 0
        && !named
        && let Some(name) = lacks(GPU, Quantity::from_units(gpus))
    {
        return Some(name);
    }
    custom.iter().find_map(|(name, amount)| lacks(name, *amount))
}

/// Labels that the node of a host carries.
pub(super) fn labels(host: &str, spec: &BareMetalNodeSpec, dress: &Dress) -> Labels {
    let pool = dress.pool.as_deref().unwrap_or(&spec.pool);
    // The host knows better than its pool; nobody but us says which pool and host it is.
    dress
        .labels
        .iter()
        .chain(&spec.labels)
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .chain([(NODEPOOL_LABEL, pool), (HOST_LABEL, host)])
        .map(|(key, value)| (Box::from(key), Box::from(value)))
        .collect::<Vec<(Box<str>, Box<str>)>>()
        .into_iter()
        .collect()
}

/// Taints that the node of a host carries.
pub(super) fn taints(spec: &BareMetalNodeSpec, dress: &Dress) -> Vec<Taint> {
    let taint = |taint: &muster_model::pool::Taint| Taint {
        key: taint.key.as_str().into(),
        value: taint.value().into(),
        effect: match taint.effect {
            TaintEffect::NoSchedule => Effect::NoSchedule,
            TaintEffect::PreferNoSchedule => Effect::PreferNoSchedule,
            TaintEffect::NoExecute => Effect::NoExecute,
        },
    };
    let mut all: Vec<Taint> = dress.taints.iter().chain(&spec.taints).map(taint).collect();
    all.sort();
    all.dedup();
    all
}

/// Which pods keep their node: those that say so, and in a drain that the planner wants those that it would not have
/// drained the node of. One of them may have been bound past the cordon (OPS-F10). What a person wants is done.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Kept(Option<DrainPolicy>);

impl Kept {
    pub(super) fn of(shared: &Shared, pool: &str, op: Option<&HostOp>) -> Self {
        let planned = op.is_some_and(|op| op.cause.is_automatic());
        Self(planned.then(|| shared.around.drain_policy(pool)))
    }

    fn holds(self, pod: &Pod) -> bool {
        let says_so = KEEP.iter().any(|(key, value)| pod.metadata.annotations.text(key) == Some(value));
        // Replicas and the budgets of system pods are left to whoever planned: they change while a node is drained.
        says_so || self.0.is_some_and(|policy| !blocks(pod, policy, &Controllers::default(), true).is_empty())
    }
}

/// Pods to be evicted, in the order of their names.
pub(super) fn evictable<'i>(index: &'i Indexed, node: &str, kept: Kept, now: Timestamp) -> Vec<&'i Pod> {
    let moves = |pod: &&Pod| matches!(fate(pod, now), Fate::Moves | Fate::Expendable) && !kept.holds(pod);
    let mut pods: Vec<&Pod> = index.pods_on(node).filter(moves).collect();
    pods.sort_by_key(|pod| pod.key());
    pods
}

/// The pods on a node as the lifecycle wants them.
pub(super) fn pods_seen(
    index: &Indexed,
    node: &str,
    kept: Kept,
    blocked_by: Option<&str>,
    now: Timestamp,
) -> PodsView {
    let guarded = index.view.guard_of(node).map(ToString::to_string);
    let mut seen = PodsView { guarded, ..count(index.pods_on(node), kept, now) };
    seen.blocked_by = blocked_by.filter(|_| seen.evictable > 0).map(str::to_owned);
    seen
}

/// Pods by what becomes of them when their node is drained.
pub(super) fn count<'p>(pods: impl Iterator<Item = &'p Pod>, kept: Kept, now: Timestamp) -> PodsView {
    let mut seen = PodsView::default();
    for pod in pods {
        match fate(pod, now) {
            Fate::Terminal | Fate::Daemon | Fate::Mirror => {}
            // Nobody has seen it end: power stays until it is gone.
            Fate::Terminating | Fate::LongTerminating if muster_model::planted::is("F9") => {}
            Fate::Terminating | Fate::LongTerminating => seen.terminating += 1,
            Fate::Moves if kept.holds(pod) => seen.protected += 1,
            Fate::Moves | Fate::Expendable => seen.evictable += 1,
        }
    }
    seen
}

/// What the pods of a node request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Use {
    /// Shares of what the node offers, in thousandths.
    pub cpu_permille: Known<i64>,
    pub memory_permille: Known<i64>,
    /// Exact amounts by name: CPU in thousandths and memory always, everything else where it is requested.
    pub requested: BTreeMap<String, i64>,
}

/// What the pods of a node request of it.
pub(super) fn use_of(index: &Indexed, node: &Node) -> Use {
    let at = index.view.fresh_at;
    let offered = Amounts::capacity(&node.status.allocatable);
    let mut asked = Amounts::default();
    for pod in index.pods_on(node.name()).filter(|pod| !pod.is_finished()) {
        asked.add(&requests::of_bound(pod));
    }
    let share = |name: &str, asked: i64, offered: i64| {
        if offered <= 0 {
            return Known::Unknown { why: format!("its node offers no {name}"), since: at };
        }
        let permille = i128::from(asked).saturating_mul(1000) / i128::from(offered);
        Known::Value { value: i64::try_from(permille).unwrap_or(i64::MAX), at }
    };
    let mut requested = BTreeMap::from([("cpu".to_owned(), 0), ("memory".to_owned(), 0)]);
    let named = asked.entries().filter(|(name, _)| *name != "pods");
    requested.extend(named.map(|(name, amount)| (name.to_owned(), amount)));
    Use {
        cpu_permille: share("cpu", asked.milli_cpu, offered.milli_cpu),
        memory_permille: share("memory", asked.memory, offered.memory),
        requested,
    }
}

/// What of a node and its pods a change is worth a look for; not the lease, which changes all the time.
pub(super) fn digest(host: &str, spec: &BareMetalNodeSpec, dress: &Dress, index: &Indexed) -> u64 {
    let Ok(NodeView::Present(mut node)) = seen(host, spec, dress, index) else { return 0 };
    (node.lease_renewed, node.lease_watched) = (None, Timestamp::EPOCH);
    let pods = index.pods_on(&node.name).count();
    super::ways::fnv(format!("{node:?} {pods}").bytes())
}

#[cfg(test)]
mod tests {
    use muster_model::k8s::Objects;
    use serde_json::{Value, json};

    use super::*;

    /// What waits beside a node that is drained since 11:13:54.455: its cordon is not held against it, everything else is.
    #[track_caller]
    fn check_return(change: Value, node_is_seen: bool, count: u32) {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "n", "creationTimestamp": "2026-11-16T11:14:00Z"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]},
            "status": {"phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
        muster_model::patch::merge_patch(&mut pod, &change);
        let daemon = json!({"metadata": {"name": "d", "namespace": "n"}, "status": {"phase": "Running"},
            "spec": {"nodeName": "g1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]}});
        let node = json!({"metadata": {"name": "g1", "labels": {"purpose": "web"}},
            "spec": {"unschedulable": true, "taints": [
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
                {"key": "team", "value": "a", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}});
        let tolerates = json!({"spec": {"tolerations": [{"key": "team", "operator": "Exists"}]}});
        if change.pointer("/spec/tolerations").is_none() {
            muster_model::patch::merge_patch(&mut pod, &tolerates);
        }
        let pods = [pod, daemon].map(|one| serde_json::from_value(one).unwrap()).to_vec();
        let nodes = vec![serde_json::from_value(node).unwrap()];
        let objects = Arc::new(Objects { pods, nodes, ..Objects::default() });
        let index = Indexed::new(ClusterView { objects, ..ClusterView::default() }, None);
        let node = Some(&index.view.objects.nodes[0]).filter(|_| node_is_seen);
        let began = "2026-11-16T11:13:54.455Z".parse().unwrap();
        assert_eq!(index.would_return(node, began), count, "{change}");
    }

    /// BM-7, row 18: a pod that this very node could hold ends its drain, and one that could never go there does not.
    #[test]
    fn only_pods_that_the_node_could_hold_end_its_drain() {
        let cpu = |cpu: &str| json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
        check_return(json!({}), true, 1);
        check_return(cpu("3500m"), true, 1); // beside what stays there
        check_return(cpu("3501m"), true, 0);
        check_return(json!({"spec": {"nodeSelector": {"purpose": "web"}}}), true, 1);
        check_return(json!({"spec": {"nodeSelector": {"purpose": "gpu"}}}), true, 0);
        check_return(json!({"spec": {"tolerations": []}}), true, 0);
        // Nobody can say it of a node that is not seen.
        check_return(cpu("64"), false, 1);
    }

    /// OPS-F10: a pod of the very second in which a drain began may have come after it, and ends the drain.
    #[test]
    fn ops_f10_a_pod_of_the_same_second_counts_as_later() {
        let created = |at: &str| json!({"metadata": {"creationTimestamp": at}});
        check_return(created("2026-11-16T11:13:53Z"), true, 0);
        check_return(created("2026-11-16T11:13:54Z"), true, 1);
        check_return(created("2026-11-16T11:13:55Z"), true, 1);
    }

    /// What pods that run ask for is counted, devices by their own names; what has ended asks for nothing.
    #[test]
    fn requests_are_counted_by_name_and_exactly() {
        let pod = |name: &str, phase: &str, requests: Value| {
            let pod = json!({"metadata": {"name": name, "namespace": "n"}, "status": {"phase": phase},
                "spec": {"nodeName": "g1", "containers": [{"name": "c", "resources": {"requests": requests}}]}});
            serde_json::from_value::<Pod>(pod).unwrap()
        };
        let node = json!({"metadata": {"name": "g1"}, "status": {"allocatable":
            {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "8", "example.com/nic": "4"}}});
        let pods = vec![
            pod("a", "Running", json!({"cpu": "1001m", "nvidia.com/gpu": "2", "example.com/nic": "1"})),
            pod("b", "Running", json!({"cpu": "1", "nvidia.com/gpu": "1", "ephemeral-storage": "1Ki"})),
            pod("c", "Succeeded", json!({"nvidia.com/gpu": "4"})),
        ];
        let nodes = vec![serde_json::from_value::<Node>(node).unwrap()];
        let objects = Arc::new(Objects { pods, nodes, ..Objects::default() });
        let index = Indexed::new(ClusterView { objects, ..ClusterView::default() }, None);
        let used = use_of(&index, &index.view.objects.nodes[0]);
        assert_eq!(used.cpu_permille.value(), Some(&500));
        let requested: Vec<_> =
            used.requested.iter().map(|(name, amount)| (name.as_str(), *amount)).collect();
        let devices =
            [("ephemeral-storage", 1024), ("example.com/nic", 1), ("memory", 0), ("nvidia.com/gpu", 3)];
        assert_eq!((requested[0], &requested[1..]), (("cpu", 2001), &devices[..]));
    }

    /// OPS-F10: what the planner would not have drained the node of ends a drain of the planner's.
    #[test]
    fn ops_f10_pods_that_nobody_makes_again_keep_their_node() {
        #[track_caller]
        fn check(extra: Value, policy: Option<DrainPolicy>, held: bool) {
            let mut pod = json!({"metadata": {"name": "p", "namespace": "n",
                "ownerReferences": [{"kind": "ReplicaSet", "name": "rs", "controller": true}]}, "spec": {}});
            muster_model::patch::merge_patch(&mut pod, &extra);
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let now = "2026-11-16T11:13:54Z".parse().unwrap();
            let seen = count(std::iter::once(&pod), Kept(policy), now);
            assert_eq!((seen.protected, seen.evictable), if held { (1, 0) } else { (0, 1) }, "{extra}");
        }
        let strict = DrainPolicy::default();
        let lax = DrainPolicy { keep_unreplicated: false, keep_local_storage: false, ..strict };
        let bare = json!({"metadata": {"ownerReferences": null}});
        let scratch = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
        let asks = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
        check(json!({}), Some(strict), false);
        check(bare.clone(), Some(strict), true);
        check(bare.clone(), Some(lax), false);
        check(bare, None, false); // a person wants it off
        check(scratch.clone(), Some(strict), true);
        check(scratch, Some(lax), false);
        check(asks.clone(), Some(lax), true);
        check(asks, None, true);
    }
}
