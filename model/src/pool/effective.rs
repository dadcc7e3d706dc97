//! What a node of a pool looks like, before there is one.

use thiserror::Error;

use super::{
    PoolSpec,
    labels::{Labels, Taint},
    template::{Arch, Resources},
};
use crate::{
    NODEPOOL_LABEL, Name,
    catalogue::{Catalogue, MachineType},
    platform::Facts,
};

/// `spot` or `on-demand`: whether the platform may take a node back at any time.
pub const CAPACITY_TYPE_LABEL: &str = "muster.dev/capacity-type";
/// Pods on a node that says nothing else: the default of the kubelet.
const DEFAULT_MAX_PODS: u32 = 110;

/// Where the resources of a [`NodeShape`] come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShapeSource {
    /// `spec.template`.
    Template,
    /// The platform's own block states them.
    Platform,
    Catalogue {
        machine_type: String,
    },
    /// A node that the pool once had.
    Learned,
}

/// A node as the planner imagines it.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeShape {
    pub source: ShapeSource,
    pub capacity: Resources,
    /// What the system keeps of it.
    pub reserved: Resources,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    /// Taints that go away by themselves once the node has started.
    pub startup_taints: Vec<Taint>,
    pub max_pods: u32,
    pub arch: Arch,
    pub os: String,
    /// Zones that the node may be in; empty when the pool does not say.
    pub zones: Vec<String>,
    pub spot: bool,
    /// Millionths of the currency per hour; `None` is unknown, not free.
    pub price_micros: Option<i64>,
}

/// The pool cannot be planned: nothing says what its nodes would be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("nothing says how much {missing} a node of this pool has; set spec.template.capacity{hint}")]
pub struct TemplateIncomplete {
    pub missing: &'static str,
    hint: String,
}

impl PoolSpec {
    /// What a node of the pool called `name` looks like: `spec.template`, else what the platform's block
    /// states, else the catalogue, else `learned`. Fields of `spec.template` always win.
    pub fn node_shape(
        &self,
        name: &Name,
        catalogue: &Catalogue,
        learned: Option<&NodeShape>,
    ) -> Result<NodeShape, TemplateIncomplete> {
        let facts = self.platform.facts();
        let machine_type = self.platform.machine_type();
        let known = machine_type.as_deref().and_then(|wanted| catalogue.get(self.platform.kind, wanted));
        let mut shape = self.base_shape(&facts, known.as_ref(), learned, catalogue);
        self.overlay_template(&mut shape);
        for missing in ["cpu", "memory"] {
            if !shape.capacity.contains_key(missing) {
                let hint = machine_type.map_or_else(String::new, |wanted| {
                    format!(
                        ", or add {wanted} to the catalogue: it is not a known type of {}",
                        self.platform.kind
                    )
                });
                return Err(TemplateIncomplete { missing, hint });
            }
        }
        self.add_labels(&mut shape, name, machine_type.as_deref(), &facts);
        Ok(shape)
    }

    fn base_shape(
        &self,
        facts: &Facts,
        known: Option<&MachineType>,
        learned: Option<&NodeShape>,
        catalogue: &Catalogue,
    ) -> NodeShape {
        let mut shape = NodeShape {
            source: ShapeSource::Template,
            capacity: Resources::new(),
            reserved: Resources::new(),
            labels: Labels::new(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            max_pods: DEFAULT_MAX_PODS,
            arch: Arch::Amd64,
            os: "linux".to_owned(),
            zones: facts.zones.clone(),
            spot: facts.spot,
            price_micros: None,
        };
        if facts.capacity.contains_key("cpu") && facts.capacity.contains_key("memory") {
            shape.source = ShapeSource::Platform;
            shape.capacity.clone_from(&facts.capacity);
        } else if let Some(known) = known {
            shape.source = ShapeSource::Catalogue { machine_type: known.name.clone() };
            shape.capacity = known.capacity(&facts.accelerators);
            shape.arch = known.arch;
            shape.price_micros = catalogue.price_micros(self.platform.kind, known, facts);
        } else if let Some(learned) = learned {
            shape.source = ShapeSource::Learned;
            shape.capacity.clone_from(&learned.capacity);
            shape.reserved.clone_from(&learned.reserved);
            shape.max_pods = learned.max_pods;
            shape.arch = learned.arch;
            shape.os.clone_from(&learned.os);
            shape.price_micros = learned.price_micros;
        }
        shape
    }

    fn overlay_template(&self, shape: &mut NodeShape) {
        let Some(template) = &self.template else { return };
        if let Some(capacity) = &template.capacity {
            if capacity.contains_key("cpu") && capacity.contains_key("memory") {
                shape.source = ShapeSource::Template;
            }
            shape.capacity.extend(capacity.clone());
        }
        if let Some(reserved) = &template.reserved {
            shape.reserved.extend(reserved.clone());
        }
        shape.startup_taints = template.startup_taints.clone().unwrap_or_default();
        shape.max_pods = template.max_pods.unwrap_or(shape.max_pods);
        shape.arch = template.arch.unwrap_or(shape.arch);
        if let Some(os) = &template.os {
            shape.os.clone_from(os);
        }
        shape.price_micros = template.price_micros().or(shape.price_micros);
    }

    fn add_labels(&self, shape: &mut NodeShape, name: &Name, machine_type: Option<&str>, facts: &Facts) {
        let mut labels = Labels::new();
        let mut add = |key: &str, value: &str| labels.insert(key.to_owned(), value.to_owned());
        add("kubernetes.io/arch", shape.arch.as_str());
        add("kubernetes.io/os", &shape.os);
        add(CAPACITY_TYPE_LABEL, if facts.spot { "spot" } else { "on-demand" });
        if let Some(machine_type) = machine_type {
            add("node.kubernetes.io/instance-type", machine_type);
        }
        if let [zone] = &facts.zones[..] {
            add("topology.kubernetes.io/zone", zone);
        }
        labels.extend(self.node_labels());
        labels.insert(NODEPOOL_LABEL.to_owned(), name.to_string());
        shape.labels = labels;
        shape.taints = self.node_taints();
    }
}
