//! `spec` of a pool: read strictly, kept as sent, with accessors for what is in effect.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    autoscaling::{Autoscaling, Bounds, MAX_NODES},
    labels::{LabelUse, Labels, Merge, Taint, read_labels, read_taints},
    management::Management,
    template::Template,
};
use crate::{
    Timestamp,
    field::{FieldError, Findings, Object, choice},
    platform::{Alias, Place, PlatformKind, PlatformSpec, platform, rename, without_nulls},
};

choice! {
    /// Whether decisions are carried out.
    pub enum Mode("a mode") {
        /// Decisions are recorded and shown; nothing acts.
        Advise = "advise",
        Active = "active",
    }
}

/// The software that nodes run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel_group: Option<String>,
}

impl Release {
    pub(crate) fn read(o: &mut Object<'_>, findings: &mut Findings) -> Option<Self> {
        let mut object = o.object("release", findings)?;
        let image = object.text("image", 500, findings).map(str::to_owned);
        let version = object.text("version", 100, findings).map(str::to_owned);
        let channel_group: Option<ChannelGroup> = object.choice("channelGroup", findings);
        object.finish(findings);
        Some(Self { image, version, channel_group: channel_group.map(|group| group.to_string()) })
    }
}

choice! {
    enum ChannelGroup("a channel group") {
        Stable = "stable",
        Fast = "fast",
        Candidate = "candidate",
        Eus = "eus",
    }
}

/// As sent, under the names of this API. Defaults are not written into it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolSpec {
    pub platform: PlatformSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<Autoscaling>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<Taint>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub management: Option<Management>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
}

/// Other names under which fields are accepted.
const ALIASES: [Alias; 2] = [("replicas", "nodeCount"), ("nodeDrainTimeout", "management.nodeDrainTimeout")];
const MANAGEMENT_ALIASES: [Alias; 3] = [
    ("replace.strategy", "strategy"),
    ("rollingUpdate.maxSurge", "maxSurge"),
    ("rollingUpdate.maxUnavailable", "maxUnavailable"),
];

/// See [`PoolSpec::initial_nodes`].
pub(super) fn initial_nodes(autoscaling: Option<&Autoscaling>, node_count: Option<u32>) -> u32 {
    match autoscaling {
        Some(block) if block.enabled() => node_count.unwrap_or_else(|| block.min_nodes()),
        _ => node_count.unwrap_or(0),
    }
}

impl PoolSpec {
    /// Whether the autoscaler owns the size.
    pub fn is_autoscaled(&self) -> bool {
        self.autoscaling.as_ref().is_some_and(Autoscaling::enabled)
    }

    /// The bounds of the size at `now`; without autoscaling it is held at `nodeCount`.
    pub fn bounds_at(&self, now: Timestamp) -> Bounds {
        match &self.autoscaling {
            Some(block) if block.enabled() => block.bounds_at(now),
            _ => {
                let nodes = self.node_count.unwrap_or(0);
                Bounds { min: nodes, max: nodes, schedules: Vec::new() }
            }
        }
    }

    /// The size of a pool that nobody has sized yet: `nodeCount`, else the minimum.
    pub fn initial_nodes(&self) -> u32 {
        initial_nodes(self.autoscaling.as_ref(), self.node_count)
    }

    /// The target after this spec replaced `old`, of which `desired` nodes were wanted.
    ///
    /// A changed `nodeCount` resets the target. Otherwise an autoscaled pool keeps its target within the
    /// new bounds, and a pool that is not autoscaled goes to its `nodeCount`.
    pub fn desired_after(&self, old: &Self, desired: u32) -> u32 {
        match &self.autoscaling {
            Some(block) if block.enabled() => {
                let (min, max) = block.widest_bounds();
                match self.node_count {
                    Some(nodes) if old.node_count != Some(nodes) => nodes,
                    _ => desired.clamp(min, max.max(min)),
                }
            }
            _ => self.node_count.unwrap_or(0),
        }
    }

    /// All labels that a node of this pool gets, from every block.
    pub fn node_labels(&self) -> Labels {
        self.merged(&mut Findings::new()).0
    }

    /// All taints that a node of this pool gets, from every block.
    pub fn node_taints(&self) -> Vec<Taint> {
        self.merged(&mut Findings::new()).1
    }

    fn merged(&self, findings: &mut Findings) -> (Labels, Vec<Taint>) {
        let facts = self.platform.facts();
        let block = format!("spec.platform.{}", self.platform.kind);
        let mut merge = Merge::default();
        if let Some(labels) = &self.labels {
            merge.labels("spec.labels", labels, findings);
        }
        merge.labels(&format!("{block}.labels"), &facts.labels, findings);
        if let Some(labels) = self.template.as_ref().and_then(|template| template.labels.as_ref()) {
            merge.labels("spec.template.labels", labels, findings);
        }
        if let Some(taints) = &self.taints {
            merge.taints("spec.taints", taints, findings);
        }
        merge.taints(&format!("{block}.taints"), &facts.taints, findings);
        if let Some(taints) = self.template.as_ref().and_then(|template| template.taints.as_ref()) {
            merge.taints("spec.template.taints", taints, findings);
        }
        merge.finish()
    }

