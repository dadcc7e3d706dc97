//! Talking to one BMC: logging in, asking, and following links no further than the BMC itself.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use muster_model::{
    Duration,
    power::{Credential, Fault, Leave, RedfishAuth, Secret, Trust, shown},
};
use reqwest::{
    Method,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde_json::{Value, json};

use super::{Memory, Root, Session, Setup};
use crate::{
    address::Approved,
    http::{Answer, Failed, Wire},
    slots::Account,
};

/// How long basic authentication is used after the BMC had no room for a session. Sessions of others expire
/// within half an hour as a rule; asking six times in between is no burden.
const BASIC_FOR: Duration = Duration::from_mins(5);
/// Longest path that is followed. Real ones have under 200 characters.
const MAX_PATH: usize = 512;

/// What a request is for. Sessions come and go without touching the machine, and no limit cuts a login short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    Session,
    Answer,
    Change,
}

/// One operation's exchange with a BMC, while it holds the BMC's slot.
pub(super) struct Conversation<'a> {
    pub wire: Wire,
    pub setup: &'a Setup,
    pub approved: &'a Approved,
    pub trust: &'a Trust,
    pub auth: RedfishAuth,
    pub name: &'a str,
    pub credential: &'a Credential,
    pub memory: &'a mut Memory,
    /// Whether the machine may be changed still. `None` where nothing is to be changed.
    pub leave: Option<Leave>,
    /// Ends when nobody waits for the answer: nothing more is asked then, and the next caller has the BMC.
    pub waited: Leave,
    /// Until when (monotonic) answers are waited for, where that is sooner than the limits of the wire.
    pub until: Option<Duration>,
}

