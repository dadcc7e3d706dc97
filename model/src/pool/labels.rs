//! Labels and taints of nodes, wherever in a pool they are written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    field::{FieldError, Findings, Object, choice},
    names,
};

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

/// Taints that one pool may carry, as in the peers.
pub const MAX_TAINTS: usize = 50;
/// Labels that one block may carry: a node object has room for far more, a person has not.
pub const MAX_LABELS: usize = 100;

choice! {
    /// What a taint does to pods that do not tolerate it.
    pub enum TaintEffect("a taint effect") {
        NoSchedule = "NoSchedule",
        PreferNoSchedule = "PreferNoSchedule",
        NoExecute = "NoExecute",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Taint {
    pub key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    pub effect: TaintEffect,
}

impl Taint {
    /// The value, where none is the same as an empty one.
    pub fn value(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }
}

/// Who wrote the labels, and so which of them are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelUse {
    /// Muster or a controller will put them on nodes: reserved keys are refused.
    Wanted,
    /// They describe what nodes have anyway (`topology.kubernetes.io/zone`).
    Described,
    /// They choose among hosts.
    Selector,
}

/// Reads and checks a map of labels.
pub fn read_labels(
    object: &mut Object<'_>,
    name: &'static str,
    labels_are: LabelUse,
    findings: &mut Findings,
) -> Option<Labels> {
    let labels = object.string_map(name, findings)?;
    let path = object.at(name);
    if labels.len() > MAX_LABELS {
        findings.push(
            FieldError::new(path, "has too many labels")
                .found_text(&labels.len().to_string())
                .allowed(format!("at most {MAX_LABELS}")),
        );
        return None;
    }
    for (key, value) in &labels {
        check_key(&path, key, findings);
        if labels_are == LabelUse::Wanted
            && let Some(owner) = names::reserved_by(key)
        {
            findings.push(
                FieldError::new(format!("{path}.{key}"), format!("is a label that {owner} sets"))
                    .hint("use a key under a domain of your own"),
            );
        }
        if let Err(error) = names::check_label_value(value) {
            findings.push(
                FieldError::new(format!("{path}.{key}"), format!("is not a label value: it {error}"))
                    .found_text(value)
                    .allowed("up to 63 letters, digits, -, _ and ."),
            );
        }
    }
    Some(labels)
}

fn check_key(path: &str, key: &str, findings: &mut Findings) {
    if let Err(error) = names::check_label_key(key) {
        findings.push(
            FieldError::new(path, format!("has a key that is not valid: it {error}"))
                .found_text(key)
                .allowed("name or example.com/name"),
        );
    }
}

/// Reads and checks a list of taints.
pub fn read_taints(
    object: &mut Object<'_>,
    name: &'static str,
    findings: &mut Findings,
) -> Option<Vec<Taint>> {
    let items = object.list(name, MAX_TAINTS, findings)?;
    let mut taints: Vec<Taint> = Vec::with_capacity(items.len());
    for (path, item) in items {
        if let Some(taint) = read_taint(item, &path, findings) {
            if taints.iter().any(|seen| seen.key == taint.key && seen.effect == taint.effect) {
                findings.push(
                    FieldError::new(path, "repeats the key and effect of an earlier taint").found(item),
                );
            }
            taints.push(taint);
        }
    }
    Some(taints)
}

fn read_taint(item: &Value, path: &str, findings: &mut Findings) -> Option<Taint> {
    let mut object = Object::read(item, path, findings)?;
    let key = object.text("key", 400, findings);
    if key.is_none() && object.get("key").is_none() {
        findings.push(FieldError::new(object.at("key"), "is required"));
    }
    if let Some(key) = key {
        check_key(&object.at("key"), key, findings);
        if let Some(owner) = names::taint_reserved_by(key) {
            findings.push(
                FieldError::new(object.at("key"), format!("is a taint that {owner} sets and removes"))
                    .found_text(key)
                    .hint("use a key under a domain of your own"),
            );
        }
    }
    let value = object.string("value", findings);
    if let Some(text) = value
        && let Err(error) = names::check_label_value(text)
    {
        findings.push(
            FieldError::new(object.at("value"), format!("is not a taint value: it {error}")).found_text(text),
        );
    }
    let effect = object.choice("effect", findings);
    if effect.is_none() && object.get("effect").is_none() {
        findings.push(
            FieldError::new(object.at("effect"), "is required")
                .allowed(<TaintEffect as crate::field::Choice>::words()),
        );
    }
    object.finish(findings);
    Some(Taint { key: key?.to_owned(), value: value.map(str::to_owned), effect: effect? })
}

/// Labels and taints of several blocks, merged; a contradiction between blocks is a fault of the later one.
#[derive(Debug, Default)]
pub struct Merge {
    labels: BTreeMap<String, (String, String)>,
    taints: Vec<(Taint, String)>,
}

impl Merge {
    /// Adds the labels written at `path`.
    pub fn labels(&mut self, path: &str, labels: &Labels, findings: &mut Findings) {
        for (key, value) in labels {
            match self.labels.get(key) {
                Some((other, at)) if other != value => findings.push(
                    FieldError::new(
                        format!("{path}.{key}"),
                        format!("contradicts {at}.{key}, which is {other:?}"),
                    )
                    .found_text(value)
                    .hint("write the label once"),
                ),
                Some(_) => {}
                None => {
                    self.labels.insert(key.clone(), (value.clone(), path.to_owned()));
                }
            }
        }
    }

    /// Adds the taints written at `path`.
    pub fn taints(&mut self, path: &str, taints: &[Taint], findings: &mut Findings) {
        for (index, taint) in taints.iter().enumerate() {
            let same = |(seen, _): &&(Taint, String)| seen.key == taint.key && seen.effect == taint.effect;
            match self.taints.iter().find(same) {
                Some((seen, at)) if seen.value() != taint.value() => findings.push(
                    FieldError::new(
                        format!("{path}[{index}]"),
                        format!(
                            "contradicts {at}, which gives {}:{} the value {:?}",
                            seen.key,
                            seen.effect,
                            seen.value()
                        ),
                    )
                    .found_text(taint.value())
                    .hint("write the taint once"),
                ),
                Some(_) => {}
                None => self.taints.push((taint.clone(), format!("{path}[{index}]"))),
            }
        }
    }

    pub fn finish(self) -> (Labels, Vec<Taint>) {
        let labels = self.labels.into_iter().map(|(key, (value, _))| (key, value)).collect();
        (labels, self.taints.into_iter().map(|(taint, _)| taint).collect())
    }
}
