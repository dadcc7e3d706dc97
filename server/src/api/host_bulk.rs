//! Many hosts at once: registering from a table or a list, and exporting.

use std::collections::BTreeMap;

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use muster_control::{
    inventory::{Act, Host, InventoryError, LineResult},
    registry::AuditNote,
};
use muster_model::{
    FieldErrors,
    field::{FieldError, Findings, Object},
    host::csv::{self, Line},
    identity::{Resource, Verb},
};
use serde_json::{Value, json};

use super::{
    Call,
    hosts::{Sent, check_version, merged, read_envelope, read_filter, read_host},
    objects::Done,
    reply,
    scope::HOST,
};
use crate::{
    body::{Accepts, ContentKind},
    error::ApiError,
};

/// Patches in one body: as many as go into one transaction.
const MOST_PATCHED: usize = 24;
/// Audit lines that are handed in together; they share a write to the disk.
const AUDIT_BATCH: usize = 200;

/// `POST /api/v1/hosts/bulk`: CSV, YAML or JSON; a verdict for each line.
pub async fn register(call: Call, body: Body) -> Response {
    let result = register_all(&call, body).await;
    call.finish("create", "hosts".to_owned(), result).await
}

async fn register_all(call: &Call, body: Body) -> Result<(Response, Done), ApiError> {
    let (bytes, kind) = call.table(body).await?;
    let mut query = call.query()?;
    let dry_run = query.flag("dryRun");
    query.finish()?;
    let home = call.home()?;
    call.check_record(Verb::Create, Resource::Hosts, HOST, home.as_str())?;
    let lines = read_lines(&bytes, kind).map_err(|faults| ApiError::validation(&faults))?;
    let lines: Vec<Line> = lines.into_iter().map(|line| in_project(line, home.as_str())).collect();
    let context = call.context(&bytes, dry_run)?;
    let reports = call.inventory().register(&context, Some(home.as_str()), lines).await?;
    if !dry_run {
        let created: Vec<&str> = reports
            .iter()
            .filter(|report| report.result == LineResult::Created)
            .map(|report| report.name.as_str())
            .collect();
        for names in created.chunks(AUDIT_BATCH) {
            let lines = names.iter().map(|name| {
                let note =
                    AuditNote { project: home.to_string(), name: (*name).to_owned(), ..AuditNote::default() };
                call.audit("create", format!("hosts/{name}"), Some(note), 200)
            });
            futures::future::try_join_all(lines).await?;
        }
    }
    let count = |result: LineResult| reports.iter().filter(|report| report.result == result).count();
    let answer = json!({
        "dry_run": dry_run,
        "created": count(LineResult::Created),
        "unchanged": count(LineResult::Unchanged),
        "failed": count(LineResult::Failed),
        "lines": reports,
    });
    // Each host that was created has a line of its own.
    let done = Done { note: AuditNote::default(), audited: false };
    Ok((reply::value(StatusCode::OK, &answer), done))
}

/// `PATCH /api/v1/hosts/bulk`: merge patches of several hosts, all of them at one moment or none: for those that change places
/// or addresses with one another.
pub async fn patch(call: Call, body: Body) -> Response {
    let result = patch_all(&call, body).await;
    call.finish("patch", "hosts".to_owned(), result).await
}

async fn patch_all(call: &Call, body: Body) -> Result<(Response, Done), ApiError> {
    let (bytes, dry_run) = call.sent(body, Accepts::MergePatch).await?;
    let patches = read_patches(&Call::json(&bytes)?).map_err(|faults| ApiError::validation(&faults))?;
    for name in patches.keys() {
        call.checked_host(Verb::Update, name)?;
    }
    let context = call.context(&bytes, dry_run)?;
    let names: Vec<&str> = patches.keys().map(String::as_str).collect();
    let change = |host: &Host| {
        let sent = patches.get(&*host.name).ok_or(InventoryError::NotFound { kind: HOST })?;
        check_version(host, sent.resource_version.as_deref())?;
        merged(host, &sent.spec)
    };
    let written = call.inventory().update_together(&context, Act::new("patch"), &names, change).await?;
    let (mut hosts, mut warnings) = (Vec::with_capacity(written.len()), Vec::new());
    for one in written {
        if one.changed && one.audit.revision.is_some() {
            call.audit("patch", format!("hosts/{}", one.host.name), Some(one.audit), 200).await?;
        }
        hosts.push(one.host.to_api());
        warnings.extend(one.warnings.iter().map(|warning| format!("{}: {warning}", one.host.name)));
    }
    // Each host that was changed has a line of its own.
    let done = Done { note: AuditNote::default(), audited: false };
    let answer = json!({ "dry_run": dry_run, "hosts": hosts });
    Ok((reply::warn(reply::value(StatusCode::OK, &answer), &warnings), done))
}

