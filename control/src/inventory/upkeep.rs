//! What follows from the inventory without anybody asking: members, pool settings, figures, pool statuses, the end of
//! operations, and a word about every foreign write.
//!
//! Every process runs this; compare-and-set keeps them from doing anything twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use muster_model::{
    Duration, Known, Timestamp,
    host::{
        ConditionType, GlobalStats, Phase, PoolHostConfig, PoolMembers, State, is_true,
        keys::{self as hosts, HostRecord, PoolRecord},
    },
    store::{Committed, Expect, Txn},
};
use tokio_util::sync::CancellationToken;

use super::{
    Inventory, InventoryError, encode,
    events::{InventoryEvent, SpecChange},
    keys,
    pool_status::{OwnedPool, owned_pools},
};
use crate::registry::{NodePool, Registry, RegistryError, Stored, WriteContext};

/// A burst of changes is followed once, this long after its first.
const SETTLE: Duration = Duration::from_millis(100);
/// Time alone changes statuses and operations: they are looked at this often.
const TICK: Duration = Duration::from_secs(2);
/// Figures are at most 30 s old; the rest is for a slow store.
const STATS: Duration = Duration::from_secs(20);
/// Who is named when a tool wrote past the API.
const DIRECT: &str = "direct write to the store";

pub(super) async fn run(inventory: Inventory, registry: Arc<Registry>, stop: CancellationToken) {
    let shared = Arc::clone(&inventory.shared);
    let mut loaded = false;
    let mut rounds = Rounds::default();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = shared.dirty.notified() => {}
            () = shared.clock.sleep(TICK) => {}
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = shared.clock.sleep(SETTLE) => {}
        }
        if !inventory.is_live() || !registry.is_live() {
            continue;
        }
        if !loaded {
            match inventory.load_power().await {
                Ok(()) => loaded = true,
                Err(error) => {
                    tracing::warn!(%error, "open operations on hosts could not be read; it tries again");
                    continue;
                }
            }
        }
        if let Err(error) = inventory.round(&registry, &mut rounds).await {
            tracing::warn!(%error, "the inventory's upkeep did not finish; it tries again");
        }
    }
}

/// What one round leaves for the next.
#[derive(Debug, Default)]
struct Rounds {
    /// Hosts that were set aside when last looked at.
    aside: BTreeMap<String, String>,
    global_problem: Option<String>,
}

impl Inventory {
    async fn round(&self, registry: &Registry, rounds: &mut Rounds) -> Result<(), InventoryError> {
        let touched = std::mem::take(&mut self.shared.index_mut().touched);
        for name in &touched {
            if let Err(error) = self.note_direct(name).await {
                self.shared.index_mut().touched.extend(touched.iter().cloned());
                return Err(error);
            }
        }
        self.tell_set_aside(rounds).await?;
        self.restore_members(&touched).await?;
        // The inventory as it is seen comes first and the pools after it: a change of a pool in between makes what is seen old,
        // and never looks like somebody else's.
        let seen = self.shared.index().configs.clone();
        let pools = owned_pools(registry).await?;
        for pool in &pools {
            self.keep_config(registry, pool, seen.get(&pool.name)).await?;
        }
        self.tell_global(rounds).await?;
        self.settle_power().await?;
        self.refresh_pools(registry, &pools).await?;
        self.write_stats().await
    }

