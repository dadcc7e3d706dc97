//! Creating, replacing, patching and deleting: one compare-and-set transaction each.

use muster_model::{
    Timestamp,
    store::{Committed, Entry, Expect, List, Revision, Txn},
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{
    Registry, RegistryError, Shared,
    idempotency::{IdempotencyKey, Replay},
    keys::{self, Kind},
    noun::{Noun, Stored},
    reports,
};

/// A change that others keep getting in the way of is given up after this many tries. Each try means that
/// another writer succeeded, so the object is changing; the caller had better look again.
const MAX_TRIES: usize = 16;

/// What surrounds a write.
#[derive(Debug, Clone)]
pub struct WriteContext {
    pub actor: String,
    pub now: Timestamp,
    /// Check everything, change nothing.
    pub dry_run: bool,
    pub idempotency: Option<IdempotencyKey>,
}

/// What the caller demands of the object as it stands: present version in, verdict out.
pub type Guard<'a> = &'a (dyn Fn(Revision) -> bool + Send + Sync);

/// Whether a deletion waits for controllers to confirm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    No,
    /// Gone at once; whatever controllers have made is left to people.
    Yes,
}

/// The result of a write.
#[derive(Debug, Clone)]
pub struct Written<N: Noun> {
    pub stored: Stored<N>,
    /// Whether anything changed; an update that says what is there already changes nothing.
    pub changed: bool,
    /// The same request was carried out before; this is what it made then.
    pub replayed: bool,
    pub warnings: Vec<String>,
    pub audit: AuditNote,
}

/// What the audit log is told about a change: digests and paths, never values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditNote {
    pub project: String,
    pub name: String,
    pub revision: Option<u64>,
    pub before: Option<String>,
    pub after: Option<String>,
    pub changed: Vec<String>,
}

/// What a delete did.
#[derive(Debug, Clone)]
pub struct Deleted {
    /// Gone already, or being torn down.
    pub gone: bool,
    pub audit: AuditNote,
}

impl Registry {
    /// Stores a new object. `parent` must exist unchanged until the commit.
    pub async fn create<N: Noun>(
        &self,
        context: &WriteContext,
        object: N,
        parent: Option<(String, Revision)>,
        warnings: Vec<String>,
    ) -> Result<Written<N>, RegistryError> {
        let shared = &self.shared;
        if let Some(key) = &context.idempotency
            && let Some(replay) = Replay::find::<N>(shared, key).await?
        {
            return Ok(Written::replayed(replay));
        }
        let id = object.id();
        let value = encode(&object);
        let (object_key, name_key) = (N::KIND.object(id), object.name_key());
        let mut txn = Txn::new().expect(&object_key, Expect::Absent).expect(&name_key, Expect::Absent);
        if let Some((key, revision)) = &parent {
            txn = txn.expect(key, Expect::Modified(*revision));
        }
        if let Some(key) = &context.idempotency {
            txn = key.record(txn, &value, context.now);
        }
        txn = txn.put(&object_key, value).put(&name_key, id.to_string());
        let companions = txn.compares.len();
        txn = N::companions(txn, None, Some(&object));
        let note = AuditNote::between::<N>(None, Some(&object));
        if context.dry_run {
            self.check_companions::<N>(&txn, &object).await?;
            return self.dry_create(object, &object_key, &name_key, warnings, note).await;
        }
        match shared.store.commit(txn).await? {
            Committed::Done { revision } => {
                shared.caught_up(revision).await;
                Ok(Written::new(Stored::fresh(object, revision), true, warnings, note.at(revision)))
            }
            Committed::Refused { failed: 0, .. } => {
                Err(RegistryError::IdTaken { kind: N::KIND, id: id.to_string() })
            }
            Committed::Refused { failed: 1, .. } => Err(object.name_taken()),
            Committed::Refused { failed: 2, .. } if parent.is_some() => Err(RegistryError::Busy),
            Committed::Refused { failed, .. } if failed >= companions => Err(object.companion_taken()),
            Committed::Refused { .. } => match &context.idempotency {
                // The same request was carried out between our look and our commit.
                Some(key) => {
                    Replay::find::<N>(shared, key).await?.map(Written::replayed).ok_or(RegistryError::Busy)
                }
                None => Err(RegistryError::Busy),
            },
        }
    }

