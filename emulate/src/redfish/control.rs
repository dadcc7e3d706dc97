//! The control interface of a fleet: what is going on, and switching faults while it runs.
//!
//! `GET /bmcs`, `GET /bmcs/{name}`, `PUT /bmcs/{name}/faults`, `PUT /faults` (all of them),
//! `POST /bmcs/{name}/button` (a finger on the power button), `POST /bmcs/{name}/certificate`,
//! `POST /bmcs/{name}/log` (`severity` and `message` of an entry of its event log).

use std::{collections::BTreeMap, io, net::SocketAddr, sync::Arc};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, post, put},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Faults, RedfishBmc};
use crate::control::Control;

type Fleet = Arc<BTreeMap<String, Arc<RedfishBmc>>>;

pub(super) async fn start(
    address: SocketAddr,
    bmcs: BTreeMap<String, Arc<RedfishBmc>>,
) -> io::Result<Control> {
    let router = Router::new()
        .route("/bmcs", get(list))
        .route("/faults", put(set_all_faults))
        .route("/bmcs/{name}", get(show))
        .route("/bmcs/{name}/faults", put(set_faults))
        .route("/bmcs/{name}/button", post(press))
        .route("/bmcs/{name}/certificate", post(change_certificate))
        .route("/bmcs/{name}/log", post(write_log))
        .with_state(Arc::new(bmcs));
    Control::serve(address, router).await
}

fn described(bmc: &RedfishBmc) -> Value {
    let systems: Vec<Value> = bmc
        .systems
        .iter()
        .map(|system| {
            json!({ "id": system.id, "serial": system.serial, "uuid": system.uuid, "mac": system.mac,
                "seen": system.machine.look() })
        })
        .collect();
    json!({ "name": bmc.name, "url": bmc.url(), "systems": systems, "counters": bmc.counters(),
        "faults": bmc.faults() })
}

async fn list(State(fleet): State<Fleet>) -> Json<Value> {
    Json(fleet.values().map(|bmc| json!({ "name": bmc.name, "url": bmc.url() })).collect())
}

async fn show(State(fleet): State<Fleet>, Path(name): Path<String>) -> Result<Json<Value>, StatusCode> {
    fleet.get(&name).map(|bmc| Json(described(bmc))).ok_or(StatusCode::NOT_FOUND)
}

async fn set_faults(
    State(fleet): State<Fleet>,
    Path(name): Path<String>,
    Json(faults): Json<Faults>,
) -> Result<StatusCode, StatusCode> {
    fleet.get(&name).ok_or(StatusCode::NOT_FOUND)?.set_faults(faults);
    Ok(StatusCode::NO_CONTENT)
}

async fn set_all_faults(State(fleet): State<Fleet>, Json(faults): Json<Faults>) -> StatusCode {
    for bmc in fleet.values() {
        bmc.set_faults(faults.clone());
    }
    StatusCode::NO_CONTENT
}

async fn press(State(fleet): State<Fleet>, Path(name): Path<String>) -> Result<StatusCode, StatusCode> {
    for system in &fleet.get(&name).ok_or(StatusCode::NOT_FOUND)?.systems {
        system.machine.press_button();
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn change_certificate(
    State(fleet): State<Fleet>,
    Path(name): Path<String>,
) -> Result<StatusCode, StatusCode> {
    let bmc = fleet.get(&name).ok_or(StatusCode::NOT_FOUND)?;
    bmc.change_certificate().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    severity: String,
    message: String,
}

async fn write_log(
    State(fleet): State<Fleet>,
    Path(name): Path<String>,
    Json(entry): Json<Entry>,
) -> Result<StatusCode, StatusCode> {
    fleet.get(&name).ok_or(StatusCode::NOT_FOUND)?.log(&entry.severity, &entry.message);
    Ok(StatusCode::NO_CONTENT)
}
