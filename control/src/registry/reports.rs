//! Reports of controllers, and the status that follows from them.

use muster_model::{
    Timestamp,
    condition::ConditionStatus,
    field::{FieldError, FieldErrors},
    report::{Report, ReportContext, ReportError},
    status::AggregateConfig,
    store::{Committed, Entry, Expect, List, Txn},
};
use uuid::Uuid;

use super::{
    Registry, RegistryError, Shared,
    keys::Kind,
    noun::{Noun, StatusRecord, Stored},
    write::{self, AuditNote, WriteContext, Written},
};

/// Compare-and-set tries of one report. Controllers of one object meet rarely, and each try means that
/// another one got through.
const MAX_TRIES: usize = 32;

/// Controllers that may report on one object: their reports must fit into the transaction that deletes it.
const MAX_CONTROLLERS: usize = 100;

/// An object's status with everything it follows from.
#[derive(Debug, Clone)]
pub struct ObjectStatus<N: Noun> {
    pub stored: Stored<N>,
    /// By the controller's name.
    pub reports: Vec<Report>,
}

impl Registry {
    /// The status of an object and the reports behind it.
    pub async fn status<N: Noun>(&self, id: Uuid) -> Result<ObjectStatus<N>, RegistryError> {
        let stored = self.read::<N>(id).await?.ok_or(RegistryError::NotFound { kind: N::KIND })?;
        let reports = read_reports(&self.shared, N::KIND, id).await?;
        Ok(ObjectStatus { stored, reports })
    }

    /// Stores a controller's report and the status that follows from it, in one transaction.
    ///
    /// `admit` may refuse: it is told the object's project and the controller's name.
    pub async fn report<N: Noun, E: From<RegistryError>>(
        &self,
        context: &WriteContext,
        id: Uuid,
        body: &[u8],
        admit: impl Fn(&str, &str) -> Result<(), E>,
    ) -> Result<(Written<N>, Report), E> {
        for _ in 0..MAX_TRIES {
            let stored = self
                .read::<N>(id)
                .await
                .and_then(|stored| stored.ok_or(RegistryError::NotFound { kind: N::KIND }))?;
            let scope = ReportContext { generation: stored.object.generation(), now: context.now };
            let parsed = Report::parse(body, &scope).map_err(|error| match error {
                ReportError::Fields(faults) => RegistryError::Invalid(faults),
                ReportError::Ahead { observed, current } => RegistryError::Ahead { observed, current },
            })?;
            admit(stored.object.project(), &parsed.value.controller_name)?;
            if let Some((stored, report)) = self.try_report::<N>(context, &stored, parsed.value).await? {
                let audit = AuditNote {
                    project: stored.object.project().to_owned(),
                    name: stored.object.name().to_owned(),
                    revision: Some(stored.status_version.0),
                    ..AuditNote::default()
                };
                let written =
                    Written { stored, changed: true, replayed: false, warnings: parsed.warnings, audit };
                return Ok((written, report));
            }
        }
        Err(RegistryError::Busy.into())
    }

    /// One try; `None` when the object or its status changed meanwhile.
    async fn try_report<N: Noun>(
        &self,
        context: &WriteContext,
        stored: &Stored<N>,
        report: Report,
    ) -> Result<Option<(Stored<N>, Report)>, RegistryError> {
        let (shared, id) = (&self.shared, stored.object.id());
        let mut reports = read_reports(shared, N::KIND, id).await?;
        let place = reports.iter().position(|known| known.controller_name == report.controller_name);
        let report = report.following(place.map(|place| &reports[place]));
        match place {
            Some(place) => reports[place] = report.clone(),
            None if reports.len() >= MAX_CONTROLLERS => {
                let fault = FieldError::sentence(
                    "controller_name",
                    format!("{MAX_CONTROLLERS} controllers report on this object already"),
                );
                return Err(RegistryError::Invalid(FieldErrors::one(fault)));
            }
            None => reports.push(report.clone()),
        }
        let record = aggregate(shared, &stored.object, &reports, Some(stored), context.now);
        let status_key = N::KIND.status(id);
        let status_expect = match stored.status {
            Some(_) => Expect::Modified(stored.status_version),
            None => Expect::Absent,
        };
        let txn = Txn::new()
            .expect(N::KIND.object(id), Expect::Modified(stored.version))
            .expect(&status_key, status_expect)
            .put(N::KIND.report(id, &report.controller_name), write::encode(&report))
            .put(&status_key, write::encode(&record));
        if context.dry_run {
            let stored = Stored { status: Some(record), ..stored.clone() };
            return Ok(Some((stored, report)));
        }
        match shared.store.commit(txn).await? {
            Committed::Done { revision } => {
                shared.caught_up(revision).await;
                let stored = Stored { status: Some(record), status_version: revision, ..stored.clone() };
                if stored.object.is_deleting() {
                    super::timer::finish_deletion::<N>(shared, id).await?;
                }
                Ok(Some((stored, report)))
            }
            Committed::Refused { .. } => Ok(None),
        }
    }
}

