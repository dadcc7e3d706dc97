//! From a document to the server: find what is there, create or replace it, say which. Shared by `apply`,
//! `create`, `diff` and `edit`.

use clap::ValueEnum;
use muster_model::host::{MgmtAddress, TlsVerify};
use reqwest::Method;
use serde_json::{Map, Value};

use super::{
    client::{Projects, Request},
    failure::{Exit, Failure, Outcome},
    kinds::{Kind, Scope, text_at},
    list::{self, Selection},
    manifest::{Document, Origin},
    resolve,
    session::Session,
};

/// Fields that the server writes. In a file they are leftovers of a `get` and mean nothing.
const SERVER_OWNED: &[&str] = &[
    "id",
    "generation",
    "resource_version",
    "created_at",
    "created_by",
    "updated_at",
    "deleted_at",
    "status",
    "revision",
    "project",
];

/// Whether a change is made or only tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum DryRun {
    /// Make the change
    #[default]
    None,
    /// The server checks and answers as if, and changes nothing
    Server,
}

/// What became of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    Created,
    Configured,
    Unchanged,
}

impl Done {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
        }
    }
}

/// A document with everything looked up that is needed to send it.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) kind: &'static Kind,
    pub(crate) body: Map<String, Value>,
    /// What is there now under this name or id.
    pub(crate) current: Option<Value>,
    pub(crate) title: String,
    pub(crate) origin: Origin,
    scope: Projects,
}

/// Looks up the cluster and the present object.
pub(crate) async fn prepare(session: &Session, document: Document) -> Outcome<Wanted> {
    let Document { kind, mut body, cluster, origin } = document;
    let id = body.get("id").and_then(Value::as_str).map(str::to_owned);
    let project = body.get("project").and_then(Value::as_str).map(str::to_owned);
    body.retain(|key, _| !SERVER_OWNED.contains(&key.as_str()));
    let name = body.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if name.is_empty() && body.get("name").is_none_or(|name| name.is_null() || name.is_string()) {
        let text = format!("it has no name ({})", origin.whole());
        return Err(
            Failure::new(Exit::Failure, kind.singular, text).next("add a line like `name: NAME` to it")
        );
    }
    let mut title = format!("{} {name}", kind.singular);
    if kind.scope == Scope::Cluster {
        let cluster_id = match (body.get("cluster_id").and_then(Value::as_str), &cluster) {
            (_, Some(name)) => resolve::cluster_id(session, name, false)
                .await
                .map_err(|failure| at(failure, &origin, "cluster"))?,
            (Some(id), None) => id.to_owned(),
            (None, None) => {
                return Err(Failure::new(
                    Exit::Failure,
                    title,
                    format!("it names no cluster ({})", origin.whole()),
                )
                .next("add a line like `cluster: NAME` to it"));
            }
        };
        body.insert("cluster_id".to_owned(), cluster_id.clone().into());
        let shown = cluster.unwrap_or_else(|| {
            session.clusters().get(&cluster_id).map_or(cluster_id, |found| text_at(found, "name"))
        });
        title = format!("{} {shown}/{name}", kind.singular);
    }
    let current = match name.as_str() {
        "" => None, // the server says what is wrong with it
        _ => present(session, kind, &body, id.as_deref(), project.as_deref()).await?,
    };
    let scope = project.map_or(Projects::Session, Projects::One);
    Ok(Wanted { kind, body, current, title, origin, scope })
}

/// The object that the document is about: by id when that exists, else by name.
async fn present(
    session: &Session,
    kind: &'static Kind,
    body: &Map<String, Value>,
    id: Option<&str>,
    project: Option<&str>,
) -> Outcome<Option<Value>> {
    if let Some(id) = id {
        let request = Request {
            scope: project.map_or(Projects::Session, |project| Projects::One(project.to_owned())),
            ..Request::get(kind.path(id), format!("{} {id}", kind.singular))
        };
        match session.client.call(request).await {
            Ok(answer) => return Ok(Some(answer.body)),
            Err(failure) if failure.exit == Exit::NotFound || failure.status == Some(400) => {}
            Err(failure) => return Err(failure),
        }
    }
    let text = |key: &str| body.get(key).and_then(Value::as_str).map(str::to_owned);
    let selection = Selection {
        name: text("name"),
        cluster_id: text("cluster_id"),
        project: project.map(str::to_owned),
        ..Selection::visible()
    };
    match list::all(session, kind, &selection).await {
        Ok(listed) => Ok(listed.items.into_iter().next()),
        // A name or a cluster that the server does not take: let it say so about the object itself.
        Err(failure) if failure.status == Some(400) || failure.status == Some(404) => Ok(None),
        Err(failure) => Err(failure),
    }
}

impl Wanted {
    fn dry(request: Request, dry_run: DryRun) -> Request {
        if dry_run == DryRun::Server { request.query("dryRun", "true") } else { request }
    }

    /// Creates the object; that it exists already is a conflict.
    pub(crate) async fn create(&self, session: &Session, dry_run: DryRun) -> Outcome<Value> {
        let mut request = Request::new(Method::POST, self.kind.collection(), &self.title)
            .body(Value::Object(self.body.clone()));
        request.scope.clone_from(&self.scope);
        let answer = session.client.call(Self::dry(request, dry_run)).await;
        answer.map(|answer| answer.body).map_err(|failure| self.point(failure))
    }

