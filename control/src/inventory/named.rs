//! Racks and boot profiles: one JSON document each, under its name.

use std::sync::Arc;

use muster_model::{
    FieldErrors, Timestamp,
    field::FieldError,
    host::{BareMetalNodeSpec, BootProfile},
    rack::Rack,
    store::{Committed, Entry, Expect, List, Revision, Txn},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{Inventory, InventoryError, encode, keys::NamedKind};
use crate::registry::{AuditNote, Guard, WriteContext};

/// Tries of a change that others keep getting in the way of.
const MAX_TRIES: usize = 16;

/// A record that is known by its name.
pub trait Named:
    std::fmt::Debug + Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    const KIND: NamedKind;

    fn name(&self) -> &str;
    /// Reads `spec` of a body, with its name put in.
    fn read(value: &Value) -> Result<muster_model::Parsed<Self>, FieldErrors>;
    /// Whether a host's spec refers to it.
    fn is_used_by(&self, spec: &BareMetalNodeSpec) -> bool;
    /// Why a host that refers to it could not keep doing so.
    fn fault_with(&self, spec: &BareMetalNodeSpec) -> Option<String>;
}

impl Named for Rack {
    const KIND: NamedKind = NamedKind::Rack;

    fn name(&self) -> &str {
        &self.name
    }

    fn read(value: &Value) -> Result<muster_model::Parsed<Self>, FieldErrors> {
        Self::read(value, "spec")
    }

    fn is_used_by(&self, spec: &BareMetalNodeSpec) -> bool {
        spec.rack.as_deref() == Some(&self.name)
    }

    fn fault_with(&self, spec: &BareMetalNodeSpec) -> Option<String> {
        self.misplaced(spec)
    }
}

impl Named for BootProfile {
    const KIND: NamedKind = NamedKind::BootProfile;

    fn name(&self) -> &str {
        &self.name
    }

    fn read(value: &Value) -> Result<muster_model::Parsed<Self>, FieldErrors> {
        Self::read(value, "spec")
    }

    fn is_used_by(&self, spec: &BareMetalNodeSpec) -> bool {
        spec.boot_profile.as_deref() == Some(&self.name)
    }

    fn fault_with(&self, _: &BareMetalNodeSpec) -> Option<String> {
        None
    }
}

/// A record as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedStored<T> {
    pub project: String,
    pub created_at: Timestamp,
    pub created_by: String,
    pub updated_at: Timestamp,
    pub spec: T,
    #[serde(skip)]
    pub version: Revision,
}

/// The result of a write.
#[derive(Debug, Clone)]
pub struct NamedWritten<T> {
    pub stored: NamedStored<T>,
    pub changed: bool,
    pub warnings: Vec<String>,
    pub audit: AuditNote,
}

impl<T: Named> NamedStored<T> {
    /// Reads a stored record.
    pub fn of(entry: &Entry) -> Result<Self, InventoryError> {
        let mut stored: Self = serde_json::from_slice(&entry.value)
            .map_err(|source| InventoryError::Damaged { key: entry.key.clone(), source })?;
        stored.version = entry.modified;
        Ok(stored)
    }

    /// The object as the API gives it.
    pub fn to_api(&self) -> Value {
        json!({
            "kind": T::KIND.title(),
            "id": self.spec.name(),
            "name": self.spec.name(),
            "project": self.project,
            "resource_version": self.version.to_string(),
            "created_at": self.created_at,
            "created_by": self.created_by,
            "updated_at": self.updated_at,
            "spec": self.spec,
        })
    }

    fn note(before: Option<&Self>, after: Option<&Self>) -> AuditNote {
        let one = after.or(before);
        let value = |stored: &Self| serde_json::to_value(&stored.spec).unwrap_or_default();
        AuditNote::of(
            one.map(|one| one.project.clone()).unwrap_or_default(),
            one.map(|one| one.spec.name().to_owned()).unwrap_or_default(),
            before.map(value),
            after.map(value),
        )
    }
}

impl Inventory {
    /// One record, from the store.
    pub async fn named<T: Named>(&self, name: &str) -> Result<Option<NamedStored<T>>, InventoryError> {
        let entry = self.shared.store.get(&T::KIND.key(name)).await?;
        entry.as_ref().map(NamedStored::of).transpose()
    }

