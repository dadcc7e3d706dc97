//! Where the machines of a pool come from.
//!
//! A platform is one file with one implementation of [`Platform`], one word in [`PlatformKind`] and one line
//! in [`platform`]. Its block is kept as JSON, because a platform may know fields that Muster does not:
//! those are kept and given back, with a warning.

mod aws;
mod azure;
mod baremetal;
mod byoh;
mod gcp;
mod selector;
mod vsphere;
mod zones;

use std::fmt::{self, Debug};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap};
use serde_json::{Map, Value};

pub use selector::{Requirement, Selector, SelectorOperator};

use crate::{
    catalogue::Catalogue,
    field::{Choice, FieldError, Findings, Object, choice},
    pool::{Labels, REDACTED, Resources, Taint},
    suggest,
};

choice! {
    pub enum PlatformKind("a platform") {
        Gcp = "gcp",
        Aws = "aws",
        Azure = "azure",
        Baremetal = "baremetal",
        Byoh = "byoh",
        Vsphere = "vsphere",
    }
}

/// The implementation behind a kind.
pub fn platform(kind: PlatformKind) -> &'static dyn Platform {
    match kind {
        PlatformKind::Gcp => &gcp::Gcp,
        PlatformKind::Aws => &aws::Aws,
        PlatformKind::Azure => &azure::Azure,
        PlatformKind::Baremetal => &baremetal::Baremetal,
        PlatformKind::Byoh => &byoh::Byoh,
        PlatformKind::Vsphere => &vsphere::Vsphere,
    }
}

/// Another name under which a field of a pool's block is accepted: `("rootVolume.size", "diskSize")`.
pub type Alias = (&'static str, &'static str);

/// What a platform knows about its blocks.
pub trait Platform: Sync + Debug {
    /// Names that are accepted besides ours, in the pool's block.
    fn aliases(&self) -> &'static [Alias] {
        &[]
    }

    /// Checks the fields of a pool's block. Members that it does not ask for are kept with a warning.
    fn check_pool(&self, block: &mut Object<'_>, place: &Place<'_>, findings: &mut Findings);

    /// Checks the fields of a cluster's block, likewise.
    fn check_cluster(&self, block: &mut Object<'_>, findings: &mut Findings);

    /// What the planner needs from a pool's block. The block was checked before.
    fn facts(&self, block: &Map<String, Value>) -> Facts;

    /// The machine type of a pool that names none, if the platform itself has such a default.
    fn default_machine_type(&self) -> Option<&'static str> {
        None
    }

    /// Whether a pool says nothing useful without its block.
    fn needs_block(&self) -> bool {
        false
    }

    /// Fields of the pool's block that are hidden from roles that may not see secrets.
    fn secrets(&self) -> &'static [&'static str] {
        &[]
    }
}

/// Where a pool's cluster is, as far as known.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place<'a> {
    /// The region of the cluster's platform block.
    pub region: Option<&'a str>,
}

/// An accelerator that is attached to each node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accelerator {
    pub model: String,
    pub count: u32,
}

/// A pool's block, read for the planner.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facts {
    /// What the catalogue is asked for.
    pub machine_type: Option<String>,
    /// Capacity that can be taken away at any time, at a lower price.
    pub spot: bool,
    pub zones: Vec<String>,
    pub accelerators: Vec<Accelerator>,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    /// Resources that the block itself states, as Kubernetes quantities.
    pub capacity: Resources,
    /// Which hosts or machines may serve; `None` is any.
    pub selector: Option<Selector>,
    /// The pool's name in the inventory, where that is not its own name.
    pub inventory: Option<String>,
    /// The machine template that nodes are made from.
    pub template: Option<String>,
}

/// `platform` of a pool or cluster: a kind and the block of that kind.
#[derive(Clone, PartialEq)]
pub struct PlatformSpec {
    pub kind: PlatformKind,
    /// Kept as sent, under our names.
    pub block: Option<Map<String, Value>>,
}

impl PlatformSpec {
    pub fn facts(&self) -> Facts {
        self.block.as_ref().map_or_else(Facts::default, |block| platform(self.kind).facts(block))
    }

