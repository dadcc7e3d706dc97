//! `/api/v1/racks` and `/api/v1/boot-profiles`: records that are known by their name.

use axum::{body::Body, extract::Path, http::StatusCode, response::Response};
use bytes::Bytes;
use muster_control::inventory::{InventoryError, Named, NamedStored, NamedWritten};
use muster_model::{
    FieldErrors,
    field::{FieldError, Findings, Object},
    host::BootProfile,
    identity::{Resource, Verb},
    patch::merge_patch,
    rack::Rack,
    store::Revision,
};
use serde_json::{Value, json};

use super::{Call, objects::Done, reply, watch};
use crate::{body::Accepts, error::ApiError, preconditions::Preconditions};

/// Members of a body that the server owns.
const SERVER_OWNED: [&str; 9] =
    ["kind", "apiVersion", "id", "project", "created_at", "created_by", "updated_at", "status", "revision"];

struct Sent {
    name: Option<String>,
    resource_version: Option<String>,
    spec: Option<Value>,
}

fn envelope(body: &Value) -> Result<Sent, FieldErrors> {
    let mut findings = Findings::new();
    let sent = Object::read(body, "", &mut findings).map(|mut object| {
        let name = object.string("name", &mut findings).map(str::to_owned);
        let resource_version = object.string("resource_version", &mut findings).map(str::to_owned);
        let spec = object.get("spec").cloned();
        for name in SERVER_OWNED {
            object.get(name);
        }
        object.finish(&mut findings);
        Sent { name, resource_version, spec }
    });
    findings.result_of(sent).map(|parsed| parsed.value)
}

/// Reads `spec`, with the name of the record put in. A name inside that differs is a fault.
fn read_spec<T: Named>(name: &str, spec: Option<Value>) -> Result<T, FieldErrors> {
    let mut spec = spec.unwrap_or_else(|| json!({}));
    if let Value::Object(members) = &mut spec {
        let inner = members.entry("name").or_insert_with(|| name.into()).clone();
        if inner != name {
            return Err(FieldErrors::one(
                FieldError::new("spec.name", "is not the name of the record").found(&inner).allowed(name),
            ));
        }
    }
    T::read(&spec).map(|parsed| parsed.value)
}

fn invalid(faults: FieldErrors) -> ApiError {
    ApiError::validation(&faults)
}

const fn resource<T: Named>() -> Resource {
    match T::KIND {
        muster_control::inventory::NamedKind::Rack => Resource::Racks,
        // Whoever may change the inventory may change how it boots.
        muster_control::inventory::NamedKind::BootProfile => Resource::Hosts,
    }
}

async fn checked<T: Named>(call: &Call, verb: Verb, name: &str) -> Result<NamedStored<T>, ApiError> {
    let missing = || ApiError::not_found(T::KIND.title());
    let stored = call.inventory().named::<T>(name).await?.ok_or_else(missing)?;
    call.check_record(verb, resource::<T>(), T::KIND.title(), &stored.project)?;
    Ok(stored)
}

