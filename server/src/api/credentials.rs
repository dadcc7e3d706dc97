//! `/api/v1/credentials`: values go in and never come out.

use axum::{body::Body, extract::Path, http::StatusCode, response::Response};
use bytes::Bytes;
use muster_control::inventory::{CredentialDraft, CredentialShown, DraftValue, keys};
use muster_model::{
    FieldErrors, Secret,
    credential::CredentialKind,
    field::{FieldError, Findings, Object},
    identity::{Resource, Verb},
    names,
    store::Revision,
};
use serde_json::{Value, json};

use super::{Call, objects::Done, reply, watch};
use crate::{body::Accepts, error::ApiError, preconditions::Preconditions};

const TITLE: &str = "Credential";
/// Longest user name and password: BMCs take far less, keys that sign a little more.
const MAX_USER: usize = 255;
const MAX_PASSWORD: usize = 4096;

/// A body that may hold a value. It has no `Debug`.
struct Sent {
    name: Option<String>,
    kind: CredentialKind,
    value: Option<DraftValue>,
}

/// Reads a body. No fault repeats what was sent as a value.
fn read_body(body: &Value) -> Result<Sent, FieldErrors> {
    let mut findings = Findings::new();
    let sent = Object::read(body, "", &mut findings).and_then(|mut object| {
        let name = object.string("name", &mut findings).map(str::to_owned);
        for name in
            ["kind", "apiVersion", "project", "id", "resource_version", "created_at", "created_by", "status"]
        {
            object.get(name);
        }
        let spec = object.object("spec", &mut findings);
        if spec.is_none() && object.get("spec").is_none() {
            findings.push(FieldError::new("spec", "is required"));
        }
        object.finish(&mut findings);
        let (kind, value) = read_spec(spec?, &mut findings);
        Some(Sent { name, kind, value })
    });
    findings
        .result_of(sent.map(Hidden))
        .map(|parsed| parsed.value.0)
        .map_err(|faults| without_values(&faults))
}

/// A password under a misspelt name is a password still: what was found is left out of every fault.
fn without_values(faults: &FieldErrors) -> FieldErrors {
    let mut quiet = Findings::new();
    for fault in faults {
        let mut fault = fault.clone();
        fault.found = None;
        quiet.push(fault);
    }
    quiet.result(()).err().unwrap_or_else(|| faults.clone())
}

/// `Findings` wants nothing printable, and gets nothing.
struct Hidden(Sent);

fn read_spec(mut spec: Object<'_>, findings: &mut Findings) -> (CredentialKind, Option<DraftValue>) {
    let kind = spec.choice::<CredentialKind>("kind", findings).unwrap_or(CredentialKind::Bmc);
    let user = spec.text("user", MAX_USER, findings).map(str::to_owned);
    let password = spec.secret("password", MAX_PASSWORD, findings).map(Secret::new);
    let secret_name = spec.text("secretName", 253, findings).map(str::to_owned);
    spec.get("source");
    let given = spec.get("password").is_some();
    let path = |name: &str| spec.at(name);
    let value = match (user, password, secret_name) {
        (user, Some(password), None) => {
            if user.is_none() && matches!(kind, CredentialKind::Bmc | CredentialKind::Ipmi) {
                findings.push(FieldError::new(path("user"), "is required for an account on a BMC"));
            }
            Some(DraftValue::Sealed { user: user.unwrap_or_default(), password })
        }
        (None, None, Some(name)) => match names::check_dns_subdomain(&name) {
            Ok(()) => Some(DraftValue::Secret { name }),
            Err(why) => {
                findings.push(FieldError::new(path("secretName"), format!("is no name of a Secret: {why}")));
                None
            }
        },
        (_, Some(_), Some(_)) => {
            findings.push(FieldError::new(path("secretName"), "cannot be used together with password"));
            None
        }
        (Some(_), None, Some(_)) => {
            findings.push(FieldError::new(path("user"), "comes from the Secret; leave it out"));
            None
        }
        (_, None, None) => {
            if !given {
                findings.push(
                    FieldError::new(path("password"), "is required").hint("or name a Secret in secretName"),
                );
            }
            None
        }
    };
    spec.finish(findings);
    (kind, value)
}

fn invalid(faults: FieldErrors) -> ApiError {
    ApiError::validation(&faults)
}

/// The project that credentials are looked for in.
fn project(call: &Call) -> Result<String, ApiError> {
    Ok(call.home()?.to_string())
}

fn object(status: StatusCode, shown: &CredentialShown) -> Response {
    reply::object(status, serde_json::to_vec(&shown.to_api()).unwrap_or_default(), shown.version)
}