    /// Adds a line to a host's changes when its spec was written past the API.
    async fn note_direct(&self, name: &str) -> Result<(), InventoryError> {
        let key = hosts::host(name, HostRecord::Spec);
        let changes_key = keys::changes(name);
        let (spec, stored) =
            futures::future::try_join(self.shared.store.get(&key), self.shared.store.get(&changes_key))
                .await?;
        let mut changes: super::HostChanges =
            stored.as_ref().and_then(|entry| serde_json::from_slice(&entry.value).ok()).unwrap_or_default();
        let digest = super::change::digest(spec.as_ref().map_or(&[][..], |entry| &entry.value));
        if changes.digest == digest || (spec.is_none() && stored.is_none()) {
            return Ok(());
        }
        let host = self.host(name);
        // Whose it was says nobody better than who wrote of it before.
        let project = match host.as_ref().and_then(|host| host.readable()) {
            Some(spec) => spec.project.clone(),
            None => changes.project().or_else(|| host.as_ref()?.project().map(str::to_owned)),
        };
        let message = match (&spec, host.and_then(|host| host.set_aside())) {
            (None, _) => "the record was deleted".to_owned(),
            (Some(_), Some(aside)) => format!("the record was written and set aside: {}", aside.reason),
            (Some(_), None) => "the record was written".to_owned(),
        };
        let change = SpecChange {
            at: self.shared.clock.now(),
            by: DIRECT.to_owned(),
            verb: "direct".to_owned(),
            message,
            project,
        };
        changes.push(digest, change);
        let expect = |entry: &Option<muster_model::store::Entry>| {
            entry.as_ref().map_or(Expect::Absent, |entry| Expect::Modified(entry.modified))
        };
        // A refusal means that somebody wrote meanwhile; then the host is touched again.
        let txn = Txn::new()
            .expect(&key, expect(&spec))
            .expect(&changes_key, expect(&stored))
            .put(&changes_key, encode(&changes));
        drop(self.shared.store.commit(txn).await?);
        Ok(())
    }

    /// One event for every record that is set aside, and one when it is in order again.
    async fn tell_set_aside(&self, rounds: &mut Rounds) -> Result<(), InventoryError> {
        let now: BTreeMap<String, String> = {
            let index = self.shared.index();
            let aside = index.hosts.values().filter_map(|host| {
                // A host whose records are being written one after the other is no news.
                host.spec.as_ref()?;
                Some((host.name.to_string(), host.set_aside()?.reason))
            });
            aside.collect()
        };
        for (name, reason) in now.iter().filter(|(name, reason)| rounds.aside.get(*name) != Some(reason)) {
            self.tell(self.event("SetAside", format!("host/{name}"), reason.clone())).await?;
        }
        for name in rounds.aside.keys().filter(|name| !now.contains_key(*name)) {
            let message = match self.host(name) {
                Some(_) => "the record is in order again and used",
                None => "the record is gone",
            };
            self.tell(self.event("Accepted", format!("host/{name}"), message.to_owned())).await?;
        }
        rounds.aside = now;
        Ok(())
    }

    fn event(&self, reason: &str, object: String, message: String) -> InventoryEvent {
        InventoryEvent { at: self.shared.clock.now(), reason: reason.to_owned(), object, message }
    }

    /// Makes every member list what the specs say.
    async fn restore_members(&self, touched: &BTreeSet<Arc<str>>) -> Result<(), InventoryError> {
        struct Fix {
            pool: String,
            expect: Expect,
            wanted: PoolMembers,
            found: Option<Vec<String>>,
            followed: bool,
        }
        let fixes: Vec<Fix> = {
            let index = self.shared.index();
            let derived = index.derived_members();
            let names: BTreeSet<&str> =
                derived.keys().copied().chain(index.members.keys().map(String::as_str)).collect();
            let nobody = PoolMembers::default();
            let fix = names.into_iter().filter_map(|pool| {
                let wanted = derived.get(pool).unwrap_or(&nobody);
                let stored = index.members.get(pool);
                let right = match stored {
                    Some(stored) => stored.value == encode(wanted) && !wanted.0.is_empty(),
                    None => wanted.0.is_empty(),
                };
                let found = stored.map(|stored| {
                    serde_json::from_slice::<PoolMembers>(&stored.value)
                        .map(|found| found.0)
                        .unwrap_or_default()
                });
                // A spec that a tool wrote or deleted changes the list as a matter of course.
                let moved = |name: &String| touched.contains(name.as_str());
                let followed = wanted.0.iter().any(moved) || found.iter().flatten().any(moved);
                (!right).then(|| Fix {
                    pool: pool.to_owned(),
                    expect: stored.map_or(Expect::Absent, |stored| Expect::Modified(stored.version)),
                    wanted: wanted.clone(),
                    found,
                    followed,
                })
            });
            fix.collect()
        };
        for fix in fixes {
            let key = hosts::pool(&fix.pool, PoolRecord::Members);
            let txn = Txn::new().expect(&key, fix.expect);
            let txn =
                if fix.wanted.0.is_empty() { txn.delete(&key) } else { txn.put(&key, encode(&fix.wanted)) };
            if let Committed::Done { revision } = self.shared.store.commit(txn).await? {
                self.shared.caught_up(revision).await;
                if !fix.followed {
                    let message = difference(fix.found.as_deref().unwrap_or_default(), &fix.wanted.0);
                    let object = format!("pool/{}", fix.pool);
                    self.tell(self.event("MembersRestored", object, message)).await?;
                }
            }
        }
        Ok(())
    }