    /// Reads and checks `spec`.
    pub(super) fn read(value: &Value, place: &Place<'_>, findings: &mut Findings) -> Option<Self> {
        let Value::Object(sent) = value else {
            findings.push(FieldError::new("spec", "must be an object").found(value));
            return None;
        };
        let ours = Value::Object(with_our_names(sent, findings));
        let mut object = Object::read(&ours, "spec", findings)?;
        let o = &mut object;
        let platform = o
            .required("platform", "{\"type\": \"gcp\", \"gcp\": {…}}", findings)
            .and_then(|value| PlatformSpec::read_pool(value, "spec.platform", place, findings));
        let autoscaling =
            o.get("autoscaling").and_then(|v| Autoscaling::read(v, "spec.autoscaling", findings));
        let node_count = o.count("nodeCount", 0..=MAX_NODES, findings);
        let labels = read_labels(o, "labels", LabelUse::Wanted, findings);
        let taints = read_taints(o, "taints", findings);
        let template = o.get("template").and_then(|v| Template::read(v, "spec.template", findings));
        let management = o.get("management").and_then(|v| Management::read(v, "spec.management", findings));
        let mode = o.choice("mode", findings);
        let release = Release::read(o, findings);
        object.finish(findings);
        let spec = Self {
            platform: platform?,
            autoscaling,
            node_count,
            labels,
            taints,
            template,
            management,
            mode,
            release,
        };
        spec.check(findings);
        Some(spec)
    }

    /// Rules between blocks.
    fn check(&self, findings: &mut Findings) {
        let _ = self.merged(findings);
        let (Some(nodes), Some(block)) = (self.node_count, &self.autoscaling) else { return };
        if !block.enabled() {
            return;
        }
        let (min, max) = (block.min_nodes(), block.max_nodes.unwrap_or(MAX_NODES));
        if max < min {
            return; // no number fits bounds that contradict each other, and that was said about them
        }
        let problem = if nodes < min {
            format!("must not be below autoscaling.minNodes, which is {min}")
        } else if nodes > max {
            format!("must not be above autoscaling.maxNodes, which is {max}")
        } else {
            return;
        };
        findings.push(
            FieldError::new("spec.nodeCount", problem)
                .found(&nodes.into())
                .allowed(format!("{min} to {max}")),
        );
    }

    /// What may not change after creation.
    pub(super) fn check_replaces(&self, old: &Self, findings: &mut Findings) {
        if self.platform.kind != old.platform.kind {
            findings.push(
                FieldError::new(
                    "spec.platform.type",
                    format!("cannot be changed, it is {}", old.platform.kind),
                )
                .found_text(self.platform.kind.as_str())
                .hint("create another pool and delete this one"),
            );
        }
    }

    /// Hides what only some roles may see.
    pub(super) fn redact(&mut self) {
        let secrets = platform(self.platform.kind).secrets();
        if let Some(block) = &mut self.platform.block {
            for name in secrets {
                if let Some(value) = block.get_mut(*name) {
                    *value = Value::String(REDACTED.to_owned());
                }
            }
        }
    }

    /// Whether [`Self::redact`] would change anything.
    pub(super) fn has_secrets(&self) -> bool {
        let secrets = platform(self.platform.kind).secrets();
        self.platform.block.as_ref().is_some_and(|block| secrets.iter().any(|name| block.contains_key(*name)))
    }

    /// Puts secrets of `old` where a redacted text was sent back.
    pub(super) fn restore_secrets(&mut self, old: Option<&Self>, findings: &mut Findings) {
        let kind = self.platform.kind;
        let Some(block) = &mut self.platform.block else { return };
        for name in platform(kind).secrets() {
            if block.get(*name).and_then(Value::as_str) != Some(REDACTED) {
                continue;
            }
            match secret_of(old, kind, name) {
                Some(secret) => {
                    block.insert((*name).to_owned(), secret.clone());
                }
                None => findings.push(
                    FieldError::new(
                        format!("spec.platform.{kind}.{name}"),
                        "holds the text that stands for a hidden value",
                    )
                    .hint("send the value itself"),
                ),
            }
        }
    }
}

fn secret_of<'s>(old: Option<&'s PoolSpec>, kind: PlatformKind, name: &str) -> Option<&'s Value> {
    let old = old.filter(|old| old.platform.kind == kind)?;
    old.platform.block.as_ref()?.get(name)
}

/// What stands in place of a secret that the reader may not see.
pub const REDACTED: &str = "(redacted)";

/// Moves fields that were sent under other names.
fn with_our_names(sent: &Map<String, Value>, findings: &mut Findings) -> Map<String, Value> {
    let mut spec = without_nulls(sent);
    for (from, to) in ALIASES {
        match to.split_once('.') {
            None => rename(&mut spec, "spec", (from, to), findings),
            Some((outer, inner)) => {
                let Some(moved) = spec.remove(from) else { continue };
                let block = spec.entry(outer).or_insert_with(|| Value::Object(Map::new()));
                let Value::Object(block) = block else {
                    spec.insert(from.to_owned(), moved);
                    continue;
                };
                let path = format!("spec.{outer}.{inner}");
                if block.get(inner).is_some_and(|present| *present != moved && !present.is_null()) {
                    findings.push(
                        FieldError::new(format!("spec.{from}"), format!("contradicts {path}"))
                            .found(&moved)
                            .hint(format!("both mean the same; write {path} only")),
                    );
                    continue;
                }
                block.insert(inner.to_owned(), moved);
                findings.warn(format!("spec.{from} is read as {path}"));
                findings.rename(path, format!("spec.{from}"));
            }
        }
    }
    if let Some(Value::Object(management)) = spec.get_mut("management") {
        let nested = management.get_mut("replace").and_then(Value::as_object_mut);
        if let Some(rolling) = nested.and_then(|replace| replace.remove("rollingUpdate")) {
            management.insert("rollingUpdate".to_owned(), rolling);
        }
        for alias in MANAGEMENT_ALIASES {
            rename(management, "spec.management", alias, findings);
        }
        for outer in ["replace", "rollingUpdate"] {
            if management.get(outer).and_then(Value::as_object).is_some_and(Map::is_empty) {
                management.remove(outer);
            }
        }
    }
    spec
}
