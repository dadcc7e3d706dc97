//! Decisions and explanations as a user meets them: the real server, the real command line.

mod cli_support;

use std::time::{Duration, Instant};

use cli_support::Server;
use serde_json::Value;

/// Asks until `found` says yes; the machine may be slow.
#[track_caller]
#[allow(clippy::disallowed_methods, reason = "a test waits for a real process")]
fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(start.elapsed() < Duration::from_mins(2), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A cluster that may act, with a pool of bare metal and no hosts: the planner has something to say.
fn lab() -> (Server, Value) {
    let server = Server::start();
    server.run(&["create", "cluster", "lab", "--platform", "baremetal"]).ok();
    server
        .run(&["create", "pool", "web", "--cluster", "lab", "--platform", "baremetal", "--count", "2"])
        .ok();
    server.run(&["enable", "cluster", "lab"]).ok();
    let decision = eventually("a decision", || {
        let list = server.json(&["get", "decisions"]);
        list["items"].as_array()?.first().cloned()
    });
    (server, decision)
}

#[test]
fn decisions_are_listed_described_replayed_and_explained() {
    let (server, decision) = lab();
    let id = decision["id"].as_str().expect("an id");
    let table = server.run(&["get", "decisions", "--cluster", "lab"]).ok();
    assert!(table.starts_with("ID") && table.contains(id) && table.contains("lab"), "{table}");
    let story = server.run(&["describe", "decision", id]).ok();
    assert!(story.contains("outcome:") && story.contains("muster explain decision"), "{story}");
    let text = server.run(&["explain", "decision", id]).ok();
    assert!(text.contains("replay:") && text.contains("the same plan again"), "{text}");
    let first = text.lines().next().expect("a first line");
    assert!(first.chars().count() <= 120 && first.chars().any(|c| c.is_ascii_digit()), "{first}");
    let (status, body) = server.http("GET", &format!("/api/v1/decisions/{id}/replay"), None, "");
    let replay: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((status, &replay["same"]), (200, &Value::Bool(true)), "{body}");
    let (status, body) = server.http("GET", &format!("/api/v1/decisions/{id}/compare?with={id}"), None, "");
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("nothing differs") && body.contains("\"same\":true"), "{body}");
    // Everything that explain prints is also JSON.
    let answer = server.json(&["explain", "decision", id]);
    assert_eq!(answer["decision"]["id"], id);
}

/// Issue 7: two decisions side by side, over the API and on the command line.
#[test]
fn two_decisions_are_compared_and_what_cannot_be_is_refused_in_a_sentence() {
    let (server, first) = lab();
    let first = first["id"].as_str().expect("an id").to_owned();
    // Another pool that cannot be planned: another decision.
    server.run(&["create", "pool", "db", "--cluster", "lab", "--platform", "baremetal", "--count", "1"]).ok();
    let second = eventually("a second decision", || {
        let list = server.json(&["get", "decisions"]);
        let newest = list["items"].as_array()?.first()?.clone();
        (newest["id"] != *first).then(|| newest["id"].as_str().map(str::to_owned))?
    });
    let text = server.run(&["compare", "decisions", &first, &second]).ok();
    assert!(
        text.starts_with("Pool db cannot be planned (TemplateIncomplete), because pool db is new.\n"),
        "{text}"
    );
    assert!(text.contains("looked at (") && text.contains("pool of db") && text.contains("did ("), "{text}");
    let answer = server.json(&["compare", "decisions", &first, &second]);
    assert_eq!((&answer["from"]["id"], &answer["to"]["id"]), (&first.clone().into(), &second.clone().into()));
    assert!(
        answer["inputs"].as_array().is_some_and(|rows| rows.iter().any(|row| row["rule"] == true)),
        "{answer}"
    );
    let before = server.json(&["compare", "decision", &second]);
    assert_eq!(before["to"]["id"], second, "the one before is compared with it");
    let same = server.run(&["compare", "decision", &first, &first]).ok();
    assert!(same.starts_with("Both are decision") && same.contains("nothing differs"), "{same}");
    // What cannot be compared says which one, and why.
    let stem = first.split('-').next().expect("a stem");
    let unknown = format!("{stem}-999999");
    server
        .run(&["compare", "decisions", &first, &unknown])
        .failed(3, &format!("there is no decision {unknown}"));
    server.run(&["compare", "decisions", &first, "yesterday"]).failed(1, "ids look like");
    server.run(&["compare", "decisions", &first, "a/b"]).failed(2, "a/b");
    let oldest = format!("{stem}-1");
    server.run(&["compare", "decision", &oldest]).failed(1, "is the first of its cluster");
    server
        .run(&["compare", "decision", &first, &second, "--as-email", "other@example.com"])
        .failed(3, &first);
    // Two clusters have nothing in common.
    server.run(&["create", "cluster", "other", "--platform", "baremetal"]).ok();
    server
        .run(&["create", "pool", "cache", "--cluster", "other", "--platform", "baremetal", "--count", "1"])
        .ok();
    let elsewhere = eventually("a decision of the other cluster", || {
        let list = server.json(&["get", "decisions", "--cluster", "other"]);
        list["items"].as_array()?.first()?["id"].as_str().map(str::to_owned)
    });
    server
        .run(&["compare", "decisions", &first, &elsewhere])
        .failed(1, "only two of one cluster can be compared");
}

