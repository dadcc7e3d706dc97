//! Notes to the cluster's own users, as `events.k8s.io` events.
//!
//! The same note about the same object is one event: it is written once, and again as a series when it is
//! still being said after a while. Everything together is limited, and what is over the limit is dropped and
//! counted: a cluster in trouble must not get a flood of events on top.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use muster_model::{
    API_GROUP, API_VERSION, Duration, Timestamp,
    observe::{About, Note},
    resource::api_version,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::client::{Call, Client};

/// Who we are in events.
const CONTROLLER: &str = "muster.dev/muster";
/// Where events on objects go that have no namespace, or are not in this cluster.
const ELSEWHERE: &str = "default";
/// Objects per page of a list: what other clients use.
const PAGE: u32 = 500;
/// The API's own limit on a note, in bytes.
const LONGEST_NOTE: usize = 1024;

/// How much is written.
#[derive(Debug, Clone, Copy)]
pub struct EventLimits {
    /// The same note is not written again within this time.
    pub quiet: Duration,
    /// Events at one moment, after a time without any.
    pub burst: u32,
    /// Events a second in the long run.
    pub per_second: u32,
    /// Notes that are remembered, so that they can be told apart from new ones.
    pub remembered: usize,
}

impl Default for EventLimits {
    fn default() -> Self {
        // A plan over 500 pending pods says 500 things at once, and then hardly any; Kubernetes' own spam
        // filter is by object, ours by cluster.
        Self { quiet: Duration::from_mins(5), burst: 100, per_second: 10, remembered: 10_000 }
    }
}

#[derive(Debug)]
pub(crate) struct Events {
    client: Client,
    limits: EventLimits,
    instance: String,
    book: Mutex<Book>,
    /// What the objects of pools are called that are not called as usual, by the id of the pool.
    objects: Mutex<BTreeMap<String, String>>,
}

/// What was written, and what may be.
#[derive(Debug)]
struct Book {
    written: BTreeMap<[u8; 32], Written>,
    /// Thousandths of an event that may be written now.
    budget: u64,
    /// On the monotonic clock.
    refilled: Duration,
    dropped: u64,
}

#[derive(Debug, Clone)]
struct Written {
    /// Path of the event.
    path: String,
    count: u64,
    /// On the monotonic clock.
    at: Duration,
}

/// What to do about a note.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Create,
    /// It was said before: the event becomes a series of so many.
    Repeat {
        path: String,
        count: u64,
    },
    Quiet,
}

impl Events {
    pub(crate) fn new(client: Client, limits: EventLimits, instance: String) -> Self {
        let book = Book {
            written: BTreeMap::new(),
            budget: u64::from(limits.burst) * 1000,
            refilled: client.clock().monotonic(),
            dropped: 0,
        };
        Self { client, limits, instance, book: Mutex::new(book), objects: Mutex::default() }
    }

    pub(crate) async fn tell(&self, note: &Note) {
        let clock = self.client.clock();
        let (key, moment, now) = (key(note), clock.monotonic(), clock.now());
        let turn = self.book().turn(&key, moment, &self.limits);
        let result = match turn {
            Turn::Quiet => return,
            Turn::Create => self.create(note, &key, moment, now).await,
            Turn::Repeat { path, count } => {
                let series = json!({"series": {"count": count, "lastObservedTime": micro(now)}});
                match self.client.text("repeat an event", Call::merge(&path, series)).await {
                    // Events are kept for about an hour; this one is over.
                    Err(error) if error.status() == Some(404) => self.create(note, &key, moment, now).await,
                    other => other.map(drop),
                }
            }
        };
        if let Err(error) = result {
            self.book().written.remove(&key);
            tracing::warn!(reason = note.reason, %error, "an event could not be written");
        }
    }

