//! The planners of a process: one task for each registered cluster, woken by whatever changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use futures::StreamExt;
use muster_model::{
    Clock, ClusterId, Duration,
    host::keys::{self as host_keys, HostRecord, Key},
    observe::{ClusterPort, shows_more},
    platform::PlatformKind,
    pool::Mode,
    store::{Revision, StoreError, WatchEvent},
};
use tokio::{sync::Notify, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Counters, Did, Heard, Parts, Planner};
use crate::{
    lead::Leading,
    registry::{Cluster, Kind},
    snapshot::read::RACKS,
};

/// How long a planner waits after the first nudge for others to follow: a rollout makes many pods at once, and a
/// pod should not wait a second for its host.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// A look that took no longer than this leaves a quarter of the time to others, a longer one half of it. What happens in
/// the middle of a look is in the next one: after the rest of this one, a pause and the next look. Within a second of the last
/// pod of a burst there is a plan for all of them, as long as a look takes no more than 420 ms (2 x 420 + 420 / 3).
const SHORT_LOOK: Duration = Duration::from_secs(1);
/// The longest rest after a look that took long.
const LONGEST_REST: Duration = Duration::from_secs(5);
/// How often new and deleted clusters are looked for.
const CENSUS: Duration = Duration::from_secs(1);
/// A look that takes longer is stuck: nothing in it waits for hardware, for triggers it waits a moment, and a plan for the largest
/// cluster takes seconds. Another planner takes its place and begins with what the store says, as after a restart of the process.
const STUCK: Duration = Duration::from_mins(5);
/// Pause after the store's watch broke off.
const RETRY: Duration = Duration::from_secs(1);

/// What woke a planner, until it looks.
#[derive(Debug, Default)]
struct Bell {
    by: Mutex<BTreeSet<&'static str>>,
    rings: Notify,
}

impl Bell {
    fn ring(&self, by: &'static str) {
        self.by.lock().unwrap_or_else(PoisonError::into_inner).insert(by);
        self.rings.notify_one();
    }

    fn take(&self) -> BTreeSet<&'static str> {
        std::mem::take(&mut *self.by.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What is remembered of a cluster between two looks at the registry.
#[derive(Debug)]
struct Wanted {
    active: bool,
    cluster: Cluster,
}

type Bells = Arc<Mutex<BTreeMap<ClusterId, Arc<Bell>>>>;

/// Where the planner of a cluster sits. When it ends, however it ends, the seat is free for the next one.
struct Seat {
    cluster: ClusterId,
    bells: Bells,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.cluster);
    }
}

/// All planners of this process.
#[derive(Debug, Clone)]
pub struct Planning {
    parts: Parts,
    clock: Arc<dyn Clock>,
}

impl Planning {
    pub fn new(parts: Parts, clock: Arc<dyn Clock>) -> Self {
        Self { parts, clock }
    }

