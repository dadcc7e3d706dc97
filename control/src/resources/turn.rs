//! One turn: looks at a record and its object, and brings them together. Taking it twice does no harm.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use muster_model::{
    observe::{About, Note},
    resource::{
        MADE_FOR, ObjectKey, REVISION, Resource, ResourceError, ResourceKind, ResourcePort, SPEC_DIGEST,
        defaults, shape, short_digest,
    },
    store::Revision,
};
use serde_json::json;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{
    Namespaces, Reason,
    decide::{Kept, Step, Verdict, decide},
    held::{Held, Refusal, Side, Trouble, Wish},
    mirror::Mirror,
    queue::Work,
    status::{self, Facts},
};

/// Steps of one turn: make or take, then settle. More means that somebody else is at it, too.
const STEPS: usize = 4;

/// What became of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// Something got in the way; it is tried again, sooner or later.
    Again(String),
    /// The rest is another turn.
    Then(Work),
    /// The object says what is wrong; others may put it right without our noticing.
    Refused,
}

/// What turns share.
#[derive(Debug)]
pub(super) struct Turns {
    pub(super) side: Side,
    pub(super) port: Arc<dyn ResourcePort>,
    pub(super) namespaces: Namespaces,
    /// Which store this is.
    pub(super) store: String,
    mirror: Mutex<Mirror>,
    /// For each record, from which revision to which everything was taken from its object.
    taken: Mutex<HashMap<(ResourceKind, String), (Revision, Revision)>>,
}

impl From<ResourceError> for Trouble {
    fn from(error: ResourceError) -> Self {
        Self::Later(error.to_string())
    }
}

impl Turns {
    pub(super) fn new(
        side: Side,
        port: Arc<dyn ResourcePort>,
        namespaces: Namespaces,
        store: String,
    ) -> Self {
        Self { side, port, namespaces, store, mirror: Mutex::default(), taken: Mutex::default() }
    }

    pub(super) fn mirror(&self) -> MutexGuard<'_, Mirror> {
        self.mirror.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an object's news are about.
    pub(super) fn work_of(&self, object: &Resource) -> Work {
        let settled = object.id();
        let marked = object
            .annotation(MADE_FOR)
            .filter(|id| settled.is_none() && self.side.knows(object.kind, id, object.namespace()))
            // A copy that carries another object's mark is not that object.
            .filter(|id| self.mirror().of(object.kind, id).is_some_and(|found| found.key() == object.key()));
        match settled.or(marked) {
            Some(id) => Work::Record(object.kind, id.to_owned()),
            None => Work::Stray(object.key()),
        }
    }

    pub(super) async fn take(&self, work: &Work) -> Outcome {
        let result = match work {
            Work::Record(kind, id) => self.record(*kind, id).await,
            Work::Stray(key) => self.stray(key).await,
        };
        match result {
            Ok(outcome) => outcome,
            Err(Trouble::Later(why)) => Outcome::Again(why),
            Err(Trouble::Refused(refusal)) => Outcome::Again(refusal.message),
        }
    }

    async fn read(&self, kind: ResourceKind, id: &str) -> Result<Option<Held>, Trouble> {
        let named = |cluster: Uuid| {
            let object = self.mirror().of(ResourceKind::Cluster, &cluster.to_string())?;
            Some(object.name().to_owned())
        };
        self.side.read(kind, id, named, self.port.schema(kind)).await
    }

