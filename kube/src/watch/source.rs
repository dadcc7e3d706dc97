//! One kind's watch.

use std::{collections::BTreeMap, marker::PhantomData, sync::Arc};

use kube::core::Status;
use muster_model::{Duration, Timestamp, observe::SetAside};
use serde_json::value::RawValue;

use super::{
    Shared,
    backoff::Backoff,
    health::SourceState,
    wire::{Line, Page, Stub, next_line},
};
use crate::{
    cache::{Key, Need, Record, Seen},
    client::{Call, Client},
    error::KubeError,
};

/// API servers send a bookmark about once a minute. A stream that is silent for longer than one and a half of
/// those is taken for dead and opened again.
const SILENT: Duration = Duration::from_secs(90);
/// After this time the API server ends the watch by itself, and we take it up again; without it a server would
/// choose for us.
const WATCH_SECONDS: u32 = 300;
/// Objects per page, where the first list cannot be streamed: what other clients use.
const PAGE: u32 = 500;
/// A page may be large and the server slow.
const PAGE_LIMIT: Duration = Duration::from_secs(60);
/// How often a kind that is not served, or is denied, is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// A connection that lives as long as this was a good one, whatever ended it.
const GOOD_CONNECTION: Duration = Duration::from_millis(500);

pub(super) struct Source<R> {
    client: Client,
    shared: Arc<Shared>,
    /// Where to go on; `None` asks for a new list.
    version: Option<String>,
    streams_lists: bool,
    /// Which of the places where the kind may be is asked.
    place: usize,
    /// When the source was last current, for what a new list shows.
    current_at: Option<Timestamp>,
    kind: PhantomData<fn() -> R>,
}

/// Why a connection ended.
enum Ended {
    /// By the server, or cut.
    Closed,
    /// The server does not know any more what came after our version.
    Expired,
    /// The server cannot stream a list.
    NoStreaming,
    Failed(KubeError),
}

/// Objects of a list that is not complete yet.
type Arriving<R> = BTreeMap<Key, Option<R>>;

