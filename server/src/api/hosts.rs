//! `/api/v1/hosts`: servers of the inventory.

use std::sync::Arc;

use axum::{body::Body, extract::Path, http::StatusCode, response::Response};
use bytes::{BufMut, BytesMut};
use muster_control::{
    inventory::{Act, Host, HostFilter, HostTest, HostWritten, InventoryError, Owner},
    registry::LabelSelector,
};
use muster_model::{
    FieldErrors, Parsed,
    field::{FieldError, Findings, Object},
    host::{BareMetalNodeSpec, DeletionMode, NamedHost, Phase, State},
    identity::{Resource, Verb},
    patch::merge_patch,
    status::Health,
    store::Revision,
    suggest,
};
use serde_json::{Value, json};

use super::{Call, objects::Done, reply, scope::HOST, watch};
use crate::{body::Accepts, error::ApiError, preconditions::Preconditions, query::Query};

/// Pages are this long unless asked otherwise. A whole inventory fits one answer: it comes from memory.
const DEFAULT_LIMIT: u64 = 100;
const MAX_LIMIT: u64 = 5_000;

/// Members of a body that the server owns. They are leftovers of a read, and mean nothing.
const SERVER_OWNED: [&str; 14] = [
    "kind",
    "id",
    "generation",
    "revision",
    "created_at",
    "created_by",
    "updated_at",
    "health",
    "status",
    "op",
    "intent",
    "metrics",
    "set_aside",
    "unread",
];

/// `GET /api/v1/hosts`
pub async fn list(call: Call) -> Result<Response, ApiError> {
    call.check_list(Resource::Hosts)?;
    let mut query = call.query()?;
    if query.flag("watch") {
        let stream = watch::Request::read(&call, &mut query);
        let filter = read_filter(&call, &mut query);
        query.finish()?;
        let source = call.inventory().watch(filter, stream.from).await?;
        return stream.answer(&call, watch::Source::Hosts(source));
    }
    let limit = query.number("limit", 1, MAX_LIMIT).unwrap_or(DEFAULT_LIMIT);
    let cursor = query.text("cursor");
    let offset = query.number("offset", 0, u64::from(u32::MAX)).unwrap_or(0);
    if cursor.is_some() && offset > 0 {
        query.fault(FieldError::new("cursor", "cannot be used together with offset"));
    }
    let filter = read_filter(&call, &mut query);
    query.finish()?;
    let hosts = call.inventory().hosts(&filter)?;
    let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(hosts.len());
    let start = cursor.map_or(offset, |cursor| hosts.partition_point(|host| *host.name <= *cursor));
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let page: Vec<&Arc<Host>> = hosts.iter().skip(start).take(limit).collect();
    let texts: Vec<bytes::Bytes> = page.iter().map(|host| host.text()).collect();
    let mut body = BytesMut::with_capacity(texts.iter().map(|text| text.len() + 1).sum::<usize>() + 256);
    body.put_slice(b"{\"hosts\":[");
    for (index, text) in texts.iter().enumerate() {
        if index > 0 {
            body.put_u8(b',');
        }
        body.put_slice(text);
    }
    let revision = call.inventory().revision();
    let tail = format!(
        "],\"total\":{},\"limit\":{limit},\"offset\":{start},\"revision\":\"{revision}\"",
        hosts.len()
    );
    body.put_slice(tail.as_bytes());
    if let Some(last) = page.last().filter(|_| start + page.len() < hosts.len()) {
        // A record that was set aside may have any name.
        body.put_slice(format!(",\"next_cursor\":{}", json!(&*last.name)).as_bytes());
    }
    body.put_u8(b'}');
    Ok(reply::json(StatusCode::OK, body.freeze()))
}

/// Reads the filters that lists, watches and exports share.
pub(super) fn read_filter(call: &Call, query: &mut Query) -> HostFilter {
    let mut filter = call.host_filter();
    filter.name = query.text("name");
    filter.state = named(query, "state", &State::ALL, State::as_str);
    filter.phase = named(query, "phase", &Phase::ALL, Phase::as_str);
    filter.health = query.choice::<Health>("health");
    filter.pool = query.text("pool");
    filter.rack = query.text("rack");
    filter.set_aside = query.text("set_aside").and_then(|text| match text.as_str() {
        "true" => Some(true),
        "false" => Some(false),
        other => {
            query.fault(
                FieldError::new("set_aside", "is neither true nor false")
                    .found_text(other)
                    .allowed("true, false"),
            );
            None
        }
    });
    if let Some(text) = query.text("labelSelector") {
        match LabelSelector::parse(&text) {
            Ok(selector) => filter.labels = selector,
            Err(error) => query.fault(FieldError::new("labelSelector", error.to_string())),
        }
    }
    if let Some(text) = query.text("fieldSelector") {
        match HostTest::parse(&text) {
            Ok(tests) => filter.fields = tests,
            Err(error) => query.fault(FieldError::new("fieldSelector", error.to_string())),
        }
    }
    let _ = query.flag("include_deleted"); // a host that is being deleted is shown anyway
    filter
}

