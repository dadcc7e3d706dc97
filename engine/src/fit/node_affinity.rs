//! `NodeName` and `NodeAffinity`: which nodes the pod itself asks for.

use std::collections::BTreeSet;

use muster_model::k8s::{Labels, Node, NodeSelector, NodeSelectorTerm, Operator, PodSpec, Requirement};

use super::{Rejection, selector};

/// The only field that node selectors know.
const NAME_FIELD: &str = "metadata.name";

/// Which nodes may be considered at all, decided before any filter runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cut<'a> {
    All,
    Named(BTreeSet<&'a str>),
}

/// The node selector and the required node affinity of a pod, both of which must hold.
pub fn matches(spec: &PodSpec, node: &Node) -> bool {
    let labels = &node.metadata.labels;
    spec.node_selector.iter().all(|(key, value)| labels.text(key) == Some(&**value))
        && required(spec).is_none_or(|required| any_term_matches(required, labels, node.name()))
}

/// The required node affinity, if there is one.
pub fn required(spec: &PodSpec) -> Option<&NodeSelector> {
    spec.affinity.as_ref()?.node_affinity.as_ref()?.required.as_ref()
}

/// Whether one of the terms matches a node with these labels and this name.
pub fn any_term_matches(selector: &NodeSelector, labels: &Labels, name: &str) -> bool {
    selector.node_selector_terms.iter().any(|term| term_matches(term, labels, name))
}

/// An empty term matches nothing, nor does one with a requirement that cannot be evaluated.
pub fn term_matches(term: &NodeSelectorTerm, labels: &Labels, name: &str) -> bool {
    let empty = term.match_expressions.is_empty() && term.match_fields.is_empty();
    let labels_hold = |requirement: &Requirement| {
        selector::is_valid_requirement(requirement) && selector::requirement_holds(requirement, labels)
    };
    !empty
        && term.match_expressions.iter().all(labels_hold)
        && term.match_fields.iter().all(|requirement| field_holds(requirement, name))
}

fn field_holds(requirement: &Requirement, name: &str) -> bool {
    let [value] = &*requirement.values else { return false };
    let found = if &*requirement.key == NAME_FIELD { name } else { "" };
    match requirement.operator {
        Operator::In => found == &**value,
        Operator::NotIn => found != &**value,
        _ => false,
    }
}

/// If every term names nodes, no other node needs to be looked at. Names that contradict each other in
/// every term reject the pod as a whole.
pub fn cut(spec: &PodSpec) -> Result<Cut<'_>, Rejection> {
    let Some(required) = required(spec) else { return Ok(Cut::All) };
    if required.node_selector_terms.is_empty() {
        return Ok(Cut::All);
    }
    let mut names = BTreeSet::new();
    for term in &required.node_selector_terms {
        match named_by(term) {
            Some(named) => names.extend(named),
            None => return Ok(Cut::All),
        }
    }
    if names.is_empty() {
        return Err(Rejection::unresolvable("pod affinity terms conflict"));
    }
    Ok(Cut::Named(names))
}

fn named_by(term: &NodeSelectorTerm) -> Option<BTreeSet<&str>> {
    let naming =
        term.match_fields.iter().filter(|field| &*field.key == NAME_FIELD && field.operator == Operator::In);
    let sets = naming.map(|field| field.values.iter().map(|name| &**name).collect::<BTreeSet<_>>());
    sets.reduce(|common, other| &common & &other)
}

/// What a node that was cut is told.
pub(super) fn cut_rejection() -> Rejection {
    Rejection::unresolvable("node(s) didn't satisfy plugin(s) [NodeAffinity]")
}

pub(super) fn check_name(spec: &PodSpec, node: &Node) -> Result<(), Rejection> {
    match &spec.node_name {
        Some(name) if **name != *node.metadata.name => {
            Err(Rejection::unresolvable("node(s) didn't match the requested node name"))
        }
        _ => Ok(()),
    }
}

pub(super) fn check(spec: &PodSpec, node: &Node) -> Result<(), Rejection> {
    if matches(spec, node) {
        return Ok(());
    }
    Err(Rejection::unresolvable("node(s) didn't match Pod's node affinity/selector"))
}