/// `GET /api/v1/credentials`
pub async fn list(call: Call) -> Result<Response, ApiError> {
    call.check_list(Resource::Credentials)?;
    let mut query = call.query()?;
    let sees = {
        let call = call.clone();
        move |project: &str| call.check_record(Verb::List, Resource::Credentials, TITLE, project).is_ok()
    };
    if query.flag("watch") {
        let request = watch::Request::read(&call, &mut query);
        query.finish()?;
        let show = Box::new(move |entry: &muster_model::store::Entry| {
            let shown = CredentialShown::of(entry).ok().filter(|shown| sees(&shown.project))?;
            serde_json::to_vec(&shown.to_api()).ok().map(Bytes::from)
        });
        let source = call.inventory().watch_records(keys::CREDENTIALS, request.from, show).await?;
        return request.answer(&call, watch::Source::Records(source));
    }
    let name = query.text("name");
    let limit = query.number("limit", 1, 1_000).unwrap_or(100);
    let offset = query.number("offset", 0, u64::from(u32::MAX)).unwrap_or(0);
    let _ = query.flag("include_deleted");
    query.finish()?;
    let (all, revision) = call.app.vault.list().await?;
    let wanted: Vec<&CredentialShown> = all
        .iter()
        .filter(|shown| sees(&shown.project))
        .filter(|shown| name.as_deref().is_none_or(|name| shown.meta.name == name))
        .collect();
    let page: Vec<Value> = wanted
        .iter()
        .skip(usize::try_from(offset).unwrap_or(usize::MAX))
        .take(usize::try_from(limit).unwrap_or(usize::MAX))
        .map(|shown| shown.to_api())
        .collect();
    let answer = json!({
        "credentials": page, "total": wanted.len(), "limit": limit, "offset": offset,
        "revision": revision.to_string(),
    });
    Ok(reply::value(StatusCode::OK, &answer))
}

/// `POST /api/v1/credentials`
pub async fn create(call: Call, body: Body) -> Response {
    let mut name = String::new();
    let result = create_one(&call, body, &mut name).await;
    call.finish("create", format!("credentials/{name}"), result).await
}

async fn create_one(call: &Call, body: Body, named: &mut String) -> Result<(Response, Done), ApiError> {
    let (bytes, dry_run) = call.sent(body, Accepts::Json).await?;
    let project = project(call)?;
    call.check_record(Verb::Create, Resource::Credentials, TITLE, &project)?;
    let sent = read_body(&Call::json(&bytes)?).map_err(invalid)?;
    let (Some(name), Some(value)) = (sent.name, sent.value) else {
        return Err(super::host_actions::fault("name", "is required"));
    };
    if let Err(error) = names::check_dns_label(&name) {
        let fault = FieldError::new("name", error.problem).found_text(&name).allowed(names::DNS_LABEL);
        return Err(invalid(FieldErrors::one(fault)));
    }
    named.clone_from(&name);
    // No idempotency record: it would keep a digest of the value.
    let context = call.context(&[], dry_run)?;
    let draft = CredentialDraft { name, kind: sent.kind, value };
    let (shown, note) = call.app.vault.create(&context, &project, draft).await?;
    let response = object(StatusCode::CREATED, &shown);
    let response = reply::located(response, &format!("/api/v1/credentials/{}", shown.meta.name));
    Ok((response, Done { note, audited: !dry_run }))
}

/// `GET /api/v1/credentials/{name}`
pub async fn read(call: Call, Path(name): Path<String>) -> Result<Response, ApiError> {
    let mut query = call.query()?;
    let _ = query.flag("include_deleted");
    query.finish()?;
    let project = project(&call)?;
    call.check_record(Verb::Get, Resource::Credentials, TITLE, &project)?;
    let shown = call.app.vault.get(&project, &name).await?.ok_or_else(|| ApiError::not_found(TITLE))?;
    Ok(object(StatusCode::OK, &shown))
}

/// `PUT /api/v1/credentials/{name}` and `POST …/rotate`: a new value, as the next version.
pub async fn rotate(call: Call, Path(name): Path<String>, body: Body) -> Response {
    let result = rotate_one(&call, &name, body).await;
    call.finish("rotate", format!("credentials/{name}"), result).await
}

async fn rotate_one(call: &Call, name: &str, body: Body) -> Result<(Response, Done), ApiError> {
    let bytes = call.bytes(body, Accepts::Json).await?;
    let preconditions = Preconditions::read(&call.headers)?;
    let mut query = call.query()?;
    let dry_run = query.flag("dryRun");
    query.finish()?;
    let project = project(call)?;
    call.check_record(Verb::Update, Resource::Credentials, TITLE, &project)?;
    let sent = read_body(&Call::json(&bytes)?).map_err(invalid)?;
    let Some(value) = sent.value else {
        return Err(super::host_actions::fault("spec.password", "is required"));
    };
    let context = call.context(&[], dry_run)?;
    let guard = |version: Revision| preconditions.check_write(&version.to_string()).is_ok();
    let (shown, note) = call.app.vault.rotate(&context, &project, name, &guard, &value).await?;
    Ok((object(StatusCode::OK, &shown), Done { note, audited: !dry_run }))
}

/// `DELETE /api/v1/credentials/{name}`
pub async fn delete(call: Call, Path(name): Path<String>) -> Response {
    let result = delete_one(&call, &name).await;
    call.finish("delete", format!("credentials/{name}"), result).await
}

async fn delete_one(call: &Call, name: &str) -> Result<(Response, Done), ApiError> {
    let preconditions = Preconditions::read(&call.headers)?;
    let mut query = call.query()?;
    let dry_run = query.flag("dryRun");
    query.finish()?;
    let project = project(call)?;
    call.check_record(Verb::Delete, Resource::Credentials, TITLE, &project)?;
    let context = call.context(&[], dry_run)?;
    let guard = |version: Revision| preconditions.check_write(&version.to_string()).is_ok();
    let note = call.app.vault.delete(&context, &project, name, &guard).await?;
    let answer = json!({ "message": "Credential deleted", "name": name });
    Ok((reply::value(StatusCode::OK, &answer), Done { note, audited: !dry_run }))
}
