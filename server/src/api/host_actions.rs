//! What people do to one host: hold, release, maintenance, power, acknowledge, approve, label; and its history.

use axum::{body::Body, extract::Path, http::StatusCode, response::Response};
use muster_control::inventory::{Act, Host, InventoryError, ManualRequest};
use muster_model::{
    Duration, FieldErrors, Timestamp,
    field::{FieldError, Findings, Object},
    host::{Acknowledgement, Admin, BareMetalNodeSpec, Hold, ManualPower, TlsVerify},
    identity::{Resource, Verb},
    power::Pin,
    store::Revision,
};
use serde_json::{Map, Value, json};

use super::{
    Call,
    hosts::{answer, update},
    objects::Done,
    reply,
    scope::HOST,
};
use crate::{body::Accepts, error::ApiError, preconditions::Preconditions};

/// Longest reason.
pub(super) const MAX_REASON: usize = 253;
/// Servers whose histories are read for how long phases take: at a read of a millisecond each, under a tenth of a second.
const MOST_COMPARED: usize = 64;

/// What a body of an action says.
struct Wish {
    bytes: bytes::Bytes,
    body: Value,
    dry_run: bool,
}

async fn wish(call: &Call, body: Body) -> Result<Wish, ApiError> {
    let (bytes, dry_run) = call.sent(body, Accepts::Json).await?;
    let body = Call::json(&bytes)?;
    Ok(Wish { bytes, body, dry_run })
}

