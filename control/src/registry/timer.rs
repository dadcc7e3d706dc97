//! What time alone changes: leases that run out, deletions that nobody holds any more, operations that
//! are done, idempotency keys that are old.
//!
//! Every process runs this; compare-and-set keeps them from doing anything twice.

use std::sync::Arc;

use muster_model::{
    Duration,
    store::{Committed, Expect, List, Txn},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::freeze;

use super::{
    Registry, RegistryError, Shared,
    idempotency::LightRecord,
    keys::{self, Kind},
    noun::{Cluster, NodePool, Noun},
    operations, reports, write,
};

/// How often due objects are looked for. A lease is minutes long, so half a second late is early enough.
const TICK: Duration = Duration::from_millis(500);
/// Objects brought up to date in one tick, so that a mass expiry does not stop everything else.
const BATCH: usize = 200;
/// How often it is looked whether everything is frozen, and whether the world was observed again.
const LOOK: Duration = Duration::from_secs(2);
/// How often old idempotency keys are swept out.
const SWEEP: Duration = Duration::from_mins(30);

pub(super) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let registry = Registry { shared: Arc::clone(&shared) };
    let mut next_sweep = shared.clock.monotonic();
    let mut next_look = next_sweep;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = shared.clock.sleep(TICK) => {}
        }
        if !registry.is_live() {
            continue;
        }
        if let Err(error) = tick(&registry).await {
            tracing::warn!(%error, "the timer could not bring everything up to date; it tries again");
        }
        if shared.clock.monotonic() >= next_look {
            next_look = shared.clock.monotonic().saturating_add(LOOK);
            look_at_freeze(&registry).await;
        }
        if shared.clock.monotonic() >= next_sweep {
            next_sweep = shared.clock.monotonic().saturating_add(SWEEP);
            if let Err(error) = sweep_idempotency(&shared).await {
                tracing::warn!(%error, "old idempotency keys could not be swept out; it tries again");
            }
        }
    }
}

/// Keeps what is known about the freeze fresh, and lifts the one that a restore left once the world was seen.
async fn look_at_freeze(registry: &Registry) {
    match freeze::lift_when_observed(registry.store().as_ref()).await {
        Ok(true) => tracing::info!("the world was observed again after a restore; Muster may act"),
        Ok(false) => {}
        Err(error) => tracing::warn!(%error, "whether the world was observed again is not known"),
    }
    registry.look_at_freeze().await;
}

async fn tick(registry: &Registry) -> Result<(), RegistryError> {
    let shared = &registry.shared;
    let due = shared.index().due(shared.clock.now(), BATCH);
    for (kind, id) in due {
        match kind {
            Kind::Cluster => refresh::<Cluster>(registry, id).await?,
            Kind::Pool => refresh::<NodePool>(registry, id).await?,
            Kind::Operation => {}
        }
    }
    let (clusters, pools) = deleting(shared);
    for id in pools {
        finish_deletion::<NodePool>(shared, id).await?;
    }
    for id in clusters {
        write::sweep_cluster(shared, id, write::Force::No).await?;
    }
    operations::settle(registry).await?;
    operations::prune(registry).await.map(drop)
}

/// Objects that are being deleted.
fn deleting(shared: &Shared) -> (Vec<Uuid>, Vec<Uuid>) {
    let index = shared.index();
    (index.deleting(Kind::Cluster, BATCH), index.deleting(Kind::Pool, BATCH))
}

/// Recomputes a status whose time has come.
async fn refresh<N: Noun>(registry: &Registry, id: Uuid) -> Result<(), RegistryError> {
    let shared = &registry.shared;
    let Some(stored) = registry.read::<N>(id).await? else { return Ok(()) };
    let Some(record) = &stored.status else { return Ok(()) };
    let now = shared.clock.now();
    if record.recheck_at.is_none_or(|at| at > now) {
        return Ok(());
    }
    let reports = reports::read_reports(shared, N::KIND, id).await?;
    let fresh = reports::aggregate(shared, &stored.object, &reports, Some(&stored), now);
    let key = N::KIND.status(id);
    let txn = Txn::new()
        .expect(N::KIND.object(id), Expect::Modified(stored.version))
        .expect(&key, Expect::Modified(stored.status_version))
        .put(&key, write::encode(&fresh));
    // Refused: somebody else brought it up to date.
    if let Committed::Done { revision } = shared.store.commit(txn).await? {
        tracing::debug!(%id, %revision, "a status changed with time");
        shared.caught_up(revision).await;
    }
    Ok(())
}

/// Removes a pool whose controllers have all confirmed or gone silent.
pub(super) async fn finish_deletion<N: Noun>(shared: &Arc<Shared>, id: Uuid) -> Result<(), RegistryError> {
    if N::KIND == Kind::Cluster {
        return write::sweep_cluster(shared, id, write::Force::No).await.map(drop);
    }
    let registry = Registry { shared: Arc::clone(shared) };
    let Some(stored) = registry.read::<N>(id).await? else { return Ok(()) };
    if !stored.object.is_deleting() || reports::held(shared, N::KIND, id, shared.clock.now()).await? {
        return Ok(());
    }
    if let Some(revision) = write::remove(shared, &stored).await? {
        tracing::info!(kind = N::KIND.title(), %id, "deletion finished");
        shared.caught_up(revision).await;
    }
    Ok(())
}

async fn sweep_idempotency(shared: &Shared) -> Result<(), RegistryError> {
    let now = shared.clock.now();
    let mut after = None;
    loop {
        let list = List { after, limit: 500, ..List::prefix(keys::IDEMPOTENCY) };
        let page = shared.store.list(list).await?;
        after = page.entries.last().map(|entry| entry.key.clone());
        for entry in &page.entries {
            let old = serde_json::from_slice::<LightRecord>(&entry.value)
                .map_or(true, |record| record.expires_at <= now);
            if old {
                let txn = Txn::new().expect(&entry.key, Expect::Modified(entry.modified)).delete(&entry.key);
                let _ = shared.store.commit(txn).await?;
            }
        }
        if !page.more || after.is_none() {
            return Ok(());
        }
    }
}