    async fn create(
        &self,
        note: &Note,
        key: &[u8; 32],
        moment: Duration,
        now: Timestamp,
    ) -> Result<(), crate::KubeError> {
        let (namespace, regarding) = self.regarding(&note.about).await;
        let name = format!("{}.{:x}", regarding["name"].as_str().unwrap_or_default(), now.millis());
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let body = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": format!("{name}-{:02x}{:02x}", key[0], key[1]), "namespace": namespace},
            "eventTime": micro(now),
            "reportingController": CONTROLLER, "reportingInstance": self.instance,
            "action": note.reason, "reason": note.reason,
            "type": if note.warning { "Warning" } else { "Normal" },
            "note": shortened(&note.message), "regarding": regarding,
        });
        let made: Value = self.client.call("write an event", Call::post(&path, body)).await?;
        let path = format!("{path}/{}", made["metadata"]["name"].as_str().unwrap_or_default());
        self.book().written.insert(*key, Written { path, count: 1, at: moment });
        Ok(())
    }

    /// Where the event goes, and what it is about.
    async fn regarding(&self, about: &About) -> (String, Value) {
        match about {
            About::Pod { key, uid } => (
                key.namespace.to_string(),
                json!({"apiVersion": "v1", "kind": "Pod", "namespace": &*key.namespace, "name": &*key.name, "uid": uid}),
            ),
            // Objects without a namespace have their events in `default`. A node's are found by its name: the
            // kubelet and kubectl use that as the uid.
            About::Node { name, .. } => {
                (ELSEWHERE.to_owned(), json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}))
            }
            About::Pool { project, cluster, pool, id } => {
                self.pool(project, &format!("{cluster}.{pool}"), &id.to_string()).await
            }
            About::Object { key, uid } => (
                key.namespace.clone(),
                json!({"apiVersion": api_version(), "kind": key.kind.kind(), "namespace": key.namespace, "name": key.name, "uid": uid}),
            ),
        }
    }

    /// A pool's object, if this cluster has it: `kubectl describe` then shows the event. Without one the event says
    /// which pool it is about all the same, and is found by the name that an object of it would get.
    async fn pool(&self, project: &str, name: &str, id: &str) -> (String, Value) {
        let about = |namespace: &str, name: &str| json!({"apiVersion": api_version(), "kind": "NodePool", "namespace": namespace, "name": name});
        let Some(object) = self.pool_object(project, name, id).await else {
            return (ELSEWHERE.to_owned(), about(ELSEWHERE, name));
        };
        let mut found = about(project, object["name"].as_str().unwrap_or_default());
        found["uid"] = object["uid"].clone();
        (project.to_owned(), found)
    }

    /// The metadata of a pool's object. Whoever made it may have called it anything, and a pool can be renamed.
    async fn pool_object(&self, project: &str, usual: &str, id: &str) -> Option<Value> {
        let all = format!("/apis/{API_GROUP}/{API_VERSION}/namespaces/{project}/nodepools");
        let what = "look for a pool's object";
        let is_it = |object: &Value| object["status"]["id"] == id;
        let named = self.objects().get(id).cloned();
        let path = format!("{all}/{}", named.as_deref().unwrap_or(usual));
        if let Ok(mut object) = self.client.call::<Value>(what, Call::get(&path)).await
            && is_it(&object)
        {
            return Some(object["metadata"].take());
        }
        let mut next = String::new();
        loop {
            let path = format!("{all}?limit={PAGE}{next}");
            let mut page = self.client.call::<Value>(what, Call::get(&path)).await.ok()?;
            if let Some(object) = page["items"].as_array_mut()?.iter_mut().find(|object| is_it(object)) {
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                self.objects().insert(id.to_owned(), name);
                return Some(object["metadata"].take());
            }
            let token = page["metadata"]["continue"].as_str().filter(|token| !token.is_empty())?;
            next = format!("&continue={token}");
        }
    }

    fn objects(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn turn(&mut self, key: &[u8; 32], now: Duration, limits: &EventLimits) -> Turn {
        if let Some(written) = self.written.get_mut(key) {
            written.count += 1;
            if now.saturating_sub(written.at) < limits.quiet {
                return Turn::Quiet;
            }
        }
        if !self.take(now, limits) {
            return Turn::Quiet;
        }
        if let Some(written) = self.written.get_mut(key) {
            written.at = now;
            return Turn::Repeat { path: written.path.clone(), count: written.count };
        }
        if self.written.len() >= limits.remembered {
            self.written.retain(|_, written| now.saturating_sub(written.at) < limits.quiet);
            if self.written.len() >= limits.remembered {
                self.dropped += 1;
                return Turn::Quiet;
            }
        }
        // Noted before it is written, so that a second one of the same moment is quiet.
        self.written.insert(*key, Written { path: String::new(), count: 1, at: now });
        Turn::Create
    }

    /// Takes the cost of one event, if there is that much.
    fn take(&mut self, now: Duration, limits: &EventLimits) -> bool {
        let passed = now.saturating_sub(self.refilled).millis();
        self.refilled = now;
        let full = u64::from(limits.burst) * 1000;
        self.budget =
            full.min(self.budget.saturating_add(passed.saturating_mul(u64::from(limits.per_second))));
        if self.budget < 1000 {
            self.dropped += 1;
            if self.dropped.is_power_of_two() {
                tracing::warn!(dropped = self.dropped, "events are over their limit");
            }
            return false;
        }
        self.budget -= 1000;
        true
    }
}

