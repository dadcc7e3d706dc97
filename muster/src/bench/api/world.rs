//! What the server is filled with: clusters, and pools of about 2 KB with labels, a template and autoscaling.

use std::{path::Path, sync::Arc};

use anyhow::Context;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    child::{CONTROLLER_TOKEN, Server, TOKEN},
    http::{Connection, request},
};
use crate::bench::{note, time};

/// Clusters that the pools are spread over.
pub(super) const CLUSTERS: usize = 50;
/// Every so many-th pool is reported Ready, and one after each of them is reported Failed.
pub(super) const READY_EVERY: usize = 10;
/// Values of the label `team`.
pub(super) const TEAMS: usize = 40;
/// Connections that fill the store.
const WRITERS: usize = 128;

/// The pool with this number.
pub(super) fn pool(number: usize) -> Value {
    let mut labels = serde_json::Map::new();
    labels.insert("team".into(), format!("team-{}", number % TEAMS).into());
    labels.insert("tier".into(), ["batch", "serving", "system"][number % 3].into());
    labels.insert("serial".into(), format!("{number}").into());
    for place in 0..16 {
        labels.insert(
            format!("inventory.example.com/attribute-{place:02}"),
            format!("value-{:06}-of-attribute-{place:02}", (number / 7) % 1_000).into(),
        );
    }
    json!({
        "name": format!("pool-{number:06}"),
        "spec": {
            "platform": {"type": "gcp", "gcp": {
                "machineType": "n1-standard-4", "diskSize": 100, "diskType": "pd-ssd",
                "zones": ["us-central1-a", "us-central1-b"], "preemptible": false}},
            "labels": labels,
            "taints": [{"key": "dedicated", "value": "bench", "effect": "NoSchedule"}],
            "autoscaling": {"enabled": true, "minNodes": 1, "maxNodes": 10 + number % 90,
                "targetCPUUtilization": 70, "targetMemoryUtilization": 80},
            "management": {"maxSurge": 1, "maxUnavailable": 0, "nodeDrainTimeout": "10m"},
            "nodeCount": 3
        }
    })
}

/// A controller's report that makes a pool Ready, or Failed.
pub(super) fn report(ready: bool) -> Value {
    let (kind, status, reason) =
        if ready { ("Ready", "True", "AsAsked") } else { ("Available", "False", "QuotaExceeded") };
    let mut report = json!({
        "controller_name": "bench", "observed_generation": 1, "lease": "24h",
        "conditions": [{"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z",
            "reason": reason, "message": "as the benchmark says"}],
        "metadata": {"active_nodes": 3, "desired_nodes": 3}
    });
    if !ready {
        report["last_error"] = json!({"errorType": "Fatal", "message": "no quota"});
    }
    report
}

/// A server with pools in it.
#[derive(Debug)]
pub(super) struct World {
    pub(super) server: Server,
    pub(super) clusters: Vec<String>,
    /// Ids of pools, in the order of their numbers.
    pub(super) pools: Arc<Vec<String>>,
}

impl World {
    /// Starts a server on `data` and fills it with `count` pools.
    pub(super) async fn fill(data: &Path, count: usize) -> anyhow::Result<Self> {
        let server = Server::start(data).await?;
        let started = time::now();
        note(&format!("filling the store with {count} pools"));
        let clusters = make_clusters(&server, CLUSTERS).await?;
        let pools = {
            let clusters = clusters.clone();
            let make = move |number: usize| {
                let path = format!("/api/v1/clusters/{}/nodepools", clusters[number % CLUSTERS]);
                request("POST", &path, TOKEN, Some(&pool(number)))
            };
            each(&server, count, make, id_of).await?
        };
        let pools: Vec<String> =
            pools.into_iter().collect::<Option<_>>().context("a created pool has no id")?;
        let pools = Arc::new(pools);
        let reported: Vec<usize> = (0..count).filter(|number| number % READY_EVERY < 2).collect();
        let ids = Arc::clone(&pools);
        let places = reported.clone();
        let make = move |place: usize| {
            let number = places[place];
            let path = format!("/api/v1/nodepools/{}/status", ids[number]);
            request("PUT", &path, CONTROLLER_TOKEN, Some(&report(number.is_multiple_of(READY_EVERY))))
        };
        each(&server, reported.len(), make, |_| ()).await?;
        note(&format!("filled in {:.0} s", time::seconds(started)));
        Ok(Self { server, clusters, pools })
    }

    /// The same store under a new process, after a clean stop.
    pub(super) async fn restart(self, data: &Path) -> anyhow::Result<Self> {
        let Self { server, clusters, pools } = self;
        server.stop()?;
        Ok(Self { server: Server::start(data).await?, clusters, pools })
    }
}

pub(super) async fn make_clusters(server: &Server, count: usize) -> anyhow::Result<Vec<String>> {
    let mut connection = server.connect().await?;
    let mut clusters = Vec::new();
    for number in 0..count {
        let body = json!({"name": format!("cluster-{number}"), "spec": {"platform": {"type": "gcp"}}});
        let answer = connection.call(&request("POST", "/api/v1/clusters", TOKEN, Some(&body))).await?;
        clusters.push(answer.json(201)?["id"].as_str().context("a cluster has an id")?.to_owned());
    }
    Ok(clusters)
}

/// The id in a rendered object, without reading all of it.
pub(super) fn id_of(body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Id {
        id: String,
    }
    serde_json::from_slice::<Id>(body).ok().map(|body| body.id)
}

/// Sends requests 0 to `count` over many connections; what `read` makes of their answers, in order. Any refusal is an
/// error.
async fn each<T: Default + Clone + Send + 'static>(
    server: &Server,
    count: usize,
    make: impl Fn(usize) -> Vec<u8> + Send + Sync + 'static,
    read: fn(&[u8]) -> T,
) -> anyhow::Result<Vec<T>> {
    let make = Arc::new(make);
    let mut tasks = JoinSet::new();
    for first in 0..WRITERS.min(count) {
        let (make, address) = (Arc::clone(&make), server.address);
        tasks.spawn(async move {
            let mut connection = Connection::open(address).await?;
            let mut answers = Vec::new();
            for number in (first..count).step_by(WRITERS) {
                let answer = connection.call(&make(number)).await?;
                anyhow::ensure!(
                    answer.status < 300,
                    "the server answered {}: {}",
                    answer.status,
                    answer.text()
                );
                answers.push((number, read(answer.body)));
            }
            Ok(answers)
        });
    }
    let mut all = vec![T::default(); count];
    while let Some(answers) = tasks.join_next().await {
        for (number, answer) in answers?? {
            all[number] = answer;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_of_about_two_kilobytes() {
        let size = pool(99_999).to_string().len();
        assert!((1_500..2_500).contains(&size), "{size} bytes");
    }
}
