//! The size that a pool is to have, and what our own loops say about it: one fenced transaction.

use muster_model::{
    Report, Timestamp,
    condition::Condition,
    field::RawJson,
    status::PoolStatus,
    store::{Committed, Expect, Fence, Txn},
};
use serde_json::Value;
use uuid::Uuid;

use super::{
    Registry, RegistryError,
    keys::Kind,
    noun::{Cluster, NodePool, Noun, Seen, StatusRecord},
    reports, write,
};

/// The condition of a cluster that says whether Muster sees it.
pub const CONNECTED: &str = "Connected";
/// Tries against others that change the same pool.
const MAX_TRIES: usize = 8;

/// What a loop of ours has to say about a pool.
#[derive(Debug, Clone, Default)]
pub struct PoolWord {
    /// The size that is wanted now; `None` leaves it.
    pub desired: Option<u32>,
    /// The nodes to give up, by name; `None` leaves the list.
    pub leaving: Option<Vec<String>>,
    /// Conditions under names of our own.
    pub conditions: Vec<Condition>,
    /// A report like any controller's.
    pub report: Option<OwnReport>,
}

/// What our loops report in the manner of a controller.
#[derive(Debug, Clone)]
pub struct OwnReport {
    pub controller: &'static str,
    pub conditions: Vec<Condition>,
    /// `active_nodes`, `desired_nodes` and what else belongs to it.
    pub metadata: Value,
}

/// The member of a report's metadata that is another with every minute.
pub(crate) const NODE_AGES: &str = "node_ages";

/// What became of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Written,
    /// It was so already.
    AlreadySo,
    /// The pool does not exist any more.
    Gone,
    /// Somebody else leads.
    NotLeading,
}

impl Registry {
    /// Says it. Repeating it is harmless; a leader that was superseded is refused by the store.
    pub async fn say(
        &self,
        fence: &Fence,
        id: Uuid,
        word: &PoolWord,
        now: Timestamp,
    ) -> Result<Said, RegistryError> {
        for _ in 0..MAX_TRIES {
            let Some(seen) = self.look::<NodePool>(id).await? else { return Ok(Said::Gone) };
            let object = &*seen.object;
            let mut reports = reports::look_at_reports(&self.shared, Kind::Pool, id).await?;
            let report = word
                .report
                .as_ref()
                .and_then(|own| self.own_report(own, object.generation, &mut reports, now));
            let before = spoken(&seen, word);
            let mut record =
                reports::aggregate_after(&self.shared, object, &reports, Some((object, &before)), now);
            if report.is_none() && seen.record.as_ref().is_some_and(|old| same(old, &mut record)) {
                return Ok(Said::AlreadySo);
            }
            let key = Kind::Pool.status(id);
            let mut txn = Txn::new()
                .fenced(fence)
                .expect(Kind::Pool.object(id), Expect::Modified(seen.version))
                .expect(&key, seen.expect_status())
                .put(&key, write::encode(&record));
            if let Some(report) = &report {
                txn = txn.put(Kind::Pool.report(id, &report.controller_name), write::encode(report));
            }
            match self.shared.store.commit(txn).await? {
                Committed::Done { .. } => {
                    if object.is_deleting() {
                        super::timer::finish_deletion::<NodePool>(&self.shared, id).await?;
                    }
                    return Ok(Said::Written);
                }
                Committed::Refused { failed: 0, .. } => return Ok(Said::NotLeading),
                Committed::Refused { .. } => {}
            }
        }
        Err(RegistryError::Busy)
    }

