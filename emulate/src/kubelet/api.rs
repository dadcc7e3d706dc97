//! The few calls that a kubelet makes.

use http::Request;
use muster_model::Timestamp;
use serde_json::Value;

/// What the API server did.
pub(super) enum Answer {
    Done(Value),
    /// There is no such object.
    Gone,
    /// It is there already, or not what was expected.
    Conflict,
}

pub(super) struct Api {
    client: kube::Client,
}

impl Api {
    pub(super) const fn new(client: kube::Client) -> Self {
        Self { client }
    }

    pub(super) async fn get(&self, path: &str) -> Result<Answer, String> {
        self.send("GET", path, "application/json", &Value::Null).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Answer, String> {
        self.send("POST", path, "application/json", body).await
    }

    pub(super) async fn merge(&self, path: &str, body: &Value) -> Result<Answer, String> {
        self.send("PATCH", path, "application/merge-patch+json", body).await
    }

    pub(super) async fn delete(&self, path: &str, options: &Value) -> Result<Answer, String> {
        self.send("DELETE", path, "application/json", options).await
    }

    async fn send(&self, method: &str, path: &str, content: &str, body: &Value) -> Result<Answer, String> {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .body(bytes)
            .map_err(|error| error.to_string())?;
        match self.client.request::<Value>(request).await {
            Ok(answer) => Ok(Answer::Done(answer)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Answer::Gone),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Answer::Conflict),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A time with microseconds, which leases insist on.
pub(super) fn micro(time: Timestamp) -> String {
    let seconds = Timestamp::from_millis(time.millis().div_euclid(1000) * 1000).to_string();
    format!("{}.{:03}000Z", seconds.trim_end_matches('Z'), time.millis().rem_euclid(1000))
}
