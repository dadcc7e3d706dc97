//! The port to the API server that keeps the objects: watches and compare-and-set writes.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};
use muster_model::{
    API_GROUP, API_VERSION, Duration,
    observe::Note,
    resource::{
        FIELD_MANAGER, ObjectKey, Resource, ResourceError, ResourceEvent, ResourceKind, ResourcePort,
    },
};
use serde_json::{Value, json};

use super::{DEFINITION, definition, definition_name, spec_schema};
use crate::{
    client::{Call, Client},
    error::KubeError,
    events::{EventLimits, Events},
    watch::wire::{Line, Page, next_line},
};

/// Objects per page of a list: what other clients use.
const PAGE: u32 = 500;
/// After this time the API server ends a watch by itself, and we take it up again.
const WATCH_SECONDS: u32 = 300;
/// API servers send a bookmark about once a minute; one that is silent for longer is taken for dead.
const SILENT: Duration = Duration::from_secs(90);
/// Between tries of a watch that fails: an API server that comes back is found within this time.
const AGAIN: Duration = Duration::from_secs(2);

/// The objects of one cluster.
#[derive(Debug, Clone)]
pub struct Objects {
    client: Client,
    events: Arc<Events>,
}

impl Objects {
    /// `instance` is who writes events, unique among replicas.
    pub fn new(client: Client, limits: EventLimits, instance: String) -> Self {
        let events = Arc::new(Events::new(client.clone(), limits, instance));
        Self { client, events }
    }

    async fn write(&self, what: String, key: &ObjectKey, call: Call<'_>) -> Result<Resource, ResourceError> {
        let answer: Value =
            self.client.call(&what, call).await.map_err(|error| refused(what.clone(), key, &error))?;
        Resource::read(key.kind, answer)
            .ok_or(ResourceError::Unreachable { what, why: "the answer is no object".to_owned() })
    }
}

fn collection(kind: ResourceKind, namespace: Option<&str>) -> String {
    let inside = namespace.map_or_else(String::new, |namespace| format!("namespaces/{namespace}/"));
    format!("/apis/{API_GROUP}/{API_VERSION}/{inside}{}", kind.plural())
}

fn path(key: &ObjectKey) -> String {
    format!("{}/{}", collection(key.kind, Some(&key.namespace)), key.name)
}

#[async_trait]
impl ResourcePort for Objects {
    fn schema(&self, kind: ResourceKind) -> &Value {
        spec_schema(kind)
    }

    async fn check(&self) -> Result<(), ResourceError> {
        for kind in ResourceKind::ALL {
            let name = definition_name(kind);
            let what = format!("read the definition {name}");
            let at = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
            let found: Value = match self.client.call(&what, Call::get(&at)).await {
                Ok(found) => found,
                Err(error) if error.status() == Some(404) => {
                    return Err(ResourceError::Definitions {
                        why: format!("the cluster does not know {name}"),
                    });
                }
                Err(error) => return Err(failed(what, &error)),
            };
            let mark = |definition: &Value| definition["metadata"]["annotations"][DEFINITION].clone();
            if mark(&found) != mark(definition(kind)) {
                let why = format!("the definition {name} in the cluster is of another version of Muster");
                return Err(ResourceError::Definitions { why });
            }
        }
        Ok(())
    }