    /// For dry runs: fails when somebody else has what the object wants beside its name.
    async fn check_companions<N: Noun>(&self, txn: &Txn, object: &N) -> Result<(), RegistryError> {
        for compare in txn.compares.iter().filter(|compare| N::is_companion(&compare.key)) {
            let found = self.shared.store.get(&compare.key).await?;
            if !compare.expect.holds(found.as_ref()) {
                return Err(object.companion_taken());
            }
        }
        Ok(())
    }

    async fn dry_create<N: Noun>(
        &self,
        object: N,
        object_key: &str,
        name_key: &str,
        warnings: Vec<String>,
        note: AuditNote,
    ) -> Result<Written<N>, RegistryError> {
        if self.shared.store.get(object_key).await?.is_some() {
            return Err(RegistryError::IdTaken { kind: N::KIND, id: object.id().to_string() });
        }
        if self.shared.store.get(name_key).await?.is_some() {
            return Err(object.name_taken());
        }
        Ok(Written::new(Stored::fresh(object, self.revision()), true, warnings, note))
    }

    /// Puts a new object in the place of `old`, under the same id: nothing of the old one is left, neither its
    /// name nor what was reported on it. [`RegistryError::Busy`] when either it or `parent` changed meanwhile.
    pub async fn take_over<N: Noun>(
        &self,
        context: &WriteContext,
        old: &Stored<N>,
        object: N,
        parent: (String, Revision),
        warnings: Vec<String>,
    ) -> Result<Written<N>, RegistryError> {
        let (id, shared) = (object.id(), &self.shared);
        if let Some(key) = &context.idempotency
            && let Some(replay) = Replay::find::<N>(shared, key).await?
        {
            return Ok(Written::replayed(replay));
        }
        let value = encode(&object);
        let key = N::KIND.object(id);
        let (old_name, new_name) = (old.object.name_key(), object.name_key());
        let mut txn = Txn::new()
            .expect(&key, Expect::Modified(old.version))
            .expect(parent.0, Expect::Modified(parent.1));
        if old_name != new_name {
            txn = txn.expect(&new_name, Expect::Absent).delete(&old_name);
        }
        for report in reports::keys_of(shared, N::KIND, id).await? {
            txn = txn.delete(report);
        }
        txn = txn.put(&new_name, id.to_string()).delete(N::KIND.status(id));
        if let Some(key) = &context.idempotency {
            txn = key.record(txn, &value, context.now);
        }
        txn = txn.put(&key, value);
        let note = AuditNote::between::<N>(None, Some(&object));
        if context.dry_run {
            if old_name != new_name && shared.store.get(&new_name).await?.is_some() {
                return Err(object.name_taken());
            }
            return Ok(Written::new(Stored::fresh(object, self.revision()), true, warnings, note));
        }
        match shared.store.commit(txn).await? {
            Committed::Done { revision } => {
                shared.caught_up(revision).await;
                Ok(Written::new(Stored::fresh(object, revision), true, warnings, note.at(revision)))
            }
            Committed::Refused { failed: 2, .. } if old_name != new_name => Err(object.name_taken()),
            Committed::Refused { .. } => Err(RegistryError::Busy),
        }
    }

