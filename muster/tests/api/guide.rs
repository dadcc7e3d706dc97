//! The guide replayed: every request of `fixtures/guide-requests.md`, in its order, on a fresh server.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Caller, Etcd, Server, World};

const GUIDE: &str = include_str!("../fixtures/guide-requests.md");
const CLUSTER: &str = "550e8400-e29b-41d4-a716-446655440000";
const POOL: &str = "123e4567-e89b-12d3-a456-426614174000";
/// What the guide shows of these must be said word for word; of everything else, its type.
const EXACT: [&str; 8] =
    ["id", "name", "cluster_id", "nodepool_id", "created_by", "code", "message", "details"];

/// One step of the guide.
#[derive(Debug, Default)]
struct Step {
    what: String,
    status: u16,
    request: Option<Value>,
    shell: Option<String>,
    answer: Option<Value>,
}

fn steps() -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = GUIDE.lines();
    while let Some(line) = lines.next() {
        if let Some(head) = line.strip_prefix("## ") {
            let (what, status) = head.split_once(" -> ").expect("a heading names the status");
            steps.push(Step { what: what.into(), status: status.parse().unwrap(), ..Step::default() });
        }
        let Some(kind) = line.strip_prefix("```") else { continue };
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let body = body.join("\n");
        let step = steps.last_mut().expect("a block belongs to a step");
        match kind {
            "json request" => step.request = Some(serde_json::from_str(&body).unwrap()),
            "json answer" => step.answer = Some(serde_json::from_str(&body).unwrap()),
            "sh" => step.shell = Some(body),
            other => panic!("what is a block of {other:?}?"),
        }
    }
    steps
}

#[tokio::test]
async fn the_guide_replays_in_its_order_on_the_embedded_store() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--seed-example"]);
    replay(&World::new(&server.base, "embedded")).await;
}

#[tokio::test]
async fn the_guide_replays_in_its_order_on_etcd() {
    let etcd = Etcd::start();
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--seed-example", "--store", &etcd.store()]);
    replay(&World::new(&server.base, "etcd")).await;
}

async fn replay(world: &World) {
    let user = world.named("user@example.com");
    let steps = steps();
    assert_eq!(steps.len(), 19, "the fixture holds every request of the guide");
    for (number, step) in steps.iter().enumerate() {
        let title = format!("step {}, {}", number + 1, step.what);
        let (status, body) = if let Some(shell) = &step.shell {
            in_shell(world, shell)
        } else if step.what == "a spec" {
            spec(&user, step.request.as_ref().unwrap(), number).await
        } else {
            send(world, &user, step).await
        };
        assert_eq!(status, step.status, "{title}: {body}");
        if let Some(answer) = &step.answer {
            alike(answer, &body, &title);
        }
    }
    // The guide ends with its pool scaled to six.
    let pool = user.get(&format!("/api/v1/nodepools/{POOL}")).await.expect(200).body;
    assert_eq!((&pool["name"], &pool["spec"]["nodeCount"]), (&json!("production-workers"), &json!(6)));
    assert_eq!(pool["generation"], 2);
}

/// Pastes the guide's commands into a shell; only the address is ours.
fn in_shell(world: &World, script: &str) -> (u16, Value) {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join(".curlrc"), "silent\nwrite-out = \"\\n%{http_code}\"\n").unwrap();
    let script = script.replace("http://localhost:8080", &world.base);
    let run = Command::new("bash").args(["-c", &script]).env("CURL_HOME", home.path()).output().unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    let (body, status) = text.trim_end().rsplit_once('\n').expect("curl says the status");
    (status.parse().unwrap(), serde_json::from_str(body).unwrap_or(Value::Null))
}

async fn send(world: &World, user: &Caller, step: &Step) -> (u16, Value) {
    let (method, path) = step.what.split_once(' ').unwrap();
    let path = path.replace("{clusterId}", CLUSTER).replace("{id}", POOL);
    // Only controllers report.
    let controller = world.controller();
    let caller = if method == "PUT" && path.ends_with("/status") { &controller } else { user };
    let mut request = caller.request(method, &path);
    if let Some(body) = &step.request {
        request = request.json(body);
    }
    let reply = caller.send(request).await;
    (reply.status, reply.body)
}

/// A spec of the guide without a name: in a cluster of its own platform.
async fn spec(user: &Caller, fragment: &Value, number: usize) -> (u16, Value) {
    let mut spec = fragment["spec"].clone();
    if spec["platform"].is_null() {
        spec["platform"] = json!({"type": "gcp", "gcp": {"machineType": "n1-standard-4"}});
    }
    let kind = &spec["platform"]["type"];
    let cluster = json!({"name": format!("cluster-{number}"), "spec": {"platform": {"type": kind}}});
    let cluster = user.post("/api/v1/clusters", &cluster).await.expect(201).id();
    let body = json!({"name": "pool", "spec": spec});
    let reply = user.post(&format!("/api/v1/clusters/{cluster}/nodepools"), &body).await;
    assert_eq!(reply.body["spec"], spec, "what was sent is kept");
    (reply.status, reply.body)
}

/// Everything that the guide shows is there, with the same type.
#[track_caller]
fn alike(shown: &Value, found: &Value, path: &str) {
    match (shown, found) {
        (Value::Object(shown), Value::Object(found)) => {
            for (name, value) in shown {
                let at = format!("{path}.{name}");
                let Some(real) = found.get(name) else { panic!("{at} is missing") };
                let says = EXACT.contains(&name.as_str()) && !path.contains("conditions");
                assert!(!says || value == real, "{at}: the guide shows {value}, the server says {real}");
                // A spec is shown as it was at another moment of the guide.
                if name != "spec" {
                    alike(value, real, &at);
                }
            }
        }
        (Value::Array(shown), Value::Array(found)) => {
            if let (Some(shown), Some(found)) = (shown.first(), found.first()) {
                alike(shown, found, &format!("{path}[0]"));
            }
        }
        (shown, found) => assert_eq!(
            std::mem::discriminant(shown),
            std::mem::discriminant(found),
            "{path}: {shown} is shown, {found} is there"
        ),
    }
}

/// Pools that the guide does not speak of are as they are anywhere: the example stays beside them.
#[tokio::test]
async fn the_example_stays_beside_pools_of_other_names() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--seed-example"]);
    let user = World::new(&server.base, "embedded").named("user@example.com");
    assert_ne!(user.pool(CLUSTER, "mine").await, POOL);
    assert_eq!(user.get("/api/v1/nodepools").await.expect(200).body["total"], 2);
    assert_eq!(
        user.get(&format!("/api/v1/nodepools/{POOL}")).await.expect(200).body["name"],
        "worker-pool-1"
    );
}
