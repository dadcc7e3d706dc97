//! One scheduling cycle for one pod: prepare every filter once, then ask about nodes.

use std::cell::OnceCell;

use muster_model::k8s::Pod;

use super::{
    Plugin, Rejection, Stage, World, declared_features,
    node_affinity::{self, Cut},
    pod_affinity,
    ports::{self, HostPort},
    requests::{self, Amounts},
    resources, spread, taints, volume_binding, volume_limits, volume_restrictions, volume_zone,
};

/// Why a node was refused in a normal cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub plugin: Plugin,
    pub stage: Stage,
    pub rejection: Rejection,
}

/// The filters for one pod, ready to be asked about nodes.
#[derive(Debug)]
pub struct Cycle<'w, 'a> {
    world: &'w World<'a>,
    pod: &'a Pod,
    request: Amounts,
    ports: Vec<HostPort>,
    features: Vec<&'static str>,
    cut: Result<Cut<'a>, Rejection>,
    restrictions: Result<volume_restrictions::State, Rejection>,
    binding: Result<volume_binding::State<'a>, Rejection>,
    zone: Result<volume_zone::State<'a>, Rejection>,
    // Counted over the whole cluster, and only if a node gets that far.
    spread: OnceCell<spread::State<'a>>,
    pod_affinity: OnceCell<pod_affinity::State<'w, 'a>>,
}

impl<'w, 'a> Cycle<'w, 'a> {
    pub fn new(world: &'w World<'a>, pod: &'a Pod) -> Self {
        let storage = world.storage();
        Self {
            world,
            pod,
            request: requests::of_pending(pod),
            ports: ports::of(&pod.spec),
            features: declared_features::needed(&pod.spec),
            cut: node_affinity::cut(&pod.spec),
            restrictions: volume_restrictions::State::new(world, pod),
            binding: volume_binding::State::new(storage, pod),
            zone: volume_zone::State::new(storage, pod),
            spread: OnceCell::new(),
            pod_affinity: OnceCell::new(),
        }
    }

    pub fn request(&self) -> &Amounts {
        &self.request
    }

    /// The rejection of the pod as a whole, before any node is looked at.
    pub fn whole(&self) -> Option<Refusal> {
        let rejections = [
            (Plugin::NodeAffinity, self.cut.as_ref().err()),
            (Plugin::VolumeRestrictions, self.restrictions.as_ref().err()),
            (Plugin::VolumeBinding, self.binding.as_ref().err()),
            (Plugin::VolumeZone, self.zone.as_ref().err()),
        ];
        let (plugin, rejection) =
            rejections.into_iter().find_map(|(plugin, found)| Some((plugin, found?)))?;
        Some(Refusal { plugin, stage: Stage::Before, rejection: rejection.clone() })
    }

    /// What a normal cycle says about a node: nothing if it fits, else the first plugin that refuses it.
    pub fn refusal(&self, node: usize) -> Option<Refusal> {
        if let Some(whole) = self.whole() {
            return Some(whole);
        }
        if self.is_cut(node) {
            let rejection = node_affinity::cut_rejection();
            return Some(Refusal { plugin: Plugin::NodeAffinity, stage: Stage::Before, rejection });
        }
        Plugin::ORDER.into_iter().find_map(|plugin| {
            let rejection = self.alone(plugin, node)?;
            Some(Refusal { plugin, stage: Stage::Filter, rejection })
        })
    }

    /// Whether the pod names the nodes it wants, and this is none of them.
    pub fn is_cut(&self, node: usize) -> bool {
        match &self.cut {
            Ok(Cut::Named(names)) => !names.contains(self.world.node(node).node.name()),
            _ => false,
        }
    }

    /// What `plugin` says about the node if it were the only one.
    pub fn alone(&self, plugin: Plugin, node: usize) -> Option<Rejection> {
        let state = self.world.node(node);
        let (spec, object, storage) = (&self.pod.spec, state.node, self.world.storage());
        let verdict = match plugin {
            Plugin::NodeUnschedulable => taints::check_cordon(&spec.tolerations, object),
            Plugin::NodeName => node_affinity::check_name(spec, object),
            Plugin::TaintToleration => taints::check_taints(&spec.tolerations, object),
            Plugin::NodeAffinity => match &self.cut {
                Err(rejection) => Err(rejection.clone()),
                Ok(_) if self.is_cut(node) => Err(node_affinity::cut_rejection()),
                Ok(_) => node_affinity::check(spec, object),
            },
            Plugin::NodePorts => ports::check(&self.ports, &state.ports),
            Plugin::NodeResourcesFit => resources::check(&self.request, &state.used, &state.capacity),
            Plugin::VolumeRestrictions => {
                prepared(&self.restrictions, |ready| ready.check(self.pod, &state.pods))
            }
            Plugin::NodeVolumeLimits => volume_limits::check(storage, self.pod, object, &state.pods),
            Plugin::VolumeBinding => prepared(&self.binding, |ready| ready.check(storage, object)),
            Plugin::VolumeZone => prepared(&self.zone, |ready| ready.check(object)),
            Plugin::PodTopologySpread => {
                self.spread.get_or_init(|| spread::State::new(self.world, self.pod)).check(object)
            }
            Plugin::InterPodAffinity => {
                self.pod_affinity.get_or_init(|| pod_affinity::State::new(self.world, self.pod)).check(object)
            }
            Plugin::DynamicResources => check_claims_of_devices(self.pod),
            Plugin::NodeDeclaredFeatures => declared_features::check(&self.features, object),
        };
        verdict.err()
    }
}

fn prepared<S>(
    state: &Result<S, Rejection>,
    check: impl FnOnce(&S) -> Result<(), Rejection>,
) -> Result<(), Rejection> {
    match state {
        Ok(ready) => check(ready),
        Err(rejection) => Err(rejection.clone()),
    }
}

/// Device claims are not modelled, so a pod that has them is never said to fit.
fn check_claims_of_devices(pod: &Pod) -> Result<(), Rejection> {
    if pod.spec.resource_claims.is_empty() {
        return Ok(());
    }
    Err(Rejection::unresolvable("pod claims devices (resourceClaims), which cannot be judged yet"))
}