/// Reads a body with all its faults.
fn read<T>(
    body: &Value,
    read: impl FnOnce(&mut Object<'_>, &mut Findings) -> Option<T>,
) -> Result<T, ApiError> {
    let mut findings = Findings::new();
    let value = Object::read(body, "", &mut findings).and_then(|mut object| {
        let value = read(&mut object, &mut findings);
        object.finish(&mut findings);
        value
    });
    findings.result_of(value).map(|parsed| parsed.value).map_err(|faults| ApiError::validation(&faults))
}

fn reason(object: &mut Object<'_>, findings: &mut Findings) -> Option<String> {
    let reason = object.text("reason", MAX_REASON, findings).map(|text| text.trim().to_owned());
    if reason.is_none() && object.get("reason").is_none() {
        findings.push(FieldError::new("reason", "is required").hint("others will read it"));
    }
    reason
}

/// `until` as a time, or `for` as a length from now.
fn until(object: &mut Object<'_>, now: Timestamp, findings: &mut Findings) -> Option<Timestamp> {
    let text = object.string("until", findings);
    let length = object.string("for", findings);
    if text.is_some() && length.is_some() {
        findings.push(FieldError::new("for", "cannot be used together with until"));
    }
    if let Some(text) = text {
        match text.parse::<Timestamp>() {
            Ok(time) if time > now => return Some(time),
            Ok(_) => findings.push(FieldError::new("until", "lies in the past").found_text(text)),
            Err(error) => findings.push(FieldError::new("until", error.to_string())),
        }
    }
    if let Some(text) = length {
        match text.parse::<Duration>() {
            Ok(length) if length > Duration::ZERO => return Some(now.saturating_add(length)),
            Ok(_) => findings.push(FieldError::new("for", "must be longer than nothing").found_text(text)),
            Err(error) => findings.push(FieldError::new("for", error.to_string())),
        }
    }
    None
}

/// The spec of a host that is in use.
fn usable(host: &Host) -> Result<BareMetalNodeSpec, InventoryError> {
    match host.set_aside() {
        None => host
            .readable()
            .map(|spec| BareMetalNodeSpec::clone(spec))
            .ok_or(InventoryError::NotFound { kind: HOST }),
        Some(aside) => Err(InventoryError::SetAside { name: host.name.to_string(), why: aside.reason }),
    }
}

/// `POST /api/v1/hosts/{name}/hold`
pub async fn hold(call: Call, Path(name): Path<String>, body: Body) -> Response {
    let result = async {
        call.checked_host(Verb::Hold, &name)?;
        let wish = wish(&call, body).await?;
        let now = call.app.clock.now();
        let (reason, until) = read(&wish.body, |object, findings| {
            let until = until(object, now, findings);
            Some((reason(object, findings)?, until))
        })?;
        let by = call.caller.name.to_string();
        let change = |host: &Host| {
            let mut spec = usable(host)?;
            if let Some(held) = spec.hold.as_ref().filter(|held| held.is_active(now) && held.by != by) {
                let (by, reason) = (held.by.clone(), held.reason.clone());
                return Err(InventoryError::Held { name: host.name.to_string(), by, reason });
            }
            spec.hold = Some(Hold { by: by.clone(), reason: reason.clone(), until });
            Ok((spec, Vec::new()))
        };
        update(&call, &name, Act::new("hold").because(&reason), &wish.bytes, wish.dry_run, None, change).await
    };
    let result = result.await;
    call.finish("hold", format!("hosts/{name}"), result).await
}

/// `POST /api/v1/hosts/{name}/release`: ends a hold and the power request that came with it.
pub async fn release(call: Call, Path(name): Path<String>, body: Body) -> Response {
    let result = async {
        call.checked_host(Verb::Hold, &name)?;
        let wish = wish(&call, body).await?;
        let reason = read(&wish.body, |object, findings| {
            Some(object.text("reason", MAX_REASON, findings).map(str::to_owned))
        })?;
        let change = |host: &Host| {
            let mut spec = usable(host)?;
            (spec.hold, spec.power_state) = (None, None);
            Ok((spec, Vec::new()))
        };
        let act = reason.as_deref().map_or(Act::new("release"), |reason| Act::new("release").because(reason));
        update(&call, &name, act, &wish.bytes, wish.dry_run, None, change).await
    };
    let result = result.await;
    call.finish("release", format!("hosts/{name}"), result).await
}

/// `POST /api/v1/hosts/{name}/maintenance`
pub async fn maintenance(call: Call, Path(name): Path<String>, body: Body) -> Response {
    let result = async {
        call.checked_host(Verb::Hold, &name)?;
        let wish = wish(&call, body).await?;
        let (admin, reason) = read(&wish.body, |object, findings| {
            let on = object.boolean("on", findings);
            if on.is_none() && object.get("on").is_none() {
                findings.push(FieldError::new("on", "is required").allowed("true, false"));
            }
            let admin = if on? { Admin::Maintenance } else { Admin::Normal };
            // Ending it needs no explanation.
            let reason = if admin == Admin::Normal {
                object.text("reason", MAX_REASON, findings).unwrap_or("maintenance is over").to_owned()
            } else {
                reason(object, findings)?
            };
            Some((admin, reason))
        })?;
        let change = |host: &Host| {
            let mut spec = usable(host)?;
            spec.admin = admin;
            Ok((spec, Vec::new()))
        };
        let act = Act::new("maintenance").because(&reason);
        update(&call, &name, act, &wish.bytes, wish.dry_run, None, change).await
    };
    let result = result.await;
    call.finish("maintenance", format!("hosts/{name}"), result).await
}

/// `POST /api/v1/hosts/{name}/acknowledge`: a person has seen to it.
pub async fn acknowledge(call: Call, Path(name): Path<String>, body: Body) -> Response {
    let result = async {
        call.checked_host(Verb::Hold, &name)?;
        let wish = wish(&call, body).await?;
        let reason = read(&wish.body, reason)?;
        let seen = Acknowledgement {
            by: call.caller.name.to_string(),
            reason: reason.clone(),
            at: call.app.clock.now(),
        };
        let change = |host: &Host| {
            let mut spec = usable(host)?;
            spec.acknowledgement = Some(seen.clone());
            Ok((spec, Vec::new()))
        };
        let act = Act::new("acknowledge").because(&reason);
        update(&call, &name, act, &wish.bytes, wish.dry_run, None, change).await
    };
    let result = result.await;
    call.finish("acknowledge", format!("hosts/{name}"), result).await
}

/// `POST /api/v1/hosts/{name}/approve`: the key of its BMC was compared and is the right one. The caller names it, so that
/// nothing is approved that nobody has seen.
pub async fn approve(call: Call, Path(name): Path<String>, body: Body) -> Response {
    let result = async {
        call.checked_host(Verb::Update, &name)?;
        let wish = wish(&call, body).await?;
        let (pin, reason) = read(&wish.body, |object, findings| {
            let reason = object.text("reason", MAX_REASON, findings).map(|text| text.trim().to_owned());
            let text = object.string("pin", findings);
            if text.is_none() && object.get("pin").is_none() {
                let error = FieldError::new("pin", "is required");
                findings
                    .push(error.hint("the key that was compared, in status.bmcBlocked.seenKey of the host"));
            }
            match text?.parse::<Pin>() {
                Ok(pin) => Some((pin, reason)),
                Err(error) => {
                    findings.push(FieldError::new("pin", error.to_string()));
                    None
                }
            }
        })?;
        let change = |host: &Host| Ok((approved(host, pin)?, Vec::new()));
        let because = match reason {
            Some(reason) => format!("{reason} ({pin})"),
            None => pin.to_string(),
        };
        let act = Act::new("approve").because(&because);
        update(&call, &name, act, &wish.bytes, wish.dry_run, None, change).await
    };
    let result = result.await;
    call.finish("approve", format!("hosts/{name}"), result).await
}

/// The spec of a host with an approved key, for the driver that met it.
fn approved(host: &Host, pin: Pin) -> Result<BareMetalNodeSpec, InventoryError> {
    let mut spec = usable(host)?;
    let fault = |problem: String, hint: &str| {
        InventoryError::Invalid(FieldErrors::one(FieldError::new("pin", problem).hint(hint)))
    };
    if spec.tls_verify != TlsVerify::Pin {
        let problem = format!("is not used: host {} has tlsVerify {}", host.name, spec.tls_verify);
        return Err(fault(problem, "set tlsVerify to pin first"));
    }
    let blocked = host.status.as_ref().and_then(|status| status.bmc_blocked.as_ref());
    let met = blocked.and_then(|blocked| blocked.seen_key.and(blocked.driver));
    let place = met.or_else(|| spec.pinned_driver());
    if !place.is_some_and(|place| spec.approve(place, pin)) {
        let problem = format!("is not used: no driver of host {} checks a key", host.name);
        return Err(fault(problem, "only redfish and webhook speak TLS"));
    }
    Ok(spec)
}

/// `POST /api/v1/hosts/{name}/label`: `{"labels": {"tier": "gpu", "old": null}}`.
pub async fn label(call: Call, Path(name): Path<String>, body: Body) -> Response {
    let result = async {
        call.checked_host(Verb::Update, &name)?;
        let wish = wish(&call, body).await?;
        let labels: Map<String, Value> = read(&wish.body, |object, findings| {
            let labels = object.object("labels", findings).map(|labels| labels.members().clone());
            if labels.is_none() && object.get("labels").is_none() {
                findings.push(FieldError::new("labels", "is required"));
            }
            labels
        })?;
        let change = |host: &Host| {
            let spec = usable(host)?;
            let mut merged = serde_json::to_value(&spec).unwrap_or_default();
            let patch = json!({ "labels": labels });
            muster_model::patch::merge_patch(&mut merged, &patch);
            let parsed = BareMetalNodeSpec::read(&merged, "spec")?;
            Ok((parsed.value, parsed.warnings))
        };
        update(&call, &name, Act::new("label"), &wish.bytes, wish.dry_run, None, change).await
    };
    let result = result.await;
    call.finish("label", format!("hosts/{name}"), result).await
}

/// `POST /api/v1/hosts/{name}/power`
pub async fn power(call: Call, Path(name): Path<String>, body: Body) -> Response {
    let result = order_power(&call, &name, body).await;
    call.finish("power", format!("hosts/{name}"), result).await
}

async fn order_power(call: &Call, name: &str, body: Body) -> Result<(Response, Done), ApiError> {
    let host = call.checked_host(Verb::Power, name)?;
    let project = call.project_of_host(&host).unwrap_or_default();
    let wish = wish(call, body).await?;
    let now = call.app.clock.now();
    let request = read(&wish.body, |object, findings| {
        let action = object.choice::<ManualPower>("action", findings);
        if action.is_none() && object.get("action").is_none() {
            findings.push(FieldError::new("action", "is required").allowed("on, off, cycle"));
        }
        let until = until(object, now, findings);
        Some(ManualRequest { reason: reason(object, findings)?, action: action?, until })
    })?;
    let preconditions = Preconditions::read(&call.headers)?;
    let guard = |version: Revision| preconditions.check_write(&version.to_string()).is_ok();
    let context = call.context(&wish.bytes, wish.dry_run)?;
    let (written, operation) = call.inventory().power(&context, name, &guard, &request, &project).await?;
    let (_, mut done) = answer(written, StatusCode::ACCEPTED);
    // What touches power is always written down.
    done.audited = !wish.dry_run;
    let path = format!("/api/v1/operations/{}", operation.id);
    Ok((reply::located(reply::value(StatusCode::ACCEPTED, &operation), &path), done))
}

/// `GET /api/v1/hosts/{name}/events`: its history. The changes of a host that was deleted are still there.
pub async fn events(call: Call, Path(name): Path<String>) -> Result<Response, ApiError> {
    let mut query = call.query()?;
    let limit = query.number("limit", 1, 1_000).unwrap_or(200);
    query.finish()?;
    match call.checked_host(Verb::Get, &name) {
        Ok(_) => {}
        // Whoever sees all projects may ask for what is gone.
        Err(_) if call.caller.identity.sees_all() && call.inventory().host(&name).is_none() => {}
        Err(error) => return Err(error),
    }
    // The name may have been another project's: what was done to the host then is theirs to read.
    let everything = call.project.is_none() && call.caller.identity.sees_all();
    let visible = |project: Option<&str>| everything || call.sees(&call.project_of(project));
    let story = call.inventory().history(&name, visible).await?;
    if story.is_empty() && call.inventory().host(&name).is_none() {
        return Err(ApiError::not_found(HOST));
    }
    let skip = story.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
    let answer = json!({ "events": &story[skip..], "total": story.len() });
    Ok(reply::value(StatusCode::OK, &answer))
}

/// `GET /api/v1/hosts/{name}/durations`: how long each phase takes on the servers of its pool that the caller sees.
pub async fn durations(call: Call, Path(name): Path<String>) -> Result<Response, ApiError> {
    call.query()?.finish()?;
    let host = call.checked_host(Verb::Get, &name)?;
    let pool = host.readable().map(|spec| spec.pool.clone()).unwrap_or_default();
    let mut filter = call.host_filter();
    filter.pool = Some(pool.clone());
    let hosts = call.inventory().hosts(&filter)?;
    let names: Vec<&str> = hosts.iter().map(|host| &*host.name).take(MOST_COMPARED).collect();
    let phases = call.inventory().durations(&names).await?;
    let answer = json!({ "pool": pool, "hosts": names.len(), "phases": phases });
    Ok(reply::value(StatusCode::OK, &answer))
}

impl Call {
    /// Lists take a role somewhere; what is in them is filtered by project.
    pub(super) fn check_list(&self, resource: Resource) -> Result<(), ApiError> {
        let identity = &self.caller.identity;
        let projects = identity.projects.keys().chain(self.project.as_ref());
        let mut any = projects.filter(|project| {
            muster_model::identity::allowed(identity, Verb::List, resource, project).is_ok()
        });
        let everywhere = muster_model::identity::allowed(
            identity,
            Verb::List,
            resource,
            &super::scope::DEFAULT_PROJECT.parse().map_err(|_| ApiError::internal())?,
        );
        if any.next().is_some() || everywhere.is_ok() {
            return Ok(());
        }
        Err(match everywhere {
            Err(denied) => ApiError::forbidden(denied.to_string()),
            Ok(()) => ApiError::internal(),
        })
    }
}

/// A fault of one field, as the whole answer.
pub(super) fn fault(path: &str, problem: impl Into<String>) -> ApiError {
    ApiError::validation(&FieldErrors::one(FieldError::new(path, problem)))
}