async fn list<T: Named>(call: &Call) -> Result<Response, ApiError> {
    call.check_list(resource::<T>())?;
    let mut query = call.query()?;
    if query.flag("watch") {
        let request = watch::Request::read(call, &mut query);
        query.finish()?;
        let seen = call.clone();
        let show = Box::new(move |entry: &muster_model::store::Entry| {
            let stored = NamedStored::<T>::of(entry).ok().filter(|stored| seen.sees(&stored.project))?;
            serde_json::to_vec(&stored.to_api()).ok().map(Bytes::from)
        });
        let source = call.inventory().watch_records(&T::KIND.prefix(), request.from, show).await?;
        return request.answer(call, watch::Source::Records(source));
    }
    let name = query.text("name");
    let limit = query.number("limit", 1, 1_000).unwrap_or(100);
    let cursor = query.text("cursor");
    let offset = query.number("offset", 0, u64::from(u32::MAX)).unwrap_or(0);
    let _ = query.flag("include_deleted");
    query.finish()?;
    let (all, revision) = call.inventory().all_named::<T>().await?;
    let wanted: Vec<_> = all
        .iter()
        .filter(|stored| call.sees(&stored.project))
        .filter(|stored| name.as_deref().is_none_or(|name| stored.spec.name() == name))
        .collect();
    let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(wanted.len());
    let start = cursor
        .map_or(offset, |cursor| wanted.partition_point(|stored| stored.spec.name() <= cursor.as_str()));
    let page: Vec<_> = wanted.iter().skip(start).take(usize::try_from(limit).unwrap_or(usize::MAX)).collect();
    let mut answer = json!({
        T::KIND.plural(): page.iter().map(|stored| stored.to_api()).collect::<Vec<_>>(),
        "total": wanted.len(), "limit": limit, "offset": start, "revision": revision.to_string(),
    });
    if let Some(last) = page.last().filter(|_| start + page.len() < wanted.len()) {
        answer["next_cursor"] = json!(last.spec.name());
    }
    Ok(reply::value(StatusCode::OK, &answer))
}

async fn read<T: Named>(call: &Call, name: &str) -> Result<Response, ApiError> {
    let mut query = call.query()?;
    let _ = query.flag("include_deleted");
    query.finish()?;
    let stored = checked::<T>(call, Verb::Get, name).await?;
    if Preconditions::read(&call.headers)?.not_modified(&stored.version.to_string()) {
        return Ok(reply::object(StatusCode::NOT_MODIFIED, Bytes::new(), stored.version));
    }
    Ok(object(StatusCode::OK, &stored))
}

fn object<T: Named>(status: StatusCode, stored: &NamedStored<T>) -> Response {
    let text = serde_json::to_vec(&stored.to_api()).unwrap_or_default();
    reply::object(status, text, stored.version)
}

fn answer<T: Named>(written: NamedWritten<T>, status: StatusCode) -> (Response, Done) {
    let NamedWritten { stored, changed, warnings, audit } = written;
    let mut response = object(status, &stored);
    if status == StatusCode::CREATED {
        response = reply::located(response, &format!("/api/v1/{}/{}", T::KIND.plural(), stored.spec.name()));
    }
    let audited = changed && audit.revision.is_some();
    (reply::warn(response, &warnings), Done { note: audit, audited })
}

async fn create<T: Named>(
    call: &Call,
    body: Body,
    in_path: Option<&str>,
    named: &mut String,
) -> Result<(Response, Done), ApiError> {
    let (bytes, dry_run) = call.sent(body, Accepts::Json).await?;
    let home = call.home()?;
    call.check_record(Verb::Create, resource::<T>(), T::KIND.title(), home.as_str())?;
    let sent = envelope(&Call::json(&bytes)?).map_err(invalid)?;
    let Some(name) = sent.name.or_else(|| in_path.map(str::to_owned)) else {
        return Err(super::host_actions::fault("name", "is required"));
    };
    same_name(in_path, &name)?;
    named.clone_from(&name);
    let spec: T = read_spec(&name, sent.spec).map_err(invalid)?;
    let context = call.context(&bytes, dry_run)?;
    let written = call.inventory().create_named(&context, home.as_str(), spec).await?;
    Ok(answer(written, StatusCode::CREATED))
}

fn same_name(in_path: Option<&str>, name: &str) -> Result<(), ApiError> {
    match in_path {
        Some(path) if path != name => {
            Err(super::host_actions::fault("name", format!("cannot be changed from {path} to {name}")))
        }
        _ => Ok(()),
    }
}

async fn replace<T: Named>(call: &Call, name: &str, body: Body) -> Result<(Response, Done), ApiError> {
    if Preconditions::read(&call.headers)?.must_be_new() {
        return create::<T>(call, body, Some(name), &mut String::new()).await;
    }
    change::<T>(call, name, body, Accepts::Json, |_, spec| spec).await
}

