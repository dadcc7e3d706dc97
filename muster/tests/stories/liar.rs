//! Stands between Muster and the API server, and does not show everything.

use std::{
    collections::HashMap,
    fmt::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{StatusCode, header},
    response::Response,
};
use futures::{Stream, StreamExt};
use muster_emulate::cluster::TestCluster;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};

/// What is not shown as it is: pods, those who count them, and the budgets.
const TOUCHED: [&str; 5] = [
    "/api/v1/pods",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/statefulsets",
    "/apis/policy/v1/poddisruptionbudgets",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shows {
    Everything,
    NoPods,
    /// None of the pods of this node.
    Without(String),
    /// What was there when [`Liar::remember`] was called, of every kind above.
    Old,
}

/// Ends when dropped.
pub(crate) struct Liar {
    wiring: Arc<Wiring>,
    address: SocketAddr,
    task: JoinHandle<()>,
}

struct Wiring {
    server: String,
    client: reqwest::Client,
    /// What is shown, and how often that was changed. Whatever is open ends with a change.
    shows: watch::Sender<(u64, Shows)>,
    /// With which of these each kind was listed last: another one does not know where to go on.
    listed: Mutex<HashMap<String, u64>>,
    remembered: Mutex<HashMap<String, Value>>,
}

impl Liar {
    pub(crate) async fn start(cluster: &TestCluster) -> Self {
        let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
        let quoted =
            |field: &str| text.split_once(field).and_then(|(_, rest)| rest.split('"').nth(1)).unwrap();
        let authority = std::fs::read(quoted("certificate-authority:")).unwrap();
        let authority = reqwest::Certificate::from_pem(&authority).unwrap();
        let client = reqwest::Client::builder().tls_certs_only([authority]).build().unwrap();
        let wiring = Arc::new(Wiring {
            server: quoted("server:").to_owned(),
            client,
            shows: watch::Sender::new((0, Shows::Everything)),
            listed: Mutex::default(),
            remembered: Mutex::default(),
        });
        let app = axum::Router::new().fallback(pass).with_state(Arc::clone(&wiring));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { wiring, address, task }
    }

    /// The same kubeconfig, by way of this.
    pub(crate) fn kubeconfig(&self, original: &Path, directory: &Path) -> PathBuf {
        let text = std::fs::read_to_string(original).unwrap();
        let path = directory.join("liar.kubeconfig");
        let here = format!("http://{}", self.address);
        std::fs::write(&path, text.replace(&self.wiring.server, &here)).unwrap();
        path
    }

    pub(crate) fn shows(&self, what: Shows) {
        self.wiring.shows.send_modify(|(times, shows)| {
            *times += 1;
            *shows = what;
        });
    }

    /// Keeps what is there now, for [`Shows::Old`].
    pub(crate) fn remember(&self, cluster: &TestCluster) {
        for path in TOUCHED {
            let list = serde_json::from_str(&cluster.kubectl(&["get", "--raw", path], "")).unwrap();
            self.wiring.remembered.lock().unwrap().insert(path.to_owned(), list);
        }
    }

    /// The revision of the pods that are remembered.
    pub(crate) fn remembered(&self) -> u64 {
        let all = self.wiring.remembered.lock().unwrap();
        all["/api/v1/pods"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(State(wiring): State<Arc<Wiring>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let (times, shows) = wiring.shows.borrow().clone();
    let touched = TOUCHED.contains(&path.as_str()) && parts.method == "GET";
    let watch = query.contains("watch=true");
    if touched && watch {
        let mut listed = wiring.listed.lock().unwrap();
        if query.contains("sendInitialEvents") {
            listed.insert(path.clone(), times);
        } else if listed.get(&path) != Some(&times) {
            let gone = json!({ "type": "ERROR", "object": { "kind": "Status", "code": 410, "reason": "Expired",
                "status": "Failure", "message": "too old resource version" } });
            return answer(StatusCode::OK, Body::from(format!("{gone}\n")));
        }
    }
    let ended = ended(&wiring, times);
    if touched && shows == Shows::Old {
        let mut list = wiring.remembered.lock().unwrap()[&path].clone();
        if !watch {
            narrowed(&mut list, &query);
            return answer(StatusCode::OK, Body::from(list.to_string()));
        }
        let first = futures::stream::once(async move { Ok::<_, std::io::Error>(as_events(&list)) });
        let lines = first.chain(futures::stream::pending()).take_until(ended);
        return answer(StatusCode::OK, Body::from_stream(lines));
    }
    let whole = parts.uri.path_and_query().map_or("/", |whole| whole.as_str());
    let mut forward = wiring.client.request(parts.method, format!("{}{whole}", wiring.server));
    for name in [header::CONTENT_TYPE, header::ACCEPT, header::AUTHORIZATION] {
        if let Some(value) = parts.headers.get(&name) {
            forward = forward.header(name, value);
        }
    }
    let bytes = axum::body::to_bytes(body, 8 << 20).await.unwrap();
    match forward.body(bytes).send().await {
        Err(error) => answer(StatusCode::BAD_GATEWAY, Body::from(error.to_string())),
        Ok(said) if touched && watch => {
            answer(said.status(), Body::from_stream(shown(said, shows).take_until(ended)))
        }
        Ok(said) if touched && said.status().is_success() && shows != Shows::Everything => {
            let (status, mut list): (_, Value) = (said.status(), said.json().await.unwrap());
            if path == "/api/v1/pods" {
                list["items"].as_array_mut().unwrap().retain(|pod| !is_hidden(pod, &shows));
            }
            answer(status, Body::from(list.to_string()))
        }
        Ok(said) => answer(said.status(), Body::from_stream(said.bytes_stream().take_until(ended))),
    }
}

fn answer(status: StatusCode, body: Body) -> Response {
    let kind = (header::CONTENT_TYPE, "application/json");
    Response::builder().status(status).header(kind.0, kind.1).body(body).unwrap()
}

/// Ends when something else is shown.
fn ended(wiring: &Arc<Wiring>, times: u64) -> impl Future<Output = ()> + Send + use<> {
    let mut shows = wiring.shows.subscribe();
    async move {
        let _ = shows.wait_for(|(now, _)| *now != times).await;
    }
}

/// Leaves the pods of the node that was asked for.
fn narrowed(list: &mut Value, query: &str) {
    let Some((_, rest)) = query.split_once("spec.nodeName%3D") else { return };
    let node = rest.split('&').next().unwrap();
    list["items"].as_array_mut().unwrap().retain(|pod| pod["spec"]["nodeName"] == node);
}

/// A list as a watch begins with it.
fn as_events(list: &Value) -> bytes::Bytes {
    let kind = list["kind"].as_str().unwrap().trim_end_matches("List");
    let mut text = String::new();
    for item in list["items"].as_array().unwrap() {
        let mut object = item.clone();
        object["kind"] = kind.into();
        object["apiVersion"] = list["apiVersion"].clone();
        let _ = writeln!(text, "{}", json!({ "type": "ADDED", "object": object }));
    }
    let end = json!({ "type": "BOOKMARK", "object": { "kind": kind, "apiVersion": list["apiVersion"], "metadata": {
        "resourceVersion": list["metadata"]["resourceVersion"],
        "annotations": { "k8s.io/initial-events-end": "true" } } } });
    let _ = writeln!(text, "{end}");
    text.into()
}

/// The lines of a watch, without those that are not shown.
fn shown(
    said: reqwest::Response,
    shows: Shows,
) -> impl Stream<Item = Result<bytes::Bytes, reqwest::Error>> + Send {
    let mut held = Vec::new();
    said.bytes_stream().map(move |chunk| {
        held.extend_from_slice(&chunk?);
        let Some(end) = held.iter().rposition(|byte| *byte == b'\n') else { return Ok(bytes::Bytes::new()) };
        let rest = held.split_off(end + 1);
        let whole = std::mem::replace(&mut held, rest);
        let lines = whole.split_inclusive(|byte| *byte == b'\n').filter(|line| !hides(line, &shows));
        Ok(lines.flatten().copied().collect::<Vec<u8>>().into())
    })
}

/// Whether a line of a watch is not shown.
fn hides(line: &[u8], shows: &Shows) -> bool {
    let Ok(event) = serde_json::from_slice::<Value>(line) else { return false };
    event["object"]["kind"] == "Pod" && event["type"] != "BOOKMARK" && is_hidden(&event["object"], shows)
}

/// Whether a pod is not shown.
fn is_hidden(pod: &Value, shows: &Shows) -> bool {
    match shows {
        Shows::Everything | Shows::Old => false,
        Shows::NoPods => true,
        Shows::Without(node) => pod["spec"]["nodeName"] == node.as_str(),
    }
}
