//! What a BMC answers, faults included.

use std::sync::{Arc, PoisonError, atomic::Ordering};

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, Method, StatusCode},
    response::Response,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use muster_model::Duration;
use serde_json::{Value, json};

use super::{
    Faults, RedfishBmc, System,
    bmc::{Session, Task},
    resources,
};
use crate::Power;

/// Requests are small; whatever is larger is not for a BMC.
const MAX_REQUEST: usize = 64 * 1024;
/// How often a task says that it is not done.
const TASK_POLLS: u32 = 2;

pub(super) async fn answer(bmc: &Arc<RedfishBmc>, request: Request) -> Response {
    let faults = bmc.faults();
    if faults.delay > Duration::ZERO {
        bmc.clock.sleep(faults.delay).await;
    }
    if faults.silent {
        std::future::pending::<()>().await;
    }
    if let Some(place) = &faults.redirect {
        return plain(StatusCode::TEMPORARY_REDIRECT, &[("location", place)], Body::empty());
    }
    if let Some(status) = take_status(bmc) {
        return failure(status, "GeneralError", "The emulator was told to fail.");
    }
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, MAX_REQUEST).await else {
        return failure(StatusCode::PAYLOAD_TOO_LARGE, "GeneralError", "The body is too large.");
    };
    let path = parts.uri.path().trim_end_matches('/').to_owned();
    let query = parts.uri.query().map(str::to_owned);
    let call =
        Call { bmc, faults: &faults, method: parts.method, query, headers: parts.headers, body: &body };
    let answer = call.route(&path).await;
    spoil(answer, &faults).await
}

fn take_status(bmc: &RedfishBmc) -> Option<StatusCode> {
    let faults = &mut bmc.inner().faults;
    let status = faults.status?;
    if faults.status_times > 0 {
        faults.status_times -= 1;
        if faults.status_times == 0 {
            faults.status = None;
        }
    }
    StatusCode::from_u16(status).ok()
}

/// Damages a good answer in the way that was asked for.
async fn spoil(answer: Response, faults: &Faults) -> Response {
    if !(faults.truncate || faults.oversize || faults.deep || faults.absolute_links.is_some()) {
        return answer;
    }
    let (mut parts, body) = answer.into_parts();
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else { return Response::new(Body::empty()) };
    let mut text = String::from_utf8_lossy(&body).into_owned();
    if let Some(place) = &faults.absolute_links {
        text = text.replace("\"@odata.id\":\"/", &format!("\"@odata.id\":\"{place}/"));
    }
    if faults.truncate {
        text.truncate(text.len() / 2);
    }
    if faults.oversize {
        text = format!("{{\"Padding\":\"{}\"}}", "x".repeat(2 << 20));
    }
    if faults.deep {
        text = format!("{}{}", "[".repeat(200), "]".repeat(200));
    }
    parts.headers.remove("content-length");
    Response::from_parts(parts, Body::from(text))
}

/// Marks an answer that is not to be sent: the connection ends instead.
#[derive(Debug, Clone, Copy)]
pub(super) struct HangUp;

struct Call<'a> {
    bmc: &'a Arc<RedfishBmc>,
    faults: &'a Faults,
    method: Method,
    query: Option<String>,
    headers: HeaderMap,
    body: &'a [u8],
}