fn key(note: &Note) -> [u8; 32] {
    let mut hash = Sha256::new();
    let (kind, id) = match &note.about {
        About::Pod { key, uid } => ("pod", format!("{key} {uid}")),
        About::Node { name, uid } => ("node", format!("{name} {uid}")),
        About::Pool { project, cluster, pool, id } => ("pool", format!("{project} {cluster} {pool} {id}")),
        About::Object { key, uid } => ("object", format!("{key} {uid}")),
    };
    for part in [kind, &id, &note.reason, &note.message] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.finalize().into()
}

/// The text with the end cut off, if it is too long for the API.
fn shortened(text: &str) -> String {
    if text.len() <= LONGEST_NOTE {
        return text.to_owned();
    }
    let mut end = LONGEST_NOTE - '…'.len_utf8();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

/// A time with microseconds, the only form that these fields take.
pub(crate) fn micro(time: Timestamp) -> String {
    let whole = Timestamp::from_millis(time.millis().div_euclid(1000) * 1000).to_string();
    format!("{}.{:03}000Z", whole.trim_end_matches('Z'), time.millis().rem_euclid(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn book() -> Book {
        Book { written: BTreeMap::new(), budget: 2000, refilled: at(0), dropped: 0 }
    }

    #[test]
    fn the_same_note_is_quiet_and_then_a_series() {
        let limits = EventLimits { quiet: at(60), burst: 2, per_second: 1, remembered: 10 };
        let (mut book, key) = (book(), [7; 32]);
        assert_eq!(book.turn(&key, at(0), &limits), Turn::Create);
        assert_eq!(book.turn(&key, at(1), &limits), Turn::Quiet);
        assert_eq!(book.turn(&key, at(61), &limits), Turn::Repeat { path: String::new(), count: 3 });
        assert_eq!(book.turn(&key, at(62), &limits), Turn::Quiet);
    }

    #[test]
    fn a_flood_is_limited_and_memory_is_bounded() {
        let limits = EventLimits { quiet: at(60), burst: 2, per_second: 1, remembered: 3 };
        let mut book = book();
        let turns: Vec<Turn> = (0..4).map(|n| book.turn(&[n; 32], at(0), &limits)).collect();
        assert_eq!(turns, [Turn::Create, Turn::Create, Turn::Quiet, Turn::Quiet]);
        assert_eq!(book.turn(&[9; 32], at(1), &limits), Turn::Create);
        assert_eq!(book.turn(&[10; 32], at(3), &limits), Turn::Quiet, "three are remembered");
        assert_eq!(book.turn(&[10; 32], at(100), &limits), Turn::Create, "old ones were forgotten");
        assert_eq!(book.written.len(), 1);
    }

    #[test]
    fn notes_fit_and_times_have_microseconds() {
        let long = "ü".repeat(1000);
        let short = shortened(&long);
        assert!(short.len() <= LONGEST_NOTE && short.ends_with('…'));
        assert_eq!(shortened("fine"), "fine");
        assert_eq!(micro(Timestamp::from_millis(1_500)), "1970-01-01T00:00:01.500000Z");
        assert_eq!(micro(Timestamp::from_millis(2_000)), "1970-01-01T00:00:02.000000Z");
    }
}
