//! What changed, as it changes, for pages that stay open: small notices with sequence numbers, and a ring of the last
//! ones so that a reader that was away for a moment goes on where it was.
//!
//! A notice says what kind of object changed and its name, not how it looks now: readers ask for what they show. Its
//! sequence number grows by one with every notice of this process. Numbers begin at the time of the start, so that a
//! number of an earlier process, or of another one, is never mistaken for one of this.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use futures::StreamExt;
use muster_model::{
    Clock, ClusterId, Duration,
    host::keys::{self as host_keys, HostRecord, Key},
    store::{Revision, StoreError, WatchEvent},
};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    history,
    inventory::Inventory,
    journal,
    registry::{Kind, Registry, keys},
    snapshot::read::RACKS,
};

/// Notices that can be read again: minutes of a busy fleet.
const KEPT: usize = 4_096;
/// Notices that wait for a slow reader; one that falls further behind is told to begin anew.
const QUEUE: usize = 1_024;
/// Pause after the store's watch broke off.
const RETRY: Duration = Duration::from_secs(1);

/// The kind of a notice that says: begin anew.
pub const RESYNC: &str = "resync";

/// Something changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Notice {
    pub sequence: u64,
    /// `hosts`, `pools`, `clusters`, `operations`, `decisions`, `racks`, `freeze`, `history`.
    pub kind: &'static str,
    /// The part of it: `spec`, `status`, `metrics`, `op`, `intent`, `events`; empty where there is one only.
    pub part: &'static str,
    /// Name of a host or rack, id of everything else; empty for what there is one of.
    pub name: String,
    pub deleted: bool,
    #[serde(skip)]
    pub audience: Audience,
}

/// Who may know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    Everyone,
    Project(Arc<str>),
    /// Whoever sees records that name no project.
    Unowned,
    /// Nobody remembers whose it was.
    Nobody,
}

/// Where a reader begins.
#[derive(Debug)]
pub enum Start {
    /// What it missed, then what comes.
    Resumed(Vec<Arc<Notice>>),
    /// Everything it knows may be old.
    Anew,
}

/// As much of a record as says whose it is.
#[derive(Debug, Deserialize)]
struct Owned {
    #[serde(default)]
    project: Option<String>,
}

#[derive(Debug)]
struct Ring {
    /// The number of the last notice.
    last: u64,
    kept: VecDeque<Arc<Notice>>,
}

/// The news of a process.
#[derive(Debug)]
pub struct News {
    registry: Arc<Registry>,
    inventory: Arc<Inventory>,
    clock: Arc<dyn Clock>,
    ring: RwLock<Ring>,
    send: broadcast::Sender<Arc<Notice>>,
    /// Whose an object was when it was last seen: its deletion is news for the same people.
    owners: Mutex<HashMap<(&'static str, String), Audience>>,
}

impl News {
    pub fn new(registry: Arc<Registry>, inventory: Arc<Inventory>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let first = u64::try_from(clock.now().millis()).unwrap_or(0).saturating_mul(1_000);
        Arc::new(Self {
            registry,
            inventory,
            clock,
            ring: RwLock::new(Ring { last: first, kept: VecDeque::new() }),
            send: broadcast::Sender::new(QUEUE),
            owners: Mutex::default(),
        })
    }

    /// Where the news are now.
    pub fn last(&self) -> u64 {
        self.ring.read().unwrap_or_else(PoisonError::into_inner).last
    }

    /// What came after `after` and what comes, without a gap between them.
    pub fn subscribe(&self, after: Option<u64>) -> (Start, u64, broadcast::Receiver<Arc<Notice>>) {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        // Under the lock nothing is sent, so that nothing comes twice or is missed.
        let receiver = self.send.subscribe();
        let oldest = ring.last - ring.kept.len() as u64;
        let start = match after {
            Some(after) if (oldest..=ring.last).contains(&after) => {
                Start::Resumed(ring.kept.iter().filter(|one| one.sequence > after).cloned().collect())
            }
            Some(_) | None => Start::Anew,
        };
        (start, ring.last, receiver)
    }

    /// Follows the store until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        let follow = |prefix: &'static str| async move {
            loop {
                if let Err(error) = self.follow(prefix).await {
                    tracing::warn!(code = error.code(), %error, prefix, "pages are not told of changes; trying again");
                }
                self.clock.sleep(RETRY).await;
                // Whatever happened meanwhile was not seen.
                self.forget();
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = async { tokio::join!(follow(host_keys::ROOT), follow(keys::ROOT)); } => {}
        }
    }

    async fn follow(&self, prefix: &'static str) -> Result<(), StoreError> {
        let store = self.registry.store();
        let from: Revision = store.revision().await?;
        let mut changes = store.watch(prefix, from).await?;
        while let Some(event) = changes.next().await {
            let WatchEvent::Changes(changes) = event? else { continue };
            for change in &changes {
                if let Some((kind, part, name)) = read(&change.key) {
                    // The record itself says whose it is: indexes may not have seen it yet.
                    let told = part == "spec" || kind == "racks";
                    let value = change.entry.as_ref().filter(|_| told).map(|entry| &entry.value);
                    let owner = value.and_then(|value| serde_json::from_slice::<Owned>(value).ok());
                    self.tell(kind, part, name, change.entry.is_none(), owner);
                }
            }
        }
        Ok(())
    }

