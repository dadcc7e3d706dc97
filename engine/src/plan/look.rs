//! What of a spec decides where its pod may go. Two specs with one look make one class.
//!
//! Names of containers and of volumes, limits, images of tokens and config maps, grace periods and the like
//! are left out: every pod of a real cluster carries a token volume with a name of its own.

use std::hash::{Hash, Hasher};

use muster_model::k8s::{Container, Pod, PodSpec, VolumeSource};

/// Whether a volume filter reads anything of the volume.
pub(crate) fn concerns(source: &VolumeSource) -> bool {
    !matches!(source, VolumeSource::Other | VolumeSource::EmptyDir { .. } | VolumeSource::HostPath)
}

/// A pod as the filters see it, its labels and namespace apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look<'a> {
    spec: &'a PodSpec,
    /// Set if the pod's own name says which claims it uses.
    name: Option<&'a str>,
    /// Whether the node that it is bound to is part of it.
    placed: bool,
}

impl<'a> Look<'a> {
    pub(crate) fn of(pod: &'a Pod) -> Self {
        let own = |source: &VolumeSource| matches!(source, VolumeSource::Ephemeral { .. });
        let named = pod.spec.volumes.iter().any(|volume| own(&volume.source));
        Self { spec: &pod.spec, name: named.then_some(&*pod.metadata.name), placed: true }
    }

    /// The same, wherever the pod is bound.
    pub(crate) fn anywhere(pod: &'a Pod) -> Self {
        Self { placed: false, ..Self::of(pod) }
    }

    /// Whether the pod's own name is part of what is seen.
    pub(crate) fn is_named(self) -> bool {
        self.name.is_some()
    }

    /// The parts beside containers and volumes.
    fn parts(self) -> impl Hash + Eq + use<'a> {
        let PodSpec {
            node_name,
            node_selector,
            affinity,
            topology_spread_constraints,
            tolerations,
            resources,
            overhead,
            host_network,
            host_users,
            priority,
            resource_claims,
            containers: _,
            init_containers: _,
            volumes: _,
            priority_class_name: _,
            preemption_policy: _,
            runtime_class_name: _,
            scheduler_name: _,
            scheduling_gates: _,
            scheduling_group: _,
            restart_policy: _,
            termination_grace_period_seconds: _,
        } = self.spec;
        let node_name = node_name.as_ref().filter(|_| self.placed);
        let place = (node_name, node_selector, affinity, topology_spread_constraints, tolerations);
        let amounts = (resources.as_ref().map(|resources| &resources.requests), overhead);
        let kind = (*host_network && *host_users == Some(false), priority, resource_claims.is_empty());
        (place, amounts, kind, self.name)
    }

    fn volumes(self) -> impl Iterator<Item = &'a VolumeSource> {
        self.spec.volumes.iter().map(|volume| &volume.source).filter(|source| concerns(source))
    }

    /// Names of ephemeral volumes are part of the names of their claims.
    fn volume_names(self) -> impl Iterator<Item = &'a str> {
        let named = self.name.is_some();
        self.spec
            .volumes
            .iter()
            .filter(move |volume| named && matches!(volume.source, VolumeSource::Ephemeral { .. }))
            .map(|volume| &*volume.name)
    }
}

/// What filters read of a container.
fn container(container: &Container) -> impl Hash + Eq + '_ {
    let Container { resources, ports, restart_policy, restart_policy_rules, name: _ } = container;
    (&resources.requests, ports, restart_policy, restart_policy_rules)
}

impl Hash for Look<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
        for one in self.spec.containers.iter().chain(&self.spec.init_containers) {
            container(one).hash(state);
        }
        for source in self.volumes() {
            source.hash(state);
        }
    }
}

impl PartialEq for Look<'_> {
    fn eq(&self, other: &Self) -> bool {
        if std::ptr::eq(self.spec, other.spec) && self.name == other.name {
            return true;
        }
        let (mine, theirs) = (self.spec, other.spec);
        let containers = |spec: &PodSpec| spec.containers.len();
        containers(mine) == containers(theirs)
            && mine.init_containers.len() == theirs.init_containers.len()
            && mine.containers.iter().map(container).eq(theirs.containers.iter().map(container))
            && mine.init_containers.iter().map(container).eq(theirs.init_containers.iter().map(container))
            && self.parts() == other.parts()
            && self.volumes().eq(other.volumes())
            && self.volume_names().eq(other.volume_names())
    }
}

impl Eq for Look<'_> {}
