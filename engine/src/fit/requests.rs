//! What a pod asks for, as the scheduler counts it.

use std::collections::BTreeMap;

use muster_model::{
    Quantity,
    k8s::{Container, ContainerStatus, Pod, ResourceList, Resources},
};

/// Amounts in the scheduler's units: millicores, bytes, and whole units of everything else.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Amounts {
    pub milli_cpu: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
    /// Number of pods. Only capacities and usage have one; a request does not ask for pods.
    pub pods: i64,
    /// Extended resources, huge pages and the like.
    pub scalars: BTreeMap<Box<str>, i64>,
}

impl Amounts {
    /// A node's `allocatable`. Every amount is rounded up, a resource that is not listed is zero, pods too.
    pub fn capacity(allocatable: &ResourceList) -> Self {
        let mut amounts = Self::rounded(allocatable);
        amounts.pods = allocatable.get("pods").map_or(0, |pods| pods.value());
        amounts
    }

    /// Rounds a list of exact amounts up to the scheduler's units; resources it does not count are dropped.
    pub fn rounded(list: &ResourceList) -> Self {
        let mut amounts = Self::default();
        for (name, quantity) in list.iter() {
            match name {
                "cpu" => amounts.milli_cpu = quantity.milli(),
                "memory" => amounts.memory = quantity.value(),
                "ephemeral-storage" => amounts.ephemeral_storage = quantity.value(),
                "pods" => {}
                _ if is_counted(name) => {
                    amounts.scalars.insert(name.into(), quantity.value());
                }
                _ => {}
            }
        }
        amounts
    }

    pub fn scalar(&self, name: &str) -> i64 {
        self.scalars.get(name).copied().unwrap_or(0)
    }

    /// Adds `other` in every dimension, pods included; saturates.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, i64::saturating_add);
    }

    /// Takes `other` away in every dimension, pods included; saturates.
    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, i64::saturating_sub);
    }

    fn combine(&mut self, other: &Self, with: fn(i64, i64) -> i64) {
        self.milli_cpu = with(self.milli_cpu, other.milli_cpu);
        self.memory = with(self.memory, other.memory);
        self.ephemeral_storage = with(self.ephemeral_storage, other.ephemeral_storage);
        self.pods = with(self.pods, other.pods);
        for (name, amount) in &other.scalars {
            let total = self.scalars.entry(name.clone()).or_default();
            *total = with(*total, *amount);
        }
    }

    /// The amounts that are not zero, by their Kubernetes names, in order.
    pub fn entries(&self) -> impl Iterator<Item = (&str, i64)> {
        let mut all: Vec<(&str, i64)> = vec![
            ("cpu", self.milli_cpu),
            ("memory", self.memory),
            ("ephemeral-storage", self.ephemeral_storage),
            ("pods", self.pods),
        ];
        all.extend(self.scalars.iter().map(|(name, amount)| (&**name, *amount)));
        all.retain(|(_, amount)| *amount != 0);
        all.sort_unstable();
        all.into_iter()
    }
}

/// Whether the scheduler counts the resource beside cpu, memory, ephemeral storage and pods.
pub fn is_counted(name: &str) -> bool {
    let extended = name.contains('/') && !name.starts_with("requests.");
    extended
        || name.contains("kubernetes.io/")
        || name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
}

/// Whether a pod-level amount of the resource replaces what the containers ask for.
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// What a pod that is not bound yet asks for.
pub fn of_pending(pod: &Pod) -> Amounts {
    let mut amounts = Amounts::rounded(&exact(pod, Source::Spec));
    // The scheduler starts from zero and takes maxima, so an amount below zero is none.
    amounts.milli_cpu = amounts.milli_cpu.max(0);
    amounts.memory = amounts.memory.max(0);
    amounts.ephemeral_storage = amounts.ephemeral_storage.max(0);
    amounts.scalars.retain(|_, amount| *amount > 0);
    amounts
}

/// What a bound pod occupies: the larger of what it asks for and what it was granted, and one pod.
pub fn of_bound(pod: &Pod) -> Amounts {
    Amounts { pods: 1, ..Amounts::rounded(&exact(pod, Source::SpecAndStatus)) }
}

/// Where the requests of a container are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Spec,
    /// Also what the node granted and runs, if its status says so.
    SpecAndStatus,
}