    fn watch(&self, kind: ResourceKind) -> BoxStream<'static, ResourceEvent> {
        let state = Follow { client: self.client.clone(), kind, version: None, reader: None, pause: false };
        stream::unfold(state, |mut state| async move {
            let event = state.next().await;
            Some((event, state))
        })
        .boxed()
    }

    async fn create(&self, object: &Resource) -> Result<Resource, ResourceError> {
        let key = object.key();
        let at = format!("{}?fieldManager={FIELD_MANAGER}", collection(key.kind, Some(&key.namespace)));
        self.write(format!("create {key}"), &key, Call::post(&at, object.to_object())).await
    }

    async fn replace(&self, object: &Resource) -> Result<Resource, ResourceError> {
        let key = object.key();
        let at = format!("{}?fieldManager={FIELD_MANAGER}", path(&key));
        self.write(format!("write {key}"), &key, Call::put(&at, object.to_object())).await
    }

    async fn replace_status(&self, object: &Resource) -> Result<Resource, ResourceError> {
        let key = object.key();
        let at = format!("{}/status?fieldManager={FIELD_MANAGER}", path(&key));
        self.write(format!("write the status of {key}"), &key, Call::put(&at, object.to_object())).await
    }

    async fn delete(&self, object: &Resource) -> Result<(), ResourceError> {
        let key = object.key();
        let what = format!("delete {key}");
        let options =
            json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": object.uid() } });
        match self.client.text(&what, Call::delete(&path(&key), options)).await {
            Err(error) if error.status() != Some(404) => Err(refused(what, &key, &error)),
            _ => Ok(()),
        }
    }

    async fn make_namespace(&self, name: &str) -> Result<(), ResourceError> {
        let what = format!("create namespace {name}");
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": name, "labels": { "app.kubernetes.io/managed-by": FIELD_MANAGER } },
        });
        let at = format!("/api/v1/namespaces?fieldManager={FIELD_MANAGER}");
        match self.client.text(&what, Call::post(&at, namespace)).await {
            Err(error) if error.status() != Some(409) => Err(failed(what, &error)),
            _ => Ok(()),
        }
    }

    async fn tell(&self, note: &Note) {
        self.events.tell(note).await;
    }
}

/// What an answer means for an object.
fn refused(what: String, key: &ObjectKey, error: &KubeError) -> ResourceError {
    match error {
        KubeError::Status { code: 409, reason, .. } if reason == "AlreadyExists" => {
            ResourceError::Exists { what }
        }
        KubeError::Status { code: 409, .. } => ResourceError::Conflict { what },
        KubeError::Status { code: 404, message, .. } if message.contains("namespaces") => {
            ResourceError::NoNamespace { what, namespace: key.namespace.clone() }
        }
        KubeError::Status { code: 404, .. } => ResourceError::Missing { what },
        other => failed(what, other),
    }
}

/// What an answer means that has nothing to do with one object.
fn failed(what: String, error: &KubeError) -> ResourceError {
    match error {
        KubeError::Status { code: 401 | 403, message, .. } => {
            ResourceError::Denied { what, why: message.clone() }
        }
        KubeError::Status { code: 400 | 413 | 422, message, .. } => {
            ResourceError::Refused { what, why: message.clone() }
        }
        other => ResourceError::Unreachable { what, why: other.to_string() },
    }
}

/// One kind's watch: list, then follow; from the beginning again when the API server has forgotten where we were.
struct Follow {
    client: Client,
    kind: ResourceKind,
    /// Where to go on; `None` asks for a new list.
    version: Option<String>,
    reader: Option<Reader>,
    /// The last try failed.
    pause: bool,
}

type Reader = std::pin::Pin<Box<dyn futures::AsyncBufRead + Send>>;

/// What a line of a watch means.
enum Told {
    Event(ResourceEvent),
    Bookmark,
    Expired,
    Error(String),
}

impl Follow {
    async fn next(&mut self) -> ResourceEvent {
        loop {
            if self.pause {
                let clock = Arc::clone(self.client.clock());
                clock.sleep(AGAIN).await;
                self.pause = false;
            }
            let told = match (self.version.is_some(), self.reader.is_some()) {
                (false, _) => self.list().await.map(Some),
                (true, false) => self.open().await.map(|()| None),
                (true, true) => self.line().await,
            };
            match told {
                Ok(Some(event)) => return event,
                Ok(None) => {}
                Err(why) => {
                    self.reader = None;
                    self.pause = true;
                    return ResourceEvent::Broken(why);
                }
            }
        }
    }

    async fn list(&mut self) -> Result<ResourceEvent, String> {
        let what = format!("list {}", self.kind.plural());
        let mut all = Vec::new();
        let mut next = String::new();
        loop {
            let at = format!("{}?limit={PAGE}{next}", collection(self.kind, None));
            let text = self.client.text(&what, Call::get(&at)).await.map_err(|error| error.to_string())?;
            let page: Page<'_> = serde_json::from_str(&text).map_err(|error| format!("{what}: {error}"))?;
            for raw in page.items.iter().flatten() {
                let object = serde_json::from_str(raw.get()).ok();
                all.extend(object.and_then(|object| Resource::read(self.kind, object)));
            }
            let Some(token) = page.metadata.next.filter(|token| !token.is_empty()) else {
                self.version = Some(page.metadata.resource_version);
                return Ok(ResourceEvent::All(all));
            };
            next = format!("&continue={token}");
        }
    }