    /// A pool's settings in the inventory: what the pool says, or a request to the pool.
    async fn keep_config(
        &self,
        registry: &Registry,
        owned: &OwnedPool,
        stored: Option<&super::index::Stored>,
    ) -> Result<(), InventoryError> {
        let (name, wanted) = (owned.name.as_str(), &owned.config);
        if stored.is_some_and(|stored| stored.value == encode(wanted)) {
            return Ok(());
        }
        let object = format!("pool/{name}");
        let requested = stored.filter(|stored| stored.version > owned.version);
        if let Some(request) = requested {
            match PoolHostConfig::parse(&request.value) {
                // The same settings in another spelling: ours is put back without a word.
                Ok(asked) if asked == *wanted => {}
                Ok(asked) => match self.apply_config(registry, owned, &asked).await {
                    Ok(()) => {
                        let message = "settings that a tool wrote were applied to the pool".to_owned();
                        return self.tell(self.event("ConfigApplied", object, message)).await;
                    }
                    Err(RegistryError::Store(error)) => return Err(error.into()),
                    // The pool was changed meanwhile: then this was a request to another one.
                    Err(RegistryError::Busy | RegistryError::Precondition { .. }) => return Ok(()),
                    Err(error) => {
                        let message =
                            format!("settings that a tool wrote were refused and restored: {error}");
                        self.tell(self.event("ConfigRestored", object, message)).await?;
                    }
                },
                Err(why) => {
                    let message =
                        format!("settings that a tool wrote cannot be used and were restored: {why}");
                    self.tell(self.event("ConfigRestored", object, message)).await?;
                }
            }
        }
        let key = hosts::pool(name, PoolRecord::Config);
        let expect = stored.map_or(Expect::Absent, |stored| Expect::Modified(stored.version));
        let txn = Txn::new()
            .expect(crate::registry::Kind::Pool.object(owned.id), Expect::Modified(owned.version))
            .expect(&key, expect)
            .put(&key, encode(wanted));
        if let Committed::Done { revision } = self.shared.store.commit(txn).await? {
            self.shared.caught_up(revision).await;
            if stored.is_none() {
                // They are written with their pool, so that they can only be missing when somebody took them away.
                let message = "settings that a tool deleted were restored".to_owned();
                self.tell(self.event("ConfigRestored", format!("pool/{name}"), message)).await?;
            }
        }
        Ok(())
    }

    async fn apply_config(
        &self,
        registry: &Registry,
        owned: &OwnedPool,
        asked: &PoolHostConfig,
    ) -> Result<(), RegistryError> {
        let now = self.shared.clock.now();
        let context = WriteContext { actor: DIRECT.to_owned(), now, dry_run: false, idempotency: None };
        let change = |stored: &Stored<NodePool>| {
            let mut pool = stored.object.clone();
            let mut spec = pool.spec.clone();
            asked.write_to(spec.platform.block.get_or_insert_default());
            if spec != pool.spec {
                pool.spec = spec;
                pool.generation += 1;
                pool.updated_at = now;
            }
            Ok((pool, Vec::new()))
        };
        let guard = |version| version == owned.version;
        registry.update(&context, owned.id, &guard, change, |txn, _| txn).await.map(drop)
    }