    /// Runs a planner for every registered cluster until `stop`.
    pub async fn run(&self, leading: Leading, stop: CancellationToken) {
        let bells: Bells = Bells::default();
        let mut tasks = JoinSet::new();
        for prefix in [host_keys::ROOT, crate::registry::keys::ROOT] {
            let (this, bells, stop) = (self.clone(), Arc::clone(&bells), stop.clone());
            tasks.spawn(async move {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = this.listen(prefix, &bells) => {}
                }
            });
        }
        let mut modes = BTreeMap::new();
        loop {
            for cluster in self.clusters(&mut modes).await {
                let mut known = bells.lock().unwrap_or_else(PoisonError::into_inner);
                if known.contains_key(&cluster) {
                    continue;
                }
                let bell = Arc::new(Bell::default());
                known.insert(cluster, Arc::clone(&bell));
                drop(known);
                let (this, seat) = (self.clone(), Seat { cluster, bells: Arc::clone(&bells) });
                let (leading, stop) = (leading.clone(), stop.clone());
                tasks.spawn(async move {
                    let _seat = seat;
                    Box::pin(this.plan(cluster, &bell, leading, stop)).await;
                });
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.clock.sleep(CENSUS) => {}
            }
            while let Some(ended) = tasks.try_join_next() {
                if let Err(error) = ended
                    && error.is_panic()
                {
                    Counters::add(&self.parts.board.counters.restarts, 1);
                    tracing::error!(%error, "a planner broke off and is started again; this is a bug");
                }
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    /// The clusters that have something to plan: a connection, a pool of bare metal, or the word that Muster
    /// may act. A cluster that is only kept in the registry for others costs nothing.
    async fn clusters(&self, modes: &mut BTreeMap<ClusterId, (Revision, Wanted)>) -> Vec<ClusterId> {
        let registry = &self.parts.registry;
        let mut metal = BTreeSet::new();
        registry.each(Kind::Pool, |pool| {
            if pool.platform == PlatformKind::Baremetal.as_str() {
                metal.insert(pool.cluster);
            }
        });
        let mut all = Vec::new();
        registry.each(Kind::Cluster, |cluster| all.push((ClusterId::from(cluster.id), cluster.version)));
        modes.retain(|id, _| all.iter().any(|(known, _)| known == id));
        let mut planned = Vec::new();
        for (id, version) in all {
            if modes.get(&id).is_none_or(|(seen, _)| *seen != version)
                && let Ok(Some(stored)) = registry.read::<Cluster>(id.uuid()).await
            {
                let wanted =
                    Wanted { active: stored.object.spec.mode == Some(Mode::Active), cluster: stored.object };
                modes.insert(id, (stored.version, wanted));
            }
            let wanted = modes.get(&id).map(|(_, wanted)| wanted);
            let connected =
                wanted.is_some_and(|wanted| self.parts.connections.port(&wanted.cluster).is_some());
            if connected || metal.contains(&id.uuid()) || wanted.is_some_and(|wanted| wanted.active) {
                planned.push(id);
            }
        }
        planned
    }

    /// One cluster's planner, for as long as the cluster is there.
    async fn plan(&self, cluster: ClusterId, bell: &Bell, mut leading: Leading, stop: CancellationToken) {
        let mut planner = self.parts.planner(cluster);
        loop {
            for by in bell.take() {
                planner.nudge(by);
            }
            let fence = leading.borrow_and_update().clone();
            let (now, began) = (self.clock.now(), self.clock.monotonic());
            let (port, seen) = self.port(cluster).await;
            let turn = tokio::select! {
                turn = planner.turn(now, fence.as_ref()) => turn,
                () = self.clock.sleep(STUCK) => {
                    Counters::add(&self.parts.board.counters.restarts, 1);
                    tracing::error!(%cluster, after = %STUCK, "a planner is stuck in a look and is started again; this is a bug");
                    return;
                }
            };
            if turn.did == Did::Gone {
                return;
            }
            let took = self.clock.monotonic().saturating_sub(began);
            let changed = async {
                match &port {
                    Some(port) => shows_more(&**port, seen).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = bell.rings.notified() => {}
                () = changed => planner.nudge("cluster"),
                () = other_answers(&mut planner) => planner.nudge("triggers"),
                () = self.clock.sleep(turn.next.since(self.clock.now())) => planner.nudge("timer"),
                result = leading.changed() => {
                    if result.is_err() {
                        return; // nobody elects any more: the process stops
                    }
                    planner.nudge("leader");
                }
            }
            self.clock.sleep(pause(took)).await;
        }
    }

    /// The port of a cluster, and how far it had come before the turn looked.
    async fn port(&self, id: ClusterId) -> (Option<Arc<dyn ClusterPort>>, u64) {
        let Ok(Some(stored)) = self.parts.registry.read::<Cluster>(id.uuid()).await else { return (None, 0) };
        let port = self.parts.connections.port(&stored.object);
        let seen = port.as_ref().map_or(0, |port| port.number());
        (port, seen)
    }

    /// Rings for whatever changes in the store and matters to a plan.
    async fn listen(&self, prefix: &'static str, bells: &Bells) {
        loop {
            if let Err(error) = self.follow(prefix, bells).await {
                tracing::warn!(code = error.code(), %error, prefix, "planners are not told of changes; trying again");
            }
            self.clock.sleep(RETRY).await;
            ring_all(bells, "timer");
        }
    }

    async fn follow(&self, prefix: &'static str, bells: &Bells) -> Result<(), StoreError> {
        let store = self.parts.registry.store();
        let from = store.revision().await?;
        let mut changes = store.watch(prefix, from).await?;
        while let Some(event) = changes.next().await {
            if let WatchEvent::Changes(changes) = event? {
                let by: BTreeSet<_> = changes.iter().filter_map(|change| matters(&change.key)).collect();
                for one in by {
                    ring_all(bells, one);
                }
            }
        }
        Ok(())
    }
}

/// Waits until a trigger answers otherwise than at the last look.
async fn other_answers(planner: &mut Planner) {
    while planner.heard().await == Heard::TheSame {}
}

/// How long to wait between the first nudge and the look: for others that follow it, and for others who want to compute.
fn pause(took: Duration) -> Duration {
    let rest =
        if took <= SHORT_LOOK { Duration::from_millis(took.millis() / 3) } else { took.min(LONGEST_REST) };
    rest.max(DEBOUNCE)
}

fn ring_all(bells: &Bells, by: &'static str) {
    for bell in bells.lock().unwrap_or_else(PoisonError::into_inner).values() {
        bell.ring(by);
    }
}

/// Whose change it is, if a plan can depend on it. What planners write themselves is not among it.
pub fn matters(key: &str) -> Option<&'static str> {
    match host_keys::parse(key) {
        Some(Key::Host { record: HostRecord::Spec | HostRecord::Op | HostRecord::Status, .. }) => {
            return Some("inventory");
        }
        Some(Key::Host { record: HostRecord::Intent | HostRecord::Metrics | HostRecord::Events, .. }) => {
            return None;
        }
        Some(Key::Pool { .. } | Key::GlobalConfig) => return Some("inventory"),
        Some(Key::GlobalStats) => return None,
        None => {}
    }
    if key.starts_with(RACKS) {
        return Some("inventory");
    }
    crate::registry::keys::is_object(key).then_some("registry")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_follows_the_last_pod_of_a_burst_within_a_second() {
        // The look that was under way when the last one came, the pause after it, and the look that sees it.
        for look in (0..=420).map(Duration::from_millis) {
            let all = look.saturating_add(pause(look)).saturating_add(look);
            assert!(all <= Duration::from_millis(1_000), "{look}: {all}");
        }
        assert_eq!(pause(Duration::ZERO), DEBOUNCE);
        assert_eq!(
            pause(Duration::from_secs(3)),
            Duration::from_secs(3),
            "long looks leave half of the time"
        );
        assert_eq!(pause(Duration::from_mins(1)), LONGEST_REST);
    }

    #[test]
    fn planners_are_not_woken_by_what_they_write() {
        for (key, by) in [
            ("/baremetal/nodes/a/spec", Some("inventory")),
            ("/baremetal/nodes/a/status", Some("inventory")),
            ("/baremetal/nodes/a/intent", None),
            ("/baremetal/nodes/a/metrics", None),
            ("/baremetal/global/config", Some("inventory")),
            ("/muster/inventory/racks/r1", Some("inventory")),
            ("/muster/inventory/guard", None),
            ("/muster/pools/550e8400-e29b-41d4-a716-446655440000", Some("registry")),
            ("/muster/status/pools/550e8400-e29b-41d4-a716-446655440000", None),
            ("/muster/journal/550e8400-e29b-41d4-a716-446655440000/head", None),
            ("/muster/planner/550e8400-e29b-41d4-a716-446655440000", None),
            ("/muster/leases/leader", None),
        ] {
            assert_eq!(matters(key), by, "{key}");
        }
    }
}