    async fn open(&mut self) -> Result<(), String> {
        let what = format!("watch {}", self.kind.plural());
        let at = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={}",
            collection(self.kind, None),
            self.version.as_deref().unwrap_or_default()
        );
        match self.client.stream(&what, &at).await {
            Ok(reader) => self.reader = Some(Box::pin(reader)),
            Err(error) if error.status() == Some(410) => self.version = None,
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }

    /// The next event; `None` when the watch has to be opened or the list to be read again.
    async fn line(&mut self) -> Result<Option<ResourceEvent>, String> {
        let clock = Arc::clone(self.client.clock());
        let Some(reader) = &mut self.reader else { return Ok(None) };
        let mut line = Vec::new();
        let read = tokio::select! {
            read = next_line(reader, &mut line) => read,
            () = clock.sleep(SILENT) => Ok(None),
        };
        if !matches!(read, Ok(Some(()))) {
            // The server ends watches from time to time; a line that was cut off comes again.
            self.reader = None;
            return Ok(None);
        }
        let (told, version) = told(self.kind, &line);
        if let Some(version) = version {
            self.version = Some(version);
        }
        match told {
            Told::Event(event) => Ok(Some(event)),
            Told::Bookmark => Ok(None),
            Told::Expired => {
                (self.reader, self.version) = (None, None);
                Ok(None)
            }
            Told::Error(why) => Err(why),
        }
    }
}

/// What a line says, and how far it brings us.
fn told(kind: ResourceKind, line: &[u8]) -> (Told, Option<String>) {
    let parsed: Result<Line<'_>, _> = serde_json::from_slice(line);
    let object = parsed.and_then(|line| Ok((line.kind, serde_json::from_str::<Value>(line.object.get())?)));
    let (word, object) = match object {
        Ok(read) => read,
        Err(error) => return (Told::Error(format!("a line of the watch cannot be read: {error}")), None),
    };
    if word == "ERROR" {
        let expired = object["code"] == 410;
        let why = object["message"].as_str().unwrap_or("the API server ended the watch").to_owned();
        return (if expired { Told::Expired } else { Told::Error(why) }, None);
    }
    let version = object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    if word == "BOOKMARK" {
        return (Told::Bookmark, version);
    }
    match Resource::read(kind, object) {
        None => (Told::Bookmark, version),
        Some(resource) if word == "DELETED" => (Told::Event(ResourceEvent::Gone(resource.key())), version),
        Some(resource) => (Told::Event(ResourceEvent::Changed(resource)), version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_watch_say_what_happened() {
        let object =
            json!({ "metadata": { "name": "a", "namespace": "n", "resourceVersion": "7" }, "spec": {} });
        let line = |word: &str, object: &Value| json!({ "type": word, "object": object }).to_string();
        let (event, version) = told(ResourceKind::NodePool, line("ADDED", &object).as_bytes());
        assert!(matches!(event, Told::Event(ResourceEvent::Changed(_))));
        assert_eq!(version.as_deref(), Some("7"));
        let (event, _) = told(ResourceKind::NodePool, line("DELETED", &object).as_bytes());
        assert!(matches!(event, Told::Event(ResourceEvent::Gone(key)) if key.name == "a"));
        let (event, version) = told(ResourceKind::NodePool, line("BOOKMARK", &object).as_bytes());
        assert!(matches!(event, Told::Bookmark) && version.is_some());
        let (event, version) =
            told(ResourceKind::NodePool, line("ERROR", &json!({ "code": 410 })).as_bytes());
        assert!(matches!(event, Told::Expired) && version.is_none());
        let (event, _) =
            told(ResourceKind::NodePool, line("ERROR", &json!({ "code": 500, "message": "no" })).as_bytes());
        assert!(matches!(event, Told::Error(why) if why == "no"));
        assert!(matches!(told(ResourceKind::NodePool, b"{").0, Told::Error(_)));
    }
}