    /// Changes an object that the caller may see. `change` gets the object as it stands and returns it as
    /// it should be, with warnings; it may be called again when others change the object meanwhile.
    /// `attach` adds to the transaction what belongs to the change; its comparisons come last.
    pub async fn update<N: Noun>(
        &self,
        context: &WriteContext,
        id: Uuid,
        guard: Guard<'_>,
        change: impl Fn(&Stored<N>) -> Result<(N, Vec<String>), RegistryError>,
        attach: impl Fn(Txn, &N) -> Txn,
    ) -> Result<Written<N>, RegistryError> {
        for _ in 0..MAX_TRIES {
            let stored = self.read::<N>(id).await?.ok_or(RegistryError::NotFound { kind: N::KIND })?;
            let (object, warnings) = change(&stored)?;
            if !guard(stored.version) {
                return Err(RegistryError::Precondition { current: stored.version });
            }
            if stored.object.is_deleting() {
                return Err(RegistryError::Deleting { kind: N::KIND });
            }
            let note = AuditNote::between(Some(&stored.object), Some(&object));
            if object == stored.object {
                return Ok(Written::new(stored, false, warnings, note));
            }
            let (old_name, new_name) = (stored.object.name_key(), object.name_key());
            let renamed = old_name != new_name;
            if context.dry_run {
                if renamed && self.shared.store.get(&new_name).await?.is_some() {
                    return Err(object.name_taken());
                }
                let companions = N::companions(Txn::new(), Some(&stored.object), Some(&object));
                self.check_companions::<N>(&companions, &object).await?;
                return Ok(Written::new(Stored { object, ..stored }, true, warnings, note));
            }
            let key = N::KIND.object(id);
            let mut txn = Txn::new().expect(&key, Expect::Modified(stored.version));
            if renamed {
                txn = txn.expect(&new_name, Expect::Absent).put(&new_name, id.to_string()).delete(&old_name);
            }
            txn = txn.put(&key, encode(&object));
            let (txn, status) =
                reports::restatus(&self.shared, txn, &object, Some(&stored), context.now).await?;
            let txn = attach(txn, &object);
            let companions = txn.compares.len();
            let txn = N::companions(txn, Some(&stored.object), Some(&object));
            match self.shared.store.commit(txn).await? {
                Committed::Done { revision } => {
                    self.shared.caught_up(revision).await;
                    let stored = Stored::changed(object, revision, status, &stored);
                    return Ok(Written::new(stored, true, warnings, note.at(revision)));
                }
                Committed::Refused { failed: 1, .. } if renamed => return Err(object.name_taken()),
                Committed::Refused { failed, .. } if failed >= companions => {
                    return Err(object.companion_taken());
                }
                Committed::Refused { .. } => {}
            }
        }
        Err(RegistryError::Busy)
    }

    /// Deletes an object, or begins to.
    pub async fn delete<N: Noun>(
        &self,
        context: &WriteContext,
        id: Uuid,
        guard: Guard<'_>,
        visible: impl Fn(&Stored<N>) -> bool,
        force: Force,
    ) -> Result<Deleted, RegistryError> {
        for _ in 0..MAX_TRIES {
            let missing = RegistryError::NotFound { kind: N::KIND };
            let Some(stored) = self.read::<N>(id).await? else { return Err(missing) };
            if !visible(&stored) || stored.object.is_deleting() {
                return Err(missing);
            }
            if !guard(stored.version) {
                return Err(RegistryError::Precondition { current: stored.version });
            }
            let note = AuditNote::between(Some(&stored.object), None);
            let held = force == Force::No && reports::held(&self.shared, N::KIND, id, context.now).await?;
            if context.dry_run {
                return Ok(Deleted { gone: !held, audit: note });
            }
            let committed = if held {
                self.mark_deleting(&stored, context.now).await?
            } else {
                remove(&self.shared, &stored).await?
            };
            if let Some(revision) = committed {
                self.shared.caught_up(revision).await;
                return Ok(Deleted { gone: !held, audit: note.at(revision) });
            }
        }
        Err(RegistryError::Busy)
    }

    /// Sets `deleted_at` and phase Deleting; `None` when somebody changed the object meanwhile.
    async fn mark_deleting<N: Noun>(
        &self,
        stored: &Stored<N>,
        now: Timestamp,
    ) -> Result<Option<Revision>, RegistryError> {
        let mut object = stored.object.clone();
        object.set_deleted(Some(now), now);
        let key = N::KIND.object(object.id());
        let txn = Txn::new().expect(&key, Expect::Modified(stored.version)).put(&key, encode(&object));
        let (txn, _) = reports::restatus(&self.shared, txn, &object, Some(stored), now).await?;
        Ok(done(&self.shared.store.commit(txn).await?))
    }

