//! Stands between the adapter and the API server and disturbs what passes.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use futures::StreamExt;
use muster_emulate::cluster::TestCluster;
use muster_kube::{Client, Credentials};

use crate::support::clock;

#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// Connections are cut this long after they were opened.
    pub(crate) cut_after: Option<Duration>,
    /// A text that is replaced by another in every answer.
    pub(crate) replace: Option<(String, String)>,
    /// As an API server that has never heard of streamed lists.
    pub(crate) no_streaming: bool,
    /// This path does not exist.
    pub(crate) missing: Option<&'static str>,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) streamed: u32,
    pub(crate) paged: u32,
    pub(crate) watches: u32,
}

/// Ends when dropped.
pub(crate) struct Proxy {
    pub(crate) faults: Arc<Mutex<Faults>>,
    pub(crate) seen: Arc<Mutex<Seen>>,
    address: std::net::SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Clone)]
struct Wiring {
    client: kube::Client,
    faults: Arc<Mutex<Faults>>,
    seen: Arc<Mutex<Seen>>,
}

impl Proxy {
    pub(crate) async fn start(cluster: &TestCluster, faults: Faults) -> Self {
        let file = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
        Self::start_as(&file, faults).await
    }

    /// With what the bearer of this kubeconfig may.
    pub(crate) async fn start_as(kubeconfig: &str, faults: Faults) -> Self {
        let wiring = Wiring {
            client: client_of(kubeconfig).await,
            faults: Arc::new(Mutex::new(faults)),
            seen: Arc::default(),
        };
        let (faults, seen) = (Arc::clone(&wiring.faults), Arc::clone(&wiring.seen));
        let app = axum::Router::new().fallback(pass).with_state(wiring);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { faults, seen, address, task }
    }

    pub(crate) async fn connect(&self) -> Client {
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: \"http://{}\"}}}}]\n\
             users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n",
            self.address
        );
        Client::connect(&Credentials::Text { kubeconfig, context: None }, clock()).await.unwrap()
    }

    pub(crate) fn set(&self, faults: Faults) {
        *self.faults.lock().unwrap() = faults;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An administrator's client without any of the adapter in it.
pub(crate) async fn raw_client(cluster: &TestCluster) -> kube::Client {
    client_of(&std::fs::read_to_string(cluster.kubeconfig()).unwrap()).await
}

async fn client_of(kubeconfig: &str) -> kube::Client {
    let file = kube::config::Kubeconfig::from_yaml(kubeconfig).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(file, &options).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

async fn pass(State(wiring): State<Wiring>, request: Request) -> Response {
    let faults = wiring.faults.lock().unwrap().clone();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let watch = query.contains("watch=true");
    {
        let mut seen = wiring.seen.lock().unwrap();
        seen.watches += u32::from(watch);
        seen.streamed += u32::from(query.contains("sendInitialEvents"));
        seen.paged += u32::from(query.contains("limit="));
    }
    let refusal = |code: u16, reason: &str| {
        let body = format!(
            r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","code":{code},"reason":"{reason}","message":"{reason}"}}"#
        );
        Response::builder().status(code).body(Body::from(body)).unwrap()
    };
    if faults.no_streaming && query.contains("sendInitialEvents") {
        return refusal(422, "Invalid");
    }
    if faults.missing.is_some_and(|path| request.uri().path() == path) {
        return refusal(404, "NotFound");
    }
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, 8 << 20).await.unwrap();
    let path = parts.uri.path_and_query().unwrap().to_string();
    let mut forward = http::Request::builder().method(parts.method).uri(path);
    for name in [http::header::CONTENT_TYPE, http::header::ACCEPT] {
        if let Some(value) = parts.headers.get(&name) {
            forward = forward.header(name, value);
        }
    }
    let answer = match wiring.client.send(forward.body(kube::client::Body::from(bytes)).unwrap()).await {
        Ok(answer) => answer,
        Err(error) => {
            return Response::builder().status(502).body(Body::from(error.to_string())).unwrap();
        }
    };
    let (parts, body) = answer.into_parts();
    let chunks = lines(Body::new(body), watch, faults.replace);
    let chunks = chunks.take_until(async move {
        match faults.cut_after {
            Some(length) if watch => tokio::time::sleep(length).await,
            _ => std::future::pending().await,
        }
    });
    Response::builder().status(parts.status).body(Body::from_stream(chunks)).unwrap()
}

/// The body by whole lines (a list: as one), with a text replaced.
fn lines(
    body: Body,
    watch: bool,
    replace: Option<(String, String)>,
) -> impl futures::Stream<Item = Result<bytes::Bytes, axum::Error>> + Send + 'static {
    let state = (body.into_data_stream(), Vec::new(), false);
    futures::stream::unfold(state, move |(mut stream, mut held, done)| {
        let replace = replace.clone();
        async move {
            if done {
                return None;
            }
            loop {
                let end = held.iter().rposition(|byte| *byte == b'\n').filter(|_| watch);
                if let Some(end) = end {
                    let rest = held.split_off(end + 1);
                    let out = replaced(std::mem::replace(&mut held, rest), replace.as_ref());
                    return Some((Ok(out), (stream, held, false)));
                }
                match stream.next().await {
                    Some(Ok(chunk)) => held.extend_from_slice(&chunk),
                    Some(Err(error)) => return Some((Err(error), (stream, Vec::new(), true))),
                    None => return Some((Ok(replaced(held, replace.as_ref())), (stream, Vec::new(), true))),
                }
            }
        }
    })
}

fn replaced(text: Vec<u8>, replace: Option<&(String, String)>) -> bytes::Bytes {
    match replace {
        Some((from, to)) => String::from_utf8(text).unwrap().replace(from, to).into(),
        None => text.into(),
    }
}