impl Registry {
    /// Forgets what a controller reported, for one that is gone for good. `None`: it had not reported.
    pub async fn delete_report<N: Noun>(
        &self,
        context: &WriteContext,
        id: Uuid,
        controller: &str,
    ) -> Result<Option<Written<N>>, RegistryError> {
        let (shared, status_key) = (&self.shared, N::KIND.status(id));
        for _ in 0..MAX_TRIES {
            let stored = self.read::<N>(id).await?.ok_or(RegistryError::NotFound { kind: N::KIND })?;
            let mut reports = read_reports(shared, N::KIND, id).await?;
            let Some(place) = reports.iter().position(|report| report.controller_name == controller) else {
                return Ok(None);
            };
            reports.remove(place);
            let record = aggregate(shared, &stored.object, &reports, Some(&stored), context.now);
            let expect =
                stored.status.as_ref().map_or(Expect::Absent, |_| Expect::Modified(stored.status_version));
            let txn = Txn::new()
                .expect(N::KIND.object(id), Expect::Modified(stored.version))
                .expect(&status_key, expect)
                .delete(N::KIND.report(id, controller))
                .put(&status_key, write::encode(&record));
            let mut audit = AuditNote {
                project: stored.object.project().to_owned(),
                name: stored.object.name().to_owned(),
                changed: vec![format!("controller_status.{controller}")],
                ..AuditNote::default()
            };
            let mut status_version = stored.status_version;
            if !context.dry_run {
                let Committed::Done { revision } = shared.store.commit(txn).await? else { continue };
                shared.caught_up(revision).await;
                if stored.object.is_deleting() {
                    super::timer::finish_deletion::<N>(shared, id).await?;
                }
                audit.revision = Some(revision.0);
                status_version = revision;
            }
            let stored = Stored { status: Some(record), status_version, ..stored };
            return Ok(Some(Written { stored, changed: true, replayed: false, warnings: Vec::new(), audit }));
        }
        Err(RegistryError::Busy)
    }

    /// A status as it is shown: with what is counted at the moment of reading.
    pub fn shown_status<N: Noun>(&self, stored: &Stored<N>) -> N::Status {
        let pools = (N::KIND == Kind::Cluster).then(|| self.shared.index().rollup(stored.object.id()));
        stored.status_with(pools)
    }

    /// Puts the view that its servers give into a pool's status. `make` gets the view that is there, and returns
    /// the one that should be; nothing is written when they are equal.
    pub async fn set_baremetal(
        &self,
        id: Uuid,
        make: impl Fn(&muster_model::status::PoolStatus) -> serde_json::Value,
    ) -> Result<(), RegistryError> {
        for _ in 0..MAX_TRIES {
            let Some(seen) = self.look::<super::noun::NodePool>(id).await? else { return Ok(()) };
            let status = seen.status();
            let view = make(&status);
            if status.baremetal.as_ref() == Some(&view) {
                return Ok(());
            }
            let mut status = status.into_owned();
            status.baremetal = Some(view);
            status.updated_at = self.shared.clock.now();
            let record = StatusRecord { status, recheck_at: seen.recheck_at() };
            let key = Kind::Pool.status(id);
            let txn = Txn::new()
                .expect(Kind::Pool.object(id), Expect::Modified(seen.version))
                .expect(&key, seen.expect_status())
                .put(&key, write::encode(&record));
            if let Committed::Done { revision } = self.shared.store.commit(txn).await? {
                self.shared.caught_up(revision).await;
                return Ok(());
            }
        }
        Err(RegistryError::Busy)
    }
}

