//! `/api/v1/inventory` and `/api/v1/discover`: the inventory as a whole, and finding out about new machines.

use axum::{body::Body, http::StatusCode, response::Response};
use muster_control::{
    inventory::{HostFilter, SettingsError, propose, set_settings},
    registry::{AuditNote, RegistryError},
};
use muster_model::{
    FieldErrors,
    field::{FieldError, Findings, Object},
    host::{DriverKind, MgmtAddress, TlsVerify},
    identity::{Resource, Role, Verb},
    power::{Bmc, CipherSuite, Endpoint, Expected, Fault, Pin, Privilege, RedfishAuth, Trust},
};
use serde_json::{Map, Value, json};

use super::{Call, objects::Done, reply, scope::HOST};
use crate::{
    body::Accepts,
    error::{ApiError, Code},
};

/// `GET /api/v1/inventory`: figures, settings in force, and everything that was set aside or put right.
pub async fn read(call: Call) -> Result<Response, ApiError> {
    call.check_list(Resource::Hosts)?;
    call.query()?.finish()?;
    let filter = HostFilter { set_aside: Some(true), ..call.host_filter() };
    let aside: Vec<Value> = call
        .inventory()
        .hosts(&filter)?
        .iter()
        .filter_map(|host| {
            let aside = host.set_aside()?;
            Some(json!({ "name": &*host.name, "key": aside.key, "reason": aside.reason,
                "resource_version": host.version().to_string() }))
        })
        .collect();
    let all = call.inventory().hosts(&call.host_filter())?;
    let global = call.inventory().global();
    let mut answer = json!({
        "hosts": all.len(),
        "set_aside": aside,
        "config": *global.config,
        "revision": call.inventory().revision().to_string(),
    });
    if let Some(problem) = global.problem {
        answer["config_problem"] = json!(problem);
    }
    // Figures and events speak of all projects.
    if call.caller.identity.sees_all() || call.app.identity.is_dev() {
        answer["stats"] = json!(call.inventory().stats());
        answer["events"] = json!(call.inventory().events().await?);
    }
    Ok(reply::value(StatusCode::OK, &answer))
}

/// `PUT /api/v1/inventory/config`: the settings of all hosts. What is left out gets its default; a freeze stays.
pub async fn configure(call: Call, body: Body) -> Response {
    let result = set_config(&call, body).await;
    call.finish("configure", "inventory/config".to_owned(), result).await
}

/// They concern every project, so they take a role in all of them.
async fn set_config(call: &Call, body: Body) -> Result<(Response, Done), ApiError> {
    let bytes = call.bytes(body, Accepts::Json).await?;
    call.query()?.finish()?;
    if !call.app.identity.is_dev() && !call.caller.identity.everywhere.contains(&Role::Admin) {
        return Err(ApiError::forbidden(
            "the settings of hosts concern all projects; they take the role admin in all of them",
        ));
    }
    let set = set_settings(&**call.app.registry.store(), &Call::json(&bytes)?, None).await;
    let (config, revision) = set.map_err(|error| match error {
        SettingsError::Invalid(faults) => ApiError::validation(&faults),
        SettingsError::Store(error) => RegistryError::from(error).into(),
        other => ApiError::new(Code::Conflict, other.to_string()),
    })?;
    tracing::info!(by = %call.caller.name, "the settings of hosts were changed");
    let note = AuditNote {
        name: "config".to_owned(),
        revision: Some(revision.0),
        changed: vec!["config".to_owned()],
        ..AuditNote::default()
    };
    let answer = json!({ "config": config, "revision": revision.to_string() });
    Ok((reply::value(StatusCode::OK, &answer), Done { note, audited: true }))
}

/// `POST /api/v1/discover`: asks a BMC what it is, and answers with a spec to begin with.
pub async fn discover(call: Call, body: Body) -> Response {
    let mut address = String::new();
    let result = discover_one(&call, body, &mut address).await;
    call.finish("discover", format!("bmcs/{address}"), result).await
}

