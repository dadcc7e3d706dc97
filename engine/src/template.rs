//! The node that a template stands for, as it will register.

use std::sync::Arc;

use muster_model::{
    API_GROUP,
    k8s::{CsiNode, Node, ObjectMeta},
};

use crate::snapshot::Template;

pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// The label that says how a node was bought, for example `spot`.
pub fn capacity_type_label() -> String {
    format!("{API_GROUP}/capacity-type")
}

/// A node called `name`: the template's node with its own hostname, its zone and how it was bought. A zone
/// or capacity type that is not given leaves what the template says.
pub fn node(template: &Template, name: &str, zone: Option<&str>, capacity_type: Option<&str>) -> Node {
    let mut node = Node::clone(&template.node);
    node.metadata.name = name.into();
    let labels = &mut node.metadata.labels;
    labels.insert(HOSTNAME_LABEL, name.into());
    if let Some(zone) = zone {
        labels.insert(ZONE_LABEL, zone.into());
    }
    if let Some(capacity_type) = capacity_type {
        labels.insert(&capacity_type_label(), capacity_type.into());
    }
    node
}

/// The storage drivers of such a node, if the template knows them.
pub fn csi_node(template: &Template, name: &str) -> Option<CsiNode> {
    let metadata = ObjectMeta { name: Arc::from(name), ..ObjectMeta::default() };
    Some(CsiNode { metadata, spec: template.csi.clone()? })
}