/// The status that follows from `reports` for `object`, which was `before` until now.
pub(super) fn aggregate<N: Noun>(
    shared: &Shared,
    object: &N,
    reports: &[Report],
    before: Option<&Stored<N>>,
    now: Timestamp,
) -> StatusRecord<N::Status> {
    let before_status = before.map(Stored::status);
    let before = before.zip(before_status.as_ref()).map(|(stored, status)| (&stored.object, status));
    aggregate_after(shared, object, reports, before, now)
}

/// The same, where object and status that stood before are at hand.
pub(super) fn aggregate_after<N: Noun>(
    shared: &Shared,
    object: &N,
    reports: &[Report],
    before: Option<(&N, &N::Status)>,
    now: Timestamp,
) -> StatusRecord<N::Status> {
    let aggregated = object.aggregate(reports, before, now, &shared.options.aggregate());
    StatusRecord { status: aggregated.status, recheck_at: aggregated.next_change_at }
}

/// Adds the status of a changed object to the transaction that changes it.
///
/// An object that nobody has reported on has no stored status, and needs none unless its target follows
/// from what stood before.
pub(super) async fn restatus<N: Noun>(
    shared: &Shared,
    txn: Txn,
    object: &N,
    before: Option<&Stored<N>>,
    now: Timestamp,
) -> Result<(Txn, Option<StatusRecord<N::Status>>), RegistryError> {
    let Some(stored) = before.filter(|stored| stored.status.is_some()) else { return Ok((txn, None)) };
    let id = object.id();
    let reports = read_reports(shared, N::KIND, id).await?;
    let record = aggregate(shared, object, &reports, Some(stored), now);
    let key = N::KIND.status(id);
    let txn = txn.expect(&key, Expect::Modified(stored.status_version)).put(&key, write::encode(&record));
    Ok((txn, Some(record)))
}

/// All reports on an object, by the controller's name. One that cannot be read is set aside.
pub(super) async fn read_reports(
    shared: &Shared,
    kind: Kind,
    id: Uuid,
) -> Result<Vec<Report>, RegistryError> {
    let page = shared.store.list(List::prefix(kind.reports(id))).await?;
    Ok(page.entries.iter().filter_map(read_report).collect())
}

/// The same for our own loops: what did not change is not read again.
pub(super) async fn look_at_reports(
    shared: &Shared,
    kind: Kind,
    id: Uuid,
) -> Result<Vec<Report>, RegistryError> {
    let page = shared.store.list(List::prefix(kind.reports(id))).await?;
    let read = |entry: &Entry| read_report(entry).ok_or(());
    Ok(page
        .entries
        .iter()
        .filter_map(|entry| shared.decoded.get(entry, read).ok())
        .map(|report| Report::clone(&report))
        .collect())
}

fn read_report(entry: &Entry) -> Option<Report> {
    serde_json::from_slice(&entry.value)
        .map_err(|error| {
            tracing::error!(key = entry.key, %error, "a stored report cannot be read and is ignored");
        })
        .ok()
}

/// Keys of all reports on an object.
pub(super) async fn keys_of(shared: &Shared, kind: Kind, id: Uuid) -> Result<Vec<String>, RegistryError> {
    let list = List { keys_only: true, ..List::prefix(kind.reports(id)) };
    Ok(shared.store.list(list).await?.entries.into_iter().map(|entry| entry.key).collect())
}

/// Whether a controller still has to confirm that it has torn the object down.
pub(super) async fn held(
    shared: &Shared,
    kind: Kind,
    id: Uuid,
    now: Timestamp,
) -> Result<bool, RegistryError> {
    let reports = read_reports(shared, kind, id).await?;
    let lease = shared.options.default_lease;
    Ok(reports.iter().any(|report| report.expires_at(lease) > now && !confirms_deletion(report)))
}

/// `Deleted=True`, or `Available=False` with the reason `Deleted`.
fn confirms_deletion(report: &Report) -> bool {
    report.conditions.iter().any(|condition| {
        condition.kind == "Deleted" && condition.status == ConditionStatus::True
            || condition.kind == "Available"
                && condition.status == ConditionStatus::False
                && condition.reason == "Deleted"
    })
}

impl super::RegistryOptions {
    pub(super) fn aggregate(&self) -> AggregateConfig {
        AggregateConfig { lease: self.default_lease, ..AggregateConfig::default() }
    }
}