/// One of a fixed list of words.
fn named<T: Copy>(
    query: &mut Query,
    name: &'static str,
    all: &[T],
    word: impl Fn(T) -> &'static str,
) -> Option<T> {
    let text = query.text(name)?;
    let found = all.iter().copied().find(|one| word(*one) == text);
    if found.is_none() {
        let words: Vec<&str> = all.iter().map(|one| word(*one)).collect();
        let mut fault = FieldError::new(name, "is not known").found_text(&text).allowed(words.join(", "));
        if let Some(near) = suggest::nearest(&text, words.iter().copied()) {
            fault = fault.hint(format!("did you mean {near}?"));
        }
        query.fault(fault);
    }
    found
}

/// A host as somebody sent it.
pub(super) struct Sent {
    pub(super) name: Option<String>,
    pub(super) resource_version: Option<String>,
    pub(super) project: Option<String>,
    pub(super) spec: Value,
}

/// Reads the envelope of a host. `spec` is read later, when it is known what it is merged with.
pub(super) fn read_envelope(body: &Value) -> Result<Sent, FieldErrors> {
    let mut findings = Findings::new();
    let sent = Object::read(body, "", &mut findings).map(|mut object| {
        let name = object.string("name", &mut findings).map(str::to_owned);
        let inner = object.object("metadata", &mut findings).and_then(|mut metadata| {
            let name = metadata.string("name", &mut findings).map(str::to_owned);
            metadata.finish(&mut findings);
            name
        });
        let resource_version = object.string("resource_version", &mut findings).map(str::to_owned);
        let project = object.string("project", &mut findings).map(str::to_owned);
        let spec = object.get("spec").cloned().unwrap_or(Value::Null);
        object.get("apiVersion");
        object.get("deletion");
        for name in SERVER_OWNED {
            object.get(name);
        }
        object.finish(&mut findings);
        Sent { name: name.or(inner), resource_version, project, spec }
    });
    findings.result_of(sent).map(|parsed| parsed.value)
}

/// The whole host of a create: name and spec.
pub(super) fn read_host(body: &Value) -> Result<Parsed<NamedHost>, FieldErrors> {
    let sent = read_envelope(body)?;
    let fault = |path: &str, problem: &str| Err(FieldErrors::one(FieldError::new(path, problem)));
    let Some(name) = sent.name else { return fault("name", "is required") };
    if let Err(error) = muster_model::names::check_dns_label(&name) {
        return Err(FieldErrors::one(
            FieldError::new("name", error.problem).found_text(&name).allowed(muster_model::names::DNS_LABEL),
        ));
    }
    if sent.spec.is_null() {
        return fault("spec", "is required");
    }
    Ok(BareMetalNodeSpec::read(&sent.spec, "spec")?.map(|mut spec| {
        spec.project = spec.project.or(sent.project);
        NamedHost { name, spec }
    }))
}

/// `POST /api/v1/hosts`
pub async fn create(call: Call, body: Body) -> Response {
    let mut name = String::new();
    let result = create_host(&call, body, None, &mut name).await;
    call.finish("create", format!("hosts/{name}"), result).await
}

async fn create_host(
    call: &Call,
    body: Body,
    in_path: Option<&str>,
    name: &mut String,
) -> Result<(Response, Done), ApiError> {
    let (bytes, dry_run) = call.sent(body, Accepts::Json).await?;
    let home = call.home()?;
    call.check_record(Verb::Create, Resource::Hosts, HOST, home.as_str())?;
    let mut sent = Call::json(&bytes)?;
    if let (Some(path), Value::Object(members)) = (in_path, &mut sent) {
        members.entry("name").or_insert_with(|| path.into());
    }
    let mut parsed = read_host(&sent).map_err(|faults| ApiError::validation(&faults))?;
    name.clone_from(&parsed.value.name);
    same_name(in_path, &parsed.value.name)?;
    own_project(call, &mut parsed.value.spec, home.as_str())?;
    let context = call.context(&bytes, dry_run)?;
    let written = call.inventory().create(&context, &parsed.value, parsed.warnings).await?;
    Ok(answer(written, StatusCode::CREATED))
}