    /// Brings a record and its object together.
    async fn record(&self, kind: ResourceKind, id: &str) -> Result<Outcome, Trouble> {
        for _ in 0..STEPS {
            let held = self.read(kind, id).await?;
            let object = self.mirror().of(kind, id);
            // An object in another namespace only happens to carry the name.
            let object =
                object.filter(|object| held.as_ref().is_none_or(|held| held.project == object.namespace()));
            if let Some(object) = object.as_deref().filter(|object| self.is_foreign(object)) {
                return self.leave(object).await;
            }
            let kept = held.as_ref().map(|held| self.kept(kind, held));
            let step =
                decide(kept, object.as_deref(), |patch| held.as_ref().is_some_and(|held| held.agrees(patch)));
            match (step, &held, object.as_deref()) {
                (Step::MakeObject, Some(held), None) => self.make(kind, held).await?,
                (Step::RemoveObject, None, Some(object)) => {
                    self.remove(object).await?;
                    return Ok(Outcome::Done);
                }
                (Step::DeleteRecord, Some(held), Some(object)) => {
                    match self.side.delete(held, object).await {
                        Ok(()) => {}
                        Err(Trouble::Refused(refusal)) => {
                            let spec = object.spec.clone();
                            self.settle(held, object, spec, &Verdict::Refused(refusal)).await?;
                            return Ok(Outcome::Refused);
                        }
                        Err(later) => return Err(later),
                    }
                }
                (Step::Take { patch }, Some(held), Some(object)) => {
                    match self.side.apply(held, object, &patch).await {
                        Ok(revision) => self.remember(kind, held, revision),
                        Err(Trouble::Refused(refusal)) => {
                            let spec = held.spec.clone();
                            self.settle(held, object, spec, &Verdict::Refused(refusal)).await?;
                            return Ok(Outcome::Done);
                        }
                        Err(later) => return Err(later),
                    }
                }
                (Step::Settle { spec, verdict }, Some(held), Some(object)) => {
                    if let Verdict::Refused(refusal) = &verdict {
                        self.side.refused(held, object, refusal).await;
                    }
                    self.settle(held, object, spec, &verdict).await?;
                    return Ok(Outcome::Done);
                }
                _ => return Ok(Outcome::Done),
            }
        }
        Err(Trouble::Later("it keeps changing".to_owned()))
    }