    async fn tell_global(&self, rounds: &mut Rounds) -> Result<(), InventoryError> {
        let problem = self.global().problem;
        if problem != rounds.global_problem {
            if let Some(why) = &problem {
                let message = format!("the settings are refused, the last good ones stay in force: {why}");
                self.tell(self.event("GlobalRefused", "global/config".to_owned(), message)).await?;
            }
            rounds.global_problem = problem;
        }
        Ok(())
    }

    /// Writes the figures about all hosts when they are old. Without hosts there are none.
    async fn write_stats(&self) -> Result<(), InventoryError> {
        let now = self.shared.clock.now();
        {
            let index = self.shared.index();
            let young = index.stats.as_ref().is_some_and(|stats| now.since(stats.at) < STATS);
            if young || index.hosts.is_empty() {
                return Ok(());
            }
        }
        let stored = self.shared.store.get(hosts::GLOBAL_STATS).await?;
        let young = stored
            .as_ref()
            .and_then(|entry| serde_json::from_slice::<GlobalStats>(&entry.value).ok())
            .is_some_and(|stats| now.since(stats.at) < STATS);
        if young {
            return Ok(());
        }
        let expect = stored.map_or(Expect::Absent, |entry| Expect::Modified(entry.modified));
        let txn = Txn::new()
            .expect(hosts::GLOBAL_STATS, expect)
            .put(hosts::GLOBAL_STATS, encode(&self.figures(now)));
        drop(self.shared.store.commit(txn).await?);
        Ok(())
    }

    /// The figures as they are now.
    fn figures(&self, now: Timestamp) -> GlobalStats {
        let index = self.shared.index();
        let global = &index.global.config;
        let (price, currency) = (global.energy_price_micros, global.currency.clone());
        let mut stats = GlobalStats {
            at: now,
            hosts: 0,
            by_state: State::ALL.into_iter().map(|state| (state, 0)).collect(),
            quarantined: 0,
            held: 0,
            ready_resources: BTreeMap::new(),
            milliwatts: 0,
            unmetered: 0,
            energy: BTreeMap::new(),
            energy_price_micros: price,
            currency,
        };
        for (host, spec) in index.accepted() {
            stats.hosts += 1;
            *stats.by_state.entry(host.state()).or_default() += 1;
            let held = spec.hold.as_ref().is_some_and(|hold| hold.is_active(now));
            if let Some(status) = &host.status {
                stats.quarantined += u32::from(status.phase == Phase::Quarantined);
                stats.held += u32::from(held || is_true(&status.conditions, ConditionType::Held));
                if status.state == State::Ready {
                    *stats.ready_resources.entry(spec.pool.clone()).or_default() += &spec.resources;
                }
            } else {
                stats.held += u32::from(held);
            }
            match host.metrics().map(|metrics| &metrics.milliwatts) {
                Some(Known::Value { value, .. }) => {
                    stats.milliwatts = stats.milliwatts.saturating_add(*value);
                }
                Some(Known::Unknown { .. }) | None => stats.unmetered += 1,
            }
            let pool = stats.energy.entry(spec.pool.clone()).or_default();
            crate::hosts::add_energy(pool, host.metrics(), price);
        }
        stats
    }
}

/// What has to be added to and taken from a list, for a message.
fn difference(found: &[String], wanted: &[String]) -> String {
    let missing: Vec<&str> = wanted.iter().filter(|name| !found.contains(name)).map(String::as_str).collect();
    let extra: Vec<&str> = found.iter().filter(|name| !wanted.contains(name)).map(String::as_str).collect();
    let part = |what: &str, names: &[&str]| match names.len() {
        0 => None,
        1..=10 => Some(format!("{what} {}", names.join(", "))),
        more => Some(format!("{what} {} and {} more", names[..10].join(", "), more - 10)),
    };
    let parts: Vec<String> =
        [part("put back", &missing), part("took out", &extra)].into_iter().flatten().collect();
    let what = if parts.is_empty() { "put back in order".to_owned() } else { parts.join("; ") };
    format!("members are derived from the hosts' specs and were restored: {what}")
}