/// A host goes to the project that the request works in; a body may repeat it, not choose another.
pub(super) fn own_project(call: &Call, spec: &mut BareMetalNodeSpec, home: &str) -> Result<(), ApiError> {
    if let Some(named) = spec.project.as_deref().filter(|named| *named != home) {
        let fault = FieldError::new("spec.project", "is not the project that this request works in")
            .found_text(named)
            .hint(format!("leave it out for {home}, or name the project in X-Muster-Project"));
        let _ = call;
        return Err(ApiError::validation(&FieldErrors::one(fault)));
    }
    spec.project = Some(home.to_owned());
    Ok(())
}

fn same_name(in_path: Option<&str>, name: &str) -> Result<(), ApiError> {
    match in_path {
        Some(path) if path != name => {
            let fault = FieldError::new("name", "cannot be changed").found_text(name).allowed(path);
            Err(ApiError::validation(&FieldErrors::one(fault)))
        }
        _ => Ok(()),
    }
}

/// The answer to a write of a host.
pub(super) fn answer(written: HostWritten, status: StatusCode) -> (Response, Done) {
    let HostWritten { host, changed, warnings, audit } = written;
    let response = reply::object(status, host.text(), host.version());
    let response = if status == StatusCode::CREATED {
        reply::located(response, &format!("/api/v1/hosts/{}", host.name))
    } else {
        response
    };
    let audited = changed && audit.revision.is_some();
    (reply::warn(response, &warnings), Done { note: audit, audited })
}

/// `GET /api/v1/hosts/{name}`
pub async fn read(call: Call, Path(name): Path<String>) -> Result<Response, ApiError> {
    let mut query = call.query()?;
    let _ = query.flag("include_deleted");
    query.finish()?;
    let host = call.checked_host(Verb::Get, &name)?;
    if Preconditions::read(&call.headers)?.not_modified(&host.version().to_string()) {
        return Ok(reply::object(StatusCode::NOT_MODIFIED, bytes::Bytes::new(), host.version()));
    }
    Ok(reply::object(StatusCode::OK, host.text(), host.version()))
}

/// `PUT /api/v1/hosts/{name}`: replaces, or creates with `If-None-Match: *`.
pub async fn replace(call: Call, Path(name): Path<String>, body: Body) -> Response {
    let result = replace_host(&call, &name, body).await;
    call.finish("replace", format!("hosts/{name}"), result).await
}

async fn replace_host(call: &Call, name: &str, body: Body) -> Result<(Response, Done), ApiError> {
    let preconditions = Preconditions::read(&call.headers)?;
    if preconditions.must_be_new() {
        return create_host(call, body, Some(name), &mut String::new()).await;
    }
    let (bytes, dry_run) = call.sent(body, Accepts::Json).await?;
    call.checked_host(Verb::Update, name)?;
    let sent = read_envelope(&Call::json(&bytes)?).map_err(|faults| ApiError::validation(&faults))?;
    if let Some(named) = &sent.name {
        same_name(Some(name), named)?;
    }
    let parsed =
        BareMetalNodeSpec::read(&sent.spec, "spec").map_err(|faults| ApiError::validation(&faults))?;
    let change = |host: &Host| {
        let mut spec = parsed.value.clone();
        keep_owned(&mut spec, host)?;
        let mut warnings = parsed.warnings.clone();
        // A whole document repeats the key of the old place: it says nothing about the new one.
        warnings.extend(host.readable().and_then(|before| spec.forget_key_of(before)));
        Ok((spec, warnings))
    };
    update(call, name, Act::new("replace"), &bytes, dry_run, sent.resource_version, change).await
}

/// What the server owns in a spec stays as it is, also in one that replaces a record which cannot be read.
fn keep_owned(spec: &mut BareMetalNodeSpec, host: &Host) -> Result<(), InventoryError> {
    // Whose an unreadable record is may be unknown: then who may write it at all says so.
    let owner = match host.owner() {
        Owner::Project(project) => Some(project.to_string()),
        Owner::Nobody => None,
        Owner::Unknown => spec.project.clone(),
    };
    if spec.project.is_some() && spec.project != owner {
        let fault = FieldError::new("spec.project", "cannot be changed")
            .found_text(spec.project.as_deref().unwrap_or_default())
            .hint("delete the host and register it in the other project");
        return Err(InventoryError::Invalid(FieldErrors::one(fault)));
    }
    spec.project = owner;
    spec.registered = host.registered();
    spec.deletion = host.readable().and_then(|stored| stored.deletion.clone());
    Ok(())
}