async fn patch<T: Named>(call: &Call, name: &str, body: Body) -> Result<(Response, Done), ApiError> {
    let merge = |stored: &Value, spec: Option<Value>| {
        let mut merged = stored.clone();
        if let Some(spec) = spec {
            merge_patch(&mut merged, &spec);
        }
        Some(merged)
    };
    change::<T>(call, name, body, Accepts::MergePatch, merge).await
}

async fn change<T: Named>(
    call: &Call,
    name: &str,
    body: Body,
    accepts: Accepts,
    merge: impl Fn(&Value, Option<Value>) -> Option<Value>,
) -> Result<(Response, Done), ApiError> {
    let bytes = call.bytes(body, accepts).await?;
    let preconditions = Preconditions::read(&call.headers)?;
    let mut query = call.query()?;
    let dry_run = query.flag("dryRun");
    query.finish()?;
    checked::<T>(call, Verb::Update, name).await?;
    let sent = envelope(&Call::json(&bytes)?).map_err(invalid)?;
    if let Some(named) = &sent.name {
        same_name(Some(name), named)?;
    }
    let context = call.context(&bytes, dry_run)?;
    let guard = |version: Revision| preconditions.check_write(&version.to_string()).is_ok();
    let change = |stored: &NamedStored<T>| {
        if let Some(version) =
            sent.resource_version.as_ref().filter(|one| **one != stored.version.to_string())
        {
            return Err(InventoryError::Stale { sent: version.clone(), current: stored.version });
        }
        let before = serde_json::to_value(&stored.spec).unwrap_or_default();
        Ok(read_spec(name, merge(&before, sent.spec.clone()))?)
    };
    let written = call.inventory().update_named(&context, name, &guard, change).await?;
    Ok(answer(written, StatusCode::OK))
}

async fn delete<T: Named>(call: &Call, name: &str) -> Result<(Response, Done), ApiError> {
    let preconditions = Preconditions::read(&call.headers)?;
    let mut query = call.query()?;
    let dry_run = query.flag("dryRun");
    query.finish()?;
    checked::<T>(call, Verb::Delete, name).await?;
    let context = call.context(&[], dry_run)?;
    let guard = |version: Revision| preconditions.check_write(&version.to_string()).is_ok();
    let note = call.inventory().delete_named::<T>(&context, name, &guard).await?;
    let answer = json!({ "message": format!("{} deleted", T::KIND.title()), "name": name });
    Ok((reply::value(StatusCode::OK, &answer), Done { note, audited: !dry_run }))
}

/// Handlers for one kind; axum wants plain functions.
macro_rules! handlers {
    ($module:ident, $noun:ty) => {
        pub mod $module {
            use super::*;

            const PATH: &str = <$noun as Named>::KIND.plural();

            pub async fn list(call: Call) -> Result<Response, ApiError> {
                super::list::<$noun>(&call).await
            }

            pub async fn create(call: Call, body: Body) -> Response {
                let mut name = String::new();
                let result = super::create::<$noun>(&call, body, None, &mut name).await;
                call.finish("create", format!("{PATH}/{name}"), result).await
            }

            pub async fn read(call: Call, Path(name): Path<String>) -> Result<Response, ApiError> {
                super::read::<$noun>(&call, &name).await
            }

            pub async fn replace(call: Call, Path(name): Path<String>, body: Body) -> Response {
                let result = super::replace::<$noun>(&call, &name, body).await;
                call.finish("replace", format!("{PATH}/{name}"), result).await
            }

            pub async fn patch(call: Call, Path(name): Path<String>, body: Body) -> Response {
                let result = super::patch::<$noun>(&call, &name, body).await;
                call.finish("patch", format!("{PATH}/{name}"), result).await
            }

            pub async fn delete(call: Call, Path(name): Path<String>) -> Response {
                let result = super::delete::<$noun>(&call, &name).await;
                call.finish("delete", format!("{PATH}/{name}"), result).await
            }
        }
    };
}

handlers!(racks, Rack);
handlers!(profiles, BootProfile);