    fn kept<'h>(&self, kind: ResourceKind, held: &'h Held) -> Kept<'h> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let ours = taken.get(&(kind, held.id.clone())).copied();
        Kept { version: held.version, deleting: held.deleting, spec: &held.spec, ours }
    }

    /// Notes that a change of the store came from the object itself.
    fn remember(&self, kind: ResourceKind, held: &Held, revision: Option<Revision>) {
        let Some(revision) = revision else { return };
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let from =
            taken.get(&(kind, held.id.clone())).filter(|(_, to)| *to == held.version).map(|(from, _)| *from);
        taken.insert((kind, held.id.clone()), (from.unwrap_or(held.version), revision));
    }

    /// Whether another store made it.
    fn is_foreign(&self, object: &Resource) -> bool {
        object.id().is_some() && object.status["store"].as_str().is_some_and(|store| store != self.store)
    }

    /// An object of another store is not touched; only its deletion is not held up.
    async fn leave(&self, object: &Resource) -> Result<Outcome, Trouble> {
        if object.is_deleting() && object.has_finalizer() {
            let mut free = object.clone();
            free.set_finalizer(false);
            self.write(&free).await?;
            return Ok(Outcome::Done);
        }
        let refusal = Refusal::new(
            Reason::OtherStore,
            "another store made this object; point Muster at that store, or delete the object and create it again",
        );
        if !status::says(object, &refusal) {
            let mut told = object.clone();
            let id = object.id();
            let (says, now) = (json!({}), self.side.clock.now());
            let facts =
                Facts { id, version: Revision::ZERO, generation: 0, says: &says, store: &self.store, now };
            let composed = status::compose(facts, object, &Verdict::Refused(refusal.clone()));
            for part in ["conditions", "summary", "message", "seen"] {
                told.status[part] = composed[part].clone();
            }
            self.write_status(&told).await?;
            self.tell(object, &refusal).await;
        }
        Ok(Outcome::Done)
    }

    /// Makes the object of a record.
    async fn make(&self, kind: ResourceKind, held: &Held) -> Result<(), Trouble> {
        let mut key = ObjectKey { kind, namespace: held.project.clone(), name: held.object_name.clone() };
        if let Some(other) = self.mirror().get(&key) {
            if other.id().is_none() {
                return Err(Trouble::Later(format!("{key} exists and has to be settled first")));
            }
            // Names are for good: the one who had this name before keeps it.
            let short: String = held.id.chars().filter(char::is_ascii_hexdigit).rev().take(8).collect();
            key.name = format!("{}-{short}", key.name);
        }
        let mut object = Resource::new(kind, &key.namespace, &key.name, held.spec.clone());
        mark(&mut object, held);
        object.set_finalizer(true);
        let made = match self.port.create(&object).await {
            Err(ResourceError::NoNamespace { namespace, .. }) if self.namespaces == Namespaces::Create => {
                self.port.make_namespace(&namespace).await?;
                self.port.create(&object).await?
            }
            other => other?,
        };
        tracing::info!(object = %key, id = held.id, "made an object");
        self.mirror().put(made);
        Ok(())
    }

    /// Lets an object go whose record is gone.
    async fn remove(&self, object: &Resource) -> Result<(), Trouble> {
        let mut present = object.clone();
        if present.has_finalizer() {
            present.set_finalizer(false);
            match self.port.replace(&present).await {
                Ok(written) => present = written,
                Err(ResourceError::Missing { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !object.is_deleting() {
            self.port.delete(&present).await?;
        }
        tracing::info!(object = %object.key(), "an object went with its record");
        self.mirror().remove(&object.key());
        Ok(())
    }

    /// Makes the object look as it should, writing only what differs.
    async fn settle(
        &self,
        held: &Held,
        object: &Resource,
        spec: serde_json::Value,
        verdict: &Verdict,
    ) -> Result<(), Trouble> {
        let mut wanted = object.clone();
        if !object.is_deleting() {
            wanted.spec = spec;
            mark(&mut wanted, held);
            wanted.set_finalizer(true);
        }
        if let Verdict::Refused(refusal) = verdict
            && !status::says(object, refusal)
        {
            let (reason, why) = (refusal.reason.name(), refusal.message.as_str());
            tracing::warn!(object = %object.key(), reason, why, "an edit was refused");
        }
        let same = shape::canonical(wanted.spec.clone()) == shape::canonical(object.spec.clone());
        let present = if same && wanted.metadata == object.metadata {
            object.clone()
        } else {
            let written = self.write(&wanted).await?;
            if shape::canonical(written.spec.clone()) != shape::canonical(wanted.spec.clone()) {
                tracing::warn!(
                    object = %object.key(),
                    differences = shape::differences(&wanted.spec, &written.spec),
                    "something in the API server changes what is written"
                );
            }
            written
        };
        let facts = Facts {
            id: Some(&held.id),
            version: held.version,
            generation: held.generation,
            says: &held.status,
            store: &self.store,
            now: self.side.clock.now(),
        };
        let status = status::compose(facts, &present, verdict);
        if shape::canonical(present.status.clone()) != status {
            self.write_status(&Resource { status, ..present }).await?;
        }
        if let Verdict::Refused(refusal) = verdict {
            self.tell(object, refusal).await;
        }
        Ok(())
    }

    /// Tells of a refusal, in the words of the condition, who looks at events. Saying it again is for the port to judge: a
    /// condition that stays as it is does not show that somebody has tried once more.
    async fn tell(&self, object: &Resource, refusal: &Refusal) {
        let about = About::Object { key: object.key(), uid: object.uid().to_owned() };
        let (reason, message) = (refusal.reason.name().to_owned(), refusal.message.clone());
        self.port.tell(&Note { about, warning: true, reason, message }).await;
    }

    async fn write(&self, object: &Resource) -> Result<Resource, Trouble> {
        let written = self.port.replace(object).await?;
        self.mirror().put(written.clone());
        Ok(written)
    }

    async fn write_status(&self, object: &Resource) -> Result<(), Trouble> {
        let written = self.port.replace_status(object).await?;
        self.mirror().put(written);
        Ok(())
    }

    /// An object that has no record: somebody made it, and wants one.
    async fn stray(&self, key: &ObjectKey) -> Result<Outcome, Trouble> {
        let Some(object) = self.mirror().get(key) else { return Ok(Outcome::Done) };
        if object.id().is_some() {
            return Ok(Outcome::Done); // settled meanwhile
        }
        if object.is_deleting() {
            if object.has_finalizer() {
                let mut free = Resource::clone(&object);
                free.set_finalizer(false);
                self.write(&free).await?;
            }
            return Ok(Outcome::Done);
        }
        let cluster = self.cluster_of(&object);
        let id = self.record_for(&object, cluster);
        let mut marked = Resource::clone(&object);
        marked.set_annotation(MADE_FOR, &id);
        marked.set_finalizer(true);
        let object = if marked.metadata == object.metadata { marked } else { self.write(&marked).await? };
        if self.side.knows(key.kind, &id, &key.namespace) {
            return Ok(Outcome::Then(Work::Record(key.kind, id)));
        }
        let mut spec = shape::canonical(object.spec.clone());
        defaults::strip(self.port.schema(key.kind), &mut spec);
        let wish = Wish { object: &object, spec, id: derived(&object) };
        match self.side.create(&wish, cluster).await {
            Ok(id) => {
                tracing::info!(object = %key, id, "an object was taken into the store");
                Ok(Outcome::Then(Work::Record(key.kind, id)))
            }
            Err(Trouble::Refused(refusal)) => {
                self.refuse(&object, refusal).await?;
                Ok(Outcome::Refused)
            }
            Err(later) => Err(later),
        }
    }

    /// Says on an object without a record why it has none.
    async fn refuse(&self, object: &Resource, refusal: Refusal) -> Result<(), Trouble> {
        if !status::says(object, &refusal) {
            let (reason, why) = (refusal.reason.name(), refusal.message.as_str());
            tracing::warn!(object = %object.key(), reason, why, "an object was refused");
            let (says, now) = (json!({ "phase": "Refused" }), self.side.clock.now());
            let (id, version, store) = (None, Revision::ZERO, self.store.as_str());
            let facts = Facts { id, version, generation: 0, says: &says, store, now };
            let status = status::compose(facts, object, &Verdict::Refused(refusal.clone()));
            self.write_status(&Resource { status, ..object.clone() }).await?;
        }
        self.tell(object, &refusal).await;
        Ok(())
    }

    /// The cluster that a pool's object names: by the name of its object, else by its own.
    fn cluster_of(&self, object: &Resource) -> Option<Uuid> {
        let name = object.spec.get("cluster")?.as_str()?;
        let key = ObjectKey {
            kind: ResourceKind::Cluster,
            namespace: object.namespace().to_owned(),
            name: name.to_owned(),
        };
        let by_object = self.mirror().get(&key).and_then(|cluster| cluster.id()?.parse().ok());
        by_object.or_else(|| self.side.cluster_named(object.namespace(), name))
    }

    /// The record that an object is for: the one that it would have been made for under its name, else one of its own.
    fn record_for(&self, object: &Resource, cluster: Option<Uuid>) -> String {
        let existing = match object.kind {
            ResourceKind::BareMetalNode => return object.name().to_owned(),
            ResourceKind::Cluster => self.side.cluster_named(object.namespace(), object.name()),
            ResourceKind::NodePool => {
                let named = object.spec.get("cluster").and_then(|name| name.as_str()).unwrap_or_default();
                let pool = object.name().strip_prefix(named).and_then(|rest| rest.strip_prefix('.'));
                cluster.zip(pool).and_then(|(cluster, pool)| self.side.pool_named(cluster, pool))
            }
        };
        let free = existing.map(|id| id.to_string()).filter(|id| {
            let taken = self.mirror().of(object.kind, id);
            taken.is_none_or(|found| found.key() == object.key())
        });
        free.unwrap_or_else(|| derived(object).to_string())
    }
}

/// The id of the record that an object gets: it follows from the object, so that whoever tries again finds it.
fn derived(object: &Resource) -> Uuid {
    let whole = Sha256::digest(format!("muster.dev/{}/{}", object.kind.plural(), object.uid()));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&whole[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// Notes on an object what it was made from.
fn mark(object: &mut Resource, held: &Held) {
    let digest = short_digest(&object.spec);
    object.set_annotation(REVISION, &held.version.to_string());
    object.set_annotation(SPEC_DIGEST, &digest);
    object.set_annotation(MADE_FOR, &held.id);
}