impl Conversation<'_> {
    /// Reads the service root if that was not done yet, and makes sure that the session, if any, is ours.
    pub(super) async fn begin(&mut self) -> Result<(), Fault> {
        let account = self.account();
        if self.memory.session.as_ref().is_some_and(|open| open.account != account) {
            self.end_session().await;
        }
        if self.memory.root.is_none() {
            let answer = self.send(Method::GET, "/redfish/v1/", common_headers(), None).await?;
            if !answer.is_success() {
                return Err(refusal("the service root", &answer));
            }
            let root = answer.json("the service root")?;
            self.memory.root = Some(Root {
                systems: link(&root, "/Systems")?.unwrap_or_else(|| "/redfish/v1/Systems".to_owned()),
                sessions: link(&root, "/Links/Sessions")?
                    .or(link(&root, "/SessionService")?.map(|service| format!("{service}/Sessions"))),
                vendor: root.get("Vendor").and_then(Value::as_str).unwrap_or_default().to_owned(),
            });
        }
        Ok(())
    }

    pub(super) fn now(&self) -> Duration {
        self.setup.clock.monotonic()
    }

    pub(super) fn root(&self) -> &Root {
        self.memory.root.as_ref().expect("begin() has read it before anything else is asked")
    }

    /// Reads a resource. `what` names it in errors.
    pub(super) async fn get(&mut self, path: &str, what: &str) -> Result<(Value, Answer), Fault> {
        let answer = self.call(Method::GET, path, None, None).await.map_err(|failed| failed.fault)?;
        if !answer.is_success() {
            return Err(refusal(what, &answer));
        }
        let value = answer.json(what)?;
        if !value.is_object() {
            return Err(Fault::malformed(what, "it is not an object"));
        }
        Ok((value, answer))
    }

    /// Like [`Self::get`], but `None` when the BMC has no such resource.
    pub(super) async fn get_if_there(&mut self, path: &str, what: &str) -> Result<Option<Value>, Fault> {
        let answer = self.call(Method::GET, path, None, None).await.map_err(|failed| failed.fault)?;
        match answer.status {
            404 | 405 | 410 | 501 => Ok(None),
            _ if answer.is_success() => answer.json(what).map(Some),
            _ => Err(refusal(what, &answer)),
        }
    }

    /// Sends an authenticated request; logs in first where needed, and once more when a session has ended. Whatever is
    /// not a GET changes the machine and needs the caller's leave, every time that it is sent.
    pub(super) async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        if_match: Option<&str>,
    ) -> Result<Answer, Failed> {
        let aim = if method == Method::GET { Aim::Answer } else { Aim::Change };
        for again in [true, false] {
            if aim == Aim::Answer {
                self.waited.ask().map_err(|fault| Failed { fault, sent: false })?;
            }
            let by_session = self.log_in().await.map_err(|fault| Failed { fault, sent: false })?;
            let mut headers = self.authenticated();
            if let Some(tag) = if_match.and_then(|tag| HeaderValue::from_str(tag).ok()) {
                headers.insert("if-match", tag);
            }
            let answer = self.exchange(method.clone(), path, headers, body, aim).await?;
            match answer.status {
                401 if by_session && again => {
                    // The BMC has dropped the session by itself; there is nothing left to end.
                    if let Some(Session { location: Some(location), .. }) = self.memory.session.take() {
                        self.setup.ledger.forget(&self.ledger_key(), &location).await;
                    }
                }
                401 if again && self.memory.basic_until.take().is_some() => {
                    // Perhaps not the account is refused but the way in, which some BMCs have switched off.
                    self.memory.no_basic = true;
                }
                401 => {
                    let fault = self.refused();
                    return Err(Failed { fault, sent: false });
                }
                403 => return Err(Failed { fault: self.forbidden(&answer), sent: false }),
                _ => return Ok(answer),
            }
        }
        unreachable!("the second round always returns")
    }

    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        mut headers: HeaderMap,
        body: Option<&Value>,
        aim: Aim,
    ) -> Result<Answer, Failed> {
        let bytes = body.map(|body| body.to_string().into_bytes());
        let room = self.room(aim)?;
        let answer = self.wire.send(method.clone(), path, headers.clone(), bytes.clone(), room).await?;
        if answer.status != 406 {
            return Ok(answer);
        }
        headers.remove("accept-encoding"); // some firmware knows no "identity"
        let room = self.room(aim)?;
        self.wire.send(method, path, headers, bytes, room).await
    }

    /// How long the next request may take, beside the limits of the wire.
    fn room(&self, aim: Aim) -> Result<Option<Duration>, Failed> {
        let leave = match aim {
            Aim::Session => return Ok(None),
            Aim::Answer => {
                let room = self.until.map(|until| until.saturating_sub(self.now()));
                return match room {
                    Some(Duration::ZERO) => {
                        Err(Failed { fault: Fault::Silent { limit: Duration::ZERO }, sent: false })
                    }
                    room => Ok(room),
                };
            }
            Aim::Change => self.leave.as_ref(),
        };
        let leave = leave.expect("only a job that was given leave changes anything");
        leave.ask().map(Some).map_err(|fault| Failed { fault, sent: false })
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Option<&Value>,
    ) -> Result<Answer, Fault> {
        self.exchange(method, path, headers, body, Aim::Session).await.map_err(|failed| failed.fault)
    }

    /// Makes sure that there is a session where one can be had. Tells whether there is.
    async fn log_in(&mut self) -> Result<bool, Fault> {
        if self.memory.session.is_some() {
            return Ok(true);
        }
        let now = self.setup.clock.monotonic();
        let no_room = self.memory.basic_until.is_some_and(|until| now < until);
        let Some(sessions) = self.root().sessions.clone() else { return Ok(false) };
        if self.auth == RedfishAuth::Basic || no_room {
            return Ok(false);
        }
        let left = self.end_leftover().await?;

        let password = String::from_utf8_lossy(self.credential.password.expose());
        let body = json!({ "UserName": self.credential.user, "Password": password });
        let asked = self.exchange(Method::POST, &sessions, common_headers(), Some(&body), Aim::Session).await;
        let answer = asked.map_err(|failed| {
            if failed.sent && !self.memory.no_basic {
                // There may be a session now that nobody can end: not one more with every call.
                self.memory.basic_until = Some(now.saturating_add(BASIC_FOR));
            }
            failed.fault
        })?;
        match answer.status {
            401 => Err(self.refused()),
            403 => Err(self.forbidden(&answer)),
            200..=299 => {
                let Some(token) = answer.header("x-auth-token") else { return self.without_session(now) };
                let token = Secret::new(token);
                let location = session_path(&answer);
                if let Some(location) = &location {
                    self.setup.ledger.remember(&self.ledger_key(), location).await;
                }
                self.memory.session = Some(Session {
                    token,
                    location: location.clone(),
                    account: self.account(),
                    approved: self.approved.clone(),
                    trust: self.trust.clone(),
                });
                if let Some(left) = left.filter(|left| Some(left) != location.as_ref()) {
                    self.end_other(&left).await;
                }
                Ok(true)
            }
            status => {
                tracing::debug!(status, bmc = %self.approved.socket, "no session, using basic");
                self.without_session(now)
            }
        }
    }

    /// Goes on with basic authentication for a while, unless the BMC takes none.
    fn without_session(&mut self, now: Duration) -> Result<bool, Fault> {
        if self.memory.no_basic {
            return Err(Fault::Busy {
                why: "it gives no session, and it refuses basic authentication".into(),
            });
        }
        self.memory.basic_until = Some(now.saturating_add(BASIC_FOR));
        Ok(false)
    }

    /// Ends the session that an earlier process left behind, if one is on record. Gives it back when that takes a session
    /// of one's own: a BMC with basic authentication switched off refuses every account here, and says nothing of ours.
    async fn end_leftover(&mut self) -> Result<Option<String>, Fault> {
        let key = self.ledger_key();
        let Some(left) = self.setup.ledger.recall(&key).await else { return Ok(None) };
        if follow(&left).is_ok() {
            if self.memory.no_basic {
                return Ok(Some(left));
            }
            let mut headers = common_headers();
            headers.insert("authorization", self.basic());
            let answer = self.send(Method::DELETE, &left, headers, None).await?;
            if !is_gone(&answer) {
                return Ok(Some(left));
            }
        }
        self.setup.ledger.forget(&key, &left).await;
        Ok(None)
    }

    /// Ends another session than one's own, from within that.
    async fn end_other(&mut self, left: &str) {
        let headers = self.authenticated();
        let ended = self.send(Method::DELETE, left, headers, None).await;
        if !ended.is_ok_and(|answer| is_gone(&answer)) {
            tracing::warn!(bmc = %self.approved.socket, "a session of an earlier process was left open");
        }
    }

    pub(super) async fn end_session(&mut self) {
        if let Some(session) = self.memory.session.take() {
            log_out(self.setup, session).await;
        }
    }

    fn ledger_key(&self) -> String {
        self.approved.socket.to_string()
    }

    fn account(&self) -> Account {
        Account { credential: self.name.to_owned(), version: self.credential.version.clone() }
    }

    fn refused(&mut self) -> Fault {
        self.memory.session = None;
        self.memory.no_basic = false;
        self.memory.refused = Some(self.account());
        Fault::Denied { credential: self.name.to_owned() }
    }

    fn forbidden(&mut self, answer: &Answer) -> Fault {
        let credential = self.name.to_owned();
        if message_ids(answer).iter().any(|id| id.ends_with("PasswordChangeRequired")) {
            self.memory.refused = Some(self.account());
            return Fault::PasswordChangeRequired { credential };
        }
        Fault::Denied { credential }
    }

    fn authenticated(&self) -> HeaderMap {
        let mut headers = common_headers();
        match &self.memory.session {
            Some(session) => headers.insert("x-auth-token", sensitive(session.token.expose())),
            None => headers.insert("authorization", self.basic()),
        };
        headers
    }

    fn basic(&self) -> HeaderValue {
        let mut pair = zeroize::Zeroizing::new(self.credential.user.clone().into_bytes());
        pair.push(b':');
        pair.extend_from_slice(self.credential.password.expose());
        sensitive(format!("Basic {}", BASE64_STANDARD.encode(&*pair)).as_bytes())
    }
}

