//! `POST /api/v1/what-if`: what would happen, asked of the engine on a copy of this moment. Nothing is changed.

use std::time::Duration;

use axum::{
    body::Body,
    http::{StatusCode, header},
    response::Response,
};
use muster_control::registry::Kind;
use muster_model::{
    ClusterId,
    field::{FieldError, Findings, Object},
    identity::Resource,
};
use serde_json::Value;

use super::{Call, decisions, reply, request::path_id};
use crate::{
    body::Accepts,
    desk::{AddPods, Question},
    error::{ApiError, Code},
};

/// Pods that one question may add: ten times what the engine is measured with for a busy cluster.
const MOST_PODS: u32 = 10_000;
/// Machines and settings that one question may name.
const MOST_NAMES: usize = 100;
const MAX_TEXT: usize = 253;
/// How long an answer is waited for. The thought itself ends when it ends, and holds its place until then.
const PATIENCE: Duration = Duration::from_secs(20);

/// `POST /api/v1/what-if`
pub async fn ask(call: Call, body: Body) -> Result<Response, ApiError> {
    let bytes = call.bytes(body, Accepts::Json).await?;
    call.query()?.finish()?;
    call.check_list(Resource::NodePools)?;
    let sent = Call::json(&bytes)?;
    let (cluster, mut question) = read(&sent)?;
    question.currency.clone_from(&call.inventory().global().config.currency);
    let cluster = which(&call, cluster.as_deref())?;
    let view = call.app.explain.board().get(cluster).and_then(|live| live.view.clone()).ok_or_else(|| {
        ApiError::new(Code::Conflict, "Nobody has looked at this cluster yet").details(
            "its planner looks within seconds once it has a bare-metal pool or a connection; try again",
        )
    })?;
    let desk = std::sync::Arc::clone(&call.app.desk);
    let place = std::sync::Arc::clone(&desk.thinking).try_acquire_owned().map_err(|_| {
        ApiError::new(Code::RateLimited, "Other questions are being thought about")
            .details("ask again in a moment")
            .header(header::RETRY_AFTER, "2")
    })?;
    let (began, snapshot) = (call.app.clock.precise(), (*view.snapshot).clone());
    let currency = question.currency.clone();
    let thought = tokio::task::spawn_blocking(move || {
        let _place = place; // given back when the thought has ended, not when somebody stops waiting
        desk.oracle.ask(cluster, snapshot, &question)
    });
    let answer = match tokio::time::timeout(PATIENCE, thought).await {
        Ok(Ok(Ok(answer))) => answer,
        Ok(Ok(Err(why))) => return Err(ApiError::invalid("", why)),
        Ok(Err(_)) => return Err(ApiError::internal()),
        Err(_) => {
            return Err(ApiError::new(Code::Unavailable, "The answer takes too long")
                .details(format!("it was waited for {} s; ask about less", PATIENCE.as_secs())));
        }
    };
    let mut answer = answer;
    let took = call.app.clock.precise().saturating_sub(began);
    answer["millis"] = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).into();
    answer["currency"] = currency.into();
    Ok(reply::value(StatusCode::OK, &answer))
}

/// The cluster that is asked about: the one that is named, or the only one.
fn which(call: &Call, named: Option<&str>) -> Result<ClusterId, ApiError> {
    let seen = decisions::clusters(call);
    let missing = || ApiError::not_found(Kind::Cluster.title());
    match named {
        Some(text) => {
            let id = path_id(text)?;
            seen.into_iter().find(|cluster| cluster.uuid() == id).ok_or_else(missing)
        }
        None => match seen[..] {
            [only] => Ok(only),
            [] => Err(missing().details("register a cluster first")),
            _ => {
                // Only those that a planner looks at can be asked about.
                let looked: Vec<ClusterId> =
                    seen.into_iter().filter(|id| call.app.explain.board().get(*id).is_some()).collect();
                match looked[..] {
                    [only] => Ok(only),
                    _ => Err(ApiError::invalid("cluster_id", "name the cluster; there are several")),
                }
            }
        },
    }
}

