//! One host as the index knows it: its records, what is wrong with them, and how the API shows them.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use muster_model::{
    FieldErrors, Timestamp,
    host::{
        BareMetalNodeSpec, BareMetalNodeStatus, HostMetrics, HostOp, Intent, Phase, Registered, State,
        health, keys::HostRecord,
    },
    names,
    status::Health,
    store::{Entry, Revision},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// Why a record is not used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SetAside {
    /// The key whose value is at fault.
    pub key: String,
    pub reason: String,
}

/// Whose a host is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    Project(Arc<str>),
    /// Its record names no project.
    Nobody,
    /// Its record cannot be read, and it is not known whose it was before.
    Unknown,
}

impl Owner {
    fn of(spec: &BareMetalNodeSpec) -> Self {
        spec.project.as_deref().map_or(Self::Nobody, |project| Self::Project(project.into()))
    }

    /// What a record that cannot be used says of its owner all the same.
    fn told(raw: &[u8]) -> Option<Self> {
        let record: Value = serde_json::from_slice(raw).ok()?;
        let project = record.get("project")?.as_str().filter(|name| names::check_dns_label(name).is_ok())?;
        Some(Self::Project(project.into()))
    }
}

/// A spec as it is stored.
#[derive(Debug, Clone)]
pub struct StoredSpec {
    /// Every fault, when the record cannot be used.
    pub spec: Result<Arc<BareMetalNodeSpec>, FieldErrors>,
    pub raw: Bytes,
    pub created: Revision,
    pub version: Revision,
}

/// Figures of a host, read when somebody asks for them: they are written every minute, and asked for seldom.
#[derive(Debug, Clone)]
pub(super) struct StoredMetrics {
    raw: Bytes,
    read: Arc<OnceLock<Result<HostMetrics, String>>>,
}

impl StoredMetrics {
    pub(super) fn new(raw: Bytes) -> Self {
        Self { raw, read: Arc::default() }
    }

    fn read(&self) -> Result<&HostMetrics, &str> {
        let read = || serde_json::from_slice(&self.raw).map_err(|error| error.to_string());
        self.read.get_or_init(read).as_ref().map_err(String::as_str)
    }
}

/// Everything that is stored about one host, but for its events.
#[derive(Debug, Clone)]
pub struct Host {
    pub name: Arc<str>,
    /// `None` when only other records are there: leftovers, or a tool that writes in the wrong order.
    pub spec: Option<StoredSpec>,
    pub status: Option<Arc<BareMetalNodeStatus>>,
    pub op: Option<Arc<HostOp>>,
    pub intent: Option<Arc<Intent>>,
    pub(super) metrics: Option<StoredMetrics>,
    /// Records beside the spec and the figures that cannot be read, by kind.
    unread: Vec<(HostRecord, String)>,
    /// The last commit that touched any of them.
    pub revision: Revision,
    /// Another host that has what only one can have, and why this one yields.
    pub clash: Option<String>,
    /// As the spec says; of one that cannot be read, as far as it can be told.
    owner: Owner,
    text: OnceLock<Bytes>,
}