/// The path of a `Location`. It may be absolute, under whatever name the BMC gives to itself; what is asked there goes to
/// the address that was approved all the same.
pub(super) fn local(location: &str) -> Option<String> {
    let path = match location.split_once("://") {
        None => location,
        Some((_, rest)) => &rest[rest.find('/')?..],
    };
    follow(path).ok()
}

/// Where a session is that was just made.
fn session_path(answer: &Answer) -> Option<String> {
    answer.header("location").and_then(local).or_else(|| {
        let body = answer.json("a session").ok()?;
        follow(body.get("@odata.id")?.as_str()?).ok()
    })
}

/// Whether the answer to a session's end says that it is not there any more.
const fn is_gone(answer: &Answer) -> bool {
    matches!(answer.status, 200..=299 | 404 | 410)
}

/// Ends a session. A BMC that does not answer keeps it until it expires; the ledger remembers it.
pub(super) async fn log_out(setup: &Setup, session: Session) {
    let Some(location) = &session.location else { return };
    let Ok(wire) = Wire::new(&session.approved, &session.trust, setup.limits) else { return };
    let mut headers = common_headers();
    headers.insert("x-auth-token", sensitive(session.token.expose()));
    match wire.send(Method::DELETE, location, headers, None, None).await {
        // It knows the token no more.
        Ok(answer) if is_gone(&answer) || answer.status == 401 => {
            setup.ledger.forget(&session.approved.socket.to_string(), location).await;
        }
        Ok(answer) => {
            tracing::warn!(bmc = %session.approved.socket, status = answer.status, "a session was left open");
        }
        Err(failed) => {
            tracing::warn!(bmc = %session.approved.socket, code = failed.fault.code(), "a session was left open");
        }
    }
}

fn common_headers() -> HeaderMap {
    const PAIRS: [(&str, &str); 5] = [
        ("accept", "application/json"),
        ("accept-encoding", "identity"),
        ("odata-version", "4.0"),
        ("connection", "close"),
        ("content-type", "application/json"),
    ];
    PAIRS
        .into_iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}

fn sensitive(value: &[u8]) -> HeaderValue {
    // What no header can carry (a newline) no BMC can accept; it is refused there as a wrong password.
    let mut value = HeaderValue::from_bytes(value).unwrap_or_else(|_| HeaderValue::from_static("invalid"));
    value.set_sensitive(true);
    value
}

