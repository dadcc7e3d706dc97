//! The connection to an API server: credentials, one call with a limit, one stream.

use std::{path::PathBuf, sync::Arc};

use futures::AsyncBufRead;
use kube::config::{KubeConfigOptions, Kubeconfig};
use muster_model::{Clock, Duration};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::KubeError;

/// The longest that one call may take. An API server that needs longer for a single object is in trouble, and
/// the loop that asked decides when to ask again.
const CALL_LIMIT: Duration = Duration::from_secs(15);
/// Connecting takes a round trip or two; a server that is gone should not hold a watch up for longer.
const CONNECT_LIMIT: std::time::Duration = std::time::Duration::from_secs(10);
/// Under which name our writes appear in `managedFields`.
pub(crate) const FIELD_MANAGER: &str = "muster";

/// Where the cluster is and who we are there.
#[derive(Clone)]
pub enum Credentials {
    /// The service account of the pod that we run in.
    InCluster,
    /// A kubeconfig file; `None` is its current context.
    File { path: PathBuf, context: Option<String> },
    /// The text of a kubeconfig, as it is kept for a registered cluster.
    Text { kubeconfig: String, context: Option<String> },
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InCluster => f.write_str("InCluster"),
            Self::File { path, context } => write!(f, "File({}, {context:?})", path.display()),
            Self::Text { context, .. } => write!(f, "Text(hidden, {context:?})"),
        }
    }
}

/// A client of one API server. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    inner: kube::Client,
    clock: Arc<dyn Clock>,
    server: Arc<str>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Client {
    /// Reads the credentials. The API server is not called yet.
    pub async fn connect(credentials: &Credentials, clock: Arc<dyn Clock>) -> Result<Self, KubeError> {
        let options =
            |context: &Option<String>| KubeConfigOptions { context: context.clone(), ..Default::default() };
        let (from, config) = match credentials {
            Credentials::InCluster => (
                "the service account of this pod".to_owned(),
                kube::Config::incluster().map_err(|error| error.to_string()),
            ),
            Credentials::File { path, context } => {
                let config = match Kubeconfig::read_from(path) {
                    Ok(file) => kube::Config::from_custom_kubeconfig(file, &options(context)).await,
                    Err(error) => Err(error),
                };
                (format!("kubeconfig {}", path.display()), config.map_err(|error| error.to_string()))
            }
            Credentials::Text { kubeconfig, context } => {
                let config = match Kubeconfig::from_yaml(kubeconfig) {
                    Ok(file) => kube::Config::from_custom_kubeconfig(file, &options(context)).await,
                    Err(error) => Err(error),
                };
                ("the stored kubeconfig".to_owned(), config.map_err(|error| error.to_string()))
            }
        };
        let mut config = config.map_err(|why| KubeError::Credentials { from: from.clone(), why })?;
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT_LIMIT);
        config.read_timeout = None; // a quiet watch is not a dead one; calls have a limit of their own
        let server = config.cluster_url.to_string().into();
        let inner = kube::Client::try_from(config)
            .map_err(|error| KubeError::Credentials { from, why: error.to_string() })?;
        Ok(Self { inner, clock, server })
    }

    /// The API server's address.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Calls the API server once, as whoever the credentials say: what it calls its version.
    pub async fn version(&self) -> Result<String, KubeError> {
        let what = "ask the API server for its version";
        let answer: Value = self.call(what, Call::get("/version")).await?;
        Ok(answer["gitVersion"].as_str().unwrap_or_default().to_owned())
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// One call and its answer. `what` begins the error text, for example `cordon node n1`.
    pub(crate) async fn call<T: DeserializeOwned>(&self, what: &str, call: Call<'_>) -> Result<T, KubeError> {
        let text = self.text(what, call).await?;
        serde_json::from_str(&text)
            .map_err(|error| KubeError::Unreadable { what: what.to_owned(), why: error.to_string() })
    }

    /// One call; its answer as it came.
    pub(crate) async fn text(&self, what: &str, call: Call<'_>) -> Result<String, KubeError> {
        self.text_within(what, call, CALL_LIMIT).await
    }

    pub(crate) async fn text_within(
        &self,
        what: &str,
        call: Call<'_>,
        limit: Duration,
    ) -> Result<String, KubeError> {
        let request = call.request(what)?;
        tokio::select! {
            answer = self.inner.request_text(request) => {
                answer.map_err(|error| KubeError::from_client(what, error))
            }
            () = self.clock.sleep(limit) => Err(KubeError::Timeout { what: what.to_owned(), limit }),
        }
    }

    /// Opens a stream of lines. Only the opening has a limit.
    pub(crate) async fn stream(
        &self,
        what: &str,
        path: &str,
    ) -> Result<impl AsyncBufRead + Send + Unpin + use<>, KubeError> {
        let request = Call::get(path).request(what)?;
        tokio::select! {
            answer = self.inner.request_stream(request) => match answer {
                Ok(reader) => Ok(Box::pin(reader)),
                Err(error) => Err(KubeError::from_client(what, error)),
            },
            () = self.clock.sleep(CALL_LIMIT) => {
                Err(KubeError::Timeout { what: what.to_owned(), limit: CALL_LIMIT })
            }
        }
    }
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Call<'a> {
    method: &'static str,
    path: &'a str,
    content_type: &'static str,
    body: Option<Value>,
}

impl<'a> Call<'a> {
    pub(crate) const fn get(path: &'a str) -> Self {
        Self { method: "GET", path, content_type: "", body: None }
    }

    pub(crate) const fn post(path: &'a str, body: Value) -> Self {
        Self { method: "POST", path, content_type: "application/json", body: Some(body) }
    }

    pub(crate) const fn put(path: &'a str, body: Value) -> Self {
        Self { method: "PUT", path, content_type: "application/json", body: Some(body) }
    }

    pub(crate) const fn delete(path: &'a str, options: Value) -> Self {
        Self { method: "DELETE", path, content_type: "application/json", body: Some(options) }
    }

    /// Changes what the body names and leaves the rest; with a `resourceVersion` a compare-and-set.
    pub(crate) const fn merge(path: &'a str, body: Value) -> Self {
        Self { method: "PATCH", path, content_type: "application/merge-patch+json", body: Some(body) }
    }

    /// Server-side apply.
    pub(crate) const fn apply(path: &'a str, body: Value) -> Self {
        Self { method: "PATCH", path, content_type: "application/apply-patch+yaml", body: Some(body) }
    }

    fn request(self, what: &str) -> Result<http::Request<Vec<u8>>, KubeError> {
        let unreadable = |why: String| KubeError::Unreadable { what: what.to_owned(), why };
        let body = match &self.body {
            Some(body) => serde_json::to_vec(body).map_err(|error| unreadable(error.to_string()))?,
            None => Vec::new(),
        };
        let mut request = http::Request::builder().method(self.method).uri(self.path);
        if !self.content_type.is_empty() {
            request = request.header(http::header::CONTENT_TYPE, self.content_type);
        }
        request
            .header(http::header::ACCEPT, "application/json")
            .body(body)
            .map_err(|error| unreadable(error.to_string()))
    }
}
