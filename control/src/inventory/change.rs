//! Registering, changing and deleting hosts: one transaction each, with everything that follows from it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use muster_model::{
    FieldErrors, Timestamp,
    field::FieldError,
    host::{
        BareMetalNodeSpec, Deletion, DeletionMode, NamedHost, PoolMembers, Registered,
        keys::{self as hosts, HostRecord, PoolRecord},
        unique::{Identifier, identifiers},
    },
    names,
    store::{Committed, Entry, Expect, Revision, Store, StoreError, Txn},
};
use sha2::{Digest, Sha256};

use super::{
    Host, Inventory, InventoryError,
    bulk::{BATCH_HOSTS, BATCH_POOLS},
    encode,
    events::{HostChanges, SpecChange},
    index::Index,
    keys,
};
use crate::registry::{AuditNote, Guard, RegistryError, WriteContext};

/// Tries of a write that others keep getting in the way of.
pub(super) const MAX_TRIES: usize = 16;

/// The result of a write.
#[derive(Debug, Clone)]
pub struct HostWritten {
    pub host: Arc<Host>,
    /// Whether anything changed.
    pub changed: bool,
    pub warnings: Vec<String>,
    pub audit: AuditNote,
}

/// What a delete did.
#[derive(Debug, Clone)]
pub struct HostDeleted {
    /// Gone already; otherwise the host loop brings the machine to rest first.
    pub gone: bool,
    pub audit: AuditNote,
}

/// What a change is called in the host's history, and why it was made.
#[derive(Debug, Clone, Copy)]
pub struct Act<'a> {
    pub verb: &'a str,
    pub reason: Option<&'a str>,
}

impl<'a> Act<'a> {
    pub(super) const POWER: &'static str = "power";

    pub const fn new(verb: &'a str) -> Self {
        Self { verb, reason: None }
    }

    #[must_use]
    pub const fn because(self, reason: &'a str) -> Self {
        Self { reason: Some(reason), ..self }
    }
}

/// What a write says about itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told<'a> {
    pub(super) by: &'a str,
    pub(super) at: Timestamp,
    pub(super) verb: &'a str,
}

/// One change of one host, ready to be put into a transaction.
#[derive(Debug)]
pub(super) struct Edit<'a> {
    pub(super) name: &'a str,
    /// What the store must hold for it.
    pub(super) expect: Expect,
    pub(super) before: Option<Arc<BareMetalNodeSpec>>,
    /// `None` deletes all its records.
    pub(super) after: Option<&'a BareMetalNodeSpec>,
    pub(super) message: String,
}

impl Inventory {
    /// Registers a host.
    pub async fn create(
        &self,
        context: &WriteContext,
        host: &NamedHost,
        warnings: Vec<String>,
    ) -> Result<HostWritten, InventoryError> {
        let mut spec = host.spec.clone();
        // Who does it is known here; what a body says of it is a copy of another record.
        (spec.registered, spec.deletion) =
            (Some(Registered { by: context.actor.clone(), at: context.now }), None);
        check_new_name(&host.name)?;
        let _turn = self.shared.writer.lock().await;
        for _ in 0..MAX_TRIES {
            let guard = self.guard().await?;
            if let Some(written) = self.replayed(context, &host.name).await? {
                return Ok(written);
            }
            if self.shared.index().get(&host.name).is_some() {
                return Err(InventoryError::Taken { kind: "BareMetalNode", name: host.name.clone() });
            }
            self.vet(&[(&host.name, None, &spec)])?;
            spec.check_ways("spec")?;
            let mut told = warnings.clone();
            told.extend(self.doubts(None, &spec).await?);
            let note = note(&host.name, None, Some(&spec));
            if context.dry_run {
                let shown = Arc::new(preview(&host.name, &spec));
                return Ok(HostWritten { host: shown, changed: true, warnings: told, audit: note });
            }
            let edit = Edit {
                name: &host.name,
                expect: Expect::Absent,
                before: None,
                after: Some(&spec),
                message: format!("registered in pool {}", spec.pool),
            };
            let tell = Told { by: &context.actor, at: context.now, verb: "create" };
            let attach = |txn: Txn| match &context.idempotency {
                Some(key) => key.record(txn, &encode(&spec), context.now),
                None => txn,
            };
            if let Some(revision) = self.commit(guard.as_ref(), tell, &[edit], attach).await? {
                let host = self.written(&host.name, &spec, revision);
                return Ok(HostWritten { host, changed: true, warnings: told, audit: note.at(revision) });
            }
        }
        Err(InventoryError::Busy)
    }