/// The exact request of a pod: containers and sidecars together, or an init container with the sidecars
/// started before it if that is more; pod-level amounts replace; overhead comes on top.
pub fn exact(pod: &Pod, source: Source) -> ResourceList {
    let mut total = Sums::default();
    for container in &pod.spec.containers {
        total.add(&of_container(pod, container, &pod.status.container_statuses, source));
    }
    let (mut sidecars, mut peak) = (Sums::default(), Sums::default());
    for container in &pod.spec.init_containers {
        if container.is_sidecar() {
            let own = of_container(pod, container, &pod.status.init_container_statuses, source);
            total.add(&own);
            sidecars.add(&own);
            peak.raise(&sidecars.0);
        } else {
            let mut running = sidecars.clone();
            running.add(&as_map(&container.resources.requests));
            peak.raise(&running.0);
        }
    }
    total.raise(&peak.0);
    if let Some(resources) = &pod.spec.resources {
        replace_with_pod_level(&mut total, pod, resources, source);
    }
    total.add(&as_map(&pod.spec.overhead));
    total.0.into_iter().collect()
}

type Exact = BTreeMap<Box<str>, Quantity>;

#[derive(Debug, Clone, Default)]
struct Sums(Exact);

impl Sums {
    fn add(&mut self, other: &Exact) {
        for (name, amount) in other {
            *self.0.entry(name.clone()).or_default() += *amount;
        }
    }

    fn raise(&mut self, other: &Exact) {
        for (name, amount) in other {
            let held = self.0.entry(name.clone()).or_insert(*amount);
            *held = (*held).max(*amount);
        }
    }
}

fn as_map(list: &ResourceList) -> Exact {
    list.iter().map(|(name, amount)| (name.into(), *amount)).collect()
}

fn of_container(pod: &Pod, container: &Container, statuses: &[ContainerStatus], source: Source) -> Exact {
    let spec = &container.resources.requests;
    let reported = statuses.iter().rfind(|status| status.name == container.name);
    match reported.and_then(|status| Some((status, status.resources.as_ref()?))) {
        Some((status, running)) if source == Source::SpecAndStatus => {
            effective(pod, spec, &status.allocated_resources, running)
        }
        _ => as_map(spec),
    }
}

/// The largest of what is asked for, granted and running. A resize that the node can never grant does not
/// count; one that waits does.
fn effective(pod: &Pod, spec: &ResourceList, granted: &ResourceList, running: &Resources) -> Exact {
    let resize = pod.status.condition("PodResizePending");
    let infeasible = resize.is_some_and(|condition| &*condition.reason == "Infeasible");
    let mut largest = Sums(if infeasible { Exact::new() } else { as_map(spec) });
    largest.raise(&as_map(&running.requests));
    largest.raise(&as_map(granted));
    largest.0
}

fn replace_with_pod_level(total: &mut Sums, pod: &Pod, resources: &Resources, source: Source) {
    let reported = pod.status.resources.as_ref().filter(|_| source == Source::SpecAndStatus);
    let granted = &pod.status.allocated_resources;
    let largest = reported.map(|running| effective(pod, &resources.requests, granted, running));
    for (name, amount) in resources.requests.iter().filter(|(name, _)| is_pod_level(name)) {
        let amount = match &largest {
            Some(largest) => largest.get(name).copied().unwrap_or_default(),
            None => *amount,
        };
        total.0.insert(name.into(), amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pod: &str, expected: &[(&str, i64)]) {
        let pod: Pod = serde_json::from_str(pod).unwrap();
        assert_eq!(of_pending(&pod).entries().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn containers_add_up_and_init_containers_set_a_floor() {
        check(
            r#"{"spec":{
                "containers":[{"resources":{"requests":{"cpu":"100m","memory":"1Gi"}}},
                              {"resources":{"requests":{"cpu":"1n"}}}],
                "initContainers":[{"resources":{"requests":{"cpu":"250m"}}},
                                  {"restartPolicy":"Always","resources":{"requests":{"cpu":"50m"}}},
                                  {"resources":{"requests":{"cpu":"300m","example.com/x":"1"}}}],
                "overhead":{"cpu":"1m"}}}"#,
            &[("cpu", 351), ("example.com/x", 1), ("memory", 1 << 30)],
        );
    }

    #[test]
    fn pod_level_amounts_replace_and_overhead_comes_on_top() {
        check(
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"5","example.com/x":"2"}}}],
                "resources":{"requests":{"cpu":"1","example.com/x":"1"}},"overhead":{"cpu":"100m"}}}"#,
            &[("cpu", 1100), ("example.com/x", 2)],
        );
    }

    #[test]
    fn only_counted_resources_are_kept() {
        check(
            r#"{"spec":{"containers":[{"resources":{"requests":
                {"foo":"1","requests.x/y":"1","hugepages-2Mi":"2Mi","kubernetes.io/z":"1","pods":"3"}}}]}}"#,
            &[("hugepages-2Mi", 2 << 20), ("kubernetes.io/z", 1)],
        );
    }
}