    /// All records of a kind by name, and the revision they were read at. One that cannot be read is left out.
    pub async fn all_named<T: Named>(&self) -> Result<(Vec<NamedStored<T>>, Revision), InventoryError> {
        let mut found = Vec::new();
        let take = |entry: Entry| match NamedStored::of(&entry) {
            Ok(stored) => found.push(stored),
            Err(error) => tracing::error!(key = entry.key, %error, "a record is left out of lists"),
        };
        let revision = List::prefix(T::KIND.prefix()).each(&*self.shared.store, take).await?;
        Ok((found, revision))
    }

    /// Stores a new record.
    pub async fn create_named<T: Named>(
        &self,
        context: &WriteContext,
        project: &str,
        spec: T,
    ) -> Result<NamedWritten<T>, InventoryError> {
        let taken = InventoryError::Taken { kind: T::KIND.title(), name: spec.name().to_owned() };
        self.check_users(&spec)?;
        let mut stored = NamedStored {
            project: project.to_owned(),
            created_at: context.now,
            created_by: context.actor.clone(),
            updated_at: context.now,
            spec,
            version: Revision::ZERO,
        };
        let note = NamedStored::note(None, Some(&stored));
        let key = T::KIND.key(stored.spec.name());
        if context.dry_run {
            if self.shared.store.get(&key).await?.is_some() {
                return Err(taken);
            }
            return Ok(NamedWritten { stored, changed: true, warnings: Vec::new(), audit: note });
        }
        let txn = Txn::new().expect(&key, Expect::Absent).put(&key, encode(&stored));
        match self.shared.store.commit(txn).await? {
            Committed::Done { revision } => {
                stored.version = revision;
                Ok(NamedWritten { stored, changed: true, warnings: Vec::new(), audit: note.at(revision) })
            }
            Committed::Refused { .. } => Err(taken),
        }
    }

    /// Changes a record.
    pub async fn update_named<T: Named>(
        &self,
        context: &WriteContext,
        name: &str,
        precondition: Guard<'_>,
        change: impl Fn(&NamedStored<T>) -> Result<T, InventoryError>,
    ) -> Result<NamedWritten<T>, InventoryError> {
        for _ in 0..MAX_TRIES {
            let missing = InventoryError::NotFound { kind: T::KIND.title() };
            let Some(before) = self.named::<T>(name).await? else { return Err(missing) };
            let spec = change(&before)?;
            if !precondition(before.version) {
                return Err(InventoryError::Precondition { current: before.version });
            }
            self.check_users(&spec)?;
            let mut after = NamedStored { spec, updated_at: context.now, ..before.clone() };
            let note = NamedStored::note(Some(&before), Some(&after));
            if before.spec == after.spec {
                return Ok(NamedWritten {
                    stored: before,
                    changed: false,
                    warnings: Vec::new(),
                    audit: note,
                });
            }
            if context.dry_run {
                return Ok(NamedWritten { stored: after, changed: true, warnings: Vec::new(), audit: note });
            }
            let key = T::KIND.key(name);
            let txn = Txn::new().expect(&key, Expect::Modified(before.version)).put(&key, encode(&after));
            if let Committed::Done { revision } = self.shared.store.commit(txn).await? {
                after.version = revision;
                let audit = note.at(revision);
                return Ok(NamedWritten { stored: after, changed: true, warnings: Vec::new(), audit });
            }
        }
        Err(InventoryError::Busy)
    }

    /// Deletes a record that no host refers to.
    pub async fn delete_named<T: Named>(
        &self,
        context: &WriteContext,
        name: &str,
        precondition: Guard<'_>,
    ) -> Result<AuditNote, InventoryError> {
        for _ in 0..MAX_TRIES {
            let missing = InventoryError::NotFound { kind: T::KIND.title() };
            let Some(before) = self.named::<T>(name).await? else { return Err(missing) };
            if !precondition(before.version) {
                return Err(InventoryError::Precondition { current: before.version });
            }
            if let Some(users) = self.users(|spec| before.spec.is_used_by(spec)) {
                return Err(InventoryError::InUse { kind: T::KIND.title(), name: name.to_owned(), users });
            }
            let note = NamedStored::note(Some(&before), None);
            if context.dry_run {
                return Ok(note);
            }
            let key = T::KIND.key(name);
            let txn = Txn::new().expect(&key, Expect::Modified(before.version)).delete(&key);
            if let Committed::Done { revision } = self.shared.store.commit(txn).await? {
                return Ok(note.at(revision));
            }
        }
        Err(InventoryError::Busy)
    }