    /// A field of the block.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.block.as_ref()?.get(name)
    }

    /// The machine type of the block, else the platform's default.
    pub fn machine_type(&self) -> Option<String> {
        self.facts().machine_type.or_else(|| platform(self.kind).default_machine_type().map(str::to_owned))
    }

    /// The region that a cluster's block names.
    pub fn region(&self) -> Option<&str> {
        let block = self.block.as_ref()?;
        block.get("region").or_else(|| block.get("location")).and_then(Value::as_str)
    }

    /// Reads `platform` of a pool.
    pub(crate) fn read_pool(
        value: &Value,
        path: &str,
        place: &Place<'_>,
        findings: &mut Findings,
    ) -> Option<Self> {
        let mut spec = read_frame(value, path, findings)?;
        let platform = platform(spec.kind);
        let block_path = format!("{path}.{}", spec.kind);
        if let Some(block) = &mut spec.block {
            for alias in platform.aliases() {
                rename(block, &block_path, *alias, findings);
            }
            let mut object = Object::of(block, block_path.clone());
            platform.check_pool(&mut object, place, findings);
            object.finish_kept(findings);
        } else if platform.needs_block() {
            findings.push(
                FieldError::new(block_path.clone(), "is required")
                    .hint(format!("a {} pool has no defaults; say what its nodes are", spec.kind)),
            );
        }
        if let Some(default) = platform.default_machine_type()
            && spec.facts().machine_type.is_none()
        {
            findings.warn(format!("{block_path} names no machine type; {default} is assumed"));
        }
        if let Some(name) = spec.facts().machine_type {
            warn_of_unknown_type(spec.kind, &name, &block_path, findings);
        }
        Some(spec)
    }

    /// Reads `platform` of a cluster.
    pub(crate) fn read_cluster(value: &Value, path: &str, findings: &mut Findings) -> Option<Self> {
        let spec = read_frame(value, path, findings)?;
        if let Some(block) = &spec.block {
            let mut object = Object::of(block, format!("{path}.{}", spec.kind));
            platform(spec.kind).check_cluster(&mut object, findings);
            object.finish_kept(findings);
        }
        Some(spec)
    }
}

/// A machine type that the catalogue does not know may be new, or a slip of the pen: it is kept, and said.
fn warn_of_unknown_type(kind: PlatformKind, name: &str, path: &str, findings: &mut Findings) {
    let catalogue = Catalogue::shipped();
    if catalogue.get(kind, name).is_some() {
        return;
    }
    let known = catalogue.types(kind).map(|machine| machine.name.as_str());
    let near = suggest::nearest(name, known)
        .map_or_else(|| ".".to_owned(), |near| format!("; did you mean {near}?"));
    findings.warn(format!(
        "{path}: the machine type {name:?} is not in the catalogue{near} Without spec.template its size is not known"
    ));
}

/// `type` and the one block that belongs to it.
fn read_frame(value: &Value, path: &str, findings: &mut Findings) -> Option<PlatformSpec> {
    let mut object = Object::read(value, path, findings)?;
    let kind = read_kind(&mut object, findings);
    let mut block = None;
    let blocks = PlatformKind::ALL.iter().filter_map(|(word, of)| Some((*word, *of, object.get(word)?)));
    for (word, of, value) in blocks.collect::<Vec<_>>() {
        match (kind, value) {
            (Some(kind), _) if kind != of => findings.push(
                FieldError::new(object.at(word), format!("does not belong to a platform of type {kind}"))
                    .hint(format!("remove it, or set {path}.type to {word}")),
            ),
            (_, Value::Object(map)) => block = Some(without_nulls(map)),
            (_, other) => findings.push(FieldError::new(object.at(word), "must be an object").found(other)),
        }
    }
    object.finish(findings);
    Some(PlatformSpec { kind: kind?, block })
}