#[test]
fn pools_say_why_they_are_not_planned_and_whether_anybody_looks() {
    let (server, _) = lab();
    let text = server.run(&["explain", "pool", "lab/web"]).ok();
    assert!(text.contains("planner:") && text.contains("last look"), "{text}");
    assert!(text.contains("not connected to the cluster"), "{text}");
    let answer = server.json(&["explain", "pool", "web"]);
    assert_eq!(answer["planner"]["connected"], Value::Bool(false));
    let pool = eventually("the condition", || {
        let pool = server.json(&["get", "pool", "lab/web"]);
        let conditions = pool["status"]["conditions"].as_array()?.clone();
        conditions.iter().find(|one| one["type"] == "Planned").cloned()
    });
    assert_eq!(pool["reason"], "TemplateIncomplete", "{pool}");
    // Nobody sees nodes and pods there, so that nobody knows which there are; never an empty answer.
    for what in [&["node", "nobody"][..], &["pod", "shop/web-1"]] {
        let text = server.run(&[&["explain"], what].concat()).ok();
        let unknown =
            format!("{} is unknown: cluster lab is not connected, 0 pods and nodes are seen", what.join(" "));
        assert!(text.starts_with(&unknown), "{text}");
    }
    server.run(&["explain", "decision", "550e8400-999999"]).failed(3, "550e8400-999999");
    server.run(&["explain", "node", "a/b"]).failed(2, "a/b");
}

#[test]
fn another_project_sees_no_decisions() {
    let (server, decision) = lab();
    let id = decision["id"].as_str().expect("an id");
    let other = server.run(&["get", "decisions", "--as-email", "other@example.com", "-o", "json"]).ok();
    let list: Value = serde_json::from_str(&other).expect("JSON");
    assert_eq!(list["items"], Value::Array(Vec::new()), "{other}");
    server.run(&["describe", "decision", id, "--as-email", "other@example.com"]).failed(3, id);
    server.run(&["explain", "decision", id, "--as-email", "other@example.com"]).failed(3, id);
}

/// The stream of decisions carries what is decided while it is open, and where to go on.
#[test]
fn decisions_can_be_watched() {
    let (server, decision) = lab();
    let before = server.http("GET", "/api/v1/decisions?limit=1", None, "").1;
    let list: Value = serde_json::from_str(&before).expect("JSON");
    assert!(list["revision"].as_str().is_some_and(|text| text.parse::<u64>().is_ok()), "{before}");
    // From the beginning of the store's history: the first decision comes again.
    let path = "/api/v1/decisions?watch=true&resource_version=1&timeout_seconds=120";
    let id = decision["id"].as_str().expect("an id");
    let comes = |text: &str| text.contains("\"type\":\"ADDED\"") && text.contains(id);
    let said = server.http_until(path, comes);
    assert!(said.starts_with("HTTP/1.1 200 ") && comes(&said), "{said}");
    let (status, body) =
        server.http("GET", "/api/v1/decisions?outcome=odd&since=yesterday&cursor=x", None, "");
    assert_eq!(status, 400);
    for part in ["outcome", "since", "cursor"] {
        assert!(body.contains(part), "{part} is not named: {body}");
    }
}