    /// Replaces `current`, which must still be what was read.
    pub(crate) async fn replace(
        &self,
        session: &Session,
        current: &Value,
        dry_run: DryRun,
    ) -> Outcome<Value> {
        self.put(session, self.body.clone(), current, dry_run).await
    }

    async fn put(
        &self,
        session: &Session,
        mut body: Map<String, Value>,
        current: &Value,
        dry_run: DryRun,
    ) -> Outcome<Value> {
        let version = text_at(current, "resource_version");
        body.remove("cluster_id");
        let mut request = Request::new(Method::PUT, self.kind.path(&text_at(current, "id")), &self.title)
            .body(Value::Object(body))
            .if_match(Some(version.as_str()).filter(|version| !version.is_empty()));
        request.scope.clone_from(&self.scope);
        let answer = session.client.call(Self::dry(request, dry_run)).await;
        answer.map(|answer| answer.body).map_err(|failure| self.point(failure))
    }

    /// Makes it so, and says what that took.
    pub(crate) async fn apply(&self, session: &Session, dry_run: DryRun) -> Outcome<(Done, Value)> {
        let Some(current) = &self.current else {
            return Ok((Done::Created, self.create(session, dry_run).await?));
        };
        if let (Some(wanted), true) = (self.body.get("cluster_id"), self.kind.scope == Scope::Cluster)
            && *wanted != current["cluster_id"]
        {
            {
                return Err(self.point(
                    Failure::new(Exit::Conflict, &self.title, "a pool cannot move to another cluster")
                        .next("leave its id out to create a new one there"),
                ));
            }
        }
        let mut body = self.body.clone();
        if self.kind.kind == "BareMetalNode" {
            keep_overlay(&mut body, current);
        }
        let after = self.put(session, body, current, dry_run).await?;
        let same = written(self.kind, current) == written(self.kind, &after);
        Ok((if same { Done::Unchanged } else { Done::Configured }, after))
    }

    /// A failure with the places of its faults in the file.
    pub(crate) fn point(&self, mut failure: Failure) -> Failure {
        for fault in &mut failure.faults {
            fault.place = self.origin.place(&fault.path);
        }
        if failure.faults.is_empty() && !self.origin.file.is_empty() {
            failure.cause = format!("{} ({})", failure.cause, self.origin.whole());
        }
        failure
    }
}

/// A file describes a machine. What people laid over it since is not in the file, and stays unless the file speaks of it.
fn keep_overlay(body: &mut Map<String, Value>, current: &Value) {
    let (Some(wanted), Some(stored)) =
        (body.get_mut("spec").and_then(Value::as_object_mut), current["spec"].as_object())
    else {
        return;
    };
    // An approved key belongs to the place where it was compared.
    let place = |spec: &Map<String, Value>| {
        let text = |field: &str| spec.get(field).and_then(Value::as_str);
        let address = text("mgmtAddress").and_then(|text| text.parse::<MgmtAddress>().ok());
        (address, text("tlsVerify").unwrap_or(TlsVerify::default().as_str()).to_owned())
    };
    let pin = (place(wanted) == place(stored)).then_some("pin");
    if let (Some(pin), Some(Value::Array(wanted)), Some(Value::Array(stored))) =
        (pin, wanted.get_mut("drivers"), stored.get("drivers"))
    {
        for (wanted, stored) in wanted.iter_mut().zip(stored) {
            let is_same = ["kind", "address"].iter().all(|field| wanted.get(field) == stored.get(field));
            let kept = stored["settings"].get(pin).filter(|_| is_same && wanted["settings"][pin].is_null());
            if let (Some(kept), Some(wanted)) = (kept, wanted.as_object_mut()) {
                let settings = wanted.entry("settings").or_insert_with(|| Value::Object(Map::new()));
                if let Some(settings) = settings.as_object_mut() {
                    settings.insert(pin.to_owned(), kept.clone());
                }
            }
        }
    }
    // A wish for power goes with the hold that it came with.
    let wish = (!wanted.contains_key("hold") || !stored.contains_key("hold")).then_some("powerState");
    for field in ["hold", "admin", "acknowledgement"].into_iter().chain(wish).chain(pin) {
        if let (false, Some(value)) = (wanted.contains_key(field), stored.get(field)) {
            wanted.insert(field.to_owned(), value.clone());
        }
    }
}

fn at(mut failure: Failure, origin: &Origin, path: &str) -> Failure {
    if let Some(place) = origin.place(path) {
        failure.cause = format!("{} ({place})", failure.cause);
    }
    failure
}

/// What people wrote of an object: equal before and after means nothing changed.
fn written(kind: &Kind, object: &Value) -> Map<String, Value> {
    let fields = object.as_object().into_iter().flatten();
    fields
        .filter(|(key, _)| kind.written.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// An object as a person would write it into a file; `apply` of it changes nothing.
pub(crate) fn as_document(session: &Session, kind: &Kind, object: &Value) -> Value {
    let mut body = written(kind, object);
    body.insert("kind".to_owned(), kind.kind.into());
    if kind.scope == Scope::Cluster {
        let id = text_at(object, "cluster_id");
        if let Some(cluster) = session.clusters().get(&id) {
            body.remove("cluster_id");
            body.insert("cluster".to_owned(), text_at(cluster, "name").into());
        }
    }
    body.retain(|_, value| !value.is_null());
    Value::Object(body)
}