    /// The host that the same request registered before, as it is now.
    async fn replayed(
        &self,
        context: &WriteContext,
        name: &str,
    ) -> Result<Option<HostWritten>, InventoryError> {
        let Some(key) = &context.idempotency else { return Ok(None) };
        let made = key.made(&*self.shared.store).await.map_err(|error| match error {
            RegistryError::Store(error) => InventoryError::Store(error),
            RegistryError::Damaged { key, source } => InventoryError::Damaged { key, source },
            _ => InventoryError::IdempotencyMismatch,
        })?;
        let host = made.and_then(|_| self.host(name));
        Ok(host.map(|host| HostWritten {
            host,
            changed: false,
            warnings: Vec::new(),
            audit: AuditNote::default(),
        }))
    }

    /// Changes a spec. `change` gets it as it stands, and may be called again when others change it meanwhile.
    /// `attach` adds to the transaction what belongs to the change.
    pub async fn update(
        &self,
        context: &WriteContext,
        act: Act<'_>,
        name: &str,
        precondition: Guard<'_>,
        change: impl Fn(&Host) -> Result<(BareMetalNodeSpec, Vec<String>), InventoryError>,
        attach: impl Fn(Txn, &BareMetalNodeSpec) -> Txn,
    ) -> Result<HostWritten, InventoryError> {
        let _turn = self.shared.writer.lock().await;
        for _ in 0..MAX_TRIES {
            let guard = self.guard().await?;
            let mut draft = self.draft(context, act, name, precondition, &change)?;
            self.vet(&[(name, draft.before.as_deref(), &draft.spec)])?;
            if !draft.is_change() {
                return Ok(draft.unchanged());
            }
            draft.warnings.extend(self.doubts(draft.before.as_deref(), &draft.spec).await?);
            if context.dry_run {
                return Ok(draft.shown());
            }
            let tell = Told { by: &context.actor, at: context.now, verb: act.verb };
            let attach = |txn: Txn| attach(txn, &draft.spec);
            if let Some(revision) = self.commit(guard.as_ref(), tell, &[draft.edit(act)], attach).await? {
                return Ok(self.kept(draft, revision));
            }
        }
        Err(InventoryError::Busy)
    }

    /// Changes several hosts at one moment, or none of them: hosts that change places for one. `change` gets each as it stands.
    pub async fn update_together(
        &self,
        context: &WriteContext,
        act: Act<'_>,
        names: &[&str],
        change: impl Fn(&Host) -> Result<(BareMetalNodeSpec, Vec<String>), InventoryError>,
    ) -> Result<Vec<HostWritten>, InventoryError> {
        let _turn = self.shared.writer.lock().await;
        for _ in 0..MAX_TRIES {
            let guard = self.guard().await?;
            let draft = |name: &&str| self.draft(context, act, name, &|_| true, &change);
            let mut drafts = names.iter().map(draft).collect::<Result<Vec<_>, _>>()?;
            check_extent(&drafts)?;
            let specs: Vec<_> =
                drafts.iter().map(|one| (&*one.host.name, one.before.as_deref(), &one.spec)).collect();
            self.vet(&specs)?;
            for draft in drafts.iter_mut().filter(|draft| draft.is_change()) {
                draft.warnings.extend(self.doubts(draft.before.as_deref(), &draft.spec).await?);
            }
            if context.dry_run {
                return Ok(drafts.into_iter().map(Draft::shown).collect());
            }
            let edits: Vec<_> =
                drafts.iter().filter(|draft| draft.is_change()).map(|draft| draft.edit(act)).collect();
            if edits.is_empty() {
                return Ok(drafts.into_iter().map(Draft::unchanged).collect());
            }
            let tell = Told { by: &context.actor, at: context.now, verb: act.verb };
            if let Some(revision) = self.commit(guard.as_ref(), tell, &edits, |txn| txn).await? {
                let kept = |draft: Draft| {
                    if draft.is_change() { self.kept(draft, revision) } else { draft.unchanged() }
                };
                return Ok(drafts.into_iter().map(kept).collect());
            }
        }
        Err(InventoryError::Busy)
    }

