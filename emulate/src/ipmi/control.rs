//! The control interface of BMCs that speak IPMI: what is going on, and switching faults while they run.
//!
//! `GET /bmcs`, `GET /bmcs/{name}`, `PUT /bmcs/{name}/faults`, `PUT /faults` (all of them),
//! `POST /bmcs/{name}/button` (a finger on the power button), `POST /bmcs/{name}/log` (six bytes of a sensor's event).

use std::{collections::BTreeMap, io, net::SocketAddr, sync::Arc};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, post, put},
};
use serde_json::{Value, json};

use super::{Faults, RmcpBmc};
use crate::control::Control;

type Bmcs = Arc<BTreeMap<String, Arc<RmcpBmc>>>;

/// Listens for changes of faults, by the names of the BMCs.
pub async fn control(address: SocketAddr, bmcs: BTreeMap<String, Arc<RmcpBmc>>) -> io::Result<Control> {
    let router = Router::new()
        .route("/bmcs", get(list))
        .route("/faults", put(set_all_faults))
        .route("/bmcs/{name}", get(show))
        .route("/bmcs/{name}/faults", put(set_faults))
        .route("/bmcs/{name}/button", post(press))
        .route("/bmcs/{name}/log", post(write_log))
        .with_state(Arc::new(bmcs));
    Control::serve(address, router).await
}

fn url(bmc: &RmcpBmc) -> String {
    format!("ipmi://{}", bmc.address)
}

async fn list(State(bmcs): State<Bmcs>) -> Json<Value> {
    Json(bmcs.iter().map(|(name, bmc)| json!({ "name": name, "url": url(bmc) })).collect())
}

async fn show(State(bmcs): State<Bmcs>, Path(name): Path<String>) -> Result<Json<Value>, StatusCode> {
    let bmc = bmcs.get(&name).ok_or(StatusCode::NOT_FOUND)?;
    Ok(Json(json!({ "name": name, "url": url(bmc), "systems": [{ "seen": bmc.machine.look() }],
        "counters": bmc.counters(), "faults": bmc.faults() })))
}

async fn set_faults(
    State(bmcs): State<Bmcs>,
    Path(name): Path<String>,
    Json(faults): Json<Faults>,
) -> Result<StatusCode, StatusCode> {
    bmcs.get(&name).ok_or(StatusCode::NOT_FOUND)?.set_faults(faults);
    Ok(StatusCode::NO_CONTENT)
}

async fn set_all_faults(State(bmcs): State<Bmcs>, Json(faults): Json<Faults>) -> StatusCode {
    for bmc in bmcs.values() {
        bmc.set_faults(faults.clone());
    }
    StatusCode::NO_CONTENT
}

async fn press(State(bmcs): State<Bmcs>, Path(name): Path<String>) -> Result<StatusCode, StatusCode> {
    bmcs.get(&name).ok_or(StatusCode::NOT_FOUND)?.machine.press_button();
    Ok(StatusCode::NO_CONTENT)
}

async fn write_log(
    State(bmcs): State<Bmcs>,
    Path(name): Path<String>,
    Json(event): Json<[u8; 6]>,
) -> Result<StatusCode, StatusCode> {
    bmcs.get(&name).ok_or(StatusCode::NOT_FOUND)?.event(event);
    Ok(StatusCode::NO_CONTENT)
}