    /// Deletes a cluster: refused while it has pools, unless `cascade` sends them first.
    pub async fn delete_cluster(
        &self,
        context: &WriteContext,
        id: Uuid,
        guard: Guard<'_>,
        visible: impl Fn(&Stored<super::noun::Cluster>) -> bool,
        cascade: bool,
        force: Force,
    ) -> Result<Deleted, RegistryError> {
        use super::noun::{Cluster, NodePool};
        for _ in 0..MAX_TRIES {
            let missing = RegistryError::NotFound { kind: Kind::Cluster };
            let Some(stored) = self.read::<Cluster>(id).await? else { return Err(missing) };
            if !visible(&stored) || stored.object.is_deleting() {
                return Err(missing);
            }
            if !guard(stored.version) {
                return Err(RegistryError::Precondition { current: stored.version });
            }
            let pools = self.pool_names(id).await?;
            if !pools.is_empty() && !cascade {
                return Err(has_pools(&pools));
            }
            let note = AuditNote::between(Some(&stored.object), None);
            if context.dry_run {
                return Ok(Deleted { gone: pools.is_empty(), audit: note });
            }
            // From here on nobody can add a pool: creating one compares the cluster's revision.
            let Some(marked) = self.mark_deleting(&stored, context.now).await? else { continue };
            self.shared.caught_up(marked).await;
            let pools = self.pool_names(id).await?;
            if !pools.is_empty() && !cascade {
                self.unmark(id, marked, &stored, context.now).await?;
                return Err(has_pools(&pools));
            }
            for (_, pool) in &pools {
                let all: Guard<'_> = &|_| true;
                match self.delete::<NodePool>(context, *pool, all, |_| true, force).await {
                    Ok(_) | Err(RegistryError::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            let gone = sweep_cluster(&self.shared, id, force).await?;
            if let Some(revision) = gone {
                self.shared.caught_up(revision).await;
            }
            return Ok(Deleted { gone: gone.is_some(), audit: note.at(gone.unwrap_or(marked)) });
        }
        Err(RegistryError::Busy)
    }

    /// Takes a deletion mark back, after a pool turned up that was created at the same moment.
    async fn unmark<N: Noun>(
        &self,
        id: Uuid,
        marked: Revision,
        stored: &Stored<N>,
        now: Timestamp,
    ) -> Result<(), RegistryError> {
        let key = N::KIND.object(id);
        let txn = Txn::new().expect(&key, Expect::Modified(marked)).put(&key, encode(&stored.object));
        let (txn, _) = reports::restatus(&self.shared, txn, &stored.object, Some(stored), now).await?;
        if let Some(revision) = done(&self.shared.store.commit(txn).await?) {
            self.shared.caught_up(revision).await;
        }
        Ok(())
    }

    /// Names and ids of a cluster's pools, from the store itself.
    async fn pool_names(&self, cluster: Uuid) -> Result<Vec<(String, Uuid)>, RegistryError> {
        pool_names(&self.shared, cluster).await
    }
}

async fn pool_names(shared: &Shared, cluster: Uuid) -> Result<Vec<(String, Uuid)>, RegistryError> {
    let prefix = keys::pool_names(cluster);
    let mut names = Vec::new();
    let read = |entry: &Entry| {
        let id = std::str::from_utf8(&entry.value).ok()?.parse().ok()?;
        Some((entry.key.strip_prefix(&prefix)?.to_owned(), id))
    };
    List::prefix(&prefix).each(&*shared.store, |entry: Entry| names.extend(read(&entry))).await?;
    Ok(names)
}

/// Pools that an error names; the count says how many there are.
const NAMED: usize = 20;

fn has_pools(pools: &[(String, Uuid)]) -> RegistryError {
    let names = pools.iter().take(NAMED).map(|(name, _)| name.clone()).collect();
    RegistryError::HasPools { count: pools.len(), names }
}

/// Removes an object with its name, status and reports; `None` when somebody changed it meanwhile.
pub(super) async fn remove<N: Noun>(
    shared: &Shared,
    stored: &Stored<N>,
) -> Result<Option<Revision>, RegistryError> {
    let id = stored.object.id();
    let key = N::KIND.object(id);
    let mut txn = Txn::new()
        .expect(&key, Expect::Modified(stored.version))
        .delete(&key)
        .delete(stored.object.name_key())
        .delete(N::KIND.status(id));
    for report in reports::keys_of(shared, N::KIND, id).await? {
        txn = txn.delete(report);
    }
    txn = N::companions(txn, Some(&stored.object), None);
    Ok(done(&shared.store.commit(txn).await?))
}

/// Removes a cluster that is being deleted once nothing holds it any more.
pub(super) async fn sweep_cluster(
    shared: &Shared,
    id: Uuid,
    force: Force,
) -> Result<Option<Revision>, RegistryError> {
    let Some(stored) = shared.read::<super::noun::Cluster>(id).await? else { return Ok(None) };
    let now = shared.clock.now();
    if !stored.object.is_deleting()
        || !pool_names(shared, id).await?.is_empty()
        || force == Force::No && reports::held(shared, Kind::Cluster, id, now).await?
    {
        return Ok(None);
    }
    remove(shared, &stored).await
}

/// The revision of a commit that happened.
fn done(committed: &Committed) -> Option<Revision> {
    match committed {
        Committed::Done { revision } => Some(*revision),
        Committed::Refused { .. } => None,
    }
}

pub(super) fn encode<T: serde::Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("stored objects have text keys and finite numbers only")
}

impl<N: Noun> Written<N> {
    fn new(stored: Stored<N>, changed: bool, warnings: Vec<String>, audit: AuditNote) -> Self {
        Self { stored, changed, replayed: false, warnings, audit }
    }

    fn replayed(stored: Stored<N>) -> Self {
        let audit = AuditNote::between(Some(&stored.object), Some(&stored.object));
        Self { stored, changed: false, replayed: true, warnings: Vec::new(), audit }
    }
}

impl AuditNote {
    /// What changed between two states of an object.
    pub(super) fn between<N: Noun>(before: Option<&N>, after: Option<&N>) -> Self {
        let object = after.or(before);
        Self::of(
            object.map(|object| object.project().to_owned()).unwrap_or_default(),
            object.map(|object| object.name().to_owned()).unwrap_or_default(),
            before.map(|object| serde_json::to_value(object).unwrap_or(Value::Null)),
            after.map(|object| serde_json::to_value(object).unwrap_or(Value::Null)),
        )
    }

    /// The same for what is no registry object.
    pub(crate) fn of(project: String, name: String, old: Option<Value>, new: Option<Value>) -> Self {
        let mut changed = Vec::new();
        if let (Some(old), Some(new)) = (&old, &new) {
            paths_between("", old, new, &mut changed);
        }
        Self {
            project,
            name,
            revision: None,
            before: old.as_ref().map(digest),
            after: new.as_ref().map(digest),
            changed,
        }
    }

    pub(crate) fn at(mut self, revision: Revision) -> Self {
        self.revision = Some(revision.0);
        self
    }
}

fn digest(value: &Value) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(value.to_string().as_bytes())))
}

/// Paths that an audit line names.
const MAX_PATHS: usize = 50;

fn paths_between(path: &str, old: &Value, new: &Value, changed: &mut Vec<String>) {
    if old == new || changed.len() >= MAX_PATHS {
        return;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        changed.push(path.to_owned());
        return;
    };
    let missing = Value::Null;
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let (old, new) = (old.get(name).unwrap_or(&missing), new.get(name).unwrap_or(&missing));
        paths_between(&path, old, new, changed);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changed_paths_are_named_without_values() {
        let mut changed = Vec::new();
        let old = json!({"spec": {"nodeCount": 3, "labels": {"a": "1"}, "same": [1, 2]}});
        let new = json!({"spec": {"nodeCount": 5, "labels": {"b": "1"}, "same": [1, 2]}});
        paths_between("", &old, &new, &mut changed);
        assert_eq!(changed, ["spec.labels.a", "spec.labels.b", "spec.nodeCount"]);
    }
}
