//! The node that a template stands for, shown field by field with where each comes from.
//!
//! Whoever makes templates may note their origin in annotations of the template's node; without a note
//! the origin is said to be unknown.

use muster_model::{API_GROUP, k8s::Node};

use super::{
    amount,
    constraint::say_taint,
    scene::{Candidate, Scene},
    types::{TemplateField, TemplateView},
};
use crate::{fit::Amounts, snapshot::Template};

/// The annotation that says where a template's fields come from.
pub fn source_annotation() -> String {
    format!("{API_GROUP}/source")
}

/// The annotation that says where one field comes from, for example `cpu` or `label purpose`.
pub fn field_annotation(field: &str) -> String {
    format!("{API_GROUP}/source.{field}")
}

/// The annotation that names the node from which a template was learned.
pub fn learned_annotation() -> String {
    format!("{API_GROUP}/learned-from")
}

/// The annotation that says when a template was learned.
pub fn learned_at_annotation() -> String {
    format!("{API_GROUP}/learned-at")
}

fn source(node: &Node, field: &str) -> String {
    let annotations = &node.metadata.annotations;
    let own = annotations.text(&field_annotation(field));
    let all = own.or_else(|| annotations.text(&source_annotation()));
    let learned = annotations.text(&learned_annotation()).map(|node| format!("learned from node {node}"));
    all.map(str::to_owned).or(learned).unwrap_or_else(|| "the pool's template, origin not noted".to_owned())
}

/// Why the template may be out of date, if it is.
pub(super) fn stale(scene: &Scene<'_>, template: &Template) -> Option<String> {
    let annotations = &template.node.metadata.annotations;
    let from = annotations.text(&learned_annotation())?;
    if scene.snapshot.cluster.nodes.iter().any(|node| node.name() == from) {
        return None;
    }
    let at = annotations.text(&learned_at_annotation());
    let when = at.map_or_else(|| "at an unknown time".to_owned(), |at| format!("at {at}"));
    Some(format!("learned from node {from} {when}, which is gone"))
}

pub(super) fn view(scene: &Scene<'_>, candidate: &Candidate) -> TemplateView {
    let template = scene.template_of(candidate);
    let node = &candidate.node;
    let mut fields = Vec::new();
    let mut add =
        |name: String, value: String, source: String| fields.push(TemplateField { name, value, source });
    for (name, value) in Amounts::capacity(&node.status.allocatable).entries() {
        add(name.to_owned(), amount::say(name, value), source(node, name));
    }
    for (key, value) in node.metadata.labels.iter().filter(|(key, _)| *key != crate::template::HOSTNAME_LABEL)
    {
        let field = format!("label {key}");
        let fixed = match key {
            crate::template::ZONE_LABEL if scene.offering_of(candidate).is_some_and(|o| o.zone.is_some()) => {
                Some("the offering")
            }
            crate::template::ZONE_LABEL if scene.hosts_of(candidate).next().is_some() => Some("the host"),
            _ => None,
        };
        let source = fixed.map_or_else(|| source(node, &field), str::to_owned);
        add(field, value.to_string(), source);
    }
    for taint in &node.spec.taints {
        add("taint".to_owned(), say_taint(taint), source(node, "taints"));
    }
    let mut taken = Amounts::default();
    for daemon in &candidate.daemons {
        taken.add(&crate::fit::requests::of_bound(daemon));
    }
    let names = candidate.daemons.iter().filter_map(|pod| Some(&*pod.metadata.controller()?.name));
    let names = names.collect::<Vec<_>>().join(", ");
    let daemons = taken.entries().map(|(name, value)| TemplateField {
        name: name.to_owned(),
        value: amount::say(name, value),
        source: format!("daemon sets {names}"),
    });
    TemplateView {
        template: template.name.clone(),
        daemons: daemons.collect(),
        fields,
        stale: stale(scene, template),
    }
}