/// A link inside a resource: `{"@odata.id": "/redfish/v1/…"}` at `pointer`.
pub(super) fn link(value: &Value, pointer: &str) -> Result<Option<String>, Fault> {
    match value.pointer(pointer).and_then(|found| found.get("@odata.id")) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(path)) => follow(path).map(Some),
        Some(_) => Err(Fault::malformed(pointer, "its link is not text")),
    }
}

/// Every link of a list at `pointer`.
pub(super) fn links(value: &Value, pointer: &str) -> Result<Vec<String>, Fault> {
    let Some(list) = value.pointer(pointer).and_then(Value::as_array) else { return Ok(Vec::new()) };
    list.iter().filter_map(|entry| entry.get("@odata.id")?.as_str()).map(follow).collect()
}

/// A path to follow: on this BMC, and nothing clever.
pub(super) fn follow(path: &str) -> Result<String, Fault> {
    let plain = path.starts_with('/')
        && !path.starts_with("//")
        && path.len() <= MAX_PATH
        && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\' && byte != b'@')
        && !path.split(['/', '?']).any(|part| part == ".." || part.eq_ignore_ascii_case("%2e%2e"));
    if plain {
        Ok(path.split('#').next().unwrap_or(path).to_owned())
    } else {
        Err(Fault::malformed(
            "a link",
            format!("{} leads away from the BMC and is not followed", shown(path)),
        ))
    }
}

/// The message ids of an error answer, with the registry's name and version in front.
pub(super) fn message_ids(answer: &Answer) -> Vec<String> {
    let Ok(body) = answer.json("an error") else { return Vec::new() };
    let of = |value: &Value| value.get("MessageId").or(value.get("code"))?.as_str().map(str::to_owned);
    let mut ids: Vec<String> = body.pointer("/error").and_then(of).into_iter().collect();
    if let Some(extended) = body.pointer("/error/@Message.ExtendedInfo").and_then(Value::as_array) {
        ids.extend(extended.iter().filter_map(of));
    }
    ids
}

/// What a BMC said when it did not do what was asked.
pub(super) fn refusal(asked: &str, answer: &Answer) -> Fault {
    let body = answer.json(asked).unwrap_or_default();
    let message = body
        .pointer("/error/@Message.ExtendedInfo/0/Message")
        .or_else(|| body.pointer("/error/message"))
        .and_then(Value::as_str)
        .unwrap_or_default();
    match answer.status {
        300..=399 => {
            let place = answer.header("location").unwrap_or("elsewhere");
            Fault::malformed(asked, format!("it redirects to {}, which is not followed", shown(place)))
        }
        503 | 429 => Fault::Busy { why: format!("HTTP {} {}", answer.status, shown(message)) },
        status => {
            Fault::Refused { asked: asked.to_owned(), answer: format!("HTTP {status} {}", shown(message)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_found_under_whatever_name_its_bmc_has() {
        #[track_caller]
        fn check(location: Option<&str>, body: &str, expected: Option<&str>) {
            let headers = location.map(|place| ("location".parse().unwrap(), place.parse().unwrap()));
            let answer = Answer { status: 201, headers: headers.into_iter().collect(), body: body.into() };
            assert_eq!(session_path(&answer).as_deref(), expected, "{location:?} {body}");
        }
        let here = Some("/redfish/v1/Sessions/7");
        check(here, "{}", here);
        check(Some("https://[fd00::1]/redfish/v1/Sessions/7"), "", here);
        check(Some("https://[fd00::1]:8443/redfish/v1/Sessions/7"), "", here);
        check(Some("https://bmc-17.local/redfish/v1/Sessions/7"), "", here);
        check(None, r#"{"@odata.id": "/redfish/v1/Sessions/7"}"#, here);
        check(Some("https://bmc"), r#"{"@odata.id": "/redfish/v1/Sessions/7"}"#, here);
        check(None, r#"{"@odata.id": 7}"#, None);
        check(None, "", None);
        check(Some("https://bmc/../up"), "", None);
    }

    #[test]
    fn only_plain_local_links_are_followed() {
        for path in ["/redfish/v1/Systems/1", "/redfish/v1/Systems?$skip=50", "/a#b"] {
            assert!(follow(path).is_ok(), "{path}");
        }
        for path in [
            "http://169.254.169.254/latest",
            "https://bmc/redfish/v1",
            "//evil/x",
            "redfish/v1",
            "",
            "/a/../../b",
            "/a\\b",
            "/a b",
            "/a\r\nHost: x",
            "/\u{202e}x",
            "/@evil",
        ] {
            assert_eq!(follow(path).unwrap_err().code(), "POWER_MALFORMED_ANSWER", "{path:?}");
        }
        assert!(follow(&format!("/{}", "x".repeat(600))).is_err());
    }
}