    /// Every reader has to begin anew: the numbers go on, what was kept is gone.
    fn forget(&self) {
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        ring.last += 1;
        ring.kept.clear();
        let notice = Notice {
            sequence: ring.last,
            kind: RESYNC,
            part: "",
            name: String::new(),
            deleted: false,
            audience: Audience::Everyone,
        };
        let _ = self.send.send(Arc::new(notice));
    }

    fn tell(&self, kind: &'static str, part: &'static str, name: &str, deleted: bool, owner: Option<Owned>) {
        let audience = self.audience(kind, name, owner, deleted && part != "status");
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        ring.last += 1;
        let sequence = ring.last;
        let notice = Arc::new(Notice { sequence, kind, part, name: name.to_owned(), deleted, audience });
        ring.kept.push_back(Arc::clone(&notice));
        if ring.kept.len() > KEPT {
            ring.kept.pop_front();
        }
        // Nobody listens: that is nobody's fault.
        let _ = self.send.send(notice);
    }

    fn audience(&self, kind: &'static str, name: &str, owner: Option<Owned>, deleted: bool) -> Audience {
        let registered = |kind: Kind, id: &str| {
            let id = id.parse::<Uuid>().ok()?;
            self.registry.summary(kind, id).map(|found| Audience::Project(Arc::clone(&found.project)))
        };
        let said = owner.map(|owner| match owner.project {
            Some(project) => Audience::Project(project.into()),
            None => Audience::Unowned,
        });
        let found = said.or_else(|| match kind {
            "hosts" => {
                let host = self.inventory.host(name).filter(|host| host.spec.is_some());
                host.and_then(|host| match host.owner() {
                    crate::inventory::Owner::Project(project) => Some(Audience::Project(Arc::clone(project))),
                    crate::inventory::Owner::Nobody => Some(Audience::Unowned),
                    crate::inventory::Owner::Unknown => None,
                })
            }
            "pools" => registered(Kind::Pool, name),
            "clusters" | "decisions" => registered(Kind::Cluster, name),
            "operations" => registered(Kind::Operation, name),
            _ => None,
        });
        if matches!(kind, "freeze" | "history") {
            return Audience::Everyone;
        }
        let kind = if kind == "decisions" { "clusters" } else { kind };
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Some(audience) => {
                owners.insert((kind, name.to_owned()), audience.clone());
                audience
            }
            None if deleted => owners.remove(&(kind, name.to_owned())).unwrap_or(Audience::Nobody),
            None => owners.get(&(kind, name.to_owned())).cloned().unwrap_or(Audience::Nobody),
        }
    }
}

/// What a key is about, as far as pages show it.
fn read(key: &str) -> Option<(&'static str, &'static str, &str)> {
    match host_keys::parse(key) {
        Some(Key::Host { host, record }) => {
            let part = match record {
                HostRecord::Spec => "spec",
                HostRecord::Intent => "intent",
                HostRecord::Op => "op",
                HostRecord::Status => "status",
                HostRecord::Metrics => "metrics",
                HostRecord::Events => "events",
            };
            return Some(("hosts", part, host));
        }
        Some(Key::GlobalConfig) => return Some(("freeze", "", "")),
        Some(Key::Pool { .. } | Key::GlobalStats) => return None,
        None => {}
    }
    if let Some(name) = key.strip_prefix(RACKS) {
        return Some(("racks", "", name));
    }
    if key == muster_model::restored::RESTORED_KEY {
        return Some(("freeze", "", ""));
    }
    if key.starts_with(history::ROOT) {
        return Some(("history", "", ""));
    }
    if let Some(rest) = key.strip_prefix(journal::ROOT) {
        let (cluster, rest) = rest.split_once('/')?;
        cluster.parse::<ClusterId>().ok()?;
        return rest.starts_with("decisions/").then_some(("decisions", "", cluster));
    }
    for (kind, name) in [(Kind::Cluster, "clusters"), (Kind::Pool, "pools"), (Kind::Operation, "operations")]
    {
        for (prefix, part) in [(kind.objects(), "spec"), (kind.statuses(), "status")] {
            if let Some(id) = key.strip_prefix(&prefix) {
                return Some((name, part, id));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_pages_show_are_news() {
        let id = "550e8400-e29b-41d4-a716-446655440000";
        let pool = format!("/muster/status/pools/{id}");
        let decision = format!("/muster/journal/{id}/decisions/0000000000000001");
        for (key, kind) in [
            ("/baremetal/nodes/a/status", Some(("hosts", "status", "a"))),
            ("/baremetal/nodes/a/metrics", Some(("hosts", "metrics", "a"))),
            ("/baremetal/global/config", Some(("freeze", "", ""))),
            ("/baremetal/global/stats", None),
            ("/muster/inventory/racks/r1", Some(("racks", "", "r1"))),
            ("/muster/history/fine/001", Some(("history", "", ""))),
            (pool.as_str(), Some(("pools", "status", id))),
            (decision.as_str(), Some(("decisions", "", id))),
            ("/muster/journal/550e8400-e29b-41d4-a716-446655440000/head", None),
            ("/muster/leases/leader", None),
            ("/muster/idempotency/abc", None),
        ] {
            assert_eq!(read(key), kind, "{key}");
        }
    }
}