impl Host {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            spec: None,
            status: None,
            op: None,
            intent: None,
            metrics: None,
            unread: Vec::new(),
            revision: Revision::ZERO,
            clash: None,
            owner: Owner::Unknown,
            text: OnceLock::new(),
        }
    }

    /// Takes in one record; `None` is its deletion.
    pub(super) fn take(&mut self, record: HostRecord, entry: Option<&Entry>, revision: Revision) {
        self.revision = self.revision.max(revision);
        self.text = OnceLock::new();
        self.unread.retain(|(kind, _)| *kind != record);
        let mut fault = None;
        match record {
            HostRecord::Spec => {
                self.spec = entry.map(stored_spec);
                match &self.spec {
                    Some(StoredSpec { spec: Ok(spec), .. }) => self.owner = Owner::of(spec),
                    // What it said before holds where it says nothing that can be understood.
                    Some(StoredSpec { raw, .. }) => {
                        self.owner = Owner::told(raw).unwrap_or_else(|| self.owner.clone());
                    }
                    None => {}
                }
            }
            HostRecord::Status => self.status = decode(entry, &mut fault),
            HostRecord::Op => self.op = decode(entry, &mut fault),
            HostRecord::Intent => self.intent = decode(entry, &mut fault),
            HostRecord::Metrics => {
                self.metrics = entry.map(|entry| StoredMetrics::new(entry.value.clone()));
            }
            HostRecord::Events => {}
        }
        if let Some(why) = fault {
            self.unread.push((record, why));
        }
    }

    pub(super) fn set_clash(&mut self, clash: Option<String>) {
        self.clash = clash;
        self.text = OnceLock::new();
    }

    /// Whether nothing at all is stored any more.
    pub(super) fn is_empty(&self) -> bool {
        self.spec.is_none()
            && self.status.is_none()
            && self.op.is_none()
            && self.intent.is_none()
            && self.metrics.is_none()
            && self.unread.is_empty()
    }

    /// The last figures, if there are any that can be read.
    pub fn metrics(&self) -> Option<&HostMetrics> {
        self.metrics.as_ref()?.read().ok()
    }

    /// Records beside the spec that cannot be read, by kind.
    pub fn unread(&self) -> impl Iterator<Item = (HostRecord, &str)> {
        let figures = self.metrics.as_ref().and_then(|metrics| metrics.read().err());
        let others = self.unread.iter().map(|(record, why)| (*record, why.as_str()));
        others.chain(figures.map(|why| (HostRecord::Metrics, why)))
    }

    /// The spec, if it is in use: it can be read, its name fits, and no other host has a better claim.
    pub fn accepted(&self) -> Option<&Arc<BareMetalNodeSpec>> {
        self.readable().filter(|_| self.set_aside().is_none())
    }

    /// The spec, if it can be read at all.
    pub fn readable(&self) -> Option<&Arc<BareMetalNodeSpec>> {
        self.spec.as_ref()?.spec.as_ref().ok()
    }

    /// The spec, if it may claim what only one host can have: one whose name cannot be used is in nobody's way.
    pub(super) fn claimant(&self) -> Option<&Arc<BareMetalNodeSpec>> {
        self.readable().filter(|_| names::check_dns_label(&self.name).is_ok())
    }

    /// Resource version: the last write of the spec.
    pub fn version(&self) -> Revision {
        self.spec.as_ref().map_or(Revision::ZERO, |spec| spec.version)
    }

    /// Why the host is not used, if so.
    pub fn set_aside(&self) -> Option<SetAside> {
        let aside = |reason: String| {
            let key = muster_model::host::keys::host(&self.name, HostRecord::Spec);
            Some(SetAside { key, reason })
        };
        if let Err(error) = names::check_dns_label(&self.name) {
            return aside(format!("the host's name {}; it must be {}", error.problem, names::DNS_LABEL));
        }
        match &self.spec {
            None => aside("the host has no spec; write one, or delete its other records".to_owned()),
            Some(StoredSpec { spec: Err(faults), .. }) => aside(faults.to_string()),
            Some(_) => self.clash.clone().and_then(aside),
        }
    }

    /// Whose it is, also while its record cannot be read.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The project that it belongs to, where that is known and there is one.
    pub fn project(&self) -> Option<&str> {
        match &self.owner {
            Owner::Project(project) => Some(project),
            Owner::Nobody | Owner::Unknown => None,
        }
    }

    /// Who registered it, also while its record cannot be read.
    pub fn registered(&self) -> Option<Registered> {
        if let Some(spec) = self.readable() {
            return spec.registered.clone();
        }
        let record: Value = serde_json::from_slice(&self.spec.as_ref()?.raw).ok()?;
        serde_json::from_value(record.get("registered")?.clone()).ok()
    }

    pub fn pool(&self) -> Option<&str> {
        self.readable().map(|spec| spec.pool.as_str())
    }

    pub fn is_deleting(&self) -> bool {
        self.readable().is_some_and(|spec| spec.deletion.is_some())
    }

    /// Whether nothing is done to its machine, and nothing runs on it that anybody knows of. A record that cannot be read may
    /// speak of anything.
    pub fn is_at_rest(&self) -> bool {
        let unread = self.unread().any(|(record, _)| record != HostRecord::Metrics);
        let quiet = !unread && self.op.is_none() && self.intent.is_none();
        quiet
            && self
                .status
                .as_ref()
                .is_none_or(|status| matches!(status.phase, Phase::Enrolling | Phase::Idle))
    }

    pub fn health(&self) -> Health {
        if self.set_aside().is_some() { Health::Unhealthy } else { health(self.status.as_deref()) }
    }

    /// The stored status, or that of a host which nobody has looked at.
    pub fn status(&self) -> BareMetalNodeStatus {
        self.status.as_deref().cloned().unwrap_or_else(|| {
            let since = self
                .readable()
                .and_then(|spec| spec.registered.as_ref())
                .map_or(Timestamp::EPOCH, |registered| registered.at);
            let mut status = BareMetalNodeStatus::enrolling(since);
            "nobody has looked at it yet".clone_into(&mut status.reason);
            status
        })
    }

    pub fn state(&self) -> State {
        self.status.as_ref().map_or(State::Off, |status| status.state)
    }

    /// The object as the API gives it, made once.
    pub fn text(&self) -> Bytes {
        self.text
            .get_or_init(|| serde_json::to_vec(&self.to_api()).map(Bytes::from).unwrap_or_default())
            .clone()
    }

    pub fn to_api(&self) -> Value {
        let registered = self.readable().and_then(|spec| spec.registered.as_ref());
        let mut object = json!({
            "kind": "BareMetalNode",
            "id": &*self.name,
            "name": &*self.name,
            "project": self.project(),
            "resource_version": self.version().to_string(),
            "generation": self.version().0,
            "revision": self.revision.to_string(),
            "created_at": registered.map(|registered| registered.at),
            "created_by": registered.map(|registered| registered.by.as_str()),
            "health": self.health(),
            "status": self.status(),
        });
        object["spec"] = match &self.spec {
            Some(StoredSpec { spec: Ok(spec), .. }) => json!(**spec),
            Some(stored) => serde_json::from_slice(&stored.raw).unwrap_or(Value::Null),
            None => Value::Null,
        };
        for (name, value) in [
            ("op", self.op.as_deref().map(|op| json!(op))),
            ("intent", self.intent.as_deref().map(|intent| json!(intent))),
            ("metrics", self.metrics().map(|metrics| json!(metrics))),
            ("set_aside", self.set_aside().map(|aside| json!(aside))),
            ("deletion", self.readable().and_then(|spec| spec.deletion.as_ref()).map(|mark| json!(mark))),
        ] {
            if let Some(value) = value {
                object[name] = value;
            }
        }
        let unread = self.unread().map(|(record, why)| json!({"record": record.as_str(), "reason": why}));
        let unread: Vec<Value> = unread.collect();
        if !unread.is_empty() {
            object["unread"] = unread.into();
        }
        object
    }
}

fn stored_spec(entry: &Entry) -> StoredSpec {
    StoredSpec {
        spec: BareMetalNodeSpec::parse(&entry.value).map(|parsed| Arc::new(parsed.value)),
        raw: entry.value.clone(),
        created: entry.created,
        version: entry.modified,
    }
}

fn decode<T: DeserializeOwned>(entry: Option<&Entry>, fault: &mut Option<String>) -> Option<Arc<T>> {
    match serde_json::from_slice(&entry?.value) {
        Ok(value) => Some(Arc::new(value)),
        Err(error) => {
            *fault = Some(error.to_string());
            None
        }
    }
}