async fn discover_one(call: &Call, body: Body, named: &mut String) -> Result<(Response, Done), ApiError> {
    let bytes = call.bytes(body, Accepts::Json).await?;
    call.query()?.finish()?;
    let home = call.home()?;
    call.check_record(Verb::Create, Resource::Hosts, HOST, home.as_str())?;
    let sent = Call::json(&bytes)?;
    let (bmc, known) = read_target(&sent, home.as_str()).map_err(|faults| ApiError::validation(&faults))?;
    *named = bmc.address();
    let identity = call.app.prober.identify(&bmc).await.map_err(|error| {
        // Only silence may pass by itself; everything else is for a person to put right.
        let code = match error.fault {
            Fault::NotAsked { .. }
            | Fault::Silent { .. }
            | Fault::Unreachable { .. }
            | Fault::Busy { .. } => Code::Unavailable,
            _ => Code::Conflict,
        };
        ApiError::new(code, "The BMC could not be asked").details(format!("{error} [{}]", error.code()))
    })?;
    let found = propose(identity, known);
    let note = muster_control::registry::AuditNote { project: home.to_string(), ..Default::default() };
    Ok((reply::value(StatusCode::OK, &found), Done { note, audited: true }))
}

/// Which BMC is asked, and what of a spec is known already.
fn read_target(sent: &Value, project: &str) -> Result<(Bmc, Map<String, Value>), FieldErrors> {
    let mut findings = Findings::new();
    let target = Object::read(sent, "", &mut findings).and_then(|mut object| {
        let found = &mut findings;
        let text = object.string("address", found);
        if text.is_none() && object.get("address").is_none() {
            found.push(FieldError::new("address", "is required").hint("the address of the BMC"));
        }
        let address = text.and_then(|text| match text.parse::<MgmtAddress>() {
            Ok(address) => Some(address.to_string()),
            Err(error) => {
                found.push(FieldError::new("address", error.to_string()).found_text(text));
                None
            }
        });
        let driver = object.choice::<DriverKind>("driver", found).unwrap_or(DriverKind::Redfish);
        let credentials = object.string("credentials", found).map(str::to_owned);
        let system = object.text("systemId", 253, found).map(str::to_owned);
        let verify = object.choice::<TlsVerify>("tlsVerify", found).unwrap_or_default();
        let pin = object.string("pin", found).and_then(|text| match text.parse::<Pin>() {
            Ok(pin) => Some(pin),
            Err(error) => {
                found.push(FieldError::new("pin", error.to_string()));
                None
            }
        });
        let plain = object.boolean("plainHttp", found).unwrap_or(false);
        object.finish(found);
        let address = address?;
        let mut known = Map::from_iter([
            ("mgmtAddress".to_owned(), json!(address)),
            ("powerInterface".to_owned(), json!(driver.to_string())),
            ("tlsVerify".to_owned(), json!(verify.to_string())),
        ]);
        known.extend(credentials.iter().map(|name| ("bmcCredentials".to_owned(), json!(name))));
        known.extend(system.iter().map(|id| ("systemId".to_owned(), json!(id))));
        // The key that was approved belongs to the host: without it its BMC would be a stranger again.
        known.extend(pin.iter().filter(|_| driver == DriverKind::Redfish).map(|pin| {
            let driver = json!({ "kind": driver.to_string(), "settings": { "pin": pin.to_string() } });
            ("drivers".to_owned(), json!([driver]))
        }));
        let endpoint = match driver {
            DriverKind::Redfish => Endpoint::Redfish {
                url: format!("{}://{address}", if plain { "http" } else { "https" }),
                system,
                trust: match verify {
                    TlsVerify::Pin | TlsVerify::Ca => Trust::Pin { pin },
                    TlsVerify::Webpki => Trust::Webpki,
                    TlsVerify::Insecure => Trust::Insecure,
                },
                auth: RedfishAuth::default(),
            },
            DriverKind::Ipmi => {
                Endpoint::Ipmi { address, suite: CipherSuite::default(), privilege: Privilege::default() }
            }
            other => {
                found.push(
                    FieldError::new("driver", format!("{other} cannot say what a machine is"))
                        .allowed("redfish, ipmi"),
                );
                return None;
            }
        };
        let credential = credentials.map(|name| format!("{project}/{name}"));
        let bmc = Bmc { host: "discovery".to_owned(), endpoint, credential, expect: Expected::default() };
        Some((bmc, known))
    });
    findings.result_of(target).map(|parsed| parsed.value)
}