    /// The first hosts whose specs `uses` takes, for a message; `None` without any.
    pub(super) fn users(&self, uses: impl Fn(&BareMetalNodeSpec) -> bool) -> Option<String> {
        const NAMED: usize = 5;
        let index = self.shared.index();
        let names: Vec<&str> = index
            .hosts
            .values()
            .filter(|host| host.readable().is_some_and(|spec| uses(spec)))
            .map(|host| &*host.name)
            .collect();
        let more = names.len().saturating_sub(NAMED);
        let listed = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        match (names.len(), more) {
            (0, _) => None,
            (1, _) => Some(format!("host {listed}")),
            (_, 0) => Some(format!("hosts {listed}")),
            (_, more) => Some(format!("hosts {listed} and {more} more")),
        }
    }

    /// Refuses a change under which hosts that refer to the record would no longer fit.
    fn check_users<T: Named>(&self, spec: &T) -> Result<(), InventoryError> {
        let index = self.shared.index();
        let fault = index
            .accepted()
            .filter(|(_, host)| spec.is_used_by(host))
            .find_map(|(host, used)| Some((Arc::clone(&host.name), spec.fault_with(used)?)));
        fault.map_or(Ok(()), |(host, why)| {
            let fault =
                FieldError::new("spec.units", format!("host {host}: {why}")).hint("move the host first");
            Err(InventoryError::Invalid(FieldErrors::one(fault)))
        })
    }

    /// What a host's spec refers to and is not there: a warning each. To put a host into a place that does not exist is a fault;
    /// one that is there already may still be held, switched and acknowledged.
    pub(super) async fn doubts(
        &self,
        before: Option<&BareMetalNodeSpec>,
        spec: &BareMetalNodeSpec,
    ) -> Result<Vec<String>, InventoryError> {
        let mut doubts = Vec::new();
        if let Some(name) = &spec.rack {
            let place = |spec: &BareMetalNodeSpec| (spec.rack.clone(), spec.slot, spec.height);
            match self.named::<Rack>(name).await {
                Ok(None) => doubts.push(format!("rack {name} is not registered: its limits cannot be kept")),
                Ok(Some(rack)) => match rack.spec.misplaced(spec) {
                    Some(why) if before.is_some_and(|before| place(before) == place(spec)) => {
                        doubts.push(why);
                    }
                    Some(why) => {
                        let fault = FieldError::new("spec.slot", why);
                        return Err(InventoryError::Invalid(FieldErrors::one(fault)));
                    }
                    None => {}
                },
                Err(InventoryError::Damaged { source, .. }) => {
                    doubts.push(format!("rack {name} cannot be read: its limits cannot be kept: {source}"));
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(name) = &spec.boot_profile {
            let missing = match self.named::<BootProfile>(name).await {
                Ok(Some(_)) => None,
                Ok(None) => Some("does not exist".to_owned()),
                Err(InventoryError::Damaged { source, .. }) => Some(format!("cannot be read: {source}")),
                Err(error) => return Err(error),
            };
            let told = |why| format!("boot profile {name} {why}; the host cannot be woken until it is there");
            doubts.extend(missing.map(told));
        }
        let project = spec.project.as_deref().unwrap_or(super::vault::NO_PROJECT);
        let drivers = spec.drivers.iter().filter_map(|driver| driver.credentials.as_ref());
        for name in spec.bmc_credentials.iter().chain(drivers) {
            if self.shared.store.get(&super::keys::credential(project, name)).await?.is_none() {
                doubts.push(format!("credential {name} does not exist in project {project}"));
            }
        }
        Ok(doubts)
    }
}