/// What is sent for each host, by name.
fn read_patches(body: &Value) -> Result<BTreeMap<String, Sent>, FieldErrors> {
    let mut findings = Findings::new();
    let patches = Object::read(body, "", &mut findings).map(|mut object| {
        let mut patches = BTreeMap::new();
        if object.required("hosts", "a list of name, resource_version and spec", &mut findings).is_some() {
            for (path, item) in object.list("hosts", MOST_PATCHED, &mut findings).unwrap_or_default() {
                match read_envelope(item) {
                    Ok(Sent { name: None, .. }) => {
                        findings.push(FieldError::new(format!("{path}.name"), "is required"));
                    }
                    Ok(sent) => {
                        let name = sent.name.clone().unwrap_or_default();
                        if patches.insert(name, sent).is_some() {
                            findings.push(FieldError::new(format!("{path}.name"), "is listed twice"));
                        }
                    }
                    Err(faults) => {
                        for fault in &faults {
                            let mut fault = fault.clone();
                            fault.path = format!("{path}.{}", fault.path);
                            findings.push(fault);
                        }
                    }
                }
            }
        }
        object.finish(&mut findings);
        patches
    });
    findings.result_of(patches).map(|parsed| parsed.value)
}

/// A line that names another project is refused, not moved.
fn in_project(mut line: Line, home: &str) -> Line {
    let other =
        line.host.as_ref().ok().and_then(|host| host.spec.project.clone()).filter(|named| named != home);
    if let Some(other) = other {
        let fault = FieldError::new("spec.project", "is not the project that this request works in")
            .found_text(&other)
            .hint(format!("leave it out for {home}"));
        line.host = Err(FieldErrors::one(fault));
    }
    line
}

fn read_lines(bytes: &[u8], kind: ContentKind) -> Result<Vec<Line>, FieldErrors> {
    let fault = |problem: String| FieldErrors::one(FieldError::new("", problem));
    let text = std::str::from_utf8(bytes).map_err(|_| fault("is not valid UTF-8".into()))?;
    let documents: Vec<Value> = match kind {
        ContentKind::Csv => return csv::read_csv(text),
        ContentKind::Json => vec![muster_model::field::parse_json(bytes)?],
        ContentKind::Yaml => serde_saphyr::from_multiple::<Option<Value>>(text)
            .map_err(|error| fault(format!("is not YAML: {error}")))?
            .into_iter()
            .flatten()
            .collect(),
    };
    let mut items = Vec::new();
    for document in documents {
        match document {
            Value::Array(list) => items.extend(list),
            Value::Object(mut members) => {
                let list = members.remove("hosts").or_else(|| members.remove("items"));
                match list {
                    Some(Value::Array(list)) => items.extend(list),
                    Some(_) => return Err(fault("hosts must be a list".into())),
                    None => items.push(Value::Object(members)),
                }
            }
            other => {
                return Err(FieldErrors::one(FieldError::new("", "must be a list of hosts").found(&other)));
            }
        }
    }
    let line = |(place, item): (usize, Value)| Line {
        number: place + 1,
        name: item["name"].as_str().unwrap_or_default().to_owned(),
        said: item["spec"].as_object().cloned().unwrap_or_default(),
        host: read_host(&item).map(|parsed| parsed.value),
    };
    Ok(items.into_iter().enumerate().map(line).collect())
}

/// `GET /api/v1/hosts/export?format=csv|json`: specs, as registering takes them. Never a secret: specs hold none.
pub async fn export(call: Call) -> Result<Response, ApiError> {
    call.check_list(Resource::Hosts)?;
    let mut query = call.query()?;
    let format = query.text("format").unwrap_or_else(|| "json".to_owned());
    if !matches!(format.as_str(), "csv" | "json") {
        query.fault(FieldError::new("format", "is not known").found_text(&format).allowed("csv, json"));
    }
    let filter = read_filter(&call, &mut query);
    query.finish()?;
    let hosts = call.inventory().hosts(&filter)?;
    let readable = hosts.iter().filter_map(|host| Some((&*host.name, host.readable()?)));
    if format == "csv" {
        let table = csv::write_csv(readable.map(|(name, spec)| (name, &**spec)));
        let mut response = Response::new(Body::from(table));
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8"));
        return Ok(response);
    }
    let hosts: Vec<Value> = readable
        .map(|(name, spec)| json!({ "kind": "BareMetalNode", "name": name, "spec": **spec }))
        .collect();
    let answer = json!({ "hosts": hosts, "revision": call.inventory().revision().to_string() });
    Ok(reply::value(StatusCode::OK, &answer))
}

impl Call {
    async fn table(&self, body: Body) -> Result<(bytes::Bytes, ContentKind), ApiError> {
        let bytes = self.bytes(body, Accepts::Table).await?;
        Ok((bytes, ContentKind::of(&self.headers)))
    }
}