impl Call<'_> {
    async fn route(&self, path: &str) -> Response {
        let Some(rest) = path.strip_prefix("/redfish") else { return not_found() };
        let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
        let get = self.method == Method::GET;
        match parts.as_slice() {
            [] if get => return ok(&json!({ "v1": "/redfish/v1/" })),
            ["v1"] if get => return ok(&resources::root(self.bmc, self.faults)),
            ["v1", "SessionService", "Sessions"] if self.method == Method::POST => {
                let answer = self.log_in();
                if self.faults.swallow_login {
                    std::future::pending::<()>().await;
                }
                return answer;
            }
            _ => {}
        }
        if let Some(refused) = self.authorise() {
            return refused;
        }
        match (&self.method, parts.as_slice()) {
            (_, ["v1", "SessionService", rest @ ..]) => self.sessions(rest),
            (&Method::GET, ["v1", "Systems"]) => ok(&resources::list(self.bmc, "Systems", "ComputerSystem")),
            (&Method::GET, ["v1", "Chassis"]) => ok(&resources::list(self.bmc, "Chassis", "Chassis")),
            (&Method::GET, ["v1", "Managers"]) => ok(&resources::managers()),
            (&Method::GET, ["v1", "Managers", "1"]) => ok(&resources::manager(self.faults)),
            (&Method::GET, ["v1", "Managers", "1", "LogServices", rest @ ..])
                if self.faults.log_on_manager =>
            {
                // It has one log for everything; what is behind the first system stands for it.
                self.bmc
                    .systems
                    .first()
                    .map_or_else(not_found, |system| self.log(system, "/redfish/v1/Managers/1", rest))
            }
            (&Method::POST, ["v1", "Managers", "1", "Actions", "Manager.Reset"]) => {
                self.bmc.inner().counters.restarts += 1;
                self.bmc.note("Manager.Reset");
                self.bmc.drop_sessions();
                plain(StatusCode::NO_CONTENT, &[], Body::empty())
            }
            (_, ["v1", "TaskService", "TaskMonitors", id]) => self.task(id),
            (_, ["v1", what @ ("Systems" | "Chassis"), id, rest @ ..]) => {
                match self.bmc.systems.iter().find(|system| system.id == *id) {
                    Some(system) if *what == "Systems" => self.system(system, rest).await,
                    Some(system) if get => resources::chassis(system, rest.first().copied())
                        .map_or_else(not_found, |found| ok(&found)),
                    _ => not_found(),
                }
            }
            _ => not_found(),
        }
    }

    fn authorise(&self) -> Option<Response> {
        let now = self.bmc.clock.monotonic();
        let mut inner = self.bmc.inner();
        inner.expire(now);
        let header = |name: &str| self.headers.get(name).and_then(|value| value.to_str().ok());
        let good = if let Some(token) = header("x-auth-token") {
            inner.counters.credentials_seen += 1;
            let until = now.saturating_add(self.bmc.session_timeout);
            let found = inner.sessions.values_mut().find(|session| session.token == token);
            found.map(|session| session.until = until).is_some()
        } else if let Some(pair) = header("authorization").and_then(|value| value.strip_prefix("Basic ")) {
            inner.counters.credentials_seen += 1;
            let pair = BASE64_STANDARD.decode(pair).unwrap_or_default();
            let (user, password) = &inner.account;
            let taken = !self.faults.refuse_account && !self.faults.no_basic;
            let good = taken && pair == format!("{user}:{password}").as_bytes();
            inner.counters.refused_logins += u64::from(!good);
            good
        } else {
            false
        };
        if !good {
            return Some(failure(StatusCode::UNAUTHORIZED, "NoValidSession", "There is no valid session."));
        }
        if self.faults.html_403 {
            let page = "<html><body><h1>403 Forbidden</h1><script>alert(1)</script></body></html>";
            return Some(plain(StatusCode::FORBIDDEN, &[("content-type", "text/html")], Body::from(page)));
        }
        if self.faults.password_change {
            let text = "The password must be changed before other actions.";
            return Some(failure(StatusCode::FORBIDDEN, "PasswordChangeRequired", text));
        }
        None
    }

    fn log_in(&self) -> Response {
        let body: Value = serde_json::from_slice(self.body).unwrap_or_default();
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        let now = self.bmc.clock.monotonic();
        let mut inner = self.bmc.inner();
        inner.counters.logins += 1;
        inner.counters.credentials_seen += 1;
        inner.expire(now);
        let (user, password) = &inner.account;
        if text("UserName") != user || text("Password") != password || self.faults.refuse_account {
            inner.counters.refused_logins += 1;
            return failure(StatusCode::UNAUTHORIZED, "InsufficientPrivilege", "The account is refused.");
        }
        let limit = self.faults.session_limit.unwrap_or(u32::MAX) as usize;
        if inner.sessions.len() >= limit {
            return failure(
                StatusCode::SERVICE_UNAVAILABLE,
                "SessionLimitExceeded",
                "The session table is full.",
            );
        }
        let id = self.bmc.serial.fetch_add(1, Ordering::Relaxed).to_string();
        let token = hex::encode(rand::random::<[u8; 16]>());
        let until = now.saturating_add(self.bmc.session_timeout);
        inner.sessions.insert(id.clone(), Session { token: token.clone(), until });
        let open = inner.sessions.len() as u64;
        inner.counters.sessions = open;
        inner.counters.sessions_peak = inner.counters.sessions_peak.max(open);
        let place = format!("/redfish/v1/SessionService/Sessions/{id}");
        let headers = [("x-auth-token", token.as_str()), ("location", place.as_str())];
        json_answer(StatusCode::CREATED, &headers, &resources::session(&id, text("UserName")))
    }

    fn sessions(&self, rest: &[&str]) -> Response {
        let mut inner = self.bmc.inner();
        match (&self.method, rest) {
            (&Method::GET, []) => ok(&resources::session_service()),
            (&Method::GET, ["Sessions"]) => ok(&resources::sessions(inner.sessions.keys().cloned())),
            (&Method::GET, ["Sessions", id]) if inner.sessions.contains_key(*id) => {
                ok(&resources::session(id, &inner.account.0))
            }
            (&Method::DELETE, ["Sessions", id]) if inner.sessions.remove(*id).is_some() => {
                inner.counters.sessions = inner.sessions.len() as u64;
                plain(StatusCode::NO_CONTENT, &[], Body::empty())
            }
            _ => not_found(),
        }
    }

    fn task(&self, id: &str) -> Response {
        let mut inner = self.bmc.inner();
        inner.counters.task_polls += 1;
        if let Some(status) = self.faults.task_status.and_then(|status| StatusCode::from_u16(status).ok()) {
            return failure(status, "GeneralError", "The monitor was told to fail.");
        }
        let Some(task) = inner.tasks.get_mut(id) else { return not_found() };
        if task.polls_left > 0 {
            task.polls_left -= u32::from(!self.faults.task_hangs);
            return json_answer(StatusCode::ACCEPTED, &[], &resources::task(id, "Running", "OK"));
        }
        let (state, status) = if task.failed { ("Exception", "Critical") } else { ("Completed", "OK") };
        inner.tasks.remove(id);
        ok(&resources::task(id, state, status))
    }

    async fn system(&self, system: &System, rest: &[&str]) -> Response {
        match (&self.method, rest) {
            (&Method::GET, []) => {
                let weak = if self.faults.weak_etag { "W/" } else { "" };
                let tag = format!("{weak}{}", tag_of(system));
                json_answer(
                    StatusCode::OK,
                    &[("etag", &tag)],
                    &resources::system(system, self.faults, self.said(system).as_deref()),
                )
            }
            (&Method::GET, ["SD"]) if self.faults.ami_boot => json_answer(
                StatusCode::OK,
                &[("etag", &tag_of(system))],
                &resources::settings(system, self.faults),
            ),
            (&Method::GET, ["ResetActionInfo"]) => ok(&resources::action_info(system, self.faults)),
            (&Method::GET, ["LogServices", rest @ ..]) if !self.faults.log_on_manager => {
                self.log(system, &format!("/redfish/v1/Systems/{}", system.id), rest)
            }
            (&Method::GET, [what]) => {
                resources::parts(system, what, None).map_or_else(not_found, |found| ok(&found))
            }
            (&Method::GET, [what, part]) => {
                resources::parts(system, what, Some(part)).map_or_else(not_found, |found| ok(&found))
            }
            (&Method::PATCH, []) if self.faults.ami_boot => failure(
                StatusCode::BAD_REQUEST,
                "OperationSupportedInFutureStateURI",
                "Use the settings resource.",
            ),
            (&Method::PATCH, [] | ["SD"]) => {
                let later = self.faults.boot_at_reset && rest == ["SD"];
                self.patch_boot(system, later)
            }
            (&Method::POST, ["Actions", "ComputerSystem.Reset"]) => self.reset(system).await,
            _ => not_found(),
        }
    }

    fn log(&self, system: &System, owner: &str, rest: &[&str]) -> Response {
        let found = system.log.resource(owner, rest, self.query.as_deref(), self.faults);
        found.filter(|_| !self.faults.no_log).map_or_else(not_found, |found| ok(&found))
    }

    /// What the BMC says about power, which need not be true.
    fn said(&self, system: &System) -> Option<String> {
        if self.faults.omit_power {
            return None;
        }
        if let Some(lie) = &self.faults.say_power {
            return Some(lie.clone());
        }
        let power = system.machine.power();
        if self.faults.flip_flop {
            let mut inner = self.bmc.inner();
            inner.flip = !inner.flip;
            return Some(if inner.flip { "Off" } else { "On" }.to_owned());
        }
        Some(format!("{power:?}"))
    }

    /// `later`: it is kept beside the settings in force, until the next reset.
    fn patch_boot(&self, system: &System, later: bool) -> Response {
        if let Some(id) = &self.faults.refuse_boot {
            return failure(StatusCode::BAD_REQUEST, id, "The boot settings cannot be changed now.");
        }
        let tag = self.headers.get("if-match").and_then(|value| value.to_str().ok());
        let etag_needed = self.faults.require_etag || self.faults.ami_boot || self.faults.weak_etag;
        match tag {
            None if etag_needed => {
                return failure(
                    StatusCode::PRECONDITION_REQUIRED,
                    "PreconditionRequired",
                    "If-Match is required.",
                );
            }
            Some(tag) if tag != "*" && tag != tag_of(system) => {
                return failure(
                    StatusCode::PRECONDITION_FAILED,
                    "PreconditionFailed",
                    "The ETag does not match.",
                );
            }
            _ => {}
        }
        let body: Value = serde_json::from_slice(self.body).unwrap_or_default();
        let Some(wanted) = body.get("Boot").and_then(Value::as_object) else {
            return failure(StatusCode::BAD_REQUEST, "PropertyMissing", "Boot is missing.");
        };
        let text = |name: &str| wanted.get(name).and_then(Value::as_str).map(str::to_owned);
        let (target, enabled, mode) = (
            text("BootSourceOverrideTarget"),
            text("BootSourceOverrideEnabled"),
            text("BootSourceOverrideMode"),
        );
        if self.faults.ami_boot && (target.is_none() || enabled.is_none() || mode.is_none()) {
            return failure(StatusCode::BAD_REQUEST, "PropertyMissing", "All boot properties must be given.");
        }
        if self.faults.no_boot_mode && mode.is_some() {
            return failure(StatusCode::BAD_REQUEST, "PropertyUnknown", "There is no boot mode.");
        }
        self.bmc.inner().counters.boot_writes += 1;
        self.bmc.note("Boot");
        if !self.faults.ignore_boot {
            let mut boot = system.pending_or_now();
            boot.target = target.unwrap_or_else(|| boot.target.clone());
            boot.enabled = enabled.unwrap_or_else(|| boot.enabled.clone());
            boot.mode = mode.unwrap_or_else(|| boot.mode.clone());
            if let Some(uri) = text("HttpBootUri").filter(|_| !self.faults.ignore_http_uri) {
                boot.http_uri = uri;
            }
            boot.version += 1;
            system.keep_boot(boot, later);
        }
        plain(StatusCode::NO_CONTENT, &[], Body::empty())
    }

    async fn reset(&self, system: &System) -> Response {
        let body: Value = serde_json::from_slice(self.body).unwrap_or_default();
        let kind = body.get("ResetType").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !resources::offered(self.faults).contains(&kind) {
            return failure(
                StatusCode::BAD_REQUEST,
                "ActionParameterValueNotInList",
                "The reset type is unknown.",
            );
        }
        let power = system.machine.power();
        let there = matches!(
            (kind.as_str(), power),
            ("On" | "ForceOn", Power::On) | ("ForceOff" | "GracefulShutdown", Power::Off)
        );
        if there && self.faults.conflict_when_there {
            return failure(StatusCode::CONFLICT, "ResourceInUse", "The system is already in this state.");
        }
        let now = self.bmc.clock.monotonic();
        {
            let mut inner = self.bmc.inner();
            let off_for = inner.off_since.map_or(Duration::from_hours(1), |since| now.saturating_sub(since));
            if kind == "On" && off_for < self.faults.conflict_after_off {
                return failure(
                    StatusCode::CONFLICT,
                    "ActionParameterValueConflict",
                    "Power went only just now.",
                );
            }
            if matches!(kind.as_str(), "ForceOff" | "GracefulShutdown") {
                inner.off_since = Some(now);
            }
            inner.counters.resets.push(kind.clone());
        }
        self.bmc.note(&kind);
        self.carry_out(system, &kind);
        if self.faults.swallow_reset_answer {
            std::future::pending::<()>().await;
        }
        if self.faults.drop_reset_answer {
            let mut nothing = Response::new(Body::empty());
            nothing.extensions_mut().insert(HangUp);
            return nothing;
        }
        if !self.faults.task {
            return plain(StatusCode::NO_CONTENT, &[], Body::empty());
        }
        let id = self.bmc.serial.fetch_add(1, Ordering::Relaxed).to_string();
        let task = Task { polls_left: TASK_POLLS, failed: self.faults.task_fails };
        self.bmc.inner().tasks.insert(id.clone(), task);
        let monitor = format!("/redfish/v1/TaskService/TaskMonitors/{id}");
        json_answer(StatusCode::ACCEPTED, &[("location", &monitor)], &resources::task(&id, "Running", "OK"))
    }

    fn carry_out(&self, system: &System, kind: &str) {
        let faults = self.faults;
        let acpi = matches!(kind, "GracefulShutdown" | "GracefulRestart");
        let stuck = faults.stuck_powering_on && matches!(kind, "On" | "ForceOn");
        let now = self.bmc.clock.now();
        system.log.add(now, "OK", &format!("Reset of type {kind} was requested."));
        if stuck {
            system.log.add(now, "Critical", "Power was requested and did not come.");
            self.bmc.inner().faults.say_power = Some("PoweringOn".into());
        }
        if faults.ignore_reset || faults.task_fails || stuck || (acpi && faults.ignore_acpi) {
            return;
        }
        if !matches!(kind, "ForceOff" | "GracefulShutdown") {
            system.take_pending_boot();
            system.machine.hang(faults.hang_boot);
            if faults.hang_boot {
                system.log.add(now, "Critical", "The boot stopped in the firmware.");
            }
        }
        let (machine, kind, late, clock) =
            (Arc::clone(&system.machine), kind.to_owned(), faults.late, Arc::clone(&self.bmc.clock));
        let act = move || match kind.as_str() {
            "On" | "ForceOn" => machine.switch_on(),
            "ForceOff" => machine.cut(),
            "GracefulShutdown" => machine.shut_down(),
            "PowerCycle" => machine.cycle(),
            "PushPowerButton" => machine.press_button(),
            _ => machine.restart(),
        };
        if late == Duration::ZERO {
            act();
        } else {
            tokio::spawn(async move {
                clock.sleep(late).await;
                act();
            });
        }
    }
}

fn tag_of(system: &System) -> String {
    format!("\"{}\"", system.boot.lock().unwrap_or_else(PoisonError::into_inner).version)
}

fn ok(value: &Value) -> Response {
    json_answer(StatusCode::OK, &[], value)
}

fn not_found() -> Response {
    failure(StatusCode::NOT_FOUND, "ResourceMissingAtURI", "There is no such resource.")
}

fn failure(status: StatusCode, id: &str, message: &str) -> Response {
    json_answer(status, &[], &resources::error(id, message))
}

fn json_answer(status: StatusCode, headers: &[(&str, &str)], value: &Value) -> Response {
    let mut headers = headers.to_vec();
    headers.extend([("content-type", "application/json"), ("odata-version", "4.0")]);
    plain(status, &headers, Body::from(value.to_string()))
}

fn plain(status: StatusCode, headers: &[(&str, &str)], body: Body) -> Response {
    let mut builder = Response::builder().status(status);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(body).unwrap_or_else(|_| {
        let mut broken = Response::new(Body::empty());
        *broken.status_mut() = StatusCode::INTERNAL_SERVER_ERROR; // a fault value that no header can carry
        broken
    })
}
