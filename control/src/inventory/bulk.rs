//! Registering many hosts at once: a verdict for each line, the good ones stored in few transactions.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use muster_model::{
    FieldErrors,
    host::{
        BareMetalNodeSpec, NamedHost, Registered,
        csv::Line,
        unique::{Identifier, identifiers},
    },
    store::Expect,
};
use serde::Serialize;

use super::{
    Inventory, InventoryError,
    change::{Edit, MAX_TRIES, Told, check_claims, check_new_name},
};
use crate::registry::WriteContext;

/// Hosts in one transaction: four operations each, and two for each of the pools they go to.
pub(super) const BATCH_HOSTS: usize = 24;
pub(super) const BATCH_POOLS: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LineResult {
    Created,
    /// It is in the inventory already, exactly so.
    Unchanged,
    Failed,
}

/// What became of one line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineReport {
    pub line: usize,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub result: LineResult,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Inventory {
    /// Registers every line that can be. In a dry run nothing is stored and the verdicts are the same.
    ///
    /// `project` is the one that hosts go to which name none. When the store fails half way, what is stored is reported, and
    /// the rest as failed.
    pub async fn register(
        &self,
        context: &WriteContext,
        project: Option<&str>,
        lines: Vec<Line>,
    ) -> Result<Vec<LineReport>, InventoryError> {
        let _turn = self.shared.writer.lock().await;
        let mut reports: Vec<LineReport> = Vec::with_capacity(lines.len());
        let mut wanted: Vec<(usize, NamedHost)> = Vec::new();
        for line in lines {
            let mut report = LineReport {
                line: line.number,
                name: line.name,
                result: LineResult::Failed,
                message: String::new(),
                warnings: Vec::new(),
            };
            match line.host {
                Err(faults) => report.message = faults.to_string(),
                Ok(mut host) => {
                    host.spec.project = project.map(str::to_owned).or(host.spec.project);
                    wanted.push((reports.len(), host));
                }
            }
            reports.push(report);
        }
        let mut left: &mut [(usize, NamedHost)] = &mut wanted;
        let mut seen = Seen::default();
        while !left.is_empty() {
            match self.register_some(context, left, &mut reports, &mut seen).await {
                Ok(taken) => left = &mut left[taken..],
                Err(error) if seen.names.is_empty() => return Err(error),
                Err(error) => {
                    for (report, _) in &*left {
                        let report = &mut reports[*report];
                        (report.result, report.message) = (LineResult::Failed, error.to_string());
                    }
                    break;
                }
            }
        }
        Ok(reports)
    }

    /// Judges and stores the first lines of `wanted`; returns how many it dealt with.
    async fn register_some(
        &self,
        context: &WriteContext,
        wanted: &mut [(usize, NamedHost)],
        reports: &mut [LineReport],
        seen: &mut Seen,
    ) -> Result<usize, InventoryError> {
        for _ in 0..MAX_TRIES {
            let guard = self.guard().await?;
            let mut trial = seen.clone();
            let mut accepted: Vec<usize> = Vec::new();
            let (mut pools, mut dealt) = (BTreeSet::new(), 0);
            for (place, (report, host)) in wanted.iter_mut().enumerate() {
                let more_pools = !pools.contains(&host.spec.pool) && pools.len() >= BATCH_POOLS;
                if accepted.len() >= BATCH_HOSTS || more_pools {
                    break;
                }
                dealt = place + 1;
                let report = &mut reports[*report];
                match self.judge(host, &trial) {
                    Ok(LineResult::Created) => {
                        (report.result, report.message) = (LineResult::Created, String::new());
                        let registered = Registered { by: context.actor.clone(), at: context.now };
                        // Who does it is known here; what a file says of it is a copy of another record.
                        (host.spec.registered, host.spec.deletion) = (Some(registered), None);
                        trial.note(host);
                        pools.insert(host.spec.pool.clone());
                        accepted.push(place);
                    }
                    Ok(other) => report.result = other,
                    Err(error) => {
                        (report.result, report.message) = (LineResult::Failed, error.to_string());
                    }
                }
            }
            // What costs a look into the store comes last, and once.
            let doubts = accepted.iter().map(|place| self.doubts(None, &wanted[*place].1.spec));
            let doubts = futures::future::join_all(doubts).await;
            let mut kept = Vec::with_capacity(accepted.len());
            for (place, doubts) in accepted.into_iter().zip(doubts) {
                let (report, _) = &wanted[place];
                match doubts {
                    Ok(warnings) => {
                        reports[*report].warnings = warnings;
                        kept.push(place);
                    }
                    Err(InventoryError::Invalid(faults)) => {
                        let report = &mut reports[*report];
                        (report.result, report.message) = (LineResult::Failed, faults.to_string());
                    }
                    Err(error) => return Err(error),
                }
            }
            if !context.dry_run && !kept.is_empty() {
                let edits: Vec<Edit<'_>> = kept.iter().map(|place| edit(&wanted[*place].1)).collect();
                let told = Told { by: &context.actor, at: context.now, verb: "create" };
                if self.commit(guard.as_ref(), told, &edits, |txn| txn).await?.is_none() {
                    continue;
                }
            }
            *seen = trial;
            return Ok(dealt);
        }
        Err(InventoryError::Busy)
    }

    fn judge(&self, host: &NamedHost, seen: &Seen) -> Result<LineResult, InventoryError> {
        check_new_name(&host.name)?;
        let taken = || InventoryError::Taken { kind: "BareMetalNode", name: host.name.clone() };
        if seen.names.contains(&host.name) {
            return Err(InventoryError::Invalid(FieldErrors::one(muster_model::FieldError::new(
                "name",
                "is listed twice",
            ))));
        }
        let index = self.shared.index();
        if let Some(known) = index.get(&host.name) {
            let same = known.readable().is_some_and(|spec| same(spec, &host.spec));
            return if same { Ok(LineResult::Unchanged) } else { Err(taken()) };
        }
        host.spec.check_ways("spec")?;
        let alone = BTreeSet::from([host.name.as_str()]);
        check_claims(&index, &host.name, &alone, identifiers(&host.spec), &seen.claims)?;
        Ok(LineResult::Created)
    }
}

fn edit(host: &NamedHost) -> Edit<'_> {
    Edit {
        name: &host.name,
        expect: Expect::Absent,
        before: None,
        after: Some(&host.spec),
        message: format!("registered in pool {}", host.spec.pool),
    }
}

/// Whether a listed host is what is stored, apart from who registered it and from a key that was approved since.
fn same(stored: &Arc<BareMetalNodeSpec>, listed: &BareMetalNodeSpec) -> bool {
    let listed = BareMetalNodeSpec {
        registered: stored.registered.clone(),
        pin: listed.pin.or(stored.pin),
        ..listed.clone()
    };
    **stored == listed
}

/// Lines of this request that were accepted before.
#[derive(Debug, Clone, Default)]
struct Seen {
    names: BTreeSet<String>,
    claims: BTreeMap<(Identifier, String), String>,
}

impl Seen {
    fn note(&mut self, host: &NamedHost) {
        self.names.insert(host.name.clone());
        self.claims.extend(identifiers(&host.spec).into_iter().map(|claim| (claim, host.name.clone())));
    }
}