fn read_kind(object: &mut Object<'_>, findings: &mut Findings) -> Option<PlatformKind> {
    let Some(value) = object.get("type") else {
        findings.push(FieldError::new(object.at("type"), "is required").allowed(PlatformKind::words()));
        return None;
    };
    let word = value.as_str().map(str::to_lowercase);
    let kind = word.as_deref().and_then(PlatformKind::from_word);
    if kind.is_none() {
        let mut error = FieldError::new(object.at("type"), "is not a platform")
            .found(value)
            .allowed(PlatformKind::words());
        let words = PlatformKind::ALL.iter().map(|(word, _)| *word);
        if let Some(near) = word.as_deref().and_then(|word| suggest::nearest(word, words)) {
            error = error.hint(format!("did you mean {near}?"));
        }
        findings.push(error);
    }
    kind
}

/// `null` means the same as leaving a field out, so it is left out.
pub(crate) fn without_nulls(map: &Map<String, Value>) -> Map<String, Value> {
    map.iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Moves `from` (one or two steps deep) to `to`, with a warning; both with different values are a fault.
pub(crate) fn rename(map: &mut Map<String, Value>, path: &str, (from, to): Alias, findings: &mut Findings) {
    let moved = match from.split_once('.') {
        None => map.remove(from),
        Some((outer, inner)) => {
            let Some(Value::Object(nested)) = map.get_mut(outer) else { return };
            let moved = nested.remove(inner);
            if nested.is_empty() && moved.is_some() {
                map.remove(outer);
            }
            moved
        }
    };
    let Some(moved) = moved.filter(|value| !value.is_null()) else { return };
    let (sent, ours) = (format!("{path}.{from}"), format!("{path}.{to}"));
    match map.get(to) {
        Some(present) if *present != moved => findings.push(
            FieldError::new(sent, format!("contradicts {ours}"))
                .found(&moved)
                .hint(format!("both mean the same; write {to} only")),
        ),
        _ => {
            map.insert(to.to_owned(), moved);
            findings.warn(format!("{sent} is read as {ours}"));
            findings.rename(ours, sent);
        }
    }
}

impl Debug for PlatformSpec {
    /// Without secrets: this text ends up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut block = self.block.clone().unwrap_or_default();
        for name in platform(self.kind).secrets() {
            if let Some(value) = block.get_mut(*name) {
                *value = Value::String(REDACTED.to_owned());
            }
        }
        write!(f, "{} {}", self.kind, Value::Object(block))
    }
}

impl Serialize for PlatformSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", &self.kind)?;
        if let Some(block) = &self.block {
            map.serialize_entry(self.kind.as_str(), block)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for PlatformSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut map = Map::deserialize(deserializer)?;
        let word = map.get("type").and_then(Value::as_str).unwrap_or_default();
        let kind = PlatformKind::from_word(word)
            .ok_or_else(|| de::Error::custom(format!("{word:?} is not a platform")))?;
        let block = match map.remove(kind.as_str()) {
            Some(Value::Object(block)) => Some(block),
            _ => None,
        };
        Ok(Self { kind, block })
    }
}

/// A reference to another object: at least its name.
fn check_reference(block: &mut Object<'_>, name: &'static str, findings: &mut Findings) {
    let Some(mut object) = block.object(name, findings) else { return };
    for field in ["apiVersion", "apiGroup", "kind", "namespace"] {
        object.text(field, 253, findings);
    }
    if object.text("name", 253, findings).is_none() && object.get("name").is_none() {
        findings.push(FieldError::new(object.at("name"), "is required"));
    }
    object.finish(findings);
}

/// The string at `name` of a checked block.
fn string_at(block: &Map<String, Value>, name: &str) -> Option<String> {
    block.get(name).and_then(Value::as_str).map(str::to_owned)
}

fn bool_at(block: &Map<String, Value>, name: &str) -> bool {
    block.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn strings_at(block: &Map<String, Value>, name: &str) -> Vec<String> {
    let items = block.get(name).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Anything with a serde form at `name` of a checked block.
fn typed_at<T: de::DeserializeOwned>(block: &Map<String, Value>, name: &str) -> Option<T> {
    block.get(name).and_then(|value| T::deserialize(value).ok())
}