/// `PATCH /api/v1/hosts/{name}`
pub async fn patch(call: Call, Path(name): Path<String>, body: Body) -> Response {
    let result = patch_host(&call, &name, body).await;
    call.finish("patch", format!("hosts/{name}"), result).await
}

/// A host's spec with a merge patch on it.
pub(super) fn merged(host: &Host, patch: &Value) -> Result<(BareMetalNodeSpec, Vec<String>), InventoryError> {
    let stored = host.spec.as_ref().ok_or(InventoryError::NotFound { kind: HOST })?;
    let mut merged: Value = serde_json::from_slice(&stored.raw).map_err(|_| InventoryError::SetAside {
        name: host.name.to_string(),
        why: "it is not JSON".to_owned(),
    })?;
    if !patch.is_null() {
        merge_patch(&mut merged, patch);
    }
    let parsed = BareMetalNodeSpec::read(&merged, "spec")?;
    let (mut spec, mut warnings) = (parsed.value, parsed.warnings);
    keep_owned(&mut spec, host)?;
    if patch.get("pin").is_none() {
        warnings.extend(host.readable().and_then(|before| spec.forget_key_of(before)));
    }
    Ok((spec, warnings))
}

async fn patch_host(call: &Call, name: &str, body: Body) -> Result<(Response, Done), ApiError> {
    let (bytes, dry_run) = call.sent(body, Accepts::MergePatch).await?;
    call.checked_host(Verb::Update, name)?;
    let sent = read_envelope(&Call::json(&bytes)?).map_err(|faults| ApiError::validation(&faults))?;
    if let Some(named) = &sent.name {
        same_name(Some(name), named)?;
    }
    let change = |host: &Host| merged(host, &sent.spec);
    update(call, name, Act::new("patch"), &bytes, dry_run, sent.resource_version.clone(), change).await
}

/// Fails for a body that was made from another version.
pub(super) fn check_version(host: &Host, sent: Option<&str>) -> Result<(), InventoryError> {
    match sent.filter(|version| *version != host.version().to_string()) {
        Some(sent) => Err(InventoryError::Stale { sent: sent.to_owned(), current: host.version() }),
        None => Ok(()),
    }
}

/// Changes a host under the request's preconditions.
pub(super) async fn update(
    call: &Call,
    name: &str,
    act: Act<'_>,
    bytes: &[u8],
    dry_run: bool,
    resource_version: Option<String>,
    change: impl Fn(&Host) -> Result<(BareMetalNodeSpec, Vec<String>), InventoryError>,
) -> Result<(Response, Done), ApiError> {
    let preconditions = Preconditions::read(&call.headers)?;
    let context = call.context(bytes, dry_run)?;
    let guard = |version: Revision| preconditions.check_write(&version.to_string()).is_ok();
    let checked = |host: &Host| {
        check_version(host, resource_version.as_deref())?;
        change(host)
    };
    let written = call.inventory().update(&context, act, name, &guard, checked, |txn, _| txn).await?;
    Ok(answer(written, StatusCode::OK))
}

/// `DELETE /api/v1/hosts/{name}`
pub async fn delete(call: Call, Path(name): Path<String>) -> Response {
    let result = delete_host(&call, &name).await;
    call.finish("delete", format!("hosts/{name}"), result).await
}

async fn delete_host(call: &Call, name: &str) -> Result<(Response, Done), ApiError> {
    let preconditions = Preconditions::read(&call.headers)?;
    let mut query = call.query()?;
    let dry_run = query.flag("dryRun");
    let mode = match (query.flag("force"), query.flag("powerOff")) {
        (true, true) => {
            query.fault(FieldError::new("force", "cannot be used together with powerOff"));
            DeletionMode::Force
        }
        (true, false) => DeletionMode::Force,
        (false, true) => DeletionMode::PowerOff,
        (false, false) => DeletionMode::Keep,
    };
    query.finish()?;
    call.checked_host(Verb::Delete, name)?;
    let context = call.context(&[], dry_run)?;
    let guard = |version: Revision| preconditions.check_write(&version.to_string()).is_ok();
    let deleted = call.inventory().delete(&context, name, &guard, mode).await?;
    let message = if deleted.gone { "host deleted" } else { "host deletion initiated" };
    let answer = json!({ "message": message, "name": name, "gone": deleted.gone });
    Ok((reply::value(StatusCode::ACCEPTED, &answer), Done { note: deleted.audit, audited: !dry_run }))
}