fn names(object: &mut Object<'_>, name: &'static str, findings: &mut Findings) -> Vec<String> {
    let Some(value) = object.get(name).cloned() else { return Vec::new() };
    let path = object.at(name);
    let Some(items) = value.as_array() else {
        findings.push(FieldError::new(path, "is not a list of texts"));
        return Vec::new();
    };
    if items.len() > MOST_NAMES {
        findings.push(FieldError::new(path.clone(), format!("has more than {MOST_NAMES} entries")));
    }
    let mut found = Vec::new();
    for (at, item) in items.iter().take(MOST_NAMES).enumerate() {
        match item.as_str().filter(|text| !text.is_empty() && text.len() <= MAX_TEXT) {
            Some(text) => found.push(text.to_owned()),
            None => findings.push(FieldError::new(
                format!("{path}[{at}]"),
                format!("is not a text of 1 to {MAX_TEXT} characters"),
            )),
        }
    }
    found
}

fn read(sent: &Value) -> Result<(Option<String>, Question), ApiError> {
    let mut findings = Findings::new();
    let value = Object::read(sent, "", &mut findings).map(|mut object| {
        let found = &mut findings;
        let cluster = object.text("cluster_id", MAX_TEXT, found).map(str::to_owned);
        let question = Question {
            remove: names(&mut object, "remove", found),
            fail: names(&mut object, "fail", found),
            set: names(&mut object, "set", found),
            consolidate: object.boolean("consolidate", found).unwrap_or(false),
            buy: object.text("buy", MAX_TEXT, found).map(str::to_owned),
            add: object
                .get("add")
                .cloned()
                .filter(|add| !add.is_null())
                .and_then(|add| read_add(&add, found)),
            currency: None, // nobody asks for one: it is the inventory's
        };
        object.finish(found);
        (cluster, question)
    });
    findings.result_of(value).map(|parsed| parsed.value).map_err(|faults| ApiError::validation(&faults))
}

fn read_add(add: &Value, findings: &mut Findings) -> Option<AddPods> {
    let mut object = Object::read(add, "add", findings)?;
    let count = object.count("count", 1..=MOST_PODS, findings);
    if count.is_none() && object.get("count").is_none() {
        findings.push(FieldError::new("add.count", "is required"));
    }
    let pods = AddPods {
        count: count.unwrap_or(0),
        cpu: object.text("cpu", MAX_TEXT, findings).map(str::to_owned),
        memory: object.text("memory", MAX_TEXT, findings).map(str::to_owned),
        gpu: object.count("gpu", 0..=1_000, findings),
        tolerate: names(&mut object, "tolerate", findings),
        selector: names(&mut object, "selector", findings),
    };
    object.finish(findings);
    Some(pods)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn questions_are_read_strictly_and_bounded() {
        let (cluster, question) =
            read(&json!({ "add": { "count": 20, "cpu": "4" }, "fail": ["rack/a"], "set": ["gpu.max=3"] }))
                .unwrap();
        assert_eq!((cluster, question.fail), (None, vec!["rack/a".to_owned()]));
        assert_eq!(question.add.unwrap().count, 20);
        assert_eq!(read(&json!({})).unwrap().1, Question::default());
        for (wrong, part) in [
            (json!({ "add": { "count": 10_001 } }), "count"),
            (json!({ "add": {} }), "add.count"),
            (json!({ "ad": {} }), "ad"),
            (json!({ "fail": "rack/a" }), "fail"),
            (json!({ "fail": [""] }), "fail[0]"),
            (json!({ "set": vec!["a.max=1"; 101] }), "set"),
            (json!([]), "object"),
        ] {
            let error = read(&wrong).unwrap_err();
            assert!(error.details.contains(part), "{wrong}: {}", error.details);
        }
    }
}