    /// One change, with everything that can be said of it before it is looked at beside others.
    fn draft(
        &self,
        context: &WriteContext,
        act: Act<'_>,
        name: &str,
        precondition: Guard<'_>,
        change: impl Fn(&Host) -> Result<(BareMetalNodeSpec, Vec<String>), InventoryError>,
    ) -> Result<Draft, InventoryError> {
        let missing = InventoryError::NotFound { kind: "BareMetalNode" };
        let Some(host) = self.host(name) else { return Err(missing) };
        let (mut spec, mut warnings) = change(&host)?;
        if !precondition(host.version()) {
            return Err(InventoryError::Precondition { current: host.version() });
        }
        if host.is_deleting() && spec.deletion.is_some() {
            return Err(InventoryError::Deleting { name: name.to_owned() });
        }
        check_name(name)?;
        let before = host.readable().cloned();
        // Who asks for power asks anew, and may want what was wanted before.
        if act.verb != Act::POWER {
            let wish = before.as_deref().and_then(|before| spec.forget_wish_of(before, context.now));
            warnings.extend(wish);
        }
        // A host that always lacked something may still be held, acknowledged and corrected.
        if before.as_deref().is_none_or(|before| before.check_ways("spec").is_ok()) {
            spec.check_ways("spec")?;
        }
        Ok(Draft { host, before, spec, warnings })
    }

    /// The answer to a change that was stored.
    fn kept(&self, draft: Draft, revision: Revision) -> HostWritten {
        let host = self.written(&draft.host.name, &draft.spec, revision);
        let audit = draft.note().at(revision);
        HostWritten { host, changed: true, warnings: draft.warnings, audit }
    }

    /// A host as it was just stored, whether or not the index has seen that yet: what is stored is never answered by an error
    /// or by what was there before.
    fn written(&self, name: &str, spec: &BareMetalNodeSpec, revision: Revision) -> Arc<Host> {
        let known = self.host(name);
        if let Some(host) = known.as_ref().filter(|host| host.version() >= revision) {
            return Arc::clone(host);
        }
        let mut host = known.map_or_else(|| Host::new(name), |host| Host::clone(&host));
        let created = host.spec.as_ref().map_or(revision, |stored| stored.created);
        let (key, value) = (hosts::host(name, HostRecord::Spec), encode(spec).into());
        host.take(HostRecord::Spec, Some(&Entry { key, value, created, modified: revision }), revision);
        Arc::new(host)
    }

    /// Deletes a host, or marks it so that the host loop does when the machine is ready for it.
    ///
    /// A record that nothing works on (never looked at, or off and idle) is gone at once. One that is set aside while its
    /// machine serves, or may, is left until somebody corrects it: the host loop drains nothing that is set aside, and only force
    /// takes a record away from under its pods.
    pub async fn delete(
        &self,
        context: &WriteContext,
        name: &str,
        precondition: Guard<'_>,
        mode: DeletionMode,
    ) -> Result<HostDeleted, InventoryError> {
        let _turn = self.shared.writer.lock().await;
        for _ in 0..MAX_TRIES {
            let guard = self.guard().await?;
            let missing = InventoryError::NotFound { kind: "BareMetalNode" };
            let Some(host) = self.host(name) else { return Err(missing) };
            if !precondition(host.version()) {
                return Err(InventoryError::Precondition { current: host.version() });
            }
            let before = host.readable().cloned();
            let gone = mode == DeletionMode::Force || host.is_at_rest();
            if let Some(aside) = host.set_aside().filter(|_| !gone) {
                let phase = host.status().phase.to_string();
                return Err(InventoryError::Serving { name: name.to_owned(), phase, why: aside.reason });
            }
            let note = note(name, before.as_deref(), None);
            if context.dry_run {
                return Ok(HostDeleted { gone, audit: note });
            }
            let expect = host.spec.as_ref().map_or(Expect::Absent, |stored| Expect::Modified(stored.version));
            let marked = before.as_deref().cloned().map(|mut spec| {
                spec.deletion = Some(Deletion { mode, by: context.actor.clone(), at: context.now });
                spec
            });
            let after = if gone { None } else { marked.as_ref() };
            let message = match (gone, mode) {
                (true, DeletionMode::Force) => "deleted by force; nothing was done to the machine",
                (true, _) => "deleted; it was at rest",
                (false, DeletionMode::PowerOff) => "to be deleted after its drain and power-off",
                (false, _) => "to be deleted after its drain",
            };
            let edit = Edit { name, expect, before, after, message: message.to_owned() };
            let tell = Told { by: &context.actor, at: context.now, verb: "delete" };
            // The machine must still be as it was looked at: its loop may just have begun something.
            let unchanged = |txn: Txn| if gone { still(txn, &host.name, mode) } else { txn };
            if let Some(revision) = self.commit(guard.as_ref(), tell, &[edit], unchanged).await? {
                return Ok(HostDeleted { gone, audit: note.at(revision) });
            }
        }
        Err(InventoryError::Busy)
    }