    /// The same for a cluster: what the connection to it is like. Without a report, an earlier one of `controller`
    /// is taken back.
    pub async fn say_of_cluster(
        &self,
        fence: &Fence,
        id: Uuid,
        controller: &'static str,
        word: Option<(&OwnReport, &Condition)>,
        now: Timestamp,
    ) -> Result<Said, RegistryError> {
        for _ in 0..MAX_TRIES {
            let Some(seen) = self.look::<Cluster>(id).await? else { return Ok(Said::Gone) };
            let object = &*seen.object;
            let mut reports = reports::look_at_reports(&self.shared, Kind::Cluster, id).await?;
            let known = reports.iter().position(|one| one.controller_name == controller);
            let mut txn =
                Txn::new().fenced(fence).expect(Kind::Cluster.object(id), Expect::Modified(seen.version));
            let mut status = seen.status().into_owned();
            match (word, known) {
                (Some((own, condition)), _) => {
                    let Some(fresh) = self.own_report(own, object.generation, &mut reports, now) else {
                        return Ok(Said::AlreadySo);
                    };
                    txn = txn.put(Kind::Cluster.report(id, controller), write::encode(&fresh));
                    put_condition(&mut status.conditions, condition);
                }
                (None, Some(place)) => {
                    reports.remove(place);
                    txn = txn.delete(Kind::Cluster.report(id, controller));
                    status.conditions.retain(|condition| condition.kind != CONNECTED);
                }
                (None, None) => return Ok(Said::AlreadySo),
            }
            let before = Some((object, &status));
            let record = reports::aggregate_after(&self.shared, object, &reports, before, now);
            let key = Kind::Cluster.status(id);
            let txn = txn.expect(&key, seen.expect_status()).put(&key, write::encode(&record));
            match self.shared.store.commit(txn).await? {
                Committed::Done { .. } => {
                    if object.is_deleting() {
                        super::timer::finish_deletion::<Cluster>(&self.shared, id).await?;
                    }
                    return Ok(Said::Written);
                }
                Committed::Refused { failed: 0, .. } => return Ok(Said::NotLeading),
                Committed::Refused { .. } => {}
            }
        }
        Err(RegistryError::Busy)
    }

    /// The report to store, put among the others; `None` if the last one still says the same for a while.
    fn own_report(
        &self,
        own: &OwnReport,
        generation: u64,
        reports: &mut Vec<Report>,
        now: Timestamp,
    ) -> Option<Report> {
        let place = reports.iter().position(|known| known.controller_name == own.controller);
        let previous = place.map(|place| &reports[place]);
        let conditions: Vec<Condition> = own
            .conditions
            .iter()
            .map(|condition| {
                let old =
                    previous.and_then(|old| muster_model::condition::find(&old.conditions, &condition.kind));
                condition.clone().since(old)
            })
            .collect();
        let text = own.metadata.to_string();
        let fresh = Report {
            controller_name: own.controller.to_owned(),
            observed_generation: generation,
            conditions,
            metadata: RawJson::parse(&text).expect("a JSON value prints as JSON"),
            last_error: None,
            lease: None,
            updated_at: now,
            generation_since: now,
        };
        let fresh = fresh.following(previous);
        let half = muster_model::Duration::from_millis(self.shared.options.default_lease.millis() / 2);
        let says_the_same = previous.is_some_and(|old| {
            old.observed_generation == fresh.observed_generation
                && old.conditions == fresh.conditions
                && besides_ages(&old.metadata) == besides_ages(&fresh.metadata)
                && now.since(old.updated_at) < half
        });
        if says_the_same {
            return None;
        }
        match place {
            Some(place) => reports[place] = fresh.clone(),
            None => reports.push(fresh.clone()),
        }
        Some(fresh)
    }
}

/// What a report says beside how old nodes are: that alone is no news, it goes with the next report.
fn besides_ages(metadata: &RawJson) -> Value {
    let mut value = metadata.to_value();
    if let Value::Object(members) = &mut value {
        members.remove(NODE_AGES);
    }
    value
}

/// Puts a condition in the place of the one of its kind.
fn put_condition(conditions: &mut Vec<Condition>, condition: &Condition) {
    match conditions.iter_mut().find(|known| known.kind == condition.kind) {
        Some(known) => *known = condition.clone().since(Some(known)),
        None => conditions.push(condition.clone()),
    }
}

/// The status as it stands, with the word in it: what the aggregation then starts from.
fn spoken(seen: &Seen<NodePool>, word: &PoolWord) -> PoolStatus {
    let mut status = seen.status().into_owned();
    status.desired_nodes = word.desired.unwrap_or(status.desired_nodes);
    if let Some(leaving) = &word.leaving {
        status.nodes_to_remove.clone_from(leaving);
    }
    for condition in &word.conditions {
        put_condition(&mut status.conditions, condition);
    }
    status
}

/// Apart from when it was last changed.
fn same(old: &StatusRecord<PoolStatus>, new: &mut StatusRecord<PoolStatus>) -> bool {
    let at = std::mem::replace(&mut new.status.updated_at, old.status.updated_at);
    let same = *old == *new;
    new.status.updated_at = at;
    same
}