impl<R: Record> Source<R> {
    pub(super) fn new(client: Client, shared: Arc<Shared>) -> Self {
        let now = shared.now();
        shared.lock().sources.entry(R::SPEC.plural, now);
        Self {
            client,
            shared,
            version: None,
            streams_lists: true,
            place: 0,
            current_at: None,
            kind: PhantomData,
        }
    }

    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            let begun = self.client.clock().monotonic();
            let ended = match (&self.version, self.streams_lists) {
                (Some(_), _) | (None, true) => self.follow().await,
                (None, false) => match self.list().await {
                    Ok(()) => continue,
                    Err(ended) => ended,
                },
            };
            let lived = self.client.clock().monotonic().saturating_sub(begun);
            let wait = match ended {
                Ended::Closed if lived >= GOOD_CONNECTION => {
                    backoff.succeeded();
                    self.disconnected(SourceState::Broken, "the connection ended".to_owned());
                    Duration::ZERO
                }
                Ended::Closed => {
                    self.disconnected(SourceState::Broken, "the connection ended at once".to_owned());
                    backoff.failed(rand::random())
                }
                Ended::Expired => {
                    tracing::info!(kind = R::SPEC.plural, "the watch is too old; listing again");
                    self.version = None;
                    self.disconnected(SourceState::Listing, "a new list is under way".to_owned());
                    backoff.failed(rand::random())
                }
                Ended::NoStreaming => {
                    tracing::info!(kind = R::SPEC.plural, "the API server does not stream lists; paging");
                    self.streams_lists = false;
                    Duration::ZERO
                }
                Ended::Failed(error) => self.failed(&error, &mut backoff),
            };
            self.client.clock().sleep(wait).await;
        }
    }

    /// What to do about an answer that was none: how long to wait.
    fn failed(&mut self, error: &KubeError, backoff: &mut Backoff) -> Duration {
        let (state, wait) = match error.status() {
            // A server that cannot stream this kind may be able to in the other place, and the other way round.
            Some(404) if self.place < R::SPEC.elsewhere.len() => {
                (self.place, self.version, self.streams_lists) = (self.place + 1, None, true);
                return Duration::ZERO;
            }
            Some(404) if R::SPEC.need != Need::Always => {
                self.not_served("the cluster does not serve this kind".to_owned());
                return ASK_AGAIN;
            }
            // One that was seen is missed when it may not be seen for a moment.
            Some(401 | 403) if R::SPEC.need == Need::IfShown && self.current_at.is_none() => {
                tracing::debug!(kind = R::SPEC.plural, %error, "done without");
                self.not_served(format!("it may not be watched, and is done without: {error}"));
                return ASK_AGAIN;
            }
            Some(401 | 403) => (SourceState::Denied, backoff.failed(rand::random())),
            _ => (SourceState::Broken, backoff.failed(rand::random())),
        };
        self.disconnected(state, error.to_string());
        wait.min(ASK_AGAIN)
    }

    /// Follows a watch from where we are, or from a streamed list, until the connection ends.
    async fn follow(&mut self) -> Ended {
        let what = format!("watch {}", R::SPEC.plural);
        let path = self.watch_path();
        let mut reader = match self.client.stream(&what, &path).await {
            Ok(reader) => reader,
            Err(error) => return self.refused(error),
        };
        let mut arriving = match &self.version {
            Some(_) => {
                self.connected();
                None
            }
            None => Some(Arriving::<R>::new()),
        };
        let mut line = Vec::new();
        loop {
            let read = tokio::select! {
                read = next_line(&mut reader, &mut line) => read,
                () = self.client.clock().sleep(SILENT) => {
                    let why = format!("nothing was heard for {SILENT}, not even a bookmark");
                    return Ended::Failed(KubeError::Unreachable { what, why });
                }
            };
            match read {
                Ok(Some(())) => {}
                Ok(None) => return Ended::Closed,
                Err(error) => {
                    tracing::debug!(kind = R::SPEC.plural, %error, "a watch was cut");
                    return Ended::Closed;
                }
            }
            let parsed: Line<'_> = match serde_json::from_slice(&line) {
                Ok(parsed) => parsed,
                Err(error) => {
                    return Ended::Failed(KubeError::Unreadable { what, why: error.to_string() });
                }
            };
            if let Some(ended) = self.take(&what, &parsed, &mut arriving) {
                return ended;
            }
        }
    }

    /// One line. Some lines end the watch.
    fn take(&mut self, what: &str, line: &Line<'_>, arriving: &mut Option<Arriving<R>>) -> Option<Ended> {
        let now = self.shared.now();
        if line.kind == "ERROR" {
            let status: Status = serde_json::from_str(line.object.get()).unwrap_or_default();
            return Some(if status.code == 410 {
                Ended::Expired
            } else {
                Ended::Failed(KubeError::from_status(what, status))
            });
        }
        let stub = Stub::of(line.object);
        match (&*line.kind, &mut *arriving) {
            ("BOOKMARK", Some(list)) if stub.ends_initial_events() => {
                let list = std::mem::take(list);
                *arriving = None;
                self.stands_at(stub.metadata.resource_version.clone());
                self.replace(list);
                self.connected();
            }
            ("ADDED" | "MODIFIED", Some(list)) => {
                let key = key_of(&stub);
                let record = self.read(line.object, &stub, now);
                list.insert(key, record);
            }
            ("DELETED", Some(list)) => {
                list.remove(&key_of(&stub));
            }
            ("ADDED" | "MODIFIED", None) => {
                let key = key_of(&stub);
                match self.read(line.object, &stub, now) {
                    Some(record) => self.shared.change(|inner| {
                        let back = inner.state.take_back(R::SPEC.plural, &key);
                        let news = record.put(&mut inner.state, key, Seen::Live, now);
                        back | news
                    }),
                    None => self.shared.change(|inner| R::remove(&mut inner.state, &key)),
                }
            }
            ("DELETED", None) => {
                let key = key_of(&stub);
                self.shared.change(|inner| {
                    let back = inner.state.take_back(R::SPEC.plural, &key);
                    let news = R::remove(&mut inner.state, &key);
                    back | news
                });
            }
            // A bookmark, or something that a later version of the API sends.
            _ => {}
        }
        if arriving.is_none() {
            if !stub.metadata.resource_version.is_empty() {
                self.stands_at(stub.metadata.resource_version);
            }
            self.heard(now);
        }
        None
    }

    /// Reads an object, or sets it aside with the reason.
    fn read(&self, raw: &RawValue, stub: &Stub, now: Timestamp) -> Option<R> {
        let error = match R::read(raw.get().as_bytes()) {
            Ok(record) if !stub.metadata.name.is_empty() => return Some(record),
            Ok(_) => format!("{} cannot be read at metadata.name: it has none", R::SPEC.kind),
            Err(error) => format!("{error}: {}", error.source),
        };
        let record = SetAside {
            kind: R::SPEC.kind.to_owned(),
            namespace: stub.metadata.namespace.clone(),
            name: stub.metadata.name.clone(),
            node: stub.spec.node_name.clone(),
            why: error,
            since: now,
        };
        self.shared.change(|inner| {
            inner.sources.entry(R::SPEC.plural, now).unreadable += 1;
            let news = inner.state.put_aside(R::SPEC.plural, key_of(stub), record.clone());
            if news {
                tracing::warn!(
                    kind = R::SPEC.kind,
                    namespace = record.namespace,
                    name = record.name,
                    why = record.why,
                    "an object cannot be read and is set aside"
                );
            }
            news
        });
        None
    }

    /// Pages through the list, where it cannot be streamed.
    async fn list(&mut self) -> Result<(), Ended> {
        let what = format!("list {}", R::SPEC.plural);
        let mut list = Arriving::<R>::new();
        let mut next: Option<String> = None;
        loop {
            let path = self.list_path(next.as_deref());
            let text = match self.client.text_within(&what, Call::get(&path), PAGE_LIMIT).await {
                Ok(text) => text,
                // The pages are too old to go on with; the next try begins at the first one.
                Err(error) if error.status() == Some(410) => return Err(Ended::Expired),
                Err(error) => return Err(Ended::Failed(error)),
            };
            let page: Page<'_> = serde_json::from_str(&text).map_err(|error| {
                Ended::Failed(KubeError::Unreadable { what: what.clone(), why: error.to_string() })
            })?;
            let now = self.shared.now();
            for raw in page.items.unwrap_or_default() {
                let stub = Stub::of(raw);
                let record = self.read(raw, &stub, now);
                list.insert(key_of(&stub), record);
            }
            next = page.metadata.next.filter(|token| !token.is_empty());
            if next.is_none() {
                self.stands_at(page.metadata.resource_version);
                self.replace(list);
                return Ok(());
            }
        }
    }

    /// Where to go on from, which is also how far the kind has come.
    fn stands_at(&mut self, version: String) {
        self.shared.change(|inner| {
            let turned = inner.sources.stands_at(R::SPEC.plural, &version);
            if turned {
                if let Some(why) = inner.sources.behind() {
                    tracing::warn!(kind = R::SPEC.plural, why, "nothing is taken away on an old view");
                } else {
                    tracing::info!(kind = R::SPEC.plural, "the view has caught up with what was seen before");
                }
            }
            turned
        });
        self.version = Some(version);
    }

    /// Makes the cache equal to a complete list. What is not in it is gone.
    fn replace(&self, list: Arriving<R>) {
        let now = self.shared.now();
        let how = Seen::Listed { current_at: self.current_at };
        self.shared.change(|inner| {
            let state = &mut inner.state;
            let mut news = false;
            for key in R::keys(state) {
                if !matches!(list.get(&key), Some(Some(_))) {
                    news |= R::remove(state, &key);
                }
            }
            let aside: Vec<Key> = state
                .set_aside
                .keys()
                .filter(|(plural, key)| *plural == R::SPEC.plural && !matches!(list.get(key), Some(None)))
                .map(|(_, key)| key.clone())
                .collect();
            for key in aside {
                news |= state.take_back(R::SPEC.plural, &key);
            }
            for (key, record) in list {
                if let Some(record) = record {
                    news |= record.put(state, key, how, now);
                }
            }
            let objects = R::count(state);
            let source = inner.sources.entry(R::SPEC.plural, now);
            source.lists += 1;
            source.objects = objects;
            source.fresh_at = now;
            // The first complete list counts even when it is empty: there is a view now.
            news |= !source.synced;
            source.synced = true;
            news
        });
    }

    /// A whole kind that the cluster does not have: complete and empty.
    fn not_served(&mut self, why: String) {
        (self.place, self.version) = (0, None);
        self.replace(Arriving::new());
        let now = self.shared.now();
        let mut inner = self.shared.lock();
        let source = inner.sources.entry(R::SPEC.plural, now);
        if source.state != SourceState::NotServed {
            source.since = now;
        }
        source.state = SourceState::NotServed;
        source.why = why;
    }

    fn connected(&self) {
        let now = self.shared.now();
        let mut inner = self.shared.lock();
        let source = inner.sources.entry(R::SPEC.plural, now);
        if source.state != SourceState::Watching {
            source.since = now;
        }
        source.state = SourceState::Watching;
        source.why.clear();
    }

    fn heard(&mut self, now: Timestamp) {
        self.current_at = Some(now);
        let mut inner = self.shared.lock();
        let objects = R::count(&inner.state);
        let source = inner.sources.entry(R::SPEC.plural, now);
        source.fresh_at = source.fresh_at.max(now);
        source.objects = objects;
    }

    fn disconnected(&mut self, state: SourceState, why: String) {
        let now = self.shared.now();
        let mut inner = self.shared.lock();
        let source = inner.sources.entry(R::SPEC.plural, now);
        source.reconnects += 1;
        if source.state == SourceState::Watching {
            self.current_at = Some(source.fresh_at);
        }
        let expected = why == "the connection ended" || state == SourceState::Listing;
        if source.why != why && !expected {
            tracing::warn!(kind = R::SPEC.plural, why, "a watch does not work");
        }
        if source.state != state {
            source.since = now;
        }
        (source.state, source.why) = (state, why);
    }

    /// What a refused watch means.
    fn refused(&self, error: KubeError) -> Ended {
        match error.status() {
            Some(410) => Ended::Expired,
            // A server that does not know the parameters of a streamed list says so in one of these ways.
            Some(400 | 422) if self.version.is_none() => Ended::NoStreaming,
            _ => Ended::Failed(error),
        }
    }

    fn watch_path(&self) -> String {
        let narrow = if R::SPEC.narrow.is_empty() { String::new() } else { format!("&{}", R::SPEC.narrow) };
        let from = match &self.version {
            Some(version) => format!("resourceVersion={version}"),
            None => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=".to_owned(),
        };
        format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&{from}{narrow}",
            self.path()
        )
    }

    fn list_path(&self, next: Option<&str>) -> String {
        let narrow = if R::SPEC.narrow.is_empty() { String::new() } else { format!("&{}", R::SPEC.narrow) };
        // A continue token is made of characters that need no escape in a query, but nobody promises that.
        let next = next.map_or_else(String::new, |token| format!("&continue={}", escape(token)));
        format!("{}?limit={PAGE}{narrow}{next}", self.path())
    }

    fn path(&self) -> &'static str {
        let other = self.place.checked_sub(1).and_then(|place| R::SPEC.elsewhere.get(place));
        other.copied().unwrap_or(R::SPEC.path)
    }
}

/// Percent-encodes all but letters, digits and `-_.~`.
fn escape(text: &str) -> String {
    use std::fmt::Write;
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}"); // writing to a String cannot fail
        }
        out
    })
}

fn key_of(stub: &Stub) -> Key {
    Key { namespace: stub.metadata.namespace.as_str().into(), name: stub.metadata.name.as_str().into() }
}