    /// The guard as it stands, after the index has seen everything that was written under it.
    pub(super) async fn guard(&self) -> Result<Option<Entry>, InventoryError> {
        if !self.is_live() {
            return Err(InventoryError::Stalled);
        }
        let guard = self.shared.store.get(keys::GUARD).await?;
        if let Some(entry) = &guard
            && !self.shared.caught_up(entry.modified).await
        {
            return Err(InventoryError::Stalled);
        }
        Ok(guard)
    }

    /// Refuses what another host has already. Two that clash as they are may still be held, corrected and deleted; of those
    /// that are changed together, each may take what another gives up.
    fn vet(
        &self,
        hosts: &[(&str, Option<&BareMetalNodeSpec>, &BareMetalNodeSpec)],
    ) -> Result<(), InventoryError> {
        let together: BTreeSet<&str> = hosts.iter().map(|(name, ..)| *name).collect();
        let claims = |kept: bool| {
            hosts.iter().flat_map(move |(name, before, spec)| {
                let held: BTreeSet<_> = before.map(identifiers).unwrap_or_default().into_iter().collect();
                let claims = identifiers(spec).into_iter().filter(move |claim| held.contains(claim) == kept);
                claims.map(move |claim| (*name, claim))
            })
        };
        // What one of them keeps no other may take.
        let mut taken: BTreeMap<(Identifier, String), String> =
            claims(true).map(|(name, claim)| (claim, name.to_owned())).collect();
        for (name, claim) in claims(false) {
            check_claims(&self.shared.index(), name, &together, [claim.clone()], &taken)?;
            taken.insert(claim, name.to_owned());
        }
        Ok(())
    }

    /// Commits edits with everything that follows; `None` when somebody else was faster.
    pub(super) async fn commit(
        &self,
        guard: Option<&Entry>,
        told: Told<'_>,
        edits: &[Edit<'_>],
        attach: impl Fn(Txn) -> Txn,
    ) -> Result<Option<Revision>, InventoryError> {
        let expect = guard.map_or(Expect::Absent, |entry| Expect::Modified(entry.modified));
        let mut txn = Txn::new().expect(keys::GUARD, expect).put(keys::GUARD, encode(&told.by));
        let changes = edits.iter().map(|edit| stored_changes(&*self.shared.store, edit.name));
        let changes = futures::future::try_join_all(changes).await?;
        for (edit, (changes, seen)) in edits.iter().zip(changes) {
            txn = txn.expect(hosts::host(edit.name, HostRecord::Spec), edit.expect);
            txn = txn.expect(keys::changes(edit.name), seen);
            txn = write_edit(txn, told, edit, changes);
        }
        txn = members(txn, &self.shared.index(), edits);
        txn = attach(txn);
        match self.shared.store.commit(txn).await? {
            Committed::Done { revision } => {
                self.shared.caught_up(revision).await;
                Ok(Some(revision))
            }
            Committed::Refused { found, .. } => {
                // The lines about a host are not in the index: there is nothing to wait for.
                let indexed = |entry: &Entry| entry.key == keys::GUARD || entry.key.starts_with(hosts::ROOT);
                if let Some(entry) = found.filter(indexed) {
                    self.shared.caught_up(entry.modified).await;
                }
                Ok(None)
            }
        }
    }

    /// What people and tools did to a host's spec.
    pub async fn changes(&self, name: &str) -> Result<HostChanges, InventoryError> {
        Ok(stored_changes(&*self.shared.store, name).await?.0)
    }
}

/// The lines about a host's spec, and what a transaction has to find where it adds one.
pub(crate) async fn stored_changes(
    store: &dyn Store,
    name: &str,
) -> Result<(HostChanges, Expect), StoreError> {
    let entry = store.get(&keys::changes(name)).await?;
    let expect = entry.as_ref().map_or(Expect::Absent, |entry| Expect::Modified(entry.modified));
    Ok((entry.and_then(|entry| serde_json::from_slice(&entry.value).ok()).unwrap_or_default(), expect))
}

/// Deletes everything that is stored about a host. Every way in which a host goes comes here: what is left behind would be
/// taken for the next host's of that name.
pub(crate) fn forget_host(txn: Txn, name: &str) -> Txn {
    let txn = HostRecord::ALL.into_iter().fold(txn, |txn, record| txn.delete(hosts::host(name, record)));
    txn.delete(hosts::boot_progress(name)).delete(hosts::agent_goodbye(name)).delete(keys::boot_token(name))
}

/// The last line about a host whose records go: without it their end would look like somebody else's doing.
pub(crate) fn tell_end(txn: Txn, name: &str, mut changes: HostChanges, last: SpecChange) -> Txn {
    changes.push(digest(&[]), last);
    txn.put(keys::changes(name), encode(&changes))
}

/// A change that has not been stored.
struct Draft {
    host: Arc<Host>,
    before: Option<Arc<BareMetalNodeSpec>>,
    spec: BareMetalNodeSpec,
    warnings: Vec<String>,
}

impl Draft {
    fn is_change(&self) -> bool {
        self.before.as_deref() != Some(&self.spec)
    }

