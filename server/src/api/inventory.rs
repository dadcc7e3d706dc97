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
    store::Revision,
};
use serde_json::{Map, Value, json};

use super::{Call, objects::Done, reply, scope::HOST};
use crate::{
    body::Accepts,
    error::{ApiError, Code},
    preconditions::Preconditions,
};

/// Longest bundle of authorities: a dozen certificates. Custom resources take as much.
const MAX_CA: usize = 32 * 1024;

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
    // The tag is that of the settings: it is what a change of them is made upon.
    Ok(reply::object(StatusCode::OK, answer.to_string(), global.version))
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
    let preconditions = Preconditions::read(&call.headers)?;
    let guard = |version: Revision| preconditions.check_write(&version.to_string()).is_ok();
    let set = set_settings(&**call.app.registry.store(), &Call::json(&bytes)?, &guard).await;
    let (config, revision) = set.map_err(|error| match error {
        SettingsError::Invalid(faults) => ApiError::validation(&faults),
        SettingsError::Store(error) => RegistryError::from(error).into(),
        SettingsError::Changed { current } => RegistryError::Precondition { current }.into(),
        SettingsError::Busy => ApiError::new(Code::Conflict, error.to_string()),
    })?;
    tracing::info!(by = %call.caller.name, "the settings of hosts were changed");
    let note = AuditNote {
        name: "config".to_owned(),
        revision: Some(revision.0),
        changed: vec!["config".to_owned()],
        ..AuditNote::default()
    };
    let answer = json!({ "config": config, "revision": revision.to_string() });
    Ok((reply::object(StatusCode::OK, answer.to_string(), revision), Done { note, audited: true }))
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
            Ok(address) => Some(address),
            Err(error) => {
                found.push(FieldError::new("address", error.to_string()).found_text(text));
                None
            }
        });
        let driver = object.choice::<DriverKind>("driver", found).unwrap_or(DriverKind::Redfish);
        let credentials = object.string("credentials", found).map(str::to_owned);
        let system = object.text("systemId", 253, found).map(str::to_owned);
        let plain = object.boolean("plainHttp", found).unwrap_or(false);
        let trust = read_trust(&mut object, found);
        object.finish(found);
        let (address, trust) = (address?, trust?);
        let mut known = Map::from_iter([
            ("mgmtAddress".to_owned(), json!(address)),
            ("powerInterface".to_owned(), json!(driver.to_string())),
            ("tlsVerify".to_owned(), json!(verify_of(&trust).to_string())),
        ]);
        known.extend(credentials.iter().map(|name| ("bmcCredentials".to_owned(), json!(name))));
        known.extend(system.iter().map(|id| ("systemId".to_owned(), json!(id))));
        // What was trusted belongs to the host: without it its BMC would be a stranger again.
        if driver == DriverKind::Redfish {
            known.extend(remembered(&trust));
        }
        let address = address.authority();
        let url = format!("{}://{address}", if plain { "http" } else { "https" });
        if driver == DriverKind::Redfish && plain {
            known.insert(
                "drivers".to_owned(),
                json!([{ "kind": "redfish", "settings": { "scheme": "http" } }]),
            );
        }
        let endpoint = match driver {
            DriverKind::Redfish => Endpoint::Redfish { url, system, trust, auth: RedfishAuth::default() },
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

/// Whom to trust: what `tlsVerify` says, with the key or the authority that belongs to it.
fn read_trust(object: &mut Object<'_>, found: &mut Findings) -> Option<Trust> {
    let chosen = object.choice::<TlsVerify>("tlsVerify", found);
    let pin = object.string("pin", found).and_then(|text| match text.parse::<Pin>() {
        Ok(pin) => Some(pin),
        Err(error) => {
            found.push(FieldError::new("pin", error.to_string()));
            None
        }
    });
    let pem = object.text("ca", MAX_CA, found).map(str::to_owned);
    let server_name = object.text("serverName", 253, found).map(str::to_owned);
    let members = object.members();
    let given = |name: &str| members.get(name).is_some_and(|value| !value.is_null());
    // An authority says by itself what it is for.
    let verify = chosen.unwrap_or(if given("ca") { TlsVerify::Ca } else { TlsVerify::default() });
    for (name, used) in [("pin", TlsVerify::Pin), ("ca", TlsVerify::Ca), ("serverName", TlsVerify::Ca)] {
        if given(name) && verify != used {
            let problem = format!("is not used with tlsVerify {verify}");
            found.push(
                FieldError::new(name, problem).hint(format!("leave it out, or set tlsVerify to {used}")),
            );
        }
    }
    match verify {
        TlsVerify::Pin => Some(Trust::Pin { pin }),
        TlsVerify::Ca => {
            if pem.is_none() && !given("ca") {
                let error = FieldError::new("ca", "is required for tlsVerify ca");
                found.push(error.hint("the authority's certificates, as PEM"));
            }
            Some(Trust::Ca { pem: pem?, server_name })
        }
        TlsVerify::Webpki => Some(Trust::Webpki),
        TlsVerify::Insecure => Some(Trust::Insecure),
    }
}

const fn verify_of(trust: &Trust) -> TlsVerify {
    match trust {
        Trust::Pin { .. } => TlsVerify::Pin,
        Trust::Ca { .. } => TlsVerify::Ca,
        Trust::Webpki => TlsVerify::Webpki,
        Trust::Insecure => TlsVerify::Insecure,
    }
}

/// The members of a spec by which a host is trusted as it was at its discovery.
fn remembered(trust: &Trust) -> Option<(String, Value)> {
    match trust {
        Trust::Pin { pin } => pin.map(|pin| ("pin".to_owned(), json!(pin.to_string()))),
        Trust::Ca { pem, server_name } => {
            let mut settings = json!({ "caBundle": pem });
            if let Some(name) = server_name {
                settings["serverName"] = json!(name);
            }
            Some(("drivers".to_owned(), json!([{ "kind": "redfish", "settings": settings }])))
        }
        Trust::Webpki | Trust::Insecure => None,
    }
}