    fn note(&self) -> AuditNote {
        note(&self.host.name, self.before.as_deref(), Some(&self.spec))
    }

    fn unchanged(self) -> HostWritten {
        let audit = self.note();
        HostWritten { host: self.host, changed: false, warnings: self.warnings, audit }
    }

    /// As a dry run answers.
    fn shown(self) -> HostWritten {
        if !self.is_change() {
            return self.unchanged();
        }
        let (host, audit) = (Arc::new(preview(&self.host.name, &self.spec)), self.note());
        HostWritten { host, changed: true, warnings: self.warnings, audit }
    }

    fn edit(&self, act: Act<'_>) -> Edit<'_> {
        let mut message = describe(self.before.as_deref(), &self.spec);
        if let Some(reason) = act.reason {
            message = format!("{reason} ({message})");
        }
        let expect =
            self.host.spec.as_ref().map_or(Expect::Absent, |stored| Expect::Modified(stored.version));
        Edit { name: &self.host.name, expect, before: self.before.clone(), after: Some(&self.spec), message }
    }
}

/// Refuses more than one transaction takes.
fn check_extent(drafts: &[Draft]) -> Result<(), InventoryError> {
    let before = drafts.iter().filter_map(|draft| draft.before.as_deref());
    let pools: BTreeSet<&str> =
        before.chain(drafts.iter().map(|draft| &draft.spec)).map(|spec| spec.pool.as_str()).collect();
    let found = [("hosts", drafts.len(), BATCH_HOSTS), ("pools", pools.len(), BATCH_POOLS)];
    match found.into_iter().find(|(_, found, most)| found > most) {
        None => Ok(()),
        Some((what, found, most)) => {
            let fault =
                FieldError::new("hosts", format!("concern {found} {what}; {most} change at one moment"));
            Err(InventoryError::Invalid(FieldErrors::one(fault.hint("change them in smaller steps"))))
        }
    }
}

/// Adds one edit, and its line in the host's changes.
fn write_edit(mut txn: Txn, told: Told<'_>, edit: &Edit<'_>, mut changes: HostChanges) -> Txn {
    let spec = edit.after.or(edit.before.as_deref());
    let entry = SpecChange {
        at: told.at,
        by: told.by.to_owned(),
        verb: told.verb.to_owned(),
        message: edit.message.clone(),
        project: spec.map_or_else(|| changes.project(), |spec| spec.project.clone()),
    };
    let Some(value) = edit.after.map(encode) else {
        return tell_end(forget_host(txn, edit.name), edit.name, changes, entry);
    };
    changes.push(digest(&value), entry);
    txn = txn.put(hosts::host(edit.name, HostRecord::Spec), value);
    txn.put(keys::changes(edit.name), encode(&changes))
}

/// Adds comparisons that hold only while the machine is still at rest. By force nothing is compared.
fn still(txn: Txn, name: &str, mode: DeletionMode) -> Txn {
    if mode == DeletionMode::Force {
        return txn;
    }
    [HostRecord::Op, HostRecord::Intent]
        .into_iter()
        .fold(txn, |txn, record| txn.expect(hosts::host(name, record), Expect::Absent))
}

/// Fails when another host has what is claimed. Of `together` the index says what was, and `also` what will be.
pub(super) fn check_claims(
    index: &Index,
    name: &str,
    together: &BTreeSet<&str>,
    claims: impl IntoIterator<Item = (Identifier, String)>,
    also: &BTreeMap<(Identifier, String), String>,
) -> Result<(), InventoryError> {
    for claim in claims {
        let owner = index.owner(&claim, together).or_else(|| also.get(&claim).map(String::as_str));
        if let Some(owner) = owner.filter(|owner| *owner != name) {
            let (by, value) = claim;
            return Err(InventoryError::Clash { by, value, owner: owner.to_owned() });
        }
    }
    Ok(())
}

/// Adds the member lists that follow from the edits.
fn members(mut txn: Txn, index: &Index, edits: &[Edit<'_>]) -> Txn {
    let edited: BTreeSet<&str> = edits.iter().map(|edit| edit.name).collect();
    let mut pools: BTreeSet<&str> = BTreeSet::new();
    for edit in edits {
        pools.extend(edit.before.as_deref().map(|spec| spec.pool.as_str()));
        pools.extend(edit.after.map(|spec| spec.pool.as_str()));
    }
    for pool in pools {
        let mut names = index.members_of(pool, &edited);
        names.extend(
            edits
                .iter()
                .filter(|edit| edit.after.is_some_and(|spec| spec.pool == pool))
                .map(|edit| edit.name.to_owned()),
        );
        let known = index.members.get(pool);
        let key = hosts::pool(pool, PoolRecord::Members);
        let wanted = encode(&PoolMembers(names.iter().cloned().collect()));
        if known.is_some_and(|known| known.value == wanted) {
            continue;
        }
        txn = txn.expect(&key, known.map_or(Expect::Absent, |known| Expect::Modified(known.version)));
        txn = if names.is_empty() { txn.delete(&key) } else { txn.put(&key, wanted) };
    }
    txn
}

/// Names that a path under `/api/v1/hosts` has already: such a host could be neither read nor deleted.
const RESERVED: [&str; 2] = ["bulk", "export"];

pub(super) fn check_new_name(name: &str) -> Result<(), InventoryError> {
    if RESERVED.contains(&name) {
        let fault = FieldError::new("name", format!("is that of /api/v1/hosts/{name}, not of a host"));
        return Err(InventoryError::Invalid(FieldErrors::one(fault.found_text(name).hint("choose another"))));
    }
    check_name(name)
}

fn check_name(name: &str) -> Result<(), InventoryError> {
    names::check_dns_label(name).map_err(|error| {
        let fault = FieldError::new("name", error.problem).found_text(name).allowed(names::DNS_LABEL);
        InventoryError::Invalid(FieldErrors::one(fault))
    })
}

/// A host that is not stored, for answers to dry runs.
fn preview(name: &str, spec: &BareMetalNodeSpec) -> Host {
    let mut host = Host::new(name);
    let entry = Entry {
        key: String::new(),
        value: encode(spec).into(),
        created: Revision::ZERO,
        modified: Revision::ZERO,
    };
    host.take(HostRecord::Spec, Some(&entry), Revision::ZERO);
    host
}

pub(super) fn digest(value: &[u8]) -> String {
    hex::encode(Sha256::digest(value))
}

/// What the audit log is told: digests and paths, never values.
pub(super) fn note(
    name: &str,
    before: Option<&BareMetalNodeSpec>,
    after: Option<&BareMetalNodeSpec>,
) -> AuditNote {
    let project = after.or(before).and_then(|spec| spec.project.clone()).unwrap_or_default();
    AuditNote::of(
        project,
        name.to_owned(),
        before.and_then(|spec| serde_json::to_value(spec).ok()),
        after.and_then(|spec| serde_json::to_value(spec).ok()),
    )
}

/// Fields that changed, with values where they are short: for a host's history.
pub(super) fn describe(before: Option<&BareMetalNodeSpec>, after: &BareMetalNodeSpec) -> String {
    let Some(before) = before else { return "replaced a record that was set aside".to_owned() };
    let members = |spec: &BareMetalNodeSpec| match serde_json::to_value(spec) {
        Ok(serde_json::Value::Object(map)) => map,
        _ => serde_json::Map::new(),
    };
    let (old, new) = (members(before), members(after));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let show = |value: Option<&serde_json::Value>| match value {
        None => "nothing".to_owned(),
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let short = |text: String| if text.chars().count() > 120 { "…".to_owned() } else { text };
    let parts: Vec<String> = names
        .into_iter()
        .filter(|name| old.get(*name) != new.get(*name))
        .map(|name| format!("{name} from {} to {}", short(show(old.get(name))), short(show(new.get(name)))))
        .collect();
    if parts.is_empty() { "nothing changed".to_owned() } else { parts.join("; ") }
}
